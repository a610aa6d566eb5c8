"""An external provisioner with its storage: it creates volumes on the selected node while there is capacity.

Its rules are those of external-provisioner 6.4 and of its library v13 (docs/spec/volumes.md §6.7). The driver behind it
answers at once. Its only error is that there is not enough storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import SELECTED_NODE, STORAGE_PROVISIONERS, WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers.controller import Actor, Key, Object, annotations_of, is_deleting, key_of, read
from simulator.controllers.persistent_volume import PROVISIONED_BY, provisioner_of
from simulator.controllers.storage_space import CAPACITIES, ReportedCapacity
from simulator.controllers.volume_requests import (
    NotRequestedError,
    Place,
    PopulatedError,
    Topologies,
    check,
    check_parameters,
)

_CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
PUBLISH: Final[Key] = (CAPACITIES, "", "")
EXHAUSTED: Final = "rpc error: code = ResourceExhausted desc = not enough free storage{where}: {size} of {free} bytes"


class ExternalProvisioner(Actor):
    """Provisions for `driver` where the selected node is, `delay_s` after a claim is ready for it.

    A volume gets the node's values of the topology keys that its CSINode lists for the driver. With `topology_keys` it
    gets those of these labels, like the volume of a provisioner without a CSI driver, whose library (up to v12) looks at
    the Node instead of the CSINode. Without any key every node reaches it.

    Its storage is what the CSIStorageCapacity objects report at the start. They are written `publishes_every_s` after a
    change. A claim for which it is not enough loses its selected node, so that the scheduler chooses again. After other
    errors the request is repeated after `retry_s`.
    """

    component = "external-provisioner"
    resources = ("storageclasses", VOLUMES, _CLAIMS)
    delay_s: float = 0

    def __init__(
        self,
        server: ApiServer,
        driver: str,
        *,
        clock: Clock | None = None,
        topology_keys: Sequence[str] | None = None,
        retry_s: float = 10,
        publishes_every_s: float = 0,
    ) -> None:
        self.driver = driver
        self.refused: dict[str, str] = {}
        """Claim (`namespace/name`) without a volume that keeps its node → the error of the last attempt."""
        self._retry_s = retry_s
        self._topology_keys = None if topology_keys is None else tuple(topology_keys)
        self._reported = ReportedCapacity(server, driver)
        self._publishes_every_s = publishes_every_s
        self._unbound: set[Key] = set()
        """Claims for which a volume was made and that are not known to be bound."""
        self._topologies = Topologies(driver, server.find)
        super().__init__(server, clock=clock)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _CLAIMS:
            if type_ != "DELETED" and self._is_mine(obj) and self._is_ready(obj):
                self._note(key_of(resource, obj), self.delay_s)
            else:
                self.refused.pop(name_of(obj), None)
        elif resource == VOLUMES and annotations_of(obj).get(PROVISIONED_BY) == self.driver:
            self._note(key_of(resource, obj))
            if type_ == "DELETED":
                self._deleted(obj)
        elif resource == "csinodes" or (resource == "nodes" and type_ != "MODIFIED"):
            for claim in self._server.objects(_CLAIMS):
                if self._is_mine(claim) and annotations_of(claim).get(SELECTED_NODE) == obj["metadata"]["name"]:
                    self._note(key_of(_CLAIMS, claim))

    def _is_mine(self, claim: Object) -> bool:
        """Return whether the claim waits for this driver and is not terminating."""
        given = annotations_of(claim)
        asked = next((given[key] for key in STORAGE_PROVISIONERS if key in given), "")
        return asked == self.driver and not claim["spec"].get("volumeName") and not is_deleting(claim)

    def _is_ready(self, claim: Object) -> bool:
        """Return whether the claim has the node that it needs."""
        typed = read(PersistentVolumeClaim, claim)
        if typed is None:
            return False
        storage_class = self._server.find("storageclasses", typed.storage_class)
        return storage_class is None or not _waits(storage_class) or bool(typed.selected_node)

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        obj = self._server.find(resource, name, namespace)
        if resource == CAPACITIES:
            self._publish()
        elif obj is None:
            return
        elif resource == VOLUMES:
            if obj["status"].get("phase") == "Released" and not is_deleting(obj):
                self._delete(obj)
        elif self._is_mine(obj) and self._server.find(VOLUMES, volume_name(obj)) is None:
            self._provision(obj)

    # -- volumes ------------------------------------------------------------------------------------------------------

    def _provision(self, claim: Object) -> None:
        typed = from_manifest(PersistentVolumeClaim, claim)
        storage_class = self._server.find("storageclasses", typed.storage_class)
        if storage_class is None or provisioner_of(storage_class) != self.driver or not self._is_ready(claim):
            return
        self.refused.pop(typed.key, None)
        about = f'External provisioner is provisioning volume for claim "{typed.key}"'
        self._record(claim, "Normal", "Provisioning", about)
        try:
            place = self._place(claim, storage_class)
        except PopulatedError as why:
            about = "Assuming an external populator will provision the volume"
            self._record(claim, "Normal", "Provisioning", about)
            self.refused[typed.key] = str(why)
        except NotRequestedError as refusal:
            self._failed(claim, str(refusal), gives_back=refusal.gives_back)
        else:
            self._call(claim, storage_class, place)

    def _place(self, claim: Object, storage_class: Object) -> Place:
        """Return the place of the volume. Raises NotRequestedError and PopulatedError."""
        node = node_of(claim, storage_class)
        is_translated = storage_class["provisioner"] != self.driver
        check(claim, storage_class, self.driver, self._server.find)
        if not node:
            place = self._roomiest(storage_class["metadata"]["name"])
        elif self._topology_keys is None:
            allowed = () if is_translated else storage_class.get("allowedTopologies") or ()
            place = self._topologies.place(claim["metadata"]["uid"], node, allowed)
        else:
            found = self._server.find("nodes", node)
            if found is None:
                raise NotRequestedError(f'nodes "{node}" not found', gives_back=True)
            labels = found["metadata"].get("labels") or {}
            place = Place(tuple((key, labels[key]) for key in self._topology_keys if key in labels), labels)
        check_parameters(storage_class)
        return place

    def _roomiest(self, class_name: str) -> Place:
        """Return the segment with the most capacity, or every node where the capacity is unlimited."""
        labels = self._reported.roomiest(class_name)
        return Place(tuple(labels.items()), labels)

    def _call(self, claim: Object, storage_class: Object, place: Place) -> None:
        self._answered(claim, storage_class, place, self._no_capacity(claim, storage_class, place))

    def _answered(self, claim: Object, storage_class: Object, place: Place, exhausted: str) -> None:
        """Create the volume, or give the claim back where there is an error."""
        self._topologies.forget(claim["metadata"]["uid"])
        if not exhausted:
            self._create(claim, storage_class, place)
            self._unbound.add(key_of(_CLAIMS, claim))
        else:
            has_topology = self._topology_keys is None or bool(self._topology_keys)
            self._failed(claim, exhausted, gives_back=has_topology)

    def _no_capacity(self, claim: Object, storage_class: Object, place: Place) -> str:
        """Take the capacity for the volume. Returns the error if it is not enough, otherwise ""."""
        size, class_name = size_of(claim), storage_class["metadata"]["name"]
        if self._reported.take(volume_name(claim), class_name, place.labels, size):
            return ""
        return EXHAUSTED.format(where="", size=size, free=self._reported.largest(class_name, place.labels))

    def _failed(self, claim: Object, why: str, *, gives_back: bool) -> None:
        self._record(claim, "Warning", "ProvisioningFailed", why)
        if gives_back and SELECTED_NODE in annotations_of(claim):
            del claim["metadata"]["annotations"][SELECTED_NODE]
            self._server.update(_CLAIMS, claim)
        else:
            self.refused[name_of(claim)] = why
            self._note(key_of(_CLAIMS, claim), self._retry_s)

    def _create(self, claim: Object, storage_class: Object, place: Place) -> None:
        name, metadata, spec = volume_name(claim), claim["metadata"], claim["spec"]
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
        marks = {PROVISIONED_BY: self.driver}
        self._server.create(VOLUMES, {"metadata": {"name": name, "annotations": marks}, "spec": made})
        self._record(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        self._changed()

    def _delete(self, volume: Object) -> None:
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            self._server.delete(VOLUMES, volume["metadata"]["name"])

    # -- capacity -----------------------------------------------------------------------------------------------------

    def _deleted(self, volume: Object) -> None:
        self._reported.give_back(volume)
        self._changed()

    def _changed(self) -> None:
        self._note(PUBLISH, self._publishes_every_s)

    def _publish(self) -> None:
        if self._publishes_every_s and self._has_unbound():
            self._note(PUBLISH, self._publishes_every_s)
        else:
            self._reported.publish()

    def _has_unbound(self) -> bool:
        """Return whether the claim of a new volume is not bound: no object is to be older than it looks."""
        self._unbound = {key for key in self._unbound if self._is_unbound(key)}
        return bool(self._unbound)

    def _is_unbound(self, key: Key) -> bool:
        claim = self._server.find(key[0], key[2], key[1])
        return claim is not None and (claim.get("status") or {}).get("phase") != "Bound" and not is_deleting(claim)


def name_of(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _waits(storage_class: Object) -> bool:
    return bool(storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER)


def node_of(claim: Object, storage_class: Object) -> str:
    """Return the node that the volume is for; "" for any: the class is Immediate."""
    return annotations_of(claim).get(SELECTED_NODE, "") if _waits(storage_class) else ""


def size_of(claim: Object) -> int:
    """Return the bytes that the claim requests."""
    request = from_manifest(PersistentVolumeClaim, claim).request
    return 0 if request is None else request.value
