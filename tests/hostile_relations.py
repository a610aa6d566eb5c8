"""Groups of objects that a tenant may have written: each grows on one side of a relation, such as a pod and its claims.

`hostile` attacks one object at a time in an empty cluster. Here the objects that another one names do exist, in numbers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import NAMESPACE_OID, uuid5

import msgspec

from scheduler.explain.what_if import decoded
from scheduler.kube.resources import KINDS
from scheduler.kube.store import Store
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node
from tests.unit.harness import SchedulerHarness, StepClock

Json: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[tuple[str, Json]]
"""Kind and manifest. The kind `WhatIf` is a question, which is answered and not stored."""

HOSTNAME: Final = "kubernetes.io/hostname"
DRIVER: Final = "csi.example.com"
CLASS: Final = "fast"
OTHER: Final = "other"
"""The pod of another tenant."""
CHANGED: Final = 1_000_000
"""The resource version of the first change."""
_CREATED: Final = "2026-11-29T00:00:00Z"
_POD_DEFAULTS: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "securityContext": {},
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for state in ("not-ready", "unreachable")
    ],
}
_FEW: Final = 20
_MANY: Final = 100
_NODES: Final = 4


@dataclass(frozen=True, slots=True)
class Relation:
    """`there` are the objects before the measured change, `change` those of the change; both for a size."""

    name: str
    there: Callable[[int], Objects]
    change: Callable[[int], Objects]
    size: int = 50
    """A size at which the growing side outweighs the rest, or a limit applies."""
    twice: float = 2.5
    """At most this many times the work for twice the size; little more than 1 above a limit."""


class RelatedObjects:
    """A scheduler that sees the objects of a relation."""

    def __init__(self, clock: StepClock | None = None, steps: int = 200) -> None:
        """`steps` is the number after which `settle` fails; attempts that yield by processor time need more."""
        self.sched = SchedulerHarness(clock=clock)
        self._steps = steps
        self._answers: list[asyncio.Task[Any]] = []
        self.bytes = 0
        """Stored bytes of all objects."""
        self._stores: dict[str, Store[Any]] = defaultdict(Store)
        self._decoders = {kind: spec.decoder() for kind, spec in KINDS.items() if spec.typ is not None}

    def show(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Let the scheduler see `stored` objects, new ones or changed ones."""
        for kind, raw in objects:
            self.bytes += len(raw)
            if kind == "WhatIf":
                begin = partial(self.sched.parts.what_if.answer, decoded(raw))
                self._answers.append(asyncio.create_task(self.sched.parts.questions.answer_to(begin)))
                continue
            deltas: list[Any] = []
            self._stores[kind].set(self._decoders[kind].decode(raw), deltas)
            self.sched.parts.event_handlers.apply(kind, deltas)

    async def settle(self) -> None:
        """Let the scheduler do what there is to do, and answer all questions."""
        await self.sched.settle(self._steps)
        while not all(answer.done() for answer in self._answers):
            await asyncio.sleep(0)
            if len(self.sched.parts.questions):
                await self.sched.parts.questions.turn()
        for answer in self._answers:
            answer.result()
        self._answers.clear()

    def is_bound(self, name: str) -> bool:
        """Return whether the scheduler has bound the pod."""
        return f"default/{name}" in dict(self.sched.writer.binds)


def stored(objects: Iterable[tuple[str, Json]], *, version: int = 1) -> list[tuple[str, bytes]]:
    """Return kind and JSON of each object, as an API server stores it from this resource version on."""
    return [
        (kind, msgspec.json.encode(obj if kind == "WhatIf" else _stored(kind, obj, version + at)))
        for at, (kind, obj) in enumerate(objects)
    ]


