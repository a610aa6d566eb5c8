"""A scenario: a cluster written in short, and pods that are tried on it, each alone.

The short form, as the files in `scenarios/` and the generator write it (everything but names is optional):

```
    id: a sentence                   profile: a name in profiles.yaml
    nodes:     name: {labels, taints: ["key=value:Effect"], cordoned, room: {cpu: "8"}, images: {name: bytes}, features}
    pods:      name: {at: node, leaving, and what a tried pod may have}      # bound pods; `leaving` is being deleted
    waiting:   name: {nominated: node, and what a tried pod may have}        # gated pods of the scheduler
    budgets:   name: {allowed, disrupted: [pod], match or selector, namespace}  # PodDisruptionBudgets
    workloads: name: {kind: Service, selector, namespace}                    # or one of the three controllers
    asked:     name: {namespace, claims, volumes, labels, requests, image, owner: Kind/name, gates, ports: ["TCP/80/127.0.0.1"],
                      priority, never_preempts, started, disrupted, nominated, ways,
                      needs_nodes, likes_nodes, needs_near, likes_near, needs_apart, likes_apart, spread,
                      status: what a kubelet said, held: no condition ever tells of it, and some fields of a pod's spec as they are}
    classes, pvs, claims, csi_nodes, csi_drivers, capacities, attachments, and what pods have of volumes: see eventhandlers/storage.py
    devices, and a pod's devices: see eventhandlers/devices.py     feature_gates: those that are on, besides the ones that always are
```

The name of a pod may be a sentence. `priority` is a number of `PRIORITIES` or the name of a class that every cluster has.
`started` is the second of a day, `disrupted` the reason of a DisruptionTarget condition, `nominated` the status' word.
`ways` is the number of possible outcomes of a preemption, by default 1. `needs_*` and `likes_*` are required and preferred affinity to nodes and pods, `*_apart` is anti-affinity; the weight of
what is liked stands in the term itself, and `match: {a: b}` is a labelSelector. `host`, `zone` and `region` are short
for the well-known topology keys, in labels and in terms. A label or a resource that is null is not there; `host` is there by default.
An image's names are separated by spaces.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.parity.admission import class_name
from tests.parity.devices import Devices, devices, pod_devices
from tests.parity.storage import Storage, pod_volumes, storage
from tests.parity.words import Json, labels as long_labels, long_key, nothing_left, slug

ROOM: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"}
DEFAULT_PROFILE: Final = "default"
WAITS: Final = "parity.test/waits"
"""The gate of what is not to be tried."""
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_SPEC: Final = frozenset(
    {
        *("tolerations", "nodeSelector", "containers", "initContainers"),
        *("resources", "overhead", "hostNetwork", "restartPolicy"),
    }
)
_IMAGE: Final = "registry.k8s.io/pause:3.10"
_API_VERSIONS: Final = {
    "Service": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
_STARTED: Final = "2026-01-01T{:02}:{:02}:{:02}Z"


@dataclass(frozen=True)
class Scenario:
    """Manifests, with what is to be written to their status. Tried and waiting pods get their schedulerName from each side."""

    group: str
    id: str
    profile: str
    nodes: tuple[Json, ...]
    pods: tuple[Json, ...]
    leaving: frozenset[str]
    """Names of bound pods that are being deleted."""
    waiting: tuple[Json, ...]
    budgets: tuple[Json, ...]
    workloads: tuple[Json, ...]
    asked: Mapping[str, Json]
    ways: Mapping[str, int]
    """Of the tried pods for which several outcomes are possible: how many."""
    storage: Storage
    devices: Devices
    feature_gates: tuple[str, ...]
    held: frozenset[str]
    """Names of tried pods that stay outside of the queue."""

    @property
    def uses_volumes(self) -> bool:
        """Whether there is any storage, or any request for it."""
        return bool(self.storage) or any("volumes" in one["spec"] for one in (*self.pods, *self.asked.values()))

    @property
    def key(self) -> str:
        """Unique in the suite."""
        return f"{self.group}/{self.id}"

    def digest(self) -> str:
        """Changes with anything that could change an outcome."""
        parts: tuple[object, ...] = (
            *(self.profile, self.nodes, self.pods, sorted(self.leaving), self.waiting, self.budgets, self.workloads),
            *(self.asked, self.ways),
        )
        if self.storage:
            kept = self.storage
            parts = (*parts, kept.settings, kept.claims, kept.volumes, sorted(kept.leaving))
        if self.devices:
            mine = self.devices
            parts = (*parts, mine.settings, mine.claims, sorted(mine.leaving), mine.drivers)
        if self.feature_gates or self.held:
            parts = (*parts, self.feature_gates, sorted(self.held))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def scenario(group: str, short: Json) -> Scenario:
    """Raises ValueError for a word that the short form does not have."""
    short = dict(short)
    pods, asked = short.pop("pods", None) or {}, short.pop("asked")
    read = Scenario(
        group=group,
        id=str(short.pop("id")),
        profile=short.pop("profile", DEFAULT_PROFILE),
        nodes=tuple(node(name, given or {}) for name, given in (short.pop("nodes", None) or {}).items()),
        pods=tuple(pod(name, given) for name, given in pods.items()),
        leaving=frozenset(slug(name) for name, given in pods.items() if given.get("leaving")),
        waiting=tuple(
            pod(name, {"gates": [WAITS]} | given) for name, given in (short.pop("waiting", None) or {}).items()
        ),
        budgets=tuple(budget(name, given or {}) for name, given in (short.pop("budgets", None) or {}).items()),
        workloads=tuple(workload(name, given) for name, given in (short.pop("workloads", None) or {}).items()),
        asked={name: pod(name, given or {}) for name, given in asked.items()},
        ways={name: given["ways"] for name, given in asked.items() if "ways" in (given or {})},
        storage=storage(short),
        devices=devices(short),
        feature_gates=tuple(short.pop("feature_gates", ())),
        held=frozenset(slug(name) for name, given in asked.items() if (given or {}).get("held")),
    )
    nothing_left(read.key, short)
    return read


# -- nodes -------------------------------------------------------------------------------------------------------------


def node(name: str, short: Json) -> Json:
    """A ready node of 4 CPU, 8 GiB and 110 pods unless `room` says otherwise."""
    short = dict(short)
    labels = {"host": name} | (short.pop("labels", None) or {})
    room = {name: amount for name, amount in (ROOM | short.pop("room", {})).items() if amount is not None}
    status: Json = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
    if images := short.pop("images", None):
        status["images"] = [{"names": names.split(), "sizeBytes": size} for names, size in images.items()]
    if features := short.pop("features", None):
        status["declaredFeatures"] = features
    spec: Json = {}
    if taints := short.pop("taints", None):
        spec["taints"] = [_taint(text) for text in taints]
    if short.pop("cordoned", False):
        spec["unschedulable"] = True
    nothing_left(f"node {name}", short)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": long_labels(labels)},
        "spec": spec,
        "status": {key: status[key] for key in sorted(status)},
    }


def _taint(text: str) -> Json:
    pair, effect = text.rsplit(":", 1)
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


# -- pods --------------------------------------------------------------------------------------------------------------


def pod(name: str, short: Json) -> Json:
    """A pod of one container, or of the containers that are given."""
    short = dict(short)
    for word in ("leaving", "ways", "held"):
        short.pop(word, None)
    metadata: Json = {"name": slug(name), "namespace": short.pop("namespace", "default")}
    if labels := short.pop("labels", None):
        metadata["labels"] = labels
    if owner := short.pop("owner", None):
        metadata["ownerReferences"] = [_owner(owner)]
    spec: Json = {"containers": [_container(short)], **_affinity(short), **_priority(short)}
    if spread := short.pop("spread", None):
        spec["topologySpreadConstraints"] = [_term(constraint) for constraint in spread]
    if gates := short.pop("gates", None):
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if place := short.pop("at", None):
        spec["nodeName"] = place
    if volumes := pod_volumes(short.pop("claims", ()), short.pop("volumes", ())):
        spec["volumes"] = volumes
    spec |= {key: short.pop(key) for key in sorted(_SPEC & short.keys())}
    status = _status(short)
    if (wanted := short.pop("devices", None)) is not None:
        spec["resourceClaims"], statuses = pod_devices(wanted)
        status |= {"resourceClaimStatuses": statuses} if statuses else {}
    nothing_left(f"pod {name}", short)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec} | (
        {"status": status} if status else {}
    )


def _priority(short: Json) -> Json:
    priority, never = short.pop("priority", 0), short.pop("never_preempts", False)
    if isinstance(priority, int):
        priority = class_name(priority, never=never) if priority or never else ""
    return {"priorityClassName": priority} if priority else {}


def _status(short: Json) -> Json:
    status: Json = dict(short.pop("status", {}))
    if (second := short.pop("started", None)) is not None:
        status["startTime"] = _STARTED.format(second // 3600, second // 60 % 60, second % 60)
    if reason := short.pop("disrupted", None):
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    if node_name := short.pop("nominated", None):
        status["nominatedNodeName"] = node_name
    return status


def named(pod: Json, scheduler_name: str) -> Json:
    """The pod, for this scheduler."""
    return pod | {"spec": pod["spec"] | {"schedulerName": scheduler_name}}


def _container(short: Json) -> Json:
    requests = short.pop("requests", {})
    container: Json = {"name": "main", "image": short.pop("image", _IMAGE)}
    if requests:
        container["resources"] = {"requests": requests}
    if extended := {name: amount for name, amount in requests.items() if name not in _NATIVE}:
        container["resources"]["limits"] = extended  # the API wants them, and equal
    if ports := short.pop("ports", None):
        container["ports"] = [host_port(text) for text in ports]
    return container


def host_port(text: str) -> Json:
    """The long form of `TCP/80` or `TCP/80/127.0.0.1`."""
    protocol, number, *address = text.split("/")
    port: Json = {"containerPort": int(number), "hostPort": int(number), "protocol": protocol}
    return port | ({"hostIP": address[0]} if address else {})


def _owner(text: str) -> Json:
    kind, name = text.split("/")
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}


def _affinity(short: Json) -> Json:
    affinity: Json = {}
    to_nodes: Json = {}
    if terms := short.pop("needs_nodes", None):
        to_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if liked := short.pop("likes_nodes", None):
        to_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": given["weight"], "preference": {k: v for k, v in given.items() if k != "weight"}}
            for given in liked
        ]
    if to_nodes:
        affinity["nodeAffinity"] = to_nodes
    for field, side in (("podAffinity", "near"), ("podAntiAffinity", "apart")):
        rules = _rules(short.pop(f"needs_{side}", ()), short.pop(f"likes_{side}", ()))
        if rules:
            affinity[field] = rules
    return {"affinity": affinity} if affinity else {}


def _rules(needs: Sequence[Json], likes: Sequence[Json]) -> Json:
    rules: Json = {}
    if needs:
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = [_term(term) for term in needs]
    if likes:
        rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": term["weight"], "podAffinityTerm": _term({k: v for k, v in term.items() if k != "weight"})}
            for term in likes
        ]
    return rules


def _term(short: Json) -> Json:
    term = dict(short)
    if "match" in term:
        term["labelSelector"] = {"matchLabels": term.pop("match")}
    return term | {"topologyKey": long_key(term["topologyKey"])}


# -- what protects pods ------------------------------------------------------------------------------------------------


def budget(name: str, short: Json) -> Json:
    """A PodDisruptionBudget whose status no controller keeps."""
    short = dict(short)
    metadata = {"name": name, "namespace": short.pop("namespace", "default")}
    spec: Json = {"minAvailable": 0}
    if "match" in short:
        spec["selector"] = {"matchLabels": short.pop("match")}
    elif "selector" in short:
        spec["selector"] = short.pop("selector")
    disrupted = {slug(pod_name): _STARTED.format(0, 0, 0) for pod_name in short.pop("disrupted", ())}
    status = {
        "disruptionsAllowed": short.pop("allowed", 0),
        **dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0),
        **({"disruptedPods": disrupted} if disrupted else {}),
    }
    nothing_left(f"budget {name}", short)
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
    return head | {"spec": spec, "status": status}


# -- what owns pods ----------------------------------------------------------------------------------------------------


def workload(name: str, short: Json) -> Json:
    """A Service, or a controller that does not run: only its selector counts."""
    short = dict(short)
    kind = short.pop("kind")
    metadata = {"name": name, "namespace": short.pop("namespace", "default")}
    selector, labels = short.pop("selector", None), short.pop("labels", None)
    nothing_left(f"{kind} {name}", short)
    spec: Json = {}
    if kind == "Service":
        spec["ports"] = [{"port": 80}]
    else:
        template = {"metadata": {"labels": labels or selector}, "spec": {"containers": [_container({})]}}
        spec |= {"replicas": 0, "template": template}
    if selector is not None:
        is_whole = kind in {"Service", "ReplicationController"} or "matchExpressions" in selector
        spec["selector"] = selector if is_whole else {"matchLabels": selector}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}
