"""The JSON of `kubestow status -o json` and `kubestow queue -o json` as types (docs/commands.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Severity = Literal["critical", "warning"]


class _OperatorPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A part of an answer."""


class LeaderAnswer(_OperatorPart, frozen=True):
    """The pod that leads."""

    pod: Annotated[str, Meta(description="`namespace/name`.")]
    node: str
    since: Annotated[str, Meta(description="When it took the Lease (RFC 3339); empty if the Lease does not say it.")]
    transitions: Annotated[int, Meta(description="How often the holder of the Lease changed.")]


class TroubleAnswer(_OperatorPart, frozen=True):
    """A condition that makes the scheduler unhealthy."""

    check: Annotated[str, Meta(description="A check of /readyz, or an alert of docs/operations.md.")]
    severity: Severity
    text: str
    suffers: Annotated[str, Meta(description="What does not work; empty if the text says it.")]


class RemarkAnswer(_OperatorPart, frozen=True):
    """A check of /readyz that passes with a remark."""

    check: str
    text: str


class ProfileAnswer(_OperatorPart, frozen=True):
    """A profile in force."""

    name: str
    generation: Annotated[int, Meta(description="Of its SchedulerProfile; 0: the configuration file.")]


class PluginCount(_OperatorPart, frozen=True):
    """Waiting pods that a plugin rejected. A pod counts for each plugin that rejected it."""

    plugin: str
    pods: int


class InformersAnswer(_OperatorPart, frozen=True):
    """Watched kinds."""

    kinds: int
    synced: int
    unsynced: tuple[str, ...]


class BacklogAnswer(_OperatorPart, frozen=True):
    """Work that waits for the API server."""

    writes_waiting: Annotated[int, Meta(description="Writes that wait for clientConnection.qps.")]
    events_queued: int
    assumed_pods: Annotated[int, Meta(description="Pods that are counted on a node before the watch shows them there.")]
    oldest_binding_s: float


class StatusAnswer(_OperatorPart, frozen=True):
    """What `kubestow status -o json` prints. A field is null if its page could not be read."""

    healthy: bool
    exit_code: int
    leader: Annotated[LeaderAnswer | None, Meta(description="Null with --server.")]
    version: str | None
    started: Annotated[float | None, Meta(description="Start of the process, in seconds since the epoch.")]
    leads: bool | None
    profiles: tuple[ProfileAnswer, ...] | None
    informers: InformersAnswer | None
    objects: Annotated[dict[str, int] | None, Meta(description="Objects of the cluster by kind.")]
    devices_in_use: dict[str, int] | None
    queue: Annotated[dict[str, int] | None, Meta(description="Pending pods by part of the queue.")]
    causes: Annotated[tuple[PluginCount, ...] | None, Meta(description="The most frequent ones first.")]
    attempts: Annotated[dict[str, int] | None, Meta(description="Attempts since the start by result.")]
    backlog: BacklogAnswer | None
    errors: Annotated[dict[str, int] | None, Meta(description="Unforeseen errors since the start by part.")]
    troubles: tuple[TroubleAnswer, ...]
    remarks: tuple[RemarkAnswer, ...]
    unavailable: Annotated[tuple[str, ...], Meta(description="Why pages could not be read.")]


class WaitingPod(_OperatorPart, frozen=True):
    """A pod of the queue."""

    pod: Annotated[str, Meta(description="`namespace/name`.")]
    place: Annotated[
        str, Meta(description="`in flight`, `active`, `backoff`, `error backoff`, `unschedulable` or `gated`.")
    ]
    attempts: int
    age_s: Annotated[float | None, Meta(description="Since the pod was created.")]
    retry_s: Annotated[float | None, Meta(description="Until it is tried without an event; null if it is not.")]
    plugins: Annotated[tuple[str, ...], Meta(description="The plugins that rejected it.")]
    nominated_to: str


class QueueAnswer(_OperatorPart, frozen=True):
    """What `kubestow queue -o json` prints."""

    leads: Annotated[
        bool, Meta(description="Whether this replica leads. Another one, named by --server, tries no pod.")
    ]
    counts: Annotated[dict[str, int], Meta(description="Pods of all namespaces by place.")]
    total: Annotated[int, Meta(description="Pods of the namespace, or of all; `pods` has the first of them.")]
    pods: tuple[WaitingPod, ...]
