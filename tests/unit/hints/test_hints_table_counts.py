"""How many questions an event costs: not more for hundreds of waiting pods that it cannot concern than for ten.

Calls of hints are counted, not seconds. The registrations are those of the real plugins (docs/spec/core.md §10.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from scheduler.api.apps_and_policy import ReplicaSet, Service
from scheduler.api.core_v1 import Namespace, ResourceMap
from scheduler.api.decode import from_manifest
from scheduler.api.pod_group import PodGroup
from scheduler.api.podinfo import PodInfo, Requests, allocatable, pod_info
from scheduler.core.cluster_events import UNSCHEDULED_POD_ADD, Action, ClusterEvent, Resource
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK
from scheduler.eventhandlers.storage import CAPACITY_FREED
from scheduler.framework.interface import EventHint
from simulator.builders.core import Builder, node as a_node
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.harness import manifest, typed
from tests.unit.hints import hint_rows_volumes as of_volumes
from tests.unit.hints.hint_rows import (
    CAME,
    DEFAULT,
    FEATURED,
    GONE,
    LABELLED,
    NAMESPACE_CAME,
    NAMESPACE_LABELLED,
    OWN_LABEL,
    POD_CAME,
    POD_GONE,
    POD_LABELLED,
    POD_SHRANK,
    RESIZED_NODE,
    TAINTED,
    apart,
    harness_of,
    listens,
    near,
    requesting,
    spread,
    spreads_by_default,
    tolerates,
)
from tests.unit.hints.hint_rows_between import DEFAULT_IN_ZONES, POD_AFFINITY, SPREAD_OUT
from tests.unit.hints.hint_rows_devices import (
    CLAIM_CAME,
    CLAIM_CHANGED,
    CLAIM_GONE,
    CLASS_CAME,
    CLASS_CHANGED,
    GPU,
    SLICE_CAME,
    SLICE_CHANGED,
    SLICE_GONE,
    claimed,
    held,
    uses,
)
from tests.unit.hints.hint_rows_limits import DETACHED, claims, stored
from tests.unit.hints.hint_rows_pods import FIT, GROUP_CAME, GROUP_CHANGED
from tests.unit.objects import node
from tests.unit.queueing.harness import Gate, QueueHarness

# -- volumes -----------------------------------------------------------------------------------------------------------

VOLUME: dict[str, Any] = claims("c")
ALL: Final = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")


def unbound(i: int | str) -> list[Builder[Any]]:
    """A claim, its class and its class's driver, of each pod its own."""
    return [a_claim(f"c{i}", "1Gi", f"s{i}"), a_class(f"s{i}", f"p{i}"), a_csi_driver(f"p{i}").tracks_capacity()]


def classless(i: int | str) -> list[Builder[Any]]:
    """A claim whose class is unknown."""
    return [a_claim(f"c{i}", "1Gi", f"s{i}")]


def bound(i: int | str) -> list[Builder[Any]]:
    """A claim and its volume; the first one's is of an in-tree plugin."""
    volume = a_pv(f"v{i}").csi("p")
    if i == "":
        volume = a_pv("v").source(gcePersistentDisk={"pdName": "d"})
    return [a_claim(f"c{i}").bound_to(f"v{i}"), volume]


def nothing(_i: int | str) -> list[Builder[Any]]:
    """There is neither a claim nor a class."""
    return []


TRACKS, CAPACITY = a_csi_driver("p").tracks_capacity(), a_capacity("o", "s", "1Gi")


def leaving(**spec: Any) -> Any:
    """A pod of node n1."""
    return pod_info(typed(manifest("q", on="n1", **spec)))


def _disk(kind: str, **source: str) -> dict[str, Any]:
    return {"volumes": [{"name": "d", kind: source}]}


def of_claims(plugins: Iterable[str], *columns: Any) -> list[Any]:
    """Return a row for each plugin. Each pod has another claim; `columns` are event, text, old, new and given."""
    return [(plugin, *columns[:-1], VOLUME, lambda i: claims(f"c{i}"), columns[-1]) for plugin in plugins]


