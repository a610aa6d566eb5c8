"""What one run of the daemon was asked for, after flags and file have been put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler.config.types import Configuration

DEFAULT_PORT: Final = 10259
"""kube-scheduler's; many charts name it."""


EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (as upstream: who may see what does not depend on the way taken)
"""All addresses that this machine has, of both families."""

TLS_VERSIONS: Final = ("VersionTLS12", "VersionTLS13")
"""In Go's words. What is older is not spoken."""

ALWAYS_ALLOWED: Final = tuple(f"/{page}{rest}" for page in ("healthz", "livez", "readyz") for rest in ("", "/*"))
"""A kubelet asks without saying who it is; kube-scheduler leaves out what is below them."""


@dataclass(frozen=True, slots=True)
class SecureServing:
    """HTTPS, where only those get in whom the API server knows and permits (docs/spec/core.md §7.3)."""

    host: str = EVERYWHERE
    """An IP address."""
    port: int = DEFAULT_PORT
    """0 takes any free one."""
    cert_file: str = ""
    """With `key_file`, PEM, read again when they change; empty: self-signed, in memory."""
    key_file: str = ""
    min_tls: str = TLS_VERSIONS[0]
    authentication_kubeconfig: str = ""
    """Of whoever knows tokens and the client CA; empty: as everything else."""
    authorization_kubeconfig: str = ""
    """Of whoever knows permissions; empty: as everything else."""
    client_ca_file: str = ""
    """Whose client certificates count; empty: the cluster's, looked up unless `skips_lookup`."""
    skips_lookup: bool = False
    tolerates_lookup_failure: bool = True
    """Otherwise the daemon does not start without it."""
    token_ttl_s: float = 10.0
    allowed_ttl_s: float = 10.0
    denied_ttl_s: float = 10.0
    always_allow_paths: tuple[str, ...] = ALWAYS_ALLOWED
    """For everybody; `*` at the end stands for anything."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything `app` needs to know. Values are checked: the ports are free to take, files come in pairs."""

    config: Configuration = field(default_factory=Configuration)
    kubeconfig: str = ""
    """A path; empty means $KUBECONFIG, the service account in a cluster, or ~/.kube/config."""
    master: str = ""
    """URL of the API server; overrides the one in the kubeconfig, and alone is enough for plain HTTP."""
    port: int | None = None
    """On which the endpoints are open to everybody on this machine, plain HTTP; 0 takes any free port."""
    secure: SecureServing | None = None
    """HTTPS for others; None: none."""
    drain_timeout_s: float = 30.0
    """How long bindings under way may take after SIGTERM."""
    max_in_unschedulable_s: float = 300.0
    """After so long a pod that no event has woken is tried again."""
    csi_storage_capacity_api_version: str = "auto"
    """`v1`, `v1beta1`, `none` (there is room everywhere), or `auto`: the best that the server has."""
    scheduler_profiles: bool = True
    """Whether SchedulerProfile objects change profiles while the daemon runs, where the server has such objects."""
    is_forced: bool = False
    """Whether to start although another live Lease names one of our scheduler names."""
