"""The state of each group, for metrics and the page /ui (docs/spec/groups.md §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set as AbstractSet
from typing import Final

from scheduler.api.pod_group import GroupKey
from scheduler.cache.pod_groups import PodGroups

GATED: Final = "gated"
WAITING: Final = "waiting"
BINDING: Final = "binding"
RUNNING: Final = "running"
INCOMPLETE: Final = "incomplete"
STATES: Final = (GATED, WAITING, BINDING, RUNNING, INCOMPLETE)


class GroupStates:
    """Find the states of groups. `binding` returns the groups that wait at a barrier, or have just passed it."""

    def __init__(self, groups: PodGroups, binding: Callable[[], AbstractSet[GroupKey]]) -> None:
        self._groups = groups
        self._binding = binding

    def counts(self) -> dict[str, int]:
        """Return the number of groups in each state, without those that have no pods. O(groups)."""
        return {**dict.fromkeys(STATES, 0), **Counter(self.all().values())}

    def all(self) -> dict[GroupKey, str]:
        """Return the state of each group that has pods. O(groups)."""
        binding, groups = self._binding(), self._groups
        return {group: self._of(group, binding) for group in groups.by_group if groups.is_served(group.kind)}

    def _of(self, group: GroupKey, binding: AbstractSet[GroupKey]) -> str:
        groups = self._groups
        running = groups.running_count(group)
        if not groups.is_complete(group) and running < len(groups.members(group)):
            return GATED
        if running and not groups.runs_short(group):
            return RUNNING
        if group in binding:
            return BINDING
        return INCOMPLETE if running else WAITING
