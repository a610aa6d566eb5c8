"""Manifests of claims for devices: `a_claim("c").request("r", "gpu", count=2, cel="device.driver == 'd'").obj()`.

Immutable like those of `core`. A device is written as everywhere, `driver/pool/device`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self, TypedDict, TypeVar, Unpack

from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM, FINALIZER, ResourceClaim
from scheduler.manifests.pods import POD_ENTRY
from simulator.builders.core import Builder, Manifest
from simulator.builders.devices import a_manifest, a_node_selector, a_selector, on_node

_T_co = TypeVar("_T_co", covariant=True)
_STATUS_DEVICES: Final = "status.devices"


class RequestOptions(TypedDict, total=False):
    """The options of a request."""

    count: int
    every: bool
    """All devices that match, in place of a number."""
    cel: str | tuple[str, ...]
    admin: bool
    capacity: dict[str, str]
    tolerations: list[Manifest]


class ResultOptions(TypedDict, total=False):
    """The options of a result."""

    admin: bool
    share: str
    consumed: dict[str, str]
    tolerations: list[Manifest]
    binding: tuple[str, ...]
    binding_failure: tuple[str, ...]


class _RequestsBuilder(Builder[_T_co]):
    """What claims and templates share."""

    _AT: ClassVar = "spec.devices"

    def request(self, name: str, device_class: str, **asked: Unpack[RequestOptions]) -> Self:
        """Add a request, by default for one device."""
        return self._append(f"{self._AT}.requests", {"name": name, "exactly": _exactly(device_class, asked)})

    def first_available(self, name: str, *options: Manifest) -> Self:
        """One more request that takes the first of these that can be had: `an_option`."""
        return self._append(f"{self._AT}.requests", {"name": name, "firstAvailable": list(options)})

    def match(self, attribute: str, *requests: str) -> Self:
        """All devices of these requests (of all, if none is named) have the same value."""
        return self._constraint(requests, matchAttribute=attribute)

    def distinct(self, attribute: str, *requests: str) -> Self:
        """No two devices of these requests (of all, if none is named) have the same value."""
        return self._constraint(requests, distinctAttribute=attribute)

    def config(self, driver: str, parameters: Manifest, *requests: str) -> Self:
        """One more configuration, of these requests (of all, if none is named)."""
        return self._append(f"{self._AT}.config", _config(driver, parameters, requests))

    def _constraint(self, requests: tuple[str, ...], **rule: str) -> Self:
        return self._append(f"{self._AT}.constraints", ({"requests": list(requests)} if requests else {}) | rule)


class ClaimBuilder(_RequestsBuilder[ResourceClaim]):
    """A claim that is not allocated and not reserved."""

    def allocated(self, *results: Manifest, on: str = "") -> Self:
        """Allocated: `a_result` each; usable on this node alone, or everywhere."""
        devices = {"results": list(results)} if results else {}
        selector = {"nodeSelector": on_node(on)} if on else {}
        allocated = self.set({"status": {"allocation": {"devices": devices} | selector}})
        return allocated if FINALIZER in allocated.finalizers else allocated.finalizer(FINALIZER)

    def usable_where(self, key: str, *values: str) -> Self:
        """Its allocation can be used on the nodes with one of these values."""
        return self.set({"status": {"allocation": {"nodeSelector": a_node_selector((key, "In", *values))}}})

    def allocated_config(self, source: str, driver: str, parameters: Manifest, *requests: str) -> Self:
        """One more configuration of the allocation, `FromClass` or `FromClaim`."""
        return self._append(
            "status.allocation.devices.config", {"source": source} | _config(driver, parameters, requests)
        )

    def allocated_at(self, timestamp: str) -> Self:
        """When it was allocated, as RFC 3339."""
        return self.set({"status": {"allocation": {"allocationTimestamp": timestamp}}})

    def reserved_for(self, pod_name: str, uid: str = "") -> Self:
        """Add a pod to the reservations. Its uid is by default `<name>-uid`."""
        return self._append(
            "status.reservedFor", {"resource": "pods", "name": pod_name, "uid": uid or f"{pod_name}-uid"}
        )

    def reserved_for_other(self, resource: str, name: str, uid: str, *, group: str = "") -> Self:
        """Something else than a pod may use it."""
        consumer = {"resource": resource, "name": name, "uid": uid} | ({"apiGroup": group} if group else {})
        return self._append("status.reservedFor", consumer)

    def condition(self, device: str, condition: str, status: str = "True", *, share: str = "", **more: str) -> Self:
        """Add a condition of an allocated device (`reason`, `message`, `lastTransitionTime` as more)."""
        at = _device(device) | ({"shareID": share} if share else {})
        made = {"type": condition, "status": status, "reason": "Reported", "message": ""}
        made |= {"lastTransitionTime": "2026-01-01T00:00:00Z"} | more
        entries = (self._manifest.get("status") or {}).get("devices") or []
        for index, entry in enumerate(entries):
            if {key: entry.get(key) for key in at} == at and bool(share) == ("shareID" in entry):
                others = [each for each in entry["conditions"] if each["type"] != condition]
                changed = entry | {"conditions": [*others, made]}
                return self.set({"status": {"devices": [*entries[:index], changed, *entries[index + 1 :]]}})
        return self._append(_STATUS_DEVICES, at | {"conditions": [made]})

    def owned_by(self, pod: str, uid: str, *, controller: bool = True) -> Self:
        """Made for this pod."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": controller}
        return self._append("metadata.ownerReferences", owner)

    def for_entry(self, entry: str) -> Self:
        """Made from a template, for this entry of its pod."""
        return self.annotation(POD_ENTRY, entry)

    def for_extended_resources(self) -> Self:
        """Made by a scheduler for a pod's extended resources."""
        return self.annotation(EXTENDED_RESOURCE_CLAIM, "true")

    def finalizer(self, name: str) -> Self:
        """One more finalizer."""
        return self._append("metadata.finalizers", name)

    def deleting(self) -> Self:
        """On its way out; for typed objects that never saw a server."""
        return self.set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}})

    @property
    def finalizers(self) -> list[str]:
        """Those it has."""
        return self._manifest["metadata"].get("finalizers") or []


