"""One suite for two servers: the in-process one always, and a real kube-apiserver where its binaries are or can be built.

The suite states what a real kube-apiserver 1.36 does; where the two differ, the in-process one is wrong. The client does not use code of the
scheduler. Each test has its own namespace and its own names of cluster-scoped objects."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest

from scheduler.core.clock import SystemClock
from scheduler.core.errors import Ambiguous
from scheduler.kube.client_config import load_settings
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Method
from scheduler.kube.writes.api_writer import ApiWriter
from simulator.apiserver import LIKE_1_36_WITH_BETAS, ApiServer
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane, started

Object = dict[str, Any]
PATIENCE_S = 60.0
REAL = "kube-apiserver"
KNOWN = "1.36"
"""The version that the in-process server is like."""
BETAS = "--runtime-config=" + ",".join(
    f"{version}=true" for version in LIKE_1_36_WITH_BETAS if version.startswith("resource.k8s.io/")
)
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass
class Answer:
    status: int
    body: Any
    headers: dict[str, str]
    has_known_texts: bool = True
    """Whether the server is one whose texts of refusals the tests know: the in-process server, and 1.36."""

    @property
    def metadata(self) -> Object:
        metadata: Object = self.body["metadata"]
        return metadata

    @property
    def rv(self) -> int:
        return int(self.metadata["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    def stamped(self, found: str) -> str:
        """Return `found`, which the server must have written while it created the object.

        The server reads its clock for each timestamp, so two timestamps of one request can differ by a second.
        """
        created = datetime.fromisoformat(self.metadata["creationTimestamp"])
        assert abs(datetime.fromisoformat(found) - created) <= timedelta(seconds=PATIENCE_S), (found, self.metadata)
        return found


@dataclass
class Events:
    response: aiohttp.ClientResponse
    seen: list[Object] = field(default_factory=list)

    async def next(self) -> Object:
        line = await asyncio.wait_for(self.response.content.readline(), PATIENCE_S)
        assert line, f"the watch ended after {self.seen}"
        self.seen.append(json.loads(line))
        return self.seen[-1]

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return (type, name) of the next `count` events. A server may send bookmarks at any time: only that of a list's end counts."""
        taken: list[tuple[str, str]] = []
        while len(taken) < count:
            event = await self.next()
            metadata = event["object"]["metadata"]
            if event["type"] != "BOOKMARK" or "k8s.io/initial-events-end" in metadata.get("annotations", {}):
                taken.append((event["type"], metadata.get("name", "")))
        return taken

    async def end(self) -> bytes:
        return await asyncio.wait_for(self.response.content.read(), PATIENCE_S)


async def _unsupported() -> None:
    raise NotImplementedError


