"""Profiles that change while pods are queued, tried, held and bound: nothing stays reserved or in memory, and the newest decides."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from hypothesis import event as noted, example, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.config.dump import to_document
from scheduler.core.errors import Unavailable
from scheduler.framework.profile import Profile
from scheduler.profiles.reconciler import FAILED, IN_FORCE, INVALID, WAITING, ProfileVerdict, RequestedProfile
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.support import permit
from tests.support.volumebuilders import a_claim, a_class
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_devices import uses
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.profiles.reloads import OURS, Reloaded, weight, witness


@pytest.fixture
def sched(monkeypatch: pytest.MonkeyPatch) -> Reloaded:
    return Reloaded(monkeypatch)


def scores(sched: Reloaded, name: str = OURS) -> dict[str, int]:
    return {score.name: score.weight for score in sched.parts.profiles[name].score}


# -- profiles in force -----------------------------------------------------------------------------------------------


async def test_a_requested_profile_is_in_force_and_reported(sched: Reloaded) -> None:
    before = scores(sched)

    verdict = await sched.wished(weight("NodeResourcesFit", 5) | {"percentageOfNodesToScore": 70})

    said = "score: NodeResourcesFit 1→5; percentageOfNodesToScore: 70"
    assert verdict == ProfileVerdict(sched.wishes[OURS], IN_FORCE, said, 1, said)
    assert scores(sched) == before | {"NodeResourcesFit": 5}
    resolved = {name: profile.resolved for name, profile in sched.parts.profiles.items()}
    (shown,) = to_document(sched.parts.reloading.configuration, resolved=resolved)["profiles"]
    assert {"name": "NodeResourcesFit", "weight": 5} in shown["plugins"]["score"]["enabled"]
    assert shown["percentageOfNodesToScore"] == 70


async def test_without_the_object_the_file_counts_again(sched: Reloaded) -> None:
    before = sched.parts.profiles[OURS]
    await sched.wished(weight("NodeResourcesFit", 5))

    sched.wish(None)
    await sched.settle()

    assert sched.parts.profiles[OURS] is before
    assert (sched.parts.reloading.verdicts, list(sched.parts.reloading.remarks())) == ({}, [])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(
            {"pluginConfig": [{"name": "Kubestow", "args": {"parity": "yes"}}, {"name": "Unknown"}]},
            'spec.pluginConfig[0].args.parity: must be true or false, got "yes"',
            id="our own arguments",
        ),
        pytest.param(
            {"percentageOfNodesToScore": 101, "plugin": {}},
            "spec.percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]; "
            'spec.plugin: unknown field, did you mean "plugins"?',
            id="several mistakes",
        ),
        pytest.param(
            {"plugins": {"bind": {"disabled": [{"name": "*"}]}}},
            "spec.plugins.bind: at least one plugin is needed",
            id="a point without a plugin",
        ),
    ],
)
async def test_a_profile_with_a_mistake_is_refused_with_its_path(sched: Reloaded, spec: Any, said: str) -> None:
    await sched.wished(weight("NodeResourcesFit", 5))
    before = sched.parts.profiles[OURS]

    verdict = await sched.wished(spec)

    assert (verdict.reason, verdict.in_force) == (INVALID, 1)
    assert verdict.message == f"{said} (generation 1 stays in force)"
    assert list(sched.parts.reloading.remarks()) == [f"SchedulerProfile kubestow is not in force: {verdict.message}"]
    assert sched.parts.profiles[OURS] is before
    assert (await sched.wished(weight("NodeResourcesFit", 6))).reason == IN_FORCE
    assert scores(sched)["NodeResourcesFit"] == 6


async def test_a_plugin_that_cannot_be_built_changes_nothing(sched: Reloaded) -> None:
    before = sched.parts.profiles[OURS]

    verdict = await sched.wished(witness(breaks=True))

    assert (verdict.reason, verdict.in_force) == (FAILED, 0)
    assert "ValueError('no such thing') (what was in force stays in force)" in verdict.message
    assert sched.parts.profiles[OURS] is before


async def test_the_message_about_many_mistakes_is_limited(sched: Reloaded) -> None:
    names = [{"name": f"Unknown{at}"} for at in range(500)]

    verdict = await sched.wished({"plugins": {"score": {"enabled": names}}})

    assert 'spec.plugins.score.enabled[9].name: unknown plugin "Unknown9"; and 490 more mistakes (' in verdict.message
    assert "Unknown10" not in verdict.message
    long = {"plugins": {"score": {"enabled": [{"name": "N" * 500_000}]}}}
    assert len((await sched.wished(long)).message) < 5000


async def test_objects_of_other_schedulers_are_ignored(sched: Reloaded) -> None:
    sched.wish({"plugins": "nonsense"}, name="theirs")
    await sched.settle()

    assert dict(sched.parts.reloading.verdicts) == {}


async def test_an_equal_configuration_keeps_the_plugins(sched: Reloaded) -> None:
    await sched.wished(weight("NodeResourcesFit", 5))
    before = sched.parts.profiles[OURS]

    verdict = await sched.wished({**weight("NodeResourcesFit", 5), "pluginConfig": []})

    assert (verdict.reason, verdict.in_force) == (IN_FORCE, 2)
    assert sched.parts.profiles[OURS] is before


async def test_a_profile_waits_for_kinds_that_have_no_reflector(sched: Reloaded) -> None:
    absent = ["DeviceTaintRule"]
    sched.parts.reloading.missing = lambda profile: tuple(kind for kind in absent if kind in profile.reads)
    before = sched.parts.profiles[OURS]

    verdict = await sched.wished(witness(reads=["DeviceTaintRule"]))
    assert (verdict.reason, sched.parts.profiles[OURS] is before) == (WAITING, True)
    assert verdict.message.startswith("kinds that the plugins read are not mirrored yet: DeviceTaintRule ")

    absent.clear()
    sched.parts.inbox.put(sched.parts.reloading.again)
    await sched.settle()

    assert sched.parts.reloading.verdicts[OURS].reason == IN_FORCE
    assert sched.parts.profiles[OURS] is not before


# -- one queue for all profiles --------------------------------------------------------------------------------------

LAST_IN = {"plugins": {"queueSort": {"enabled": [{"name": "LastIn"}], "disabled": [{"name": "*"}]}}}


async def test_the_order_of_the_queue_changes_only_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One profile alone is refused. With the other one both are in force."""
    sched = Reloaded(monkeypatch, "a", "b")
    sched.writer.hold = asyncio.Event()
    for at, name in enumerate(("first", "second", "third")):
        sched.clock.move(1)
        sched.parts.queue.adopt({})
        sched.pod(name, scheduler="ab"[at % 2])

    alone = sched.wish(LAST_IN, "a")
    sched.parts.inbox.apply()
    verdict = sched.parts.reloading.verdicts["a"]
    assert (verdict.request, verdict.reason, verdict.in_force) == (alone, INVALID, 0)
    assert "must be the same for all profiles" in verdict.message

    sched.wish(LAST_IN, "b")
    sched.parts.inbox.apply()
    assert [sched.parts.reloading.verdicts[name].reason for name in "ab"] == [IN_FORCE, IN_FORCE]
    popped = [sched.parts.queue.pop() for _ in range(3)]
    assert [queued.info.pod.metadata.name for queued in popped if queued] == ["third", "second", "first"]


