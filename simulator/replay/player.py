"""Play the history of a recording on an in-process API server, without what the recorded schedulers decided.

Nodes, devices, volumes, budgets and namespaces come, change and go at their recorded times. A pod of a scheduler that is
replayed arrives at its recorded time without a node. From its Binding on it runs as long as it ran in the recording. Its
claims and volumes are bound again by the scheduler and the controllers of the simulator. Pods of other schedulers, and
pods that had a node when the recording began, stay on their recorded nodes and end at their recorded times.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from scheduler.api.core_v1 import Pod, controller_of
from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONERS,
)
from scheduler.core.clock import Clock
from scheduler.explain.controllers import stays
from scheduler.manifests.defaults import SYSTEM_PRIORITIES
from simulator.apiserver import ApiServer, Refused
from simulator.apiserver.kinds.defaults import PREEMPTS
from simulator.replay.history import History, Object, PodHistory, is_made_by_scheduler, pod_owners
from simulator.replay.recording import ObjectEvent

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name."""
Problem: TypeAlias = Callable[[str], object]
"""Called with an event that the API server refuses, and the reason."""

_FIRST: Final = ("Namespace", "StorageClass", "CSIDriver", "Node", "CSINode", "DeviceClass", "ResourceSlice")
"""Kinds that are loaded before the rest; pods come last."""
_CLAIM: Final = "PersistentVolumeClaim"
_VOLUME: Final = "PersistentVolume"
_DEVICE_CLAIM: Final = "ResourceClaim"
_OF_DECISIONS: Final = frozenset({"VolumeAttachment", "CSIStorageCapacity"})
"""Kinds that follow the placement of volumes: later objects and changes of the recording are left out."""
_BINDING: Final = frozenset({BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, *STORAGE_PROVISIONERS})
_SYSTEM: Final = {value: name for name, value in SYSTEM_PRIORITIES.items()}
_COPY: Final = "-again-"


@dataclass(slots=True)
class _Played:
    """A pod that exists in the replay, or waits for the end of an earlier pod with its name."""

    original: Object
    """The pod as it arrives. A pod that is evicted arrives again."""
    history: PodHistory | None = None
    """None for a pod that is not replayed."""
    run_s: float | None = None
    """The time from its Binding to its end; None if it runs until the end, or is not replayed."""
    made_claims: tuple[bytes, ...] = ()
    """The claims that arrive with the pod."""
    origin: str = ""
    """The uid of the recorded pod: of a copy that of the pod which arrives again."""
    copies: int = 0
    bound_s: float | None = None
    lost_node: str | None = None
    """The node that left while the pod was on it."""
    timer: asyncio.TimerHandle | None = None
    uid: str = field(init=False)
    namespace: str = field(init=False)
    name: str = field(init=False)
    claims: tuple[Key, ...] = field(init=False)
    labels: tuple[Object, list[Object]] = field(init=False)
    """Labels and gates, as they were written last."""

    def __post_init__(self) -> None:
        metadata = self.original["metadata"]
        self.uid, self.namespace, self.name = metadata["uid"], metadata["namespace"], metadata["name"]
        self.origin = self.origin or self.uid
        self.claims = tuple(dict.fromkeys(_claims_of(self.original)))
        self.labels = _relabelled(self.original)


