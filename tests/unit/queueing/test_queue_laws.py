"""Laws of the scheduling queue over random histories, against a model that evaluates the hints of each pod alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import event as noted, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import (
    ALL,
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.queueing_hints import QueueingStrategy
from scheduler.queueing.types import IN_POOL, Place
from tests.examples import SLOW_SHARE, examples
from tests.unit.queueing.harness import OTHER, OURS, QueueHarness, SchedulingGates, pod

NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
UNHEARD_OF = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
EVENTS = (NODE_ADD, NODE_TAINT, NODE_LABEL, ASSIGNED_POD_DELETE, UNHEARD_OF, FORCE_ACTIVATE)
PLUGINS = ("A", "B", "C", "D", "Unknown", "SchedulingGates")
NAMES = tuple("abcde")


def shape_of(info: PodInfo) -> int:
    return info.priority % 3


def small(info: PodInfo, _old: Any, new: Any) -> Hint:
    """Depends on the shape only."""
    return Hint.QUEUE if isinstance(new, int) and shape_of(info) <= new else Hint.SKIP


def vowels(info: PodInfo, _old: Any, _new: Any) -> Hint:
    """Depends on the pod itself."""
    return Hint.QUEUE if info.pod.metadata.name in "aeiou" else Hint.SKIP


def raises_for_odd(info: PodInfo, _old: Any, _new: Any) -> Hint:
    if info.priority % 2:
        raise ValueError(info.key)
    return Hint.SKIP


def its_shape(info: PodInfo, _old: Any, new: Any) -> Hint:
    """Depends on the shape only, and the event names the one that it helps."""
    return Hint.QUEUE if shape_of(info) == new else Hint.SKIP


def bad_shape(info: PodInfo) -> list[int]:
    return [info.priority]


HINTS = {
    "A": (
        EventHint(NODE_ADD, small, shape_of),
        EventHint(ClusterEvent(Resource.NODE, UPDATE), small, lambda info: (shape_of(info), info.priority)),
        EventHint(ASSIGNED_POD_DELETE),
    ),
    "B": (EventHint(NODE_ADD, vowels), EventHint(NODE_TAINT, raises_for_odd, lambda info: info.priority % 2)),
    "C": (
        EventHint(ClusterEvent(Resource.NODE, ALL), vowels, bad_shape),  # type: ignore[arg-type]
        EventHint(ClusterEvent(Resource.TARGET_POD, UPDATE)),
    ),
    "D": (EventHint(NODE_ADD, its_shape, shape_of, Topics(lambda info: [shape_of(info)], lambda _old, new: [new])),),
    "SchedulingGates": (EventHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)),),
}


def evaluated_alone(
    queued: QueuedPodInfo, event: ClusterEvent, new: object, concerns: Callable[[PodInfo], bool] | None
) -> QueueingStrategy:
    """The rule of docs/spec/core.md §1.10."""
    if concerns is not None and not concerns(queued.info):
        return QueueingStrategy.SKIP
    if event.is_wildcard:
        return (
            QueueingStrategy.SKIP
            if isinstance(new, PodInfo) and new.uid != queued.uid
            else QueueingStrategy.AFTER_BACKOFF
        )
    if queued.profile != OURS:
        # That profile does not know these plugins, so every event wakes the pod.
        return QueueingStrategy.IMMEDIATELY if queued.pending_plugins else QueueingStrategy.AFTER_BACKOFF
    if queued.place is Place.GATED and not any(h.event.wants(event) for h in HINTS[queued.gating_plugin]):
        return QueueingStrategy.SKIP
    best = QueueingStrategy.SKIP
    for plugin in queued.unschedulable_plugins | queued.pending_plugins:
        for registered in HINTS.get(plugin, (EventHint(ClusterEvent(Resource.WILDCARD, ALL)),)):
            if registered.event.wants(event) and says_yes(registered, queued.info, new):
                yes = (
                    QueueingStrategy.IMMEDIATELY if plugin in queued.pending_plugins else QueueingStrategy.AFTER_BACKOFF
                )
                best = max(best, yes)
    return best


def says_yes(registered: EventHint, info: PodInfo, new: object) -> bool:
    try:
        return registered.hint is None or registered.hint(info, None, new) is Hint.QUEUE
    except ValueError:
        return True


class History(QueueHarness):
    """A queue with a list of the pods that exist and of those in flight."""

    def __init__(self) -> None:
        super().__init__(HINTS, gates=(SchedulingGates(),))
        self.tried: dict[str, QueuedPodInfo] = {}
        self.version = 0

    def show(self, name: str, *, priority: int, gated: bool, batch: bool) -> None:
        """The watch shows a pod: new, or changed."""
        self.version += 1
        old = self.store.get(f"default/{name}")
        info = pod(
            name,
            priority=priority,
            version=str(self.version),
            gates=("g",) if gated else (),
            scheduler=OTHER if (old.pod.spec.scheduler_name == OTHER if old else batch) else OURS,
            nominated="n1" if self.version % 7 == 0 else "",
        )
        if old is None:
            self.add(info)
        else:
            self.update(info)

    def vanish(self, name: str, *, is_bound: bool) -> None:
        info = self.store.get(f"default/{name}")
        if info is None:
            return
        if is_bound:
            self.queue.observed_bound(self.store.pop(info.key))
        else:
            self.delete(info)

    def start(self) -> None:
        queued = self.queue.pop()
        if queued is not None:
            assert queued.uid not in self.tried
            self.tried[queued.uid] = queued

    def finish(self, n: int, plugins: set[str], pending: set[str]) -> None:
        """End an attempt. The pod returns to the queue unless it was deleted."""
        if not self.tried:
            return
        queued = self.tried.pop(sorted(self.tried)[n % len(self.tried)])
        if queued.info.key not in self.store:
            self.queue.done(queued.uid)
        else:
            self.fail(queued, *plugins, pending=tuple(pending))

    def reject_next(self, plugins: set[str], pending: set[str]) -> None:
        """Pop a pod and reject it, so that most histories have many waiting pods."""
        before = set(self.tried)
        self.start()
        for uid in set(self.tried) - before:
            self.finish(sorted(self.tried).index(uid), plugins, pending)

    def happen(self, event: ClusterEvent, new: object, *, limit: int | None) -> None:
        """Report a cluster event. Each waiting pod must move as the model says."""
        concerns = None if limit is None else (lambda info: info.priority <= limit)
        waiting = {q.uid: q for q in self.queue._pool}
        expected = {uid: evaluated_alone(q, event, new, concerns) for uid, q in waiting.items()}
        now = self.clock.now()
        self.queue.move_all(event, None, new, concerns=concerns)
        for uid, queued in waiting.items():
            strategy = expected[uid]
            if strategy is QueueingStrategy.SKIP or (queued.info.pod.spec.scheduling_gates and queued.profile == OURS):
                assert queued.place in IN_POOL, uid
            elif strategy is QueueingStrategy.IMMEDIATELY or not self.queue.places.backoff.is_backing_off(queued, now):
                assert queued.place is Place.ACTIVE, uid
            else:
                assert queued.place is Place.BACKOFF, uid
            noted(f"{strategy.name} → {queued.place.name}")

    def check(self) -> None:
        rows = Counter(row.key.removeprefix("default/") for row in self.queue.entries())
        assert not rows or set(rows.values()) == {1}, "a pod is in one place"
        alive = {info.uid for info in self.store.values()}
        assert alive | set(self.tried) == set(rows), "nothing is lost, nothing is made up"
        assert set(self.tried) == {name for name, place in self.places().items() if place == "in flight"}
        in_queue = sum(self.queue.counts().values())
        assert in_queue == len(rows) - len(self.tried)
        if not self.tried:
            assert self.queue.in_flight_events() == {}, "nothing in flight, nothing kept"
        rejected: Counter[tuple[str, str]] = Counter()
        for queued in self.queue.places:
            rejected.update((plugin, queued.profile) for plugin in queued.rejecters)
            assert (queued.place is Place.GATED) <= bool(queued.gating_plugin)
        assert rejected == +self.metrics.rejected, "the gauge counts the rejecters of what is queued"
        nominated = {info.uid for node in self.queue.nominator.nodes() for info in self.queue.nominator.for_node(node)}
        assert nominated <= alive, "no deleted pod is nominated"


names = st.sampled_from(NAMES)
plugin_sets = st.sets(st.sampled_from(PLUGINS), max_size=2)
steps = st.one_of(
    st.builds(
        lambda name, priority, gated, batch: (
            lambda harness: harness.show(name, priority=priority, gated=gated, batch=batch)
        ),
        names,
        st.integers(0, 5),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, True]),
    ),
    st.builds(lambda name, bound: lambda harness: harness.vanish(name, is_bound=bound), names, st.booleans()),
    st.just(lambda harness: harness.start()),
    st.builds(
        lambda n, plugins, pending: lambda harness: harness.finish(n, plugins, pending),
        st.integers(0, 7),
        plugin_sets,
        st.sets(st.sampled_from(("A", "B")), max_size=1),
    ),
    st.builds(
        lambda plugins, pending: lambda harness: harness.reject_next(plugins, pending),
        plugin_sets,
        st.sets(st.sampled_from(("A", "B")), max_size=1),
    ),
    st.builds(
        lambda event, new, limit: lambda harness: harness.happen(event, new, limit=limit),
        st.sampled_from(EVENTS),
        st.one_of(st.integers(0, 2), names.map(pod)),
        st.one_of(st.none(), st.integers(0, 5)),
    ),
    st.builds(lambda seconds: lambda harness: harness.advance(seconds), st.sampled_from([0.3, 1.0, 2.5, 40.0, 301.0])),
    st.builds(
        lambda some: lambda harness: harness.queue.activate([pod(name) for name in some]), st.lists(names, max_size=2)
    ),
)


@settings(max_examples=examples(250, share=SLOW_SHARE), deadline=None)
@given(st.lists(steps, min_size=20, max_size=60))
def test_laws(history: list[Callable[[History], None]]) -> None:
    """41, 58, 59: each pod is in one place, none is lost, and wake-ups match the model."""
    harness = History()
    for step in history:
        step(harness)
        harness.check()
    while harness.tried:
        harness.finish(0, {"A"}, set())
    harness.check()
    drain(harness)


def drain(harness: History) -> None:
    """Pop all pods that are not gated, each exactly once."""
    expected = {
        info.uid
        for info in harness.store.values()
        if info.pod.spec.scheduler_name == OTHER or not info.pod.spec.scheduling_gates
    }
    ready = [name for name, place in harness.places().items() if place != "gated"]
    harness.advance(400)
    popped = harness.names_popped()

    assert len(popped) == len(set(popped))
    assert expected <= set(popped)
    assert set(popped) <= expected | set(ready)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS[:-1]), st.integers(0, 2)), max_size=12),
    plugin_sets,
    st.sets(st.sampled_from(("A", "B")), max_size=1),
    st.integers(0, 5),
    st.sampled_from(NAMES),
)
def test_replay(
    events: list[tuple[ClusterEvent, int]], plugins: set[str], pending: set[str], priority: int, name: str
) -> None:
    """29, 30, 31, 40: what happens during the attempt counts as if the pod waited, and the best answer wins."""
    harness = QueueHarness(HINTS)
    harness.add(pod(name, priority=priority))
    queued = harness.pop()
    for event, new in events:
        harness.queue.move_all(event, None, new)
    queued.unschedulable_plugins, queued.pending_plugins = set(plugins), set(pending)
    best = max((evaluated_alone(queued, event, new, None) for event, new in events), default=QueueingStrategy.SKIP)
    if "Unknown" in plugins:
        best = max(best, QueueingStrategy.AFTER_BACKOFF)
    harness.fail(queued, *plugins, pending=tuple(pending))

    expected = {
        QueueingStrategy.SKIP: "unschedulable",
        QueueingStrategy.AFTER_BACKOFF: "backoff",
        QueueingStrategy.IMMEDIATELY: "active",
    }
    place = expected[best] if plugins or pending else "error backoff"
    assert place == harness.place(name)
    assert harness.queue.in_flight_events() == {}
