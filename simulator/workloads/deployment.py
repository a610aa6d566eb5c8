"""The Deployment controller: which ReplicaSets exist, and how many replicas each of them has.

Upstream: pkg/controller/deployment/deployment_controller.go DeploymentController
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.manifests.pods import reference_to
from simulator.workloads.pods import Object
from simulator.workloads.specs import DeploymentObject, ReplicaSetObject, scaled
from simulator.workloads.templates import is_same_template

HASH: Final = "pod-template-hash"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
_QUARTER: Final = "25%"


@dataclass(slots=True)
class OwnedReplicaSet:
    """A ReplicaSet of the Deployment. `replicas` is the value of its spec after the changes of the plan."""

    obj: Object
    spec: ReplicaSetObject
    available: int
    """How many of its pods are ready."""
    pods: int
    """How many of its pods are active."""
    replicas: int = field(init=False)

    def __post_init__(self) -> None:
        self.replicas = self.spec.spec.replicas

    @property
    def name(self) -> str:
        return self.spec.metadata.name

    def annotated(self, name: str) -> int | None:
        """Return the number in one of the annotations of the controller."""
        text = self.spec.metadata.annotations.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """What one sync of a Deployment changes."""

    create: Object | None = None
    scale: Mapping[str, int] = field(default_factory=dict)
    """Replicas by the names of the ReplicaSets that change."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that every scaled ReplicaSet gets."""
    reason: str = ""
    """Why the rollout is not complete; empty if it is."""


