"""Find the scheduler's leader: the holder of its Lease is a pod, and the pod names the port.

The holder of a Lease is `<host name>_<uuid>`, and the host name of a pod is the pod's name. A daemon outside of a
cluster, and one in the network of its node, has the name of a machine: no pod has it, so there is no tunnel to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from scheduler.api.meta import Frozen
from scheduler.config.types import DEFAULT_PORT
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Forbidden, NotFound, Unauthorized, shortened
from scheduler.core.terminal import printable
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import LABEL, LeaseSpec, LeaseWriter

_PORT_NAME: Final = "https"
_FLAG: Final = "--secure-port"
_USUAL_DURATION_S: Final = 15


class NoAnswer(Exception):
    """The scheduler gave no answer. The text is one line: what is missing, and what to do next."""


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease of the scheduler, and the namespace of its pods."""

    name: str
    namespace: str
    pod_namespace: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Leader:
    """The pod that leads. `version` is the tag of its image, "" if unknown."""

    namespace: str
    pod: str
    port: int
    node: str = ""
    version: str = ""
    since: str = ""
    """When it took the Lease, as an API time."""
    transitions: int = 0
    """How often the holder of the Lease changed."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


class _LeaderPort(Frozen, frozen=True):
    container_port: int = 0
    name: str = ""


class _LeaderContainer(Frozen, frozen=True):
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    ports: tuple[_LeaderPort, ...] = ()


class _LeaderSpec(Frozen, frozen=True):
    containers: tuple[_LeaderContainer, ...] = ()
    node_name: str = ""


class _LeaderStatus(Frozen, frozen=True):
    phase: str = ""


class _LeaderPod(Frozen, frozen=True):
    spec: _LeaderSpec = _LeaderSpec()
    status: _LeaderStatus = _LeaderStatus()


_POD: Final = msgspec.json.Decoder(_LeaderPod)


async def find_leader(transport: Transport, lease: LeaseName, clock: Clock) -> Leader:
    """Return the leader. Sends two requests; raises NoAnswer."""
    held = await _held(transport, lease, clock)
    name = held.holder.partition("_")[0]
    pod = await _pod(transport, lease, name, held.holder)
    if pod.status.phase in {"Succeeded", "Failed"}:
        raise NoAnswer(
            f"pod {lease.pod_namespace}/{name} holds Lease {lease} and has ended ({pod.status.phase}); "
            "another replica takes the Lease when it expires: try again in a minute"
        )
    port = secure_port(pod.spec.containers)
    if not port:
        raise NoAnswer(
            f"pod {lease.pod_namespace}/{name} is started with {_FLAG}=0 and serves no HTTPS; remove that flag"
        )
    return Leader(
        lease.pod_namespace,
        name,
        port,
        pod.spec.node_name,
        version_of(pod.spec.containers),
        one_line(held.acquire_time or ""),
        held.transitions,
    )


async def _held(transport: Transport, lease: LeaseName, clock: Clock) -> LeaseSpec:
    try:
        found = await LeaseWriter(transport, lease.namespace, lease.name).read_lease()
    except ApiError as error:
        rule = rbac_rule("coordination.k8s.io", "leases", "get", name=lease.name)
        raise refused(error, f"get Lease {lease}", lease.namespace, rule) from error
    if found is None:
        raise NoAnswer(
            f"there is no Lease {lease}; name it by --scheduler-namespace and --lease-name (`kubectl get leases -A -l "
            f"{LABEL}` lists those of Kubestow), or use --server if the scheduler runs without leader election"
        )
    record = found.record
    if not record.holder:
        raise NoAnswer(
            f"no replica leads: Lease {lease} has no holder; wait until a replica is ready, or start the scheduler"
        )
    if is_stale(record, clock.wall()):
        raise NoAnswer(
            f"no replica leads: {one_line(record.holder)} renewed Lease {lease} last at {one_line(record.renew_time or '')}; "
            "look whether the scheduler runs, and whether the clock of this machine is right"
        )
    return record


def is_stale(record: LeaseSpec, wall_s: float) -> bool:
    """Return whether the Lease expired more than a minute ago by this machine's clock; False without a readable time."""
    try:
        renewed_s = datetime.fromisoformat(record.renew_time or "").timestamp()
    except (ValueError, OverflowError):
        return False
    return wall_s - renewed_s > (record.lease_duration_seconds or _USUAL_DURATION_S) + 60


async def _pod(transport: Transport, lease: LeaseName, name: str, holder: str) -> _LeaderPod:
    namespace = lease.pod_namespace
    outside = (
        f"the leader {one_line(holder)} is no pod of namespace {namespace}; name the namespace of its pod by "
        "--scheduler-namespace, or use --server if it runs outside of the cluster or in the network of its node"
    )
    if not _is_name(name):
        raise NoAnswer(outside)
    try:
        raw = await transport.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except NotFound as error:
        raise NoAnswer(outside) from error
    except ApiError as error:
        raise refused(error, f"get Pod {namespace}/{name}", namespace, rbac_rule("", "pods", "get")) from error
    try:
        return apijson.decode(_POD, raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise NoAnswer(f"Pod {namespace}/{name} cannot be read: {one_line(str(error))}; use --server") from error


def _is_name(text: str) -> bool:
    """Return whether the text can be in the path of a request; the server checks it as a name."""
    return bool(text) and len(text) <= 253 and all(char.isalnum() or char in "-." for char in text) and text.isascii()


def secure_port(containers: Sequence[_LeaderContainer]) -> int:
    """Return the HTTPS port: of the flag, of the port with the name https, or the default. 0: the flag turns it off."""
    for container in containers:
        given = [value for value in _flag_values((*container.command, *container.args)) if value.isdecimal()]
        if given and len(given[-1]) <= 5:
            return int(given[-1])
    named = [port for each in containers for port in each.ports if port.name == _PORT_NAME]
    return named[0].container_port if named else DEFAULT_PORT


def _flag_values(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], "")):
        name, is_joined, value = word.partition("=")
        if name == _FLAG:
            yield value if is_joined else following


def version_of(containers: Sequence[_LeaderContainer]) -> str:
    """Return the tag of the image; "" without one, or if several containers run."""
    if len(containers) != 1:
        return ""
    last = containers[0].image.partition("@")[0].rpartition("/")[2]
    return one_line(last.partition(":")[2])


def refused(error: ApiError, what: str, namespace: str, rule: str) -> NoAnswer:
    """Return the error of a request to the API server. `rule` is the RBAC rule that allows it."""
    message = one_line(error.message)
    if isinstance(error, Unauthorized):
        return NoAnswer(f"the API server does not accept your credentials (401): {message}; log in again")
    if isinstance(error, Forbidden):
        return NoAnswer(f"no permission to {what}: {message}; a Role in namespace {namespace} needs the rule {rule}")
    status = f" ({error.status})" if error.status else ""
    return NoAnswer(f"the API server did not {what}{status}: {message}")


def rbac_rule(group: str, resource: str, *verbs: str, name: str = "") -> str:
    """Return a rule of a Role in YAML, on one line."""
    names = f', resourceNames: ["{name}"]' if name else ""
    return f'{{apiGroups: ["{group}"], resources: ["{resource}"]{names}, verbs: [{", ".join(verbs)}]}}'


def one_line(text: str) -> str:
    """Return a text of a server as one line of bounded length with control characters as escapes."""
    return shortened(printable(" ".join(text.split())), 400)