async def test_a_queue_order_that_fails_loses_no_pod(sched: Reloaded) -> None:
    sched.node("n1")
    await sched.wished(witness(gates=["no number"]))
    sched.pod("no number")
    sched.pod("1")
    before = sched.parts.profiles[OURS]
    odd = {"plugins": {"queueSort": {"enabled": [{"name": "Odd"}], "disabled": [{"name": "*"}]}}}

    verdict = await sched.wished(odd)

    assert (verdict.reason, verdict.in_force) == (FAILED, 1)
    assert "could not convert string to float" in verdict.message
    assert (sched.parts.profiles[OURS], sched.parts.reloading.configuration.profiles[0].path) == (before, "spec")
    assert (sched.writer.binds, sched.places()) == ([("default/1", "n1")], {"no number": "gated"})

    sched.gone("no number")
    assert (await sched.wished(odd)).reason == IN_FORCE
    assert sched.parts.profiles[OURS].queue_sort.name == "Odd"


async def test_a_deleted_profile_that_cannot_be_undone_has_a_remark(sched: Reloaded) -> None:
    await sched.wished(weight("NodeResourcesFit", 5))

    def fails(_: object) -> None:
        raise ValueError("no such order")

    sched.parts.reloading._parts.adopt = fails
    sched.wish(None)
    await sched.settle()

    (remark,) = sched.parts.reloading.remarks()
    assert remark.startswith("SchedulerProfile kubestow is gone and still in force: ")
    assert "no such order" in remark
    assert scores(sched)["NodeResourcesFit"] == 5


