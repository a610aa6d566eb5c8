"""HTTP on top of the registry: one handler for every path, faults in front of it, streams behind it.

Send the lines of a `Stream` as the body of a response: to the proper end, or until a fault cuts the watch.
"""

from __future__ import annotations

import asyncio
import hmac
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from scheduler.core.clock import Clock, done_within
from scheduler.kube.writes.claim_protobuf import CONTENT_TYPE
from simulator.apiserver import patches, patches as jsonpatch, reviews
from simulator.apiserver.faults import Fault, Faults, Request, WatchFault, refusal
from simulator.apiserver.kinds import claim_protobuf as claimproto, opaque, versions as faces
from simulator.apiserver.reads import Stream, list_body, open_stream
from simulator.apiserver.registry import Registry
from simulator.apiserver.requests import UNKNOWN, Caller, Target, denied, target
from simulator.apiserver.resources import VERBS, ApiResource, Served
from simulator.apiserver.status import Refused, bad_request, expired
from simulator.apiserver.storage import Entry, Storage


async def pump(stream: Stream, response: web.StreamResponse) -> None:
    """Send everything queued as one chunk, again and again, until the stream has ended."""
    while True:
        await stream.ready.wait()
        await stream.flowing.wait()
        is_ended = stream.is_ended
        if chunk := stream.take():
            await response.write(chunk)
        if is_ended:
            break
    await response.write_eof()


async def pump_and_cut(
    stream: Stream, response: web.StreamResponse, fault: WatchFault, rng: random.Random, clock: Clock
) -> bool:
    """Send line by line, some of them late, and cut the watch when its time is over. True: by a reset, left to the caller."""
    lives_s, end = rng.uniform(*fault.lives_s), rng.choice(fault.ends)
    if await done_within(clock, _pump_lines(stream, response, fault, rng, clock), lives_s):
        return False
    if end == "reset":
        return True
    if end == "gone":
        stream.take()
        stream.fail(expired("too old resource version: injected fault"))
        await response.write(stream.take())
    await response.write_eof()
    return False


async def _pump_lines(
    stream: Stream, response: web.StreamResponse, fault: WatchFault, rng: random.Random, clock: Clock
) -> None:
    while True:
        await stream.ready.wait()
        await stream.flowing.wait()
        is_ended = stream.is_ended
        for line in stream.take().splitlines(keepends=True):
            if rng.random() < fault.late:
                await clock.sleep(rng.uniform(*fault.late_s))
            await response.write(line)
        if is_ended:
            break
    await response.write_eof()


_HEALTH: Final = frozenset({"/readyz", "/livez", "/healthz"})
_DEFAULT_WATCH_S: Final = 1800.0
_NOT_FOUND_IS_STATUS: Final = 38
"""From this minor version on a path of no API is answered with a `Status`."""
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Logged:
    """One request that was answered (or cut: status 0)."""

    request: Request
    status: int


@dataclass(slots=True)
class Behaviour:
    """What can be switched while the server runs."""

    watch_list: bool
    bookmark_interval_s: float
    forbidden: set[tuple[str, str]]
    """(verb, resource) pairs that are answered 403; resource as `pods` or `pods/binding`.

    What has no path is denied where it is needed: `patch` on `resourceclaims/binding`, `arbitrary-node:patch` on
    `resourceclaims/driver`.
    """
    held: set[str]
    """Resources whose watches are silent; "" for all."""
    people: reviews.People = field(default_factory=reviews.People)
    token: str = field(default="", repr=False)
    """Bearer token that every request must have, but those for health; empty: none."""


