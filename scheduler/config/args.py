"""Plugin arguments, typed, with upstream v1.36's defaults (docs/spec/core.md §6.4).

`pluginConfig` names them by `plugin`; the kind is `<plugin>Args`. Values from `scheduler.config.load` are valid; the
constructors check nothing.

Upstream: pkg/scheduler/apis/config/types_pluginargs.go VolumeBindingArgs, DynamicResourcesArgs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Literal, TypeAlias

from scheduler.config.schema import INT32_MAX, INT64_MAX, option, spelled
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, FILTER_TIMEOUT

KUBE_SCHEDULER_V1: Final = "kubescheduler.config.k8s.io/v1"
KUBESTOW_V1ALPHA1: Final = "kubestow.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """A point of a piecewise linear curve: at `utilization` percent the score is `score`, 0..10."""

    utilization: int = option(absent=0)
    score: int = option(absent=0)


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """Weight of a resource in a score, 1..100."""

    name: str = option(absent="", required=True, valid="label key")
    weight: int = option(1, high=INT64_MAX, zero_is_default=True)


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
    match_label_keys: tuple[str, ...] = option((), valid="label key")


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    """How many candidate nodes a preemption checks: the larger of a share of all nodes and a number."""

    plugin: ClassVar[str] = "DefaultPreemption"
    min_candidate_nodes_percentage: int = option(10, bounds=(0, 100), why="not in valid range [0, 100]")
    min_candidate_nodes_absolute: int = option(100, bounds=(0, INT32_MAX), why="not in valid range [0, inf)")


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """Weight of existing pods' required affinity when scoring, 0..100."""

    plugin: ClassVar[str] = "InterPodAffinity"
    hard_pod_affinity_weight: int = option(1, bounds=(0, 100), why="not in valid range [0, 100]")
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
    ignored_resources: tuple[str, ...] = option((), valid="label key")
    ignored_resource_groups: tuple[str, ...] = option((), valid="resource group")
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
    filter_timeout_s: float = option(
        10.0,
        least=0.0,
        why="must be zero or positive",
        gates=frozenset({FILTER_TIMEOUT}),
        gates_off="DRASchedulingFilterTimeout feature gate is disabled",
    )
    binding_timeout_s: float = option(
        600.0,
        least=1.0,
        why="must be at least 1 second",
        gates=frozenset({BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}),
        gates_off="DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled",
    )


@dataclass(frozen=True, slots=True)
class KubestowArgs:
    """Deliberate differences from kube-scheduler, per profile. `parity` turns off every difference that can be turned off, except `victims`.

    Not a plugin: a `pluginConfig` entry of this name is the place that the v1 schema allows.
    """

    plugin: ClassVar[str] = "Kubestow"
    parity: bool = False
    victims: Literal["all", "own", "ownFirst"] = "all"
    """Pods that preemption may evict: `all` as upstream, `own` (pods of Kubestow's scheduler names only), or
    `ownFirst`.
    """
    busy_nodes: Literal["avoid", "none"] = option("avoid", upstream="none")
    """`avoid`: if another scheduler may fill the best node, the fullest of the nodes is taken that are as good apart from
    resources. `none`: the best node is taken.
    """
    storage_capacity_reservation: Literal["ledger", "none"] = option("ledger", upstream="none")
    """`ledger`: volumes that are being provisioned reduce a pool's capacity. `none`: only the published capacity
    counts.
    """
    storage_pool_sharing: Literal["learned", "all", "none"] = option("learned", upstream="none")
    """Classes of one driver that share a pool: `learned` from what the driver publishes, `all`, or `none`."""
    require_csi_node_drivers: tuple[str, ...] = option((), upstream=())
    """CSI drivers that must be registered on a node before pods with their volumes are placed there."""
    device_scoring: Literal["pack", "firstFit", "leastFragmentation"] = option("pack", upstream="firstFit")
    """`pack`: of equal nodes and devices those that leave the largest request placeable. `firstFit`: the first.
    `leastFragmentation`: as `pack`, and nodes score by how little of their free devices becomes unusable for typical pods.
    """
    device_preemption: Literal["on", "none"] = option("on", upstream="none")
    """`on`: pods may be evicted for their devices. `none`: preemption does not free devices."""
    derived_nominations: Literal["on", "none"] = option("on", upstream="none")
    """`on`: a pod whose claims leave it one node counts as nominated there. `none`: only status and preemption
    nominate.
    """
    groups: Literal["on", "none"] = option("on", upstream="none")
    """`on`: the pods of a PodGroup start together. `none`: each pod is placed alone."""
    preemption_fair_share: Literal["on", "none"] = option("on", upstream="none", in_files=False)
    """While other pods are ready, pods that searched for victims in vain get a tenth of the time. So do pods whose
    attempt failed after more than two seconds, also while no other pod is ready.
    """
    bind_poll: Literal["events", "upstream"] = option("events", upstream="upstream", in_files=False)
    """A binding is checked as soon as its volumes and devices change, not only once a second."""
    count_attached_twice: bool = option(False, upstream=True, in_files=False)
    """A volume that is already attached is not counted again."""
    zone_ephemeral: Literal["on", "none"] = option("on", upstream="none", in_files=False)
    """VolumeZone checks claims of ephemeral volumes."""
    pre_bind_live_check: Literal["claims", "none"] = option("claims", upstream="none", in_files=False)
    """A young claim is read from the API server before it is bound, because the watch may be late."""
    device_double_check: Literal["on", "none"] = option("on", upstream="none", in_files=False)
    """Devices that another claim got first are returned before the pod is bound."""

    def __post_init__(self) -> None:
        """Apply `parity` to all switches but `victims`, so that readers of one switch need not check `parity`."""
        if self.parity:
            for name, value in UPSTREAM.items():
                object.__setattr__(self, name, value)


_SWITCHES: Final = [each for each in fields(KubestowArgs) if "upstream" in each.metadata]
UPSTREAM: Final[Mapping[str, Any]] = {each.name: each.metadata["upstream"] for each in _SWITCHES}
"""The switches that `parity` sets, with kube-scheduler's values (docs/spec/volumes.md §12, docs/spec/dra.md §10)."""

SPELLED: Final[Mapping[str, str]] = {
    each.name: spelled(each.name) for each in _SWITCHES if each.metadata.get("in_files", True)
}
"""Those that a file can set, in its spelling."""


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
