"""A configuration for the rest of the program: frozen, typed, with defaults, and units in the names.

Rules: docs/spec/core.md §6.1, §6.2, §6.5. `scheduler.config.load` creates these values; nothing here checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from scheduler.config.args import KnownArgs, RawArgs, default_args
from scheduler.config.schema import INT32_MAX, INT64_MAX, option, percentage
from scheduler.core.feature_gates import DEFAULT_VERSION, defaults

A = TypeVar("A", bound=KnownArgs)

OUR_NAME: Final = "kubestow"
"""The name of profile and lease if the file gives none."""

TRIAL_S: Final = 0.05
"""A trial of a question is given up after this time, without pauses, because other pods wait for it."""
GATES_ON: Final = defaults(DEFAULT_VERSION)
"""The gates that are on by default in DEFAULT_VERSION."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How to reach the API server. `qps` limits writes and reads of one client; negative: no limit."""

    kubeconfig: str = ""
    qps: float = option(50.0, zero_is_default=True)
    burst: int = option(100, bounds=(0, INT32_MAX), why="must be non-negative", zero_is_default=True)


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """The lease. Documents default to on, as upstream (`load`); configurations made in code default to off."""

    leader_elect: bool = option(False, absent=True)
    lease_duration_s: float = option(15.0, zero_is_default=True)
    renew_deadline_s: float = option(10.0, zero_is_default=True)
    retry_period_s: float = option(2.0, zero_is_default=True)
    resource_lock: str = option("leases", zero_is_default=True)
    resource_name: str = option(OUR_NAME, zero_is_default=True)
    resource_namespace: str = option("kube-system", zero_is_default=True)


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plugin by name. `weight` matters for scores; 0 means not given."""

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

    `plugins` holds the sets as written, for the points in the file; `plugins.resolve` turns them into lists. `args`
    has typed arguments for every built-in plugin with arguments, and raw ones for other plugins.
    `percentage_of_nodes_to_score` is None if the global value applies; 0 means all nodes.

    Upstream: pkg/scheduler/apis/config/types.go KubeSchedulerProfile
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = percentage()
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    args: Mapping[str, KnownArgs | RawArgs] = field(default_factory=default_args)
    path: str = field(default="profiles[0]", compare=False)

    def args_for(self, kind: type[A]) -> A:
        """Return the arguments of this type: `profile.args_for(NodeResourcesFitArgs)`."""
        found = self.args.get(kind.plugin)
        return found if isinstance(found, kind) else kind()


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """An extended resource that an extender handles."""

    name: str = option(absent="", required=True, valid="extended resource")
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """TLS settings of an extender. Data fields win over files; keys are not printed."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)
    ca_data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """A scheduler extender's address and verbs; an empty verb means that it does not have that one.

    Upstream: pkg/scheduler/apis/config/types.go Extender
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = option(0, high=INT64_MAX)
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

    `percentage_of_nodes_to_score` None or 0 means all nodes. `ignored` names the fields of the file that are accepted
    without effect.

    Upstream: pkg/scheduler/apis/config/types.go KubeSchedulerConfiguration
    """

    parallelism: int = option(16, bounds=(1, INT32_MAX), why="should be an integer value greater than zero")
    client_connection: ClientConnection = field(default_factory=ClientConnection)
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    percentage_of_nodes_to_score: int | None = percentage()
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    profiles: tuple[KubeSchedulerProfile, ...] = field(default_factory=lambda: (KubeSchedulerProfile(OUR_NAME),))
    extenders: tuple[ExtenderConfig, ...] = ()
    delay_cache_until_active: bool = False
    enable_profiling: bool = True
    feature_gates: frozenset[str] = GATES_ON
    """The known gates that are on. They come from a flag, not from the document."""
    ignored: tuple[str, ...] = field(default=(), compare=False)


DEFAULT_PORT: Final = 10259
"""kube-scheduler's port, which many charts use."""


EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (as upstream: access does not depend on the address)
"""All addresses of this machine, of both families."""

