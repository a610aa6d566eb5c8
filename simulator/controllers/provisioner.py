"""An external provisioner with its storage: it creates volumes on the selected node while there is capacity.

The capacity is in bytes per segment (the nodes with one value of the topology label). CSIStorageCapacity objects, one
per class and segment, are as old as the last publication (docs/spec/volumes.md §6.7, §8).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.decode import from_manifest
from scheduler.api.quantity import Quantity, parse
from scheduler.api.storage_v1 import SELECTED_NODE, STORAGE_PROVISIONERS, WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Actor, Key, Object, annotations_of, key_of, read
from simulator.controllers.persistent_volume import PROVISIONED_BY, provisioner_of


class Space:
    """Segments and their bytes. A volume that was made keeps its share until it is given back."""

    def __init__(self, size_bytes: Mapping[str, int]) -> None:
        self.size_bytes = dict(size_bytes)
        """May be changed: storage is added, or lost."""
        self._shares: dict[str, tuple[str, int]] = {}
        self._used: Counter[str] = Counter()

    def free_bytes(self, segment: str) -> int:
        """Return the free bytes. The number is negative once storage was lost."""
        return self.size_bytes.get(segment, 0) - self._used[segment]

    def take(self, volume: str, segment: str, size: int) -> bool:
        """Reserve capacity for a volume of this name. Idempotent. Returns False if there is not enough."""
        if self._shares.get(volume) == (segment, size):
            return True
        self.give_back(volume)
        if size > self.free_bytes(segment):
            return False
        self._shares[volume] = (segment, size)
        self._used[segment] += size
        return True

    def give_back(self, volume: str) -> str:
        """Free the capacity of a deleted volume. Returns its segment, or "". Idempotent."""
        segment, size = self._shares.pop(volume, ("", 0))
        self._used[segment] -= size
        return segment

    def overdrawn(self) -> list[str]:
        """Never more made than there is: the segments of which that is not true."""
        return [
            f"segment {segment}: {used} bytes made, {self.size_bytes.get(segment, 0)} there"
            for segment, used in sorted(self._used.items())
            if used > self.size_bytes.get(segment, 0)
        ]


_CAPACITIES: Final = "csistoragecapacities"
SEPARATOR: Final = ","
"""Of the values in a segment of several labels; no value of a label contains it."""


def segment_of(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the values of the labels, in the order of the keys; "" if there are no keys or no labels."""
    values = [str(labels.get(key, "")) for key in keys]
    return SEPARATOR.join(values) if any(values) else ""


class CapacityPublisher:
    """Objects that are there already, under whatever name, are taken over. Segments are values of node labels.

    Without a label there is one segment, "", which is everywhere.
    """

    def __init__(self, server: ApiServer, topology_keys: Sequence[str], *, namespace: str) -> None:
        self._server = server
        self._topology_keys = tuple(topology_keys)
        self._namespace = namespace
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        self._largest: dict[tuple[str, str], int] = {}
        """The largest volume, of objects that say it."""
        for each in server.objects(_CAPACITIES):
            segment = self._segment(each.get("nodeTopology"))
            if segment is not None:
                metadata, key = each["metadata"], (each["storageClassName"], segment)
                self._names[key] = metadata["namespace"], metadata["name"]
                if each.get("maximumVolumeSize") is not None:
                    self._largest[key] = parse(each["maximumVolumeSize"]).value

    def publish(self, class_name: str, segment: str, free_bytes: int) -> None:
        """So much is free there for volumes of this class."""
        free, key = max(0, free_bytes), (class_name, segment)
        capacity = {"capacity": str(free)}
        if key in self._largest:
            capacity["maximumVolumeSize"] = str(min(free, self._largest[key]))
        known = self._names.get(key)
        if known is not None:
            with contextlib.suppress(Refused):  # it was deleted
                self._server.patch(_CAPACITIES, known[1], capacity, namespace=known[0])
                return
        labels = dict(zip(self._topology_keys, segment.split(SEPARATOR), strict=True)) if self._topology_keys else {}
        where: Object = {"matchLabels": labels} if labels else {}
        metadata = {"generateName": "csisc-", "namespace": self._namespace}
        made = {"metadata": metadata, "nodeTopology": where, "storageClassName": class_name} | capacity
        name = self._server.create(_CAPACITIES, made)["metadata"]["name"]
        self._names[key] = self._namespace, name

    def _segment(self, topology: Object | None) -> str | None:
        """Return the segment of an object, or None if its nodes are no segment of this driver."""
        if topology is None or topology.get("matchExpressions"):
            return None
        labels: dict[str, str] = topology.get("matchLabels") or {}
        return segment_of(labels, self._topology_keys) if labels.keys() == set(self._topology_keys) else None


_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_PUBLISH: Final[Key] = (_CAPACITIES, "", "")
_EXHAUSTED: Final = (
    "rpc error: code = ResourceExhausted desc = not enough free storage in {segment}: {size} of {free} bytes"
)


