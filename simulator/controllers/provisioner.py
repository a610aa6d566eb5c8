"""An external provisioner with its storage: it creates volumes on the selected node while there is capacity.

Its rules are those of external-provisioner 6.4 and of its library v13 (docs/spec/volumes.md §6.7). The driver behind it
answers at once, and its answers are the errors of a test, or that there is not enough storage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import SELECTED_NODE, STORAGE_PROVISIONERS, WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers.controller import Actor, Key, Object, annotations_of, key_of, read
from simulator.controllers.persistent_volume import PROVISIONED_BY, provisioner_of
from simulator.controllers.storage_space import CAPACITIES, CapacityPublisher, ReportedCapacity, Space
from simulator.controllers.volume_requests import (
    NotRequestedError,
    Place,
    PopulatedError,
    Topologies,
    check,
    check_parameters,
)

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_PUBLISH: Final[Key] = (CAPACITIES, "", "")
_EXHAUSTED: Final = "rpc error: code = ResourceExhausted desc = not enough free storage{where}: {size} of {free} bytes"
_CODE: Final = re.compile(r"\bcode = (\w+)")
_IN_BACKGROUND: Final = frozenset({"", "Canceled", "DeadlineExceeded", "Unavailable", "Aborted"})
"""Errors after which the driver may still be at work. "" stands for errors that are not from the driver."""
_INFEASIBLE_S: Final = 300.0
"""Time without a call after InvalidArgument."""


@dataclass(frozen=True, slots=True)
class ProvisionCall:
    """One request to make a volume. `number` counts from 1."""

    number: int
    claim: str
    """`namespace/name`."""
    node: str
    """"" where no node was chosen: the claim is of an Immediate class."""


Fault: TypeAlias = Callable[[ProvisionCall], str]
"""The error with which a call is to fail; "" if it is not to. It may also kill the provisioner in the middle of it."""


class ExternalProvisioner(Actor):
    """Provisions for `driver`, `delay_s` after a claim is ready for it, where the selected node is.

    A volume gets the node's values of the topology keys that its CSINode lists for the driver. With `topology_keys` it
    gets those of these labels, like the volume of a provisioner without a CSI driver, whose library (up to v12) looks at
    the Node instead of the CSINode. Without any key every node reaches it.

    `space` has the bytes of each segment, which is a value of `segment_key`. `reported` has the capacity of a dump.
    Without both it is unlimited. A call fails if `fault` returns an error or the capacity is not enough. After
    ResourceExhausted the claim loses its selected node, so that the scheduler chooses again. After other errors the call
    is repeated after `retry_s`. CSIStorageCapacity objects are published at the start and every `publishes_every_s`, or
    with every change if that is 0; those of `reported` only after a change.
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
        topology_keys: Sequence[str] | None = None,
        space: Mapping[str, int] | None = None,
        segment_key: str = "kubernetes.io/hostname",
        reported: ReportedCapacity | None = None,
        fault: Fault | None = None,
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
        self.refused: dict[str, str] = {}
        """Claim (`namespace/name`) without a volume that keeps its node → the error of the last attempt."""
        self.is_dead = False
        self.fault = fault
        self._delay_s = delay_s
        self._retry_s = retry_s
        self._topology_keys = None if topology_keys is None else tuple(topology_keys)
        self._segment_key = segment_key
        self._reported = reported
        self._publishes_every_s = publishes_every_s
        self._published = CapacityPublisher(server, segment_key, namespace=namespace)
        self._unbound: set[Key] = set()
        """Claims for which a volume was made and that are not known to be bound."""
        self._topologies = Topologies(driver, self._find)
        self._infeasible_until: dict[str, float] = {}
        """Uid of a claim whose call was refused as InvalidArgument → the time of its next call."""
        super().__init__(server, clock=clock)
        if publishes_every_s is not None:
            self._note(_PUBLISH)

    # -- life and death -----------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Forget everything that was under way, and hear nothing until `revive`. What is stored stays stored."""
        self.is_dead = True
        self._forget_all()
        self._topologies = Topologies(self.driver, self._find)
        self._infeasible_until.clear()

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
        if resource == _CLAIMS:
            if type_ != "DELETED" and self._is_mine(obj) and self._is_ready(obj):
                self._note(key_of(resource, obj), self._delay_s)
            else:
                self.refused.pop(_name_of(obj), None)
        elif resource == _VOLUMES and annotations_of(obj).get(PROVISIONED_BY) == self.driver:
            self._note(key_of(resource, obj))
            if type_ == "DELETED" and self._reported is not None:
                self._reported.give_back(obj)
                self._changed("")
        elif resource == "csinodes" or (resource == "nodes" and type_ != "MODIFIED"):
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
        if resource == CAPACITIES:
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
        rests_s = self._infeasible_until.get(typed.metadata.uid, 0) - self._clock.now()
        if rests_s > 0:
            self._note(key_of(_CLAIMS, claim), rests_s)
            return
        waits = storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        node = (typed.selected_node or "") if waits else ""
        self.refused.pop(typed.key, None)
        about = f'External provisioner is provisioning volume for claim "{typed.key}"'
        self._record(claim, "Normal", "Provisioning", about)
        try:
            place = self._place(claim, storage_class, node)
        except PopulatedError as why:
            about = "Assuming an external populator will provision the volume"
            self._record(claim, "Normal", "Provisioning", about)
            self.refused[typed.key] = str(why)
        except NotRequestedError as refusal:
            self._failed(claim, str(refusal), gives_back=refusal.gives_back)
        else:
            self._call(claim, storage_class, ProvisionCall(len(self.calls) + 1, typed.key, node), place)

    def _place(self, claim: Object, storage_class: Object, node: str) -> Place:
        """Return the place of the volume. Raises NotRequestedError and PopulatedError."""
        is_translated = storage_class["provisioner"] != self.driver
        check(claim, storage_class, self.driver, self._find)
        if not node:
            place = self._roomiest(storage_class["metadata"]["name"])
        elif self._topology_keys is None:
            allowed = () if is_translated else storage_class.get("allowedTopologies") or ()
            place = self._topologies.place(claim["metadata"]["uid"], node, allowed)
        else:
            found = self._find("nodes", node)
            if found is None:
                raise NotRequestedError(f'nodes "{node}" not found', gives_back=True)
            labels = found["metadata"].get("labels") or {}
            place = Place(tuple((key, labels[key]) for key in self._topology_keys if key in labels), labels)
        check_parameters(storage_class)
        return place

    def _roomiest(self, class_name: str) -> Place:
        """Return the segment with the most capacity, or every node where the capacity is unlimited."""
        labels: dict[str, str] = {}
        if self.space is not None:
            segment = max(sorted(self.space.size_bytes), key=self.space.free_bytes, default="")
            labels = {self._segment_key: segment}
        elif self._reported is not None:
            labels = self._reported.roomiest(class_name)
        return Place(tuple(labels.items()), labels)

    def _call(self, claim: Object, storage_class: Object, call: ProvisionCall, place: Place) -> None:
        self.calls.append(call)
        fault = self.fault(call) if self.fault is not None else ""
        if self.is_dead:
            return
        why = fault or self._no_capacity(claim, storage_class["metadata"]["name"], place)
        found = _CODE.search(why)
        code = found[1] if found is not None else ""
        if not why or code not in _IN_BACKGROUND:
            self._topologies.forget(claim["metadata"]["uid"])
        if not why:
            self._create(claim, storage_class, place)
            self._unbound.add(key_of(_CLAIMS, claim))
        elif code == "InvalidArgument":
            self._infeasible_until[claim["metadata"]["uid"]] = self._clock.now() + _INFEASIBLE_S
            why = f"Volume provisioning failed with infeasible error. Retries will be delayed. {why}"
            self._failed(claim, why, gives_back=False)
        else:
            has_topology = self._topology_keys is None or bool(self._topology_keys)
            self._failed(claim, why, gives_back=has_topology and code == "ResourceExhausted")

    def _no_capacity(self, claim: Object, class_name: str, place: Place) -> str:
        request = from_manifest(PersistentVolumeClaim, claim).request
        name, size = _volume_name(claim), 0 if request is None else request.value
        if self.space is not None:
            segment = place.labels.get(self._segment_key, "")
            if not self.space.take(name, segment, size):
                return _EXHAUSTED.format(where=f" in {segment}", size=size, free=self.space.free_bytes(segment))
        elif self._reported is not None and not self._reported.take(name, class_name, place.labels, size):
            return _EXHAUSTED.format(where="", size=size, free=self._reported.largest(class_name, place.labels))
        return ""

    def _failed(self, claim: Object, why: str, *, gives_back: bool) -> None:
        self.failures += 1
        self._record(claim, "Warning", "ProvisioningFailed", why)
        if gives_back and SELECTED_NODE in annotations_of(claim):
            self.rescheduled += 1
            del claim["metadata"]["annotations"][SELECTED_NODE]
            self._server.update(_CLAIMS, claim)
        else:
            self.refused[_name_of(claim)] = why
            self._note(key_of(_CLAIMS, claim), self._retry_s)

    def _create(self, claim: Object, storage_class: Object, place: Place) -> None:
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
        if place.topology:
            here = [{"key": key, "operator": "In", "values": [value]} for key, value in place.topology]
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
        self.provisioned += 1
        marks = {PROVISIONED_BY: self.driver}
        self._server.create(_VOLUMES, {"metadata": {"name": name, "annotations": marks}, "spec": made})
        self._record(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        self._changed(place.labels.get(self._segment_key, ""))

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
        if self._reported is not None:
            self._reported.publish()
            return
        if self.space is not None:
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
        if self._reported is not None:
            self._note(_PUBLISH, self._publishes_every_s or 0)
        elif self._publishes_every_s == 0:
            self._note((CAPACITIES, "", segment))


def _name_of(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _is_going(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
