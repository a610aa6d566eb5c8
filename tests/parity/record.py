"""`python -m tests.parity.record`: every scenario through the real kube-scheduler, and through ours on the same cluster.

Writes the recordings anew and exits with 1 if ours disagreed where `known` does not say so. `--only <text>` takes the scenarios whose key
holds the text and writes nothing, unless `--write` is given: then all others stay as they were recorded. `--kube` asks kube-scheduler alone.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import time

from scheduler.obs import logs
from tests.e2e.controlplane.build import Unavailable
from tests.parity import ours, recordings
from tests.parity.api import DEVICES, Api, Remote, make_lasting, put, put_budgets, put_settings, wipe
from tests.parity.known import surprises
from tests.parity.kube import Kube, LoudPlane
from tests.parity.ours import Ours
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.stage import Stage
from tests.parity.suite import recordable
from tests.parity.verdict import Verdict, differences

_PAUSE_S = 0.01
_TIMES = 5
"""So often a pod that preempts is asked about, with its victims back in their places."""
_MOST_TIMES = 200
"""While chance has not shown all ways that the scenario knows of."""


async def record(chosen: list[Scenario], *, alone: bool) -> tuple[list[tuple[Scenario, Recording]], int]:
    """The recordings, and at how many asked pods there was a surprise; says what it was while it goes.

    `alone`: without ours.
    """
    old, done, disagreed = recordings.read(), [], 0
    async with LoudPlane() as plane, plane.client() as http:
        api = Remote(http)
        await make_lasting(api)
        await Kube.start(plane)
        kube = Kube(api, plane)
        async with _Ours(api, plane, alone=alone) as ours_for:
            for scenario in chosen:
                before = old.get(scenario.key)
                verdicts: dict[str, Verdict] = {}
                try:
                    told = await _run(scenario, kube, await ours_for(scenario))
                except AssertionError as error:
                    error.add_note(scenario.key)
                    raise
                for name, (theirs, found) in told.items():
                    verdicts[name] = recordings.steady(theirs, before.verdicts.get(name) if before else None)
                    if found := surprises((scenario.key, name), found):
                        disagreed += 1
                        print(f"{scenario.key}: {name}:", *found, sep="\n    ", flush=True)  # noqa: T201
                done.append((scenario, Recording(scenario.digest(), verdicts)))
    return done, disagreed


class _Ours(contextlib.AsyncExitStack):
    """One daemon at a time: with the gates that a scenario wants. `alone`: none."""

    def __init__(self, api: Api, plane: LoudPlane, *, alone: bool) -> None:
        super().__init__()
        self._api = api
        self._kubeconfig = str(plane.kubeconfig)
        self._alone = alone
        self._running: tuple[tuple[str, ...], Ours] | None = None

    async def __call__(self, scenario: Scenario) -> Ours | None:
        if self._alone:
            return None
        if self._running is None or self._running[0] != scenario.feature_gates:
            await self.aclose()
            gates = scenario.feature_gates
            daemon = ours.running(self._api, pause_s=_PAUSE_S, kubeconfig=self._kubeconfig, gates=gates)
            self._running = gates, await self.enter_async_context(daemon)
        return self._running[1]


async def _run(scenario: Scenario, kube: Kube, we: Ours | None) -> dict[str, tuple[Verdict, list[str]]]:
    """Asked pod → kube-scheduler's verdict, and how ours differs."""
    await kube.serve(scenario)
    await wipe(kube.api)
    await wipe(kube.api, DEVICES)
    await kube.see_nothing()
    await put_budgets(kube.api, scenario)
    await kube.see_budgets(scenario)
    await put_settings(kube.api, scenario)
    await kube.see_settings(scenario)
    await put(kube.api, scenario)
    stage = Stage(scenario)
    await stage.set_for(kube)
    await kube.see_cluster(scenario)
    found = {}
    for name in scenario.asked:
        theirs, doubts = await _ask_often(stage, kube, name, scenario.ways.get(name, 1))
        if we is not None:
            doubts += differences(theirs, await stage.ask(we, name))
        found[name] = theirs, doubts
    return found


async def _ask_often(stage: Stage, kube: Kube, name: str, ways: int) -> tuple[Verdict, list[str]]:
    """One verdict with all the ways it may take, and what is wrong with it: there must be so many as the scenario says."""
    first = await stage.ask(kube, name)
    if not first.preempts:
        return first, []
    seen, tries, doubts = {*first.ways}, 1, []
    while tries < _TIMES or (len(seen) < ways and tries < _MOST_TIMES):
        again = await stage.ask(kube, name)
        if (again.reason, again.message) != (first.reason, first.message):
            doubts.append(f"kube-scheduler said {first.message}, then {again.message}")
        seen.update(again.ways)
        tries += 1
    if len(seen) != ways:
        doubts.append(f"{ways} ways were expected, {tries} trials showed {sorted(seen)}")
    return dataclasses.replace(first, ways=tuple(sorted(seen))), doubts


def _with_the_others(done: list[tuple[Scenario, Recording]]) -> list[tuple[Scenario, Recording]]:
    """All scenarios that have a recording, in order: those that are done anew, the others as they are."""
    new, old = {scenario.key: recording for scenario, recording in done}, recordings.read()
    found = ((scenario, new.get(scenario.key, old.get(scenario.key))) for scenario in recordable())
    return [(scenario, recording) for scenario, recording in found if recording is not None]


def main() -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.record")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kube", action="store_true")
    given = parser.parse_args()
    chosen = [one for one in recordable() if given.only in one.key]
    began = time.monotonic()
    try:
        done, disagreed = asyncio.run(record(chosen, alone=given.kube))
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    changed = recordings.write(_with_the_others(done)) if given.write or not given.only else []
    asked = sum(len(recording.verdicts) for _, recording in done)
    took_s = time.monotonic() - began
    print("recordings changed:", *(changed or ["none"]))  # noqa: T201
    print(f"{len(done)} scenarios, {asked} asked pods in {took_s:.0f} s; surprises: {disagreed}")  # noqa: T201
    return 1 if disagreed else 0


if __name__ == "__main__":
    sys.exit(main())
