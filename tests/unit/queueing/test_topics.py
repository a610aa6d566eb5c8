"""Topics: what events are about, and which waiting pods' hints are called for them (docs/spec/core.md §1.10, §10.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector, anchors
from scheduler.core.cluster_events import NODE_ADD, ClusterEvent
from scheduler.framework.interface import (
    NODE_CAME,
    EventHint,
    Hint,
    Topics,
    by_node_labels,
    by_pod_labels,
    label,
    named,
)
from scheduler.queueing.unschedulable_pods import TOPICS_MAX
from tests.support.hashing import HashedText
from tests.unit.objects import node
from tests.unit.queueing.harness import OTHER, Gate, QueueHarness, pod


class Wants:
    """A plugin whose pods wait for letters that events have. It records its calls."""

    def __init__(self, says: Hint = Hint.QUEUE) -> None:
        self.says = says
        self.hinted: list[str] = []
        self.filed: list[str] = []
        self.looked = 0

    def hint(self, info: PodInfo, _old: Any, new: Any) -> Hint:
        self.hinted.append(letters(info))
        return self.says if set(letters(info)) & set(new) else Hint.SKIP

    def of_pod(self, info: PodInfo) -> Iterable[str]:
        self.filed.append(letters(info))
        return letters(info)

    def of_event(self, _old: Any, new: Any) -> Iterable[str]:
        self.looked += 1
        return str(new)

    def registered(self, *events: ClusterEvent) -> tuple[EventHint, ...]:
        topics = Topics(self.of_pod, self.of_event)
        return tuple(EventHint(event, self.hint, letters, topics) for event in events)


def letters(info: PodInfo) -> str:
    return info.pod.metadata.labels.get("wants", "")


def wanting(name: str, wants: str, **more: Any) -> PodInfo:
    return pod(name, labels={"wants": wants}, **more)


def harness_of(plugin: Wants, *pods: PodInfo) -> QueueHarness:
    harness = QueueHarness({"Wants": plugin.registered(NODE_ADD)}, other_hints={"Wants": plugin.registered(NODE_ADD)})
    for info in pods:
        harness.rejected(info, "Wants")
    return harness


def test_a_shape_is_hashed_a_few_times_however_many_topics_it_has() -> None:
    """A pod may name 15,000 claims: its shape has all of them, and each is a topic."""

    def shape(info: PodInfo) -> HashedText:
        return HashedText(letters(info))

    topics = Topics(lambda info: map(int, letters(info).split(",")), lambda _old, new: [new])
    registered = EventHint(NODE_ADD, lambda *_: Hint.QUEUE, shape, topics)
    harness = QueueHarness({"Wants": (registered,)})
    HashedText.hashes = 0
    harness.rejected(wanting("p", ",".join(map(str, range(1000)))), "Wants")
    harness.queue.move_all(NODE_ADD, None, 999)

    assert harness.pop().info.pod.metadata.name == "p"
    assert HashedText.hashes < 20


def test_the_hint_is_called_once_per_shape_in_the_order_of_the_topics_of_the_event() -> None:
    plugin = Wants()
    harness = harness_of(plugin, *(wanting(f"p{n}", wants) for n, wants in enumerate(["a", "ab", "c", "c", ""])))
    harness.queue.move_all(NODE_ADD, None, "bax")

    assert plugin.hinted == ["ab", "a"]


def test_the_hint_of_gated_pods_is_called_once_per_shape() -> None:
    """Ten thousand pods of one group are gated until the last one comes."""
    plugin, gate = Wants(), Gate("Wants", {"a", "b", "c", "d"})
    harness = QueueHarness({"Wants": plugin.registered(NODE_ADD)}, gates=(gate,))
    harness.add(*(wanting(name, "x" if name != "d" else "y") for name in "abcd"))
    gate.held.clear()
    harness.queue.move_all(NODE_ADD, None, "x")

    assert (plugin.hinted, harness.names_popped()) == (["x"], ["a", "b", "c"])


@pytest.mark.parametrize(("more", "is_called"), [(0, False), (1, True)])
def test_a_pod_with_too_many_topics_is_not_indexed_by_them(more: int, is_called: bool) -> None:
    """Each topic costs memory while the pod waits, so its hint is called at every event instead."""
    drawn = []

    def of_pod(_: PodInfo) -> Iterable[int]:
        for topic in range(TOPICS_MAX + more + 5 * more):
            drawn.append(topic)
            yield topic

    plugin = Wants()
    registered = EventHint(NODE_ADD, plugin.hint, letters, Topics(of_pod, lambda _old, new: [new]))
    harness = QueueHarness({"Wants": (registered,)})
    harness.rejected(wanting("p", "a"), "Wants")
    harness.queue.move_all(NODE_ADD, None, "no topic of the pod")

    assert len(drawn) == TOPICS_MAX + more
    assert bool(plugin.hinted) is is_called


def test_topics_are_computed_once() -> None:
    """Topics of a pod are computed when its shape begins to wait, topics of an event once for both profiles."""
    plugin = Wants(Hint.SKIP)
    harness = harness_of(plugin)
    harness.queue.move_all(NODE_ADD, None, "a")
    assert plugin.looked == 0
    for info in (wanting("a", "a"), wanting("b", "a"), wanting("c", "b"), wanting("d", "a", scheduler=OTHER)):
        harness.rejected(info, "Wants")
    harness.queue.move_all(NODE_ADD, None, "a")

    assert ["a", "b", "a"] == plugin.filed
    assert ["a", "a"] == plugin.hinted
    assert plugin.looked == 1


def raising(*_: object) -> Iterable[str]:
    raise ValueError("a plugin's mistake")


def raising_late(*_: object) -> Iterable[str]:
    yield "x"
    raise ValueError("a plugin's mistake")


def unhashable(*_: object) -> Iterable[Any]:
    return [["x"]]


def nothing(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("wrong", "is_counted"),
    [
        pytest.param(raising, True, id="raises"),
        pytest.param(raising_late, True, id="raises half-way"),
        pytest.param(unhashable, True, id="returns topics that are not hashable"),
        pytest.param(nothing, False, id="returns None"),
    ],
)
@pytest.mark.parametrize("side", ["of the pod", "of the event"])
def test_unknown_topics_match_every_topic(wrong: Callable[..., Any], is_counted: bool, side: str) -> None:
    plugin = Wants()
    good = plugin.registered(NODE_ADD)[0].topics
    assert good is not None
    topics = Topics(wrong, good.of_event) if side == "of the pod" else Topics(good.of_pod, wrong)
    harness = QueueHarness({"Wants": (EventHint(NODE_ADD, plugin.hint, letters, topics),)})
    for name in "ab":
        harness.rejected(wanting(name, name), "Wants")
    for _ in range(2):
        harness.queue.move_all(NODE_ADD, None, "x")
    harness.queue.move_all(NODE_ADD, None, "b")

    assert ["a", "b"] * 3 == plugin.hinted
    assert {"a": "unschedulable", "b": "backoff"} == harness.places()
    assert is_counted == bool(harness.errors.counts["queueing-hint"])


def test_replay_uses_no_topics() -> None:
    plugin = Wants()
    harness = harness_of(plugin)
    harness.add(wanting("p", "a"))
    queued = harness.pop()
    harness.queue.move_all(NODE_ADD, None, "x")
    harness.queue.move_all(NODE_ADD, None, "a")
    harness.fail(queued, "Wants")

    assert harness.place("p") == "backoff"
    assert ["a", "a"] == plugin.hinted
    assert [] == plugin.filed


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param({"hint": None, "shape": letters}, id="no hint"),
        pytest.param({"hint": lambda *_: Hint.SKIP, "shape": None}, id="no shape"),
    ],
)
def test_topics_need_a_hint_and_a_shape(missing: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="NodeAdd has topics: it needs a hint and a shape"):
        EventHint(NODE_ADD, topics=Topics(letters, nothing), **missing)


@pytest.mark.parametrize(
    ("old", "new", "about"),
    [
        pytest.param({"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {label("a"), label("a", "2")}, id="a value changed"),
        pytest.param({}, {"a": "1"}, {label("a"), label("a", "1")}, id="a label came"),
        pytest.param({"a": "1"}, {}, {label("a")}, id="a label went"),
        pytest.param({"a": "1"}, {"a": "1"}, set(), id="nothing changed"),
        pytest.param(None, {"a": "1"}, {label("a"), label("a", "1"), NODE_CAME, named("n1")}, id="a node came"),
        pytest.param({"a": "1"}, None, {label("a")}, id="a node went with its labels"),
    ],
)
def test_labels_of_a_node(old: Any, new: Any, about: set[Any]) -> None:
    before, after = (None if labels is None else node("n1", labels=labels) for labels in (old, new))
    topics = list(by_node_labels(before, after))

    assert about == set(topics)
    assert len(topics) == len(about)


SELECTS_A = anchors(frozenset({"default"}), LabelSelector({"app": "a"}))


@pytest.mark.parametrize(
    ("old", "new", "is_found"),
    [
        pytest.param(None, pod("p", labels={"app": "a"}), True, id="a pod came"),
        pytest.param(pod("p", labels={"app": "a"}), None, True, id="a pod went"),
        pytest.param(pod("p", labels={"app": "a"}), pod("p"), True, id="it was selected"),
        pytest.param(pod("p"), pod("p", labels={"app": "a"}), True, id="it is selected now"),
        pytest.param(pod("p"), pod("p", labels={"app": "b"}), False, id="it never was"),
    ],
)
def test_labels_of_a_pod(old: PodInfo | None, new: PodInfo | None, is_found: bool) -> None:
    assert is_found == (not set(SELECTS_A).isdisjoint(by_pod_labels(old, new)))
