"""Apply deltas of groups to the cache, and wake the pods of a group that has changed.

An object that could not be read counts as absent: its pods wait, because the number that must start together is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from scheduler.api.decode import Broken, Delta
from scheduler.api.pod_group import KINDS, AnyPodGroup, GroupKey
from scheduler.cache.pod_groups import PodGroups
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.eventhandlers.deltas import Move, action_of, seen

GROUPS_SERVED: Final = ClusterEvent(Resource.POD_GROUP, UPDATE, "PodGroupsServed")
"""Our own event: the server has one more kind of groups, or one fewer. Without the kind, its pods are ordinary pods."""


class PodGroupHandlers:
    """Handle the kinds of groups. `move` wakes the pods that an event can help."""

    def __init__(self, groups: PodGroups, move: Move) -> None:
        self._groups = groups
        self._move = move
        self._broken: dict[tuple[str, str], Broken] = {}

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return {kind: partial(self._changed, kind) for kind in KINDS}

    def served(self, kind: str, is_served: bool) -> None:
        """Record whether the server has this kind."""
        if self._groups.is_served(kind) != is_served:
            self._groups.serve(kind, is_served=is_served)
            self._move(GROUPS_SERVED, None, None)

    def _changed(self, kind: str, delta: Delta[AnyPodGroup]) -> None:
        key, old, new = seen(delta, self._broken)
        if new is not None:
            self._groups.set(new)
        else:
            self._groups.remove(GroupKey(kind, key))
        action = action_of(old, new)
        # A change of status wakes no pod: mostly it is the one that was written about the last attempt.
        if action is not None and (action is not Action.UPDATE_OTHER or old.spec != new.spec):
            self._move(ClusterEvent(Resource.POD_GROUP, action), old, new)
