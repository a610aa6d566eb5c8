"""What one run of the daemon was asked for, after flags and file have been put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler.config.types import Configuration

DEFAULT_PORT: Final = 10259
"""kube-scheduler's; many charts name it."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything `app` needs to know. Values are checked: the port is free to take, the host is a loopback address."""

    config: Configuration = field(default_factory=Configuration)
    kubeconfig: str = ""
    """A path; empty means $KUBECONFIG, the service account in a cluster, or ~/.kube/config."""
    master: str = ""
    """URL of the API server; overrides the one in the kubeconfig, and alone is enough for plain HTTP."""
    host: str = "127.0.0.1"
    port: int | None = DEFAULT_PORT
    """Of the HTTP endpoints; 0 takes any free port, None serves nothing."""
    drain_timeout_s: float = 30.0
    """How long bindings under way may take after SIGTERM."""
    max_in_unschedulable_s: float = 300.0
    """After so long a pod that no event has woken is tried again."""
    csi_storage_capacity_api_version: str = "auto"
    """`v1`, `v1beta1`, `none` (there is room everywhere), or `auto`: the best that the server has."""
