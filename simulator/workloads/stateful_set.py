"""The StatefulSet controller.

Upstream: pkg/controller/statefulset/stateful_set_control.go defaultStatefulSetControl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.manifests.pods import stateful_claims, stateful_pod
from simulator.controllers.controller import is_deleting, is_finished
from simulator.workloads.pods import (
    REVISION,
    Object,
    Plan,
    is_running_and_ready,
    labels_of,
)
from simulator.workloads.specs import PodTemplate, StatefulSetObject


@dataclass(frozen=True, slots=True)
class Revisions:
    """The templates of a StatefulSet or DaemonSet by revision. Without `update` all pods count as up to date."""

    update: str = ""
    """The revision of the template that the spec has now; it may have no ControllerRevision yet."""
    current: str = ""
    templates: Mapping[str, PodTemplate] = field(default_factory=dict)

    def is_outdated(self, pod: Object) -> bool:
        """Return whether a rolling update replaces the pod."""
        return bool(self.update) and labels_of(pod).get(REVISION, "") != self.update


def plan(spec: StatefulSetObject, owner: Object, pods: Sequence[Object], revisions: Revisions) -> Plan:
    """Return the pods and claims of the next sync: of `OrderedReady` one pod at a time, in the order of ordinals.

    Upstream: pkg/controller/statefulset/stateful_set_control.go updateStatefulSet
    """
    start, wanted = spec.spec.ordinals.start, spec.spec.replicas
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := _ordinal(owner, pod)) is not None}
    ordinals = range(start, start + wanted)
    condemned = sorted((each for each in by_ordinal if each not in ordinals), reverse=True)
    is_ordered = spec.spec.pod_management_policy != "Parallel"
    create: list[Object] = []
    claims: list[Object] = []
    delete: list[Object] = []
    for ordinal in ordinals:
        pod = by_ordinal.get(ordinal)
        if pod is None:
            create.append(_new(spec, owner, ordinal, revisions))
            claims += stateful_claims(owner, ordinal)
        elif is_finished(pod):
            delete.append(pod)
        if is_ordered and (pod is None or not is_running_and_ready(pod)):
            later = [each for each in ordinals if each > ordinal and each not in by_ordinal]
            are = "1 pod is created" if len(later) == 1 else f"{len(later)} pods are created one after the other"
            waits = f"{are}, once {_name(owner, ordinal)} is ready"
            return Plan(
                tuple(create), tuple(claims), tuple(delete), reason=waits if later else "", needs_readiness=True
            )
    if condemned:
        return _condemned(
            spec,
            owner,
            [by_ordinal[each] for each in condemned],
            Plan(tuple(create), tuple(claims), tuple(delete)),
            is_ordered=is_ordered,
        )
    if not create and not delete:
        delete = _outdated(spec, [by_ordinal[each] for each in ordinals], revisions)
    is_updating = any(revisions.is_outdated(pod) for pod in by_ordinal.values())
    return Plan(tuple(create), tuple(claims), tuple(delete), needs_readiness=is_updating)


def _condemned(spec: StatefulSetObject, owner: Object, pods: list[Object], plan: Plan, *, is_ordered: bool) -> Plan:
    """Highest ordinal first; of `OrderedReady` one at a time, and the lowest unready pod before a ready one."""
    chosen = [pod for pod in pods if not is_deleting(pod)]
    if is_ordered:
        unready = [pod for pod in pods if not is_running_and_ready(pod)]
        waits = len(chosen) < len(pods) or (pods[0] in unready and pods[0] is not unready[-1])
        chosen = [] if waits else pods[:1]
    released: tuple[str, ...] = ()
    if spec.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete":
        ordinals = [ordinal for pod in chosen if (ordinal := _ordinal(owner, pod)) is not None]
        released = tuple(claim["metadata"]["name"] for each in ordinals for claim in stateful_claims(owner, each))
    return Plan(plan.create, plan.claims, (*plan.delete, *chosen), released, needs_readiness=is_ordered)


def _outdated(spec: StatefulSetObject, pods: list[Object], revisions: Revisions) -> list[Object]:
    """Return the pod that a rolling update deletes next: the highest outdated ordinal, if all above it are ready."""
    if spec.spec.update_strategy.type == "OnDelete":
        return []
    for pod in reversed(pods[spec.spec.update_strategy.rolling.partition :]):
        if revisions.is_outdated(pod) and not is_deleting(pod):
            return [pod]
        if not is_running_and_ready(pod):
            return []
    return []


def _new(spec: StatefulSetObject, owner: Object, ordinal: int, revisions: Revisions) -> Object:
    """Return the pod of an ordinal, below the partition from the current revision.

    Upstream: pkg/controller/statefulset/stateful_set_utils.go newVersionedStatefulSetPod
    """
    start, strategy = spec.spec.ordinals.start, spec.spec.update_strategy
    partition = strategy.rolling_update.partition if strategy.rolling_update else spec.status.current_replicas
    is_current = strategy.type == "RollingUpdate" and ordinal < start + partition
    revision = revisions.current if is_current else revisions.update
    template = revisions.templates.get(revision, spec.spec.template) if is_current else spec.spec.template
    pod = stateful_pod(owner, template.raw, ordinal)
    if revision:
        pod["metadata"]["labels"][REVISION] = revision
    return pod


def _name(owner: Object, ordinal: int) -> str:
    return f"{owner['metadata']['name']}-{ordinal}"


def _ordinal(owner: Object, pod: Object) -> int | None:
    """Return the number in the pod's name; None for a pod of another name, which the controller does not count."""
    prefix, _, digits = str(pod["metadata"]["name"]).rpartition("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 10
    return int(digits) if prefix == owner["metadata"]["name"] and is_number else None
