"""The number of plans that are begun at once is counted per process, over all profiles and reloads."""

from __future__ import annotations

import itertools
from functools import partial

from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.errors import Unavailable
from scheduler.plugins.volumebinding.binder import UNFINISHED
from scheduler.profiles.reconciler import RequestedProfile
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.wakeups.test_volumes_given_back import refusing

OTHER = "kubestow-too"


async def test_neither_a_second_profile_nor_a_change_begins_more_at_once() -> None:
    """The PV controller does not work faster for it."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    node("n1", cpu="4000", pods="1000")(sched)
    for thing in stored(a_class("made", "P"), *(a_claim(f"c{at}", "1Gi", "made") for at in range(3 * UNFINISHED))):
        thing(sched)
    sched.writer.on_select = refusing(Unavailable("busy"))
    for at in range(2 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"), scheduler=(OUR_NAME, OTHER)[at % 2])(sched)
    await sched.settle()
    assert len(set(sched.writer.selections)) == UNFINISHED

    wish = RequestedProfile("u", 1, {"percentageOfNodesToScore": 50})
    sched.parts.inbox.put(partial(sched.parts.reloading.reconcile, {OUR_NAME: wish}))
    for at in range(2 * UNFINISHED, 3 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()

    assert len(sched.parts.binder) == 3 * UNFINISHED
    assert len(set(sched.writer.selections)) == UNFINISHED


async def test_a_server_that_refuses_volumes_for_long_keeps_no_claim_from_its_node() -> None:
    """A webhook for volumes that cannot be reached fails them all, again and again, and nothing else."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME),)))
    node("n1", cpu="4000", pods="1000")(sched)
    volumes = [(a_pv(f"v{at}", "1Gi", "local"), a_claim(f"c{at}", "1Gi", "local")) for at in range(UNFINISHED)]
    made = (a_class("local"), a_class("made", "P"), a_claim("c", "1Gi", "made"))
    for thing in stored(*made, *itertools.chain.from_iterable(volumes)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("failed calling webhook", status=500))
    for at in range(UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()
    assert len({name for name, *_ in sched.writer.prebinds}) == UNFINISHED

    pod("p", **claims("c"))(sched)
    await sched.settle()
    assert sched.writer.selections == []
    for _ in range(15):
        await sched.later(1)

    assert ("default/c", "n1") in sched.writer.selections
