"""A daemon behind a proxy in front of a real kube-apiserver, with chosen permissions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import aiohttp
import yaml

from scheduler.kube.resources import KINDS
from scheduler.kube.writes.api_writer import (
    CLAIM_EVENT_RULES,
    DEVICE_RULES,
    EXTENDED_RESOURCE_RULES,
    OTHER_LEASE_RULES,
    VOLUME_RULES,
)
from tests.e2e.cluster import PODS, Cluster, Json
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME, daemon
from tests.e2e.faultproxy import FaultProxy
from tests.e2e.history import History
from tests.e2e.sandbox import Sandbox
from tests.support.kubeconfigs import kubeconfig

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
BINDING: Final[Json] = {"verb": "create", "resource": "pods", "subresource": "binding"}
STATUS: Final[Json] = {"verb": "patch", "resource": "pods", "subresource": "status"}


class Permission(NamedTuple):
    """One rule of a ClusterRole."""

    group: str
    resource: str
    verb: str


VOLUMES: Final = frozenset(Permission(*rule) for rule in VOLUME_RULES)
DEVICES: Final = frozenset(Permission(*rule) for rule in (*DEVICE_RULES, *EXTENDED_RESOURCE_RULES))
ALL: Final = frozenset(
    {
        Permission("", "pods/binding", "create"),
        Permission("", "pods", "delete"),
        Permission("", "pods/status", "patch"),
        *(rule for rule in (*VOLUMES, *DEVICES) if rule.verb != "get"),
        *(Permission(*rule) for rule in (*CLAIM_EVENT_RULES, *OTHER_LEASE_RULES)),
        *(Permission(group, "events", verb) for group in ("", "events.k8s.io") for verb in ("create", "patch")),
        *(Permission(kind.group, kind.plural, verb) for kind in KINDS.values() for verb in ("get", "list", "watch")),
    }
)


@dataclass
class Stage:
    """A plane, a proxy, and a watch that does not pass through the proxy."""

    plane: ControlPlane
    proxy: FaultProxy
    admin: aiohttp.ClientSession
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.admin)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, plane: ControlPlane) -> AsyncIterator[Self]:
        """A prepared plane without other pods and nodes, and a running watch."""
        async with plane.client() as admin, FaultProxy(plane) as proxy:
            stage = cls(plane, proxy, admin)
            await stage.clean()
            await stage.prepare()
            watching = asyncio.create_task(stage.follow())
            try:
                yield stage
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
                await stage.clean()

    async def clean(self) -> None:
        await self.cluster.wipe()

    async def prepare(self) -> None: ...

    @contextlib.contextmanager
    def daemon(self, token: str = "", *, config: Json | None = None, name: str = SCHEDULER_NAME) -> Iterator[Server]:
        """The daemon behind the proxy, with this token or the proxy's permissions. `name` is the scheduler's."""
        path = self.plane.directory / f"{name}-proxy.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig({"token": token} if token else {}, self.proxy.url)))
        with daemon(self.plane, name, config=config, flags=(f"--kubeconfig={path}",), name=name) as server:
            yield server

    async def put(self, path: str, obj: Json) -> None:
        async with self.admin.put(f"{path}/{obj['metadata']['name']}", json=obj) as answer:
            if answer.status == 404:
                await self.post(path, obj)
            else:
                assert answer.status in {200, 201}, await answer.text()

    async def post(self, path: str, obj: Json) -> Json:
        async with self.admin.post(path, json=obj) as answer:
            assert answer.status == 201, await answer.text()
            created: Json = await answer.json()
            return created

    async def account(self) -> str:
        """The token of a service account with the daemon's permissions and no more, until `permit` changes them."""
        await self.permit(ALL)
        subject = {"kind": "ServiceAccount", "name": "kubestow-faults", "namespace": "default"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubestow-faults"}
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await self.put(accounts, {"metadata": {"name": "kubestow-faults"}})
        await self.put(
            f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": "kubestow-faults"}, "roleRef": reference, "subjects": [subject]},
        )
        answer = await self.post(f"{accounts}/kubestow-faults/token", {"spec": {"expirationSeconds": 3600}})
        return str(answer["status"]["token"])

    async def permit(self, permissions: Iterable[Permission]) -> None:
        rules = [{"apiGroups": [p.group], "resources": [p.resource], "verbs": [p.verb]} for p in sorted(permissions)]
        await self.put(f"{RBAC}/clusterroles", {"metadata": {"name": "kubestow-faults"}, "rules": rules})

    async def follow(self) -> None:
        """Fill the history until cancelled; after each failure from a new list."""
        while True:
            try:
                page = await self.cluster.get(PODS)
                for item in page["items"]:
                    self.history.see(item)
                await self.history.follow(self.admin, page["metadata"]["resourceVersion"])
            except (aiohttp.ClientError, OSError, AssertionError):
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def staged(sandbox: Sandbox) -> AsyncIterator[Stage]:
    """A proxy; the sandbox's pods are for the scheduler behind it."""
    sandbox.scheduler = f"kubestow-{sandbox.name}"
    async with sandbox.plane.client() as admin, FaultProxy(sandbox.plane) as proxy:
        yield Stage(sandbox.plane, proxy, admin)


@contextlib.asynccontextmanager
async def running(sandbox: Sandbox, stage: Stage, *, token: str = "") -> AsyncIterator[None]:
    """The daemon for the sandbox's pods."""
    with stage.daemon(token, config=scheduler_config(sandbox.scheduler), name=sandbox.scheduler) as server:
        sandbox.server = server
        yield
