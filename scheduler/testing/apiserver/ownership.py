"""Whose the annotations of a claim are: `metadata.managedFields`, as far as anybody of ours asks.

Only for claims, and of them only the annotations; what is here is as a real server has it, what is missing is just not
kept. An annotation belongs to whoever gave it its value last; saying the same again changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.testing.apiserver.resources import Resource

Object = dict[str, Any]
UNKNOWN: Final = "unknown"
"""Who says neither `fieldManager` nor User-Agent."""
_KEPT_FOR: Final = "persistentvolumeclaims"
_PATH: Final = ("f:metadata", "f:annotations")


def with_owners(resource: Resource, old: Object | None, new: Object, *, manager: str, subresource: str = "") -> None:
    """Write into `new`, which is about to be stored over `old`, whose its annotations are from now on."""
    if resource.name != _KEPT_FOR:
        return
    before, now = _annotations(old), _annotations(new)
    changed = {key for key, value in now.items() if before.get(key) != value}
    gone = before.keys() - now.keys()
    if not changed and not gone:
        return
    entries = [_without(entry, changed | gone) for entry in new["metadata"].get("managedFields") or []]
    if changed:
        own = _taken_out(entries, manager, subresource) or _entry(resource, manager, subresource)
        kept = own["fieldsV1"][_PATH[0]][_PATH[1]]
        own["fieldsV1"] = _fields(kept.keys() | {f"f:{key}" for key in changed})
        entries.append(own)
    entries = [entry for entry in entries if entry["fieldsV1"][_PATH[0]][_PATH[1]]]
    new["metadata"].pop("managedFields", None)
    if entries:
        new["metadata"]["managedFields"] = entries


def _annotations(obj: Object | None) -> Object:
    return (obj["metadata"].get("annotations") or {}) if obj is not None else {}


def _without(entry: Object, keys: set[str]) -> Object:
    held = entry["fieldsV1"][_PATH[0]][_PATH[1]]
    return entry | {"fieldsV1": _fields(held.keys() - {f"f:{key}" for key in keys})}


def _taken_out(entries: list[Object], manager: str, subresource: str) -> Object | None:
    for at, entry in enumerate(entries):
        if (entry["manager"], entry.get("subresource", "")) == (manager, subresource):
            return entries.pop(at)
    return None


def _entry(resource: Resource, manager: str, subresource: str) -> Object:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": resource.group_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(set()),
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _fields(keys: set[str]) -> Object:
    return {_PATH[0]: {_PATH[1]: {key: {} for key in sorted(keys)}}}
