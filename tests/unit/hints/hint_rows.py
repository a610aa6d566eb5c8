"""What the tables of queueing hints are made of: a pod that one plugin refused, and what happens then.

Everything is real but the API server: the pod `p` is tried, refused and parked, and the news come as the watch shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.config.args import NodeAffinityArgs, NodeResourcesFitArgs, PodTopologySpreadArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, Action, ClusterEvent, Resource
from scheduler.kube.resources import KINDS
from tests.unit import objects
from tests.unit.harness import SchedulerHarness, manifest, read_pod

Thing: TypeAlias = Callable[[SchedulerHarness], None]
"""Something that the watch shows."""

LABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
TAINTED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
RESIZED_NODE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
FEATURED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE)
POD_CAME = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
POD_LABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
POD_SHRANK = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
POD_OTHERWISE = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)
OWN_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
OWN_SHRANK = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)
OWN_TOLERATION = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
OWN_GATES = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
OWN_OTHER = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER)
NAMESPACE_CAME = ClusterEvent(Resource.NAMESPACE, Action.ADD)
NAMESPACE_LABELLED = ClusterEvent(Resource.NAMESPACE, Action.UPDATE_OTHER)


def news(of: Resource) -> tuple[ClusterEvent, ClusterEvent, ClusterEvent]:
    """Return the events that an object of this kind comes, changes and is deleted."""
    return ClusterEvent(of, Action.ADD), ClusterEvent(of, Action.UPDATE_OTHER), ClusterEvent(of, Action.DELETE)


POD_GONE = ASSIGNED_POD_DELETE
CAME, GONE = NODE_ADD, NODE_DELETE

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
WAITS = "p"
"""The name of the pod that waits."""


@dataclass(frozen=True)
class HintRow:
    """One thing that happens to one waiting pod."""

    plugin: str
    event: ClusterEvent
    given: tuple[Thing, ...]
    waits: dict[str, Any]
    then: tuple[Thing, ...]
    woken: bool
    profile: KubeSchedulerProfile
    also_refused_by: frozenset[str] = frozenset()
    """Other plugins that refused the pod."""
    while_waiting: tuple[Thing, ...] = ()
    """What happens first, while it waits already."""
    by_hand: bool = False
    """No pod in the queue is ever refused by this plugin: it is parked as if it had been."""


COLUMNS: Final = ("plugin", "event", "text", "given", "waits", "then")
"""The columns of a row. `given` and `then` are one Thing or a tuple of Things; `waits` is the spec of the pod."""
ANY: Final[dict[str, Any]] = {}
"""The spec of a pod that requests nothing."""


def wakes(*columns: Any, **more: Any) -> Any:
    """Return a row in which the event moves the pod out of the unschedulable pool."""
    return _row(True, {**dict(zip(COLUMNS, columns)), **more})


def leaves(*columns: Any, **more: Any) -> Any:
    """Return a row in which the pod stays where it waits."""
    return _row(False, {**dict(zip(COLUMNS, columns)), **more})


def _row(woken: bool, row: dict[str, Any]) -> Any:
    row = {"given": (), "waits": ANY, "then": (), "profile": DEFAULT, **row}
    for name in ("given", "then"):
        row[name] = row[name] if isinstance(row[name], tuple) else (row[name],)
    text, sense, event = row.pop("text"), "wakes" if woken else "leaves", row["event"]
    return pytest.param(HintRow(woken=woken, **row), id=f"{row['plugin']} {sense} its pod when {text} ({event.label})")


# -- profiles ----------------------------------------------------------------------------------------------------------


def profile(**args: Any) -> KubeSchedulerProfile:
    """One with these arguments: plugin name → arguments."""
    plain = KubeSchedulerProfile(OUR_NAME)
    return KubeSchedulerProfile(OUR_NAME, args={**plain.args, **args})


DEFAULT = KubeSchedulerProfile(OUR_NAME)
ONLY_IN_CELLAR = profile(
    NodeAffinity=NodeAffinityArgs(
        {HARD: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "cellar", "operator": "Exists"}]}]}}
    )
)
IGNORES_GPUS = profile(NodeResourcesFit=NodeResourcesFitArgs(ignored_resources=("example.com/gpu",)))


def spreads_by_default(*constraints: Any) -> KubeSchedulerProfile:
    return profile(PodTopologySpread=PodTopologySpreadArgs(constraints, "List"))


def harness_of(one: KubeSchedulerProfile) -> SchedulerHarness:
    """Everything that decides, with this profile only."""
    return SchedulerHarness(Configuration(profiles=(one,)))


# -- what the watch shows ----------------------------------------------------------------------------------------------


def node(name: str, *, zone: str = "", labels: Any = None, features: Any = (), **more: Any) -> Thing:
    """It comes or changes; `more` as `objects.node`."""
    made = objects.node(name, labels={**({"zone": zone} if zone else {}), **(labels or {})}, **more)
    new = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, declared_features=features))

    def shown(sched: SchedulerHarness) -> None:
        sched.parts.event_handlers.apply("Node", [Delta(sched.nodes.get(name), new)])
        sched.nodes[name] = new

    return shown


def node_gone(name: str) -> Thing:
    return lambda sched: sched.node_gone(name)


def pod(name: str, *, namespace: str = "default", status: dict[str, Any] | None = None, **spec: Any) -> Thing:
    """It comes or changes; `spec` is that of `sched.manifest`, and `owners`."""
    owners = spec.pop("owners", [])

    def shown(sched: SchedulerHarness) -> None:
        raw = manifest(name, **spec)
        raw["metadata"].update(namespace=namespace, ownerReferences=owners)
        raw["status"].update(status or {})
        new = read_pod(raw)
        sched.parts.event_handlers.apply("Pod", [Delta(sched.seen.get(name), new)])
        sched.seen[name] = new

    return shown


def gone(name: str) -> Thing:
    """The pod is deleted."""
    return lambda sched: sched.gone(name)


def shown(
    kind: str, name: str, *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
) -> Thing:
    """An object of another kind comes or changes."""
    metadata = {"name": name, "uid": name, "labels": labels or {}}
    if kind != "Namespace":
        metadata["namespace"] = namespace
    return shown_as(kind, name, {"metadata": metadata, "spec": spec})


def withdrawn(kind: str, name: str) -> Thing:
    """An object of another kind is deleted."""
    return shown_as(kind, name, None)


def shown_as(kind: str, name: str, raw: dict[str, Any] | None) -> Thing:
    """An object of another kind is like this now; None: it is deleted."""
    typ = KINDS[kind].typ
    assert typ is not None

    def happens(sched: SchedulerHarness) -> None:
        known: dict[tuple[str, str], Any] = sched.__dict__.setdefault("stored", {})
        new = None if raw is None else ObjectDecoder(kind, typ).decode(msgspec.json.encode(raw))
        sched.parts.event_handlers.apply(kind, [Delta(known.pop((kind, name), None), new)])
        if new is not None:
            known[kind, name] = new

    return happens


# -- parts of pods -----------------------------------------------------------------------------------------------------


def requesting(_name: str = "c", **requests: str) -> list[dict[str, Any]]:
    return [{"name": _name, "resources": {"requests": requests}}]


def listens(port: int) -> list[dict[str, Any]]:
    """`containers` of one with this host port."""
    return [{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}]


def tolerates(*keys: str) -> list[dict[str, Any]]:
    """`tolerations` of taints with these keys."""
    return [{"key": key, "operator": "Exists"} for key in keys]


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    """`affinity` that a node must satisfy."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {HARD: {"nodeSelectorTerms": [term]}}}


def pinned(name: str) -> dict[str, Any]:
    """`affinity` as that of a DaemonSet's pod."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {HARD: {"nodeSelectorTerms": [term]}}}


def near(app: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    """`affinity` to pods of an app."""
    return {"podAffinity": {HARD: [_term(app, key, more)]}}


def apart(*apps: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    """`affinity` away from pods of these apps, a term each."""
    return {"podAntiAffinity": {HARD: [_term(app, key, more) for app in apps]}}


def _term(app: str, key: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def spread(app: str = "web", key: str = "zone", **more: Any) -> list[dict[str, Any]]:
    """`topologySpreadConstraints` of a hard one over the pods of an app."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
            **more,
        }
    ]
