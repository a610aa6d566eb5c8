"""Groups on the page /ui: how many are in each state, the first ones of them, and the members of one group."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from scheduler.api.meta import Key
from scheduler.api.pod_group import GroupKey
from scheduler.cache.cluster import Cluster
from scheduler.explain.fixes import Steps
from scheduler.groups.states import BINDING, GATED, INCOMPLETE, RUNNING, WAITING, GroupStates
from scheduler.queue import SchedulingQueue
from scheduler.server.ui.answers import GroupRow, MemberRow

ROWS_MAX: Final = 20
_ORDER: Final = (INCOMPLETE, WAITING, GATED, BINDING, RUNNING)
"""Those that need a look come first."""
_STEP_GROUPS: Final = 256


@dataclass(frozen=True, slots=True)
class UiGroups:
    """Read the groups. The scheduling loop calls it between two attempts."""

    cluster: Cluster
    queue: SchedulingQueue
    states: GroupStates

    def rows(self) -> Steps[tuple[dict[str, int], tuple[GroupRow, ...]]]:
        """Return the number of groups by state, and at most 20 groups. O(groups), in steps."""
        found: dict[str, list[GroupKey]] = {state: [] for state in _ORDER}
        binding = self.states.binding()
        for count, group in enumerate(list(self.cluster.pod_groups.by_group), 1):
            if state := self.states.of(group, binding):
                found[state].append(group)
            if count % _STEP_GROUPS == 0:
                yield True
        rows: list[GroupRow] = []
        for state, groups in found.items():
            rows += [self._row(group, state) for group in heapq.nsmallest(ROWS_MAX - len(rows), groups)]
            yield True
        return {state: len(groups) for state, groups in found.items() if groups}, tuple(rows)

    def members(self, group: GroupKey) -> list[Key]:
        """Return the pods of the group, by name."""
        return sorted(self.cluster.pod_groups.members(group))

    def member(self, group: GroupKey, key: Key) -> MemberRow | None:
        """Return the state and the node of one pod; None if it has left the group."""
        pod = self.cluster.pod_groups.members(group).get(key)
        if pod is None:
            return None
        uid = pod.metadata.uid
        if pod.spec.node_name:
            return MemberRow(pod=key, state=RUNNING, node=pod.spec.node_name)
        if (placed := self.cluster.get(uid)) is not None:
            return MemberRow(pod=key, state=BINDING, node=placed.node_name)
        queued = self.queue.record_of(uid)
        return MemberRow(pod=key, state="" if queued is None else queued.place.value, node="")

    def _row(self, group: GroupKey, state: str) -> GroupRow:
        groups = self.cluster.pod_groups
        return GroupRow(
            id=group_id(group),
            state=state,
            least=groups.least(group) if groups.get(group) is not None else None,
            pods=len(groups.members(group)),
            running=groups.running_count(group),
        )


def group_id(group: GroupKey | None) -> str:
    """Return the name of the group on the page: `KIND/NAMESPACE/NAME`; "" for None."""
    return f"{group.kind}/{group.key}" if group is not None else ""


def group_named(text: str) -> GroupKey:
    """Return the group of this name."""
    kind, _, key = text.partition("/")
    return GroupKey(kind, key)
