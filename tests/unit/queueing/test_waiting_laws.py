"""The index of waiting pods against the rule of docs/spec/core.md §1.10, which evaluates each pod alone.

Random registrations (with and without shapes and topics, right and faulty ones), random pods that come, change and go,
random events. The woken pods and their queues are those of the rule, with fewer calls of hints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import event as noted, example, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.queue import QueuedPodInfo, QueueProfile
from scheduler.queueing.queueing_hints import QueueingHints, QueueingStrategy
from scheduler.queueing.types import Place
from scheduler.queueing.unschedulable_pods import RejectedPods, UnschedulablePods
from tests.examples import SLOW_SHARE, examples
from tests.unit.harness import StepClock
from tests.unit.queueing.harness import OTHER, OURS, Tally, by_priority, pod

NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
EVENTS = (NODE_ADD, NODE_LABEL, ASSIGNED_POD_DELETE)
REGISTERED = (*EVENTS, ClusterEvent(Resource.NODE, UPDATE | Action.ADD))
PLUGINS = ("A", "B", "C")
LETTERS = ("", "a", "b", "ab", "bc", "abc")

# -- what plugins may register -----------------------------------------------------------------------------------------


def letters(info: PodInfo) -> str:
    return info.pod.metadata.labels["wants"]


def shape(info: PodInfo) -> tuple[str, int]:
    return letters(info), info.priority % 2


def bad_shape(info: PodInfo) -> Any:
    return list(letters(info)) if info.priority else shape(info)


def shares(info: PodInfo, old: str | None, new: str) -> bool:
    return not set(letters(info)).isdisjoint({*(old or ""), *new})


def hint(info: PodInfo, old: str | None, new: str) -> Hint:
    """Return Queue only if a letter is shared, and not always then. It sometimes raises, which counts as Queue."""
    if not shares(info, old, new):
        return Hint.SKIP
    if info.priority % 2 and "c" in new:
        raise ValueError(info.key)
    return Hint.QUEUE if info.priority % 2 or "a" in new else Hint.SKIP


def by_name(info: PodInfo, old: str | None, new: str) -> Hint:
    return Hint.QUEUE if info.uid in "ace" and len(new) > 1 else Hint.SKIP


def unknown_of_some(info: PodInfo) -> str | None:
    return None if "c" in letters(info) else letters(info)


def faulty_of_some(info: PodInfo) -> Any:
    if "b" in letters(info):
        raise ValueError(info.key)
    return [[]] if "c" in letters(info) else letters(info)


def about(old: str | None, new: str) -> str:
    return (old or "") + new


def about_everything_at_times(old: str | None, new: str) -> str | None:
    return None if "b" in new else about(old, new)


def about_faulty_at_times(old: str | None, new: str) -> str:
    if "a" in new:
        raise ValueError(new)
    return about(old, new)


OF_PODS: tuple[Callable[[PodInfo], Any], ...] = (letters, unknown_of_some, faulty_of_some)
OF_EVENTS = (about, about_everything_at_times, about_faulty_at_times)

topics = st.builds(Topics, st.sampled_from(OF_PODS), st.sampled_from(OF_EVENTS))
registered_events = st.sampled_from(REGISTERED)
registrations = st.one_of(
    st.builds(EventHint, registered_events),
    st.builds(EventHint, registered_events, st.just(by_name)),
    st.builds(EventHint, registered_events, st.just(hint), st.sampled_from([None, shape, bad_shape])),
    st.builds(EventHint, registered_events, st.just(hint), st.sampled_from([shape, bad_shape]), topics),
)
hints = st.fixed_dictionaries({name: st.lists(registrations, max_size=3).map(tuple) for name in PLUGINS})


def concerns(registration: EventHint, info: PodInfo, old: str | None, new: str) -> bool:
    """Whether the event and the pod share a topic, as far as both are known."""
    if registration.topics is None:
        return True
    of_event = known(registration.topics.of_event, old, new)
    of_pod = known(registration.topics.of_pod, info)
    return of_event is None or of_pod is None or not of_event.isdisjoint(of_pod)


# -- the pool and the rule ---------------------------------------------------------------------------------------------


class Pool:
    """A pool, its waiting pods, and the rule."""

    def __init__(self, ours: dict[str, Any], others: dict[str, Any]) -> None:
        self.hints = {OURS: ours, OTHER: others}
        self.tally = Tally()
        profiles = {name: QueueProfile((), by_priority, plugins) for name, plugins in self.hints.items()}
        self.wakers = QueueingHints(profiles, metrics=self.tally, clock=StepClock())
        self.pool = UnschedulablePods(self.wakers)
        self.pods: dict[str, QueuedPodInfo] = {}

    def put(self, uid: str, info: dict[str, Any], *, plugins: set[str], pending: set[str], gate: str) -> None:
        """Let a pod begin to wait. It replaces the pod of this uid."""
        self.take(uid)
        wants = info.pop("wants")
        queued = QueuedPodInfo(pod(uid, labels={"wants": wants}, **info), 0.0)
        queued.unschedulable_plugins = plugins | ({gate} if gate else set())
        queued.pending_plugins = pending
        queued.gating_plugin = gate
        queued.place = Place.GATED if gate else Place.WAITING
        self.pods[uid] = queued
        self.pool.add(queued)

    def take(self, uid: str) -> None:
        """Remove a pod that has changed."""
        queued = self.pods.pop(uid, None)
        if queued is not None:
            queued.info = pod(uid, labels={"wants": "changed"}, priority=7)
            self.pool.remove(queued)

    def expected(self, queued: QueuedPodInfo, event: ClusterEvent, old: str | None, new: str) -> QueueingStrategy:
        plugins = self.hints[queued.profile]
        if queued.place is Place.GATED and not any(
            registration.event.wants(event) and concerns(registration, queued.info, old, new)
            for registration in plugins[queued.gating_plugin]
        ):
            return QueueingStrategy.SKIP
        best = QueueingStrategy.SKIP
        for name in queued.rejecters:
            for registration in plugins[name]:
                if registration.event.wants(event) and is_yes(registration, queued.info, old, new):
                    yes = (
                        QueueingStrategy.IMMEDIATELY
                        if name in queued.pending_plugins
                        else QueueingStrategy.AFTER_BACKOFF
                    )
                    best = max(best, yes)
        return best

    def hint_calls(self, queued: QueuedPodInfo, event: ClusterEvent) -> int:
        """Return the number of hints that the rule evaluates for this pod."""
        plugins = self.hints[queued.profile]
        return sum(r.event.wants(event) for name in queued.rejecters for r in plugins[name])

    def happen(self, event: ClusterEvent, old: str | None, new: str, limit: int) -> None:
        expected = {
            uid: strategy
            for uid, queued in self.pods.items()
            if queued.info.priority <= limit
            and (strategy := self.expected(queued, event, old, new)) is not QueueingStrategy.SKIP
        }
        hint_calls = sum(self.hint_calls(queued, event) for queued in self.pods.values())
        asked = len(self.tally.hints)
        woken = self.pool.woken_by(event, old, new, concerns=lambda info: info.priority <= limit)

        assert expected == {queued.uid: strategy for queued, strategy in woken}
        assert len(woken) == len(expected)
        assert len(self.tally.hints) - asked <= hint_calls
        for uid, strategy in expected.items():
            assert strategy is self.wakers.evaluate(self.pods[uid], event, old, new)
            noted(strategy.name)

    def check(self) -> None:
        """The index has exactly the waiting pods."""
        assert list(self.pods) == [queued.uid for queued in self.pool]
        for index in (self.pool._rejected, *self.pool._gated.values()):
            for rejected in index._by_rejecter.values():
                check_rejected(rejected)


def is_yes(registration: EventHint, info: PodInfo, old: str | None, new: str) -> bool:
    try:
        return registration.hint is None or registration.hint(info, old, new) is Hint.QUEUE
    except ValueError:
        return True


def check_rejected(rejected: RejectedPods) -> None:
    assert rejected.pods, "a rejecter without pods"
    for shape_index in rejected._shape_indexes.values():
        assert sorted(rejected.pods) == sorted(uid for group in shape_index.groups.values() for uid in group)
        assert all(shape_index.groups.values()), "a group without pods"
        for of_pod, topic_index in shape_index.topic_indexes.items():
            known_groups = {id(group): group for group in shape_index.groups.values()}
            assert set(topic_index.topics) == set(known_groups)
            for topic, groups in [(None, topic_index.with_all_topics), *topic_index.by_topic.items()]:
                assert groups or topic is None, "a topic without groups"
                for number, group in groups.items():
                    assert group is known_groups[number]
                    of_group = known(of_pod, next(iter(group.values())).info)
                    assert topic is None if of_group is None else topic in of_group


uids = st.sampled_from("abcdef")
some_plugins = st.sets(st.sampled_from(PLUGINS), max_size=2)
infos = st.fixed_dictionaries(
    {
        "wants": st.sampled_from(LETTERS),
        "priority": st.integers(0, 3),
        "scheduler": st.sampled_from([OURS, OURS, OTHER]),
    }
)
steps = st.one_of(
    st.builds(
        lambda uid, info, plugins, pending, gate: (
            lambda pool: pool.put(uid, dict(info), plugins=set(plugins), pending=set(pending), gate=gate)
        ),
        uids,
        infos,
        some_plugins,
        some_plugins,
        st.sampled_from(["", "", "", "A"]),
    ),
    st.builds(lambda uid: lambda pool: pool.take(uid), uids),
    st.builds(
        lambda event, old, new, limit: lambda pool: pool.happen(event, old, new, limit),
        st.sampled_from(EVENTS),
        st.none() | st.sampled_from(LETTERS),
        st.sampled_from(LETTERS),
        st.sampled_from([1, 9, 9]),
    ),
)


NONE = dict.fromkeys(PLUGINS, ())
ONE_WITH_TOPICS = {**NONE, "A": (EventHint(ASSIGNED_POD_DELETE, hint, shape, Topics(letters, about)),)}


def gated_and_pending(pool: Pool) -> None:
    """A pod that its gate and another plugin left waiting: the gate's hint is called once."""
    info = {"wants": "a", "priority": 0, "scheduler": OURS}
    pool.put("a", info, plugins=set(), pending={"A", "B"}, gate="A")


