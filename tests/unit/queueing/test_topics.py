"""Which waiting pods an event asks for: `hints.Topics` in the pool (docs/spec/core.md §1.10, §10.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics
from tests.unit.queueing.world import OTHER, World, pod

NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


class Wants:
    """A plugin whose pods wait for letters; events bring some. Remembers whom and what it was asked for."""

    def __init__(self, says: Hint = Hint.QUEUE) -> None:
        self.says = says
        self.asked: list[str] = []
        self.filed: list[str] = []
        self.looked = 0

    def hint(self, info: PodInfo, _old: Any, new: Any) -> Hint:
        self.asked.append(letters(info))
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


def world_of(plugin: Wants, *pods: PodInfo) -> World:
    world = World({"Wants": plugin.registered(NODE_ADD)}, other_hints={"Wants": plugin.registered(NODE_ADD)})
    for info in pods:
        world.rejected(info, "Wants")
    return world


@pytest.mark.parametrize(
    ("brings", "asked"),
    [
        pytest.param("x", [], id="what nobody waits for"),
        pytest.param("", [], id="nothing"),
        pytest.param("c", ["c"], id="what one shape waits for"),
        pytest.param("b", ["ab"], id="one of two topics"),
        pytest.param("ab", ["a", "ab"], id="each shape once, whatever it shares"),
        pytest.param("bax", ["ab", "a"], id="in the order of the event's topics"),
    ],
)
def test_who_is_asked(brings: str, asked: list[str]) -> None:
    """One question per shape that shares a topic with the event; pods without topics are never asked."""
    plugin = Wants()
    pods = [wanting(f"p{n}", wants) for n, wants in enumerate(["a", "ab", "c", "c", ""])]
    world = world_of(plugin, *pods)
    world.queue.move_all(NODE_ADD, None, brings)

    assert asked == plugin.asked
    assert {info.uid for info in pods if set(letters(info)) & set(brings)} == {
        name for name, place in world.places().items() if place == "backoff"
    }


def test_topics_are_asked_for_once() -> None:
    """Of pods when a shape begins to wait; of an event once, for both profiles together, and not at all for nobody."""
    plugin = Wants(Hint.SKIP)
    world = world_of(plugin)
    world.queue.move_all(NODE_ADD, None, "a")
    assert plugin.looked == 0
    for info in (wanting("a", "a"), wanting("b", "a"), wanting("c", "b"), wanting("d", "a", scheduler=OTHER)):
        world.rejected(info, "Wants")
    world.queue.move_all(NODE_ADD, None, "a")

    assert ["a", "b", "a"] == plugin.filed
    assert ["a", "a"] == plugin.asked
    assert plugin.looked == 1


def test_registrations_of_one_shape_share_an_index() -> None:
    """Two registrations of a plugin with the same shape and `of_pod` file a shape once."""
    plugin = Wants(Hint.SKIP)
    one = Topics(letters, plugin.of_event)
    other = Topics(letters, lambda _old, _new: None)
    hints = (EventHint(NODE_ADD, plugin.hint, letters, one), EventHint(NODE_LABEL, plugin.hint, letters, other))
    world = World({"Wants": hints})
    for name in "ab":
        world.rejected(wanting(name, name), "Wants")
    world.queue.move_all(NODE_ADD, None, "b")
    world.queue.move_all(NODE_LABEL, None, "b")

    assert ["b", "a", "b"] == plugin.asked


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
        pytest.param(unhashable, True, id="names topics that cannot be filed"),
        pytest.param(nothing, False, id="says None"),
    ],
)
@pytest.mark.parametrize("side", ["of the pod", "of the event"])
def test_topics_that_are_not_known(wrong: Callable[..., Any], is_counted: bool, side: str) -> None:
    """The event is asked about as if there were no topics; each mistake is counted."""
    plugin = Wants()
    good = plugin.registered(NODE_ADD)[0].topics
    assert good is not None
    topics = Topics(wrong, good.of_event) if side == "of the pod" else Topics(good.of_pod, wrong)
    world = World({"Wants": (EventHint(NODE_ADD, plugin.hint, letters, topics),)})
    for name in "ab":
        world.rejected(wanting(name, name), "Wants")
    for _ in range(2):
        world.queue.move_all(NODE_ADD, None, "x")
    world.queue.move_all(NODE_ADD, None, "b")

    assert ["a", "b"] * 3 == plugin.asked
    assert {"a": "unschedulable", "b": "backoff"} == world.places()
    assert is_counted == bool(world.errors.counts["queueing-hint"])


def test_replay_needs_no_topics() -> None:
    """Few pods are in flight: their hints are asked, and nothing is filed."""
    plugin = Wants()
    world = world_of(plugin)
    world.add(wanting("p", "a"))
    queued = world.pop()
    world.queue.move_all(NODE_ADD, None, "x")
    world.queue.move_all(NODE_ADD, None, "a")
    world.fail(queued, "Wants")

    assert world.place("p") == "backoff"
    assert ["a", "a"] == plugin.asked
    assert [] == plugin.filed


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param({"hint": None, "shape": letters}, id="without a hint there is no question to spare"),
        pytest.param({"hint": lambda *_: Hint.SKIP, "shape": None}, id="without a shape there is nothing to file"),
    ],
)
def test_topics_need_a_hint_and_a_shape(missing: dict[str, Any]) -> None:
    """A plugin's mistake is named when it registers."""
    with pytest.raises(ValueError, match="NodeAdd has topics: it needs a hint and a shape"):
        EventHint(NODE_ADD, topics=Topics(letters, nothing), **missing)