TLS_VERSIONS: Final = ("VersionTLS12", "VersionTLS13")
"""The supported versions, in Go's spelling. Older versions are not supported."""

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
"""Go's name of each cipher suite that kube-scheduler prefers → OpenSSL's; empty for TLS 1.3, whose suites are always
on.
"""

ALWAYS_ALLOWED: Final = tuple(f"/{page}{rest}" for page in ("healthz", "livez", "readyz") for rest in ("", "/*"))
"""Kubelets probe without credentials. kube-scheduler omits the paths below."""


@dataclass(frozen=True, slots=True)
class SecureServing:
    """HTTPS with the API server's authentication and authorization (docs/spec/core.md §7.3)."""

    host: str = EVERYWHERE
    """An IP address."""
    port: int = DEFAULT_PORT
    """0 takes any free one."""
    cert_file: str = ""
    """With `key_file`; PEM, read again after a change. Empty: self-signed, in memory."""
    key_file: str = ""
    min_tls: str = TLS_VERSIONS[0]
    cipher_suites: tuple[str, ...] = ()
    """Names of CIPHER_SUITES; empty: OpenSSL's default."""
    shares_port: bool = False
    """Whether SO_REUSEPORT is set, so that another process can listen on the same port."""
    authentication_kubeconfig: str = ""
    """Kubeconfig for TokenReview and the client CA; empty: that of the daemon."""
    authorization_kubeconfig: str = ""
    """Kubeconfig for SubjectAccessReview; empty: that of the daemon."""
    client_ca_file: str = ""
    """CA of client certificates; empty: the cluster's, looked up unless `skips_lookup`."""
    skips_lookup: bool = False
    tolerates_lookup_failure: bool = True
    """If false, the daemon does not start without the lookup."""
    token_ttl_s: float = 10.0
    allowed_ttl_s: float = 10.0
    denied_ttl_s: float = 10.0
    always_allow_paths: tuple[str, ...] = ALWAYS_ALLOWED
    """Paths without authentication; a final `*` matches any suffix."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything `app` needs to know. Values are checked: ports can be bound, and files come in pairs."""

    config: Configuration = field(default_factory=Configuration)
    emulated_version: str = DEFAULT_VERSION
    """The version of kube-scheduler from which `config` has its defaults and feature gates."""
    server_version: str = ""
    """The API server's `gitVersion` that chose it, so that another one is worth a remark; "" if a flag chose it."""
    kubeconfig: str = ""
    """A path; empty means $KUBECONFIG, the service account in a cluster, or ~/.kube/config."""
    master: str = ""
    """URL of the API server; overrides that of the kubeconfig. For plain HTTP it needs no kubeconfig."""
    token: str = field(default="", repr=False)
    """Bearer token that replaces the credentials of the kubeconfig; empty means those."""
    port: int | None = None
    """Port for plain HTTP on 127.0.0.1, without authentication; 0 takes any free port."""
    secure: SecureServing | None = None
    """HTTPS; None: none."""
    drain_timeout_s: float = 30.0
    """Time for bindings in flight after SIGTERM."""
    max_in_unschedulable_s: float = 300.0
    """Time after which a pod that no event has woken is tried again."""
    csi_storage_capacity_api_version: str = "auto"
    """`auto` or `v1`, or `none`: capacity is unlimited."""
    scheduler_profiles: bool = True
    """Whether SchedulerProfile objects change profiles while the daemon runs, if the server has that kind."""
    what_if_objects: bool = True
    """Whether WhatIf objects are answered, if the server has that kind."""
    is_forced: bool = False
    """Whether to start although another live Lease names one of our scheduler names."""
    trial_s: float = TRIAL_S
    """Time of one trial of an explanation or a what-if question. Longer where no other pods wait."""
    seed: int | None = None
    """Ties between equal nodes and all other draws follow from it; None: they differ in each run."""
    keeps_choices: bool = False
    """Whether records of decisions have the scores of the second-best node, too, and none is dropped."""
    audits: bool = True
    """Whether the self-audit runs in idle time. In virtual time there is much of it."""
    serves_ui: bool = False
    """Whether the endpoints have the page /ui."""
