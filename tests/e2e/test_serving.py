"""Access to the endpoints on a real control plane: every caller gets the answer of kube-scheduler, byte for byte."""

import asyncio
import dataclasses
import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.cluster import a_user, account
from tests.e2e.controlplane.harness import ControlPlane, daemon, scheduler_config, started
from tests.e2e.controlplane.process import ServerProcess, free_port
from tests.e2e.sandbox import THEIRS
from tests.integration.test_serving import unverified
from tests.support.connections import SettledConnector
from tests.unit.server.authorities import Authority

pytestmark = pytest.mark.e2e
WITHIN_S = 120.0
CLOSED = ("/metrics", "/configz")
OURS = ("/debug/queue", "/debug/cache", "/debug/pod/default/a")


@dataclass
class Endpoints:
    """A control plane that accepts client certificates, kube-scheduler, and the daemon, whose endpoints are HTTPS alone."""

    plane: ControlPlane
    server: ServerProcess
    port: int
    authority: Authority
    directory: Path

    @property
    def theirs(self) -> int:
        return self.plane.ports["kube-scheduler"]


async def with_scheduler(plane: ControlPlane) -> None:
    await plane.start_scheduler(scheduler_config(THEIRS))


@pytest.fixture(scope="module")
def endpoints(control_plane_binaries: Path) -> Iterator[Endpoints]:
    authority = Authority("clients")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "ca.pem"
        file.write_bytes(authority.pem)
        port = free_port()
        with (
            started(ControlPlane(apiserver_flags=[f"--client-ca-file={file}"]), with_scheduler) as plane,
            daemon(plane, flags=[f"--secure-port={port}"]) as server,
        ):
            yield Endpoints(plane, server, port, authority, Path(directory))
            assert "Traceback" not in server.output()


@dataclass
class Caller:
    """Sends the same request to both schedulers."""

    endpoints: Endpoints
    token: str = ""
    certificate: ssl.SSLContext | None = None

    async def get(self, path: str, *, theirs: bool = False, method: str = "GET") -> tuple[int, str]:
        port = self.endpoints.theirs if theirs else self.endpoints.port
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connector = SettledConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as http,
            http.request(method, f"https://127.0.0.1:{port}{path}", ssl=self.certificate or unverified()) as answer,
        ):
            return answer.status, await answer.text()

    async def status(self, path: str) -> int:
        """0: the connection was cut."""
        try:
            return (await self.get(path))[0]
        except (aiohttp.ClientError, OSError):
            return 0

    async def until(self, path: str, status: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while (found := await self.status(path)) != status:
            assert time.monotonic() < deadline, (found, self.endpoints.server.tail())
            self.endpoints.server.check()
            await asyncio.sleep(0.1)


@pytest.fixture
async def http(endpoints: Endpoints) -> AsyncIterator[aiohttp.ClientSession]:
    async with endpoints.plane.client() as session:
        yield session


@pytest.fixture
async def anonymous(endpoints: Endpoints) -> Caller:
    """Anonymous; the daemon is ready."""
    caller = Caller(endpoints)
    await caller.until("/readyz", 200)
    return caller


def shown(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def agreed(caller: Caller, path: str, status: int) -> None:
    """Both refuse in the same way."""
    ours, theirs = await caller.get(path), await caller.get(path, theirs=True)

    assert (ours[0], shown(ours[1])) == (theirs[0], shown(theirs[1])), path
    assert ours[0] == status, path


async def test_anonymous(anonymous: Caller) -> None:
    for path in ("/livez", "/healthz", "/readyz"):
        assert await anonymous.get(path) == await anonymous.get(path, theirs=True) == (200, "ok")
    for path in (*CLOSED, "/nowhere", "/metrics/slis"):
        await agreed(anonymous, path, 403)
    for path in OURS:
        assert await anonymous.status(path) == 403
    assert await anonymous.status("/readyz/ping") == 200  # closed there


async def test_a_token_that_is_nobodys(anonymous: Caller) -> None:
    for token in ("x", "e30.e30.e30", "a b"):
        for path in (*CLOSED, "/nowhere"):
            await agreed(dataclasses.replace(anonymous, token=token), path, 401)


async def test_a_token_without_the_right(anonymous: Caller, http: aiohttp.ClientSession) -> None:
    stranger = dataclasses.replace(anonymous, token=await account(http, "stranger"))
    for path in (*CLOSED, "/nowhere"):
        await agreed(stranger, path, 403)
    assert "system:serviceaccount:default:stranger" in (await stranger.get("/metrics"))[1]
    assert [await stranger.status(path) for path in OURS] == [403] * len(OURS)


async def test_a_token_with_the_right(anonymous: Caller, http: aiohttp.ClientSession) -> None:
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    scraper = dataclasses.replace(anonymous, token=await account(http, "scraper", [rule]))
    await scraper.until("/metrics", 200)
    assert "scheduler_pending_pods" in (await scraper.get("/metrics"))[1]
    await agreed(scraper, "/configz", 403)
    assert [await scraper.status(path) for path in OURS] == [403] * len(OURS)
    rules = {"nonResourceURLs": ["/debug/*", "/configz"], "verbs": ["get"]}
    looker = dataclasses.replace(anonymous, token=await account(http, "looker", [rules]))
    await looker.until("/debug/cache", 200)
    assert await looker.status("/configz") == 200
    assert await looker.status("/debug/pod/default/no-such-pod") == 404
    assert await looker.status("/metrics") == 403
    assert (await looker.get("/configz", method="POST"))[0] == 405


async def test_a_client_certificate(anonymous: Caller, http: aiohttp.ClientSession) -> None:
    def shows(authority: Authority, name: str, *groups: str, days: int = 1) -> Caller:
        issued, file = authority.issues(name, groups=groups, days=days), anonymous.endpoints.directory / f"{name}.pem"
        file.write_bytes(issued.key + issued.certificate)
        context = unverified()
        context.load_cert_chain(file)
        return dataclasses.replace(anonymous, certificate=context)

    authority = anonymous.endpoints.authority
    await account(http, "certified", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}], a_user("certified"))
    await shows(authority, "root", "system:masters").until("/debug/cache", 200)
    certified = shows(authority, "certified")
    await certified.until("/metrics", 200)
    await agreed(certified, "/configz", 403)
    await agreed(shows(authority, "stranger", "dev"), "/metrics", 403)
    for wrong in (shows(authority, "late", "system:masters", days=-1), shows(Authority("x"), "x", "system:masters")):
        assert await wrong.status("/metrics") == 0
        assert (await wrong.get("/metrics", theirs=True))[0] == 401  # they look at it after the handshake


async def test_an_administrator(anonymous: Caller) -> None:
    admin = dataclasses.replace(anonymous, token=anonymous.endpoints.plane.token)
    for path in (*CLOSED, "/debug/queue", "/debug/cache"):
        assert await admin.status(path) == 200, path
    await agreed(admin, "/nowhere", 404)