async def test_a_common_queue_order_stays_until_both_profiles_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = Reloaded(monkeypatch, "a", "b")
    sched.wish(LAST_IN, "a")
    sched.wish(LAST_IN, "b")
    await sched.settle()

    sched.wish(None, "a")
    await sched.settle()
    assert [profile.queue_sort.name for profile in sched.parts.profiles.values()] == ["LastIn", "LastIn"]
    (remark,) = sched.parts.reloading.remarks()
    assert remark.startswith("SchedulerProfile a is gone and still in force: ")

    sched.wish(None, "b")
    await sched.settle()
    assert [profile.queue_sort.name for profile in sched.parts.profiles.values()] == ["PrioritySort", "PrioritySort"]
    assert list(sched.parts.reloading.remarks()) == []


async def test_other_profiles_keep_their_plugins_and_waiting_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = Reloaded(monkeypatch, "a", "b")
    sched.node("n1")
    for name in "ab":
        await sched.wished(witness(refuses=[name]), name)
        sched.pod(name, scheduler=name)
    await sched.later(20)
    before = sched.parts.profiles["b"]

    await sched.wished(witness(refuses=[]), "a")

    assert sched.parts.profiles["b"] is before
    assert sched.places() == {"b": "unschedulable"}
    assert sched.writer.binds == [("default/a", "n1")]


# -- pods during a change --------------------------------------------------------------------------------------------


async def test_pods_in_backoff_stay_there(sched: Reloaded) -> None:
    sched.node("n1")
    await failed_to_bind(sched, "p")

    await sched.wished(witness())
    assert sched.places() == {"p": "error backoff"}

    await sched.later(5)
    assert sched.history.bound["p"] is sched.witness()


async def failed_to_bind(sched: Reloaded, name: str) -> None:
    def down(_pod: object, _node: object) -> None:
        sched.writer.on_bind = None
        raise Unavailable("down")

    sched.writer.on_bind = down
    sched.pod(name)
    await sched.settle()


async def test_a_pod_in_flight_is_tried_again(sched: Reloaded) -> None:
    sched.node("n1")
    await sched.wished(witness(waits=["p"]))
    sched.pod("p")
    await sched.settle()
    old = sched.witness()
    assert (sched.places()["p"], old.held) == ("in flight", {"uid-p"})

    await sched.wished(witness())
    assert old.held == {"uid-p"}
    sched.parts.binder.waiting_pods.reject("uid-p", "Witness", "no")
    await sched.settle()
    assert old.held == set()
    await sched.later(5)

    assert sched.history.bound["p"] is sched.witness()


async def test_a_binding_ends_with_the_plugins_that_it_began_with(sched: Reloaded) -> None:
    sched.node("n1")
    sched.writer.hold = asyncio.Event()
    sched.pod("old")
    await sched.settle()
    before = sched.witness()
    await sched.wished(witness(refuses=["old"]))
    sched.node("n1", labels={"changed": "yes"})
    sched.pod("new")
    await sched.settle()

    sched.writer.hold.set()
    await sched.settle()

    assert sched.history.bound == {"old": before, "new": sched.witness()}
    assert before is not sched.witness()


async def test_a_binding_that_fails_unreserves_the_old_plugins(sched: Reloaded) -> None:
    sched.node("n1")
    sched.writer.turn_hold = asyncio.Event()
    await failed_to_bind(sched, "p")
    before = sched.witness()
    assert (before.held, sched.places()) == ({"uid-p"}, {})

    await sched.wished(witness())
    sched.writer.turn_hold.set()
    await sched.settle()
    assert (before.held, sched.places()) == (set(), {"p": "error backoff"})
    await sched.later(5)

    assert sched.history.bound["p"] is sched.witness()


async def test_nominated_pods_stay_nominated(sched: Reloaded) -> None:
    sched.node("n1", cpu="2")
    sched.pod("low", cpu="2", on="n1", priority=1)
    sched.pod("high", cpu="2", priority=10)
    await sched.settle()
    assert sched.parts.queue.nominator.node_of("uid-high") == "n1"

    await sched.wished(weight("NodeResourcesFit", 5))
    sched.pod("late", cpu="2", priority=5)
    sched.gone("low")
    await sched.later(5)

    assert sched.writer.binds == [("default/high", "n1")]


