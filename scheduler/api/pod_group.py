"""Groups of pods that start together: PodGroup objects of three API groups (docs/spec/groups.md §1).

A pod names its group in one of three ways, and the way says which object is meant. `spec.schedulingGroup.podGroupName` names a
PodGroup of scheduling.k8s.io, Kubernetes' own. The label `scheduling.x-k8s.io/pod-group` names a PodGroup of
scheduling.x-k8s.io, which the coscheduling plugin introduced and which Kubeflow Trainer, the MPI operator and the Spark operator
write. The annotation `scheduling.k8s.io/group-name` names a PodGroup of scheduling.volcano.sh, which is Volcano's, and which
KubeRay, LeaderWorkerSet and Spark write. All are in the namespace of the pod. A pod that names several belongs to the first one in
this order.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple, TypeAlias

from scheduler.api.core_v1 import Pod, PodCondition, ResourceMap
from scheduler.api.meta import Frozen, Int32, Key, NamespacedObject, PodGroupMetadata

POD_GROUP: Final = "PodGroup"
"""The kind of scheduling.k8s.io."""
COSCHEDULING_POD_GROUP: Final = "PodGroup.scheduling.x-k8s.io"
"""The kind of scheduling.x-k8s.io, which has the same short name."""
VOLCANO_POD_GROUP: Final = "PodGroup.scheduling.volcano.sh"
"""The kind of scheduling.volcano.sh, which has the same short name."""
KINDS: Final = (POD_GROUP, COSCHEDULING_POD_GROUP, VOLCANO_POD_GROUP)
API_GROUPS: Final = {kind: "scheduling.k8s.io" if kind == POD_GROUP else kind.partition(".")[2] for kind in KINDS}
"""Kind → the API group of its objects, by which users name the kind."""
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"
TASK: Final = "volcano.sh/task-spec"
"""The annotation or label with the task of a pod; the annotation wins."""


STARTED: Final = "PodGroupInitiallyScheduled"
"""The condition of scheduling.k8s.io. Once True it stays True."""


class GroupKey(NamedTuple):
    """A group: the kind of its object, and `namespace/name`."""

    kind: str
    key: Key

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


class Gang(Frozen, frozen=True):
    """`schedulingPolicy.gang`."""

    min_count: Int32 = 1


class SchedulingPolicy(Frozen, frozen=True):
    """`schedulingPolicy`; without `gang` it is `basic`, and the pods start one by one."""

    gang: Gang | None = None


class TopologyConstraint(Frozen, frozen=True):
    """`schedulingConstraints.topology[]`: all pods in one domain of this label."""

    key: str = ""


class SchedulingConstraints(Frozen, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(Frozen, frozen=True):
    """`resourceClaims[]`: a claim that the pods of the group share."""

    name: str = ""


class AllDisruption(Frozen, frozen=True):
    """`disruptionMode.all`: it has no fields."""


class DisruptionMode(Frozen, frozen=True):
    """`disruptionMode`; without `all` it is `single`, and pods of the group may be preempted one by one."""

    all: AllDisruption | None = None


class PodGroupSpec(Frozen, frozen=True):
    """`spec` of scheduling.k8s.io."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    parent_composite_pod_group_name: str | None = None
    priority: Int32 | None = None
    disruption_mode: DisruptionMode = DisruptionMode()


class PodGroupStatus(Frozen, frozen=True):
    """`status` of scheduling.k8s.io."""

    conditions: tuple[PodCondition, ...] = ()


class PodGroup(NamespacedObject, frozen=True):
    """A PodGroup of scheduling.k8s.io/v1beta1."""

    metadata: PodGroupMetadata
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    api_version: ClassVar[str] = "scheduling.k8s.io/v1beta1"

    def condition(self, type_: str) -> PodCondition | None:
        return next((each for each in self.status.conditions if each.type == type_), None)

    @property
    def group(self) -> GroupKey:
        """The key by which its pods find it."""
        return GroupKey(POD_GROUP, self.key)

    @property
    def is_gang(self) -> bool:
        """Whether its pods start together."""
        return self.spec.scheduling_policy.gang is not None

    @property
    def least(self) -> int:
        """The number of pods with which the group can start; at least 1."""
        gang = self.spec.scheduling_policy.gang
        return max(1, gang.min_count) if gang is not None else 1

    @property
    def topology_key(self) -> str:
        """The label that must have one value on the nodes of all its pods; "" if there is none. The API allows one."""
        return next((each.key for each in self.spec.scheduling_constraints.topology), "")

    @property
    def is_disrupted_whole(self) -> bool:
        """Whether all of its pods are preempted if one of them is."""
        return self.spec.disruption_mode.all is not None

    @property
    def unsupported(self) -> str:
        """The field that forbids a start, because this version does not know how to obey it; "" if there is none."""
        spec = self.spec
        fields = {
            "spec.resourceClaims": spec.resource_claims,
            "spec.parentCompositePodGroupName": spec.parent_composite_pod_group_name,
        }
        return next((field for field, value in fields.items() if value), "")


