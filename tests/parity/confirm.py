"""`python -m tests.parity.confirm`: the recorded verdicts against kube-scheduler's own code in one process.

The environment variable KUBERNETES chooses the version. The oracle (`oracle/`) answers each scenario that has no devices, without a control plane. A recording that was edited by
hand, or that was made of another cluster, is contradicted. The command prints each contradiction and then exits with 1.

What an attempt alone does not show is not confirmed: the writes to claims and PVs, the nominations that other pods lose, and
which error a write gives. Where the recording has such an error, the oracle must have found a node.
"""

import asyncio
import dataclasses
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from simulator.apiserver import LIKE_1_36, ApiServer
from tests.e2e.controlplane.build import MINOR, Unavailable
from tests.parity import recordings
from tests.parity.api import InProcess, make_lasting, put, put_budgets, put_pods, put_settings, wipe
from tests.parity.oracle import process
from tests.parity.oracle.process import Oracle
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.suite import recordable
from tests.parity.verdict import GATED, Verdict, differences
from tests.parity.volumes import put_volumes

_WRITING: Final = 'running PreBind plugin "'
_TIMES_AMONG_CAPACITIES: Final = 9
"""How often a contradicted pod is tried alone in a cluster with capacity objects.

From 1.37 on, VolumeBinding scores the first of several capacity objects in the order of a Go map.
"""
Place = tuple[str, str]
"""The key of a scenario, and the name of a tried pod."""


@dataclass
class Confirmation:
    """The tried pods with an equal answer of the oracle, and its answers on the rest."""

    confirmed: set[Place] = field(default_factory=set)
    contradicted: dict[Place, list[str]] = field(default_factory=dict)


def can_confirm(scenario: Scenario) -> bool:
    """Return whether the oracle can answer: it knows of no devices."""
    return not scenario.devices


def contradictions(recorded: Verdict, said: Verdict) -> list[str]:
    """Return in words how the oracle differs from the recording, as far as an attempt alone shows it."""
    if recorded.reason == GATED:  # the words of that condition are the API server's
        return [] if said.reason == GATED else [f"recorded: {GATED}", f"oracle: {said}"]
    if recorded.message.startswith(_WRITING):
        return [] if said.node else [f"recorded: {recorded.message}", f"oracle: {said}"]
    shown = dataclasses.replace(recorded.without_displaced(), writes=())
    found = [line.replace("ours", "oracle") for line in differences(shown, said)]
    if not found and shown.scores != said.scores:
        found = [f"recorded scores: {shown.scores}", f"scores of the oracle: {said.scores}"]
    return found


async def confirm(
    program: Path, scenarios: Iterable[Scenario], recorded: Mapping[str, Recording], found: Confirmation
) -> None:
    """Put each scenario to the oracle and note in `found` what it says. Scenarios with devices raise ValueError."""
    by_gates: dict[tuple[str, ...], list[Scenario]] = {}
    for scenario in scenarios:
        if not can_confirm(scenario):
            raise ValueError(f"{scenario.key}: the oracle knows of no devices")
        by_gates.setdefault(scenario.feature_gates, []).append(scenario)
    async with ApiServer(served=LIKE_1_36) as server:
        api = InProcess(server, MINOR)
        await make_lasting(api)
        for gates, alike in by_gates.items():
            async with process.running(program, gates) as oracle:
                for scenario in alike:
                    await _put_all(api, scenario)
                    await _confirm(api, scenario, recorded[scenario.key], oracle, found)


async def _put_all(api: InProcess, scenario: Scenario) -> None:
    await wipe(api)
    await put(api, scenario)
    await put_settings(api, scenario)
    await put_budgets(api, scenario)
    await put_pods(api, scenario, waiting_for="nobody")
    await put_volumes(api, scenario)


async def _confirm(
    api: InProcess, scenario: Scenario, recording: Recording, oracle: Oracle, found: Confirmation
) -> None:
    for name, said in (await oracle.answers(api, scenario, recording.verdicts)).items():
        recorded = recording.verdicts[name]
        contradicted = contradictions(recorded, said)
        has_capacities = any(each["kind"] == "CSIStorageCapacity" for each in scenario.storage.settings)
        for _ in range(_TIMES_AMONG_CAPACITIES if has_capacities else 1):
            if not contradicted:
                break  # a nomination that was taken from another pod stays taken within one question
            contradicted = contradictions(recorded, (await oracle.answers(api, scenario, [name]))[name])
        if contradicted:
            found.contradicted[scenario.key, name] = contradicted
        else:
            found.confirmed.add((scenario.key, name))


def main() -> int:
    try:
        program = process.binary()
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    recorded, found = recordings.read(MINOR), Confirmation()
    scenarios = [scenario for scenario in recordable() if can_confirm(scenario) and scenario.key in recorded]
    began = time.monotonic()
    asyncio.run(confirm(program, scenarios, recorded, found))
    for (key, name), said in found.contradicted.items():
        print(f"{key}: {name}:", *said, sep="\n    ")  # noqa: T201
    print(  # noqa: T201
        f"{len(scenarios)} scenarios in {time.monotonic() - began:.0f} s:",
        f"{len(found.confirmed)} verdicts confirmed, {len(found.contradicted)} contradicted",
    )
    return 1 if found.contradicted else 0


if __name__ == "__main__":
    sys.exit(main())
