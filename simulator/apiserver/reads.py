"""LIST and WATCH: selectors, pages, bookmarks, and streams, which turn writes into lines."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.api.selectors import requirement_matches
from simulator.apiserver.kinds import events
from simulator.apiserver.kinds.defaults import NODE_INFO
from simulator.apiserver.resources import CORE_FIELDS, DEVICES, REGARDING, ApiResource
from simulator.apiserver.status import Refused, bad_request, expired
from simulator.apiserver.storage import Bucket, Entry, Storage, StorageEvent, head, too_large

Predicate = Callable[[dict[str, Any]], bool]

_TOKEN: Final = re.compile(r"\s*(\(|\)|,|!=|==|=|!|>|<|[^\s(),!=<>]+)")
_FIELD_TERM: Final = re.compile(r"(?:\\.|[^,])+")
_FIELD_OPERATOR: Final = re.compile(r"!=|==|=")
_ESCAPED: Final = re.compile(r"\\.?|[,=]")
_OLD_EVENT_FIELDS: Final = {
    **{f"involvedObject.{name}": (f"regarding.{name}",) for name in REGARDING},
    "reason": ("reason",),
    "type": ("type",),
    "reportingComponent": ("reportingController",),
    "source": ("deprecatedSource.component", "reportingController"),
}
"""What can be selected under core/v1, and where it is stored: the first that is not empty counts."""


def compile_selectors(resource: ApiResource, labels: str, fields: str) -> Predicate | None:
    """None when both are empty. Raises `Refused` (400) in the server's words."""
    tests = [*_label_tests(labels), *_field_tests(resource, fields)]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


# -- labels ----------------------------------------------------------------------------------------------------------


def _label_tests(text: str) -> list[Predicate]:
    if not text.strip():
        return []
    requirements = _Parser(text).requirements()
    return [lambda obj: all(requirement_matches(*each, obj["metadata"].get("labels") or {}) for each in requirements)]


_Requirement: TypeAlias = tuple[str, str, tuple[str, ...]]
"""Key, operator of a label selector, and values."""
_OPERATORS: Final = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


