"""Deltas of storage objects: the cache has a change before any event (docs/spec/volumes.md §1.2, §7); Namespaces, Services, owners, budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder, from_manifest
from scheduler.api.selectors import LabelSelector
from scheduler.cache.cluster import Cluster
from scheduler.cache.storage.reservation import SETTLE_S
from scheduler.core.cluster_events import Action
from scheduler.core.cooperative import finish
from scheduler.eventhandlers.storage import CAPACITY_FREED, StorageHandlers
from scheduler.kube.resources import BUDGET, KINDS
from simulator.builders.core import node
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.eventhandlers.deviceworld import Hearing, broken
from tests.unit.harness import SchedulerHarness

import msgspec  # isort: skip
import itertools


class World(Hearing):
    """A cluster with volumes, its event handlers, and the calls that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock)
        self.cluster.set_node(node("n1").typed())
        self.storage = StorageHandlers(self.cluster, self.move)

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return self.storage.handlers()


def _shown(volumes: Any, kind: str, key: str) -> Any:
    known = volumes.classes.get(key)
    return {
        "PersistentVolumeClaim": lambda: volumes.claims.get(key),
        "PersistentVolume": lambda: volumes.volumes.get(key),
        "StorageClass": lambda: known.obj if known is not None else None,
        "CSINode": lambda: volumes.csi_nodes.get(key),
        "CSIDriver": lambda: volumes.drivers.get(key),
        "CSIStorageCapacity": lambda: getattr(volumes.capacities.pool(key), "obj", None),
        "VolumeAttachment": lambda: volumes.attachments.get(key),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "built"),
    [
        ("PersistentVolumeClaim", a_claim("c", "1Gi", "D").selected("n1")),
        ("PersistentVolume", a_pv("v", "1Gi", "D").on("n1").claimed_by("c")),
        ("StorageClass", a_class("D", "P").allowed("zone", "a")),
        ("CSINode", a_csi_node("n1").driver("P", 3)),
        ("CSIDriver", a_csi_driver("P").tracks_capacity()),
        ("CSIStorageCapacity", a_capacity("o", "D", "1Gi").everywhere()),
        ("VolumeAttachment", an_attachment("v", "n1", "P")),
    ],
)
def test_the_cache_changes_before_subscribers_and_the_queue_are_called(kind: str, built: Any) -> None:
    world = World()
    first, second = built.resource_version("1").typed(), built.resource_version("2").label("a", "b").typed()
    volumes, key = world.cluster.volumes, first.key
    world.shown = lambda: _shown(volumes, kind, key)
    end = volumes.subscribe([(kind, key), (kind, "another")], world.notified)
    bad = broken(kind, first)

    def heard(action: Action, old: Any, new: Any) -> list[tuple[Any, ...]]:
        return [("notified", new), (kind, action, old, new, new)]

    assert heard(Action.ADD, None, first) == world.feed(kind, None, first)
    assert heard(Action.UPDATE_OTHER, first, second) == world.feed(kind, first, second)
    assert heard(Action.DELETE, second, None) == world.feed(kind, second, bad)
    assert {(kind, key): bad} == volumes.broken
    assert heard(Action.ADD, None, second) == world.feed(kind, bad, second)
    assert {} == volumes.broken
    assert heard(Action.DELETE, second, None) == world.feed(kind, second, None)

    end()

    assert [(kind, Action.ADD, None, first, first)] == world.feed(kind, None, first)
    world.feed(kind, first, None)
    assert (0, 0, {}) == (len(volumes.groups._groups), len(volumes.reservations), volumes._watchers)


def test_an_object_that_cannot_be_read_is_logged_once() -> None:
    """The same error is logged once. The end of an unreadable object causes no event."""
    world, claim = World(), a_claim("c").typed()
    first, same, other = (broken("PersistentVolumeClaim", claim, why) for why in ("a", "a", "b"))
    with structlog.testing.capture_logs() as logs:
        for old, new in ((None, first), (first, same), (same, other), (other, None)):
            assert [] == world.feed("PersistentVolumeClaim", old, new)

    assert [("default/c", "a"), ("default/c", "b")] == [(line["object"], line["error"]) for line in logs]
    assert {} == world.cluster.volumes.broken