@dataclass(frozen=True, slots=True)
class ProvisionCall:
    """One request to make a volume. `number` counts from 1."""

    number: int
    claim: str
    """`namespace/name`."""
    node: str
    """"" where no node was chosen: the claim is of an Immediate class."""


Fault: TypeAlias = Callable[[ProvisionCall], str]
"""The words with which a call is to fail; "" if it is not to. It may also kill the provisioner in the middle of it."""


class ExternalProvisioner(Actor):
    """Provisions for `driver`, `delay_s` after a claim is ready for it, in the segment of the selected node.

    `space` has the bytes of each segment, which is the values of `topology_keys`. Without it the capacity is unlimited, and
    volumes still belong to the segment of the node. A call fails if `fault` returns a message or the capacity is not
    enough. Then the claim loses its selected node, so that the scheduler chooses again. With `keeps_trying` the same call
    is repeated after `retry_s`. CSIStorageCapacity objects are published at the start and every `publishes_every_s`, or
    with every change if that is 0. Without `topology_keys` every node reaches the storage.
    """

    component = "external-provisioner"
    resources = ("storageclasses", _VOLUMES, _CLAIMS)

    def __init__(  # noqa: PLR0913 (every way in which a provisioner may behave)
        self,
        server: ApiServer,
        driver: str,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        topology_keys: Sequence[str] = ("kubernetes.io/hostname",),
        space: Mapping[str, int] | None = None,
        fault: Fault | None = None,
        keeps_trying: bool = False,
        retry_s: float = 10,
        publishes_every_s: float | None = None,
        namespace: str = "kube-system",
    ) -> None:
        self.driver = driver
        self.space = None if space is None else Space(space)
        self.calls: list[ProvisionCall] = []
        self.provisioned = 0
        self.failures = 0
        self.rescheduled = 0
        """How often it gave a claim back to the scheduler."""
        self.is_dead = False
        self.fault = fault
        self.keeps_trying = keeps_trying
        self._delay_s = delay_s
        self._retry_s = retry_s
        self._topology_keys = tuple(topology_keys)
        self._publishes_every_s = publishes_every_s
        self._namespace = namespace
        self._published: CapacityPublisher | None = None
        self._unbound: set[Key] = set()
        """Claims for which a volume was made and that are not known to be bound."""
        super().__init__(server, clock=clock)
        if publishes_every_s is not None:
            self._note(_PUBLISH)

    # -- life and death -----------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Forget everything that was under way, and hear nothing until `revive`. What is stored stays stored."""
        self.is_dead = True
        self._forget_all()

    def revive(self) -> None:
        """Come back, and look at everything."""
        self.is_dead = False
        self.look_again()
        if self._publishes_every_s is not None:
            self._note(_PUBLISH)

    def overdrawn(self) -> list[str]:
        """Return a sentence per segment with more bytes in volumes than it has."""
        return [] if self.space is None else self.space.overdrawn()

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if self.is_dead:
            return
        if resource == _CLAIMS and type_ != "DELETED" and self._is_mine(obj) and self._is_ready(obj):
            self._note(key_of(resource, obj), self._delay_s)
        elif resource == _VOLUMES and annotations_of(obj).get(PROVISIONED_BY) == self.driver:
            self._note(key_of(resource, obj))
        elif resource == "nodes" and type_ == "DELETED":
            for claim in self._server.objects(_CLAIMS):
                if self._is_mine(claim) and annotations_of(claim).get(SELECTED_NODE) == obj["metadata"]["name"]:
                    self._note(key_of(_CLAIMS, claim))
        elif resource == "storageclasses" and type_ == "ADDED" and self._publishes_every_s is not None:
            self._note(_PUBLISH)

    def _is_mine(self, claim: Object) -> bool:
        """Return whether the claim waits for this driver and is not terminating."""
        given = annotations_of(claim)
        asked = next((given[key] for key in STORAGE_PROVISIONERS if key in given), "")
        return asked == self.driver and not claim["spec"].get("volumeName") and not _is_going(claim)

    def _is_ready(self, claim: Object) -> bool:
        """Return whether the claim has the node that it needs."""
        typed = read(PersistentVolumeClaim, claim)
        if typed is None:
            return False
        storage_class = self._find("storageclasses", typed.storage_class)
        waits = storage_class is not None and storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        return not waits or bool(annotations_of(claim).get(SELECTED_NODE))

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        if resource == _CAPACITIES:
            self._publish(name)
            return
        obj = self._find(resource, name, namespace)
        if resource == _VOLUMES:
            self._settle_volume(name, obj)
        elif obj is not None and self._is_mine(obj) and self._find(_VOLUMES, _volume_name(obj)) is None:
            self._provision(obj)

    # -- volumes ------------------------------------------------------------------------------------------------------

    def _provision(self, claim: Object) -> None:
        typed = from_manifest(PersistentVolumeClaim, claim)
        storage_class = self._find("storageclasses", typed.storage_class)
        if storage_class is None or provisioner_of(storage_class) != self.driver or not self._is_ready(claim):
            return
        waits = storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        node = (typed.selected_node or "") if waits else ""
        call = ProvisionCall(len(self.calls) + 1, typed.key, node)
        self.calls.append(call)
        fault = self.fault(call) if self.fault is not None else ""
        if self.is_dead:
            return
        found = self._find("nodes", node) if node else None
        if node and found is None:
            self._failed(claim, f'failed to get target node: nodes "{node}" not found', gives_back=True)
            return
        segment = self._segment(found)
        why = fault or self._no_capacity(claim, typed.request, segment)
        if why:
            self._failed(claim, why, gives_back=not self.keeps_trying)
        else:
            self._create(claim, storage_class, segment)
            self._unbound.add(key_of(_CLAIMS, claim))

    def _segment(self, node: Object | None) -> str:
        """Return the segment of the node, or the one with the most capacity if no node is selected."""
        if node is not None:
            return segment_of(node["metadata"].get("labels") or {}, self._topology_keys)
        if self.space is None:
            return ""
        return max(sorted(self.space.size_bytes), key=self.space.free_bytes, default="")

    def _no_capacity(self, claim: Object, request: Quantity | None, segment: str) -> str:
        if self.space is None:
            return ""
        size = 0 if request is None else request.value
        if self.space.take(_volume_name(claim), segment, size):
            return ""
        return _EXHAUSTED.format(segment=segment or "no segment", size=size, free=self.space.free_bytes(segment))

    def _failed(self, claim: Object, why: str, *, gives_back: bool) -> None:
        self.failures += 1
        class_name = from_manifest(PersistentVolumeClaim, claim).storage_class
        self._record(
            claim,
            "Warning",
            "ProvisioningFailed",
            f'failed to provision volume with StorageClass "{class_name}": {why}',
        )
        if gives_back and SELECTED_NODE in annotations_of(claim):
            self.rescheduled += 1
            del claim["metadata"]["annotations"][SELECTED_NODE]
            self._server.update(_CLAIMS, claim)
        else:
            self._note(key_of(_CLAIMS, claim), self._retry_s)

    def _create(self, claim: Object, storage_class: Object, segment: str) -> None:
        name, metadata, spec = _volume_name(claim), claim["metadata"], claim["spec"]
        reference = {field_: metadata[field_] for field_ in ("namespace", "name", "uid", "resourceVersion")}
        made: Object = {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | reference,
            "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": spec["volumeMode"],
            "csi": {"driver": self.driver, "volumeHandle": name},
        }
        if spec.get("volumeAttributesClassName"):
            made["volumeAttributesClassName"] = spec["volumeAttributesClassName"]
        if segment:
            places = zip(self._topology_keys, segment.split(SEPARATOR), strict=True)
            here = [{"key": key, "operator": "In", "values": [value]} for key, value in places if value]
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
        self.provisioned += 1
        marks = {PROVISIONED_BY: self.driver}
        self._server.create(_VOLUMES, {"metadata": {"name": name, "annotations": marks}, "spec": made})
        self._record(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        self._changed(segment)

    def _settle_volume(self, name: str, volume: Object | None) -> None:
        """Free the capacity of a deleted volume, or delete a released one."""
        if volume is None:
            if self.space is not None:
                self._changed(self.space.give_back(name))
        elif volume["status"].get("phase") == "Released" and not _is_going(volume):
            self._delete(volume)

    def _delete(self, volume: Object) -> None:
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            self._server.delete(_VOLUMES, volume["metadata"]["name"])

    # -- capacity -----------------------------------------------------------------------------------------------------

    def _publish(self, segment: str) -> None:
        """Publish the free bytes per class, of this segment or of all. The objects stay until the next call.

        Periodic publication waits until the claims of new volumes are bound, so that no object is older than it looks.
        """
        self._unbound = {key for key in self._unbound if self._is_unbound(key)}
        if self._publishes_every_s and self._unbound:
            self._note(_PUBLISH, self._publishes_every_s)
            return
        if self.space is not None:
            if self._published is None:
                self._published = CapacityPublisher(self._server, self._topology_keys, namespace=self._namespace)
            segments = [segment] if segment else sorted(self.space.size_bytes)
            for storage_class in self._server.objects("storageclasses"):
                if provisioner_of(storage_class) == self.driver:
                    for each in segments:
                        name = storage_class["metadata"]["name"]
                        self._published.publish(name, each, self.space.free_bytes(each))
        if self._publishes_every_s:
            self._note(_PUBLISH, self._publishes_every_s)

    def _is_unbound(self, key: Key) -> bool:
        claim = self._find(key[0], key[2], key[1])
        return claim is not None and (claim.get("status") or {}).get("phase") != "Bound" and not _is_going(claim)

    def _changed(self, segment: str) -> None:
        """Something was made or deleted there."""
        if self._publishes_every_s == 0:
            self._note((_CAPACITIES, "", segment))


def _volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _is_going(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
