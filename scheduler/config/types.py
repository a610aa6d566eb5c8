"""A configuration as the rest of the program sees it: frozen, typed, defaults filled in, units in the names.

Rules: docs/spec/core.md §6.1, §6.2, §6.5. `scheduler.config.load` makes these; nothing here checks anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from scheduler.config.args import KnownArgs, RawArgs, default_args
from scheduler.core.feature_gates import DEVICE_GATES_OFF, DEVICE_GATES_ON

A = TypeVar("A", bound=KnownArgs)

OUR_NAME: Final = "kubestow"
"""The profile's and the lease's name when the file says nothing."""

CAPACITY_SCORING: Final = "StorageCapacityScoring"
VOLUME_LIMIT_SCALING: Final = "VolumeLimitScaling"
FEATURE_GATES: Final[Mapping[str, bool]] = {
    CAPACITY_SCORING: False,
    VOLUME_LIMIT_SCALING: False,
    **dict.fromkeys(sorted(DEVICE_GATES_ON), True),
    **dict.fromkeys(sorted(DEVICE_GATES_OFF), False),
}
"""kube-scheduler's gates that change something here, and whether they are on unless a flag says otherwise."""
GATES_ON: Final = frozenset(name for name, is_on in FEATURE_GATES.items() if is_on)
"""Those that are on without a flag."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How to reach the API server. `qps` limits writes and reads of one client; negative: no limit."""

    kubeconfig: str = ""
    qps: float = 50.0
    burst: int = 100


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """The lease. On where a document says nothing, as upstream (`load`); off in a configuration that is made in code."""

    leader_elect: bool = False
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = OUR_NAME
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plugin by name. `weight` matters for scores: 0 means not given."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What a profile says about one point; `*` in `disabled` means every default."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KubeSchedulerProfile:
    """One schedulerName and its plugins.

    `plugins` holds the sets as written, for the points the file names; `plugins.resolve` makes lists of them.
    `args` has an entry for every plugin with arguments of ours, given or default, and the raw ones of others.
    `percentage_of_nodes_to_score` is None when the global one counts; 0 means all nodes.

    Upstream: pkg/scheduler/apis/config/types.go KubeSchedulerProfile
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    args: Mapping[str, KnownArgs | RawArgs] = field(default_factory=default_args)
    path: str = field(default="profiles[0]", compare=False)

    def args_for(self, kind: type[A]) -> A:
        """The arguments of this type: `profile.args_for(NodeResourcesFitArgs)`."""
        found = self.args.get(kind.plugin)
        return found if isinstance(found, kind) else kind()


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """An extended resource that an extender answers for."""

    name: str
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """How to trust an extender and be trusted by it. Data fields win over files; keys are not printed."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)
    ca_data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Extender:
    """A scheduler extender's address and abilities; an empty verb means it does not do that.

    Upstream: pkg/scheduler/apis/config/types.go Extender
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = False
    tls: ExtenderTls | None = None
    http_timeout_s: float = 5.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole KubeSchedulerConfiguration.

    `percentage_of_nodes_to_score` None or 0: all nodes. `ignored` names the fields of the file that are accepted
    and have no effect; say so once.

    Upstream: pkg/scheduler/apis/config/types.go KubeSchedulerConfiguration
    """

    parallelism: int = 16
    client_connection: ClientConnection = field(default_factory=ClientConnection)
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    profiles: tuple[KubeSchedulerProfile, ...] = field(default_factory=lambda: (KubeSchedulerProfile(OUR_NAME),))
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
    enable_profiling: bool = True
    feature_gates: frozenset[str] = GATES_ON
    """Those that are on, of the ones we know; a flag, not part of the document."""
    ignored: tuple[str, ...] = field(default=(), compare=False)


DEFAULT_PORT: Final = 10259
"""kube-scheduler's; many charts name it."""


EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (as upstream: who may see what does not depend on the way taken)
"""All addresses that this machine has, of both families."""

TLS_VERSIONS: Final = ("VersionTLS12", "VersionTLS13")
"""In Go's words. What is older is not spoken."""

CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    **{
        f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
        for key in ("ECDSA", "RSA")
        for go, openssl in (
            ("AES_128_CBC_SHA", "AES128-SHA"),
            ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("AES_256_CBC_SHA", "AES256-SHA"),
            ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
            ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
            ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        )
    },
}
"""Go's name of each cipher suite that kube-scheduler prefers → OpenSSL's; empty for TLS 1.3, whose suites are always on."""

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
    cipher_suites: tuple[str, ...] = ()
    """Names of CIPHER_SUITES; empty: OpenSSL's default."""
    shares_port: bool = False
    """Whether SO_REUSEPORT is set, so that another process can listen on the same port."""
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