def _stored(kind: str, obj: Json, version: int) -> Json:
    """Return the object with what an API server adds to each one when it stores it."""
    namespace = {"namespace": "default"} if KINDS[kind].namespaced else {}
    identity = {"uid": f"{uuid5(NAMESPACE_OID, kind + obj['metadata']['name'])}", "resourceVersion": f"{version}"}
    entry = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "time": _CREATED}
    entries = [{**entry, "fieldsType": "FieldsV1", "fieldsV1": _fields(obj)}]
    times = {"creationTimestamp": _CREATED, "generation": 1, "managedFields": entries}
    more = {"spec": {**_POD_DEFAULTS, **obj["spec"]}} if kind == "Pod" else {}
    return {**obj, **more, "metadata": {**namespace, **obj["metadata"], **identity, **times}}


def _fields(value: Any) -> Json:
    """Return the field paths of a value as `managedFields` writes them."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields(each) for name, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value):
        return {f'k:{{"name":"{each["name"]}"}}': {".": {}, **_fields(each)} for each in value}
    return {}


def pod(name: str, *, on: str = "", cpu: str = "0", labels: Json | None = None, **spec: Any) -> tuple[str, Json]:
    """A pod of this scheduler."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    named = {"schedulerName": "kubestow"} | ({"nodeName": on} if on else {})
    return "Pod", {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], **named, **spec},
    }


def nodes(*, cpu: str = "100") -> Objects:
    """Nodes that differ in their names."""
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "1000"}}
    return [
        ("Node", {"metadata": {"name": f"n{at}", "labels": {HOSTNAME: f"n{at}"}}, "status": status})
        for at in range(_NODES)
    ]


def _storage(capacities: int = _NODES) -> Objects:
    """A class of a driver that publishes capacity for each node."""
    drivers = [a_csi_node(f"n{at}").driver(DRIVER, topology_keys=(HOSTNAME,)).obj() for at in range(_NODES)]
    published = [a_capacity(f"cap{at}", CLASS, "100Ti").where(HOSTNAME, f"n{at}").obj() for at in range(capacities)]
    return [
        *nodes(),
        ("CSIDriver", a_csi_driver(DRIVER).tracks_capacity().obj()),
        ("StorageClass", a_class(CLASS, DRIVER).obj()),
        *(("CSINode", each) for each in drivers),
        *(("CSIStorageCapacity", each) for each in published),
    ]


def _claims(count: int, *, annotated: bool = False, request: str = "1Gi") -> Objects:
    objects: Objects = [("PersistentVolumeClaim", a_claim(f"c{at}", request, CLASS).obj()) for at in range(count)]
    for _, claim in objects if annotated else ():
        claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": DRIVER}
    return objects


def _using(claims: Iterable[int]) -> list[Json]:
    return [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in claims]


def _waiting_on_claims(count: int, claims: Callable[[int], Iterable[int]], *, annotated: bool = False) -> Objects:
    """Pods that wait, each with some of the same claims."""
    here = [*_storage(), *_claims(max(count, _FEW), annotated=annotated)]
    return here + [pod(f"p{at}", nodeSelector={"no": "node"}, volumes=_using(claims(at))) for at in range(count)]


def _budgets(count: int, selector: Callable[[int], Json]) -> Objects:
    status = {"disruptionsAllowed": 1}
    return [
        ("PodDisruptionBudget", {"metadata": {"name": f"b{at}"}, "spec": {"selector": selector(at)}, "status": status})
        for at in range(count)
    ]


def _victims() -> Objects:
    names = [f"n{at}" for at in range(_NODES)]
    return nodes(cpu="10") + [
        pod(f"{name}-{at}", on=name, cpu="1", labels={"app": "x", "at": f"{at}"}) for name in names for at in range(10)
    ]


def _preemptor(_: int) -> Objects:
    return [pod("preemptor", cpu="10", priority=1000)]


