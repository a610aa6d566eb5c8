"""Plugin arguments, typed, with upstream v1.36's defaults (docs/spec/core.md §6.4).

`pluginConfig` names them by `plugin`; the kind is `<plugin>Args`. Values from `scheduler.config.load` are valid; the
constructors check nothing.

Upstream: pkg/scheduler/apis/config/types_pluginargs.go VolumeBindingArgs, DynamicResourcesArgs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

KUBE_SCHEDULER_V1: Final = "kubescheduler.config.k8s.io/v1"
KUBESTOW_V1ALPHA1: Final = "kubestow.dev/v1alpha1"


def spelled(name: str) -> str:
    """Return the name of a field in the spelling of a file."""
    first, *rest = name.split("_")
    return "".join((first, *map(str.capitalize, rest))).replace("Csi", "CSI").replace("Https", "HTTPS")


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """A point of a piecewise linear curve: at `utilization` percent the score is `score`, 0..10."""

    utilization: int
    score: int


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """Weight of a resource in a score, 1..100."""

    name: str
    weight: int = 1


CPU_AND_MEMORY: Final = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """`type` is LeastAllocated, MostAllocated or RequestedToCapacityRatio; only the last has a `shape`."""

    type: str = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DefaultConstraint:
    """A spread constraint for pods without their own.

    Its selector is deduced for each pod. None is upstream's default.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    """How many candidate nodes a preemption checks: the larger of a share of all nodes and a number."""

    plugin: ClassVar[str] = "DefaultPreemption"
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """Weight of existing pods' required affinity when scoring, 0..100."""

    plugin: ClassVar[str] = "InterPodAffinity"
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


@dataclass(frozen=True, slots=True)
class NodeAffinityArgs:
    """`added_affinity` is a validated v1.NodeAffinity as the file has it. It applies to every pod of the profile."""

    plugin: ClassVar[str] = "NodeAffinity"
    added_affinity: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    """Extended resources that are not checked (names, and groups such as `example.com`), and how fit is scored."""

    plugin: ClassVar[str] = "NodeResourcesFit"
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = field(default_factory=ScoringStrategy)


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocationArgs:
    """The resources whose utilization should be even; each weight is 1."""

    plugin: ClassVar[str] = "NodeResourcesBalancedAllocation"
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    """With `defaulting_type` System the built-in constraints apply and the list is empty.

    With List the list applies; it may be empty.
    """

    plugin: ClassVar[str] = "PodTopologySpread"
    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: str = "System"


