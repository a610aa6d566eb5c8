"""What a server fills in and refuses when device kinds are made or changed.

They are claims and their templates, device classes, slices of devices, and the rules that taint devices. The status of a
claim is in `claims`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from scheduler.manifests.defaults import with_device_defaults
from simulator.apiserver.kinds import claims as claimchecks, slices as slicechecks
from simulator.apiserver.kinds.claims import status_problems, stored_status
from simulator.apiserver.kinds.defaults import NewRule, fill
from simulator.apiserver.kinds.fields import CONDITIONS
from simulator.apiserver.requests import Caller
from simulator.apiserver.resources import ApiResource, Served
from simulator.apiserver.status import IS_FIXED, readable, refuse
from simulator.apiserver.storage import Storage
from simulator.apiserver.validation import Problems, Rule, Table, at_most, wrong

Object = dict[str, Any]
_RULE_STATUS: Final = Table(("status.conditions", CONDITIONS, at_most(8)))


class Devices:
    """The device kinds of one server. The namespaces in its storage decide about admin access."""

    def __init__(self, storage: Storage, served: Served) -> None:
        self._spaces = storage.bucket(served.named("namespaces"))
        self._served = served

    def rules(self) -> dict[str, NewRule]:
        """Return the rules for a new object of each kind."""
        return dict.fromkeys(_DEFAULTS, self._created)

    def _created(self, resource: ApiResource, obj: Object, now: str) -> None:
        """Raise 400 or 422 if the object is invalid."""
        problems = _new_problems(resource, obj, now, self._served.minor)
        obj.pop("status", None)
        if resource.has_status:
            obj["status"] = {}
        spec = obj["spec"]
        found: Problems = []
        if resource.name == "resourceclaims":
            found = claimchecks.admin_spec(spec, self._space(obj))
        elif resource.name == "resourceclaimtemplates":
            found = claimchecks.admin_spec(spec["spec"], self._space(obj))
        refuse(resource, obj["metadata"]["name"], found + problems)
        _without_empty(spec, "devices", "sharedCounters")

    def changed(self, resource: ApiResource, old: Object, new: Object, now: str) -> Object:
        """Return `new` as it is stored in place of `old`, other than through /status. Raises 400 and 422."""
        if resource.name not in _DEFAULTS:
            return new
        new = new | {"spec": copy.deepcopy(new.get("spec") or {})}
        _fill(resource, new, now)
        before, after = old["spec"], new["spec"]
        if resource.name == "devicetaintrules":
            _with_time(before["taint"], after["taint"], now)
        found: Problems = []
        if resource.name != "resourceclaims":
            found = _CHECKS[resource.name](new, claimchecks.Checked(self._served.minor, before))
        if resource.name in _FIXED and before != after:
            found.append(wrong(after, IS_FIXED, at="spec"))
        refuse(resource, old["metadata"]["name"], found)
        _without_empty(after, "devices", "sharedCounters")
        return new

    def with_status(self, resource: ApiResource, old: Object, new: Object, caller: Caller) -> Object:
        """Return `new` as it is stored in place of `old` through /status. Raises 400 and 422."""
        name = old["metadata"]["name"]
        if resource.name == "resourceclaims":
            with readable(resource):
                new = new | {"status": stored_status(old, new)}
            problems = status_problems(
                resource, old, new, caller=caller, namespace=self._space(old), minor=self._served.minor
            )
            refuse(resource, name, problems)
        elif resource.name == "devicetaintrules":
            given = (new.get("status") or {}).get("conditions") or []
            new = new | {"status": {"conditions": given} if given else {}}
            refuse(resource, name, _RULE_STATUS(new))
        return new

    def _space(self, obj: Object) -> Object:
        return self._spaces.entries[obj["metadata"]["namespace"]].obj


def _new_problems(resource: ApiResource, obj: Object, now: str, minor: int) -> Problems:
    """Fill in a new object, in place, and return its problems but for admin access. Raises 400 for invalid amounts."""
    _fill(resource, obj, now)
    return _CHECKS[resource.name](obj, claimchecks.Checked(minor))


def check_new(resource: ApiResource, obj: Object, minor: int) -> None:
    """Fill in a new object, in place. Raises 400 or 422 if it is invalid; admin access is not checked."""
    refuse(resource, obj["metadata"]["name"], _new_problems(resource, obj, "", minor))


def _with_time(before: Object, after: Object, now: str) -> None:
    """Set the time of the effect, unless the object has one."""
    if before.get("effect") != after.get("effect") and before.get("timeAdded") == after.get("timeAdded"):
        after["timeAdded"] = now


# -- defaults --------------------------------------------------------------------------------------------------------


def _fill(resource: ApiResource, obj: Object, now: str) -> None:
    """In place. Raises 400 for amounts that are none."""
    if not isinstance(obj.get("spec"), dict):
        obj["spec"] = {}
    with readable(resource):
        _DEFAULTS[resource.name](obj["spec"], now)


def _fill_claim(spec: Object, _: str) -> None:
    devices = spec["devices"] = spec.get("devices") or {}
    _without_empty(devices, "constraints", "config")
    for entry in (*devices.get("constraints", ()), *devices.get("config", ())):
        _without_empty(entry, "requests")
    for request in devices.get("requests") or ():
        for one in claimchecks.requested(request):
            _without_empty(one, "selectors", "tolerations")
    spec |= with_device_defaults(spec)
    claimchecks.check_quantities(spec)


def _without_empty(holder: Object, *names: str) -> None:
    """Go leaves out lists and maps without anything in them."""
    for name in names:
        if holder.get(name) in (None, [], {}):
            holder.pop(name, None)


def _fill_template(spec: Object, now: str) -> None:
    spec["metadata"] = spec.get("metadata") or {}
    spec["spec"] = spec.get("spec") or {}
    _fill_claim(spec["spec"], now)


def _fill_slice(spec: Object, now: str) -> None:
    spec["pool"] = {"name": "", "generation": 0, "resourceSliceCount": 0} | (spec.get("pool") or {})
    for device in spec.get("devices") or ():
        _without_empty(device, *device)
        for taint in device.get("taints") or ():
            fill(taint, timeAdded=now)
        for capacity in (device.get("capacity") or {}).values():
            fill(capacity, value="0")
    slicechecks.check_amounts(spec)


def _fill_class(spec: Object, _: str) -> None:
    _without_empty(spec, "selectors", "config")


def _fill_rule(spec: Object, now: str) -> None:
    spec["taint"] = spec.get("taint") or {}
    fill(spec["taint"], timeAdded=now)


_DEFAULTS: Final[dict[str, Callable[[Object, str], None]]] = {
    "resourceclaims": _fill_claim,
    "resourceclaimtemplates": _fill_template,
    "resourceslices": _fill_slice,
    "deviceclasses": _fill_class,
    "devicetaintrules": _fill_rule,
}
_CHECKS: Final[dict[str, Rule]] = {
    "resourceclaims": claimchecks.CLAIM,
    "resourceclaimtemplates": claimchecks.TEMPLATE,
    "resourceslices": Table(("spec", slicechecks.slice_problems)),
    "deviceclasses": claimchecks.CLASS,
    "devicetaintrules": Table(("spec", slicechecks.taint_rule_problems)),
}
"""The context is `Checked`."""
_FIXED: Final = frozenset({"resourceclaims", "resourceclaimtemplates"})
