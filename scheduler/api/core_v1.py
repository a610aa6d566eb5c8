"""Pods, nodes and namespaces as they are decoded: the fields that scheduling reads (docs/spec/core.md §A, §4.4, §5).

Of failed pods only identity, node and reason are decoded, because a cluster may keep thousands of them. Equal parts
of bound pods (labels, containers, affinity, owner, conditions) are stored once, because the pods of a cluster come
from few templates: that saves three quarters of their memory. Shared parts never change after decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from scheduler.api.meta import (
    AnnotatedMetadata,
    ClusterObject,
    Frozen,
    Identity,
    Int32,
    Key,
    NamespacedObject,
    OwnerReference,
    PodMetadata,
    Values,
)
from scheduler.api.quantity import Quantity
from scheduler.api.selectors import LabelSelector
from scheduler.core.caching import Interner

ResourceMap: TypeAlias = dict[str, Quantity]
BoundedResourceMap: TypeAlias = Annotated[ResourceMap, msgspec.Meta(max_length=1_000)]
"""Resources of a node; each costs a column."""


class ContainerClaim(Frozen, frozen=True):
    """A claim of the pod that a container uses; `name` is that of the entry in `spec.resourceClaims`."""

    name: str = ""


class ResourceRequirements(Frozen, frozen=True):
    """Requests and limits. Scheduling needs no limits, because the API server has defaulted requests from them."""

    requests: ResourceMap = {}
    limits: ResourceMap = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Frozen, frozen=True):
    """A port of a container. It is a host port if `host_port` > 0."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class ContainerRestartRule(Frozen, frozen=True):
    """The action when the container exits in a certain way."""

    action: str = ""


class VolumeMount(Frozen, frozen=True):
    bind_mount_options: tuple[str, ...] = ()


class Container(Frozen, frozen=True):
    """A container of any kind; `restart_policy == "Always"` makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class Toleration(Frozen, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Frozen, frozen=True):
    """One expression over a node's labels or fields. A broken one makes its term match nothing, as upstream."""

    key: str = ""
    operator: str = ""
    values: Values = ()


class NodeSelectorTerm(Frozen, frozen=True):
    """All expressions must match; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Frozen, frozen=True):
    """Any term may match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Frozen, frozen=True):
    """A preference with a weight of 1–100."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Frozen, frozen=True):
    """Required terms (hard) and preferred terms (score)."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Frozen, frozen=True):
    """Pods, over a topology."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: Values = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Frozen, frozen=True):
    """A preference with a weight of 1–100."""

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
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Frozen, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Frozen, frozen=True):
    """A reason to wait before the first attempt."""

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


class PodCertificateSource(Frozen, frozen=True):
    """A certificate that the kubelet requests."""

    key_type: str = ""


class ProjectedSource(Frozen, frozen=True):
    """One source of a projected volume; without a certificate it says nothing here."""

    pod_certificate: PodCertificateSource | None = None


class ProjectedVolume(Frozen, frozen=True):
    """A projected volume. Only sources with a certificate are kept, because each pod has a token."""

    sources: tuple[ProjectedSource, ...] = ()

    def __post_init__(self) -> None:
        kept = tuple(source for source in self.sources if source.pod_certificate is not None)
        force_setattr(self, "sources", kept)


class Volume(Frozen, frozen=True):
    """A pod volume. Inline sources are kept as they came, because volume plugins read their keys; None if absent."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None
    image: ImageVolumeSource | None = None
    csi: InlineCSI | None = None
    projected: ProjectedVolume | None = None
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
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Frozen, frozen=True):
    """`spec.schedulingGroup` (gang scheduling)."""

    pod_group_name: str | None = None


class PodSpec(Frozen, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    overhead: ResourceMap = {}
    node_selector: Annotated[dict[str, str], Meta(max_length=1_000)] = {}
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
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class ContainerStatus(Frozen, frozen=True):
    """What in-place resize reports: allocated resources, and actual ones in `resources`."""

    name: str = ""
    allocated_resources: ResourceMap | None = None
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(Frozen, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Frozen, frozen=True):
    """The request of the claim that provides a container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Frozen, frozen=True):
    """`status.extendedResourceClaimStatus`: the claim that a scheduler created for the pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Frozen, frozen=True):
    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: ResourceMap | None = None
    resources: ResourceRequirements | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(NamespacedObject, frozen=True):
    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def priority(self) -> int:
        """`spec.priority`, 0 when unset (docs/spec/core.md §A.5)."""
        return self.spec.priority or 0

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has finished and uses no resources."""
        return self.status.phase in {"Succeeded", "Failed"}

    def condition(self, type_: str) -> PodCondition | None:
        return next((c for c in self.status.conditions if c.type == type_), None)


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the controlling owner of the pod, if there is one."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


class Taint(Frozen, frozen=True):
    """`spec.taints[]`. Hashable: nodes are grouped by their taints."""

    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def text(self) -> str:
        """Return `key=value:effect`, as kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSpec(Frozen, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Frozen, frozen=True):
    """Type and status. Timestamps change with every heartbeat and are not read."""

    type: str = ""
    status: str = ""