@dataclass(frozen=True, slots=True)
class VolumeBindingArgs:
    """Time limit for binding a pod's volumes; 0 does not wait. `shape` is empty while StorageCapacityScoring is off."""

    plugin: ClassVar[str] = "VolumeBinding"
    bind_timeout_s: float = 600.0
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicResourcesArgs:
    """Time limit for the device search on one node (0 = none), and for devices to become ready before binding."""

    plugin: ClassVar[str] = "DynamicResources"
    filter_timeout_s: float = 10.0
    binding_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class KubestowArgs:
    """Deliberate differences from kube-scheduler, per profile. `parity` turns off every difference that has a switch, except `victims`.

    Not a plugin: a `pluginConfig` entry of this name is the place that the v1 schema allows.
    """

    plugin: ClassVar[str] = "Kubestow"
    parity: bool = False
    victims: Literal["all", "own", "ownFirst"] = "all"
    """Pods that preemption may evict: `all` as upstream, `own` (pods of Kubestow's scheduler names only), or
    `ownFirst`.
    """
    preemption_fair_share: Literal["on", "none"] = "on"
    """`on`: while other pods are ready, pods that searched for victims in vain get a tenth of the time. So do pods whose
    attempt failed after more than two seconds, also while no other pod is ready. `none`: only priority counts.
    """
    busy_nodes: Literal["avoid", "none"] = "avoid"
    """`avoid`: if another scheduler may fill the best node, the fullest of the nodes is taken that are as good apart from
    resources. `none`: the best node is taken.
    """
    storage_capacity_reservation: Literal["ledger", "none"] = "ledger"
    """`ledger`: volumes that are being provisioned reduce a pool's capacity. `none`: only the published capacity
    counts.
    """
    storage_pool_sharing: Literal["learned", "all", "none"] = "learned"
    """Classes of one driver that share a pool: `learned` from what the driver publishes, `all`, or `none`."""
    bound_claim_capacity: Literal["none", "score"] = "none"
    """With StorageCapacityScoring, `score`: pods whose claims are all bound prefer nodes with free capacity of the
    claims' classes. `none`: they score 0 everywhere.
    """
    clear_stale_selected_node: Literal["own", "none"] = "own"
    """`own`: a selected node that Kubestow wrote is cleared once that node is deleted, or has refused the pod for a
    minute while nothing else ties the pod to it. `none`: only provisioners clear it.
    """
    require_csi_node_drivers: tuple[str, ...] = ()
    """CSI drivers that must be registered on a node before pods with their volumes are placed there."""
    volume_write_retries: int = 3
    """How often a volume or claim that another component changed is read again and written again."""
    bind_poll: Literal["events", "upstream"] = "events"
    """`events`: a binding is checked as soon as its volumes change. `upstream`: once a second."""
    treat_binding_as_unbound: bool = False
    """Refuse a pod whose claim is being bound for another pod, instead of letting it wait."""
    count_attached_twice: bool = False
    """Count a volume that is already attached again."""
    zone_ephemeral: Literal["on", "none"] = "on"
    """`on`: VolumeZone checks claims of ephemeral volumes. `none`: it does not."""
    pre_bind_live_check: Literal["claims", "none"] = "claims"
    """`claims`: a young claim is read from the API server before it is bound, because the watch may be late. `none`:
    only the watch counts.
    """
    device_scoring: Literal["pack", "firstFit"] = "pack"
    """`pack`: of equal nodes and devices those that leave the largest request placeable. `firstFit`: the first."""
    device_preemption: Literal["on", "none"] = "on"
    """`on`: pods may be evicted for their devices. `none`: preemption does not free devices."""
    device_double_check: Literal["on", "none"] = "on"
    """`on`: devices that another claim got first are returned before the pod is bound. `none`: no check."""
    derived_nominations: Literal["on", "none"] = "on"
    """`on`: a pod whose claims leave it one node counts as nominated there. `none`: only status and preemption
    nominate.
    """

    def __post_init__(self) -> None:
        """Apply `parity` to all switches but `victims`, so that readers of one switch need not check `parity`."""
        if self.parity:
            for name, value in UPSTREAM.items():
                object.__setattr__(self, name, value)


UPSTREAM: Final[Mapping[str, Any]] = {
    "preemption_fair_share": "none",
    "busy_nodes": "none",
    "storage_capacity_reservation": "none",
    "storage_pool_sharing": "none",
    "bound_claim_capacity": "none",
    "clear_stale_selected_node": "none",
    "require_csi_node_drivers": (),
    "volume_write_retries": 0,
    "bind_poll": "upstream",
    "treat_binding_as_unbound": True,
    "count_attached_twice": True,
    "zone_ephemeral": "none",
    "pre_bind_live_check": "none",
    "device_scoring": "firstFit",
    "device_preemption": "none",
    "device_double_check": "none",
    "derived_nominations": "none",
}
"""The switches that `parity` sets, with kube-scheduler's values (docs/spec/volumes.md §12, docs/spec/dra.md §10)."""

SPELLED: Final[Mapping[str, str]] = {name: spelled(name) for name in UPSTREAM}
"""These switches in the spelling of a file."""


@dataclass(frozen=True, slots=True)
class RawArgs:
    """Unread arguments of a plugin of another package. `path` is their place, for the plugin's own errors."""

    value: Any = None
    path: str = field(default="", compare=False)


KnownArgs: TypeAlias = (
    DefaultPreemptionArgs
    | InterPodAffinityArgs
    | NodeAffinityArgs
    | NodeResourcesFitArgs
    | NodeResourcesBalancedAllocationArgs
    | PodTopologySpreadArgs
    | VolumeBindingArgs
    | DynamicResourcesArgs
    | KubestowArgs
)

CAPACITY_SHAPE: Final = (ShapePoint(0, 10), ShapePoint(100, 0))
"""VolumeBinding's shape if StorageCapacityScoring is on and the file gives none: the most free space wins."""


def default_args(*, capacity_scoring: bool = False) -> dict[str, KnownArgs]:
    """Return the default arguments of every plugin that has arguments, by plugin name."""
    kinds: tuple[KnownArgs, ...] = (
        DefaultPreemptionArgs(),
        InterPodAffinityArgs(),
        NodeAffinityArgs(),
        NodeResourcesFitArgs(),
        NodeResourcesBalancedAllocationArgs(),
        PodTopologySpreadArgs(),
        VolumeBindingArgs(shape=CAPACITY_SHAPE if capacity_scoring else ()),
        DynamicResourcesArgs(),
        KubestowArgs(),
    )
    return {args.plugin: args for args in kinds}
