"""A DRA driver that publishes slices, taints devices, answers claims late or with failures, and dies.

Slices are written as by the ResourceSlice controller that drivers are built with: obsolete slices are deleted first,
then changed ones are rewritten, then new ones are created. The generation stays only if one write is enough.

The driver answers claims by binding conditions of allocated devices (docs/spec/dra.md §3.11).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import ResourceSlice
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.builders.core import Builder
from simulator.controllers import DRADriver
from simulator.controllers.controller import Key, Object, key_of
from simulator.controllers.dra_driver import id_of
from tests.actors.mortal import Mortal

Spec = dict[str, Any]


class Write(NamedTuple):
    """One write to one slice; `spec` is empty for a deletion."""

    verb: Literal["delete", "update", "create"]
    name: str
    spec: Spec


def writes(existing: Sequence[Object], wanted: Sequence[Spec], pool: Spec, *, prefix: str) -> list[Write]:
    """Return the writes of slices, in order. `pool` is its name and its lowest generation.

    Slices are named `<index>-<prefix>`, which is how they are known again.
    """
    newest = max((each["spec"]["pool"]["generation"] for each in existing), default=0)
    names = [f"{index:02x}-{prefix}" for index in range(len(wanted))]
    current = {
        each["metadata"]["name"]: each
        for each in existing
        if each["spec"]["pool"]["generation"] == newest and each["metadata"]["name"] in names
    }
    in_pool = {"name": pool["name"], "generation": newest, "resourceSliceCount": len(wanted)}
    changed = [
        name
        for name, spec in zip(names, wanted, strict=True)
        if name in current and _untimed(current[name]["spec"]) != _untimed(spec | {"pool": in_pool})
    ]
    is_new = len(current) < len(wanted) or len(changed) > 1
    generation = max(newest + is_new, pool.get("generation", 0))
    in_pool["generation"] = generation
    obsolete = [each["metadata"]["name"] for each in existing if each["metadata"]["name"] not in current]
    specs = {name: spec | {"pool": in_pool} for name, spec in zip(names, wanted, strict=True)}
    rewritten = [name for name in names if name in current and (name in changed or generation > newest)]
    return [
        *(Write("delete", name, {}) for name in obsolete),
        *(Write("update", name, with_times(specs[name], current[name]["spec"])) for name in rewritten),
        *(Write("create", name, specs[name]) for name in names if name not in current),
    ]


def with_times(spec: Spec, before: Spec) -> Spec:
    """Taints that stay keep the time at which they came."""
    times = {
        (device["name"], _taint(taint)): taint["timeAdded"]
        for device in before.get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    return spec | (
        {"devices": [_device_with_times(device, times) for device in spec["devices"]]} if spec.get("devices") else {}
    )


def _device_with_times(device: Object, times: dict[tuple[str, tuple[str, ...]], str]) -> Object:
    if not device.get("taints"):
        return device
    taints = []
    for taint in device["taints"]:
        since = times.get((device["name"], _taint(taint)))
        taints.append(taint if since is None or "timeAdded" in taint else taint | {"timeAdded": since})
    return device | {"taints": taints}


def _taint(taint: Object) -> tuple[str, ...]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _untimed(spec: Spec) -> Spec:
    devices = [
        device
        | (
            {"taints": [{key: taint[key] for key in taint if key != "timeAdded"} for taint in device["taints"]]}
            if device.get("taints")
            else {}
        )
        for device in spec.get("devices") or ()
    ]
    return {key: value for key, value in spec.items() if key != "devices"} | {"devices": devices}


_CLAIMS: Final = "resourceclaims"
_SLICES: Final = "resourceslices"


@dataclass(frozen=True, slots=True)
class Preparation:
    """One allocated device that a pod waits for. `number` counts from 1."""

    number: int
    claim: str
    """`namespace/name`."""
    device: str
    """`driver/pool/device`."""


Unprepared: TypeAlias = Callable[[Preparation], str | None]
"""The words with which it is to fail; "" if it is not to, None if it is never to be answered. It may kill the driver."""


class PublishingDriver(Mortal, DRADriver):
    """As its base, but leaves `slice_delay_s` between two slices that it writes.

    A preparation for which `fault` returns a message sets the first binding failure condition. A deleted slice of its
    pools is published again.
    """

    def __init__(
        self,
        server: ApiServer,
        driver: str,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        slice_delay_s: float = 0,
        fault: Unprepared | None = None,
    ) -> None:
        self.fault = fault
        self.preparations: list[Preparation] = []
        self.prepared = 0
        self.failures = 0
        self._slice_delay_s = slice_delay_s
        self._wanted: dict[str, list[Spec]] = {}
        self._asked: dict[str, int] = {}
        """Pool → the generation that it is to have at least."""
        self._underway: dict[str, deque[Write]] = {}
        self._writes_left: int | None = None
        self._unanswered: set[tuple[str, str]] = set()
        """Claim (uid) and device of which it will say nothing while the device stays allocated."""
        super().__init__(server, driver, clock=clock, delay_s=delay_s)

    # -- life and death -----------------------------------------------------------------------------------------------

    def die(self) -> None:
        super().die()
        self._underway.clear()

    def revive(self) -> None:
        """Come back, look at everything, and bring all pools to where they should be."""
        self._unanswered.clear()
        super().revive()
        for pool in self._wanted:
            self._note((_SLICES, "", pool))

    # -- slices -------------------------------------------------------------------------------------------------------

    def publish(self, *slices: Builder[ResourceSlice], pool: str = "", generation: int = 0) -> None:
        """Publish these slices as the whole pool, by default named as that of the first, in this generation at least.

        Names, generation and count of the slices are the driver's. Nothing is written before the next `step`.
        """
        specs: list[Spec] = [each.obj()["spec"] | {"driver": self.driver} for each in slices]
        name = pool or specs[0]["pool"]["name"]
        self._asked[name] = generation
        self._want(name, specs)

    def withdraw(self, pool: str) -> None:
        """All its slices go, one after the other."""
        self._want(pool, [])

    def taint(self, device: str, key: str, value: str = "", effect: str = "NoSchedule") -> None:
        """One more taint on `pool/device`."""
        added = {"key": key, "effect": effect} | ({"value": value} if value else {})
        self._change_taints(device, lambda taints: [*taints, added])

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of `pool/device` with this key."""
        self._change_taints(device, lambda taints: [each for each in taints if each["key"] != key])

    def stall_after(self, slice_count: int) -> None:
        """Stop after this many writes of slices. The pool then stays half published until `go_on`."""
        self._writes_left = slice_count

    def go_on(self) -> None:
        """Write what was held up."""
        self._writes_left = None
        for pool in self._underway:
            self._note((_SLICES, "", pool))

    @property
    def is_publishing(self) -> bool:
        """Some pool is not yet what it is to be."""
        return bool(self._underway) or any(resource == _SLICES for resource, _, _ in self._when)

    def _change_taints(self, device: str, change: Callable[[list[Object]], list[Object]]) -> None:
        pool, _, name = device.rpartition("/")
        specs = [dict(spec) for spec in self._wanted[pool]]
        found = False
        for spec in specs:
            devices = []
            for each in spec.get("devices") or ():
                is_meant = each["name"] == name
                found |= is_meant
                devices.append(each | {"taints": change(each.get("taints") or [])} if is_meant else each)
            if devices:
                spec["devices"] = devices
        if not found:
            raise KeyError(f"pool {pool} of {self.driver} has no device {name}")
        self._want(pool, specs)

    def _want(self, pool: str, specs: list[Spec]) -> None:
        self._wanted[pool] = specs
        self._underway.pop(pool, None)
        self._note((_SLICES, "", pool))

    def _publish(self, pool: str) -> None:
        """Return the next write of the pool, or all of them if nothing is to pass in between."""
        if pool not in self._underway:
            stored = [each for each in self._server.objects(_SLICES) if self._is_of(each, pool)]
            prefix = f"{self.driver}-{pool.replace('/', '-')}"
            in_pool = {"name": pool, "generation": self._asked.get(pool, 0)}
            self._underway[pool] = deque(writes(stored, self._wanted[pool], in_pool, prefix=prefix))
        left = self._underway[pool]
        while left and self._writes_left != 0:
            self._write(left[0])
            left.popleft()
            if self._writes_left is not None:
                self._writes_left -= 1
            if left and self._slice_delay_s:
                self._note((_SLICES, "", pool), self._slice_delay_s)
                return
        if not left:
            del self._underway[pool]
            if sum(self._is_of(each, pool) for each in self._server.objects(_SLICES)) != len(self._wanted[pool]):
                self._note((_SLICES, "", pool))

    def _write(self, write: Write) -> None:
        stored = self._server.find(_SLICES, write.name)
        if write.verb == "delete":
            if stored is not None:
                self._server.delete(_SLICES, write.name)
        elif stored is None:
            self._server.create(_SLICES, {"metadata": {"name": write.name}, "spec": write.spec})
        else:
            self._server.update(_SLICES, stored | {"spec": write.spec})

    def _is_of(self, obj: Object, pool: str) -> bool:
        spec = obj["spec"]
        return bool(spec["driver"] == self.driver and spec["pool"]["name"] == pool)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _CLAIMS:
            results = [] if type_ == "DELETED" else list(self._waiting(obj))
            uid, ids = obj["metadata"]["uid"], {_key(each) for each in results}
            self._unanswered = {each for each in self._unanswered if each[0] != uid or each[1] in ids}
            if any((uid, each) not in self._unanswered for each in ids):
                self._note(key_of(_CLAIMS, obj), self._delay_s)
        elif resource == _SLICES and type_ == "DELETED":
            for pool in self._wanted:
                if self._is_of(obj, pool) and pool not in self._underway:
                    self._note((_SLICES, "", pool))

    def _handle(self, key: Key) -> None:
        resource, _, name = key
        if resource == _SLICES:
            self._publish(name)
        else:
            super()._handle(key)

    # -- claims -------------------------------------------------------------------------------------------------------

    def _answer(self, claim: Object) -> None:
        with contextlib.suppress(_DiedError):
            super()._answer(claim)

    def _conditions(self, claim: Object, result: Object) -> list[Object]:
        """Return the conditions that the claim waits for, or the first failure condition."""
        metadata = claim["metadata"]
        if (metadata["uid"], _key(result)) in self._unanswered:
            return []
        device = f"{result['driver']}/{result['pool']}/{result['device']}"
        key = f"{metadata['namespace']}/{metadata['name']}"
        preparation = Preparation(len(self.preparations) + 1, key, device)
        self.preparations.append(preparation)
        words = self.fault(preparation) if self.fault is not None else ""
        if self.is_dead:
            raise _DiedError
        if words is None:
            self._unanswered.add((metadata["uid"], _key(result)))
            return []
        if words:
            self.failures += 1
            return self._true(result["bindingFailureConditions"][:1], "PreparationFailed", words)
        self.prepared += 1
        return super()._conditions(claim, result)


class _DiedError(Exception):
    """The driver died while it prepared a device, and writes nothing."""


def _key(result: Object) -> str:
    return "/".join(id_of(result).values())
