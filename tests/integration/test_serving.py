"""The endpoints of a whole daemon: HTTPS for users that the API server knows and permits, and no secrets in any answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from structlog.testing import CapturingLogger

from scheduler.config.load import load
from scheduler.config.types import RunOptions, SecureServing
from scheduler.daemon.app import Daemon
from scheduler.server import serving
from scheduler.server.serving import LookupFailed
from simulator.apiserver import ApiServer
from tests.integration.daemon import Rig, options, until
from tests.support.connections import SettledConnector
from tests.support.kubeconfigs import kubeconfig
from tests.unit.server.authorities import Authority

OPEN = ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/shutdown", "/healthz/ping", "/readyz?verbose")
CLOSED = (
    "/metrics",
    "/configz",
    "/debug/queue",
    "/debug/cache",
    "/debug/pod/default/a",
    "/debug/explain/default/a",
)
ANN, BOB = {"username": "ann", "uid": "1"}, {"username": "bob", "uid": "2"}
CONFIGMAP = {"metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"}}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which files and the ConfigMap are read."""
    monkeypatch.setattr(serving, "FILES_EVERY_S", 0.02)
    monkeypatch.setattr(serving, "LOOKUP_EVERY_S", 0.02)


@dataclass
class Served:
    """A daemon and a client that does not verify its certificate."""

    rig: Rig
    http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.rig.daemon.secure_port}"

    async def get(self, path: str, *, token: str = "", shows: ssl.SSLContext | None = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.get(self.url + path, headers=headers, ssl=shows or unverified()) as answer:
            return answer.status, await answer.text()

    async def lets_in(self, context: ssl.SSLContext) -> bool:
        with contextlib.suppress(aiohttp.ClientError):  # refused in the handshake
            return (await self.get("/metrics", shows=context))[0] == 200
        return False

    async def is_ready(self) -> bool:
        """Whether /readyz passes, including the self-check."""
        return (await self.get("/readyz"))[0] == 200

    def requested(self, resource: str) -> int:
        return sum(entry.request.resource == resource for entry in self.rig.server.log)


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def shows(authority: Authority, name: str, path: Path, *groups: str) -> ssl.SSLContext:
    """Return a TLS context with a client certificate."""
    issued, file = authority.issues(name, groups=groups), path / f"{name}.pem"
    file.write_bytes(issued.key + issued.certificate)
    context = unverified()
    context.load_cert_chain(file)
    return context


async def reached(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def served(
    secure: SecureServing | None = None,
    *,
    server: ApiServer | None = None,
    given: Callable[[str], RunOptions] = options,
) -> AsyncIterator[Served]:
    secure = dataclasses.replace(secure or SecureServing(), host="127.0.0.1", port=0)
    async with server or ApiServer() as running:
        running.people.tokens |= {"ann's": ANN, "bob's": BOB}
        running.people.sees |= {("ann", "get", path) for path in ("/metrics", "/configz", "/debug/*")}
        daemon = Daemon(dataclasses.replace(given(running.url), secure=secure))
        try:
            await daemon.start()
            connector = SettledConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector) as http:
                rig = Rig(running, daemon)
                await until(lambda: daemon.is_synced, lambda: "never synced")
                yield Served(rig, http)
        finally:
            await daemon.stop()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(serving, "_log", logger)
    return logger


async def test_access_to_each_path() -> None:
    async with served() as cluster:
        cluster.rig.node("n1")
        cluster.rig.pod("a")
        await cluster.rig.bound("a")
        await reached(cluster.is_ready)
        for path in OPEN:
            assert (await cluster.get(path))[0] == 200, path
        for path in CLOSED:
            anonymous, wrong = await cluster.get(path), await cluster.get(path, token="unknown")
            bob, ann = await cluster.get(path, token="bob's"), await cluster.get(path, token="ann's")
            assert (anonymous[0], wrong[0], bob[0], ann[0]) == (403, 401, 403, 200), path
            assert f'forbidden: User \\"bob\\" cannot get path \\"{path}\\"' in bob[1]
            assert f'forbidden: User \\"system:anonymous\\" cannot get path \\"{path}\\"' in anonymous[1]
            assert '"message": "Unauthorized"' in wrong[1]
        assert (await cluster.get("/nowhere"))[0] == 403
        assert (await cluster.get("/debug/nowhere", token="ann's"))[0] == 404
        assert cluster.rig.daemon.port != cluster.rig.daemon.secure_port
        async with cluster.http.get(f"http://127.0.0.1:{cluster.rig.daemon.port}/metrics") as plain:
            assert plain.status == 200


async def test_a_client_ca_that_may_not_be_read(log: CapturingLogger) -> None:
    server = ApiServer()
    server.forbidden.add(("get", "configmaps"))
    async with served(server=server) as cluster:
        await until(lambda: sum(e.request.resource == "configmaps" for e in server.log) > 3, lambda: "not looked up")
        assert [call.method_name for call in log.calls] == ["warning"]
        assert (await cluster.get("/metrics", token="ann's"))[0] == 200
        missing = (
            "missing permission: get configmaps in namespace kube-system: the endpoints accept no client certificates"
        )
        await until(lambda: missing in str(cluster.rig.daemon.self_check.findings), lambda: str(log.calls))
    with pytest.raises(LookupFailed, match=r"kube-system/extension-apiserver-authentication: .*forbidden"):
        async with served(SecureServing(tolerates_lookup_failure=False), server=server):
            pass


async def test_certificates_are_rotated_without_a_restart(tmp_path: Path, log: CapturingLogger) -> None:
    """Both files change at once by a link, as in a mounted Secret. A broken pair is logged once and not served."""
    first, second = Authority("first"), Authority("second")

    def publish(authority: Authority, version: str) -> None:
        directory = tmp_path / version
        directory.mkdir()
        issued = authority.issues("localhost")
        (directory / "tls.crt").write_bytes(issued.certificate)
        (directory / "tls.key").write_bytes(issued.key)
        link = tmp_path / "new"
        link.symlink_to(directory)
        link.rename(tmp_path / "data")

    publish(first, "v1")
    data = tmp_path / "data"
    secure = SecureServing(cert_file=str(data / "tls.crt"), key_file=str(data / "tls.key"), skips_lookup=True)
    async with served(secure) as cluster:

        async def is_trusted(authority: Authority) -> bool:
            trusting = ssl.create_default_context(cadata=authority.pem.decode())
            url = f"https://localhost:{cluster.rig.daemon.secure_port}/livez"
            try:
                async with cluster.http.get(url, ssl=trusting) as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

        assert await is_trusted(first)
        publish(second, "v2")
        await reached(lambda: is_trusted(second))
        assert not await is_trusted(first)
        (tmp_path / "v2" / "tls.key").write_bytes(first.issues("localhost").key)
        await until(lambda: [call.method_name for call in log.calls][-1:] == ["warning"], lambda: str(log.calls))
        for _ in range(20):
            assert await is_trusted(second)
        assert [call.method_name for call in log.calls] == ["info", "warning"]
        publish(first, "v3")
        await reached(lambda: is_trusted(first))


async def test_each_answer_of_a_review_has_its_own_lifetime() -> None:
    async with served(SecureServing(token_ttl_s=60.0, allowed_ttl_s=0.0, denied_ttl_s=60.0)) as cluster:
        people = cluster.rig.server.people
        assert (await cluster.get("/metrics", token="ann's"))[0] == 200
        permissions = set(people.sees)
        people.sees.clear()
        people.tokens.clear()
        assert (await cluster.get("/metrics", token="ann's"))[0] == 403
        people.sees |= permissions
        assert (await cluster.get("/metrics", token="ann's"))[0] == 403


@pytest.mark.parametrize("source", ["a file", "the ConfigMap"])
async def test_a_connection_does_not_outlive_the_authority_that_it_was_made_under(source: str, tmp_path: Path) -> None:
    one, two, file = Authority("one"), Authority("two"), tmp_path / "ca.pem"
    file.write_bytes(one.pem)
    async with served(SecureServing(client_ca_file=str(file) if source == "a file" else "")) as cluster:
        ann = shows(one, "ann", tmp_path)
        if source == "the ConfigMap":
            assert (await cluster.get("/metrics", shows=ann))[0] == 403  # no certificate is requested yet
            cluster.rig.server.create("ConfigMap", CONFIGMAP | {"data": {"client-ca-file": one.pem.decode()}})
            await reached(lambda: cluster.lets_in(ann))
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.rig.daemon.secure_port, ssl=ann)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 60)
            if source == "a file":
                file.write_bytes(two.pem)
            else:
                name, data = CONFIGMAP["metadata"]["name"], {"client-ca-file": two.pem.decode()}
                cluster.rig.server.patch("ConfigMap", name, {"data": data}, namespace="kube-system")
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.transport.abort()
        with pytest.raises(aiohttp.ClientError):
            await cluster.get("/metrics", shows=ann)
        assert await cluster.lets_in(shows(two, "ann", tmp_path))
        assert not await cluster.lets_in(shows(two, "bob", tmp_path))


