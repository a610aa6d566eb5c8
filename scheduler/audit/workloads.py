"""Check the indexes of Services and disruption budgets by the labels that they select."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.api.selectors import Anchor, LabelSelector
from scheduler.audit.findings import Check, grouped
from scheduler.cache.cluster import Cluster
from scheduler.cache.disruptions import anchors_of


def workload_checks(cluster: Cluster) -> dict[str, Check]:
    """Return the checks of one cluster's Services and budgets by index."""
    workloads, disruptions = cluster.workloads, cluster.disruptions

    def of_service(key: str) -> Collection[Anchor]:
        selector = workloads.services.get(key)
        return set(anchors_of(key, LabelSelector(dict(selector)))) if selector is not None else ()

    def of_budget(key: str) -> Collection[Anchor]:
        return disruptions.anchors(key) if key in disruptions.budgets else ()

    return {
        "services": lambda: grouped(
            "Service", workloads.services, of_service, workloads.index, healed=workloads.reindexed
        ),
        "budgets": lambda: grouped(
            "PodDisruptionBudget", disruptions.budgets, of_budget, disruptions.index, healed=disruptions.reindexed
        ),
    }
