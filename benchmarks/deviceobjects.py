"""The device objects of a run as bodies ready to be posted: classes, slices, templates and claims.

Deterministic, as `workload`. Knows no server; `deviceload` posts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.devices import (
    CLASS,
    CONSUMABLE,
    DRIVER,
    KINDS,
    MODEL,
    NUMA,
    OTHER_MODEL,
    PART_MIB,
    PARTITIONABLE,
    PROFILES,
    REQUEST,
    SHARE_STEP_MIB,
    SHARED_MIB,
    VERSION,
    Kind,
    claim_name,
    class_of,
    model_of_node,
    selector,
    share_mib,
    template_name,
)
from benchmarks.gangs import owner_of_claim
from benchmarks.workload import NAMESPACE, Workload, node_name
from scheduler.api.quantity import parse

_NUMA_NODES = 2
_MULTIPROCESSORS = 8
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Devices:
    """Of one workload that has devices."""

    workload: Workload

    @property
    def kind(self) -> Kind:
        return KINDS[self.workload.name]

    # -- what stays for all runs -------------------------------------------------------------------------------------

    def classes(self) -> Iterator[bytes]:
        """One for all devices, or one for each size of parts."""
        of_driver = f'device.driver == "{DRIVER}"'
        if self.workload.name != PARTITIONABLE:
            yield _device_class(CLASS, of_driver)
            return
        for profile in PROFILES:
            yield _device_class(profile, f'{of_driver} && device.attributes["{DRIVER}"].profile == "{profile}"')

    def slices(self) -> Iterator[bytes]:
        """One per node, or one with its counters and one with its devices."""
        is_cut = self.workload.name == PARTITIONABLE
        parts = {"counters": {"sharedCounters": self._counters()}} if is_cut else {}
        devices = {model: {"devices": list(self.devices(model))} for model in (MODEL, OTHER_MODEL)}
        for index in range(self.workload.nodes):
            node = node_name(index)
            parts["devices"] = devices[model_of_node(self.workload.name, index)]
            pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
            for what, part in parts.items():
                spec = {"driver": DRIVER, "nodeName": node, "pool": pool} | part
                yield _encode(_object("ResourceSlice", {"name": f"{node}-{what}"}, spec))

    def devices(self, model: str = MODEL) -> Iterator[dict[str, Any]]:
        """Of any node that has this model."""
        for number in range(self.kind.per_node):
            if self.workload.name == PARTITIONABLE:
                yield from _parts(number)
            elif self.workload.name == CONSUMABLE:
                shared = {"capacity": {"memory": _shared_memory()}, "allowMultipleAllocations": True}
                yield _device(number, SHARED_MIB) | shared
            else:
                yield _device(number, 1024 * (1 + number % 4), model)

    def templates(self) -> Iterator[bytes]:
        """One per shape."""
        for shape in range(self.workload.shapes if self.kind.is_template else 0):
            metadata = {"name": template_name(shape), "namespace": NAMESPACE}
            yield _encode(_object("ResourceClaimTemplate", metadata, {"spec": self.claim_spec(shape)}))

    def counter(self, name: str) -> int:
        """How much of one of its counters a device has as a whole."""
        return parse(_counter_set("name", 0, 1)["counters"][name]["value"]).value

    def _counters(self) -> list[dict[str, Any]]:
        return [_counter_set("name", number, 1) for number in range(self.kind.per_node)]

    # -- what is new in each run --------------------------------------------------------------------------------------

    def owners(self, pod_names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield what the claims are named after: the pods, or their groups, each with the number of its first pod."""
        seen = set()
        for index, pod in enumerate(pod_names):
            owner = owner_of_claim(self.workload.name, pod, index)
            if owner not in seen:
                seen.add(owner)
                yield index, owner

    def claim(self, owner: str, index: int) -> bytes:
        """Of one pod or group, where it is not made from a template."""
        metadata = {"name": claim_name(owner), "namespace": NAMESPACE}
        return _encode(_object("ResourceClaim", metadata, self.claim_spec(index)))

    def claim_spec(self, index: int) -> dict[str, Any]:
        """The requests of pod `index`."""
        workload, shapes = self.workload.name, self.workload.shapes
        exactly: dict[str, Any] = {
            "deviceClassName": class_of(workload, index, shapes),
            "selectors": [{"cel": {"expression": selector(index % shapes, self.kind.least_mib)}}],
            "allocationMode": "ExactCount",
            "count": self.kind.count,
        }
        if workload == CONSUMABLE:
            exactly["capacity"] = {"requests": {"memory": f"{share_mib(index, shapes)}Mi"}}
        devices: dict[str, Any] = {"requests": [{"name": REQUEST, "exactly": exactly}]}
        if self.kind.count > 1:
            devices["constraints"] = [{"requests": [REQUEST], "matchAttribute": NUMA}]
        return {"devices": devices}


def only_on(node_name: str) -> dict[str, Any]:
    """Where an allocation from a node's own slice can be used."""
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _object(kind: str, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _device_class(name: str, expression: str) -> bytes:
    return _encode(_object("DeviceClass", {"name": name}, {"selectors": [{"cel": {"expression": expression}}]}))


def _device(number: int, mib: int, model: str = MODEL) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": model},
            "driverVersion": {"version": VERSION},
            "numa": {"int": number % _NUMA_NODES},
        },
        "capacity": {"memory": {"value": f"{mib}Mi"}},
    }


def _shared_memory() -> dict[str, Any]:
    step = f"{SHARE_STEP_MIB}Mi"
    valid = {"min": step, "max": f"{SHARED_MIB}Mi", "step": step}
    return {"value": f"{SHARED_MIB}Mi", "requestPolicy": {"default": step, "validRange": valid}}


def _parts(number: int) -> Iterator[dict[str, Any]]:
    """All ways to cut one device: what one part takes is missing for the rest."""
    for profile, parts in PROFILES.items():
        for part in range(parts):
            whole = _device(number, PART_MIB // parts)
            yield whole | {
                "name": f"{whole['name']}-{profile}-{part}",
                "attributes": whole["attributes"] | {"profile": {"string": profile}},
                "consumesCounters": [_counter_set("counterSet", number, parts)],
            }


def _counter_set(key: str, number: int, parts: int) -> dict[str, Any]:
    """All of a device's counters, or the share of one of `parts`."""
    values = {"memory": f"{PART_MIB // parts}Mi", "multiprocessors": f"{_MULTIPROCESSORS // parts}"}
    return {key: f"gpu-{number}", "counters": {name: {"value": value} for name, value in values.items()}}
