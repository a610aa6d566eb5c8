"""Validation of claims, templates and classes, and of the status of claims.

An allocation is set once and removed when the claim has no reservation. What drivers report of its devices goes with
it. Writing it needs more than the right to write the status (docs/spec/dra.md §8.1). What a driver says beyond
conditions is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from scheduler.api.meta import dns_label, label_key, subdomain
from scheduler.api.quantity import parse
from simulator.apiserver.kinds.fields import (
    BINDING_CONDITIONS,
    CONDITIONS,
    CONFIGURATION,
    DEVICE_ID,
    NODE_SELECTOR,
    SELECTORS,
    TOLERATION,
    amounts,
    fully_qualified,
    share_id,
)
from simulator.apiserver.requests import Caller
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import IS_FIXED
from simulator.apiserver.validation import (
    Problems,
    Stop,
    Table,
    at_most,
    forbidden,
    missing,
    must,
    name_of,
    names,
    not_allowed,
    one_of,
    positive,
    required,
    unique,
    when,
    wrong,
)

Object = dict[str, Any]
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_ADMIN_RULE: Final = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_ATTRIBUTE: Final = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
)
Requests = Mapping[str, frozenset[str]]
"""Names of requests and of what each of them may be satisfied by."""


class Checked(NamedTuple):
    """The context of the tables: the server's minor version, and the spec that the object replaces, None for a new one."""

    minor: int
    old: Object | None = None


class _Known(NamedTuple):
    """The context of tables that refer to requests."""

    minor: int
    requests: Requests
    old: Mapping[str, Object] = {}
    """Requests of the spec that is replaced, by name."""