class _Parser:
    """`a=b,c!=d,e in (f,g),h,!i,j>1`."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)[::-1]

    def requirements(self) -> list[_Requirement]:
        found = [self._requirement()]
        while self._peek() == ",":
            self._next()
            found.append(self._requirement())
        if self._peek():
            self._fail(self._peek())
        return found

    def _requirement(self) -> _Requirement:
        key = self._next()
        if key == "!":
            return self._next(), "DoesNotExist", ()
        if self._peek() in {"", ","}:
            return key, "Exists", ()
        word = self._next()
        if word not in _OPERATORS:
            self._fail(word)
        if word in {"in", "notin"}:
            return key, _OPERATORS[word], self._values()
        return key, _OPERATORS[word], (self._next() if self._peek() not in {"", ","} else "",)

    def _values(self) -> tuple[str, ...]:
        if self._next() != "(":
            raise bad_request("unable to parse requirement: expected: '('")
        values = []
        while (item := self._next()) != ")":
            if not item:
                raise bad_request("unable to parse requirement: found '', expected: ',', ')' or identifier")
            if item != ",":
                values.append(item)
        return tuple(values) or ("",)

    def _peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _next(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def _fail(self, found: str) -> None:
        expected = "in, notin, =, ==, !=, gt, lt"
        raise bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


# -- fields ----------------------------------------------------------------------------------------------------------


def _field_tests(resource: ApiResource, text: str) -> list[Predicate]:
    return [_field_test(resource, term, text) for term in _FIELD_TERM.findall(text)]


def _field_test(resource: ApiResource, term: str, text: str) -> Predicate:
    operator = _FIELD_OPERATOR.search(term)
    if operator is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    path, value = term[: operator.start()], _ESCAPED.sub(_unescaped, term[operator.end() :])
    places = [stored.split(".") for stored in _stored_paths(resource, path)]
    equal = operator[0] != "!="
    return lambda obj: (next(filter(None, (_text_at(obj, keys) for keys in places)), "") == value) is equal


def _unescaped(found: re.Match[str]) -> str:
    """In a value, backslash, comma and equals sign stand behind a backslash, and nothing else does."""
    sign = found[0]
    if not sign.startswith("\\"):
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(sign)}")
    if sign[1:] not in {"\\", ",", "="}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {sign}")
    return sign[1:]


def _stored_paths(resource: ApiResource, path: str) -> tuple[str, ...]:
    if path in CORE_FIELDS:
        return (path,)
    if resource.is_core_event and path in _OLD_EVENT_FIELDS:
        return _OLD_EVENT_FIELDS[path]
    if path in resource.selectable and not resource.is_core_event:
        return (path,)
    if resource.selectable:
        kind = f" for {resource.group_version}, Kind={resource.kind}" if resource.group == DEVICES else ""
        raise bad_request(f"field label not supported{kind}: {path}")
    known = '"metadata.name", "metadata.namespace"' if resource.namespaced else '"metadata.name"'
    raise bad_request(f'"{path}" is not a known field selector: only {known}')


def _text_at(obj: dict[str, Any], keys: list[str]) -> str:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return "false" if keys[-1] in {"unschedulable", "hostNetwork"} else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


_META: Final = "meta.k8s.io/v1"


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


def list_body(
    storage: Storage, resource: ApiResource, namespace: str, query: Mapping[str, str], *, is_outline: bool = False
) -> bytes:
    """Return the whole answer as JSON, or with `is_outline` the metadata of the objects. Raises `Refused` as a real server."""
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
    items = b",".join(_outline(entry) if is_outline else entry.body(resource) for entry in page)
    kind, version = ("PartialObjectMetadata", _META) if is_outline else (resource.kind, resource.group_version)
    head = f'{{"kind":"{kind}List","apiVersion":"{version}","metadata":'.encode()
    return b"".join((head, msgspec.json.encode(metadata), b',"items":[', items, b"]}"))


def _outline(entry: Entry) -> bytes:
    outline = {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": entry.obj["metadata"]}
    return msgspec.json.encode(outline)


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
    token = msgspec.json.encode(_Token(_META, rv, start))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode(text: str) -> _Token:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None


_TEMPLATE: Final = {"metadata": {}, "spec": {"containers": None}}
_REPLICAS: Final = {"replicas": 0, "selector": None, "template": _TEMPLATE}
_ZEROS: Final[dict[str, dict[str, Any]]] = {
    "pods": {"spec": {"containers": None}, "status": {}},
    "nodes": {
        "spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": NODE_INFO},
    },
    "namespaces": {"spec": {}, "status": {}},
    "services": {"spec": {}, "status": {"loadBalancer": {}}},
    "replicationcontrollers": {"spec": {}, "status": {"replicas": 0}},
    "persistentvolumes": {"spec": {}, "status": {}},
    "persistentvolumeclaims": {"spec": {"resources": {}}, "status": {}},
    "events": {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    "replicasets": {"spec": _REPLICAS, "status": {"replicas": 0}},
    "statefulsets": {
        "spec": _REPLICAS | {"serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    "poddisruptionbudgets": {
        "spec": {},
        "status": dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0),
    },
    "storageclasses": {"provisioner": ""},
    "csinodes": {"spec": {"drivers": None}},
    "csidrivers": {"spec": {}},
    "csistoragecapacities": {"storageClassName": ""},
    "volumeattachments": {"spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": False}},
    "resourceclaims": {"spec": {"devices": {"requests": None}}, "status": {}},
    "resourceslices": {"spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}},
    "deviceclasses": {"spec": {}},
    "resourceclaimtemplates": {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
    "devicetaintrules": {"spec": {"taint": {"key": "", "effect": ""}}, "status": {}},
    "leases": {"spec": {}},
    "priorityclasses": {"value": 0},
}


def zero(resource: ApiResource) -> dict[str, Any]:
    """Return the fields besides kind, apiVersion and metadata."""
    if not resource.is_core_event:
        return _ZEROS.get(resource.name, {})
    core = events.to_core(_ZEROS["events"]) | {"reportingComponent": "", "reportingInstance": ""}
    return {key: value for key, value in core.items() if key != "apiVersion"}


INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Stream:
    """The lines of one watch that wait to be sent. `ready` is set while there are some, or when it has ended."""

    def __init__(self, resource: ApiResource, namespace: str, predicate: Predicate | None, *, after: int = 0) -> None:
        """Skip objects that are not newer than `after`, as a server does after a restore from a backup."""
        self.resource = resource
        self.ready = asyncio.Event()
        self.flowing = asyncio.Event()
        """Not set while the server keeps what is queued to itself."""
        self.flowing.set()
        self.is_ended = False
        self._after = after
        self._namespace = namespace
        self._predicate = predicate
        self._lines: list[bytes] = []

    def offer(self, event: StorageEvent) -> None:
        """Queue the line for one write, if this watch is to see it."""
        if event.rv <= self._after or (self._namespace and event.entry.namespace != self._namespace):
            return
        matched = event.before is not None and self._matches(event.before)
        matches = event.type != "DELETED" and self._matches(event.entry)
        if matches:
            self._line("MODIFIED" if matched else "ADDED", event.entry.full(self.resource))
        elif matched:
            self._line("DELETED", self._last(event).full(self.resource))

    def add(self, entry: Entry) -> None:
        """Queue an object that was there when the watch began."""
        if (not self._namespace or entry.namespace == self._namespace) and self._matches(entry):
            self._line("ADDED", entry.full(self.resource))

    def bookmark(self, rv: int, *, initial: bool = False) -> None:
        """Send a bookmark. `initial` marks the end of the initial events."""
        if rv < self._after:
            return
        metadata: dict[str, Any] = {"resourceVersion": str(rv)}
        if initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        outline: dict[str, Any] = {"metadata": metadata} | zero(self.resource)
        self._line("BOOKMARK", head(self.resource) + msgspec.json.encode(outline)[1:])

    def fail(self, refusal: Refused) -> None:
        """Queue an ERROR event and end."""
        self._line("ERROR", msgspec.json.encode(refusal.body()))
        self.end()

    def end(self) -> None:
        """Let the response end after what is queued, as a real server does at any moment."""
        self.is_ended = True
        self.flowing.set()
        self.ready.set()

    def take(self) -> bytes:
        """Everything queued, as one chunk."""
        chunk = b"".join(self._lines)
        self._lines.clear()
        if not self.is_ended:
            self.ready.clear()
        return chunk

    def _matches(self, entry: Entry) -> bool:
        return self._predicate is None or self._predicate(entry.obj)

    def _last(self, event: StorageEvent) -> Entry:
        """Return a deleted object as it was; one that left the selector as it was before, at the new resourceVersion."""
        if event.type == "DELETED" or event.before is None:
            return event.entry
        before = event.before.obj
        old = before | {"metadata": before["metadata"] | {"resourceVersion": str(event.rv)}}
        return Entry(event.before.key, old, event.rv)

    def _line(self, type_: str, obj: bytes) -> None:
        self._lines.append(b'{"type":"%b","object":%b}\n' % (type_.encode(), obj))
        self.ready.set()


def open_stream(
    storage: Storage, resource: ApiResource, namespace: str, query: Mapping[str, str], *, watch_list: bool
) -> Stream:
    """Return a stream with everything queued that precedes the present. The caller registers it in the same breath."""
    initial = query.get("sendInitialEvents") == "true"
    _check_watch_options(query, watch_list=watch_list)
    predicate = compile_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    text = query.get("resourceVersion", "")
    try:
        rv = parse_version(text)
    except ValueError:
        syntax = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise Refused(500, "", f'resourceVersion: Invalid value: "{text}": {syntax}') from None
    bucket = storage.bucket(resource)
    stream = Stream(resource, namespace, predicate, after=0 if initial else rv)
    if initial or rv == 0:
        if query.get("sendInitialEvents") != "false":
            for entry in bucket.ordered():
                stream.add(entry)
        if initial and _wants_bookmarks(query):
            stream.bookmark(storage.rv, initial=True)
        return stream
    try:
        for event in bucket.since(rv, storage.rv):
            stream.offer(event)
    except Refused as refusal:
        stream.fail(refusal)
    return stream


def _wants_bookmarks(query: Mapping[str, str]) -> bool:
    return query.get("allowWatchBookmarks") in {"true", "1"}


def _check_watch_options(query: Mapping[str, str], *, watch_list: bool) -> None:
    match = query.get("resourceVersionMatch", "")
    if "sendInitialEvents" not in query:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise list_options_invalid("resourceVersionMatch", why)
        return
    if not watch_list:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise list_options_invalid("sendInitialEvents", why)
    if match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise list_options_invalid("resourceVersionMatch", why)