class Handler:
    """Answers requests. Holds the open streams and the log; everything else is the registry's."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        served: Served,
        *,
        clock: Clock,
        faults: Faults,
        behaviour: Behaviour,
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._served = served
        self._clock = clock
        self._faults = faults
        self._behaviour = behaviour
        self.log: deque[Logged] = deque(maxlen=200_000)
        self.streams: dict[Stream, asyncio.Transport | None] = {}
        self.is_closing = False
        """Watches that are opened end at once: a connection that is served to its end must have one."""

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in _HEALTH:
            return web.Response(text="ok")
        try:
            self._authenticate(request)
            return await self._answer(request, path)
        except Refused as refused:
            return _refusal(refused)

    def _authenticate(self, request: web.BaseRequest) -> None:
        """Raise 401 for a request without the token."""
        wanted, given = self._behaviour.token, request.headers.get("Authorization", "")
        if wanted and not hmac.compare_digest(given.encode(errors="replace"), f"Bearer {wanted}".encode()):
            raise Refused(401, "Unauthorized", "Unauthorized")

    async def _answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        found = None if path in reviews.PATHS else target(self._served, path)
        if found is None:
            return await self._outside(request, path)
        query = request.query
        what = found.request(request.method, watch=query.get("watch") in {"true", "1"})
        try:
            response = await self._through_faults(request, found, what, query)
        except Refused as refused:
            self.log.append(Logged(what, refused.code))
            raise
        if what.verb != "watch":
            self.log.append(Logged(what, response.status))
        return response

    async def _outside(self, request: web.BaseRequest, path: str) -> web.Response:
        if path in reviews.PATHS and request.method == "POST" and self._serves(path):
            return await self._review(request, path)
        document = discovery_document(self._served, path) if request.method == "GET" else None
        if document is None:
            if self._served.minor >= _NOT_FOUND_IS_STATUS:
                return _refusal(Refused(404, "NotFound", "404 page not found"))
            return web.Response(status=404, text="404 page not found\n")
        return _json(_encode(document))

    def _serves(self, review: str) -> bool:
        return reviews.group_version(review) in self._served.group_versions

    async def _review(self, request: web.BaseRequest, path: str) -> web.Response:
        """Log a request and apply faults, except for reviews of the client's rights."""
        resource, asked = reviews.resource(path), _decoded(await request.read())
        what = Request("create", resource.name, "", "", "")
        fault = self._faults.strike(what) if self._faults.rules and path != reviews.SELF else None
        if fault is not None:
            await self._suffer_as(what, fault)
            if fault.reset:
                return self._cut(request, what)
        if (what.verb, what.resource) in self._behaviour.forbidden:
            raise denied(what, resource)
        if path != reviews.SELF:
            self.log.append(Logged(what, 201))
        return _json(_encode(reviews.answer(path, asked, self._behaviour.people, self._behaviour.forbidden)), 201)

    async def _suffer_as(self, what: Request, fault: Fault) -> None:
        try:
            await self._suffer(fault)
        except Refused as refused:
            self.log.append(Logged(what, refused.code))
            raise

    async def _through_faults(
        self, request: web.BaseRequest, found: Target, what: Request, query: Mapping[str, str]
    ) -> web.StreamResponse:
        resource = what.resource + (f"/{what.subresource}" if what.subresource else "")
        if (what.verb, resource) in self._behaviour.forbidden:
            raise denied(what, found.resource)
        fault = self._faults.strike(what) if self._faults.rules else None
        if fault is not None:
            await self._suffer(fault)
            if fault.reset == "before":
                return self._cut(request, what)
            if fault.body is not None:
                return _json(fault.body)
        if what.verb == "watch":
            return await self._watch(request, found, what, query, fault.watch if fault is not None else None)
        body = await request.read() if request.can_read_body else b""
        response = self._carry_out(request, found, what, body)
        if fault is not None and fault.reset == "after":
            return self._cut(request, what)
        return response

    async def _suffer(self, fault: Fault) -> None:
        if fault.delay_s:
            await self._clock.sleep(fault.delay_s)
        if fault.status:
            raise refusal(fault)

    def _cut(self, request: web.BaseRequest, what: Request) -> web.Response:
        self.log.append(Logged(what, 0))
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("cut by a fault rule")

    # -- everything but watches ---------------------------------------------------------------------------------------

    def _carry_out(self, request: web.BaseRequest, found: Target, what: Request, body: bytes) -> web.Response:
        resource, namespace, name = found.resource, found.namespace, found.name
        manager = request.query.get("fieldManager") or _client(request) or UNKNOWN
        registry = self._registry.by(Caller(manager, what.verb, self._behaviour.forbidden))
        match what.verb:
            case "list":
                is_outline = "as=PartialObjectMetadataList" in request.headers.get("Accept", "")
                return _json(list_body(self._storage, resource, namespace, request.query, is_outline=is_outline))
            case "get":
                return _shown(request, resource, registry.entry(resource, namespace, name))
            case "create" if what.subresource == "binding":
                return _json(_encode(registry.bind(resource, namespace, name, _decoded(body))), 201)
            case "create":
                return _json(registry.create(resource, namespace, _decoded_as(resource, body)).full(resource), 201)
            case "update":
                entry, created = registry.replace(
                    resource, namespace, name, _replacement(request, resource, body), subresource=what.subresource
                )
                return _json(entry.full(resource), 201 if created else 200)
            case "patch":
                return _patch(registry, request, found, body)
            case "delete":
                options = _delete_options(request.query, _decoded(body) if body else {})
                answer = registry.delete(resource, namespace, name, options)
                return _json(answer.full(resource) if isinstance(answer, Entry) else _encode(answer))
            case _:
                return self._delete_all(request, found)

    def _delete_all(self, request: web.BaseRequest, found: Target) -> web.Response:
        answer = list_body(self._storage, found.resource, found.namespace, request.query)
        for item in msgspec.json.decode(answer)["items"]:
            metadata = item["metadata"]
            self._registry.delete(found.resource, metadata.get("namespace", ""), metadata["name"])
        return _json(answer)

    # -- watches ------------------------------------------------------------------------------------------------------

    async def _watch(
        self, request: web.BaseRequest, found: Target, what: Request, query: Mapping[str, str], fault: WatchFault | None
    ) -> web.StreamResponse:
        watch_list = self._behaviour.watch_list
        stream = open_stream(self._storage, found.resource, found.namespace, query, watch_list=watch_list)
        if self._behaviour.held & {"", found.resource.name}:
            stream.flowing.clear()
        if self.is_closing:
            stream.end()
        watchers = self._storage.bucket(found.resource).watchers
        watchers.add(stream)
        self.streams[stream] = request.transport
        self.log.append(Logged(what, 200))
        seconds = float(query.get("timeoutSeconds") or _DEFAULT_WATCH_S)
        timer = asyncio.create_task(self._time(stream, seconds, query.get("allowWatchBookmarks") in {"true", "1"}))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            if fault is None:
                await pump(stream, response)
            elif await pump_and_cut(stream, response, fault, self._faults.rng, self._clock) and request.transport:
                request.transport.abort()
        finally:
            timer.cancel()
            watchers.discard(stream)
            del self.streams[stream]
        return response

    async def _time(self, stream: Stream, timeout_s: float, bookmarks: bool) -> None:
        """Bookmarks in their interval, and the end after `timeout_s`."""
        end = self._clock.now() + timeout_s
        while (left := end - self._clock.now()) > 0:
            await self._clock.sleep(min(left, self._behaviour.bookmark_interval_s) if bookmarks else left)
            if bookmarks and self._clock.now() < end:
                stream.bookmark(self._storage.rv)
        stream.end()