async def test_a_change_waits_for_the_end_of_an_attempt(sched: Reloaded) -> None:
    sched.node("n1")
    sched.pod("p")
    attempt = sched.parts.cycle.attempt(sched.parts.shared.pending.get("default/p"), 1)  # type: ignore[arg-type]
    with sched.parts.inbox.closed():
        before = sched.parts.profiles[OURS]
        sched.wish(weight("NodeResourcesFit", 5))
        sched.parts.inbox.catch_up()
        assert sched.parts.profiles[OURS] is before
    sched.parts.inbox.catch_up()
    attempt.close()

    assert scores(sched)["NodeResourcesFit"] == 5


async def test_switches_of_volumes_take_effect(sched: Reloaded) -> None:
    """The names whose stale selected nodes are cleared, and how pools of storage are shared."""
    found = []
    for args in (
        {},
        {"storagePoolSharing": "all"},
        {"storageCapacityReservation": "none"},
        {"parity": True},
        {},
    ):
        await sched.wished({"pluginConfig": [{"name": "Kubestow", "args": args}]} if args else {})
        found.append((list(sched.parts.stale._names), sched.parts.cluster.volumes.capacities.sharing.mode))

    ours, none = [OURS], list[str]()
    assert found == [
        (ours, "learned"),
        (ours, "all"),
        (ours, "none"),
        (none, "none"),
        (ours, "learned"),
    ]


PODS = tuple("abcdef")
_FLUSH_S = 360.0
"""The flush of pods that have waited for five minutes (docs/spec/core.md §1.11)."""
SOME = st.sets(st.sampled_from(PODS), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(PODS)),
    st.tuples(st.just("gone"), st.sampled_from(PODS)),
    st.tuples(st.just("wish"), st.fixed_dictionaries({"refuses": SOME, "gates": SOME, "waits": SOME})),
    st.tuples(st.just("mistake"), st.none()),
    st.tuples(st.just("file"), st.none()),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("permit"), st.tuples(st.sampled_from(PODS), st.booleans())),
    st.tuples(st.just("later"), st.sampled_from((0.5, 3.0, 20.0))),
    st.tuples(st.just("step"), st.none()),
)


class History(Reloaded):
    """One history. `end` runs the scheduler until it is idle."""

    async def take(self, what: str, with_: Any) -> None:
        await getattr(self, f"_{what}")(with_)
        self.held_once()

    def held_once(self) -> None:
        """No pod is held by two instances."""
        holders = [uid for one in self.history.made for uid in one.held]
        assert len(holders) == len(set(holders))

    def _assumed(self) -> list[PodInfo]:
        uids = [f"uid-{name}" for name in PODS]
        return [info for uid in uids if (info := self.cluster.get(uid)) is not None and self.cluster.is_assumed(uid)]

    async def _pod(self, name: str) -> None:
        if name not in self.seen and f"uid-{name}" not in {info.uid for info in self._assumed()}:
            self.pod(name)

    async def _gone(self, name: str) -> None:
        if name in self.seen:
            self.gone(name)

    async def _wish(self, args: dict[str, set[str]]) -> None:
        self.wish(witness(**{key: sorted(names) for key, names in args.items()}))

    async def _mistake(self, _: None) -> None:
        self.wish({"plugins": {"score": {"enabled": [{"name": "Unknown"}]}}})

    async def _file(self, _: None) -> None:
        self.wish(None)

    async def _hold(self, is_held: bool) -> None:
        if self.writer.hold is not None:
            self.writer.hold.set()
        self.writer.hold = asyncio.Event() if is_held else None

    async def _fail(self, _: None) -> None:
        def down(_pod: object, _node: object) -> None:
            self.writer.on_bind = None
            raise Unavailable("down")

        self.writer.on_bind = down

    async def _permit(self, answer: tuple[str, bool]) -> None:
        name, allows = answer
        permits = self.parts.binder.waiting_pods
        if allows:
            permit.allow(permits, f"uid-{name}", "Witness")
        else:
            permits.reject(f"uid-{name}", "Witness", "no")

    async def _later(self, seconds: float) -> None:
        self.clock.move(seconds)
        await self.settle()

    async def _step(self, _: None) -> None:
        await self.parts.loop.step()

    async def end(self) -> None:
        """Release all holds, and let time pass."""
        await self._hold(False)
        self.writer.on_bind = None
        await self._let_go()
        await self.later(_FLUSH_S)  # no event wakes a pod that Permit has rejected
        await self._let_go()

    async def _let_go(self) -> None:
        for _ in range(3):
            for name in PODS:
                await self._permit((name, True))
            await self.later(30)


