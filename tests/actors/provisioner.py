"""An external provisioner with storage whose bytes are known, with the errors of a test, that dies and comes back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers import ExternalProvisioner
from simulator.controllers.controller import Key, Object
from simulator.controllers.persistent_volume import provisioner_of
from simulator.controllers.provisioner import EXHAUSTED, PUBLISH, VOLUMES, name_of, node_of, size_of, volume_name
from simulator.controllers.storage_space import CAPACITIES
from simulator.controllers.volume_requests import Place, Topologies
from tests.actors.mortal import Mortal
from tests.actors.storage_space import CapacityPublisher, Space

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


class FaultyProvisioner(Mortal, ExternalProvisioner):
    """An ExternalProvisioner of which a test knows everything.

    `space` has the bytes of each segment, which is a value of `segment_key`. Without it the capacity is unlimited. A call
    fails if `fault` returns an error. Only after ResourceExhausted the claim loses its selected node. CSIStorageCapacity
    objects are published at the start and every `publishes_every_s`, or with every change if that is 0.
    """

    def __init__(
        self,
        server: ApiServer,
        driver: str,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        topology_keys: Sequence[str] | None = None,
        space: Mapping[str, int] | None = None,
        segment_key: str = "kubernetes.io/hostname",
        fault: Fault | None = None,
        publishes_every_s: float | None = None,
    ) -> None:
        self.space = None if space is None else Space(space)
        self.calls: list[ProvisionCall] = []
        self.provisioned = 0
        self.failures = 0
        self.rescheduled = 0
        """How often it gave a claim back to the scheduler."""
        self.fault = fault
        self.delay_s = delay_s
        self._segment_key = segment_key
        self._publishes = space is not None and publishes_every_s is not None
        self._published = CapacityPublisher(server, segment_key, namespace="kube-system")
        self._infeasible_until: dict[str, float] = {}
        """Uid of a claim whose call was refused as InvalidArgument → the time of its next call."""
        every_s = publishes_every_s or 0
        super().__init__(server, driver, clock=clock, topology_keys=topology_keys, publishes_every_s=every_s)
        if self._publishes:
            self._note(PUBLISH)

    def die(self) -> None:
        super().die()
        self._topologies = Topologies(self.driver, self._server.find)
        self._infeasible_until.clear()

    def revive(self) -> None:
        super().revive()
        if self._publishes:
            self._note(PUBLISH)

    def overdrawn(self) -> list[str]:
        """Return a sentence per segment with more bytes in volumes than it has."""
        return [] if self.space is None else self.space.overdrawn()

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        super()._heard(type_, resource, obj)
        if resource == "storageclasses" and type_ == "ADDED" and self._publishes:
            self._note(PUBLISH)

    def _handle(self, key: Key) -> None:
        resource, _, name = key
        if resource == CAPACITIES and self.space is not None:
            self._publish_free(self.space, name)
        elif resource == VOLUMES and self.space is not None and self._server.find(resource, name) is None:
            self._changed_in(self.space.give_back(name))
        else:
            super()._handle(key)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _provision(self, claim: Object) -> None:
        rests_s = self._infeasible_until.get(claim["metadata"]["uid"], 0) - self._clock.now()
        if rests_s > 0:
            self._note(("persistentvolumeclaims", claim["metadata"]["namespace"], claim["metadata"]["name"]), rests_s)
        else:
            super()._provision(claim)

    def _call(self, claim: Object, storage_class: Object, place: Place) -> None:
        call = ProvisionCall(len(self.calls) + 1, name_of(claim), node_of(claim, storage_class))
        self.calls.append(call)
        why = self.fault(call) if self.fault is not None else ""
        if self.is_dead:
            return
        found = _CODE.search(why)
        code = found[1] if found is not None else ""
        if not why:
            super()._call(claim, storage_class, place)
        elif code == "ResourceExhausted":
            self._answered(claim, storage_class, place, why)
        else:
            self._failed_otherwise(claim, why, code)

    def _failed_otherwise(self, claim: Object, why: str, code: str) -> None:
        uid = claim["metadata"]["uid"]
        if code not in _IN_BACKGROUND:
            self._topologies.forget(uid)
        if code == "InvalidArgument":
            self._infeasible_until[uid] = self._clock.now() + _INFEASIBLE_S
            why = f"Volume provisioning failed with infeasible error. Retries will be delayed. {why}"
        self._failed(claim, why, gives_back=False)

    def _failed(self, claim: Object, why: str, *, gives_back: bool) -> None:
        self.failures += 1
        super()._failed(claim, why, gives_back=gives_back)
        self.rescheduled += name_of(claim) not in self.refused

    def _create(self, claim: Object, storage_class: Object, place: Place) -> None:
        self.provisioned += 1
        super()._create(claim, storage_class, place)
        self._changed_in(place.labels.get(self._segment_key, ""))

    # -- capacity ------------------------------------------------------------------------------------------------------

    def _roomiest(self, class_name: str) -> Place:
        if self.space is None:
            return super()._roomiest(class_name)
        labels = {self._segment_key: max(sorted(self.space.size_bytes), key=self.space.free_bytes, default="")}
        return Place(tuple(labels.items()), labels)

    def _no_capacity(self, claim: Object, storage_class: Object, place: Place) -> str:
        if self.space is None:
            return super()._no_capacity(claim, storage_class, place)
        segment, size = place.labels.get(self._segment_key, ""), size_of(claim)
        if self.space.take(volume_name(claim), segment, size):
            return ""
        return EXHAUSTED.format(where=f" in {segment}", size=size, free=self.space.free_bytes(segment))

    def _changed(self) -> None:
        if self.space is None:
            super()._changed()

    def _changed_in(self, segment: str) -> None:
        if self._publishes and not self._publishes_every_s:
            self._note((CAPACITIES, "", segment))

    def _publish_free(self, space: Space, segment: str) -> None:
        """Publish the free bytes per class, of this segment or of all. The objects stay until the next call."""
        if self._publishes_every_s:
            self._note(PUBLISH, self._publishes_every_s)
            if self._has_unbound():
                return
        segments = [segment] if segment else sorted(space.size_bytes)
        for storage_class in self._server.objects("storageclasses"):
            if provisioner_of(storage_class) == self.driver:
                for each in segments:
                    self._published.publish(storage_class["metadata"]["name"], each, space.free_bytes(each))