def _patch(registry: Registry, request: web.BaseRequest, found: Target, body: bytes) -> web.Response:
    known = {patches.MERGE, patches.STRATEGIC, jsonpatch.JSON}
    if request.content_type not in (known - {patches.STRATEGIC} if found.resource.is_custom else known):
        raise Refused(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    entry = registry.patch(
        found.resource,
        found.namespace,
        found.name,
        _operations(body, found.resource) if request.content_type == jsonpatch.JSON else _decoded(body, found.resource),
        strategic=request.content_type == patches.STRATEGIC,
        subresource=found.subresource,
    )
    return _json(entry.full(found.resource))


def _client(request: web.BaseRequest) -> str:
    """Return the name in User-Agent. It is the field manager unless the request names one."""
    return request.headers.get("User-Agent", "").partition("/")[0]


def _shown(request: web.BaseRequest, resource: ApiResource, entry: Entry) -> web.Response:
    if request.headers.get("Accept") != CONTENT_TYPE or not claimproto.has_protobuf(resource):
        return _json(entry.full(resource))
    body = claimproto.encoded(resource, faces.shown(resource, entry.obj))
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _replacement(request: web.BaseRequest, resource: ApiResource, body: bytes) -> dict[str, Any]:
    if request.content_type == CONTENT_TYPE and claimproto.has_protobuf(resource):
        return claimproto.decoded(body)
    return _decoded_as(resource, body)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


def _refusal(refused: Refused) -> web.Response:
    response = _json(_encode(refused.body()), refused.code)
    if refused.retry_after_s:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


def _decoded(body: bytes, resource: ApiResource | None = None) -> dict[str, Any]:
    try:
        decoded = _read(body, resource)
    except msgspec.DecodeError as error:
        raise bad_request(f"the object provided is unrecognized: couldn't get version/kind; {error}") from None
    if not isinstance(decoded, dict):
        raise bad_request("the object provided is unrecognized: not an object")
    return decoded


def _read(body: bytes, resource: ApiResource | None) -> Any:
    return opaque.decoded(body) if resource is not None and opaque.has_opaque(resource) else msgspec.json.decode(body)


def _operations(body: bytes, resource: ApiResource) -> list[Any]:
    try:
        return msgspec.convert(_read(body, resource), list[Any])
    except (msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"error decoding patch: {error}") from None


def _decoded_as(resource: ApiResource, body: bytes) -> dict[str, Any]:
    """Return an object that is of this group and version, or says nothing of it."""
    decoded = _decoded(body, resource)
    given = decoded.get("apiVersion") or resource.group_version
    if given != resource.group_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({resource.group_version})"
        )
    return decoded


