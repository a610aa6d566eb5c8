"""`python -m tests.parity.record`: every scenario through the real kube-scheduler, and through ours on the same cluster.

Writes the recordings anew and exits with 1 if ours disagreed where `known` does not say so. `--only <text>` takes the scenarios whose key
holds the text and writes nothing.
"""

import argparse
import asyncio
import sys
import time

from scheduler.obs import logs
from tests.e2e.controlplane.build import Unavailable
from tests.parity import ours, recordings
from tests.parity.api import Remote, make_namespaces, put, wipe
from tests.parity.known import surprises
from tests.parity.kube import Kube, LoudPlane
from tests.parity.ours import Ours
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.suite import scenarios
from tests.parity.verdict import Verdict, differences

_PAUSE_S = 0.01


async def record(chosen: list[Scenario]) -> tuple[list[tuple[Scenario, Recording]], int]:
    """The recordings, and at how many asked pods there was a surprise; says what it was while it goes."""
    old, done, disagreed = recordings.read(), [], 0
    async with LoudPlane() as plane, plane.client() as http:
        api = Remote(http)
        await make_namespaces(api)
        await Kube.start(plane)
        kube = Kube(api, plane)
        async with ours.running(api, pause_s=_PAUSE_S, kubeconfig=str(plane.kubeconfig)) as we:
            for scenario in chosen:
                before = old.get(scenario.key)
                verdicts: dict[str, Verdict] = {}
                for name, (theirs, found) in (await _run(scenario, kube, we)).items():
                    verdicts[name] = recordings.steady(theirs, before.verdicts.get(name) if before else None)
                    if found := surprises((scenario.key, name), found):
                        disagreed += 1
                        print(f"{scenario.key}: {name}:", *found, sep="\n    ", flush=True)  # noqa: T201
                done.append((scenario, Recording(scenario.digest(), verdicts)))
    return done, disagreed


async def _run(scenario: Scenario, kube: Kube, we: Ours) -> dict[str, tuple[Verdict, list[str]]]:
    """Asked pod → kube-scheduler's verdict, and how ours differs."""
    await wipe(kube.api)
    await kube.see_nothing()
    await put(kube.api, scenario)
    await kube.see(scenario)
    found = {}
    for name, pod in scenario.asked.items():
        theirs = await kube.ask(pod, scenario.profile)
        await we.see(scenario)
        found[name] = theirs, differences(theirs, await we.ask(pod, scenario.profile))
    return found


def main() -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.record")
    parser.add_argument("--only", default="", metavar="TEXT")
    only = parser.parse_args().only
    chosen = [one for one in scenarios() if only in one.key]
    began = time.monotonic()
    try:
        done, disagreed = asyncio.run(record(chosen))
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    changed = [] if only else recordings.write(done)
    asked = sum(len(recording.verdicts) for _, recording in done)
    took_s = time.monotonic() - began
    print("recordings changed:", *(changed or ["none"]))  # noqa: T201
    print(f"{len(done)} scenarios, {asked} asked pods in {took_s:.0f} s; surprises: {disagreed}")  # noqa: T201
    return 1 if disagreed else 0


if __name__ == "__main__":
    sys.exit(main())