class Rollout:
    """One sync of one Deployment. `owned` are its ReplicaSets, oldest first."""

    def __init__(self, spec: DeploymentObject, deployment: Object, owned: Sequence[OwnedReplicaSet]) -> None:
        self._spec = spec
        self._deployment = deployment
        same = [each for each in owned if is_same_template(each.spec.spec.template, spec.spec.template)]
        self._new = same[0] if same else None
        self._old = [each for each in owned if each is not self._new]
        self._owned = list(owned)
        self._wanted = spec.spec.replicas
        self._create: Object | None = None
        rolling = spec.spec.strategy.rolling
        is_rolling = spec.spec.strategy.type == "RollingUpdate"
        self._surge = scaled(rolling.max_surge, self._wanted, default=_QUARTER, rounds_up=True) if is_rolling else 0
        unavailable = scaled(rolling.max_unavailable, self._wanted, default=_QUARTER, rounds_up=False)
        if not self._surge and not unavailable:
            unavailable = 1
        self._unavailable = min(unavailable, self._wanted) if is_rolling else 0

    def plan(self, free_name: str) -> RolloutPlan:
        """Return the changes of this sync. `free_name` is the name of a new ReplicaSet.

        Upstream: pkg/controller/deployment/deployment_controller.go syncDeployment
        """
        if self._spec.spec.paused or self._is_scaling():
            self._scale()
        elif self._spec.spec.strategy.type == "Recreate":
            self._recreate(free_name)
        else:
            self._roll(free_name)
        changed = {each.name: each.replicas for each in self._owned if each.replicas != each.spec.spec.replicas}
        stale = self._without_annotations() if not self._create else {}
        return RolloutPlan(self._create, stale | changed, self._annotations(), self._reason())

    # -- scaling ------------------------------------------------------------------------------------------------------

    def _active(self) -> Iterator[OwnedReplicaSet]:
        return (each for each in self._owned if each.replicas > 0)

    def _is_scaling(self) -> bool:
        """Return whether `spec.replicas` changed since an active ReplicaSet was scaled.

        Upstream: pkg/controller/deployment/sync.go isScalingEvent
        """
        desired = [each.annotated(_DESIRED) for each in self._active()]
        return any(number is not None and number != self._wanted for number in desired)

    def _scale(self) -> None:
        """Set the replicas after `spec.replicas` changed, without going on with a rollout.

        Upstream: pkg/controller/deployment/sync.go scale
        """
        active = list(self._active())
        if len(active) <= 1:
            latest = active[0] if active else self._new or (self._old[-1] if self._old else None)
            if latest is not None:
                latest.replicas = self._wanted
        elif self._is_saturated():
            for each in self._old:
                each.replicas = 0
        elif self._spec.spec.strategy.type == "RollingUpdate":
            self._scale_in_proportion(active)

    def _is_saturated(self) -> bool:
        new = self._new
        if new is None or new.annotated(_DESIRED) != self._wanted:
            return False
        return new.replicas == self._wanted == new.available

    def _scale_in_proportion(self, active: list[OwnedReplicaSet]) -> None:
        allowed = self._wanted + self._surge if self._wanted else 0
        to_add = allowed - sum(each.replicas for each in active)
        if not to_add:
            return
        newest_first = active[::-1] if to_add > 0 else active
        ordered = sorted(newest_first, key=lambda each: -each.replicas)
        added = 0
        for each in ordered:
            share = self._share(each)
            share = min(share, to_add - added) if to_add > 0 else max(share, to_add - added)
            each.replicas += share
            added += share
        ordered[0].replicas = max(0, ordered[0].replicas + to_add - added)

    def _share(self, each: OwnedReplicaSet) -> int:
        """Return how many replicas are the share of one ReplicaSet in a change of `spec.replicas`.

        Upstream: pkg/controller/deployment/util/deployment_util.go getReplicaSetFraction
        """
        if not self._wanted:
            return -each.replicas
        before = each.annotated(_MAXIMUM) or self._spec.status.replicas
        if not before:
            return 0
        return int(each.replicas * (self._wanted + self._surge) / before + 0.5) - each.replicas

    # -- strategies ---------------------------------------------------------------------------------------------------

    def _recreate(self, free_name: str) -> None:
        """Delete all old pods, and create new ones when the last old pod is gone.

        Upstream: pkg/controller/deployment/recreate.go rolloutRecreate
        """
        if any(each.replicas for each in self._old):
            for each in self._old:
                each.replicas = 0
        elif not any(each.pods for each in self._old):
            if self._new is None:
                self._create = self._new_replica_set(free_name, self._wanted)
            else:
                self._new.replicas = self._wanted

    def _roll(self, free_name: str) -> None:
        """Add new pods within `maxSurge`; otherwise remove old pods within `maxUnavailable`.

        Upstream: pkg/controller/deployment/rolling.go rolloutRolling
        """
        total = sum(each.replicas for each in self._owned)
        spare = max(0, self._wanted + self._surge - total)
        if self._new is None:
            self._create = self._new_replica_set(free_name, min(spare, self._wanted))
        elif self._new.replicas > self._wanted:
            self._new.replicas = self._wanted
            return
        elif grown := min(spare, self._wanted - self._new.replicas):
            self._new.replicas += grown
            return
        self._reduce_old()

    def _reduce_old(self) -> None:
        """Remove old pods, those that are not ready first.

        Upstream: pkg/controller/deployment/rolling.go reconcileOldReplicaSets
        """
        new_replicas = int(self._create["spec"]["replicas"]) if self._create else self._new.replicas if self._new else 0
        new_available = self._new.available if self._new else 0
        total = new_replicas + sum(each.replicas for each in self._old)
        least = self._wanted - self._unavailable
        room = total - least - (new_replicas - new_available)
        if room <= 0:
            return
        for each in self._old:  # pods that are not ready cost no availability
            unhealthy = min(room, max(0, each.replicas - each.available))
            each.replicas -= unhealthy
            room -= unhealthy
        spare = new_available + sum(each.available for each in self._old) - least
        for each in self._old:
            removed = max(0, min(each.replicas, spare))
            each.replicas -= removed
            spare -= removed

    def _new_replica_set(self, name: str, replicas: int) -> Object:
        """Return the ReplicaSet of the current template.

        Upstream: pkg/controller/deployment/sync.go getNewReplicaSet
        """
        template = copy.deepcopy(self._deployment["spec"]["template"])
        digest = template_hash(self._deployment)
        metadata = template["metadata"] = dict(template.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), HASH: digest}
        selector = copy.deepcopy(self._deployment["spec"].get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": self._deployment["metadata"]["namespace"],
                "labels": dict(metadata["labels"]),
                "annotations": self._annotations(),
                "ownerReferences": [reference_to(self._deployment)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }

    # -- what the plan says -------------------------------------------------------------------------------------------

    def _annotations(self) -> dict[str, str]:
        return {_DESIRED: str(self._wanted), _MAXIMUM: str(self._wanted + self._surge)}

    def _without_annotations(self) -> dict[str, int]:
        """ReplicaSets whose annotations name another size: a scaling that is done must not be seen again."""
        wanted = self._wanted
        return {each.name: each.replicas for each in self._active() if each.annotated(_DESIRED) not in {None, wanted}}

    def _reason(self) -> str:
        if self._create is not None or (self._new is not None and not any(each.replicas for each in self._old)):
            return ""
        if self._spec.spec.paused:
            return "the Deployment is paused" if self._new is None else ""
        old = sum(each.replicas for each in self._old)
        stay = "1 pod of an old ReplicaSet stays" if old == 1 else f"{old} pods of old ReplicaSets stay"
        return f"the rollout waits: {stay} until new pods are ready" if old else ""


def template_hash(deployment: Object) -> str:
    """Return the value of the label `pod-template-hash`: equal for equal templates, and not that of a real controller."""
    text = repr(deployment["spec"]["template"])
    return hashlib.sha256(text.encode()).hexdigest()[:10]
