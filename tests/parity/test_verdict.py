"""What counts as a difference, and what a recording keeps: a comparison that always agrees would prove nothing."""

from pathlib import Path

import pytest

from tests.parity import recordings
from tests.parity.generate import generate
from tests.parity.recordings import Recording, steady
from tests.parity.scenario import scenario
from tests.parity.verdict import Verdict, differences, verdict, without_post_filter

REFUSED = "0/2 nodes are available: 2 Insufficient cpu."
TAIL = (
    " no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
)
TWO = {"Fit": {"a": 60, "b": 50}, "Even": {"a": 10, "b": 20}}


def refused(message: str, reason: str = "Unschedulable") -> Verdict:
    return Verdict(reason=reason, message=message)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED), id="refused alike"),
        pytest.param(refused("none available. not found"), refused("none available."), id="PreFilter refused"),
        pytest.param(Verdict("a"), Verdict("a"), id="the only node"),
        pytest.param(Verdict("a", TWO), Verdict("b", TWO), id="another of the best"),
        pytest.param(
            Verdict("a", TWO | {"Taints": {"a": 300, "b": 300}}),
            Verdict("a", TWO),
            id="a plugin that tells nothing apart",
        ),
    ],
)
def test_they_agree(theirs: Verdict, ours: Verdict) -> None:
    """Chance and PostFilter make no difference."""
    assert differences(theirs, ours) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(refused(REFUSED + TAIL), Verdict("a"), id="we bind"),
        pytest.param(Verdict("a"), refused(REFUSED), id="we refuse"),
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED.replace("2 In", "1 In")), id="another count"),
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED + TAIL), id="we claim to have preempted"),
        pytest.param(refused(REFUSED), refused(REFUSED, "SchedulerError"), id="another reason"),
        pytest.param(Verdict("a"), Verdict("b"), id="another node"),
        pytest.param(Verdict("a"), Verdict("a", TWO), id="more nodes are feasible for us"),
        pytest.param(Verdict("a", TWO), Verdict("a"), id="fewer are"),
        pytest.param(Verdict("a", TWO), Verdict("a", {"Fit": {"a": 60, "b": 50}}), id="a plugin gives us no scores"),
        pytest.param(
            Verdict("a", {"Fit": {"a": 60, "b": 50}}),
            Verdict("a", {"Fit": {"a": 50, "b": 60}}),
            id="its node is not our best",
        ),
    ],
)
def test_they_differ(theirs: Verdict, ours: Verdict) -> None:
    """Anything else does."""
    assert differences(theirs, ours)


@pytest.mark.parametrize(
    "tail",
    [
        TAIL,
        " still not schedulable, preemption: not eligible due to preemptionPolicy=Never.",
        " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    ],
)
def test_what_post_filter_adds_is_cut(tail: str) -> None:
    """Whatever its two plugins say, and nothing before it."""
    assert without_post_filter(REFUSED + tail) == REFUSED


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And written twice it is the same bytes."""
    one = scenario("random", generate(7))
    wanted = Recording(one.digest(), {"a0": Verdict("n1", TWO), "a1": refused(REFUSED + TAIL)})

    recordings.write([(one, wanted)], tmp_path)
    first = (tmp_path / "random.json").read_bytes()
    recordings.write([(one, wanted)], tmp_path)

    assert recordings.read(tmp_path) == {one.key: wanted}
    assert (tmp_path / "random.json").read_bytes() == first


@pytest.mark.parametrize(
    ("new", "old", "kept"),
    [
        pytest.param(Verdict("b", {"F": {"a": 1, "b": 1}}), Verdict("a", {"F": {"a": 1, "b": 1}}), True, id="chance"),
        pytest.param(Verdict("b", {"F": {"a": 1, "b": 2}}), Verdict("a", {"F": {"a": 1, "b": 1}}), False, id="scores"),
        pytest.param(Verdict("b"), Verdict("a"), False, id="another node"),
        pytest.param(refused("x"), refused("y"), False, id="another text"),
        pytest.param(Verdict("b"), None, False, id="the first time"),
    ],
)
def test_chance_alone_does_not_change_a_recording(new: Verdict, old: Verdict | None, *, kept: bool) -> None:
    """Of nodes that are equally good the one that was recorded before stays."""
    assert steady(new, old) == (old if kept else new)


def test_json_and_back() -> None:
    """Empty fields are left out."""
    assert verdict(Verdict("a").to_json()) == Verdict("a")
    assert Verdict("a").to_json() == {"node": "a"}
