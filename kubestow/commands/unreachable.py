"""Say more about a scheduler that gives no answer: its Deployment, its pods, or the permission to see them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final, TypeVar

import msgspec

from scheduler.api.meta import Frozen
from scheduler.cli.debug_request import Client
from scheduler.cli.leader import NoAnswer, one_line
from scheduler.core import api_json
from scheduler.core.errors import ApiError, Forbidden
from scheduler.core.terminal import counted
from scheduler.kube.wire import Transport

SELECTOR: Final = "app.kubernetes.io/name=kubestow"
"""The labels of the chart."""
_WITHIN_S: Final = 5.0
_PODS_MAX: Final = 5
T = TypeVar("T")


class _Named(Frozen, frozen=True):
    name: str = ""


class _DeploymentSpec(Frozen, frozen=True):
    replicas: int = 1


class _DeploymentStatus(Frozen, frozen=True):
    ready_replicas: int = 0


class _DeploymentRead(Frozen, frozen=True):
    metadata: _Named = _Named()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()


class _WaitingState(Frozen, frozen=True):
    reason: str = ""


class _ContainerState(Frozen, frozen=True):
    waiting: _WaitingState | None = None


class _ContainerStatus(Frozen, frozen=True):
    restart_count: int = 0
    state: _ContainerState = _ContainerState()


class _PodState(Frozen, frozen=True):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _PodRead(Frozen, frozen=True):
    metadata: _Named = _Named()
    status: _PodState = _PodState()


class _Deployments(Frozen, frozen=True):
    items: tuple[_DeploymentRead, ...] = ()


class _Pods(Frozen, frozen=True):
    items: tuple[_PodRead, ...] = ()


@contextlib.asynccontextmanager
async def with_cause(client: Client) -> AsyncIterator[None]:
    """Add what the cluster shows of the scheduler to a NoAnswer that the block raises."""
    try:
        yield
    except NoAnswer as why:
        if client.access.server:
            raise
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await seen(client)
        except TimeoutError:
            raise why from None
        raise NoAnswer(f"{why}; {found}") from why


async def seen(client: Client) -> str:
    """Return one phrase about the scheduler's Deployments and pods."""
    namespace = client.access.lease.pod_namespace
    where = f"in namespace {namespace} with the label {SELECTOR}"
    look = f"look by `kubectl -n {namespace} get deployments,pods -l {SELECTOR}`"
    async with client.api_server() as transport:
        try:
            deployments = await _listed(transport, f"/apis/apps/v1/namespaces/{namespace}/deployments", _Deployments)
            pods = await _listed(transport, f"/api/v1/namespaces/{namespace}/pods", _Pods)
        except Forbidden:
            return f"you may not list Deployments and Pods of namespace {namespace}; an administrator can {look}"
        except ApiError as error:
            return f"Deployments and Pods of namespace {namespace} cannot be listed: {one_line(error.message)}"
    if not deployments.items and not pods.items:
        return f"no Deployment and no Pod is {where}: install the chart, or name its namespace by --scheduler-namespace"
    return one_line("; ".join((*_deployments(deployments), *_pods(pods, where), look)))


def _deployments(found: _Deployments) -> Iterator[str]:
    for each in found.items[:_PODS_MAX]:
        ready = f"{each.status.ready_replicas} of {counted(each.spec.replicas, 'replica')}"
        yield f"Deployment {each.metadata.name} has {ready} ready"


def _pods(found: _Pods, where: str) -> Iterator[str]:
    if not found.items:
        yield f"no Pod is {where}"
    for each in found.items[:_PODS_MAX]:
        statuses = each.status.container_statuses
        reasons = [status.state.waiting.reason for status in statuses if status.state.waiting is not None]
        restarts = sum(status.restart_count for status in statuses)
        state = ", ".join(filter(None, (each.status.phase, *reasons, counted(restarts, "restart") if restarts else "")))
        yield f"Pod {each.metadata.name} is {state}"


async def _listed(transport: Transport, path: str, shape: type[T]) -> T:
    raw = await transport.list(path, {"labelSelector": SELECTOR, "limit": str(_PODS_MAX)})
    try:
        return api_json.decode(msgspec.json.Decoder(shape), raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise ApiError(f"the answer cannot be read: {one_line(str(error))}") from error
