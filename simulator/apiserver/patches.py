"""JSON patch (RFC 6902), merge patch and strategic merge patch over plain objects. None of them changes what it is given.

A JSON patch has add, replace, remove and test. It drops nothing, null included, so schedulers use it for what they only
pass on. The merge keys of a strategic merge patch are those of the fields that schedulers and their neighbours write;
any other list is replaced whole. `$setElementOrder` is accepted and ignored; `$retainKeys` is not known.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from simulator.apiserver.status import Refused, bad_request

JSON: Final = "application/json-patch+json"
_END: Final = "-"


def operations(original: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Raise `Refused`: 400 for an invalid list of operations, 422 for an operation that fails."""
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type []handlers.jsonPatchOp")
    result = copy.deepcopy(original)
    for step in patch:
        try:
            _carry_out(result, step)
        except (KeyError, IndexError, TypeError, ValueError):
            why = "the server rejected our request due to an error in our request"
            raise Refused(422, "Invalid", why, details={}) from None
    return result


def _carry_out(result: dict[str, Any], step: dict[str, Any]) -> None:
    """Raise KeyError, IndexError, TypeError or ValueError where it cannot."""
    _, *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")]
    parent: Any = result
    for part in way:
        parent = parent[_place(parent, part)]
    at = _place(parent, last)
    match step["op"]:
        case "add" if isinstance(parent, list):
            parent.insert(at, copy.deepcopy(step["value"]))
        case "add" | "replace":
            parent[at] = copy.deepcopy(step["value"])
        case "remove":
            del parent[at]
        case "test":
            if parent[at] != step["value"]:
                raise ValueError("does not hold")
        case other:
            raise ValueError(other)


def _place(parent: Any, part: str) -> Any:
    """Return the key, or the index in a list; `-` is behind its end."""
    if not isinstance(parent, list):
        return part
    at = len(parent) if part == _END else int(part)
    if not 0 <= at <= len(parent):
        raise IndexError(part)
    return at


MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_MERGE_KEYS: Final = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "drivers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_SETS: Final = frozenset({"finalizers"})
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def applied(original: dict[str, Any], patch: dict[str, Any] | list[Any], *, is_strategic: bool) -> dict[str, Any]:
    """Return the patched object. A list is a JSON patch. Raises `Refused`."""
    if isinstance(patch, list):
        return operations(original, patch)
    result: dict[str, Any] = strategic(original, patch) if is_strategic else merge(original, patch)
    return result


def merge(original: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """As kubectl's: lists with a merge key merge by it. Raises `Refused` (400) for an unknown directive."""
    directive = patch.get("$patch")
    rest = {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "replace":
        return rest
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise bad_request(f"unknown patch type: {directive}")
    result = dict(original)
    for key, value in rest.items():
        _apply(result, key, value)
    return result


def _apply(result: dict[str, Any], key: str, value: Any) -> None:
    if key.startswith(_ORDER):
        return
    if key.startswith(_DELETE_FROM):
        name = key.removeprefix(_DELETE_FROM)
        result[name] = [item for item in result.get(name) or [] if item not in value]
        if not result[name]:
            del result[name]
    elif value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        merged = strategic(result.get(key) or {}, value)
        if value.get("$patch") == "delete":
            result.pop(key, None)
        else:
            result[key] = merged
    elif isinstance(value, list):
        result[key] = _merge_lists(key, result.get(key) or [], value)
        if not result[key] and value:
            del result[key]
    else:
        result[key] = value


def _merge_lists(name: str, original: list[Any], patch: list[Any]) -> list[Any]:
    if name in _SETS:
        return _in_server_order(original, patch, [*original, *patch], None)
    key = _MERGE_KEYS.get(name)
    if name == "ports":
        key = "containerPort" if any("containerPort" in p for p in (*original, *patch)) else "port"
    return list(patch) if key is None else _merge_maps(key, original, patch)


def _merge_maps(key: str, original: list[Any], patch: list[Any]) -> list[Any]:
    items: dict[Any, Any] = {item.get(key): item for item in original}
    changed = []
    for element in patch:
        directive = element.get("$patch")
        if directive == "replace":
            return [item for item in patch if "$patch" not in item]
        if key not in element:
            raise bad_request(f"map: {element} does not contain declared merge key: {key}")
        if directive == "delete":
            items.pop(element[key], None)
            continue
        changed.append(element[key])
        items[element[key]] = strategic(items.get(element[key], {}), element)
    before = [item.get(key) for item in original]
    return _in_server_order(before, changed, list(items), items)


def _in_server_order(
    before: list[Any], patched: list[Any], after: list[Any], items: dict[Any, Any] | None
) -> list[Any]:
    """Return the merged order: named items in the order of the patch, other items before their successor on the server."""
    place = {key: i for i, key in enumerate(before)}
    after = list(dict.fromkeys(after))
    rest = [key for key in after if key not in patched]
    named = [key for key in dict.fromkeys(patched) if key in after]
    result: list[Any] = []
    while rest and named:
        is_first = named[0] in place and place[rest[0]] < place[named[0]]
        result.append(rest.pop(0) if is_first else named.pop(0))
    result += rest + named
    return result if items is None else [items[key] for key in result]