OF_VOLUMES: Final[list[Any]] = [
    *of_claims(ALL[:2], of_volumes.CLASS_CAME, "pods that wait for other classes", None, a_class("s"), classless),
    *of_claims(ALL, of_volumes.CLAIM_CAME, "pods with other claims", None, a_claim("c"), nothing),
    *of_claims(ALL[:1], of_volumes.VOLUME_CAME, "pods with other classes", None, a_pv("v", "1Gi", "s"), unbound),
    *of_claims(ALL[1:2], of_volumes.VOLUME_CAME, "pods with other volumes", None, a_pv("v"), bound),
    *of_claims(ALL[:1], of_volumes.CSI_NODE_CAME, "pods without in-tree volumes", None, a_csi_node("n1"), bound),
    *of_claims(ALL[:1], of_volumes.DRIVER_CHANGED, "pods with other provisioners", TRACKS, a_csi_driver("p"), unbound),
    *of_claims(ALL[:1], of_volumes.CAPACITY_CAME, "pods with other classes", None, CAPACITY, unbound),
    *of_claims(ALL[:1], CAPACITY_FREED, "pods with other classes", None, "s", unbound),
    *of_claims(ALL[:1], POD_GONE, "pods with other claims and classes", leaving(**VOLUME), None, unbound),
    *of_claims(ALL[2:3], POD_GONE, "pods with other claims", leaving(**VOLUME), None, nothing),
    (
        "NodeVolumeLimits",
        DETACHED,
        "pods with disks of other drivers",
        an_attachment("v", "n1", "ebs.csi.aws.com"),
        None,
        _disk("awsElasticBlockStore", volumeID="vol-1"),
        lambda i: _disk("gcePersistentDisk", pdName=f"d{i}"),
        nothing,
    ),
]

# -- devices -----------------------------------------------------------------------------------------------------------


def waiting(i: int | str) -> list[Builder[Any]]:
    """A claim without devices; each has another class."""
    return [claimed(f"c{i}", f"s{i}")]


def served_by(i: int | str) -> list[Builder[Any]]:
    """A claim that has its device; that of the first has none."""
    return [claimed("c") if i == "" else held(f"c{i}", f"drv/pool/d{i}")]


def missing(i: int | str) -> list[Builder[Any]]:
    """Only the first has a claim that is there."""
    return [claimed("c")] if i == "" else []


D0 = a_device("d0")
SLICE, DEVICES_TAINTED = a_slice("n1", "drv", D0), a_slice("n1", "drv", D0.taint("x"))
PLAIN, LABEL, GROWN = node("n1"), node("n1", labels={"a": "b"}), node("n1", cpu="64")
_AT_EASE: Final = "pods that have their devices"
_NOT_YET: Final = "pods whose claims are not there"


def of_devices(*columns: Any, concerned: dict[str, Any] | None = None) -> Any:
    """Return a row. Each pod has another claim; `columns` are event, text, old, new and given."""
    concerned = uses("c") if concerned is None else concerned
    return ("DynamicResources", *columns[:-1], concerned, lambda i: uses(f"c{i}"), columns[-1])