async def test_reviews_by_other_servers(tmp_path: Path) -> None:
    files = []
    async with ApiServer() as knows, ApiServer() as waiting_pods:
        knows.people.tokens["zoe's"] = {"username": "zoe"}
        waiting_pods.people.sees.add(("zoe", "get", "/metrics"))
        for name, server in (("knows", knows), ("permits", waiting_pods)):
            files.append(tmp_path / name)
            files[-1].write_text(yaml.safe_dump(kubeconfig({}, server.url)))
        secure = SecureServing(authentication_kubeconfig=str(files[0]), authorization_kubeconfig=str(files[1]))
        async with served(secure) as cluster:
            assert (await cluster.get("/metrics", token="zoe's"))[0] == 200
            assert (await cluster.get("/configz", token="zoe's"))[0] == 403
            assert (await cluster.get("/metrics", token="ann's"))[0] == 401
            assert (
                cluster.requested("tokenreviews")
                == cluster.requested("subjectaccessreviews")
                == cluster.requested("configmaps")
                == 0
            )
            assert {entry.request.resource for entry in knows.log} == {"tokenreviews", "configmaps"}
            assert {entry.request.resource for entry in waiting_pods.log} == {"subjectaccessreviews"}


async def test_the_permissions_of_the_endpoints() -> None:
    server = ApiServer()
    server.forbidden.update({("create", "tokenreviews"), ("create", "subjectaccessreviews")})
    async with served(server=server) as cluster:
        daemon = cluster.rig.daemon
        await until(lambda: len(daemon.self_check.findings) == 2, lambda: str(daemon.self_check.findings))
        tokens, access = (
            finding.problem.removeprefix("missing permission: ") for finding in daemon.self_check.findings
        )
        assert tokens == "create tokenreviews in group authentication.k8s.io: the endpoints accept no bearer tokens"
        what = "create subjectaccessreviews in group authorization.k8s.io"
        assert access == f"{what}: the endpoints admit only system:masters"
        await reached(cluster.is_ready)
        assert (await cluster.get("/metrics", token="ann's"))[0] == 401
        assert (await cluster.get("/metrics"))[0] == 500