@dataclass(slots=True)
class Player:
    """Writes the history to the server. Call `load`, then `play` for each event in order.

    `scheduler_names` maps the recorded names of schedulers that are replayed to names of the replay.
    """

    server: ApiServer
    history: History
    clock: Clock
    scheduler_names: dict[str, str]
    problem: Problem
    began_s: float = 0.0
    """The time of the clock at which the recording begins."""
    restarts: int = 0
    """Evicted pods that arrived again."""
    _pods: dict[str, _Played] = field(default_factory=dict)
    _names: dict[tuple[str, str], deque[_Played]] = field(default_factory=dict)
    """Namespace and name → the pod that has it, and pods that wait for its end, as those of a StatefulSet do."""
    _copies: dict[str, str] = field(default_factory=dict)
    """The uid of a recorded pod → that of its copy."""
    _users: Counter[Key] = field(default_factory=Counter)
    """Claims → pods that use them."""
    _leaving: dict[Key, ObjectEvent] = field(default_factory=dict)
    """Claims that left in the recording while pods of the replay use them."""
    _classes: dict[tuple[int, str], str] = field(default_factory=dict)
    """Priority and preemption policy → PriorityClass."""
    _arrived: set[str] = field(default_factory=set)
    """Uids of the replayed pods that have arrived."""

    @property
    def at_s(self) -> float:
        """Return the time of the recording."""
        return self.clock.now() - self.began_s

    def is_replayed(self, uid: str) -> bool:
        """Return whether the scheduler under test has to find a node for the pod."""
        played = self._pods.get(uid)
        return played is not None and played.history is not None

    # -- the first state -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Create the first state. Events that the server refuses are reported and left out."""
        rank = {kind: at for at, kind in enumerate(_FIRST)}

        def order(event: ObjectEvent) -> tuple[bool, int]:
            return event.kind == "Pod", rank.get(event.kind, len(rank))

        for event in sorted(self.history.present.values(), key=order):
            if event.kind != "Pod":
                self._guarded(self._load_present, event)
        self.server.subscribe(self._written)
        pods = [event for event in self.history.present.values() if event.kind == "Pod"]
        for event in sorted(pods, key=lambda each: not self.history.pods[each.uid].was_bound):
            self._guarded(self._pod_added, event)

    def _load_present(self, event: ObjectEvent) -> None:
        obj = event.value()
        if event.kind == _CLAIM and not (obj.get("spec") or {}).get("volumeName"):
            obj = _unbound_claim(obj)
        if event.kind == _DEVICE_CLAIM and any(self._is_free(uid) for uid in pod_owners(obj)):
            return  # it comes with its pod
        self._create(obj)

    # -- events --------------------------------------------------------------------------------------------------------

    def play(self, event: ObjectEvent) -> None:
        """Carry out one event after the first state."""
        match event.kind, event.type:
            case "Pod", "ADDED" | "MODIFIED":
                self._guarded(self._pod_added, event)
            case "Pod", _:
                self._pod_deleted(event)
            case kind, "DELETED":
                if self._users[event.key] and kind in {_CLAIM, _DEVICE_CLAIM}:
                    self._leaving[event.key] = event
                else:
                    self._delete(event)
            case kind, _ if kind in _OF_DECISIONS:
                pass
            case _, _:
                self._guarded(self._changed, event)

    def _changed(self, event: ObjectEvent) -> None:
        obj = event.value()
        match event.kind:
            case "PersistentVolumeClaim" | "ResourceClaim" | "PersistentVolume" if self._find(event) is not None:
                return  # what changes is what schedulers and controllers decide
            case "PersistentVolumeClaim":
                if not pod_owners(obj):  # the controller of ephemeral volumes makes those of pods
                    self._create(_unbound_claim(obj))
            case "PersistentVolume":
                if PROVISIONED_BY not in (obj["metadata"].get("annotations") or {}):
                    self._create(_unbound_volume(obj))
            case "ResourceClaim":
                if not pod_owners(obj) and not is_made_by_scheduler(obj):
                    self._create({key: value for key, value in obj.items() if key != "status"})
            case _ if (current := self._find(event)) is not None:
                self._update(event.kind, current, obj)
            case _:
                self._create(obj)

    def _update(self, kind: str, current: Object, obj: Object) -> None:
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        written = self.server.update(kind, obj | {"metadata": obj["metadata"] | version})
        if obj["kind"] == "Node":
            self.server.update(kind, written | {"status": obj.get("status") or {}}, subresource="status")

    def _delete(self, event: ObjectEvent) -> None:
        current = self._find(event)
        if current is None or current["metadata"]["uid"] != event.uid:
            return
        if event.kind == _VOLUME and (current.get("status") or {}).get("phase") == "Bound":
            return  # a claim of the replay uses it
        with suppress(Refused):
            self.server.delete(event.kind, event.name, event.namespace, grace_s=0)
        if event.kind == "Node":  # the garbage collector of pods
            for pod in [each for each in self.server.objects("pods") if each["spec"].get("nodeName") == event.name]:
                if (played := self._pods.get(pod["metadata"]["uid"])) is not None:
                    played.lost_node = event.name
                    self._delete_pod(played)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _is_free(self, uid: str) -> bool:
        return self.history.is_free(uid, self.scheduler_names)

    def _pod_added(self, event: ObjectEvent) -> None:
        history = self.history.pods[event.uid]
        if (played := self._played(event.uid)) is not None:
            if history_ended(history, event.at_s):  # it is over, and its object may stay for days
                self._pod_deleted(event)
            elif self._is_free(event.uid):
                self._relabel(played, event)
            return
        obj = event.value()
        if self._is_free(event.uid):
            if event.uid in self._arrived or (history.bound_s is None and history_ended(history, event.at_s)):
                return  # it has ended in the replay, or never ran
            self._arrived.add(event.uid)
            pod = _unplaced(obj, self.scheduler_names, history)
            self._arrive(_Played(pod, history, history.run_s, tuple(history.claims)))
        elif obj["spec"].get("nodeName") and not history_ended(history, self.at_s):
            status = obj.get("status") if history.was_bound else {}
            self._arrive(_Played(obj | {"status": status or {}}))

    def _arrive(self, played: _Played) -> None:
        """Let the pod arrive, once no earlier pod has its name: here that pod may run longer than in the recording."""
        self._pods[played.uid] = played
        self._users.update(played.claims)
        waiting = self._names.setdefault((played.namespace, played.name), deque())
        waiting.append(played)
        if waiting[0] is played:
            self._put(played)

    def _put(self, played: _Played) -> None:
        """Create the pod with its claims. Raises Refused."""
        for raw in played.made_claims:
            claim = msgspec.json.decode(raw)
            with suppress(Refused):
                self._create({key: value for key, value in claim.items() if key != "status"})
        try:
            self._create(_labelled(played.original, played.labels))
        except Refused:
            self._forget(played)
            raise

    def _put_next(self, played: _Played) -> None:
        """Create a pod whose name is free now, unless it has ended."""
        if self._pods.get(played.uid) is played:
            try:
                self._put(played)
            except Refused as why:
                self.problem(f"Pod {played.namespace}/{played.name}: {why.message}")

    def _played(self, uid: str) -> _Played | None:
        """Return the recorded pod, or its copy if it was evicted."""
        return self._pods.get(self._copies.get(uid, uid))

    def _relabel(self, played: _Played, event: ObjectEvent) -> None:
        """Change labels and gates of a pod that had no node in the recording. What comes later is left out."""
        labels = _relabelled(event.value())
        bound_s = self.history.pods[event.uid].bound_s
        if labels == played.labels or (bound_s is not None and event.at_s > bound_s):
            return
        played.labels = labels
        if self._names[played.namespace, played.name][0] is not played:
            return  # it is created with them
        if (current := self.server.find("Pod", played.name, played.namespace)) is not None:
            self.server.update("Pod", _labelled(current, labels))

    def _pod_deleted(self, event: ObjectEvent) -> None:
        """End a pod at its recorded time. One that is replayed has a running time instead, if it was ever bound."""
        played = self._played(event.uid)
        if played is not None and (played.history is None or played.history.bound_s is None):
            self._remove(played.uid)

    def _written(self, type_: str, resource: str, obj: Object) -> None:
        if resource != "pods":
            return
        played = self._pods.get(obj["metadata"]["uid"])
        if played is None:
            return
        if type_ == "DELETED":
            self._evicted(played)
        elif obj["spec"].get("nodeName") and played.bound_s is None:
            played.bound_s = self.at_s
            if played.run_s is not None:
                played.timer = asyncio.get_running_loop().call_later(played.run_s, self._remove, played.uid)

    def _remove(self, uid: str) -> None:
        """End a pod that does not arrive again."""
        if (played := self._pods.get(uid)) is not None:
            self._forget(played)
            self._delete_pod(played)

    def _delete_pod(self, played: _Played) -> None:
        with suppress(Refused):
            self.server.delete("Pod", played.name, played.namespace, grace_s=0, uid=played.uid)

    def _evicted(self, played: _Played) -> None:
        """Let a pod that a scheduler or the loss of its node has ended arrive again, as its controller would."""
        self._forget(played)
        pod = from_manifest(Pod, played.original)
        name: str | None = pod.spec.scheduler_name
        if played.history is None:
            name = self.scheduler_names.get(pod.spec.scheduler_name)
        belongs_to_lost_node = played.lost_node is not None and stays(pod)
        if played.bound_s is None or not name or controller_of(pod) is None or belongs_to_lost_node:
            return
        run_s = self._remaining_s(played)
        if (run_s is not None and run_s <= 0) or self._is_replaced(played):
            return
        history = played.history or PodHistory(name, self.at_s, bound_s=self.at_s)
        asyncio.get_running_loop().call_soon(self._again, _copied(played, name, history, run_s))

    def _is_replaced(self, played: _Played) -> bool:
        """Return whether the recording has the pod that the controller made instead of this one.

        It has if that pod has arrived already, or if the recorded pod lost the same node.
        """
        replaced_s = self.history.replaced_s(played.origin)
        if replaced_s is None:
            return False
        return replaced_s <= self.at_s or played.lost_node == self.history.pods[played.origin].node

    def _remaining_s(self, played: _Played) -> float | None:
        """Return how much longer the pod would have run; None if until the end."""
        if played.history is None:
            ended_s = self.history.pods[played.uid].ended_s
            return None if ended_s is None else ended_s - self.at_s
        assert played.bound_s is not None
        return None if played.run_s is None else played.run_s - (self.at_s - played.bound_s)

    def _again(self, copy: _Played) -> None:
        if copy.history is not None and copy.history.bound_s is None and history_ended(copy.history, self.at_s):
            return
        try:
            self._arrive(copy)
        except Refused as why:
            self.problem(f"Pod {copy.namespace}/{copy.name}: {why.message}")
            return
        self._copies[copy.origin] = copy.uid
        self.restarts += 1

    def _forget(self, played: _Played) -> None:
        del self._pods[played.uid]
        self._copies.pop(played.origin, None)
        if played.timer is not None:
            played.timer.cancel()
        for key in played.claims:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                if (event := self._leaving.pop(key, None)) is not None:
                    asyncio.get_running_loop().call_soon(self._delete, event)
        waiting = self._names[played.namespace, played.name]
        is_first = waiting[0] is played
        waiting.remove(played)
        if not waiting:
            del self._names[played.namespace, played.name]
        if is_first:
            self._clean_up(played)
            if waiting:
                asyncio.get_running_loop().call_soon(self._put_next, waiting[0])

    def _clean_up(self, played: _Played) -> None:
        """Delete the claims of ephemeral volumes, as the garbage collector does."""
        for volume in played.original["spec"].get("volumes") or ():
            if volume.get("ephemeral"):
                asyncio.get_running_loop().call_soon(self._delete_claim, played, f"{played.name}-{volume['name']}")

    def _delete_claim(self, played: _Played, name: str) -> None:
        with suppress(Refused):
            self.server.delete(_CLAIM, name, played.namespace)

    # -- the server ----------------------------------------------------------------------------------------------------

    def _guarded(self, carry_out: Callable[[ObjectEvent], None], event: ObjectEvent) -> None:
        try:
            carry_out(event)
        except Refused as why:
            self.problem(f"{event}: {why.message}")
        except (AttributeError, KeyError, TypeError, ValueError) as why:
            self.problem(f"{event}: has a wrong form: {why!r}")

    def _create(self, obj: Object) -> None:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _OF_SERVER}
        if metadata.get("namespace"):
            self.server.ensure_namespace(metadata["namespace"])
        spec = self._with_class(obj["spec"]) if obj["kind"] == "Pod" else obj.get("spec")
        self.server.load(obj | {"metadata": metadata} | ({} if spec is None else {"spec": spec}))

    def _with_class(self, spec: Object) -> Object:
        """Return the spec of a pod with a class of its priority. An API server accepts no priority without one."""
        value, policy = spec.get("priority") or 0, spec.get("preemptionPolicy") or PREEMPTS
        if (value, policy) not in self._classes:
            name = _SYSTEM.get(value, f"recorded-{value}-{policy.lower()}".replace("--", "-minus-"))
            if value not in _SYSTEM:
                metadata = {"name": name}
                manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata}
                self.server.load(manifest | {"value": value, "preemptionPolicy": policy})
            self._classes[value, policy] = name
        return spec | {"priorityClassName": self._classes[value, policy]}

    def _find(self, event: ObjectEvent) -> Object | None:
        return self.server.find(event.kind, event.name, event.namespace)


