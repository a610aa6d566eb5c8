"""A daemon behind a proxy in front of a real kube-apiserver, with chosen permissions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

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
from tests.e2e.cluster import RBAC, Cluster, Json, account, ensure
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import Server
from tests.e2e.faultproxy import FaultProxy
from tests.e2e.sandbox import Sandbox
from tests.support.kubeconfigs import kubeconfig

ACCOUNT: Final = "kubestow-faults"


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
    """A plane, a proxy, and a session that does not pass through the proxy."""

    plane: ControlPlane
    proxy: FaultProxy
    admin: aiohttp.ClientSession

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.admin)

    @contextlib.contextmanager
    def daemon(self, token: str = "", *, config: Json | None = None, name: str = SCHEDULER_NAME) -> Iterator[Server]:
        """The daemon behind the proxy, with this token or the proxy's permissions. `name` is the scheduler's."""
        path = self.plane.directory / f"{name}-proxy.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig({"token": token} if token else {}, self.proxy.url)))
        with daemon(self.plane, name, config=config, flags=(f"--kubeconfig={path}",), name=name) as server:
            yield server

    async def account(self) -> str:
        """The token of a service account with the daemon's permissions and no more, until `permit` changes them."""
        return await account(self.admin, ACCOUNT, _rules(ALL))

    async def permit(self, permissions: Iterable[Permission]) -> None:
        role = {"metadata": {"name": ACCOUNT}, "rules": _rules(permissions)}
        await ensure(self.admin, f"{RBAC}/clusterroles", role)


def _rules(permissions: Iterable[Permission]) -> list[Json]:
    return [{"apiGroups": [p.group], "resources": [p.resource], "verbs": [p.verb]} for p in sorted(permissions)]


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


async def has_no_failure_event(sandbox: Sandbox, *pods: str) -> None:
    for name in pods:
        assert "FailedScheduling" not in {event["reason"] for event in await sandbox.cluster.events(name)}