def test_the_end_of_a_capacity_reservation_wakes_pods_of_the_class() -> None:
    world = World()
    world.feed("CSIStorageCapacity", None, a_capacity("o", "D", "1Gi").everywhere().typed())
    world.cluster.volumes.reservations.users.add("pod", ["default/c"])
    claim = a_claim("c", "1Gi", "D").uid("c").selected("n1")
    world.feed("PersistentVolumeClaim", None, claim.typed())
    bound = claim.bound_to("v").resource_version("2").typed()
    world.feed("PersistentVolumeClaim", claim.typed(), bound)
    world.heard.clear()
    world.storage.tick()

    assert [] == world.heard

    asyncio.run(world.clock.advance(SETTLE_S))
    world.storage.tick()
    world.storage.tick()

    assert [("CSIStorageCapacity", CAPACITY_FREED.action, None, "D", None)] == world.heard


def test_pods_are_woken_when_the_server_does_not_serve_capacity_objects() -> None:
    """D5 of §8: pods of every class are woken."""
    world = World()
    for name in "DE":
        world.feed("StorageClass", None, a_class(name, "P").typed())
    world.heard.clear()
    world.storage.capacity_served(is_served=False)

    assert ["D", "E"] == [new for _, _, _, new, _ in world.heard]
    assert not world.cluster.volumes.capacities.is_served

    world.heard.clear()
    world.storage.capacity_served(is_served=True)

    assert [] == world.heard
    assert world.cluster.volumes.capacities.is_served


def test_the_newest_allowed_topologies_of_a_class_count() -> None:
    world = World()
    volumes, first = world.cluster.volumes, a_class("D", "P").allowed("zone", "a")
    world.feed("StorageClass", None, first.typed())

    assert 0 == volumes.classes["D"].allowed.nodes

    world.feed("StorageClass", first.typed(), a_class("D", "P").typed())

    assert 1 == volumes.classes["D"].allowed.nodes.bit_count()
    assert 1 == len(volumes.groups._groups)


def test_a_callback_may_end_its_own_subscription() -> None:
    volumes = World().cluster.volumes
    heard: list[str] = []
    ends: list[Callable[[], None]] = []

    def once() -> None:
        heard.append("once")
        ends[0]()

    ends.append(volumes.subscribe([("PersistentVolume", "v")], once))
    volumes.subscribe([("PersistentVolume", "v")], lambda: heard.append("always"))
    for _ in range(2):
        volumes.notify("PersistentVolume", "v")
    ends[0]()

    assert ["once", "always", "always"] == heard


def read(kind: str, manifest: dict[str, Any]) -> Any:
    spec = KINDS[kind]
    assert spec.typ is not None
    return ObjectDecoder(kind, spec.typ).decode(msgspec.json.encode(manifest))