PLANTED = "hunter2"


def _config(tmp_path: Path, url: str) -> RunOptions:
    """Return a configuration and credentials with a secret in each possible field."""
    credentials = tmp_path / "kubeconfig"
    user = {"token": f"{PLANTED}-token", "password": f"{PLANTED}-password"}
    credentials.write_text(yaml.safe_dump(kubeconfig(user, url)))
    file = tmp_path / "config.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(credentials), "qps": -1},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": "kubestow"}],
            }
        )
    )
    return RunOptions(config=load(str(file)), port=0, drain_timeout_s=5)


async def test_nothing_secret_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBESTOW_PLANTED", f"{PLANTED}-environment")
    server = ApiServer()
    server.people.tokens[f"{PLANTED}-caller"] = {"username": "root", "groups": ["system:masters"]}
    async with served(server=server, given=lambda url: _config(tmp_path, url)) as cluster:
        cluster.rig.node("n1")
        secrets: dict[str, Any] = {"env": [{"name": "PASSWORD", "value": f"{PLANTED}-env"}]}
        container = {"name": "c", "image": "x", **secrets, "command": ["x", f"--password={PLANTED}-flag"]}
        for name, more in {"a": {}, "big": {"nodeSelector": {"no": "where"}}}.items():
            server.create(
                "pods",
                {
                    "metadata": {"name": name, "annotations": {"last-applied": f"{PLANTED}-annotation"}},
                    "spec": {"schedulerName": "kubestow", "containers": [container], **more},
                },
            )
        await cluster.rig.bound("a")
        await cluster.rig.until(lambda: bool(cluster.rig.condition("big")), "no condition")
        await reached(cluster.is_ready)
        pages = {}
        explained = "/debug/explain/default/big"
        for path in (
            *OPEN,
            *CLOSED,
            "/debug/pod/default/big",
            explained,
            "/nowhere",
            f"/debug/pod/default/{PLANTED[:3]}",
        ):
            pages[path] = await cluster.get(path, token=f"{PLANTED}-caller")
            async with cluster.http.get(f"http://127.0.0.1:{cluster.rig.daemon.port}{path}") as plain:
                pages[f"plain {path}"] = plain.status, await plain.text() + str(plain.headers)
            pages[f"wrong {path}"] = await cluster.get(path, token=f"{PLANTED}-wrong")

    assert [path for path, (status, _) in pages.items() if status >= 500] == []
    assert [path for path, (_, text) in pages.items() if PLANTED in text] == []
    shown = {"/debug/queue": "default/big", "/debug/cache": '"n1"', "/debug/pod/default/big": "didn't match Pod's node"}
    shown[explained] = "remove no=where from the nodeSelector"
    assert [path for path, words in shown.items() if words not in pages[path][1]] == []
    assert pages["/configz"][0] == pages["/metrics"][0] == 200