def _delete_options(query: Mapping[str, str], body: dict[str, Any]) -> dict[str, Any]:
    if "gracePeriodSeconds" in query:
        return body | {"gracePeriodSeconds": int(query["gracePeriodSeconds"])}
    return body


# -- discovery ---------------------------------------------------------------------------------------------------------


VERSION = {
    "major": "1",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "in-process",
}


def discovery_document(served: Served, path: str) -> dict[str, Any] | None:
    """Return the discovery document, which is not aggregated, of `/api`, `/apis`, `/api/v1`, `/apis/<group>`, `/apis/<group>/<version>` or `/version`.

    Returns None for other paths.
    """
    parts = [part for part in path.split("/") if part]
    if parts == ["version"]:
        return VERSION | {"minor": str(served.minor), "gitVersion": served.git_version}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        groups = dict.fromkeys(gv.partition("/")[0] for gv in served.group_versions if "/" in gv)
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(served, group) for group in groups]}
    if parts == ["api", "v1"]:
        return _resources(served, "", "v1")
    if len(parts) == 2 and parts[0] == "apis" and _versions(served, parts[1]):
        return {"kind": "APIGroup", "apiVersion": "v1"} | _group(served, parts[1])
    if len(parts) == 3 and parts[0] == "apis" and parts[2] in _versions(served, parts[1]):
        return _resources(served, parts[1], parts[2])
    return None


def _versions(served: Served, group: str) -> list[str]:
    return [version for g, _, version in (gv.partition("/") for gv in served.group_versions) if version and g == group]


def _group(served: Served, group: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in _versions(served, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(served: Served, group: str, version: str) -> dict[str, Any]:
    rows = [row for resource in served.of(group, version) for row in _rows(resource)]
    kinds = [kind for path, kind in reviews.KINDS.items() if reviews.group_version(path) == f"{group}/{version}"]
    rows += [_row(f"{kind.lower()}s", kind, namespaced=False, verbs=["create"]) for kind in kinds]
    group_version = f"{group}/{version}" if group else version
    head: dict[str, Any] = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    return head | {"groupVersion": group_version, "resources": rows}


def _rows(resource: ApiResource) -> list[dict[str, Any]]:
    kind, namespaced = resource.kind, resource.namespaced
    rows = [_row(resource.name, kind, namespaced=namespaced, verbs=list(VERBS))]
    if resource.has_status:
        rows.append(_row(f"{resource.name}/status", kind, namespaced=namespaced, verbs=["get", "patch", "update"]))
    if resource.name == "pods":
        rows.append(_row("pods/binding", "Binding", namespaced=True, verbs=["create"]))
    return rows


def _row(name: str, kind: str, *, namespaced: bool, verbs: list[str]) -> dict[str, Any]:
    singular = "" if "/" in name else kind.lower()
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs}
