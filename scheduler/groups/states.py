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
        self.binding = binding

    def counts(self) -> dict[str, int]:
        """Return the number of groups in each state, without those that have no pods. O(groups)."""
        binding, found = self.binding(), Counter[str]()
        for group in self._groups.by_group:
            found[self.of(group, binding)] += 1
        return {state: found[state] for state in STATES}

    def of(self, group: GroupKey, binding: AbstractSet[GroupKey]) -> str:
        """Return the state of one group, given what `binding` returned; "" without pods, or if the server lacks the kind."""
        groups = self._groups
        running, members = groups.running_count(group), len(groups.members(group))
        if not members or not groups.is_served(group.kind):
            return ""
        if running < members and not groups.is_complete(group):
            return GATED
        if running and not groups.runs_short(group):
            return RUNNING
        if group in binding:
            return BINDING
        return INCOMPLETE if running else WAITING
