"""The groups of pods: their objects, and which pods belong to each of them (docs/spec/groups.md §2).

A pod of one of our profiles, or on a node, counts from its first event until it is deleted, finished or terminating. It runs
once the watch shows its node; an assumption does not count. Objects and pods may come in any order.

Everything here costs O(1) per change of a pod, so that the thousand pods of one group do not cost a million.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.api.core_v1 import Pod
from scheduler.api.meta import Key
from scheduler.api.pod_group import AnyPodGroup, GroupKey, group_of


class PodGroups:
    """All groups that a pod names, or that have an object. Only the scheduling loop's task changes it.

    Upstream: pkg/scheduler/backend/cache/cache.go cacheImpl
    """

    def __init__(self) -> None:
        self.objects: dict[GroupKey, AnyPodGroup] = {}
        self.by_group: dict[GroupKey, dict[Key, Pod]] = {}
        """The members of each group."""
        self.running: dict[GroupKey, dict[Key, None]] = {}
        """Those of them that have a node."""
        self._served: set[str] = set()

    # -- reading -----------------------------------------------------------------------------------------------------

    def of(self, pod: Pod) -> GroupKey | None:
        """Return the group of the pod; None if it names none, or one of a kind that the server does not have."""
        group = group_of(pod)
        return group if group is not None and group.kind in self._served else None

    def is_served(self, kind: str) -> bool:
        """Return whether the server has this kind of objects."""
        return kind in self._served

    def get(self, group: GroupKey) -> AnyPodGroup | None:
        """Return the group's object."""
        return self.objects.get(group)

    def members(self, group: GroupKey) -> Mapping[Key, Pod]:
        """Return the pods of the group by `namespace/name`, in no order."""
        return self.by_group.get(group, {})

    def running_count(self, group: GroupKey) -> int:
        """Return how many pods of the group have a node."""
        return len(self.running.get(group, ()))

    def is_complete(self, group: GroupKey) -> bool:
        """Return whether the group may be tried: it has an object and enough pods, or it has started before."""
        wanted = self.objects.get(group)
        if wanted is None:
            return False
        return not wanted.is_gang or group in self.running or len(self.members(group)) >= wanted.least

    # -- changing ----------------------------------------------------------------------------------------------------

    def serve(self, kind: str, *, is_served: bool) -> None:
        """Record whether the server has this kind of objects."""
        (self._served.add if is_served else self._served.discard)(kind)

    def set(self, wanted: AnyPodGroup) -> None:
        """Add or replace an object."""
        self.objects[wanted.group] = wanted

    def remove(self, group: GroupKey) -> None:
        """Remove an object. Its pods stay members."""
        self.objects.pop(group, None)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of any pod. `new` is None if the pod is gone, unreadable, or not one that counts."""
        before, now = (joined(pod) if pod is not None else None for pod in (old, new))
        if old is not None and before is not None:
            for index in (self.by_group, self.running):
                pods: dict[Key, Pod] | dict[Key, None] = index.get(before, {})
                if pods.pop(old.key, self) is not self and not pods:
                    del index[before]
        if new is not None and now is not None:
            self.by_group.setdefault(now, {})[new.key] = new
            if new.spec.node_name:
                self.running.setdefault(now, {})[new.key] = None


def joined(pod: Pod) -> GroupKey | None:
    """Return the group of which the pod is a member; None for a pod that has finished or is terminating."""
    return group_of(pod) if not pod.is_terminal and pod.metadata.deletion_timestamp is None else None