def at(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def a_pod(kind: str = "", version: str = "apps/v1") -> Pod:
    owners = [{"apiVersion": version, "kind": kind, "name": "o", "controller": True}] if kind else []
    metadata = {"name": "p", "namespace": "default", "labels": {"app": "web"}, "ownerReferences": owners}
    return from_manifest(Pod, {"metadata": metadata, "spec": {"containers": []}})


@pytest.mark.parametrize(("kind", "manifest", "comes"), [
    pytest.param("Service", at("s", selector={"app": "web"}), a_pod(), id="a Service"),
    pytest.param("ReplicationController", at("o", selector={"app": "web"}), a_pod("ReplicationController", "v1"),
        id="a ReplicationController"),
    pytest.param("ReplicaSet", at("o", selector={"matchLabels": {"app": "web"}}), a_pod("ReplicaSet"), id="an RS"),
    pytest.param("StatefulSet", at("o", selector={"matchLabels": {"app": "web"}}), a_pod("StatefulSet"), id="a SS"),
])  # fmt: skip
def test_an_object_that_selects_pods_comes_becomes_unreadable_and_goes(
    kind: str, manifest: dict[str, Any], comes: Pod
) -> None:
    sched = SchedulerHarness()
    event_handlers, workloads = sched.parts.event_handlers, sched.cluster.workloads
    whole = read(kind, manifest)
    broken = read(kind, {**manifest, "spec": {"selector": 7}})

    event_handlers.apply(kind, [Delta(None, whole)])
    assert workloads.default_selector(comes) == LabelSelector({"app": "web"})
    with capture_logs() as logs:
        event_handlers.apply(kind, [Delta(whole, broken), Delta(broken, broken)])
    assert workloads.default_selector(comes) is None
    assert [(log["object"], "selector" in log["error"]) for log in logs] == [(whole.key, True)]
    event_handlers.apply(kind, [Delta(broken, whole)])
    assert workloads.default_selector(comes) is not None
    event_handlers.apply(kind, [Delta(whole, None)])
    assert workloads.default_selector(comes) is None


def test_namespaces_are_known_by_their_labels() -> None:
    sched = SchedulerHarness()
    event_handlers, namespaces = sched.parts.event_handlers, sched.cluster.namespaces
    plain = read("Namespace", {"metadata": {"name": "a"}})
    team = read("Namespace", {"metadata": {"name": "a", "labels": {"team": "t"}}})
    broken = read("Namespace", {"metadata": {"name": "a", "labels": 7}})

    event_handlers.apply("Namespace", [Delta(None, plain)])
    seen = [(namespaces.generation, dict(namespaces.labels("a")))]
    for old, new in ((plain, team), (team, team), (team, broken), (broken, team), (team, None)):
        event_handlers.apply("Namespace", [Delta(old, new)])
        seen.append((namespaces.generation, dict(namespaces.labels("a"))))

    assert [labels for _, labels in seen] == [{}, {"team": "t"}, {"team": "t"}, {}, {"team": "t"}, {}]
    assert [b[0] != a[0] for a, b in itertools.pairwise(seen)] == [True, False, True, True, True]


def a_budget(selector: Any = None, status: Any = None) -> dict[str, Any]:
    labels = {"matchLabels": {"app": "web"}}
    spec = {"minAvailable": 1, "selector": labels if selector is None else selector}
    return {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(("broken", "field"), [
    pytest.param(a_budget(selector=7), "$.spec.selector", id="a selector that is a number"),
    pytest.param(a_budget(selector={"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}),
        "$.spec.selector", id="an unknown operator"),
    pytest.param(a_budget(selector={"matchLabels": {"app": 7}}), "$.spec.selector.matchLabels",
        id="a label that is a number"),
    pytest.param(a_budget(status={"disruptionsAllowed": "many"}), "$.status.disruptionsAllowed", id="a count in words"),
    pytest.param(a_budget(status={"disruptedPods": ["web-0"]}), "$.status.disruptedPods", id="a list for a map"),
])  # fmt: skip
def test_an_unreadable_budget_protects_all_pods_that_it_may_select(broken: dict[str, Any], field: str) -> None:
    """The error is logged once, with object and field."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("web", on="n1", labels={"app": "web"})
    sched.pod("else", on="n1", labels={"app": "else"})
    sched.pod("bare", on="n1")
    pods = list(sched.cluster.nodes.pods(0).values())
    event_handlers, disruptions = sched.parts.event_handlers, sched.cluster.disruptions
    good, bad = read(BUDGET.name, a_budget()), read(BUDGET.name, broken)

    with capture_logs() as logs:
        protected, generations = [], [disruptions.generation]
        for old, new in ((None, bad), (bad, good), (good, bad), (bad, bad), (bad, good), (good, None)):
            event_handlers.apply(BUDGET.name, [Delta(old, new)])
            protected.append(sorted(finish(disruptions.violating(pods))))
            generations.append(disruptions.generation)

    assert protected == [
        ["uid-bare", "uid-else", "uid-web"],
        ["uid-web"],
        ["uid-bare", "uid-else", "uid-web"],
        ["uid-bare", "uid-else", "uid-web"],
        ["uid-web"],
        [],
    ]
    assert [b != a for a, b in itertools.pairwise(generations)] == [True, True, True, False, True, True]
    assert [(log["kind"], log["object"], field in log["error"]) for log in logs] == [
        (BUDGET.name, "default/b", True),
        (BUDGET.name, "default/b", True),
    ]


async def test_an_unreadable_budget_does_not_stop_preemption() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("web", cpu="1", on="n1", labels={"app": "web"}, priority=0)
    other = {**a_budget(), "metadata": {"name": "other", "namespace": "default", "uid": "o"}}
    broken = read(BUDGET.name, a_budget(selector=7))
    sched.parts.event_handlers.apply(BUDGET.name, [Delta(None, broken), Delta(None, read(BUDGET.name, other))])
    sched.pod("high", cpu="1", priority=9)

    await sched.settle()

    (web,) = sched.cluster.nodes.pods(0).values()
    disruptions = sched.cluster.disruptions
    assert (list(disruptions.budgets), finish(disruptions.violating([web]))) == (["default/other"], {web.uid})
    assert sched.writer.deletions == ["default/web"]