EXTENDED: dict[str, Any] = {"containers": requesting(**{GPU: "1"})}
CLASS, SERVES = a_device_class("s"), a_device_class("s").extended_resource(GPU)
OF_DEVICES: Final[list[Any]] = [
    of_devices(CAME, _NOT_YET, None, PLAIN, missing),
    of_devices(LABELLED, _NOT_YET, PLAIN, LABEL, missing),
    of_devices(RESIZED_NODE, "pods that only have claims", PLAIN, GROWN, waiting, concerned=EXTENDED),
    of_devices(CLAIM_CAME, "pods with other claims", None, claimed("c"), waiting),
    of_devices(CLAIM_CHANGED, "pods with other claims", claimed("c"), held("c"), waiting),
    of_devices(CLAIM_CHANGED, _AT_EASE, held("x"), claimed("x"), served_by),
    of_devices(CLAIM_GONE, _AT_EASE, held("x"), None, served_by),
    of_devices(DEVICES_GIVEN_BACK, _AT_EASE, held("x"), claimed("x"), served_by),
    of_devices(CLASS_CAME, "pods with other classes", None, CLASS, waiting),
    of_devices(CLASS_CHANGED, _NOT_YET, a_device_class("gpu"), a_device_class("gpu", "true"), missing),
    of_devices(CLASS_CAME, "pods with claims", None, SERVES, waiting, concerned=EXTENDED),
    of_devices(SLICE_CAME, _AT_EASE, None, SLICE, lambda i: [*served_by(i), SLICE]),
    of_devices(SLICE_CAME, _NOT_YET, None, SLICE, lambda i: [*missing(i), SLICE]),
    of_devices(SLICE_CHANGED, _AT_EASE, DEVICES_TAINTED, SLICE, lambda i: [*served_by(i), SLICE]),
    of_devices(SLICE_GONE, _AT_EASE, DEVICES_TAINTED, None, lambda i: [*served_by(i), SLICE]),
]

COUNTS = [*OF_VOLUMES, *OF_DEVICES]


FEW, MANY = 10, 200
BY_DEFAULT: Final = spreads_by_default(DEFAULT_IN_ZONES)


def info(name: str, **spec: Any) -> PodInfo:
    owners = spec.pop("owners", [])
    raw = manifest(name, **spec)
    raw["metadata"]["ownerReferences"] = owners
    return pod_info(typed(raw))


@dataclass(frozen=True)
class Case:
    """An event, one pod that it concerns, and many pods that it cannot concern, each with another shape."""

    plugin: str
    event: ClusterEvent
    old: Any
    new: Any
    concerned: dict[str, Any]
    others: Callable[[int], dict[str, Any]]
    is_by_default: bool = False
    asked: int = 1
    """Calls of the hint; more than 1 when other pods share its shape."""
    given: Callable[[int | str], list[Builder[Any]]] = lambda _: []
    """Objects for each of the other pods, and for the concerned one ("")."""


def in_columns(row: Any) -> Any:
    plugin, event, text, old, new, concerned, others, given = row
    return case(plugin, event, text, old, new, concerned, others, given=given)


def case(plugin: str, event: ClusterEvent, text: str, *columns: Any, **more: Any) -> Any:
    """Return a row. `columns` are the fields of Case from `old` to `others`."""
    return pytest.param(Case(plugin, event, *columns, **more), id=f"{plugin}, {event.label}: {text}")


def on_n1(name: str = "q", **spec: Any) -> PodInfo:
    return info(name, on="n1", **spec)


def web(app: str) -> dict[str, str]:
    return {"app": app}


def namespace(name: str, **labels: str) -> Namespace:
    return from_manifest(Namespace, {"metadata": {"name": name, "labels": labels}})


def service(name: str, **selector: str) -> Service:
    return from_manifest(Service, {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}})


def the_node(i: int | str) -> list[Builder[Any]]:
    """Node n1 has a device for the concerned pod."""
    return [] if i else [a_node("n1").cpu("4").resource(GPU, "1")]


def replica_set(name: str) -> ReplicaSet:
    spec = {"selector": {"matchLabels": web("w")}}
    return from_manifest(ReplicaSet, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def owned(name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
    return {"labels": web(name), "owners": [owner]}


def selecting(i: int) -> dict[str, Any]:
    return {"nodeSelector": {"app": f"w{i}"}}


def spreading(i: int) -> dict[str, Any]:
    return {"topologySpreadConstraints": spread(f"w{i}")}


def keyed(i: int) -> dict[str, Any]:
    return {"topologySpreadConstraints": spread("w", f"key{i}")}


def served(i: int | str) -> dict[str, Any]:
    return {"labels": web(f"w{i}")}


def team(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"team": name}}}


