"""The PodDisruptionBudgets of a pod, and evictions that would violate one (docs/spec/core.md §3.10, dry run step 4).

Budgets are indexed by one label that they require, so that only possible budgets of a pod are checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, anchors
from scheduler.cache.pods.selector_counts import SelectorIndex


class Disruptions:
    """PodDisruptionBudgets of all namespaces.

    Upstream: pkg/scheduler/framework/preemption/preemption.go getPodDisruptionBudgets
    """

    def __init__(self) -> None:
        self.generation = 0
        """Changes when a value that is read here changes, which most status updates do not do."""
        self._budgets: dict[str, PodDisruptionBudget] = {}
        self._index: SelectorIndex[str] = SelectorIndex()
        self._unreadable: dict[str, str] = {}
        """Key → namespace."""

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a budget. As upstream, a budget without or with an empty selector protects no pods."""
        known = self._budgets.get(budget.key)
        if known is not None and (known.spec, known.status) == (budget.spec, budget.status):
            return
        self.remove(budget.key)
        selector = budget.spec.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return
        self._budgets[budget.key] = budget
        self._index.add(budget.key, _anchors(budget))
        self.generation += 1

    def put_unreadable(self, key: str, namespace: str) -> None:
        """Add a budget that cannot be decoded. It may select any pod of the namespace and allow no disruption."""
        if key not in self._unreadable:
            self.remove(key)
            self._unreadable[key] = namespace
            self.generation += 1

    def remove(self, key: str) -> None:
        """Remove a budget that is gone."""
        if self._unreadable.pop(key, None) is not None:
            self.generation += 1
        known = self._budgets.pop(key, None)
        if known is None:
            return
        self._index.remove(key, _anchors(known))
        self.generation += 1

    def protecting(self, pod: PodInfo) -> list[PodDisruptionBudget]:
        """Return the decoded budgets that select this pod. O(labels + budgets indexed under them).

        A pod without labels has none.
        """
        metadata = pod.pod.metadata
        if not self._index or not metadata.labels:
            return []
        return [
            budget
            for budget in map(self._budgets.__getitem__, self._index.under(metadata.namespace, metadata.labels))
            if budget.spec.selector is not None and budget.spec.selector.matches(metadata.labels)
        ]

    def violating(self, pods: Sequence[PodInfo]) -> set[str]:
        """Return the uids of the pods whose eviction, one after the other in this order, takes a budget below zero."""
        if not self._index and not self._unreadable:
            return set()
        left: dict[str, int] = {}
        unsure = set(self._unreadable.values())
        over = {pod.uid for pod in pods if pod.pod.metadata.namespace in unsure and pod.pod.metadata.labels}
        for pod in pods:
            for budget in self.protecting(pod):
                if pod.pod.metadata.name in budget.status.disrupted_pods:
                    continue
                left[budget.key] = left.get(budget.key, budget.status.disruptions_allowed) - 1
                if left[budget.key] < 0:
                    over.add(pod.uid)
        return over


def _anchors(budget: PodDisruptionBudget) -> tuple[Anchor, ...]:
    return anchors(frozenset({budget.metadata.namespace}), budget.spec.selector)
