"""The law of wake-ups for InterPodAffinity (docs/spec/core.md §10.2): an event that lets a pod in wakes it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from scheduler.api.core_v1 import Namespace
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.core.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, ClusterEvent
from scheduler.eventhandlers.pods_and_nodes import node_changes
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.queueing.types import pod_changes
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import node
from tests.unit.plugins.test_interpodaffinity import (
    NAMESPACE_ADD,
    NAMESPACE_UPDATE,
    TEAM,
    apply,
    namespace,
    plugin_on,
    pod,
    term,
)

NODES = ("n1", "n2", "n3", "n4")
PODS = st.integers(0, 3)
APPS = st.sampled_from(["x", "y"])
SPACES = st.sampled_from(["n1", "n1", "n2"])
LABELS = st.sampled_from([{}, {"zone": "a"}, {"zone": "a", "host": "h"}, {"zone": "b"}, {"zone": "b", "host": "h"}])


@st.composite
def a_term(draw: st.DrawFn) -> dict[str, Any]:
    more = draw(st.sampled_from([{}, {}, TEAM, {"namespaces": ["n1"]}, {"namespaceSelector": {}}]))
    return term(draw(APPS), draw(st.sampled_from(["zone", "zone", "host"])), **more)


@st.composite
def a_pod(draw: st.DrawFn, name: str, *, on: bool) -> PodInfo:
    near, away = draw(st.sampled_from([(0, 0), (1, 0), (1, 0), (0, 1), (0, 1), (2, 0), (0, 2), (1, 1)]))
    rules = {"near": [draw(a_term()) for _ in range(near)], "away": [draw(a_term()) for _ in range(away)]}
    return pod(name, draw(APPS), ns=draw(SPACES), on=draw(st.sampled_from(NODES)) if on else "", **rules)


STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), LABELS),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    PODS.flatmap(lambda i: st.tuples(st.just("pod"), a_pod(f"p{i}", on=True))),
    st.tuples(st.just("left"), PODS),
    st.tuples(st.just("called"), PODS, APPS),
    st.tuples(st.just("space"), st.sampled_from(["n1", "n2"]), st.sampled_from([{}, {"team": "t"}])),
)

News = tuple[ClusterEvent, Any, Any]


def happens(seen: Cluster, step: tuple[Any, ...]) -> Iterator[News]:
    """Apply the step; the events of it, as intake makes them."""
    match step:
        case ("node", name, labels):
            slot = seen.nodes.present_slot(name)
            old, new = (seen.nodes.node(slot) if slot is not None else None), node(name, labels=labels)
            apply(seen, step)
            for event in (NODE_ADD,) if old is None else node_changes(old, new):
                yield event, old, new
        case ("gone", name):
            slot = seen.nodes.present_slot(name)
            if slot is not None:
                left = seen.nodes.node(slot)
                apply(seen, step)
                yield NODE_DELETE, left, None
        case ("pod", info) if seen.get(info.uid) is None:
            apply(seen, step)
            yield ASSIGNED_POD_ADD, None, info
        case ("left", number):
            for info in whose_number(seen, number):
                seen.remove_pod(info.uid)
                yield ASSIGNED_POD_DELETE, info, None
        case ("called", number, app):
            for info in whose_number(seen, number):
                metadata = msgspec.structs.replace(info.pod.metadata, labels={"app": app})
                renamed = pod_info(msgspec.structs.replace(info.pod, metadata=metadata))
                seen.update_pod(renamed)
                for event in pod_changes(info, renamed):
                    yield event, info, renamed
        case ("space", name, labels):
            yield from is_labelled(seen, namespace(name, **labels))


def is_labelled(seen: Cluster, new: Namespace) -> Iterator[News]:
    before = seen.namespaces._labels.get(new.key)
    seen.namespaces.set(new)
    if before is None:
        yield NAMESPACE_ADD, None, new
    elif before != new.metadata.labels:
        yield NAMESPACE_UPDATE, namespace(new.key, **before), new


def whose_number(seen: Cluster, number: int) -> list[PodInfo]:
    return [info for info in seen.pods() if info.pod.metadata.name == f"p{number}"]


def passing(plugin: InterPodAffinity, seen: Cluster, pod: PodInfo, elsewhere: set[str]) -> tuple[bool, bool]:
    """Return whether a node that other plugins admit passes, and whether the plugin refused one of them."""
    judged = seen.nodes.present & ~seen.nodes.by_name(elsewhere)
    out = 0
    for nodes in plugin.filter(CycleState(), pod, judged).values():
        out |= nodes
    return bool(judged & ~out), bool(out)


def filed(registered: EventHint, pod: PodInfo) -> set[Hashable] | None:
    topics = registered.topics.of_pod(pod) if registered.topics is not None else None
    return None if topics is None else set(topics)


def is_woken(hints: list[tuple[EventHint, set[Hashable] | None]], pod: PodInfo, news: News) -> bool:
    event, old, new = news
    for registered, topics in hints:
        if not registered.event.wants(event):
            continue
        about = registered.topics.of_event(old, new) if registered.topics is not None else None
        if topics is not None and about is not None and topics.isdisjoint(about):
            continue
        if registered.hint is None or registered.hint(pod, old, new) is Hint.QUEUE:
            return True
    return False


@settings(
    max_examples=examples(500, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(
    st.lists(STEP, max_size=14),
    a_pod("q", on=False),
    st.sets(st.sampled_from(NODES), max_size=3),
    st.lists(STEP, min_size=1, max_size=6),
)
def test_whatever_lets_it_in_wakes_it(start, waits, elsewhere, more):
    """`elsewhere` are nodes that some other plugin refuses all the time."""
    seen = Cluster()
    plugin = plugin_on(seen)
    for step in (("node", "n1", {"zone": "a"}), ("node", "n2", {"zone": "b"}), *start):
        list(happens(seen, step))
    passes, refuses = passing(plugin, seen, waits, elsewhere)
    assume(refuses and not passes)
    hints = [(registered, filed(registered, waits)) for registered in plugin.events_to_register()]
    for step in more:
        woken = [is_woken(hints, waits, news) for news in happens(seen, step)]
        if any(woken):
            return

        assert not passing(plugin, seen, waits, elsewhere)[0], step