def grouped(name: str) -> dict[str, Any]:
    return {"schedulingGroup": {"podGroupName": name}}


def pod_group(name: str) -> PodGroup:
    return from_manifest(PodGroup, {"metadata": {"name": name, "namespace": "default"}})


A, B = node("n1", labels={"zone": "a"}), node("n1", labels={"zone": "b"})
ON_A: dict[str, Any] = {"nodeSelector": {"zone": "a"}}
HARD_TAINT, TWO_TAINTS = node(taints=("x=:NoSchedule",)), node(taints=("x=:NoSchedule", "y=:NoSchedule"))

CASES: Final = [
    case("NodeAffinity", CAME, "pods that select other labels", None, A, ON_A, selecting),
    case("NodeAffinity", LABELLED, "pods that select other labels", B, A, ON_A, selecting),
    case("TaintToleration", CAME, "pods that tolerate other taints than the new node's",
        None, HARD_TAINT, {"tolerations": tolerates("x")}, lambda i: {"tolerations": tolerates(f"k{i}")}),
    case("TaintToleration", TAINTED, "pods that do not tolerate what is left",
        TWO_TAINTS, HARD_TAINT, {"tolerations": tolerates("x")}, lambda i: {"tolerations": tolerates(f"k{i}")}),
    case("TaintToleration", TAINTED, "any pods while nodes only get taints",
        HARD_TAINT, TWO_TAINTS, {"tolerations": tolerates("x")}, lambda i: {"tolerations": tolerates(f"k{i}")},
        asked=0),
    case("DynamicResources", POD_CAME, "any pods while no devices are kept for the one that comes",
        None, on_n1(), uses("c"), lambda i: uses(f"c{i}"), asked=0, given=waiting),
    *(
        case("GangScheduling", event, "any pods while the group is incomplete",
            None, new, grouped("g"), lambda i: grouped(f"g{i}"), asked=0)
        for event, new in (
            (UNSCHEDULED_POD_ADD, info("q", **grouped("g"))),
            (POD_CAME, on_n1(**grouped("g"))),
            (GROUP_CAME, pod_group("g")),
            (GROUP_CHANGED, pod_group("g")),
        )
    ),
    case("GangScheduling", POD_GONE, "pods of other groups",
        on_n1(**grouped("g")), None, grouped("g"), lambda i: grouped(f"g{i}"), asked=0),
    *(
        case("GangScheduling", event, "any pods of groups without a topology constraint",
            old, A, grouped("g"), lambda i: grouped(f"g{i}"), asked=0)
        for event, old in ((CAME, None), (LABELLED, B))
    ),
    case("NodePorts", POD_GONE, "pods with other ports",
        on_n1(containers=listens(80)), None, {"containers": listens(80)}, lambda i: {"containers": listens(1000 + i)}),
    case("NodePorts", CAME, "all are woken without a question", None, A, {}, served, asked=1),
    case(FIT, POD_SHRANK, "pods that want something else",
        on_n1(containers=requesting(**{GPU: "2"})), on_n1(containers=requesting(**{GPU: "1"})), {"containers": requesting(**{GPU: "1"})},
        lambda i: {"cpu": f"{i + 1}m"}, given=the_node),
    case(FIT, CAME, "pods that are too large for the node",
        None, node(cpu="4"), {"cpu": "1"}, lambda i: {"cpu": str(i + 10)}),
    case(FIT, CAME, "pods that want devices which the node has not",
        None, node(cpu="4"), {"cpu": "1"}, lambda i: {"containers": requesting(cpu="1", **{f"example.com/d{i}": "1"})}),
    case(FIT, RESIZED_NODE, "pods that want something else",
        node(), node(**{GPU: "1"}), {"containers": requesting(**{GPU: "1"})}, lambda i: {"cpu": f"{i + 1}m"}),
    case(FIT, RESIZED_NODE, "pods that are too large all the same",
        node(cpu="1"), node(cpu="4"), {"cpu": "1"}, lambda i: {"cpu": str(i + 10)}),
    *(
        case(SPREAD_OUT, event, "pods that count other pods",
            old, new, {"topologySpreadConstraints": spread("w")}, spreading)
        for event, old, new in (
            (POD_CAME, None, on_n1(labels=web("w"))),
            (POD_LABELLED, on_n1(labels=web("w")), on_n1()),
            (POD_GONE, on_n1(labels=web("w")), None),
        )
    ),
    *(
        case(SPREAD_OUT, event, "pods with other keys", old, new, {"topologySpreadConstraints": spread("w")}, keyed)
        for event, old, new in (
            (CAME, None, A),
            (GONE, A, None),
            (LABELLED, A, B),
            (TAINTED, A, node("n1", labels={"zone": "a"}, taints=("x=:NoSchedule",))),
        )
    ),
    *(
        case(SPREAD_OUT, ClusterEvent(resource, action), "pods that other Services select, or that have other owners",
            None if action is Action.ADD else seen, None if action is Action.DELETE else seen, owned("w"),
            lambda i: owned(f"w{i}"), is_by_default=True)
        for resource, seen in ((Resource.SERVICE, service("s", app="w")), (Resource.CONTROLLER, replica_set("w")))
        for action in (Action.ADD, Action.UPDATE_OTHER, Action.DELETE)
    ),
    case(SPREAD_OUT, POD_CAME, "pods that other Services select",
        None, on_n1(labels=web("w")), served(""), lambda i: served(str(i)), is_by_default=True),
    case(SPREAD_OUT, LABELLED, "any pods with default constraints while a node gets other labels",
        A, node("n1", labels={"zone": "a", "color": "red"}), served(""), lambda i: served(str(i)), is_by_default=True,
        asked=0),
    case(POD_AFFINITY, POD_CAME, "pods with affinity to other pods",
        None, on_n1(labels=web("w")), {"affinity": near("w")}, lambda i: {"affinity": near(f"w{i}")}),
    case(POD_AFFINITY, POD_LABELLED, "pods with affinity to other pods",
        on_n1(), on_n1(labels=web("w")), {"affinity": near("w")}, lambda i: {"affinity": near(f"w{i}")}),
    case(POD_AFFINITY, POD_GONE, "pods with anti-affinity to other pods",
        on_n1(labels=web("w")), None, {"affinity": apart("w")}, lambda i: {"affinity": apart(f"w{i}")}),
    case(POD_AFFINITY, POD_GONE, "pods that the anti-affinity of other pods selects",
        on_n1(affinity=apart("w")), None, {"labels": web("w")}, served),
    case(POD_AFFINITY, CAME, "pods with other keys",
        None, A, {"affinity": near("w")}, lambda i: {"affinity": near("w", f"key{i}")}),
    case(POD_AFFINITY, LABELLED, "pods with other keys",
        B, A, {"affinity": near("w")}, lambda i: {"affinity": near("w", f"key{i}")}),
    case(POD_AFFINITY, NAMESPACE_CAME, "pods that select other namespaces",
        None, namespace("new", team="t"), {"affinity": near("w", **team("t"))},
        lambda i: {"affinity": near("w", **team(f"t{i}"))}),
    case(POD_AFFINITY, NAMESPACE_LABELLED, "pods that select other namespaces",
        namespace("new", team="t", color="red"), namespace("new", color="blue"), {"affinity": apart("w", **team("t"))},
        lambda i: {"affinity": apart("w", **team(f"t{i}"))}),
    *(in_columns(row) for row in COUNTS),
]  # fmt: skip


