"""The driver of the checks: its share of the time, its passes, its records, and its place in the scheduling loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
import structlog

from scheduler.audit.findings import Comparison, Difference, by_key, faultless, grouped, in_parts
from scheduler.audit.self_audit import PASS_EVERY_S, SHARE, TURN_S, SelfAudit
from scheduler.binding import Binder
from scheduler.cache.cluster import Cluster
from scheduler.core.errors import UnforeseenErrors
from scheduler.loop import MAX_BINDINGS
from scheduler.queueing.types import Place
from tests.unit.audit.world import AuditWorld, world
from tests.unit.harness import StepClock

WRONG = Difference("node n1", "requested cpu", 2, 1)


class Driven:
    """A self-audit with one check of `steps` steps, each of which takes `step_s`."""

    def __init__(self, steps: int = 10, step_s: float = 0.0, found: Sequence[Difference] = ()) -> None:
        self.clock = StepClock()
        self.errors = UnforeseenErrors(self.clock)
        self.is_current = True
        self.healed = 0
        self.spent_s = 0.0
        self._steps, self._step_s, self._found = steps, step_s, found
        self.audit = SelfAudit(
            {"one": self._check, "two": lambda: iter(())},
            self.clock,
            self.errors,
            is_current=lambda: self.is_current,
            on_healed=self._healed,
        )

    def _check(self) -> Iterator[Sequence[Difference]]:
        for _ in range(self._steps):
            self.clock.time += self._step_s
            self.spent_s += self._step_s
            yield self._found

    def _healed(self) -> None:
        self.healed += 1

    def idle(self, seconds: int) -> None:
        """Let the loop be idle: it wakes once per second, and turns while there is credit."""
        for _ in range(seconds):
            self.clock.time += 1.0
            while self.audit.may_run():
                self.audit.turn()


@pytest.mark.parametrize("step_s", [0.0001, 0.0004, 0.0009, 0.003], ids=lambda step_s: f"steps of {1e3 * step_s} ms")
def test_the_checks_take_at_most_one_percent_of_the_time(step_s: float) -> None:
    driven = Driven(10**6, step_s)
    began = driven.clock.time + PASS_EVERY_S
    driven.idle(1000)
    seconds = driven.clock.time - began
    assert 0.9 * SHARE * seconds <= driven.spent_s <= SHARE * (seconds + 1.0) + TURN_S + step_s


@pytest.mark.parametrize("step_s", [0.0001, 0.0004, 0.003], ids=lambda step_s: f"steps of {1e3 * step_s} ms")
def test_a_turn_ends_with_the_first_step_after_one_millisecond(step_s: float) -> None:
    driven = Driven(10**6, step_s)
    driven.audit.turn()
    assert TURN_S <= driven.spent_s + 1e-9
    assert driven.spent_s <= TURN_S + step_s + 1e-9


def test_a_long_idle_time_saves_no_more_than_one_second_of_work() -> None:
    driven = Driven(10**6, 0.0005)
    driven.clock.time += 10_000.0
    while driven.audit.may_run():
        driven.audit.turn()
    assert driven.spent_s <= SHARE * 1.0 + TURN_S + 1e-3


def test_passes_begin_a_minute_apart() -> None:
    driven = Driven()
    driven.idle(int(PASS_EVERY_S) - 1)
    assert driven.audit.passes == 0
    driven.idle(2)
    assert driven.audit.passes == 1
    driven.idle(int(PASS_EVERY_S) - 2)
    assert driven.audit.passes == 1
    driven.idle(3)
    assert driven.audit.passes == 2


def test_a_turn_on_a_clock_that_stands_still_ends() -> None:
    driven = Driven(10**6)
    driven.audit.turn()
    assert driven.audit.page()["indexes"]["one"]["compared"] == 100


def test_no_step_is_taken_while_a_change_waits() -> None:
    driven = Driven()
    driven.is_current = False
    driven.audit.turn()
    assert driven.audit.page()["indexes"]["one"]["compared"] == 0


def test_a_page_shows_both_sides_of_the_last_difference() -> None:
    driven = Driven(2, found=[WRONG])
    with structlog.testing.capture_logs() as log:
        while driven.audit.step():
            pass
    page = driven.audit.page()
    shown = {"object": "node n1", "field": "requested cpu", "cached": "2", "stored": "1"}
    assert (page["passes"], page["differences"], page["running"]) == (1, 2, None)
    assert page["indexes"]["one"] == {
        "lastPass": driven.clock.wall(),
        "passes": 1,
        "compared": 2,
        "differences": 2,
        "lastDifference": {**shown, "at": driven.clock.wall()},
    }
    assert page["indexes"]["two"]["lastDifference"] is None
    assert [line["log_level"] for line in log] == ["error", "error"]
    assert all(line.items() >= {"index": "one", **shown}.items() for line in log)
    assert driven.audit.counts() == {"one": 2, "two": 0}
    assert driven.healed == 1


def test_a_thousand_differences_are_counted_and_twenty_are_logged() -> None:
    driven = Driven(1000, found=[WRONG])
    with structlog.testing.capture_logs() as log:
        for _ in range(2):
            while driven.audit.step():
                pass
    assert len(log) == 2 * 20
    assert driven.audit.counts()["one"] == 2000


def test_texts_are_bounded() -> None:
    driven = Driven(1, found=[Difference("x" * 10_000, "y" * 10_000, "a" * 10_000, ["b"] * 10_000)])
    while driven.audit.step():
        pass
    last = driven.audit.page()["indexes"]["one"]["lastDifference"]
    assert max(len(str(value)) for value in last.values()) <= 256


def test_a_check_that_fails_ends_and_the_next_one_begins() -> None:
    driven = Driven()

    def failing() -> Iterator[Sequence[Difference]]:
        yield ()
        raise KeyError("gone")

    driven.audit.checks = {"one": failing, "two": lambda: iter([(), ()])}
    while driven.audit.step():
        pass
    assert driven.errors.counts["audit"] == 1
    assert driven.audit.page()["indexes"]["two"]["compared"] == 2
    assert driven.audit.passes == 1


def test_waking_pods_after_a_correction_may_fail() -> None:
    driven = Driven(1, found=[WRONG])
    driven.audit.on_healed = mock.Mock(side_effect=KeyError("gone"))
    while driven.audit.step():
        pass
    assert driven.errors.counts["audit"] == 1
    assert driven.audit.passes == 1


def test_equal_values_are_no_difference() -> None:
    found = Comparison("node n1")
    assert not found.differs("pods", 1, 1)
    assert found.differs("pods", 1, 2)
    assert found == [Difference("node n1", "pods", 1, 2)]


def test_different_objects_with_equal_texts_have_different_lines() -> None:
    driven = Driven(1, found=[Difference("pod default/p", "object", "x" * 300, "x" * 301)])
    while driven.audit.step():
        pass
    last = driven.audit.page()["indexes"]["one"]["lastDifference"]
    assert last["cached"].startswith("another: ")
    assert last["cached"] != last["stored"]


def test_an_index_of_dicts_is_corrected_from_both_sides() -> None:
    stored = {"a": "x", "b": "x", "c": "y"}
    index: dict[str, dict[str, object]] = {"x": {"a": None, "c": None}, "z": {"gone": None}}
    healed: list[str] = []
    steps = grouped("object", stored, lambda key: stored.get(key, ()), index, healed=healed.append)
    assert [str(each.about) for step in steps for each in step] == ["object b", "object c", "object c", "object gone"]
    assert index == {"x": {"a": None, "b": None}, "y": {"c": None}}
    assert healed == ["b", "c", "c", "gone"]


def test_an_index_by_key_is_read_when_it_is_up_to_date() -> None:
    cached, stored, calls = {1: {"n": 1}, 2: {"n": 5}}, {1: {"n": 1}, 2: {"n": 2, "m": 3}}, []

    def heal(key: int) -> None:
        cached[key] = stored[key]

    steps = by_key(stored, str, cached.__getitem__, stored.__getitem__, heal, ready=lambda: calls.append(0))
    assert [each for step in steps for each in step] == [Difference("2", "n", 5, 2), Difference("2", "m", None, 3)]
    assert cached == stored
    assert calls == [0]


def test_an_index_with_a_fault_is_filled_once() -> None:
    filled: list[int] = []
    steps = faultless("index", iter([[], ["x"], ["y"]]), lambda: filled.append(0))
    assert [[each.field for each in step] for step in steps] == [[], ["x"]]
    assert filled == [0]


def test_parts_have_the_things_of_the_first_moment() -> None:
    things = dict.fromkeys("abcde")
    parts = in_parts(things, 2)
    things["f"] = None
    assert [list(part) for part in parts] == [["a", "b"], ["c", "d"], ["e"]]


# -- in the scheduling loop ----------------------------------------------------------------------------------------------


async def steps(here: AuditWorld, count: int = 200) -> None:
    for _ in range(count):
        if not await here.parts.loop.step():
            return


async def test_an_idle_loop_runs_a_pass() -> None:
    here = await world()
    here.clock.move(PASS_EVERY_S)
    await steps(here)
    assert here.parts.audit.passes == 1
    assert not any(here.parts.audit.counts().values())


async def test_pods_that_were_refused_are_tried_again_after_a_correction() -> None:
    here = await world()
    nodes = here.cluster.nodes
    nodes.requested[0, 1] = 8000
    here.pod("fits", cpu="6")
    await steps(here)
    assert "default/fits" in {entry.key for entry in here.parts.queue.entries()}

    here.clock.move(PASS_EVERY_S)
    await steps(here)

    info = here.cluster.get("uid-fits")
    assert info is not None
    assert info.node_name == "n2"


@pytest.mark.parametrize(
    ("leads", "passes"),
    [pytest.param(True, 0, id="a leader tries them first"), pytest.param(False, 1, id="a standby never tries them")],
)
async def test_no_pass_while_pods_can_be_tried(leads: bool, passes: int) -> None:
    """The number of bindings holds back an active pod, as in a burst."""
    here = await world()
    here.parts.queue.places.enter(_record(here), Place.ACTIVE, "test")
    here.parts.loop._may_pop = lambda: leads
    here.clock.move(PASS_EVERY_S)
    with mock.patch.object(Binder, "in_flight", MAX_BINDINGS):
        await steps(here)
    assert here.parts.audit.passes == passes


def _record(here: AuditWorld) -> Any:
    return here.parts.queue.places.get("uid-late")


@pytest.mark.parametrize("turn", range(5))
async def test_assumptions_that_end_between_two_steps_are_no_differences(turn: int) -> None:
    """The watch confirms an assumption, and a plan is written, while the check waits for its next turn."""
    here = await world()
    volumes, claims = here.cluster.volumes, here.cluster.volumes.claims
    holders = {("PersistentVolumeClaim", key, "1"): {"uid-ends": None} for key in ("default/data", "default/idle")}
    for _, key, _ in holders:
        claim = claims.get(key)
        assert claim is not None
        claims.assume(claim)
    volumes.holders.update(holders)
    found: list[Difference] = []
    with mock.patch.object(Cluster, "is_assumed", return_value=True) as is_assumed:
        for at, differences in enumerate(here.parts.audit.checks["assumed-volumes"]()):
            found += differences
            if at == turn:
                is_assumed.return_value = False
                for version in holders:
                    claims.drop(version[1])
                    del volumes.holders[version]

    assert found == []
