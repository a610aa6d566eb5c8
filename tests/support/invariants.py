"""Laws that hold whatever happens. Each function returns the broken ones as sentences; none is a good answer.

`Witness` listens from the start and keeps what the stored objects no longer have: all pods, their bindings, and preemptions
with victims and preemptors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scheduler.api.apps_and_policy import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import selector_matches
from scheduler.api.podinfo import Requests, allocatable, host_ports, requests_of
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, claim_uses
from simulator.apiserver import ApiServer

Object = dict[str, Any]


class Witness:
    """Remembers every pod of a server by uid. Start it before the first pod."""

    def __init__(self, server: ApiServer) -> None:
        self.broken: list[str] = []
        self.bindings = 0
        """How many pods have got a node so far."""
        self._nodes: dict[str, str] = {}
        self._alive: dict[str, str] = {}
        self._gone: set[str] = set()
        self.preempted: dict[str, str] = {}
        """Pods whose deletion was not announced by `excuse`: uid → `namespace/name`."""
        self._priorities: dict[str, int] = {}
        self._excused: set[str] = set()
        self._plans: dict[str, set[str]] = {}
        self._wronged: list[str] = []
        self._server = server
        self.close = server.subscribe(self._on_write)

    def bound_twice(self) -> list[str]:
        """No pod ever changes or loses its node."""
        return list(self.broken)

    def lost(self) -> list[str]:
        """Every pod that was created is there, unless it was deleted."""
        present = {pod["metadata"]["uid"] for pod in self._server.objects("pods")}
        return [f"pod {key} ({uid}) vanished" for uid, key in self._alive.items() if uid not in present]

    def excuse(self, uid: str) -> None:
        """This pod is about to be deleted, and not by a scheduler."""
        self._excused.add(uid)

    def planned(self, preemptor: str, victims: Iterable[str]) -> None:
        """A scheduler has decided, and not begun, to evict these for that pod. All are uids."""
        for victim in victims:
            self._plans.setdefault(victim, set()).add(preemptor)

    def wronged(self) -> list[str]:
        """Schedulers delete a pod only for one of higher priority, and only after they have set its condition.

        For tests where each other deletion is announced by `excuse` and each preemption by `planned`. Events may be lost;
        those that came name victim and preemptor rightly.
        """
        return list(self._wronged)

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "events" and type_ == "ADDED" and obj.get("reason") == "Preempted":
            self._on_preempted_event(obj["regarding"].get("uid", ""), obj.get("related", {}).get("uid", ""))
        if resource != "pods":
            return
        uid, key = obj["metadata"]["uid"], _key(obj)
        self._priorities[uid] = obj["spec"].get("priority", 0)
        if obj["metadata"].get("deletionTimestamp"):
            self._leaving(uid, key, obj)
        if uid in self._gone:
            self.broken.append(f"pod {key} ({uid}) was written after its deletion")
        if type_ == "DELETED":
            self._alive.pop(uid, None)
            self._gone.add(uid)
            return
        self._alive[uid] = key
        node, before = obj["spec"].get("nodeName", ""), self._nodes.get(uid, "")
        if before and node != before:
            self.broken.append(f"pod {key} was bound to {before} and then to {node or 'nothing'}")
        if node and not before:
            self._nodes[uid] = node
            self.bindings += 1

    def _leaving(self, uid: str, key: str, obj: Object) -> None:
        if uid in self._excused or uid in self.preempted:
            return
        self.preempted[uid] = key
        if not any(
            (condition["type"], condition["status"], condition.get("reason"))
            == (DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER)
            for condition in obj["status"].get("conditions") or []
        ):
            self._wronged.append(f"pod {key} was deleted without the condition of a preemption")
        preemptors = self._plans.get(uid, set())
        if not preemptors:
            self._wronged.append(f"pod {key} was deleted without a preemption plan")
        self._wronged += [
            f"pod {key} was to be evicted for a pod that is not more important"
            for preemptor in preemptors
            if self._priorities[preemptor] <= self._priorities[uid]
        ]

    def _on_preempted_event(self, victim: str, preemptor: str) -> None:
        if preemptor not in self._plans.get(victim, set()):
            self._wronged.append(f"an event says that {victim} was evicted for {preemptor}")


def overcommitted(server: ApiServer) -> list[str]:
    """Nothing promised twice: on every node, what unfinished pods request fits, and so do their number and host ports.

    A node that is gone promises nothing.
    """
    nodes = {node["metadata"]["name"]: from_manifest(Node, node) for node in server.objects("nodes")}
    by_node: dict[str, list[Pod]] = {name: [] for name in nodes}
    for obj in server.objects("pods"):
        name = obj["spec"].get("nodeName", "")
        if name in by_node and obj["status"].get("phase") not in {"Succeeded", "Failed"}:
            by_node[name].append(from_manifest(Pod, obj))
    return [law for name, pods in by_node.items() for law in _on_node(nodes[name], pods)]


def _on_node(node: Node, pods: list[Pod]) -> list[str]:
    room = allocatable(node.status.allocatable)
    total: Requests = {"pods": len(pods)}
    for pod in pods:
        for name, amount in requests_of(pod).items():
            total[name] = total.get(name, 0) + amount
    broken = [
        f"node {node.key}: {name} requested {amount}, allocatable {room.get(name, 0)}"
        for name, amount in total.items()
        if amount > room.get(name, 0)
    ]
    ports = [(port, pod.key) for pod in pods for port in host_ports(pod)]
    for i, (port, key) in enumerate(ports):
        for other, other_key in ports[:i]:
            same = (port.protocol, port.port) == (other.protocol, other.port)
            if same and (port.ip == other.ip or "0.0.0.0" in {port.ip, other.ip}):
                broken.append(f"node {node.key}: port {port.port}/{port.protocol} held by {other_key} and {key}")
    return broken


def unbound(server: ApiServer, is_schedulable: Callable[[Object], bool] = lambda _: True) -> list[str]:
    """Every schedulable pod is bound in the end: call it when nothing moves any more."""
    return [
        f"pod {_key(pod)} is still without a node"
        for pod in server.objects("pods")
        if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and is_schedulable(pod)
    ]


def on_missing_nodes(server: ApiServer) -> list[str]:
    """No unfinished pod is bound to a node that does not exist."""
    names = {node["metadata"]["name"] for node in server.objects("nodes")}
    return [
        f"pod {_key(pod)} is bound to {pod['spec']['nodeName']}, which does not exist"
        for pod in server.objects("pods")
        if pod["spec"].get("nodeName", "") not in {"", *names}
    ]


def claimed_twice(server: ApiServer) -> list[str]:
    """A volume belongs to one claim: it is bound to one alone, and says in its claimRef that it is that one's.

    Claims whose volume is gone, or that are Lost already, are not checked.
    """
    volumes = _volumes(server)
    holders: dict[str, list[str]] = {}
    broken = []
    for key, claim in _claims(server).items():
        name = claim.spec.volume_name
        if not claim.is_fully_bound or claim.status.phase == "Lost" or name not in volumes:
            continue
        holders.setdefault(name, []).append(key)
        meant = volumes[name].spec.claim_ref
        if meant is None or meant.uid != claim.metadata.uid:
            broken.append(
                f"claim {key} is bound to volume {name}, which is meant for {meant.key if meant else 'no claim'}"
            )
    broken += [f"volume {name} is bound to {' and '.join(keys)}" for name, keys in holders.items() if len(keys) > 1]
    return broken


def volumes_of_pods(server: ApiServer) -> list[str]:
    """An unfinished pod on a node has volumes for all its claims, can reach them from there, and shares none by another claim."""
    volumes, claims = _volumes(server), _claims(server)
    labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in server.objects("nodes")}
    users: dict[str, dict[str, str]] = {}
    broken = []
    for pod in (from_manifest(Pod, obj) for obj in server.objects("pods")):
        node = pod.spec.node_name
        if not node or pod.is_terminal:
            continue
        for use in claim_uses(pod):
            claim = claims.get(use.key)
            if claim is None or not claim.is_fully_bound:
                broken.append(f"pod {pod.key} is on {node}, and claim {use.key} has no volume")
                continue
            name = claim.spec.volume_name
            affinity = volumes[name].spec.node_affinity if name in volumes else None
            required = None if affinity is None else affinity.required
            if node in labels and required is not None and not selector_matches(required, node, labels[node]):
                broken.append(f"pod {pod.key} is on {node}, which cannot reach volume {name}")
            users.setdefault(name, {}).setdefault(use.key, pod.key)
    for name, by_claim in users.items():
        if len(by_claim) > 1:
            broken.append(f"volume {name} is used by pods {' and '.join(by_claim.values())} through different claims")
    return broken


def segments_overdrawn(server: ApiServer, driver: str, topology_key: str, space: Mapping[str, int]) -> list[str]:
    """The volumes of a driver fit where they are; `space` is bytes by value of the topology label."""
    used: dict[str, int] = {}
    for volume in _volumes(server).values():
        required = volume.required_nodes
        if volume.spec.csi is None or volume.spec.csi.driver != driver or required is None:
            continue
        for term in required.node_selector_terms:
            for expression in term.match_expressions:
                if expression.key == topology_key and len(expression.values) == 1:
                    used[expression.values[0]] = used.get(expression.values[0], 0) + volume.capacity.value
    return [
        f"segment {segment} of {driver}: {amount} bytes in volumes, {space.get(segment, 0)} there"
        for segment, amount in used.items()
        if amount > space.get(segment, 0)
    ]


def stranded(server: ApiServer) -> list[str]:
    """No claim without a volume waits for a node that does not exist, unless it is going itself."""
    names = {node["metadata"]["name"] for node in server.objects("nodes")}
    return [
        f"claim {key} waits for node {claim.selected_node}, which does not exist"
        for key, claim in _claims(server).items()
        if not claim.spec.volume_name
        and claim.metadata.deletion_timestamp is None
        and (claim.selected_node or "") not in {"", *names}
    ]


def _volumes(server: ApiServer) -> dict[str, PersistentVolume]:
    volumes = (from_manifest(PersistentVolume, obj) for obj in server.objects("persistentvolumes"))
    return {volume.key: volume for volume in volumes}


def _claims(server: ApiServer) -> dict[str, PersistentVolumeClaim]:
    claims = (from_manifest(PersistentVolumeClaim, obj) for obj in server.objects("persistentvolumeclaims"))
    return {claim.key: claim for claim in claims}


def _key(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
