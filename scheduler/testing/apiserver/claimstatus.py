"""The status of a claim: who may write what of it, and what of it may follow on what.

An allocation is set once and taken away when nobody has the claim reserved; what drivers say of its devices goes with
it. Writing it needs more than the right to write the status (docs/spec/dra.md §8.1). What a driver says beyond
conditions is taken as it is.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from scheduler.testing.apiserver import devicefields as fields
from scheduler.testing.apiserver.callers import Caller
from scheduler.testing.apiserver.claimchecks import (
    Requests,
    admin_needed,
    allows_admin,
    for_requests,
    request_names,
    request_reference,
)
from scheduler.testing.apiserver.problems import (
    IS_FIXED,
    Problems,
    in_each,
    in_set,
    not_allowed,
    not_supported,
    required,
    too_many,
    wrong,
)
from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.volumechecks import quantity

Object = dict[str, Any]
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


def stored_status(resource: Resource, old: Object, new: Object) -> Object:
    """The status of the claim that is sent over `old`, as it is stored: without what is empty or no longer there.

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


def status_problems(resource: Resource, old: Object, new: Object, *, caller: Caller, namespace: Object) -> Problems:
    """What speaks against storing `new`, whose status is as `stored_status` made it, in place of `old`."""
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


# -- who ---------------------------------------------------------------------------------------------------------------


def _admin(had: Object | None, has: Object | None, namespace: Object) -> Problems:
    if allows_admin(namespace) or any(result.get("adminAccess") for result in _results(had)):
        return []
    for at, result in enumerate(_results(has)):
        if result.get("adminAccess"):
            return admin_needed(f"status.allocation.devices.results[{at}].adminAccess")
    return []


def _rights(resource: Resource, before: Object, after: Object, *, caller: Caller, namespace: str) -> Problems:
    """The synthetic subresources: `binding` for the allocation and its users, `driver` for what drivers say."""
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


# -- what --------------------------------------------------------------------------------------------------------------


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


# -- parts -------------------------------------------------------------------------------------------------------------


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