def _slices(count: int) -> Objects:
    gpu = {"spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    return [
        *nodes(),
        ("DeviceClass", {"metadata": {"name": "gpu"}, **gpu}),
        ("ResourceClaim", {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}),
        *(
            (
                "ResourceSlice",
                {
                    "metadata": {"name": f"s{at}"},
                    "spec": {
                        "driver": DRIVER,
                        "nodeName": "n0",
                        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": count},
                        "devices": [{"name": f"d{at}"}],
                    },
                },
            )
            for at in range(count)
        ),
    ]


def _features(count: int, value: str) -> Json:
    """Return labels as node feature discovery and drivers write them. A tenant writes no label of a node."""
    return {f"example.com/feature-{at}": value for at in range(count)}


def _question(replicas: int, volumes: int) -> Objects:
    spec = {
        "schedulerName": "kubestow",
        "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": f"v{at}", "emptyDir": {}} for at in range(volumes)],
    }
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w", "namespace": "default"}, "spec": spec}
    return [("WhatIf", {"manifests": [manifest], "replicas": replicas})]


def _changed_claim(_: int) -> Objects:
    return _claims(1, request="2Gi")


def _selected_claim(_: int) -> Objects:
    objects = _claims(1, annotated=True)
    objects[0][1]["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "n0"
    return objects


RELATIONS: Final = (
    Relation(
        "a pod × its claims",
        lambda n: [*_storage(), *_claims(n)],
        lambda n: [pod("p", volumes=_using(range(n)))],
    ),
    Relation(
        "a pod × its annotated claims",
        lambda n: [*_storage(), *_claims(n, annotated=True)],
        lambda n: [pod("p", volumes=_using(range(n)))],
    ),
    Relation(
        "a claim × pods that share all claims",
        lambda n: _waiting_on_claims(n, lambda _: range(_FEW)),
        _changed_claim,
    ),
    Relation(
        "a claim × pods with different sets of claims",
        lambda n: _waiting_on_claims(n, lambda at: [(at + 7 * step) % n for step in range(_FEW)], annotated=True),
        _changed_claim,
    ),
    Relation(
        "a selection of a claim × pods that share many claims",
        lambda n: [*_claims(_MANY), *_waiting_on_claims(n, lambda _: range(_MANY))],
        _selected_claim,
    ),
    Relation(
        "a pod × capacity objects", lambda n: [*_storage(n), *_claims(1)], lambda _: [pod("p", volumes=_using([0]))]
    ),
    Relation(
        "pods × budgets with one selector",
        lambda n: [*_victims(), *_budgets(n, lambda _: {"matchLabels": {"app": "x"}})],
        _preemptor,
        size=200,
        twice=1.1,
    ),
    Relation(
        "pods × budgets with different labels",
        lambda n: [*_victims(), *_budgets(n, lambda at: {"matchLabels": {"app": "x", "at": f"{at}"}})],
        _preemptor,
        size=200,
        twice=1.1,
    ),
    Relation(
        "pods × budgets with expressions",
        lambda n: [
            *_victims(),
            *_budgets(n, lambda at: {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"{at}"]}]}),
        ],
        _preemptor,
        size=200,
        twice=1.1,
    ),
    Relation(
        "nodeSelector × topics",
        lambda _: nodes(),
        lambda n: [pod("p", nodeSelector={f"k{at}": "v" for at in range(n)})],
        size=500,
    ),
    Relation(
        "a node × topics of a waiting pod",
        lambda n: [*nodes(), pod("p", nodeSelector=_features(n, "v"))],
        lambda n: [("Node", {"metadata": {"name": "new", "labels": _features(n, "w")}})],
        size=500,
    ),
    Relation(
        "a claim × slices with a device",
        _slices,
        lambda _: [pod("p", resourceClaims=[{"name": "r", "resourceClaimName": "c"}])],
    ),
    Relation("replicas of a manifest", lambda _: nodes(), lambda n: _question(n, _FEW)),
    Relation("size of a manifest with replicas", lambda _: nodes(), lambda n: _question(_FEW, n), size=200),
)