@dataclass
class Api:
    """A server and a namespace in it. `compact` removes the server's history."""

    http: aiohttp.ClientSession
    is_real: bool
    compact: Callable[[], Awaitable[None]] = field(kw_only=True, default=_unsupported)
    ns: str = "default"
    version: str = field(kw_only=True, default=KNOWN)
    """The version of Kubernetes whose behaviour the server has."""

    def succeeded(self, answer: Answer, code: int = 0) -> None:
        """Check a `Status` of success, and that it names a version from 1.38 on. Its details are not checked."""
        metadata = {"resourceVersion": answer.body["metadata"].get("resourceVersion", "")}
        expected: Object = {"kind": "Status", "apiVersion": "v1", "status": "Success"} | (
            {"code": code} if code else {}
        )
        expected["metadata"] = metadata if self.version >= "1.38" else {}
        assert without(answer.body, "details") == expected
        assert metadata["resourceVersion"].isdecimal() is (self.version >= "1.38")

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.ns}/pods"

    def at(self, group_version: str, resource: str) -> str:
        root = "/api" if "/" not in group_version else "/apis"
        return f"{root}/{group_version}/namespaces/{self.ns}/{resource}"

    async def __call__(
        self, method: str, path: str, body: object = None, *, content: str = "", accept: str = ""
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": content or "application/json"} if data is not None else {}
        headers |= {"Accept": accept} if accept else {}
        async with self.http.request(method, path, data=data, headers=headers) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            parsed = json.loads(raw) if is_json else raw.decode()
            return Answer(response.status, parsed, dict(response.headers), self.version == KNOWN)

    async def patch(self, path: str, body: Object) -> Answer:
        return await self("PATCH", path, body, content=STRATEGIC)

    async def merge(self, path: str, body: Object) -> Answer:
        return await self("PATCH", path, body, content=MERGE)

    async def until_known(self, class_name: str, **spec: Any) -> None:
        """Wait until admission of a real server knows the priority class: it sees a class some moments later."""
        if not self.is_real:
            return
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self("POST", f"{self.pods}?dryRun=All", pod("try", **spec))
                if answer.status == 201 and answer.body["spec"].get("priorityClassName") == class_name:
                    return
                await asyncio.sleep(0.01)

    async def pod(self, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Answer:
        answer = await self("POST", self.pods, pod(name, labels=labels, **spec))
        assert answer.status == 201, answer.body
        return answer

    @asynccontextmanager
    async def watch(self, path: str, **params: str) -> AsyncIterator[Events]:
        query = {"watch": "true", **params}
        async with self.http.get(path, params=query) as response:
            assert response.status == 200, await response.text()
            connection = response.connection
            try:
                yield Events(response)
            finally:
                if connection is not None and connection.transport is not None:
                    connection.transport.abort()  # closing TLS politely would outlive the test's loop


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": name} | ({"labels": labels} if labels else {})
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers} | spec}


def refusal(answer: Answer, code: int, reason: str, message: str, details: Object | None = None) -> None:
    expected: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    expected |= {"reason": reason} if reason else {}
    expected |= {"details": details} if details is not None else {}
    assert (answer.status, answer.body) == (code, expected | {"code": code})


def _named(resource: str, name: str, group: str) -> tuple[str, Object]:
    """Return how a message names an object, and the details of the answer."""
    details = {"name": name, "kind": resource} | ({"group": group} if group else {})
    return f'{resource}{"." if group else ""}{group} "{name}"', details


def missing(answer: Answer, resource: str, name: str, group: str = "") -> None:
    what, details = _named(resource, name, group)
    refusal(answer, 404, "NotFound", f"{what} not found", details)


def modified(answer: Answer, resource: str, name: str, group: str = "") -> None:
    """Check that the object has changed since the version that the request named."""
    what, details = _named(resource, name, group)
    why = "the object has been modified; please apply your changes to the latest version and try again"
    refusal(answer, 409, "Conflict", f"Operation cannot be fulfilled on {what}: {why}", details)


def denies(answer: Answer, status: int, message: str) -> None:
    """Check the status and the message of a refusal, whatever else it says."""
    assert (answer.status, answer.body["message"]) == (status, message)


_REASONS = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Not found": "FieldValueNotFound",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}


