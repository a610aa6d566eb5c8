"""LIST: selectors, pages that show one moment, resourceVersion semantics."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.selectors import Predicate, compile_selectors
from scheduler.testing.apiserver.status import Refused, bad_request, expired
from scheduler.testing.apiserver.storage import Bucket, Entry, Storage, too_large

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def list_options_invalid(field: str, why: str) -> Refused:
    """422 for options that contradict each other."""
    text = f"Forbidden: {why}"
    details = {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [{"reason": "FieldValueForbidden", "message": text, "field": field}],
    }
    message = f'ListOptions.meta.k8s.io "" is invalid: {field}: {text}'
    return Refused(422, "Invalid", message, details=details)


def list_body(storage: Storage, resource: Resource, namespace: str, query: Mapping[str, str]) -> bytes:
    """The whole answer as JSON. Raises `Refused` as a real server."""
    _check_options(query)
    predicate = compile_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    bucket = storage.bucket(resource)
    limit = int(query.get("limit") or 0)
    token = _decode(query["continue"]) if query.get("continue") else None
    rv, entries = _picture(storage, bucket, query, token)
    rest = _after(entries, namespace, predicate, token.start if token else "")
    page = list(islice(rest, limit)) if limit else list(rest)
    left = sum(1 for _ in rest)
    metadata: dict[str, Any] = {"resourceVersion": str(rv)}
    if left:
        metadata["continue"] = _encode(rv, page[-1].key)
        if predicate is None:
            metadata["remainingItemCount"] = left
        bucket.at(rv)
    items = b",".join(entry.body(resource) for entry in page)
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.group_version}","metadata":'.encode()
    return b"".join((head, msgspec.json.encode(metadata), b',"items":[', items, b"]}"))


def _after(entries: list[Entry], namespace: str, predicate: Predicate | None, start: str) -> Any:
    return (
        entry
        for entry in entries
        if entry.key > start
        and (not namespace or entry.namespace == namespace)
        and (predicate is None or predicate(entry.obj))
    )


def _picture(
    storage: Storage, bucket: Bucket, query: Mapping[str, str], token: _Token | None
) -> tuple[int, list[Entry]]:
    if token is not None:
        if token.rv < 0:  # a token that was handed out with a 410: the present, from there on
            return storage.rv, bucket.ordered()
        then = bucket.at(token.rv)
        if then is None:
            refusal = expired(_TOO_OLD)
            refusal.list_metadata = {"continue": _encode(-1, token.start)}
            raise refusal
        return token.rv, then
    wanted = parse_version(query.get("resourceVersion", ""))
    if wanted > storage.rv:
        raise too_large(wanted, storage.rv)
    if wanted and query.get("resourceVersionMatch") == "Exact":
        then = bucket.at(wanted)
        if then is None:
            raise expired(f"The resourceVersion for the provided list is too old. Required: {wanted}")
        return wanted, then
    return storage.rv, bucket.ordered()


def _check_options(query: Mapping[str, str]) -> None:
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if "sendInitialEvents" in query:
        raise list_options_invalid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise list_options_invalid("resourceVersionMatch", why)
    if query.get("continue") and version not in {"", "0"}:
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        parse_version(version)
    except ValueError:
        syntax = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{version}": {syntax}') from None


def parse_version(text: str) -> int:
    """0 for none; raises ValueError."""
    if not text:
        return 0
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _encode(rv: int, start: str) -> str:
    token = msgspec.json.encode(_Token("meta.k8s.io/v1", rv, start))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode(text: str) -> _Token:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
