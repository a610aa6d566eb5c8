"""The recorded verdicts are kube-scheduler's: it repeats some of them, and its code confirms all that have no devices."""

import asyncio
import dataclasses
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.gate import built_or_skip
from tests.parity import recordings
from tests.parity.confirm import Confirmation, can_confirm, confirm
from tests.parity.oracle.process import binary
from tests.parity.record import record
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.suite import recordable
from tests.parity.verdict import Verdict, Way

REPEATS: Final = 20
EACH_RUN: Final = int(os.environ.get("KUBESTOW_SCENARIOS") or 20)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900 + 10 * EACH_RUN)]

# -- repeated -----------------------------------------------------------------------------------------------------------


def drawn(seed: int) -> list[Scenario]:
    """The scenarios that a run with this seed repeats, in the order of the suite: gates change less often."""
    every = [one for one in recordable() if is_certain(one)]
    return [every[at] for at in sorted(random.Random(seed).sample(range(len(every)), min(EACH_RUN, len(every))))]


def is_certain(scenario: Scenario) -> bool:
    """Whether kube-scheduler always gives the same scores.

    If a class has several capacities, 1.37 scores by any that is large enough (docs/spec/changes-1.37.md §1.2).
    """
    items = [item for item in scenario.storage.settings if item["kind"] == "CSIStorageCapacity"]
    return MINOR == "1.36" or len({item["storageClassName"] for item in items}) == len(items)


def test_kube_scheduler_says_again_what_was_recorded(control_plane_binaries: Path, seed: int) -> None:
    """The same verdict, and the same number of ways to preempt."""
    recorded, chosen = recordings.read(MINOR), drawn(seed)

    again = asyncio.run(record(chosen, recorded, alone=True))

    assert {one.scenario.key: dict(one.surprises) for one in again if one.surprises} == {}
    assert [one.scenario for one in again] == chosen
    for one in again:
        before = recorded[one.scenario.key]
        assert (one.recording.digest, one.recording.verdicts) == (before.digest, before.verdicts), one.scenario.key


def test_each_run_repeats_other_scenarios() -> None:
    runs = [[scenario.key for scenario in drawn(seed)] for seed in (1, 1, 2)]

    assert runs[0] == runs[1] != runs[2]
    assert all(len(set(keys)) == len(keys) > 0 for keys in runs)


# -- confirmed by kube-scheduler's own code ----------------------------------------------------------------------------


def confirmed(scenarios: list[Scenario], recorded: Mapping[str, Recording]) -> Confirmation:
    program, found = built_or_skip(binary), Confirmation()
    asyncio.run(confirm(program, scenarios, recorded, found))
    return found


def test_every_recording_without_devices_is_confirmed() -> None:
    """What has random scores is repeated until it has the recorded ones."""
    recorded = recordings.read(MINOR)
    chosen = [scenario for scenario in recordable() if can_confirm(scenario)]

    found = confirmed(chosen, recorded)
    for _ in range(REPEATS):
        keys = {key for key, _ in found.contradicted}
        if again := [scenario for scenario in chosen if scenario.key in keys and not is_certain(scenario)]:
            more = confirmed(again, recorded)
            found.confirmed |= more.confirmed
            found.contradicted = {at: what for at, what in found.contradicted.items() if at not in more.confirmed}

    assert found.contradicted == {}
    assert found.confirmed == {(scenario.key, name) for scenario in chosen for name in recorded[scenario.key].verdicts}
    assert len(found.confirmed) > 2500


def _other_node(verdict: Verdict) -> Verdict:
    """One that was feasible, and not the best."""
    return dataclasses.replace(verdict, node=min(verdict.totals().keys() - verdict.best()))


def _other_score(verdict: Verdict) -> Verdict:
    """One point more for the node that was best anyhow, from one plugin."""
    plugin = next(iter(verdict.scores))
    row = verdict.scores[plugin]
    return dataclasses.replace(verdict, scores={**verdict.scores, plugin: {**row, verdict.node: row[verdict.node] + 1}})


ALTERED: Final[dict[str, tuple[Callable[[Verdict], bool], Callable[[Verdict], Verdict]]]] = {
    "another node": (lambda v: bool(v.totals().keys() - v.best()), _other_node),
    "a score that changes no choice": (lambda v: bool(v.scores), _other_score),
    "refused instead of placed": (lambda v: bool(v.node), lambda _: Verdict(reason="Unschedulable", message="no")),
    "placed instead of refused": (lambda v: v.reason == "Unschedulable", lambda _: Verdict("n1")),
    "another text": (lambda v: bool(v.message), lambda v: dataclasses.replace(v, message=f"{v.message} ")),
    "other victims": (
        lambda v: v.preempts,
        lambda v: dataclasses.replace(v, ways=(Way(v.ways[0].nominated, ("none",)),)),
    ),
    "no victims": (lambda v: v.preempts, lambda v: dataclasses.replace(v, ways=(Way(),))),
    "a gated pod that is placed": (lambda v: v.reason == "SchedulingGated", lambda _: Verdict("n1")),
    "a pod that was gated": (lambda v: bool(v.node), lambda _: Verdict(reason="SchedulingGated")),
    "a write that failed": (
        lambda v: v.reason == "Unschedulable",
        lambda _: Verdict(reason="SchedulerError", message='running PreBind plugin "VolumeBinding": conflict'),
    ),
}


@pytest.mark.parametrize("alteration", ALTERED)
def test_an_altered_recording_is_contradicted(alteration: str) -> None:
    fits, altered = ALTERED[alteration]
    recorded = recordings.read(MINOR)
    scenario, name = next(
        (scenario, name)
        for scenario in recordable()
        if can_confirm(scenario)
        for name, verdict in recorded[scenario.key].verdicts.items()
        if fits(verdict)
    )
    whole = recorded[scenario.key]
    wrong = {**whole.verdicts, name: altered(whole.verdicts[name])}

    found = confirmed([scenario], {scenario.key: dataclasses.replace(whole, verdicts=wrong)})

    assert found.contradicted.keys() == {(scenario.key, name)}
    assert found.confirmed == {(scenario.key, other) for other in wrong if other != name}


def test_what_has_devices_is_refused() -> None:
    scenario = next(one for one in recordable() if one.devices)

    with pytest.raises(ValueError, match="knows of no devices"):
        confirmed([scenario], recordings.read(MINOR))
