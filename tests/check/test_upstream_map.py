"""Each `Upstream:` line has the form, and each row of docs/upstream-map.md names something of ours that is defined."""

from __future__ import annotations

import pytest

from tests.support.upstream import MAP, ROOT, MapRow, all_lines, defined, lines, rows

LINE = "Upstream: pkg/scheduler/schedule_one.go ScheduleOne"
CONCEPTS = [
    "addAllEventHandlers",
    "activeQ",
    "backoffQ",
    "unschedulablePods",
    "in-flight",
    "QueueingHintFn",
    "nominator",
    "schedulingCycle",
    "bindingCycle",
    "WaitingPod",
    "failureHandler",
    "handleSchedulingFailure",
    "Diagnosis",
    "FindPodVolumes",
    "AssumePodVolumes",
    "RevertAssumedPodVolumes",
    "BindPodVolumes",
    "checkBoundClaims",
    "findMatchingVolumes",
    "hasEnoughCapacity",
    "bindAPIUpdate",
    "checkBindings",
    "passiveAssumeCache",
    "SharedDRAManager",
    "claimTracker",
    "allocatedDevices",
    "GatherPools",
    "Allocator.Allocate",
    "allocateOne",
    "checkAvailableCounters",
    "matchAttributeConstraint",
    "NodeMatches",
    "bindClaim",
    "isClaimReadyForBinding",
    "Evaluator",
    "DryRunPreemption",
    "SelectVictimsOnNode",
]


def problem(row: MapRow) -> str:
    """Return what is wrong with our half of a row, or ""."""
    path = ROOT / row.path
    if not path.is_file():
        return f"no file {row.path}"
    missing = set(row.names) - defined(path.read_text())
    return f"{row.path} does not define {', '.join(sorted(missing))}" if missing else ""


def test_each_line_has_the_form() -> None:
    """Reading raises otherwise. Few lines would mean that they are not found any more."""
    assert len(all_lines()) > 100


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(f'"""A.\n\n{LINE}.\n"""', id="a full stop"),
        pytest.param(f'"""A. {LINE}\n"""', id="behind other words"),
        pytest.param('"""A.\n\nUpstream: schedule_one.go ScheduleOne\n"""', id="a file without its folder"),
        pytest.param('"""A.\n\nUpstream: pkg/scheduler/schedule_one.go#ScheduleOne\n"""', id="another separator"),
        pytest.param('"""A.\n\nUpstream: pkg/scheduler/schedule_one.go\n"""', id="no name"),
        pytest.param(f'"""A.\n\n{LINE}{"e" * 120}\n"""', id="too long"),
        pytest.param(f'"""A.\n\n{LINE}\n{LINE}\n"""', id="two in one docstring"),
        pytest.param(f'A = """\n{LINE}\n"""', id="not in a docstring"),
    ],
)
def test_another_form_is_refused(source: str) -> None:
    assert lines(f'"""A.\n\n{LINE}\n"""', "here")
    with pytest.raises(ValueError, match="here: "):
        lines(source, "here")


def test_each_row_names_something_of_ours() -> None:
    found = rows(MAP.read_text())

    assert len(found) > 100
    assert [said for said in map(problem, found) if said] == []


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        pytest.param("`scheduler/cycle.py` `Cycle`, `Cycle.attempt`, `_unfit`", "", id="class, method, function"),
        pytest.param("`scheduler/cycle.py`", "", id="a whole module"),
        pytest.param("`scheduler/cycle.py` `Circle`", "scheduler/cycle.py does not define Circle", id="no class"),
        pytest.param("`scheduler/cycle.py` `Cycle.go`", "scheduler/cycle.py does not define Cycle.go", id="no method"),
        pytest.param("`scheduler/bicycle.py` `Cycle`", "no file scheduler/bicycle.py", id="no file"),
    ],
)
def test_a_wrong_row_is_caught(ours: str, said: str) -> None:
    (row,) = rows(f"| `pkg/a.go` `A` | {ours} | |")

    assert problem(row) == said


def test_a_row_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="not a row"):
        rows("| `pkg/a.go` | `scheduler/cycle.py` | |")


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_concept_is_found_by_upstreams_name(concept: str) -> None:
    assert concept in MAP.read_text()