class CoschedulingSpec(Frozen, frozen=True):
    """`spec` of scheduling.x-k8s.io."""

    min_member: Int32 = 1
    min_resources: ResourceMap = {}
    """What all pods of the group need together, so that it is not started with less."""


class CoschedulingPodGroup(NamespacedObject, frozen=True):
    """A PodGroup of scheduling.x-k8s.io/v1alpha1.

    `scheduleTimeoutSeconds` is not read: it limits how long pods hold nodes while their mates are not decided yet, and here
    all are decided at once.
    """

    metadata: PodGroupMetadata
    spec: CoschedulingSpec = CoschedulingSpec()

    api_version: ClassVar[str] = "scheduling.x-k8s.io/v1alpha1"
    is_gang: ClassVar[bool] = True
    unsupported: ClassVar[str] = ""
    topology_key: ClassVar[str] = ""

    @property
    def group(self) -> GroupKey:
        """The key by which its pods find it."""
        return GroupKey(COSCHEDULING_POD_GROUP, self.key)

    @property
    def least(self) -> int:
        """The number of pods with which the group can start; at least 1."""
        return max(1, self.spec.min_member)


class NetworkTopology(Frozen, frozen=True):
    """`networkTopology`: all pods below one switch of at most this tier. Without a mode it is `hard`, without a tier no limit."""

    mode: str = "hard"
    highest_tier_allowed: Int32 | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Frozen, frozen=True):
    network_topology: NetworkTopology | None = None
    min_sub_groups: Int32 | None = None


class VolcanoSpec(Frozen, frozen=True):
    """`spec` of scheduling.volcano.sh."""

    min_member: Int32 = 1
    min_task_member: dict[str, Int32] = {}
    """Task → the number of its pods with which the group can start. Without effect if `min_member` is less than their sum."""
    min_resources: ResourceMap = {}
    queue: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class VolcanoPodGroup(NamespacedObject, frozen=True):
    """A PodGroup of scheduling.volcano.sh/v1beta1. Its queue and its priority class are not read."""

    metadata: PodGroupMetadata
    spec: VolcanoSpec = VolcanoSpec()

    api_version: ClassVar[str] = "scheduling.volcano.sh/v1beta1"
    is_gang: ClassVar[bool] = True
    topology_key: ClassVar[str] = ""

    @property
    def group(self) -> GroupKey:
        """The key by which its pods find it."""
        return GroupKey(VOLCANO_POD_GROUP, self.key)

    @property
    def least(self) -> int:
        """The number of pods with which the group can start, without those that `minTaskMember` adds; at least 1."""
        return max(1, self.spec.min_member)

    @property
    def unsupported(self) -> str:
        """The field that forbids a start, because this version does not know how to obey it; "" if there is none."""
        if _is_hard(self.spec.network_topology):
            return "spec.networkTopology with mode hard"
        for at, policy in enumerate(self.spec.sub_group_policy):
            if policy.min_sub_groups:
                return f"spec.subGroupPolicy[{at}].minSubGroups"
            if _is_hard(policy.network_topology):
                return f"spec.subGroupPolicy[{at}].networkTopology with mode hard"
        return ""


def _is_hard(topology: NetworkTopology | None) -> bool:
    if topology is None or topology.mode == "soft":
        return False
    return topology.highest_tier_allowed is not None or bool(topology.highest_tier_name)


AnyPodGroup: TypeAlias = PodGroup | CoschedulingPodGroup | VolcanoPodGroup


def group_of(pod: Pod) -> GroupKey | None:
    """Return the group that the pod names; None without one. Whether the server has such objects is not considered."""
    named = pod.spec.scheduling_group
    if named is not None and named.pod_group_name:
        return GroupKey(POD_GROUP, f"{pod.metadata.namespace}/{named.pod_group_name}")
    metadata = pod.metadata
    if name := metadata.labels.get(COSCHEDULING_LABEL):
        return GroupKey(COSCHEDULING_POD_GROUP, f"{metadata.namespace}/{name}")
    if name := metadata.annotations.group_name:
        return GroupKey(VOLCANO_POD_GROUP, f"{metadata.namespace}/{name}")
    return None


def task_of(pod: Pod) -> str:
    """Return the task of the pod in its group, for `minTaskMember`; "" without one."""
    return pod.metadata.annotations.task or pod.metadata.labels.get(TASK, "")
