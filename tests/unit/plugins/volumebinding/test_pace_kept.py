"""How many plans are begun at once is counted for the process, whoever made the plugin and how often."""

from __future__ import annotations

import itertools
from functools import partial

from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.errors import Unavailable
from scheduler.plugins.volumebinding.binder import UNFINISHED
from scheduler.profiles.reconciler import RequestedProfile
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.brain import Brain
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.wakeups.test_volumes_given_back import refusing

OTHER = "kubestow-too"


async def test_neither_a_second_profile_nor_a_change_begins_more_at_once() -> None:
    """The PV controller does not work faster for it."""
    brain = Brain(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    node("n1", cpu="4000", pods="1000")(brain)
    for thing in stored(a_class("made", "P"), *(a_claim(f"c{at}", "1Gi", "made") for at in range(3 * UNFINISHED))):
        thing(brain)
    brain.writer.on_select = refusing(Unavailable("busy"))
    for at in range(2 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"), scheduler=(OUR_NAME, OTHER)[at % 2])(brain)
    await brain.settle()
    assert len(set(brain.writer.selections)) == UNFINISHED

    wish = RequestedProfile("u", 1, {"percentageOfNodesToScore": 50})
    brain.parts.inbox.put(partial(brain.parts.reloading.reconcile, {OUR_NAME: wish}))
    for at in range(2 * UNFINISHED, 3 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(brain)
    await brain.settle()

    assert len(brain.parts.binder) == 3 * UNFINISHED
    assert len(set(brain.writer.selections)) == UNFINISHED


async def test_a_server_that_refuses_volumes_for_long_keeps_no_claim_from_its_node() -> None:
    """A webhook for volumes that cannot be reached fails them all, again and again, and nothing else."""
    brain = Brain(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME),)))
    node("n1", cpu="4000", pods="1000")(brain)
    volumes = [(a_pv(f"v{at}", "1Gi", "local"), a_claim(f"c{at}", "1Gi", "local")) for at in range(UNFINISHED)]
    made = (a_class("local"), a_class("made", "P"), a_claim("c", "1Gi", "made"))
    for thing in stored(*made, *itertools.chain.from_iterable(volumes)):
        thing(brain)
    brain.writer.on_prebind = refusing(Unavailable("failed calling webhook", status=500))
    for at in range(UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(brain)
    await brain.settle()
    assert len({name for name, *_ in brain.writer.prebinds}) == UNFINISHED

    pod("p", **claims("c"))(brain)
    await brain.settle()
    assert brain.writer.selections == []
    for _ in range(15):
        await brain.later(1)

    assert ("default/c", "n1") in brain.writer.selections