def a_pod_leaves(pool: Pool) -> None:
    pool.happen(ASSIGNED_POD_DELETE, None, "a", 1)


@settings(max_examples=examples(250, share=SLOW_SHARE), deadline=None)
@given(ours=hints, others=hints, history=st.lists(steps, min_size=5, max_size=40))
@example(ours=ONE_WITH_TOPICS, others=NONE, history=[gated_and_pending, a_pod_leaves])
def test_laws(ours: dict[str, Any], others: dict[str, Any], history: list[Callable[[Pool], None]]) -> None:
    """70: events wake the pods that the rule of their profile wakes. The index is empty once all pods are gone."""
    pool = Pool(ours, others)
    for step in history:
        step(pool)
        pool.check()
    for uid in list(pool.pods):
        pool.take(uid)
    pool.check()

    assert len(pool.pool) == 0
    assert not pool.pool._rejected._by_rejecter


@settings(max_examples=examples(200), deadline=None)
@given(
    registration=st.builds(EventHint, st.just(NODE_ADD), st.just(hint), st.just(shape), topics),
    wanted=st.lists(st.tuples(st.sampled_from(LETTERS), st.integers(0, 3)), max_size=12),
    old=st.none() | st.sampled_from(LETTERS),
    new=st.sampled_from(LETTERS),
)
def test_hints_are_called_for_shapes_with_a_topic_of_the_event_only(
    registration: EventHint, wanted: list[tuple[str, int]], old: str | None, new: str
) -> None:
    """The hint is called once for each shape that shares a topic with the event, or has no known topics."""
    pool = Pool({"A": (registration,), "B": (), "C": ()}, {})
    for n, (wants, priority) in enumerate(wanted):
        pool.put(f"p{n}", {"wants": wants, "priority": priority}, plugins={"A"}, pending=set(), gate="")
    pool.pool.woken_by(NODE_ADD, old, new, concerns=None)

    concerned = {shape(q.info) for q in pool.pods.values() if concerns(registration, q.info, old, new)}
    assert len(concerned) == len(pool.tally.hints)


def known(topics_of: Callable[..., Any], *objects: object) -> set[Any] | None:
    """Return the topics, or None if they are unknown or the function raises."""
    try:
        answer = topics_of(*objects)
        return None if answer is None else set(answer)
    except (TypeError, ValueError):
        return None
