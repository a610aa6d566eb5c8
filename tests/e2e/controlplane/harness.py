"""A real control plane: etcd and kube-apiserver on loopback; controllers and both schedulers on demand.

Each `ControlPlane` has separate data, ports and keys. There are no kubelets: nodes are objects that the test writes, and
no pod is run or refused.

Nothing here is bound to an event loop: a plane started in one may be used from another."""

import asyncio
import base64
import secrets
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml

from tests.e2e.controlplane.build import binaries
from tests.e2e.controlplane.process import Group, ServerProcess, free_port, was_refused_its_port
from tests.support.connections import SettledConnector
from tests.support.kubeconfigs import kubeconfig

SCHEDULER_NAME = "kubestow"
STORAGE_AND_DEVICES = ("persistentvolume-binder-controller", "resourceclaim-controller", "ephemeral-volume-controller")
_REPOSITORY = Path(__file__).parents[3]
_READY_WITHIN_S = 120.0  # seconds on an idle machine; shared ones are far slower
_PORT_ATTEMPTS = 3
# Else pods would need a ServiceAccount, and new nodes would get a not-ready taint.
_WITHOUT_CONTROLLERS = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"
_EC_KEY_HEAD, _EC_KEY_TAIL = bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107")  # SEC 1, P-256
_HIGH_LOAD = (
    "--max-requests-inflight=4000",
    "--max-mutating-requests-inflight=2000",
    "--enable-priority-and-fairness=false",
)


class ControlPlane:
    """etcd and kube-apiserver v1.36; an async context manager.

    `high_load` lifts the in-flight limits, for benchmarks; leave it where 429s are wanted. `apiserver_flags` come last
    and so win. What the PV controller could not do when it saw an object, it tries again every `volume_resync_s`.
    `default_admission` keeps the admission plugins that want more controllers than `STORAGE_AND_DEVICES`.
    Entering raises `Unavailable` without binaries and Go, and `Died` with the log's end if a server fails.
    """

    def __init__(
        self,
        *,
        high_load: bool = False,
        apiserver_flags: Sequence[str] = (),
        volume_resync_s: int = 15,
        default_admission: bool = False,
    ) -> None:
        self.token = secrets.token_hex(16)
        self._admission = () if default_admission else (_WITHOUT_CONTROLLERS,)
        self._flags = (*(_HIGH_LOAD if high_load else ()), *apiserver_flags)
        self._volume_resync_s = volume_resync_s
        self._servers: dict[str, ServerProcess] = {}
        self.ports: dict[str, int] = {}
        """Where kube-scheduler and kube-controller-manager serve HTTPS."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "certs" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of system:masters, without client-side limits."""
        return self.directory / "kubeconfig"

    @property
    def logs(self) -> Path:
        """The directory of `<process>.log`; gone after `stop`."""
        return self.directory / "logs"

    def cpu_s(self, name: str) -> float:
        """CPU seconds that the process of this name, such as "kube-scheduler", has used since it was started."""
        return self._servers[name].cpu_s()

    def rss_bytes(self, name: str) -> int:
        return self._servers[name].rss_bytes()

    def client(self) -> aiohttp.ClientSession:
        """A session with the API server's address and the token in it; paths start with a slash. The caller closes."""
        return aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            connector=SettledConnector(ssl=ssl.create_default_context(cafile=str(self.ca_file)), limit=64),
        )

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start both servers and return when the API server is ready and the default namespace exists."""
        self._bin = binaries("etcd", "kube-apiserver")
        self.directory = Path(tempfile.mkdtemp(prefix="kubestow-e2e-"))
        self.logs.mkdir()
        self._group = Group(self.logs)
        try:
            self._write_keys()
            await self._at_free_ports("etcd", self._start_etcd)
            await self._at_free_ports("kube-apiserver", self._start_apiserver_anywhere)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all processes and remove their data. Idempotent."""
        self._group.stop()
        self._servers.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def stop_apiserver(self, *, gracefully: bool = True) -> None:
        """End it; watches end, connections are refused from now on. etcd keeps its objects."""
        server = self._servers.pop("kube-apiserver")
        if gracefully:
            await asyncio.to_thread(server.terminate, 30.0)
        else:
            server.kill()

    async def start_apiserver(self) -> None:
        """Start it again on the port it had, with the keys it had."""
        await self._start_apiserver()

    async def restart_apiserver(self, *, gracefully: bool = True) -> None:
        """Returns when it is ready again."""
        await self.stop_apiserver(gracefully=gracefully)
        await self.start_apiserver()

    async def start_controllers(self, names: Sequence[str] = STORAGE_AND_DEVICES, *more: str) -> None:
        """Start kube-controller-manager with just these controllers, and more flags; `*` stands for all that are on by default.

        Without nodelifecycle, nodes need no heartbeat.
        """
        flags = (
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(names)}",
            "--leader-elect=false",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            f"--pvclaimbinder-sync-period={self._volume_resync_s}s",
            f"--service-account-private-key-file={self._key}",  # for the controllers of ServiceAccounts and their tokens
            f"--root-ca-file={self.ca_file}",
            *more,
        )
        await self._start_client("kube-controller-manager", flags)

    async def start_scheduler(self, config: Mapping[str, object] | None = None, *flags: str) -> None:
        """Start kube-scheduler with a KubeSchedulerConfiguration (default: `scheduler_config()`) and these flags.

        Connection and leader election are filled in where the configuration does not name them.
        """
        full = scheduler_config() | dict(config or {})
        connection = full["clientConnection"]
        assert isinstance(connection, dict)
        full["clientConnection"] = {"kubeconfig": str(self.kubeconfig)} | connection
        path = self.directory / "scheduler.yaml"
        path.write_text(yaml.safe_dump(full))
        await self._start_client("kube-scheduler", (f"--config={path}", *flags))

    async def stop_server(self, name: str) -> None:
        """End kube-scheduler or kube-controller-manager. Idempotent; it may be started again."""
        if (server := self._servers.pop(name, None)) is not None:
            await asyncio.to_thread(server.terminate, 30.0)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _write_keys(self) -> None:
        secret = base64.encodebytes(_EC_KEY_HEAD + secrets.token_bytes(32) + _EC_KEY_TAIL).decode()
        self._key = self.directory / "service-accounts.pem"
        self._key.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{secret}-----END EC PRIVATE KEY-----\n")
        self._tokens = self.directory / "tokens.csv"
        self._tokens.write_text(f"{self.token},admin,admin,system:masters\n")

    def _write_kubeconfig(self) -> None:
        authority = {"certificate-authority": str(self.ca_file)}
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig({"token": self.token}, self.url, **authority)))

    def _run(self, name: str, *flags: str) -> ServerProcess:
        self._servers[name] = self._group.start(name, [str(self._bin / name), *flags])
        return self._servers[name]

    async def _at_free_ports(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        """Start it, again with other ports if another process took them between the choice and the start."""
        for left in reversed(range(_PORT_ATTEMPTS)):
            try:
                return await start()
            except Exception:
                if not left or not was_refused_its_port(self._servers[name]):
                    raise
        return None

    async def _start_etcd(self) -> None:
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        data = tempfile.mkdtemp(prefix="etcd-", dir=self.directory)
        server = self._run(
            "etcd",
            "--unsafe-no-fsync",
            "--name=e2e",
            f"--data-dir={data}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=e2e={peers}",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        )
        self._etcd = clients
        await self._until_ok(server, f"{clients}/readyz")

    async def _start_apiserver_anywhere(self) -> None:
        self._port = free_port()
        self._write_kubeconfig()
        await self._start_apiserver()

    async def _start_apiserver(self) -> None:
        server = self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.directory / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=RBAC",
            *self._admission,
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            *self._flags,
        )
        await self._until_ok(server, f"{self.url}/readyz")
        await self._until_ok(server, f"{self.url}/api/v1/namespaces/default")

    async def _start_client(self, name: str, flags: tuple[str, ...]) -> None:
        await self.stop_server(name)
        self._bin = binaries()

        async def start() -> None:
            port = free_port()
            server = self._run(
                name,
                *flags,
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
            )
            await self._until_ok(server, f"https://127.0.0.1:{port}/healthz", is_verified=False)
            self.ports[name] = port

        await self._at_free_ports(name, start)

    async def _until_ok(self, server: ServerProcess, url: str, *, is_verified: bool = True) -> None:
        """Wait until the URL answers 200 while the server lives."""
        deadline = time.monotonic() + _READY_WITHIN_S
        said: object = "nothing"
        while time.monotonic() < deadline:
            server.check()
            try:
                said = await self._status(url, is_verified=is_verified)
            except (aiohttp.ClientError, OSError) as error:  # not listening yet, or no certificate yet
                said = error
            if said == 200:
                return
            await asyncio.sleep(0.1)
        msg = f"{url} did not answer 200 within {_READY_WITHIN_S:.0f} s but {said}; {server.name}:\n{server.tail()}"
        raise TimeoutError(msg)

    async def _status(self, url: str, *, is_verified: bool) -> int:
        trust: ssl.SSLContext | bool = url.startswith("http://") or is_verified
        if trust and url.startswith("https://"):
            trust = ssl.create_default_context(cafile=str(self.ca_file))
        headers = {"Authorization": f"Bearer {self.token}"}
        wait = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=wait) as http, http.get(url, ssl=trust, headers=headers) as answer:
            return answer.status


