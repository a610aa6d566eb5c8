"""Parameters of drivers, of which a server keeps the bytes: patches write them anew, and what is fixed may not change.

A strategic merge patch sorts the keys of the whole object, a merge patch only those that it brings. So the former is
refused for a claim whose parameters are fixed and not sorted. Spaces and escapes, of which the same is true, are not
known here.
"""

from __future__ import annotations

from typing import Any

from scheduler.testing.apiserver.problems import IS_FIXED, Problems, wrong

Object = dict[str, Any]


def with_sorted_keys(value: Any) -> Any:
    """What a patch brings, as it is stored."""
    if isinstance(value, dict):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}
    return [with_sorted_keys(item) for item in value] if isinstance(value, list) else value


def reordered(resource: str, old: Object, new: Object, *, subresource: str) -> Problems:
    """What speaks against a strategic merge patch that makes `new` of `old`."""
    if resource == "resourceclaimtemplates":
        return _fixed("spec", old["spec"]["spec"]["devices"])
    if resource != "resourceclaims":
        return []
    if not subresource:
        return _fixed("spec", old["spec"]["devices"])
    before, after = ((claim.get("status") or {}).get("allocation") for claim in (old, new))
    return _fixed("status.allocation", before["devices"]) if before and after else []


def _fixed(field: str, devices: Object) -> Problems:
    parameters = [config["opaque"]["parameters"] for config in devices.get("config") or ()]
    return [] if all(map(_is_sorted, parameters)) else [wrong(field, devices, IS_FIXED)]


def _is_sorted(value: Any) -> bool:
    if isinstance(value, dict):
        return list(value) == sorted(value) and all(map(_is_sorted, value.values()))
    return not isinstance(value, list) or all(map(_is_sorted, value))