def questions(case: Case, others: int) -> tuple[int, int]:
    """Return the number of calls of hints and of woken pods."""
    sched = harness_of(BY_DEFAULT if case.is_by_default else DEFAULT)
    if case.is_by_default:  # there are default constraints for pods that something selects
        for i in ("", *range(others)):
            selecting = service(f"s{i}", app=f"w{i}")
            sched.cluster.workloads.set_service(selecting.key, selecting)
    for i in ("", *range(others)):
        for thing in stored(*case.given(i)):
            thing(sched)
    hints = sched.parts.profiles["kubestow"].hints
    world = QueueHarness(hints)
    world.rejected(info("concerned", **case.concerned), case.plugin)
    for i in range(others):
        world.rejected(info(f"p{i}", **case.others(i)), case.plugin)
    world.metrics.hints.clear()

    world.queue.move_all(
        case.event, *(side.typed() if isinstance(side, Builder) else side for side in (case.old, case.new))
    )

    return len(world.metrics.hints), world.queue.counts()["backoff"]


@pytest.mark.parametrize("case", CASES)
def test_pods_that_an_event_cannot_concern_cost_nothing(case: Case) -> None:
    few, many = questions(case, FEW), questions(case, MANY)

    assert few[0] == many[0] == case.asked
    if case.asked and few[0]:
        assert few[1] >= 1


