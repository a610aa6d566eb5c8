"""The disruption controller: PodDisruptionBudgets follow the pods that are created and deleted.

A budget with a status keeps it as the start; from then on, pods are counted. A budget without gets the status of its
controller, as if every pod with a node were healthy and no workload wanted more pods. Percentages are shares of those
pods.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.decode import from_manifest
from simulator.apiserver import ApiServer
from simulator.controllers.controller import is_finished
from simulator.workloads.pods import is_active

Object = dict[str, Any]


@dataclass(slots=True)
class _Kept:
    budget: PodDisruptionBudget
    healthy: set[str] = field(default_factory=set)
    """By uid."""
    spare: int = 0
    """The allowed disruptions minus the healthy pods: a constant."""

    def selects(self, pod: Object) -> bool:
        selector = self.budget.spec.selector
        return selector is not None and selector.matches(pod["metadata"].get("labels") or {})

    @property
    def allowed(self) -> int:
        return max(0, len(self.healthy) + self.spare)


class Budgets:
    """The controller. Create it once all objects exist.

    Upstream: pkg/controller/disruption/disruption.go DisruptionController
    """

    def __init__(self, server: ApiServer, believed: Collection[str]) -> None:
        """Create the controller. `believed` are the budgets with a status, by namespace/name."""
        self._server = server
        self._of: dict[str, list[_Kept]] = {}
        pods: dict[str, list[Object]] = {}
        for pod in server.objects("Pod"):
            pods.setdefault(pod["metadata"]["namespace"], []).append(pod)
        for raw in server.objects("PodDisruptionBudget"):
            kept = _Kept(from_manifest(PodDisruptionBudget, raw))
            namespace = kept.budget.metadata.namespace
            selected = [pod for pod in pods.get(namespace, ()) if not is_finished(pod) and kept.selects(pod)]
            kept.healthy = {pod["metadata"]["uid"] for pod in selected if _is_healthy(pod)}
            self._of.setdefault(namespace, []).append(kept)
            if kept.budget.key in believed:
                kept.spare = kept.budget.status.disruptions_allowed - len(kept.healthy)
            else:
                kept.spare = -_desired(raw["spec"], len(selected))
                self._report(kept)
        if self._of:
            server.subscribe(self._heard)

    def _heard(self, type_: str, resource: str, pod: Object) -> None:
        if resource != "pods":
            return
        uid = pod["metadata"]["uid"]
        for kept in self._of.get(pod["metadata"]["namespace"], ()):
            is_healthy = type_ != "DELETED" and _is_healthy(pod) and kept.selects(pod)
            if is_healthy != (uid in kept.healthy):
                (kept.healthy.add if is_healthy else kept.healthy.discard)(uid)
                self._report(kept)

    def _report(self, kept: _Kept) -> None:
        status = {"disruptionsAllowed": kept.allowed, "currentHealthy": len(kept.healthy)}
        metadata = kept.budget.metadata
        self._server.patch(
            "PodDisruptionBudget",
            metadata.name,
            {"status": status},
            namespace=metadata.namespace,
            subresource="status",
        )


def _is_healthy(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and is_active(pod)


def _desired(spec: Object, expected: int) -> int:
    """Return how many pods must be healthy; all of them without a limit."""
    if (most := spec.get("maxUnavailable")) is not None:
        return max(0, expected - _scaled(most, expected))
    least = spec.get("minAvailable")
    return expected if least is None else _scaled(least, expected)


def _scaled(limit: int | str, expected: int) -> int:
    """Return a number, or a share of `expected`, rounded up."""
    return limit if isinstance(limit, int) else -(-int(limit.removesuffix("%")) * expected // 100)
