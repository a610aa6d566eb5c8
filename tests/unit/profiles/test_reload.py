"""Profiles that change while pods are queued, tried, held and bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.config.dump import to_document
from scheduler.core.errors import Unavailable
from scheduler.profiles.reconciler import FAILED, IN_FORCE, INVALID, WAITING, ProfileVerdict
from tests.unit.profiles.reloads import OURS, Reloaded, weight, witness


@pytest.fixture
def brain(monkeypatch: pytest.MonkeyPatch) -> Reloaded:
    return Reloaded(monkeypatch)


def scores(brain: Reloaded, name: str = OURS) -> dict[str, int]:
    return {score.name: score.weight for score in brain.parts.profiles[name].score}


# -- what is in force ------------------------------------------------------------------------------------------------------


async def test_a_wish_is_in_force_and_said(brain: Reloaded) -> None:
    """The rest is as in the file; the configuration that is shown is the one that decides."""
    before = scores(brain)

    verdict = await brain.wished(weight("NodeResourcesFit", 5) | {"percentageOfNodesToScore": 70})

    said = "score: NodeResourcesFit 1→5; percentageOfNodesToScore: 70"
    assert verdict == ProfileVerdict(brain.wishes[OURS], IN_FORCE, said, 1, said)
    assert scores(brain) == before | {"NodeResourcesFit": 5}
    resolved = {name: profile.resolved for name, profile in brain.parts.profiles.items()}
    (shown,) = to_document(brain.parts.reloading.configuration, resolved=resolved)["profiles"]
    assert {"name": "NodeResourcesFit", "weight": 5} in shown["plugins"]["score"]["enabled"]
    assert shown["percentageOfNodesToScore"] == 70


async def test_without_the_object_the_file_counts_again(brain: Reloaded) -> None:
    before = brain.parts.profiles[OURS]
    await brain.wished(weight("NodeResourcesFit", 5))

    brain.wish(None)
    await brain.settle()

    assert brain.parts.profiles[OURS] is before
    assert (brain.parts.reloading.verdicts, list(brain.parts.reloading.remarks())) == ({}, [])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(
            {"pluginConfig": [{"name": "Kubestow", "args": {"parity": "yes"}}, {"name": "Nobody"}]},
            'spec.pluginConfig[0].args.parity: must be true or false, got "yes"',
            id="our own arguments",
        ),
        pytest.param(
            {"percentageOfNodesToScore": 101, "plugin": {}},
            "spec.percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]; "
            'spec.plugin: unknown field, did you mean "plugins"?',
            id="several mistakes",
        ),
        pytest.param("x", 'spec: must be a mapping, got "x"', id="no spec at all"),
        pytest.param(
            {"plugins": {"bind": {"disabled": [{"name": "*"}]}}},
            "spec.plugins.bind: at least one plugin is needed",
            id="what is left does not work",
        ),
    ],
)
async def test_a_wish_with_a_mistake_is_refused_with_its_path(brain: Reloaded, spec: Any, said: str) -> None:
    await brain.wished(weight("NodeResourcesFit", 5))
    before = brain.parts.profiles[OURS]

    verdict = await brain.wished(spec)

    assert (verdict.reason, verdict.in_force) == (INVALID, 1)
    assert verdict.message == f"{said} (generation 1 stays in force)"
    assert list(brain.parts.reloading.remarks()) == [f"SchedulerProfile kubestow is not in force: {verdict.message}"]
    assert brain.parts.profiles[OURS] is before
    assert (await brain.wished(weight("NodeResourcesFit", 6))).reason == IN_FORCE
    assert scores(brain)["NodeResourcesFit"] == 6


async def test_plugins_that_cannot_be_made_leave_everything_as_it_is(brain: Reloaded) -> None:
    """Whatever a plugin raises; one that is not at fault with a path in the configuration."""
    before = brain.parts.profiles[OURS]

    verdict = await brain.wished(witness(breaks=True))

    assert (verdict.reason, verdict.in_force) == (FAILED, 0)
    assert "ValueError('no such thing') (what was in force stays in force)" in verdict.message
    assert brain.parts.profiles[OURS] is before


async def test_of_many_mistakes_some_are_named(brain: Reloaded) -> None:
    """What is said of a spec does not grow with it: the log and /readyz have it, too."""
    names = [{"name": f"Nobody{at}"} for at in range(500)]

    verdict = await brain.wished({"plugins": {"score": {"enabled": names}}})

    assert 'spec.plugins.score.enabled[9].name: unknown plugin "Nobody9"; and 490 more mistakes (' in verdict.message
    assert "Nobody10" not in verdict.message
    long = {"plugins": {"score": {"enabled": [{"name": "N" * 500_000}]}}}
    assert len((await brain.wished(long)).message) < 5000


async def test_objects_of_other_schedulers_are_left_alone(brain: Reloaded) -> None:
    brain.wish({"plugins": "nonsense"}, name="theirs")
    await brain.settle()

    assert dict(brain.parts.reloading.verdicts) == {}


async def test_the_same_configuration_again_costs_nobody_his_memory(brain: Reloaded) -> None:
    await brain.wished(weight("NodeResourcesFit", 5))
    before = brain.parts.profiles[OURS]

    verdict = await brain.wished({**weight("NodeResourcesFit", 5), "pluginConfig": []})

    assert (verdict.reason, verdict.in_force) == (IN_FORCE, 2)
    assert brain.parts.profiles[OURS] is before


async def test_kinds_that_are_not_mirrored_are_waited_for(brain: Reloaded) -> None:
    absent = ["DeviceTaintRule"]
    brain.parts.reloading.missing = lambda profile: tuple(kind for kind in absent if kind in profile.reads)
    before = brain.parts.profiles[OURS]

    verdict = await brain.wished(witness(reads=["DeviceTaintRule"]))
    assert (verdict.reason, brain.parts.profiles[OURS] is before) == (WAITING, True)
    assert verdict.message.startswith("kinds that the plugins read are not mirrored yet: DeviceTaintRule ")

    absent.clear()
    brain.parts.inbox.put(brain.parts.reloading.again)
    await brain.settle()

    assert brain.parts.reloading.verdicts[OURS].reason == IN_FORCE
    assert brain.parts.profiles[OURS] is not before


# -- one queue for all profiles --------------------------------------------------------------------------------------------

LAST_IN = {"plugins": {"queueSort": {"enabled": [{"name": "LastIn"}], "disabled": [{"name": "*"}]}}}


async def test_the_order_of_the_queue_changes_only_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One profile alone is refused; with the other it is in force, and pods that wait are in the new order."""
    brain = Reloaded(monkeypatch, "a", "b")
    brain.writer.hold = asyncio.Event()
    for at, name in enumerate(("first", "second", "third")):
        brain.clock.move(1)
        brain.parts.queue.adopt({})
        brain.pod(name, scheduler="ab"[at % 2])

    alone = brain.wish(LAST_IN, "a")
    brain.parts.inbox.apply()
    verdict = brain.parts.reloading.verdicts["a"]
    assert (verdict.wish, verdict.reason, verdict.in_force) == (alone, INVALID, 0)
    assert "must be the same for all profiles" in verdict.message

    brain.wish(LAST_IN, "b")
    brain.parts.inbox.apply()
    assert [brain.parts.reloading.verdicts[name].reason for name in "ab"] == [IN_FORCE, IN_FORCE]
    popped = [brain.parts.queue.pop() for _ in range(3)]
    assert [queued.info.pod.metadata.name for queued in popped if queued] == ["third", "second", "first"]