@contextmanager
def started(plane: ControlPlane, *prepare: Callable[[ControlPlane], Awaitable[None]]) -> Iterator[ControlPlane]:
    """Start the plane in an event loop that ends with the start, prepare it there, and stop it at the end: for fixtures of modules."""

    async def start() -> None:
        await plane.start()
        for each in prepare:
            await each(plane)

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(start())
        yield plane
    finally:
        plane.stop()


def scheduler_config(*names: str, qps: float = 1000, burst: int = 2000) -> dict[str, object]:
    """A KubeSchedulerConfiguration with one default profile per schedulerName (default: default-scheduler)."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": qps, "burst": burst},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name} for name in names or ("default-scheduler",)],
    }


@contextmanager
def daemon(
    plane: ControlPlane,
    *scheduler_names: str,
    config: Mapping[str, object] | None = None,
    flags: Sequence[str] = (),
    name: str = "kubestow",
) -> Iterator[ServerProcess]:
    """Kubestow on this plane with one default profile per name. Starts and does not wait: a bound pod proves that it runs.

    `config` overrides the default configuration; `flags` come last and override both. `name` distinguishes replicas. Nothing
    is served unless a flag says so."""
    path = plane.directory / f"{name}.yaml"
    full = scheduler_config(*(scheduler_names or (SCHEDULER_NAME,))) | dict(config or {})
    path.write_text(yaml.safe_dump(full))
    group = Group(plane.logs)
    try:
        yield group.start(
            name,
            [
                *("/usr/bin/env", f"PYTHONPATH={_REPOSITORY}", sys.executable, "-m", "scheduler", "run"),
                *("--config", str(path), "--kubeconfig", str(plane.kubeconfig), "--secure-port", "0"),
                *flags,
            ],
        )
    finally:
        group.stop()