class ClaimTemplateBuilder(_RequestsBuilder[Manifest]):
    """A template: every pod that names it gets a claim."""

    _AT: ClassVar = "spec.spec.devices"

    def claim_label(self, key: str, value: str = "") -> Self:
        """Add a label of the claims."""
        return self.set({"spec": {"metadata": {"labels": {key: value}}}})

    def claim_annotation(self, key: str, value: str) -> Self:
        """Add an annotation of the claims."""
        return self.set({"spec": {"metadata": {"annotations": {key: value}}}})


def a_claim(name: str, *, ns: str = "default") -> ClaimBuilder:
    """Return a claim without requests."""
    return ClaimBuilder(
        a_manifest("ResourceClaim", {"name": name, "namespace": ns}) | {"spec": {"devices": {}}}, ResourceClaim
    )


def a_claim_template(name: str, *, ns: str = "default") -> ClaimTemplateBuilder:
    """Return a template of claims without requests."""
    manifest = a_manifest("ResourceClaimTemplate", {"name": name, "namespace": ns})
    return ClaimTemplateBuilder(manifest | {"spec": {"spec": {"devices": {}}}}, dict)


def an_option(name: str, device_class: str, **asked: Unpack[RequestOptions]) -> Manifest:
    """One choice of a request that takes the first that can be had."""
    return {"name": name} | _exactly(device_class, asked)


def a_result(request: str, device: str, **given: Unpack[ResultOptions]) -> Manifest:
    """Return a device that was allocated for a request (`request` or `request/option`)."""
    told: Manifest = {"request": request} | _device(device)
    if given.get("admin"):
        told["adminAccess"] = True
    for key, value in (
        ("tolerations", given.get("tolerations")),
        ("bindingConditions", list(given.get("binding", ()))),
        ("bindingFailureConditions", list(given.get("binding_failure", ()))),
        ("shareID", given.get("share")),
        ("consumedCapacity", given.get("consumed")),
    ):
        if value:
            told[key] = value
    return told


def a_toleration(key: str = "", *, value: str = "", effect: str = "", seconds: int | None = None) -> Manifest:
    """Of a device's taint: `Equal` when a value is given, else `Exists`."""
    parts = {"key": key, "operator": "Equal" if value else "Exists", "value": value, "effect": effect}
    told: Manifest = {name: part for name, part in parts.items() if part}
    return told if seconds is None else told | {"tolerationSeconds": seconds}


def _exactly(device_class: str, options: RequestOptions) -> Manifest:
    made: Manifest = {"deviceClassName": device_class}
    if options.get("every"):
        made["allocationMode"] = "All"
    else:
        made |= {"allocationMode": "ExactCount", "count": options.get("count", 1)}
    cel = options.get("cel", ())
    for key, value in (
        ("selectors", a_selector(*((cel,) if isinstance(cel, str) else cel))),
        ("adminAccess", options.get("admin")),
        ("capacity", {"requests": options["capacity"]} if options.get("capacity") else None),
        ("tolerations", options.get("tolerations")),
    ):
        if value:
            made[key] = value
    return made


def _device(device: str) -> Manifest:
    driver, pool, name = device.split("/")
    return {"driver": driver, "pool": pool, "device": name}


def _config(driver: str, parameters: Manifest, requests: tuple[str, ...]) -> Manifest:
    of_some = {"requests": list(requests)} if requests else {}
    return of_some | {"opaque": {"driver": driver, "parameters": parameters}}