def admin_spec(spec: Object, namespace: Object) -> Problems:
    """Admin access needs a namespace that allows it. A server says so of the claim's field, of a template's too."""
    if allows_admin(namespace):
        return []
    for at, request in enumerate(_devices(spec).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return [not_allowed(_ADMIN_RULE, at=f"spec.devices.requests[{at}].adminAccess")]
    return []


def allows_admin(namespace: Object) -> bool:
    return bool((namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true")


def check_quantities(spec: Object) -> None:
    """Raise ValueError for an amount that is none."""
    for request in _devices(spec).get("requests") or ():
        for one in requested(request):
            for amount in ((one.get("capacity") or {}).get("requests") or {}).values():
                parse(amount)


def requested(request: Object) -> list[Object]:
    """Return the alternatives of a request: one device request, or several."""
    exactly = request.get("exactly")
    return ([exactly] if exactly is not None else []) + (request.get("firstAvailable") or [])


def request_names(spec: Object) -> Requests:
    return {
        request.get("name", ""): frozenset(name_of(sub) for sub in request.get("firstAvailable") or ())
        for request in _devices(spec).get("requests") or ()
    }


def _devices(spec: Object) -> Object:
    devices: Object = spec.get("devices") or {}
    return devices


# -- spec ------------------------------------------------------------------------------------------------------------


def _reference(name: Any, context: _Known) -> Problems:
    """`request` or `request/subrequest`."""
    known = context.requests
    first, *rest = parts = (name or "").split("/")
    if len(parts) > 2:
        return [wrong(name, _NO_SUCH_REQUEST)]
    found = [wrong(part, why) for part in parts for why in dns_label(part)]
    is_known = first in known and (not rest or rest[0] in known[first])
    return found if is_known else [*found, wrong(name or "", _NO_SUCH_REQUEST)]


def _one_kind(request: Any, _: Any) -> Problems:
    exactly, options = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and options:
        return Stop([wrong(None, f"{_ONE_KIND}, but multiple fields are set")])
    return [] if options or exactly is not None else [missing(_ONE_KIND)]


def _one_attribute(constraint: Any, context: _Known) -> Problems:
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            return [each.below(name) for each in fully_qualified(constraint[name], context)]
    return [missing(_ONE_ATTRIBUTE)]


def _is_extended(name: str) -> bool:
    is_native = "/" not in name or "kubernetes.io/" in name
    return not is_native and not name.startswith("requests.") and not label_key(f"requests.{name}")


def _capacities(request: Any, context: _Known) -> Problems:
    """Check requested capacities but for those that the object had before: the user cannot change them."""
    before = dict(_capacities_of(context.old.get(name_of(request)) or {}))
    return [
        each.below(f"{place}.capacity.requests")
        for place, capacities in _capacities_of(request)
        if capacities != before.get(place)
        for each in amounts(capacities, context)
    ]


def _capacities_of(request: Object) -> Iterator[tuple[str, Any]]:
    """Yield each alternative of a request, by place, with what it requests of capacities."""
    holders = {"exactly": request.get("exactly")}
    holders |= {f"firstAvailable[{at}]": each for at, each in enumerate(request.get("firstAvailable") or ())}
    for place, holder in holders.items():
        yield place, ((holder or {}).get("capacity") or {}).get("requests")


_NO_COUNT: Final = must(lambda count: not count, "must not be specified when allocationMode is 'All'")
_DEVICE_REQUEST: Final = Table(
    ("deviceClassName", required(), names(subdomain)),
    ("selectors", SELECTORS),
    ("allocationMode", one_of("All", "ExactCount")),
    ("", when(lambda request: request.get("allocationMode") == "All", ("count", _NO_COUNT))),
    ("", when(lambda request: request.get("allocationMode") == "ExactCount", ("count", positive))),
    ("tolerations[*]", TOLERATION),
)
_FOR_REQUESTS: Final = Table(("requests", at_most(32)), ("requests[*]", _reference), ("requests", unique()))
"""The requests that a constraint or a configuration is for."""
_SPEC: Final = Table(
    ("devices.requests", at_most(32)),
    ("devices.requests[*].name", names(dns_label)),
    ("devices.requests[*]", _one_kind),
    ("devices.requests[*].firstAvailable", at_most(8)),
    ("devices.requests[*].firstAvailable[*].name", names(dns_label)),
    ("devices.requests[*].firstAvailable[*]", _DEVICE_REQUEST),
    ("devices.requests[*].firstAvailable", unique(name_of)),
    ("devices.requests[*].exactly?", _DEVICE_REQUEST),
    ("devices.requests[*]", _capacities),
    ("devices.requests", unique(name_of)),
    ("devices.constraints", at_most(32)),
    ("devices.constraints[*]", _FOR_REQUESTS, _one_attribute),
    ("devices.config", at_most(32)),
    ("devices.config[*]", _FOR_REQUESTS, CONFIGURATION),
)


def _claim_spec(spec: Any, context: Checked) -> Problems:
    spec, old = spec or {}, context.old or {}
    before = {name_of(request): request for request in _devices(old.get("spec") or old).get("requests") or ()}
    return _SPEC(spec, _Known(context.minor, request_names(spec), before))


CLAIM: Final = Table(("spec", _claim_spec))
TEMPLATE: Final = Table(
    *((f"spec.metadata.{name}", forbidden("cannot be set")) for name in ("name", "generateName", "uid", "finalizers")),
    ("spec.spec", _claim_spec),
)
CLASS: Final = Table(
    ("spec.selectors", SELECTORS),
    ("spec.config", at_most(32)),
    ("spec.config[*]", CONFIGURATION),
    ("spec.extendedResourceName?", must(_is_extended, "must be a valid extended resource name")),
)


# -- status ----------------------------------------------------------------------------------------------------------

_NOT_ALLOCATED: Final = "may not be specified when `allocated` is not set"
_GOING: Final = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


class _DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str
    share_id: str

    def shown(self) -> Object:
        return {"Driver": self.driver, "Pool": self.pool, "Device": self.device, "ShareID": self.share_id}


def stored_status(old: Object, new: Object) -> Object:
    """Return the status of the claim that is sent over `old`, as it is stored: without what is empty or no longer there.

    Raises ValueError for amounts that are none.
    """
    status: Object = {key: value for key, value in (new.get("status") or {}).items() if value not in (None, [])}
    if "allocation" in status:
        status["allocation"] = {"devices": {}} | _without_empty(status["allocation"])
        for result in _results(status["allocation"]):
            for amount in (result.get("consumedCapacity") or {}).values():
                parse(amount)
    if "reservedFor" in status:
        status["reservedFor"] = [_user_status(user) for user in status["reservedFor"]]
    gone = _allocated(old) - _allocated({"status": status})
    devices = [_device_status(entry) for entry in status.pop("devices", []) if _id(entry) not in gone]
    return status | ({"devices": devices} if devices else {})


def _is_allocated(entry: Any, allocated: set[_DeviceId]) -> Problems:
    known = _id(entry) in allocated
    return [] if known else [wrong(_id(entry).shown(), "must be an allocated device in the claim")]


_USERS: Final = Table(
    ("status.reservedFor", at_most(256)),
    *((f"status.reservedFor[*].{name}", required()) for name in ("resource", "name", "uid")),
    ("status.reservedFor", unique(lambda user: user.get("uid", ""))),
)
_DEVICES: Final = Table(
    ("status.devices[*]", DEVICE_ID),
    ("status.devices[*].shareID?", share_id),
    ("status.devices[*]", _is_allocated),
    ("status.devices[*].conditions", at_most(8, stops=False), CONDITIONS),
    ("status.devices", unique(lambda entry: _id(entry).shown())),
)
"""The context are the devices that are allocated."""
_ALLOCATION: Final = Table(
    ("devices.results", at_most(32)),
    ("devices.results[*].request", _reference),
    ("devices.results[*]", DEVICE_ID, BINDING_CONDITIONS),
    ("devices.results[*].shareID?", share_id),
    ("devices.results[*].consumedCapacity", amounts),
    ("devices.config", at_most(64)),
    ("devices.config[*].source", required(), one_of("FromClaim", "FromClass")),
    ("devices.config[*]", _FOR_REQUESTS, CONFIGURATION),
    ("nodeSelector?", NODE_SELECTOR),
)


def status_problems(
    resource: ApiResource, old: Object, new: Object, *, caller: Caller, namespace: Object, minor: int
) -> Problems:
    """Return what speaks against storing `new`, whose status is as `stored_status` made it, in place of `old`."""
    before, after = old.get("status") or {}, new["status"]
    had, has = before.get("allocation"), after.get("allocation")
    found = _admin(had, has, namespace) + _rights(
        resource, before, after, caller=caller, namespace=new["metadata"]["namespace"]
    )
    users = after.get("reservedFor") or []
    found += _USERS(new) + _DEVICES(new, _allocated(new))
    if users and has is None:
        found.append(not_allowed(_NOT_ALLOCATED, at="status.reservedFor"))
    elif new["metadata"].get("deletionTimestamp") and any(u not in (before.get("reservedFor") or []) for u in users):
        found.append(not_allowed(_GOING, at="status.reservedFor"))
    if has is None or had == has:
        return found
    known = _Known(minor, request_names(new["spec"]))
    refused = [wrong(has, IS_FIXED)] if had is not None else _ALLOCATION(has, known)
    return found + [each.below("status.allocation") for each in refused]


# -- rights ----------------------------------------------------------------------------------------------------------


def _admin(had: Object | None, has: Object | None, namespace: Object) -> Problems:
    if allows_admin(namespace) or any(result.get("adminAccess") for result in _results(had)):
        return []
    for at, result in enumerate(_results(has)):
        if result.get("adminAccess"):
            return [not_allowed(_ADMIN_RULE, at=f"status.allocation.devices.results[{at}].adminAccess")]
    return []


def _rights(resource: ApiResource, before: Object, after: Object, *, caller: Caller, namespace: str) -> Problems:
    """Return the synthetic subresources: `binding` for the allocation and its users, `driver` for what drivers say."""
    found: Problems = []
    if any(before.get(name) != after.get(name) for name in ("allocation", "reservedFor")):
        denied = caller.denied(resource, "binding", verb=caller.verb)
        if denied:
            why = (
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{caller.verb}" permission: {denied}'
            )
            found.append(not_allowed(why, at="status.allocation"))
    if after.get("allocation") is None:
        return found
    verb = f"arbitrary-node:{caller.verb}"
    for driver in sorted(_changed_drivers(before, after)):
        denied = caller.denied(resource, "driver", verb=verb, namespace=namespace, name=driver)
        if denied:
            why = f'changing status.devices requires resource="resourceclaims/driver", verb="[{verb}]" permission: {denied}'
            found.append(not_allowed(why, at="status.devices"))
    return found


def _changed_drivers(before: Object, after: Object) -> set[str]:
    was, now = ({_id(entry): entry for entry in status.get("devices") or ()} for status in (before, after))
    return {device.driver for device in was.keys() | now.keys() if was.get(device) != now.get(device)}


# -- parts -----------------------------------------------------------------------------------------------------------


def _user_status(user: Object) -> Object:
    return {key: value for key, value in user.items() if value}


def _device_status(entry: Object) -> Object:
    kept = {key: value for key, value in entry.items() if value is not None}
    return kept | {"conditions": entry.get("conditions")}


def _allocated(claim: Object) -> set[_DeviceId]:
    return {_id(result) for result in _results((claim.get("status") or {}).get("allocation"))}


def _results(allocation: Object | None) -> list[Object]:
    return ((allocation or {}).get("devices") or {}).get("results") or []


def _id(entry: Object) -> _DeviceId:
    return _DeviceId(*(entry.get(name) or "" for name in ("driver", "pool", "device", "shareID")))


def _without_empty(value: Any) -> Any:
    """As Go writes it: without nulls and empty lists, but for what is opaque."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item not in (None, [])}
        return {key: item if key == "parameters" else _without_empty(item) for key, item in kept.items()}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
