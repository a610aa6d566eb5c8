"""The groups of pods: their objects, and which pods belong to each of them (docs/spec/groups.md §2).

A pod of one of our profiles, or on a node, counts from its first event until it is deleted, finished or terminating. It runs
once the watch shows its node; an assumption does not count. Objects and pods may come in any order.

Everything here costs O(1) per change of a pod, so that the thousand pods of one group do not cost a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scheduler.api.core_v1 import Pod
from scheduler.api.meta import Key
from scheduler.api.pod_group import VOLCANO_POD_GROUP, AnyPodGroup, GroupKey, VolcanoPodGroup, group_of, task_of


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
        self._tasks: dict[GroupKey, Counter[str]] = {}
        """The number of members by task, for the groups of Volcano."""
        self._served: set[str] = set()
        self._changed: set[GroupKey] = set()

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
        return not wanted.is_gang or group in self.running or len(self.members(group)) >= self.least(group)

    def least(self, group: GroupKey) -> int:
        """Return the number of pods with which the group can start; 1 if it has no object. O(tasks).

        With a minimum for a task, it is the number that has enough of that task whichever pods are left over: two of three
        workers and one driver are three of four pods, because two pods could be a worker and the driver.
        """
        wanted = self.objects.get(group)
        if wanted is None:
            return 1
        if not isinstance(wanted, VolcanoPodGroup) or not wanted.spec.min_task_member:
            return wanted.least
        minimums = {task: count for task, count in wanted.spec.min_task_member.items() if count > 0}
        if wanted.spec.min_member < sum(minimums.values()):
            return wanted.least  # as in Volcano
        tasks = self._tasks.get(group, Counter())
        total = tasks.total()
        return max(wanted.least, 1, *(count + total - tasks[task] for task, count in minimums.items()))

    def runs_short(self, group: GroupKey) -> bool:
        """Return whether some pods of the group have a node, fewer than its minimum, and other pods wait for one.

        When none waits, pods have finished: a job is at its end, or no controller replaces what is gone. What `minTaskMember` adds to
        the minimum does not count.
        """
        wanted, running = self.objects.get(group), self.running_count(group)
        return wanted is not None and 0 < running < min(wanted.least, len(self.members(group)))

    def changes(self) -> set[GroupKey]:
        """Return the groups whose object or pods have changed since the last call."""
        found, self._changed = self._changed, set()
        return found

    # -- changing ----------------------------------------------------------------------------------------------------

    def serve(self, kind: str, *, is_served: bool) -> None:
        """Record whether the server has this kind of objects."""
        (self._served.add if is_served else self._served.discard)(kind)

    def set(self, wanted: AnyPodGroup) -> None:
        """Add or replace an object."""
        self.objects[wanted.group] = wanted
        self._changed.add(wanted.group)

    def remove(self, group: GroupKey) -> None:
        """Remove an object. Its pods stay members."""
        self.objects.pop(group, None)
        self._changed.add(group)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of any pod. `new` is None if the pod is gone, unreadable, or not one that counts."""
        before, now = (joined(pod) if pod is not None else None for pod in (old, new))
        if old is not None and before is not None:
            self._leave(before, old.key)
        if new is not None and now is not None:
            self._changed.add(now)
            self.by_group.setdefault(now, {})[new.key] = new
            if now.kind == VOLCANO_POD_GROUP:
                self._tasks.setdefault(now, Counter())[task_of(new)] += 1
            if new.spec.node_name:
                self.running.setdefault(now, {})[new.key] = None

    def _leave(self, group: GroupKey, key: Key) -> None:
        members = self.by_group.get(group, {})
        pod = members.pop(key, None)
        if pod is None:
            return
        self._changed.add(group)
        if (tasks := self._tasks.get(group)) is not None:
            tasks[task_of(pod)] -= 1
        running = self.running.get(group, {})
        running.pop(key, None)
        if not running:
            self.running.pop(group, None)
        if not members:
            del self.by_group[group]
            self._tasks.pop(group, None)


def joined(pod: Pod) -> GroupKey | None:
    """Return the group of which the pod is a member; None for a pod that has finished or is terminating."""
    return group_of(pod) if not pod.is_terminal and pod.metadata.deletion_timestamp is None else None
