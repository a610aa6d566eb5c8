"""Check the indexes of Services and disruption budgets by the labels that they select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler.api.selectors import Anchor, LabelSelector
from scheduler.audit.findings import Check, Comparison, Steps
from scheduler.cache.disruptions import Disruptions, anchors_of
from scheduler.cache.pods import SelectorIndex
from scheduler.cache.workloads import Workloads


class WorkloadChecks:
    """The checks of one cluster's Services and budgets."""

    def __init__(self, workloads: Workloads, disruptions: Disruptions) -> None:
        self._workloads = workloads
        self._disruptions = disruptions

    def checks(self) -> dict[str, Check]:
        """Return index → check."""
        workloads, disruptions = self._workloads, self._disruptions
        return {
            "services": lambda: _index("Service", workloads, workloads._index, workloads._services, self._of_service),
            "budgets": lambda: _index(
                "PodDisruptionBudget", disruptions, disruptions._index, disruptions._budgets, self._of_budget
            ),
        }

    def _of_service(self, key: str) -> Iterable[Anchor]:
        return anchors_of(key, LabelSelector(dict(self._workloads._services[key])))

    def _of_budget(self, key: str) -> Iterable[Anchor]:
        return self._disruptions.anchors(key)


def _index(
    kind: str,
    owner: Workloads | Disruptions,
    index: SelectorIndex[str],
    objects: Mapping[str, object],
    anchors: Callable[[str], Iterable[Anchor]],
) -> Steps:
    """Compare the index with the objects. `owner` invalidates what readers store."""
    for key in tuple(objects):
        found = Comparison(f"{kind} {key}")
        if key in objects:
            stored = tuple(anchors(key))
            if found.differs("indexed by labels", all(key in index.get(anchor, ()) for anchor in stored), True):
                index.add(key, stored)
                owner.reindexed(key)
        yield found
    for anchor in tuple(index):
        found = Comparison(f"{kind} objects at {anchor}")
        for key in tuple(index.get(anchor, ())):
            is_right = key in objects and anchor in set(anchors(key))
            if found.differs(f"indexed {key}", True, is_right):
                index.remove(key, (anchor,))
                owner.reindexed(key)
        yield found
