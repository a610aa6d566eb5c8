"""Two profiles of one process bind the same claims: to each other they are as pods of one (docs/spec/volumes.md §5, §12.3 B-15)."""

from __future__ import annotations

from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.errors import Unavailable
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.wakeups.test_volumes_given_back import refusing

OTHER = "kubestow-too"


async def test_a_claim_that_both_want() -> None:
    """The first pod writes the claim, and the second waits for that, as in one profile."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    for thing in (node("n1"), *stored(a_class("made", "P"), a_claim("c", "1Gi", "made"))):
        thing(sched)
    sched.writer.on_select = refusing(Unavailable("busy"))
    pod("first", **claims("c"))(sched)
    await sched.settle()

    pod("second", **claims("c"), scheduler=OTHER)(sched)
    await sched.settle()

    assert len(sched.parts.binder) == 2
    assert sched.writer.selections == [("default/c", "n1")]


async def test_a_claim_that_the_other_completes() -> None:
    """Its volume is chosen and not quite bound: a pod of the other profile goes there and waits, as one of the same would."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    claim = a_claim("c", "1Gi", "local")
    for thing in (node("n1"), *stored(a_class("local"), a_pv("v", "1Gi", "local"), claim)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("busy"))
    pod("first", **claims("c"))(sched)
    await sched.settle()
    for thing in stored(claim.wants("v")):
        thing(sched)

    pod("second", **claims("c"), scheduler=OTHER)(sched)
    await sched.settle()

    assert sched.places() == {}
    assert len(sched.parts.binder) == 2
