"""PrioritySort: higher priority first, then the pod that has waited longer (docs/spec/core.md §5.12, §1.2)."""

from __future__ import annotations

from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.framework.handle import Handle


class PrioritySort:
    """QueueSort.

    Upstream: pkg/scheduler/framework/plugins/queuesort/priority_sort.go PrioritySort
    """

    name: Final = "PrioritySort"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return the key by which pods are sorted, ascending."""
        return (-pod.priority, queued_at)
