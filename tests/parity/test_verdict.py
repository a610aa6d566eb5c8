"""What counts as a difference, and what a recording keeps: a comparison that always agrees would prove nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.parity import recordings
from tests.parity.generate import generate
from tests.parity.recordings import Provenance, Recording, steady
from tests.parity.scenario import scenario
from tests.parity.verdict import Verdict, Way, differences, heard, verdict

REFUSED = "0/2 nodes are available: 2 Insufficient cpu."
TAIL = (
    " no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
)
MADE = Way("a", ("low", "lower"), ("waiting",))
TWO = {"Fit": {"a": 60, "b": 50}, "Even": {"a": 10, "b": 20}}


def refused(message: str, reason: str = "Unschedulable", ways: tuple[Way, ...] = (Way(),)) -> Verdict:
    return Verdict(reason=reason, message=message, ways=ways)


def preempting(message: str = REFUSED, **change: Any) -> Verdict:
    """Return a refusal with one way, in which other pods leave."""
    return refused(message, ways=(replace(MADE, **change),))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED + TAIL), id="refused alike"),
        pytest.param(preempting(), preempting(), id="the same pods leave"),
        pytest.param(refused(REFUSED, ways=(Way("b", ("low",)), MADE)), preempting(), id="one of two ways"),
        pytest.param(Verdict("a"), Verdict("a"), id="the only node"),
        pytest.param(Verdict("a", TWO), Verdict("b", TWO), id="another of the best"),
        pytest.param(Verdict("a", writes=("pv",)), Verdict("a", writes=("pv",)), id="the same is written"),
        pytest.param(
            Verdict("a", TWO | {"Taints": {"a": 300, "b": 300}}),
            Verdict("a", TWO),
            id="a plugin that distinguishes nothing",
        ),
    ],
)
def test_they_agree(theirs: Verdict, ours: Verdict) -> None:
    """Chance makes no difference."""
    assert differences(theirs, ours) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(refused(REFUSED + TAIL), Verdict("a"), id="we bind"),
        pytest.param(Verdict("a"), refused(REFUSED), id="we refuse"),
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED.replace("2 In", "1 In")), id="another count"),
        pytest.param(refused(REFUSED + TAIL), refused(REFUSED), id="PostFilter says something"),
        pytest.param(
            refused("none available. not found"), refused("none available."), id="PostFilter was not prepared"
        ),
        pytest.param(preempting(), refused(REFUSED), id="ours preempts nothing"),
        pytest.param(refused(REFUSED), preempting(), id="only we do"),
        pytest.param(preempting(), preempting(nominated="b"), id="elsewhere"),
        pytest.param(preempting(), preempting(evicted=("low",)), id="other pods leave"),
        pytest.param(preempting(), preempting(displaced=()), id="other pods lose their nomination"),
        pytest.param(refused(REFUSED), refused(REFUSED, "SchedulerError"), id="another reason"),
        pytest.param(Verdict("a"), Verdict("b"), id="another node"),
        pytest.param(Verdict("a", writes=("pv",)), Verdict("a"), id="we write nothing"),
        pytest.param(Verdict("a", writes=("pv",)), Verdict("a", writes=("claim",)), id="we write something else"),
        pytest.param(refused(REFUSED), replace(refused(REFUSED), writes=("pv",)), id="we write, and refuse"),
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


def test_whose_nomination_was_taken_can_be_left_out() -> None:
    """Nothing is evicted when only an attempt is looked at."""
    assert preempting().without_displaced().ways == (Way("a", ("low", "lower")),)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And written twice it is the same bytes."""
    one = scenario("random", generate(7))
    ways = (MADE, Way("b"))
    wanted = Recording(
        one.digest(),
        Provenance("v1.36.3", "0" * 64, "2026-01-31"),
        {
            "a0": Verdict("n1", TWO),
            "a1": refused(REFUSED + TAIL),
            "a2": refused("x", ways=ways),
            "a3": Verdict("n2", writes=("claim", "pv")),
        },
    )

    recordings.write("1.36", {one.key: wanted}, tmp_path)
    first = (tmp_path / "random.json").read_bytes()
    recordings.write("1.36", {one.key: wanted}, tmp_path)

    assert recordings.read(place=tmp_path) == {one.key: wanted}
    assert (tmp_path / "random.json").read_bytes() == first


@pytest.mark.parametrize(
    ("new", "old", "kept"),
    [
        pytest.param(Verdict("b", {"F": {"a": 1, "b": 1}}), Verdict("a", {"F": {"a": 1, "b": 1}}), True, id="chance"),
        pytest.param(Verdict("b", {"F": {"a": 1, "b": 2}}), Verdict("a", {"F": {"a": 1, "b": 1}}), False, id="scores"),
        pytest.param(Verdict("b"), Verdict("a"), False, id="another node"),
        pytest.param(refused("x"), refused("y"), False, id="another text"),
        pytest.param(Verdict("b"), None, False, id="the first time"),
        pytest.param(Verdict("a", writes=("x",)), Verdict("a", writes=("y",)), False, id="something else is written"),
    ],
)
def test_chance_alone_does_not_change_a_recording(new: Verdict, old: Verdict | None, *, kept: bool) -> None:
    """Of nodes that are equally good the one that was recorded before stays."""
    assert steady(new, old) == (old if kept else new)


SAID = f"{REFUSED} preemption: found a potential placement for pod on node a, preempting 2 victims"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param(preempting(SAID), preempting(victims=2), id="its node"),
        pytest.param(refused(SAID, ways=(Way("b"),)), refused(SAID, ways=(Way("b"),)), id="another node stays a text"),
        pytest.param(refused(f"{SAID}."), refused(f"{SAID}."), id="with a full stop it is not upstream's sentence"),
        pytest.param(preempting(), preempting(), id="no sentence"),
    ],
)
def test_a_sentence_about_a_preemption_becomes_a_part_of_its_way(said: Verdict, kept: Verdict) -> None:
    """Upstream takes one of several nodes by chance, so the sentence is as random as the way."""
    assert heard(said) == kept


def test_another_number_of_victims_is_a_difference() -> None:
    one, other = (preempting(victims=count) for count in (2, 3))

    assert differences(one, other)


def test_json_and_back() -> None:
    """Empty fields are left out."""
    assert verdict(Verdict("a").to_json()) == Verdict("a")
    assert Verdict("a").to_json() == {"node": "a"}