@settings(deadline=None, max_examples=examples(150, share=SLOW_SHARE))
@given(steps=st.lists(STEPS, max_size=40))
@example(
    steps=[
        ("pod", "a"),
        ("wish", {"refuses": set(), "gates": set(), "waits": {"a"}}),
        ("later", 0.5),
        ("permit", ("a", False)),
    ]
)
def test_nothing_stays_reserved_and_the_newest_profile_decides(steps: list[tuple[str, Any]]) -> None:
    """In the end no plugin holds a bound pod, and the profile in force has refused or gated every other pod."""

    async def history() -> None:
        with pytest.MonkeyPatch.context() as patch:
            sched = History(patch)
            sched.node("n1", cpu="64")
            for what, with_ in steps:
                await sched.take(what, with_)
            await sched.end()
            newest, bound = sched.witness(), {key.partition("/")[2] for key, _ in sched.writer.binds}
            held = {uid for one in sched.history.made for uid in one.held}
            assert (held, len(sched.parts.binder), sched.parts.queue.in_flight_events()) == (set(), 0, {})
            verdict = sched.parts.reloading.verdicts.get(OURS)
            assert (verdict is None) == (OURS not in sched.wishes)
            if verdict is not None and verdict.reason == IN_FORCE:
                assert verdict.in_force == sched.wishes[OURS].generation
            for name, place in sched.places().items():
                expected = {"unschedulable": "refuses", "gated": "gates"}
                assert name in newest.args[expected[place]], (name, place)
                if place == "unschedulable":
                    assert sched.history.tried[name] is newest
            waiting = sched.places().keys()
            assert {name for name in sched.seen if name not in bound} <= waiting
            noted(f"{len(waiting)} wait, {len(bound)} are bound, {len(sched.history.made)} instances")

    asyncio.run(history())


def parts_of(profile: Profile) -> list[object]:
    """Return the plugins of all extension points."""
    listed = [getattr(profile, field.name) for field in dataclasses.fields(profile)]
    flat = [part for parts in listed if isinstance(parts, tuple) for part in parts]
    return [part for part in flat if type(part).__module__.startswith("scheduler.plugins.")]


async def changed(sched: SchedulerHarness, generation: int) -> None:
    wish = RequestedProfile("u", generation, {"percentageOfNodesToScore": generation})
    sched.parts.inbox.put(partial(sched.parts.reloading.reconcile, {OURS: wish}))
    await sched.settle()
    assert sched.parts.reloading.verdicts[OURS].in_force == generation


async def test_old_plugins_are_freed() -> None:
    """They have filtered pods with volumes and devices, nominated one pod, and bound several."""
    sched = SchedulerHarness()
    asks = a_device_claim("d").uid("d").resource_version("1").request("r", "gpu", count=2)
    given = stored(a_device_class("gpu"), a_slice("n1", "drv", a_device("g0")), asks)
    for thing in (node("n1"), *given, *stored(a_class("local"), a_claim("v", "1Gi", "local"))):
        thing(sched)
    pod("d", **uses("d"))(sched)
    pod("v", **claims("v"))(sched)
    sched.pod("low", cpu="3", on="n1", priority=1)
    sched.pod("high", cpu="3", priority=10)
    await sched.settle()
    assert sched.parts.queue.nominator.node_of("uid-high") == "n1"
    seen: dict[int, list[weakref.ref[object]]] = {}
    for generation in range(1, 6):
        await changed(sched, generation)
        sched.pod(f"plain{generation}", cpu="10m")
        await sched.later(15)
        seen[generation] = [weakref.ref(part) for part in parts_of(sched.parts.profiles[OURS])]
        assert len({type(ref()) for ref in seen[generation]}) > 10
    assert f"default/plain{generation}" in {key for key, _ in sched.writer.binds}
    assert len(sched.parts.binder) == 0

    gc.collect()

    alive = {generation: [ref() for ref in refs if ref() is not None] for generation, refs in seen.items()}
    newest = alive.pop(generation)
    assert (len(newest), {at: left for at, left in alive.items() if left}) == (len(seen[generation]), {})
