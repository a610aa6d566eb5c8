"""The ReplicaSet controller, which also serves ReplicationControllers.

Upstream: pkg/controller/replicaset/replica_set.go ReplicaSetController
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.manifests.pods import new_pod
from simulator.workloads.pods import Before, Object, Plan, deletion_order, is_active
from simulator.workloads.specs import ReplicaSetObject, ReplicationControllerObject


def plan(
    spec: ReplicaSetObject | ReplicationControllerObject,
    owner: Object,
    pods: Sequence[Object],
    *,
    related: Iterable[Object],
    before: Before,
    now_s: float,
) -> Plan:
    """Return the pods to create or delete, so that `spec.replicas` pods are active.

    `related` are the pods of all ReplicaSets of the same Deployment: of two pods on one node one goes first.

    Upstream: pkg/controller/replicaset/replica_set.go manageReplicas
    """
    active = [pod for pod in pods if is_active(pod)]
    missing = spec.spec.replicas - len(active)
    if missing >= 0:
        return Plan(create=tuple(new_pod(owner, spec.spec.template.raw) for _ in range(missing)))
    ordered = deletion_order(active, before=before, now_s=now_s, related=related)
    return Plan(delete=tuple(ordered[:-missing]))