# -- one call for all waiting pods ---------------------------------------------------------------------------

ONE_QUESTION: Final = [
    pytest.param("NodeUnschedulable", CAME, None, node(cordoned=True), id="NodeUnschedulable, NodeAdd"),
    pytest.param("NodeUnschedulable", TAINTED, node(cordoned=True), node(cordoned=True, taints=("x=:NoSchedule",)),
        id="NodeUnschedulable, NodeUpdateNodeTaint"),
    pytest.param("NodeDeclaredFeatures", CAME, A, A, id="NodeDeclaredFeatures, NodeAdd"),
    pytest.param("NodeDeclaredFeatures", FEATURED, A, A, id="NodeDeclaredFeatures, NodeUpdateNodeDeclaredFeature"),
]  # fmt: skip


@pytest.mark.parametrize(("plugin", "event", "old", "new"), ONE_QUESTION)
@pytest.mark.parametrize("waiting", [FEW, MANY])
def test_one_call_for_all_pods(plugin: str, event: ClusterEvent, old: Any, new: Any, waiting: int) -> None:
    world = QueueHarness(harness_of(DEFAULT).parts.profiles["kubestow"].hints)
    for i in range(waiting):
        world.rejected(info(f"p{i}", cpu=f"{i + 1}m", labels=web(f"w{i}")), plugin)
    world.metrics.hints.clear()

    world.queue.move_all(event, old, new)

    assert [(plugin, event.label, "QueueSkip")] == world.metrics.hints


@pytest.mark.parametrize("step", [1, 7], ids=["requests from 1m to 2 CPUs", "requests from 1m to 14 CPUs"])
def test_thousands_of_different_requests_are_some_hundred_questions(step: int) -> None:
    """Requests are rounded, and no pod is left out that fits the node of a pod that ends."""
    sched = harness_of(DEFAULT)
    for thing in stored(a_node("n1").cpu("4")):
        thing(sched)
    world = QueueHarness(sched.parts.profiles["kubestow"].hints)
    for i in range(2000):
        world.rejected(info(f"p{i}", cpu=f"{step * i + 1}m"), "NodeResourcesFit")
    world.metrics.hints.clear()

    world.queue.move_all(POD_GONE, on_n1(cpu="1"), None)
    while world.queue.move_woken():
        pass

    fitting = sum(step * i < 4000 for i in range(2000))
    assert 50 < len(world.metrics.hints) <= 160
    assert fitting <= world.queue.counts()["backoff"] < fitting * 17 / 16


def test_an_update_of_a_waiting_pod_calls_hints_for_that_pod_only() -> None:
    hints = harness_of(DEFAULT).parts.profiles["kubestow"].hints
    world = QueueHarness(hints)
    plugins = [plugin for plugin, registrations in hints.items() if any(map(wants_own, registrations))]
    for i in range(100):
        world.rejected(info(f"p{i}", labels=web(f"w{i}"), uid=f"p{i}"), *plugins)
    world.metrics.hints.clear()
    world.update(info("p7", labels=web("x"), uid="p7"))

    assert {"TargetPodUpdatePodLabel"} == {label for _, label, _ in world.metrics.hints}
    assert len(world.metrics.hints) <= len(plugins)
    assert len(plugins) >= 3


