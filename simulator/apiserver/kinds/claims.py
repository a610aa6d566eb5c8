"""Validation of claims, templates and classes, and of the status of claims.

What a server finds wrong with the spec of a claim, of a template for claims, and of a device class.

The status of a claim: the rights that writes need, and the transitions that are valid.

An allocation is set once and removed when the claim has no reservation. What drivers report of its devices goes with
it. Writing it needs more than the right to write the status (docs/spec/dra.md §8.1). What a driver says beyond
conditions is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from scheduler.api.meta import label_key, subdomain
from simulator.apiserver.kinds import device_fields as fields
from simulator.apiserver.kinds.volumes import quantity
from simulator.apiserver.requests import Caller
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import (
    IS_FIXED,
    Problems,
    in_each,
    in_set,
    not_allowed,
    not_supported,
    required,
    too_many,
    wrong,
    wrong_each,
)

Object = dict[str, Any]
_MOST_SUBREQUESTS: Final = 8
_MOST_CONSTRAINTS: Final = 32
_MODES: Final = ("All", "ExactCount")
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


def admin_spec(spec: Object, namespace: Object) -> Problems:
    """Admin access needs a namespace that allows it. A server says so of the claim's field, of a template's too."""
    if allows_admin(namespace):
        return []
    for at, request in enumerate(_devices(spec).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return admin_needed(f"spec.devices.requests[{at}].adminAccess")
    return []


def allows_admin(namespace: Object) -> bool:
    return bool((namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true")


def admin_needed(field: str) -> Problems:
    return [not_allowed(field, _ADMIN_RULE)]


def check_quantities(resource: ApiResource, spec: Object) -> None:
    """Raise 400 for an amount that is none."""
    for request in _devices(spec).get("requests") or ():
        for one in requested(request):
            for amount in ((one.get("capacity") or {}).get("requests") or {}).values():
                quantity(resource, amount)


def requested(request: Object) -> list[Object]:
    """Return the alternatives of a request: one device request, or several."""
    exactly = request.get("exactly")
    return ([exactly] if exactly is not None else []) + (request.get("firstAvailable") or [])


def claim_spec(field: str, spec: Object) -> Problems:
    devices, field = _devices(spec), f"{field}.devices"
    names = request_names(spec)
    found = in_set(f"{field}.requests", devices.get("requests"), _request, key=_name, most=fields.MOST_REQUESTS)
    found += in_each(
        f"{field}.constraints",
        devices.get("constraints"),
        lambda at, constraint: _constraint(at, constraint, names),
        most=_MOST_CONSTRAINTS,
    )
    return found + in_each(
        f"{field}.config",
        devices.get("config"),
        lambda at, config: for_requests(at, config, names) + fields.configuration(at, config),
        most=fields.MOST_CONFIGS,
    )


def request_names(spec: Object) -> Requests:
    return {
        request.get("name", ""): frozenset(_name(sub) for sub in request.get("firstAvailable") or ())
        for request in _devices(spec).get("requests") or ()
    }


def request_reference(field: str, name: str, known: Requests) -> Problems:
    """`request` or `request/subrequest`."""
    parts = name.split("/")
    if len(parts) > 2:
        return [wrong(field, name, _NO_SUCH_REQUEST)]
    found = [problem for part in parts for problem in fields.device(field, part)]
    is_known = parts[0] in known and (len(parts) == 1 or parts[1] in known[parts[0]])
    return found if is_known else [*found, wrong(field, name, _NO_SUCH_REQUEST)]


def for_requests(field: str, entry: Object, known: Requests) -> Problems:
    """Return the requests that a constraint or a configuration is for."""
    return in_set(
        f"{field}.requests",
        entry.get("requests"),
        lambda at, name: request_reference(at, name, known),
        key=str,
        most=fields.MOST_REQUESTS,
    )


def template_spec(field: str, spec: Object) -> Problems:
    found = [
        not_allowed(f"{field}.metadata.{name}", "cannot be set")
        for name in ("name", "generateName", "uid", "finalizers")
        if (spec.get("metadata") or {}).get(name)
    ]
    return found + claim_spec(f"{field}.spec", spec.get("spec") or {})


def class_spec(field: str, spec: Object) -> Problems:
    found = fields.selectors(f"{field}.selectors", spec.get("selectors"))
    found += in_each(f"{field}.config", spec.get("config"), fields.configuration, most=fields.MOST_CONFIGS)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        found.append(wrong(f"{field}.extendedResourceName", name, "must be a valid extended resource name"))
    return found


def _is_extended(name: str) -> bool:
    is_native = "/" not in name or "kubernetes.io/" in name
    return not is_native and not name.startswith("requests.") and not label_key(f"requests.{name}")


def _devices(spec: Object) -> Object:
    devices: Object = spec.get("devices") or {}
    return devices


def _name(entry: Object) -> str:
    return str(entry.get("name", ""))


def _request(field: str, request: Object) -> Problems:
    found = fields.device(f"{field}.name", _name(request))
    exactly, options = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and options:
        return [*found, wrong(field, None, f"{_ONE_KIND}, but multiple fields are set")]
    if options:
        return found + in_set(f"{field}.firstAvailable", options, _subrequest, key=_name, most=_MOST_SUBREQUESTS)
    if exactly is not None:
        return found + _check_request(f"{field}.exactly", exactly)
    return [*found, required(field, _ONE_KIND)]


def _subrequest(field: str, request: Object) -> Problems:
    return fields.device(f"{field}.name", _name(request)) + _check_request(field, request)


def _check_request(field: str, one: Object) -> Problems:
    class_name = one.get("deviceClassName", "")
    found = wrong_each(f"{field}.deviceClassName", class_name, subdomain(class_name)) if class_name else []
    if not class_name:
        found.append(required(f"{field}.deviceClassName"))
    found += fields.selectors(f"{field}.selectors", one.get("selectors"))
    mode, count = one.get("allocationMode", ""), one.get("count", 0)
    if mode not in _MODES:
        found.append(not_supported(f"{field}.allocationMode", mode, _MODES))
    elif mode == "All" and count:
        found.append(wrong(f"{field}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        found.append(wrong(f"{field}.count", count, "must be greater than zero"))
    return found + in_each(f"{field}.tolerations", one.get("tolerations"), fields.toleration)


def _constraint(field: str, constraint: Object, known: Requests) -> Problems:
    found = for_requests(field, constraint, known)
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            return found + fields.fully_qualified(f"{field}.{name}", constraint[name])
    return [*found, required(field, _ONE_ATTRIBUTE)]


_MOST_RESULTS: Final = 32
_MOST_USERS: Final = 256
_MOST_CONDITIONS: Final = 8
_SOURCES: Final = ("FromClaim", "FromClass")
_NOT_ALLOCATED: Final = "may not be specified when `allocated` is not set"
_GOING: Final = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


class _DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str
    share_id: str

    def shown(self) -> Object:
        return {"Driver": self.driver, "Pool": self.pool, "Device": self.device, "ShareID": self.share_id}


def stored_status(resource: ApiResource, old: Object, new: Object) -> Object:
    """Return the status of the claim that is sent over `old`, as it is stored: without what is empty or no longer there.

    Raises 400 for amounts that are none.
    """
    status: Object = {key: value for key, value in (new.get("status") or {}).items() if value not in (None, [])}
    if "allocation" in status:
        status["allocation"] = {"devices": {}} | _without_empty(status["allocation"])
        for result in _results(status["allocation"]):
            for amount in (result.get("consumedCapacity") or {}).values():
                quantity(resource, amount)
    if "reservedFor" in status:
        status["reservedFor"] = [_user_status(user) for user in status["reservedFor"]]
    gone = _allocated(old) - _allocated({"status": status})
    devices = [_device_status(entry) for entry in status.pop("devices", []) if _id(entry) not in gone]
    return status | ({"devices": devices} if devices else {})


def status_problems(resource: ApiResource, old: Object, new: Object, *, caller: Caller, namespace: Object) -> Problems:
    """Return what speaks against storing `new`, whose status is as `stored_status` made it, in place of `old`."""
    before, after = old.get("status") or {}, new["status"]
    had, has = before.get("allocation"), after.get("allocation")
    found = _admin(had, has, namespace) + _rights(
        resource, before, after, caller=caller, namespace=new["metadata"]["namespace"]
    )
    users = after.get("reservedFor") or []
    found += in_set("status.reservedFor", users, _user, key=lambda user: user.get("uid", ""), most=_MOST_USERS)
    allocated = _allocated(new)
    found += in_set(
        "status.devices",
        after.get("devices"),
        lambda at, entry: _device(at, entry, allocated),
        key=lambda entry: _id(entry).shown(),
    )
    if users and has is None:
        found.append(not_allowed("status.reservedFor", _NOT_ALLOCATED))
    elif new["metadata"].get("deletionTimestamp") and any(u not in (before.get("reservedFor") or []) for u in users):
        found.append(not_allowed("status.reservedFor", _GOING))
    if had is not None and has is not None:
        return found + ([] if had == has else [wrong("status.allocation", has, IS_FIXED)])
    return found if has is None else found + _allocation("status.allocation", has, request_names(new["spec"]))


# -- rights ----------------------------------------------------------------------------------------------------------


def _admin(had: Object | None, has: Object | None, namespace: Object) -> Problems:
    if allows_admin(namespace) or any(result.get("adminAccess") for result in _results(had)):
        return []
    for at, result in enumerate(_results(has)):
        if result.get("adminAccess"):
            return admin_needed(f"status.allocation.devices.results[{at}].adminAccess")
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
            found.append(not_allowed("status.allocation", why))
    if after.get("allocation") is None:
        return found
    verb = f"arbitrary-node:{caller.verb}"
    for driver in sorted(_changed_drivers(before, after)):
        denied = caller.denied(resource, "driver", verb=verb, namespace=namespace, name=driver)
        if denied:
            why = f'changing status.devices requires resource="resourceclaims/driver", verb="[{verb}]" permission: {denied}'
            found.append(not_allowed("status.devices", why))
    return found


def _changed_drivers(before: Object, after: Object) -> set[str]:
    was, now = ({_id(entry): entry for entry in status.get("devices") or ()} for status in (before, after))
    return {device.driver for device in was.keys() | now.keys() if was.get(device) != now.get(device)}


# -- what ------------------------------------------------------------------------------------------------------------


def _user(field: str, user: Object) -> Problems:
    return [required(f"{field}.{name}") for name in ("resource", "name", "uid") if not user.get(name)]


def _allocation(field: str, allocation: Object, known: Requests) -> Problems:
    devices, selector = allocation["devices"], allocation.get("nodeSelector")
    found = in_each(
        f"{field}.devices.results",
        devices.get("results"),
        lambda at, result: _result(at, result, known),
        most=_MOST_RESULTS,
    )
    found += in_each(
        f"{field}.devices.config",
        devices.get("config"),
        lambda at, config: _source(at, config) + for_requests(at, config, known) + fields.configuration(at, config),
        most=2 * fields.MOST_CONFIGS,
    )
    return found if selector is None else found + fields.node_selector(f"{field}.nodeSelector", selector)


def _result(field: str, result: Object, known: Requests) -> Problems:
    found = request_reference(f"{field}.request", result.get("request", ""), known) + _device_name(field, result)
    found += fields.binding_conditions(field, result)
    return found + (fields.share_id(f"{field}.shareID", result["shareID"]) if "shareID" in result else [])


def _device_name(field: str, entry: Object) -> Problems:
    found = fields.driver(f"{field}.driver", entry.get("driver", ""))
    found += fields.pool(f"{field}.pool", entry.get("pool", ""))
    return found + fields.device(f"{field}.device", entry.get("device", ""))


def _source(field: str, config: Object) -> Problems:
    source = config.get("source", "")
    if not source:
        return [required(f"{field}.source")]
    return [] if source in _SOURCES else [not_supported(f"{field}.source", source, _SOURCES)]


def _device(field: str, entry: Object, allocated: set[_DeviceId]) -> Problems:
    found = _device_name(field, entry)
    if "shareID" in entry:
        found += fields.share_id(f"{field}.shareID", entry["shareID"])
    if _id(entry) not in allocated:
        found.append(wrong(field, _id(entry).shown(), "must be an allocated device in the claim"))
    conditions = entry["conditions"] or []
    if len(conditions) > _MOST_CONDITIONS:
        found.append(too_many(f"{field}.conditions", len(conditions), _MOST_CONDITIONS))
    return found + fields.conditions(f"{field}.conditions", conditions)


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