async def test_an_order_that_fails_costs_no_pod(brain: Reloaded) -> None:
    """What was in force stays, and why is said; when the pod has gone the next wish is met."""
    brain.node("n1")
    await brain.wished(witness(gates=["no number"]))
    brain.pod("no number")
    brain.pod("1")
    before = brain.parts.profiles[OURS]
    odd = {"plugins": {"queueSort": {"enabled": [{"name": "Odd"}], "disabled": [{"name": "*"}]}}}

    verdict = await brain.wished(odd)

    assert (verdict.reason, verdict.in_force) == (FAILED, 1)
    assert "could not convert string to float" in verdict.message
    assert (brain.parts.profiles[OURS], brain.parts.reloading.configuration.profiles[0].path) == (before, "spec")
    assert (brain.writer.binds, brain.places()) == ([("default/1", "n1")], {"no number": "gated"})

    brain.gone("no number")
    assert (await brain.wished(odd)).reason == IN_FORCE
    assert brain.parts.profiles[OURS].queue_sort.name == "Odd"


async def test_a_file_that_cannot_be_returned_to_is_said(brain: Reloaded) -> None:
    """The object is gone, and what it wished for stays in force."""
    await brain.wished(weight("NodeResourcesFit", 5))

    def fails(_: object) -> None:
        raise ValueError("no such order")

    brain.parts.reloading._parts.adopt = fails
    brain.wish(None)
    await brain.settle()

    (remark,) = brain.parts.reloading.remarks()
    assert remark.startswith("SchedulerProfile kubestow is gone and still in force: ")
    assert "no such order" in remark
    assert scores(brain)["NodeResourcesFit"] == 5