def wants_own(registered: EventHint) -> bool:
    return registered.event.wants(OWN_LABEL)


@pytest.mark.parametrize(
    ("gate", "event", "old", "new"),
    [
        pytest.param("SchedulingGates", CAME, None, A, id="scheduling gates, a node"),
        pytest.param("SchedulingGates", POD_GONE, on_n1(), None, id="scheduling gates, a pod"),
        pytest.param("DefaultPreemption", CAME, None, A, id="preemption, a node"),
        pytest.param("DefaultPreemption", POD_GONE, on_n1(), None, id="preemption, a pod"),
        pytest.param("DynamicResources", CAME, None, A, id="claims that are not there, a node"),
    ],
)
def test_an_event_calls_no_hint_for_gated_pods(gate: str, event: ClusterEvent, old: Any, new: Any) -> None:
    """The plugin that refused the pods before the gate does not matter."""
    world = QueueHarness(harness_of(DEFAULT).parts.profiles["kubestow"].hints, gates=(held := Gate(gate),))
    for i in range(100):
        world.rejected(info(f"p{i}", cpu=f"{i + 1}m", **uses(f"c{i}")), "NodeResourcesFit")
    held.held.update(f"p{i}" for i in range(100))
    world.queue.activate(list(world.store.values()))
    assert world.queue.counts()["gated"] == 100
    world.metrics.hints.clear()
    held.calls = 0

    world.queue.move_all(event, old, new)

    assert [] == world.metrics.hints
    assert held.calls == 0


def test_a_node_is_read_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that comes is compared with a thousand requests, and its amounts are read once."""
    reads: list[object] = []

    def counted(resources: ResourceMap) -> Requests:
        reads.append(resources)
        return allocatable(resources)

    monkeypatch.setattr("scheduler.plugins.noderesourcesfit.hints.allocatable", counted)
    world = QueueHarness(harness_of(DEFAULT).parts.profiles["kubestow"].hints)
    for i in range(90):
        world.rejected(info(f"p{i}", cpu=f"{4001 + i}m"), "NodeResourcesFit")
    world.metrics.hints.clear()
    old, new = node(cpu="1"), node(cpu="4")
    for was in (None, old):
        world.queue.move_all(CAME if was is None else RESIZED_NODE, was, new)

    assert [new.status.allocatable, old.status.allocatable] == reads
    assert len(world.metrics.hints) == 180


# -- nothing is left out -----------------------------------------------------------------------------------------------


def indexed(one: Any) -> Iterator[tuple[str, EventHint]]:
    for plugin, registrations in harness_of(one).parts.profiles["kubestow"].hints.items():
        for registered in registrations:
            if registered.topics is not None:
                yield plugin, registered


@pytest.mark.parametrize("one", [DEFAULT, BY_DEFAULT], ids=["default", "hard default constraints"])
def test_every_registration_with_topics_is_counted(one: Any) -> None:
    """Each other registration has one call for all pods, or is about the pod itself."""
    cases = [param.values[0] for param in CASES]
    uncounted = [
        (plugin, registered.event.label)
        for plugin, registered in indexed(one)
        if plugin != "DefaultPreemption"  # a gate: see above
        and not any(case.plugin == plugin and registered.event.wants(case.event) for case in cases)
    ]
    alone = [
        (plugin, registered.event.label)
        for plugin, registrations in harness_of(one).parts.profiles["kubestow"].hints.items()
        for registered in registrations
        if registered.hint is not None
        and registered.shape is None
        and registered.event.resource is not Resource.TARGET_POD
    ]

    assert uncounted == []
    assert alone == []
