"""Plugin arguments, typed, with upstream v1.36's defaults (docs/spec/core.md §6.4).

`plugin` is the name under which `pluginConfig` carries them, the kind is `<plugin>Args`. Values are valid by
construction when they come from `scheduler.config.load`; building one by hand checks nothing.

Upstream: pkg/scheduler/apis/config/types_pluginargs.go VolumeBindingArgs, DynamicResourcesArgs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

KUBE_SCHEDULER_V1: Final = "kubescheduler.config.k8s.io/v1"
KUBESTOW_V1ALPHA1: Final = "kubestow.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """A point of a piecewise linear curve: at `utilization` percent the score is `score`, 0..10."""

    utilization: int
    score: int


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """How much a resource counts, 1..100."""

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
    """A spread constraint for pods that have none. The selector is deduced for each pod; None is upstream's default."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    """How many candidate nodes a preemption looks at: the larger of a share of all nodes and a number."""

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
    """`added_affinity` is a v1.NodeAffinity as the file has it, checked: every pod of the profile gets it as well."""

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
    """The resources whose use should be even; each weight is 1."""

    plugin: ClassVar[str] = "NodeResourcesBalancedAllocation"
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    """`defaulting_type` System: built-in constraints, and the list is empty. List: the list, which may be empty."""

    plugin: ClassVar[str] = "PodTopologySpread"
    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: str = "System"


@dataclass(frozen=True, slots=True)
class VolumeBindingArgs:
    """Time limit for binding a pod's volumes, 0 = do not wait. `shape` is empty while StorageCapacityScoring is off."""

    plugin: ClassVar[str] = "VolumeBinding"
    bind_timeout_s: float = 600.0
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicResourcesArgs:
    """Time for one node's device search (0 = no limit), and for devices to become ready before binding."""

    plugin: ClassVar[str] = "DynamicResources"
    filter_timeout_s: float = 10.0
    binding_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class KubestowArgs:
    """What we do otherwise than upstream, per profile; `parity` turns all of it to upstream's behaviour.

    Not a plugin: a `pluginConfig` entry of this name is where the v1 schema leaves room.
    """

    plugin: ClassVar[str] = "Kubestow"
    parity: bool = False
    victims: str = "all"
    """Whom preemption may evict: `all` as upstream, `own` (pods of our scheduler names only), or `ownFirst`."""
    preemption_fair_share: str = "on"
    """`on`: while other pods are ready, pods that searched for victims in vain get a tenth of the time. `none`: priority alone."""
    busy_nodes: str = "avoid"
    """`avoid`: of equal nodes those to which another scheduler bound a pod in the last second come last. `none`: all alike."""
    storage_capacity_reservation: str = "ledger"
    """`ledger`: what is being provisioned is taken off a pool's capacity. `none`: capacity as it was published last."""
    storage_pool_sharing: str = "learned"
    """Which classes of one driver draw from one room: `learned` from what it publishes, `all`, or `none`."""
    clear_stale_selected_node: str = "own"
    """`own`: a selected node that we wrote is cleared once that node is gone, or has refused the pod for a minute and nothing
    else ties the pod to it. `none`: only provisioners clear it."""
    require_csi_node_drivers: tuple[str, ...] = ()
    """CSI drivers that must have registered on a node before pods with their volumes go there."""
    volume_write_retries: int = 3
    """How often a volume or claim that somebody else wrote meanwhile is looked at again and written after all."""
    bind_poll: str = "events"
    """`events`: a binding is looked at as soon as its volumes change. `upstream`: once a second."""
    treat_binding_as_unbound: bool = False
    """Refuse a pod whose claim a binding of ours is just completing, instead of letting it wait."""
    count_attached_twice: bool = False
    """Count a volume that is attached already as one more to be attached."""
    zone_ephemeral: str = "on"
    """`on`: VolumeZone looks at claims of ephemeral volumes too. `none`: it does not."""
    pre_bind_live_check: str = "claims"
    """`claims`: what the watch may not show yet of a claim is read before it is bound. `none`: the watch is believed."""
    device_scoring: str = "pack"
    """`pack`: of equal nodes and devices those that leave the largest request placeable. `firstFit`: the first."""
    device_preemption: str = "on"
    """`on`: pods may be evicted for their devices. `none`: devices are not given back in a trial."""
    device_double_check: str = "on"
    """`on`: devices that another claim got first are given back before the pod is bound. `none`: nobody looks."""
    derived_nominations: str = "on"
    """`on`: a pod whose claims leave it one node counts as nominated there. `none`: only status and preemption nominate."""

    def __post_init__(self) -> None:
        """Whoever reads one switch need not look at `parity` as well. Only `victims` stays as it was written."""
        if self.parity:
            for name, value in UPSTREAM.items():
                object.__setattr__(self, name, value)


UPSTREAM: Final[Mapping[str, Any]] = {
    "preemption_fair_share": "none",
    "busy_nodes": "none",
    "storage_capacity_reservation": "none",
    "storage_pool_sharing": "none",
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
"""The switches that `parity` sets, each to what kube-scheduler does (docs/spec/volumes.md §12, docs/spec/dra.md §10)."""

SPELLED: Final[Mapping[str, str]] = {
    "preemption_fair_share": "preemptionFairShare",
    "busy_nodes": "busyNodes",
    "storage_capacity_reservation": "storageCapacityReservation",
    "storage_pool_sharing": "storagePoolSharing",
    "clear_stale_selected_node": "clearStaleSelectedNode",
    "require_csi_node_drivers": "requireCSINodeDrivers",
    "volume_write_retries": "volumeWriteRetries",
    "bind_poll": "bindPoll",
    "treat_binding_as_unbound": "treatBindingAsUnbound",
    "count_attached_twice": "countAttachedTwice",
    "zone_ephemeral": "zoneEphemeral",
    "pre_bind_live_check": "preBindLiveCheck",
    "device_scoring": "deviceScoring",
    "device_preemption": "devicePreemption",
    "device_double_check": "deviceDoubleCheck",
    "derived_nominations": "derivedNominations",
}
"""Those switches as a file spells them."""


@dataclass(frozen=True, slots=True)
class RawArgs:
    """Arguments of a plugin that is not ours, unread. `path` is where they stand, for the plugin's own errors."""

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
"""VolumeBinding's shape when StorageCapacityScoring is on and the file gives none: most free space wins."""


def default_args(*, capacity_scoring: bool = False) -> dict[str, KnownArgs]:
    """The arguments of every plugin that has some, by plugin name, as if the file had none."""
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
