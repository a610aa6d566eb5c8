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


class _Spec(Frozen, frozen=True):
    template: PodTemplate


class _Selecting(_Spec, frozen=True):
    selector: LabelSelector | None = None


class _Object(Frozen, frozen=True):
    metadata: AnnotatedMetadata


class ReplicaSetSpec(_Selecting, frozen=True):
    replicas: Count = 1


class ReplicaSetObject(_Object, frozen=True):
    spec: ReplicaSetSpec


class ReplicationControllerSpec(_Spec, frozen=True):
    replicas: Count = 1
    selector: dict[str, str] | None = None


class ReplicationControllerObject(_Object, frozen=True):
    spec: ReplicationControllerSpec


class DeploymentSpec(ReplicaSetSpec, frozen=True):
    strategy: UpdateStrategy = UpdateStrategy()
    paused: bool = False


class DeploymentStatus(Frozen, frozen=True):
    replicas: Count = 0


class DeploymentObject(_Object, frozen=True):
    spec: DeploymentSpec
    status: DeploymentStatus = DeploymentStatus()


class Ordinals(Frozen, frozen=True):
    start: Count = 0


class RetentionPolicy(Frozen, frozen=True):
    when_scaled: str = "Retain"


class StatefulSetSpec(ReplicaSetSpec, frozen=True):
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    volume_claim_templates: tuple[PodTemplate, ...] = ()
    ordinals: Ordinals = Ordinals()
    persistent_volume_claim_retention_policy: RetentionPolicy = RetentionPolicy()


class StatefulSetStatus(Frozen, frozen=True):
    current_replicas: Count = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSetObject(_Object, frozen=True):
    spec: StatefulSetSpec
    status: StatefulSetStatus = StatefulSetStatus()


class DaemonSetSpec(_Selecting, frozen=True):
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetObject(_Object, frozen=True):
    spec: DaemonSetSpec


class JobSpec(_Selecting, frozen=True):
    parallelism: Count | None = None
    completions: Count | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: Count | None = None
    backoff_limit_per_index: Count | None = None
    max_failed_indexes: Count | None = None
    managed_by: str = ""


class JobCondition(Frozen, frozen=True):
    type: str = ""
    status: str = ""


class UncountedPods(Frozen, frozen=True):
    """Uids of finished pods that the counters of the status do not include yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Frozen, frozen=True):
    succeeded: Count = 0
    failed: Count = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[JobCondition, ...] = ()
    uncounted_terminated_pods: UncountedPods = UncountedPods()


class JobObject(_Object, frozen=True):
    spec: JobSpec
    status: JobStatus = JobStatus()


class CronJobSpec(Frozen, frozen=True):
    schedule: str = ""
    suspend: bool = False


class CronJobObject(_Object, frozen=True):
    spec: CronJobSpec


class RevisionOwnerData(Frozen, frozen=True):
    """`data.spec` of a ControllerRevision."""

    template: PodTemplate = PodTemplate()


class RevisionData(Frozen, frozen=True):
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