_OF_SERVER: Final = ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")


def history_ended(history: PodHistory, at_s: float) -> bool:
    """Return whether the pod had ended at this time of the recording."""
    return history.ended_s is not None and history.ended_s <= at_s


def _relabelled(pod: Object) -> tuple[Object, list[Object]]:
    return dict(pod["metadata"].get("labels") or {}), list(pod["spec"].get("schedulingGates") or ())


def _labelled(pod: Object, labels: tuple[Object, list[Object]]) -> Object:
    """Return the pod with these labels and gates."""
    texts, gates = labels
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    if gates:
        spec["schedulingGates"] = gates
    return pod | {"metadata": pod["metadata"] | {"labels": texts}, "spec": spec}


def _claims_of(pod: Object) -> Iterable[Key]:
    namespace = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield _CLAIM, namespace, str(claim.get("claimName"))
    for claim in pod["spec"].get("resourceClaims") or ():
        if name := claim.get("resourceClaimName"):
            yield _DEVICE_CLAIM, namespace, str(name)


def _unplaced(pod: Object, scheduler_names: dict[str, str], history: PodHistory) -> Object:
    """Return the pod as it was before a scheduler saw it."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    spec["schedulerName"] = scheduler_names[history.scheduler_name]
    statuses = {"resourceClaimStatuses": history.claim_statuses} if history.claim_statuses else {}
    return pod | {"spec": spec, "status": {"phase": "Pending", **statuses}}


def _unbound_claim(claim: Object) -> Object:
    """Return the claim as it was before it had a volume. A volume that the user named stays."""
    annotations = claim["metadata"].get("annotations") or {}
    spec = dict(claim.get("spec") or {})
    if annotations.keys() & {BIND_COMPLETED, BOUND_BY_CONTROLLER}:
        spec.pop("volumeName", None)
    kept = {key: value for key, value in annotations.items() if key not in _BINDING}
    bare = {key: value for key, value in claim.items() if key != "status"}
    return bare | {"metadata": claim["metadata"] | {"annotations": kept}, "spec": spec}


def _unbound_volume(volume: Object) -> Object:
    """Return the volume as it was before it had a claim. A claim that the administrator named stays."""
    annotations = volume["metadata"].get("annotations") or {}
    spec = dict(volume.get("spec") or {})
    if BOUND_BY_CONTROLLER in annotations:
        spec.pop("claimRef", None)
    elif reference := spec.get("claimRef"):
        spec["claimRef"] = {key: value for key, value in reference.items() if key != "uid"}
    kept = {key: value for key, value in annotations.items() if key not in _BINDING}
    bare = {key: value for key, value in volume.items() if key != "status"}
    return bare | {"metadata": volume["metadata"] | {"annotations": kept}, "spec": spec}


def _copied(played: _Played, scheduler_name: str, history: PodHistory, run_s: float | None) -> _Played:
    """Return a copy of an evicted pod with another name and uid, with copies of the claims that were made for it."""
    pod, number = _labelled(played.original, played.labels), played.copies + 1
    base = played.name.partition(_COPY)[0]
    name, uid = f"{base}{_COPY}{number}", f"{played.uid.partition(_COPY)[0]}{_COPY}{number}"
    renamed: dict[str, str] = {}
    claims = []
    for raw in played.history.claims if played.history is not None else ():
        claim = msgspec.json.decode(raw)
        metadata = claim["metadata"]
        renamed[metadata["name"]] = f"{metadata['name']}{_COPY}{number}"
        owners = [each | {"name": name, "uid": uid} for each in metadata.get("ownerReferences") or ()]
        metadata |= {"name": renamed[metadata["name"]], "uid": f"{metadata['uid']}{_COPY}{number}"}
        metadata["ownerReferences"] = owners
        claims.append(msgspec.json.encode(claim))
    statuses = [
        each | {"resourceClaimName": renamed.get(each.get("resourceClaimName"), each.get("resourceClaimName"))}
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    ]
    status = {"phase": "Pending"} | ({"resourceClaimStatuses": statuses} if statuses else {})
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"} | {"schedulerName": scheduler_name}
    copy = pod | {"metadata": pod["metadata"] | {"name": name, "uid": uid}, "spec": spec, "status": status}
    return _Played(copy, history, run_s, tuple(claims), played.origin, number)