async def test_an_order_that_must_be_common_outlives_one_of_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first deletion cannot be carried out, and that is said; with the second both are."""
    brain = Reloaded(monkeypatch, "a", "b")
    brain.wish(LAST_IN, "a")
    brain.wish(LAST_IN, "b")
    await brain.settle()

    brain.wish(None, "a")
    await brain.settle()
    assert [profile.queue_sort.name for profile in brain.parts.profiles.values()] == ["LastIn", "LastIn"]
    (remark,) = brain.parts.reloading.remarks()
    assert remark.startswith("SchedulerProfile a is gone and still in force: ")

    brain.wish(None, "b")
    await brain.settle()
    assert [profile.queue_sort.name for profile in brain.parts.profiles.values()] == ["PrioritySort", "PrioritySort"]
    assert list(brain.parts.reloading.remarks()) == []


async def test_other_profiles_keep_their_plugins_and_their_pods_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    brain = Reloaded(monkeypatch, "a", "b")
    brain.node("n1")
    for name in "ab":
        await brain.wished(witness(refuses=[name]), name)
        brain.pod(name, scheduler=name)
    await brain.later(20)
    before = brain.parts.profiles["b"]

    await brain.wished(witness(refuses=[]), "a")

    assert brain.parts.profiles["b"] is before
    assert brain.places() == {"b": "unschedulable"}
    assert brain.writer.binds == [("default/a", "n1")]


# -- pods that are somewhere when it happens -------------------------------------------------------------------------------


async def test_pods_that_back_off_go_on_backing_off(brain: Reloaded) -> None:
    brain.node("n1")
    await failed_to_bind(brain, "p")

    await brain.wished(witness())
    assert brain.places() == {"p": "error backoff"}

    await brain.later(5)
    assert brain.diary.bound["p"] is brain.witness()


async def failed_to_bind(brain: Reloaded, name: str) -> None:
    """The server has been down for a moment."""

    def down(_pod: object, _node: object) -> None:
        brain.writer.on_bind = None
        raise Unavailable("down")

    brain.writer.on_bind = down
    brain.pod(name)
    await brain.settle()


async def test_a_pod_that_is_tried_meanwhile_is_tried_again(brain: Reloaded) -> None:
    """Refused by plugins that decide no more: it does not wait for what they registered."""
    brain.node("n1")
    await brain.wished(witness(waits=["p"]))
    brain.pod("p")
    await brain.settle()
    old = brain.witness()
    assert (brain.places()["p"], old.held) == ("in flight", {"uid-p"})

    await brain.wished(witness())
    assert old.held == {"uid-p"}
    brain.parts.binder.permits.reject("uid-p", "Witness", "no")
    await brain.settle()
    assert old.held == set()
    await brain.later(5)

    assert brain.diary.bound["p"] is brain.witness()


async def test_a_binding_ends_with_the_plugins_that_it_began_with(brain: Reloaded) -> None:
    """PostBind of the old ones, the second look too; the next pod is for the new ones."""
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    brain.pod("old")
    await brain.settle()
    before = brain.witness()
    await brain.wished(witness(refuses=["old"]))
    brain.node("n1", labels={"changed": "meanwhile"})
    brain.pod("new")
    await brain.settle()

    brain.writer.hold.set()
    await brain.settle()

    assert brain.diary.bound == {"old": before, "new": brain.witness()}
    assert before is not brain.witness()


async def test_a_binding_that_fails_gives_back_to_the_plugins_that_hold(brain: Reloaded) -> None:
    brain.node("n1")
    brain.writer.turn_hold = asyncio.Event()
    await failed_to_bind(brain, "p")
    before = brain.witness()
    assert (before.held, brain.places()) == ({"uid-p"}, {})

    await brain.wished(witness())
    brain.writer.turn_hold.set()
    await brain.settle()
    assert (before.held, brain.places()) == (set(), {"p": "error backoff"})
    await brain.later(5)

    assert brain.diary.bound["p"] is brain.witness()


async def test_nominated_pods_stay_nominated(brain: Reloaded) -> None:
    brain.node("n1", cpu="2")
    brain.pod("low", cpu="2", on="n1", priority=1)
    brain.pod("high", cpu="2", priority=10)
    await brain.settle()
    assert brain.parts.queue.nominator.node_of("uid-high") == "n1"

    await brain.wished(weight("NodeResourcesFit", 5))
    brain.pod("late", cpu="2", priority=5)
    brain.gone("low")
    await brain.later(5)

    assert brain.writer.binds == [("default/high", "n1")]


async def test_a_change_waits_for_the_attempt_that_gives_turns(brain: Reloaded) -> None:
    brain.node("n1")
    brain.pod("p")
    attempt = brain.parts.loop._cycle.attempt(brain.parts.shared.pending.get("default/p"), 1)  # type: ignore[arg-type]
    with brain.parts.inbox.closed():
        before = brain.parts.profiles[OURS]
        brain.wish(weight("NodeResourcesFit", 5))
        brain.parts.inbox.catch_up()
        assert brain.parts.profiles[OURS] is before
    brain.parts.inbox.catch_up()
    attempt.close()

    assert scores(brain)["NodeResourcesFit"] == 5


async def test_the_switch_that_clears_selected_nodes_is_followed(brain: Reloaded) -> None:
    """It is a part of the process, not of a plugin."""
    assert clearing(brain) == [OURS]

    await brain.wished({"pluginConfig": [{"name": "Kubestow", "args": {"clearStaleSelectedNode": "none"}}]})
    assert clearing(brain) == []

    await brain.wished({})
    assert clearing(brain) == [OURS]


async def test_the_switch_that_says_which_classes_share_their_rooms_is_followed(brain: Reloaded) -> None:
    """All profiles have one ledger."""
    modes = [sharing(brain)]
    for args in ({"storagePoolSharing": "all"}, {"storageCapacityReservation": "none"}, {"parity": True}, {}):
        await brain.wished({"pluginConfig": [{"name": "Kubestow", "args": args}]} if args else {})
        modes.append(sharing(brain))

    assert modes == ["learned", "all", "none", "none", "learned"]


def sharing(brain: Reloaded) -> str:
    return brain.parts.cluster.volumes.capacities.sharing.mode


def clearing(brain: Reloaded) -> list[str]:
    return list(brain.parts.stale._names)
