"""What changed on a pod, as cluster events (docs/spec/core.md §4.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.podinfo import PodInfo


def pod_changes(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """One event per changed property, or one generic update; about AssignedPod once the pod has a node.

    A bound pod that begins to terminate is also an update of its labels, as upstream does not say: selectors of spread
    constraints select it no longer.
    """
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.UNSCHEDULABLE_POD
    actions = [action for differs, action in _CHECKS if differs(old, new)] or [Action.UPDATE_OTHER]
    if new.node_name and _begins_to_terminate(old, new) and Action.UPDATE_POD_LABEL not in actions:
        actions.append(Action.UPDATE_POD_LABEL)
    return [ClusterEvent(resource, action) for action in actions]


def _labels_differ(old: PodInfo, new: PodInfo) -> bool:
    return old.pod.metadata.labels != new.pod.metadata.labels


def _begins_to_terminate(old: PodInfo, new: PodInfo) -> bool:
    return old.pod.metadata.deletion_timestamp is None and new.pod.metadata.deletion_timestamp is not None


def _requests_shrank(old: PodInfo, new: PodInfo) -> bool:
    nothing = -1  # a request that is gone is less than one of zero
    return any(new.requests.get(name, nothing) < amount for name, amount in old.requests.items())


def _gates_eliminated(old: PodInfo, new: PodInfo) -> bool:
    return bool(old.pod.spec.scheduling_gates) and not new.pod.spec.scheduling_gates


def _tolerations_differ(old: PodInfo, new: PodInfo) -> bool:
    return len(old.pod.spec.tolerations) != len(new.pod.spec.tolerations)


def _claims_differ(old: PodInfo, new: PodInfo) -> bool:
    """In another order they do: it is not worth sorting what hardly ever changes (docs/spec/dra.md §7.1)."""
    before, now = old.pod.status, new.pod.status
    return (
        before.resource_claim_statuses != now.resource_claim_statuses
        or before.extended_resource_claim_status != now.extended_resource_claim_status
    )


_CHECKS: Final[tuple[tuple[Callable[[PodInfo, PodInfo], bool], Action], ...]] = (
    (_labels_differ, Action.UPDATE_POD_LABEL),
    (_requests_shrank, Action.UPDATE_POD_SCALE_DOWN),
    (_gates_eliminated, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
    (_tolerations_differ, Action.UPDATE_POD_TOLERATION),
    (_claims_differ, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
)
