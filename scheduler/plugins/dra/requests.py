"""Whether a claim's requests can be asked at all, before any node is looked at (docs/spec/dra.md §3.3)."""

from __future__ import annotations

from scheduler.cache.devices import Devices
from scheduler.core.devicegates import PRIORITIZED_LIST
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.core.verdicts import Code

Problem = tuple[Code, tuple[str, ...]]


def request_problem(claim: ResourceClaim, devices: Devices, gates: frozenset[str]) -> Problem | None:
    """The first request that cannot be, with upstream's code and text."""
    for request in claim.spec.devices.requests:
        about = f"resource claim {claim.key}, request {request.name}"
        if request.exactly is not None:
            problem = _class_problem(request.exactly.device_class_name, request.name, devices)
        elif not request.first_available:
            problem = (Code.UNRESOLVABLE, (f"{about}: unknown request type",))
        elif PRIORITIZED_LIST not in gates:
            text = f"{about}: has subrequests, but the DRAPrioritizedList feature is disabled"
            problem = (Code.UNRESOLVABLE, (text,))
        else:
            found = (
                _class_problem(each.device_class_name, f"{request.name}/{each.name}", devices)
                for each in request.first_available
            )
            problem = next((each for each in found if each is not None), None)
        if problem is not None:
            return problem
    return None


def unreadable(devices: Devices, kind: str, key: str) -> str:
    """What to say behind "there is no such object" if there is one that cannot be read; else ""."""
    found = devices.broken.get((kind, key))
    return f" ({kind} {key} cannot be read: {found.why})" if found is not None else ""


def _class_problem(name: str, label: str, devices: Devices) -> Problem | None:
    if not name:
        return Code.ERROR, (f"request {label}: unsupported request type",)
    if devices.classes.get(name) is None:
        told = unreadable(devices, "DeviceClass", name)
        return Code.UNRESOLVABLE, (f"request {label}: device class {name} does not exist{told}",)
    return None
