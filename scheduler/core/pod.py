"""Pods, as decoded: the fields that scheduling reads (docs/spec/core.md §A, §4.4, §5)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from scheduler.core.labels import LabelSelector
from scheduler.core.meta import Frozen, Int32, Metadata, Values
from scheduler.core.quantity import Quantity

ResourceMap: TypeAlias = dict[str, Quantity]
BoundedResourceMap: TypeAlias = Annotated[ResourceMap, msgspec.Meta(max_length=1_000)]
"""Of a node, which costs a column for each resource."""


class ResourceRequirements(Frozen, frozen=True):
    """Requests; limits are never looked at (the API server has defaulted requests from them)."""

    requests: ResourceMap = {}


class ContainerPort(Frozen, frozen=True):
    """A port a container asks of its node when `host_port` > 0."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class ContainerRestartRule(Frozen, frozen=True):
    """What is done when the container exits in a certain way."""

    action: str = ""


class Container(Frozen, frozen=True):
    """A container or init container; `restart_policy == "Always"` makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class Toleration(Frozen, frozen=True):
    """`spec.tolerations[]`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Frozen, frozen=True):
    """One expression over a node's labels or fields; a broken one makes its term match nothing, as upstream."""

    key: str = ""
    operator: str = ""
    values: Values = ()


class NodeSelectorTerm(Frozen, frozen=True):
    """All must hold; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Frozen, frozen=True):
    """Any term may hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Frozen, frozen=True):
    """A wish with a weight of 1–100."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Frozen, frozen=True):
    """Required terms (hard) and preferred terms (score)."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Frozen, frozen=True):
    """Which pods, over which topology."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: Values = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Frozen, frozen=True):
    """A wish about other pods."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Frozen, frozen=True):
    """Pod affinity or anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Frozen, frozen=True):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Frozen, frozen=True):
    """`spec.topologySpreadConstraints[]`."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Frozen, frozen=True):
    """A reason not to try yet."""

    name: str = ""


class ClaimVolumeSource(Frozen, frozen=True):
    """`persistentVolumeClaim` of a pod volume."""

    claim_name: str = ""
    read_only: bool = False


class ImageVolumeSource(Frozen, frozen=True):
    """`image` of a pod volume: an image that is mounted, not run."""

    reference: str = ""


class InlineCSI(Frozen, frozen=True):
    """`csi` of a pod volume."""

    driver: str = ""


class Volume(Frozen, frozen=True):
    """A pod volume. Inline sources are kept as they came (their keys matter to volume plugins); None where absent."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None
    image: ImageVolumeSource | None = None
    csi: InlineCSI | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None


class PodResourceClaim(Frozen, frozen=True):
    """`spec.resourceClaims[]`."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Frozen, frozen=True):
    """`spec.schedulingGroup` (gang scheduling)."""

    pod_group_name: str | None = None


class PodSpec(Frozen, frozen=True):
    """What the pod asks for."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    overhead: ResourceMap = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None


class PodCondition(Frozen, frozen=True):
    """`status.conditions[]`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class ContainerStatus(Frozen, frozen=True):
    """What in-place resize reports: allocated, and actuated in `resources`."""

    name: str = ""
    allocated_resources: ResourceMap | None = None
    resources: ResourceRequirements | None = None


class ResourceClaimStatus(Frozen, frozen=True):
    """`status.resourceClaimStatuses[]`."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Frozen, frozen=True):
    """From which request of the claim a container gets an extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Frozen, frozen=True):
    """`status.extendedResourceClaimStatus`: the claim that a scheduler made for the pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Frozen, frozen=True):
    """What has happened to the pod."""

    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: ResourceMap | None = None
    resources: ResourceRequirements | None = None
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Frozen, frozen=True):
    """A pod as the API server has it."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

    @property
    def priority(self) -> int:
        """`spec.priority`, 0 when unset (docs/spec/core.md §A.5)."""
        return self.spec.priority or 0

    @property
    def is_terminal(self) -> bool:
        """Finished: holds no place any more."""
        return self.status.phase in {"Succeeded", "Failed"}

    def condition(self, type_: str) -> PodCondition | None:
        """The condition of this type, if there is one."""
        return next((c for c in self.status.conditions if c.type == type_), None)
