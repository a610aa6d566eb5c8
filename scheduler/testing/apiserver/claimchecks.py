"""What a server finds wrong with the spec of a claim, of a template for claims, and of a device class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.core.names import label_key, subdomain
from scheduler.testing.apiserver import devicefields as fields
from scheduler.testing.apiserver.problems import (
    Problems,
    in_each,
    in_set,
    not_allowed,
    not_supported,
    required,
    wrong,
    wrong_each,
)
from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.volumechecks import quantity

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


def check_quantities(resource: Resource, spec: Object) -> None:
    """Raises 400 for an amount that is none."""
    for request in _devices(spec).get("requests") or ():
        for one in asked(request):
            for amount in ((one.get("capacity") or {}).get("requests") or {}).values():
                quantity(resource, amount)


def asked(request: Object) -> list[Object]:
    """What a request asks for: one thing, or the first of several that there is."""
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
    """The requests that a constraint or a configuration is for."""
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
        return found + _asked(f"{field}.exactly", exactly)
    return [*found, required(field, _ONE_KIND)]


def _subrequest(field: str, request: Object) -> Problems:
    return fields.device(f"{field}.name", _name(request)) + _asked(field, request)


def _asked(field: str, one: Object) -> Problems:
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