class ContainerImage(Frozen, frozen=True):
    """An image on the node. `names` is null for an image whose names moved to a newer build."""

    names: tuple[str, ...] | None = ()
    size_bytes: int = 0


_NAMES_MAX: Final = 10_000
"""Image names per node that count; a kubelet reports 50 images by default."""
_images: Final[Interner[ContainerImage, ContainerImage]] = Interner(50_000)
"""Images that nodes share. The least recently seen are dropped; nodes report them again with the next heartbeat."""


class NodeStatus(Frozen, frozen=True):
    allocatable: BoundedResourceMap = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()

    def __post_init__(self) -> None:
        """Share equal images of all nodes: fifty per node would be nine tenths of its memory."""
        if self.images:
            force_setattr(self, "images", tuple(_counting(self.images)))


def _counting(images: Iterable[ContainerImage]) -> Iterator[ContainerImage]:
    """Yield images up to the number of names that count, each as the shared object."""
    remaining = _NAMES_MAX
    for image in images:
        remaining -= len(image.names or ()) or 1
        if remaining < 0:
            return
        yield _images.share(image, image)


class Node(ClusterObject, frozen=True):
    metadata: AnnotatedMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(ClusterObject, frozen=True):
    """A namespace; only its labels are read."""


class FailedSpec(Frozen, frozen=True):
    """The node of the pod."""

    node_name: str = ""


class FailedStatus(Frozen, frozen=True):
    """The reason, such as `OutOfcpu` if the kubelet rejected the pod."""

    reason: str = ""


class FailedPod(Frozen, frozen=True):
    """A pod with `status.phase` Failed."""

    metadata: Identity
    spec: FailedSpec = FailedSpec()
    status: FailedStatus = FailedStatus()

    @property
    def key(self) -> Key:
        return self.metadata.key


T = TypeVar("T")

_SIZE: Final = 50_000
_interner: Final[Interner[Any, Any]] = Interner(_SIZE)
_known_labels: Final[Interner[Any, dict[str, str]]] = Interner(_SIZE)
_known_containers: Final[Interner[bytes, tuple[Container, ...]]] = Interner(_SIZE)
_known_affinities: Final[Interner[bytes, Affinity]] = Interner(_SIZE)
_known_spreads: Final[Interner[bytes, tuple[TopologySpreadConstraint, ...]]] = Interner(_SIZE)
_known_statuses: Final[Interner[bytes, tuple[ContainerStatus, ...]]] = Interner(_SIZE)
_nothing: dict[str, Any] = {}
_encode: Final = msgspec.msgpack.Encoder(enc_hook=lambda quantity: str(quantity.nano)).encode


def share(pod: Pod) -> None:
    """Replace the parts of a pod by equal parts of earlier pods. Call it before the pod is shared.

    Pods without a node are not changed: they are few, and the next event replaces them. Costs about 5 µs.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if not spec.node_name:
        return
    labels = metadata.labels
    force_setattr(metadata, "namespace", one(metadata.namespace))
    force_setattr(metadata, "labels", _known_labels.share(tuple(labels.items()), labels))
    force_setattr(metadata, "annotations", one(metadata.annotations))
    force_setattr(metadata, "owner_references", one(metadata.owner_references))
    force_setattr(spec, "node_name", one(spec.node_name))
    force_setattr(spec, "scheduler_name", one(spec.scheduler_name))
    force_setattr(spec, "preemption_policy", one(spec.preemption_policy))
    force_setattr(spec, "tolerations", one(spec.tolerations))
    force_setattr(spec, "containers", _known_containers.share(_encode(spec.containers), spec.containers))
    if spec.init_containers:
        force_setattr(
            spec, "init_containers", _known_containers.share(_encode(spec.init_containers), spec.init_containers)
        )
    if spec.affinity is not None:
        force_setattr(spec, "affinity", _known_affinities.share(_encode(spec.affinity), spec.affinity))
    spread = spec.topology_spread_constraints
    if spread:
        force_setattr(spec, "topology_spread_constraints", _known_spreads.share(_encode(spread), spread))
    if not spec.overhead:
        force_setattr(spec, "overhead", _nothing)
    if not spec.node_selector:
        force_setattr(spec, "node_selector", _nothing)
    force_setattr(status, "phase", one(status.phase))
    force_setattr(status, "conditions", one(status.conditions))
    statuses = status.container_statuses
    force_setattr(status, "container_statuses", _known_statuses.share(_encode(statuses), statuses))
    if status.init_container_statuses:
        statuses = status.init_container_statuses
        force_setattr(status, "init_container_statuses", _known_statuses.share(_encode(statuses), statuses))


def one(part: T) -> T:
    """Return the equal part that was seen first."""
    interner: Interner[Any, T] = _interner
    return interner.share(part, part)