class Causes(list[tuple[str, str]]):
    """Causes of a refusal. Those of a server whose texts are not known are equal to any causes."""

    def __init__(self, causes: Iterable[tuple[str, str]], *, are_known: bool) -> None:
        super().__init__(causes)
        self._are_known = are_known

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if self._are_known else bool(self) == bool(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


def problems(answer: Answer) -> list[tuple[str, str]]:
    """Return (field, message) of each cause of a 422, in the order of the answer."""
    assert (answer.status, answer.body.get("reason")) == (422, "Invalid"), answer.body
    causes = answer.body["details"]["causes"]
    found = Causes(((cause["field"], cause["message"]) for cause in causes), are_known=answer.has_known_texts)
    if not answer.has_known_texts:
        return found
    for cause in answer.body["details"]["causes"]:
        assert cause["reason"] == _REASONS[cause["message"].partition(":")[0]], cause
    said = list(dict.fromkeys(f"{field}: {why}" for field, why in found))
    details = answer.body["details"]
    kind = f"{details['kind']}.{details['group']}" if "group" in details else details["kind"]
    whole = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    start = f'{kind} "{details["name"]}" is invalid: '
    assert answer.body["message"] == start + whole
    return found


def without(obj: Object, *keys: str) -> Object:
    return {key: value for key, value in obj.items() if key not in keys}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rows of kube-apiserver about what its version no longer serves; another test says that it does not."""
    left_out = [item for item in items if _is_gone(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_gone(item)]


def _is_gone(item: pytest.Item) -> bool:
    """Whether the item is of kube-apiserver, and of an older version than the one under test by its marker `until`."""
    last = item.get_closest_marker("until")
    if last is None or not isinstance(item, pytest.Function):
        return False
    return item.callspec.params["plane"] == REAL and MINOR > last.args[0]


@pytest.fixture(scope="session")
def real() -> Iterator[ControlPlane]:
    """Start etcd and kube-apiserver for this suite only: it restarts them."""
    binaries_or_skip("etcd", "kube-apiserver")
    with started(ControlPlane(apiserver_flags=[BETAS])) as plane:
        yield plane


_names = itertools.count()


@pytest.fixture(params=["in-process", pytest.param(REAL, marks=pytest.mark.e2e)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """Return the real server, or None for the in-process one. Not async, because `real` runs its own event loop."""
    if request.param == "in-process":
        return None
    found: ControlPlane = request.getfixturevalue("real")
    return found


@pytest.fixture
def emulated() -> str:
    """Return the version of the in-process server."""
    return KNOWN


@pytest.fixture
async def api(plane: ControlPlane | None, emulated: str) -> AsyncIterator[Api]:
    """Yield the server under test with an empty namespace."""
    if plane is None:
        async with ApiServer(served=LIKE_1_36_WITH_BETAS) as server, aiohttp.ClientSession(server.url) as http:
            if emulated != KNOWN:
                server.upgrade(f"v{emulated}.0")
            ours = Api(http, is_real=False, compact=_compact_ours(server), version=emulated)
            yield await _with_namespace(ours)
        return
    async with plane.client() as http:
        theirs = Api(http, is_real=True, compact=lambda: _compact_real(plane), version=MINOR)
        yield await _with_namespace(theirs)


class LosingTransport(HttpTransport):
    """While `loses`, the server carries out the write and the caller gets no answer."""

    loses = False

    async def write(self, method: Method, path: str, body: bytes, **rest: Any) -> bytes:
        answer = await super().write(method, path, body, **rest)
        if self.loses and method != "DELETE":
            raise Ambiguous("connection lost")
        return answer


@pytest.fixture
async def transport(api: Api, plane: ControlPlane | None) -> AsyncIterator[LosingTransport]:
    source = {"master": str(api.http._base_url)} if plane is None else {"kubeconfig": str(plane.kubeconfig)}
    transport = LosingTransport(await load_settings(**source))
    yield transport
    await transport.close()


@pytest.fixture
def writer(transport: LosingTransport) -> ApiWriter:
    """Return the scheduler's own writer, connected to the server under test."""
    return ApiWriter(transport, Throttle(SystemClock(), qps=-1), SystemClock())


async def _with_namespace(api: Api) -> Api:
    api.ns = f"contract-{next(_names)}"
    answer = await api("POST", "/api/v1/namespaces", {"metadata": {"name": api.ns}})
    assert answer.status == 201, answer.body
    return api


def _compact_ours(server: ApiServer) -> Callable[[], Awaitable[None]]:
    async def compact() -> None:
        server.compact()

    return compact


async def _compact_real(plane: ControlPlane) -> None:
    """Compact etcd, for lists, and restart the API server, whose watch cache then has no history."""
    async with aiohttp.ClientSession(plane._etcd) as etcd:
        key = {"key": base64.b64encode(b"x").decode()}
        async with etcd.post("/v3/kv/range", json=key) as response:
            revision = (await response.json(content_type=None))["header"]["revision"]
        async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as response:
            assert response.status == 200, await response.text()
    await plane.restart_apiserver()
