"""Workloads as their controllers decode them. Pod templates and claim templates stay raw, because they become objects."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from scheduler.api.meta import AnnotatedMetadata, Frozen
from scheduler.api.selectors import LabelSelector

MOST_PODS: Final = 1_000_000
"""More pods of one workload are refused: they would exhaust the memory of the simulation."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
IntOrPercent: TypeAlias = int | str


class PodTemplate(Frozen, frozen=True):
    """A pod template or claim template."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}

    @property
    def raw(self) -> dict[str, Any]:
        return {"metadata": self.metadata, "spec": self.spec}


class Rolling(Frozen, frozen=True):
    """`rollingUpdate` of any workload. None stands for the default of the kind."""

    max_surge: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    partition: Count = 0


class UpdateStrategy(Frozen, frozen=True):
    """`strategy` of a Deployment, `updateStrategy` of a StatefulSet or DaemonSet."""

    type: str = "RollingUpdate"
    rolling_update: Rolling | None = None

    @property
    def rolling(self) -> Rolling:
        return self.rolling_update or Rolling()


class ReplicaSetSpec(Frozen, frozen=True):
    """`spec` of a ReplicaSet."""

    template: PodTemplate
    replicas: Count = 1
    selector: LabelSelector | None = None


class ReplicaSetObject(Frozen, frozen=True):
    """A ReplicaSet with everything that its controllers read."""

    metadata: AnnotatedMetadata
    spec: ReplicaSetSpec


class ReplicationControllerSpec(Frozen, frozen=True):
    """`spec` of a ReplicationController, whose selector is a map of labels."""

    template: PodTemplate
    replicas: Count = 1
    selector: dict[str, str] | None = None


class ReplicationControllerObject(Frozen, frozen=True):
    """A ReplicationController with everything that its controller reads."""

    metadata: AnnotatedMetadata
    spec: ReplicationControllerSpec


class DeploymentSpec(Frozen, frozen=True):
    """`spec` of a Deployment."""

    template: PodTemplate
    replicas: Count = 1
    selector: LabelSelector | None = None
    strategy: UpdateStrategy = UpdateStrategy()
    paused: bool = False


class DeploymentStatus(Frozen, frozen=True):
    """`status` of a Deployment."""

    replicas: Count = 0


class DeploymentObject(Frozen, frozen=True):
    """A Deployment."""

    metadata: AnnotatedMetadata
    spec: DeploymentSpec
    status: DeploymentStatus = DeploymentStatus()


class Ordinals(Frozen, frozen=True):
    """`ordinals` of a StatefulSet."""

    start: Count = 0


class RetentionPolicy(Frozen, frozen=True):
    """`persistentVolumeClaimRetentionPolicy` of a StatefulSet."""

    when_scaled: str = "Retain"


class StatefulSetSpec(Frozen, frozen=True):
    """`spec` of a StatefulSet."""

    template: PodTemplate
    replicas: Count = 1
    selector: LabelSelector | None = None
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    volume_claim_templates: tuple[PodTemplate, ...] = ()
    ordinals: Ordinals = Ordinals()
    persistent_volume_claim_retention_policy: RetentionPolicy = RetentionPolicy()


class StatefulSetStatus(Frozen, frozen=True):
    """`status` of a StatefulSet."""

    current_replicas: Count = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSetObject(Frozen, frozen=True):
    """A StatefulSet with everything that its controller reads."""

    metadata: AnnotatedMetadata
    spec: StatefulSetSpec
    status: StatefulSetStatus = StatefulSetStatus()


class DaemonSetSpec(Frozen, frozen=True):
    """`spec` of a DaemonSet."""

    template: PodTemplate
    selector: LabelSelector | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetObject(Frozen, frozen=True):
    """A DaemonSet."""

    metadata: AnnotatedMetadata
    spec: DaemonSetSpec


class JobSpec(Frozen, frozen=True):
    """`spec` of a Job."""

    template: PodTemplate
    parallelism: Count | None = None
    completions: Count | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: Count | None = None
    backoff_limit_per_index: Count | None = None
    max_failed_indexes: Count | None = None
    selector: LabelSelector | None = None
    managed_by: str = ""


class JobCondition(Frozen, frozen=True):
    """One of `status.conditions` of a Job."""

    type: str = ""
    status: str = ""


class UncountedPods(Frozen, frozen=True):
    """Uids of finished pods that the counters of the status do not include yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Frozen, frozen=True):
    """`status` of a Job."""

    succeeded: Count = 0
    failed: Count = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[JobCondition, ...] = ()
    uncounted_terminated_pods: UncountedPods = UncountedPods()


class JobObject(Frozen, frozen=True):
    """A Job."""

    metadata: AnnotatedMetadata
    spec: JobSpec
    status: JobStatus = JobStatus()


class CronJobSpec(Frozen, frozen=True):
    """`spec` of a CronJob."""

    schedule: str = ""
    suspend: bool = False


class CronJobObject(Frozen, frozen=True):
    """A CronJob."""

    metadata: AnnotatedMetadata
    spec: CronJobSpec


class RevisionOwnerData(Frozen, frozen=True):
    """`data.spec` of a ControllerRevision."""

    template: PodTemplate = PodTemplate()


class RevisionData(Frozen, frozen=True):
    """`data` of a ControllerRevision of a StatefulSet or DaemonSet."""

    spec: RevisionOwnerData = RevisionOwnerData()


class ControllerRevision(Frozen, frozen=True):
    """A former or current template of a StatefulSet or DaemonSet."""

    metadata: AnnotatedMetadata
    revision: int = 0
    data: RevisionData = RevisionData()


def scaled(value: IntOrPercent | None, total: int, *, default: IntOrPercent, rounds_up: bool) -> int:
    """Return a number as it is, and a percentage as a share of `total`. A text that is neither counts 0.

    Upstream: staging/src/k8s.io/apimachinery/pkg/util/intstr/intstr.go GetScaledValueFromIntOrPercent
    """
    value = default if value is None else value
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 9:
        return 0
    share = int(digits) * total
    return -(-share // 100) if rounds_up else share // 100
