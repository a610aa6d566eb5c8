"""JSON patch (RFC 6902) over plain objects: add, replace, remove and test. It does not change what it is given.

Nothing is dropped on the way, null included, which is why schedulers use it for what they only pass on.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from scheduler.testing.apiserver.status import Refused, bad_request

JSON: Final = "application/json-patch+json"
_END: Final = "-"


def operations(original: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Raises `Refused`: 400 for what is no list of operations, 422 for one that cannot be carried out or does not hold."""
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
    """Raises KeyError, IndexError, TypeError or ValueError where it cannot."""
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
    """The key, or the index in a list; `-` is behind its end."""
    if not isinstance(parent, list):
        return part
    at = len(parent) if part == _END else int(part)
    if not 0 <= at <= len(parent):
        raise IndexError(part)
    return at
