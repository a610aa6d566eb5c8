"""Warn about groups that have started, and then run with too few pods for a minute (docs/spec/groups.md §8)."""

from __future__ import annotations

from typing import Final

from scheduler.api.pod_group import GroupKey
from scheduler.cache.pod_groups import PodGroups
from scheduler.core.clock import Clock
from scheduler.framework.handle import Recorder

AFTER_S: Final = 60.0
_NAMED: Final = 3


class IncompleteGroups:
    """Write one event for each object. The scheduling loop calls `tick`, on a standby as well."""

    def __init__(self, groups: PodGroups, recorder: Recorder, clock: Clock) -> None:
        self._groups = groups
        self._recorder = recorder
        self._clock = clock
        self._since: dict[GroupKey, float] = {}
        """Groups that run with too few pods, the longest first."""
        self._reported: dict[GroupKey, str] = {}
        """The uids of the objects that have the event."""
        self.may_report = True
        """Whether this process leads."""

    def tick(self) -> None:
        """Look at the groups that have changed, and write the events that are due. O(changed groups)."""
        now = self._clock.now()
        for group in self._groups.changes():
            self._update(group, now)
        while self.may_report and self._since:
            group, since = next(iter(self._since.items()))
            if now - since < AFTER_S:
                break
            del self._since[group]
            self._report(group)

    def _update(self, group: GroupKey, now: float) -> None:
        wanted = self._groups.get(group)
        uid = wanted.metadata.uid if wanted is not None else None
        if self._reported.get(group, uid) != uid:
            del self._reported[group]
        if group not in self._reported and self._groups.is_served(group.kind) and self._groups.runs_short(group):
            self._since.setdefault(group, now)
        else:
            self._since.pop(group, None)

    def _report(self, group: GroupKey) -> None:
        wanted = self._groups.objects[group]
        self._reported[group] = wanted.metadata.uid
        missing = [pod for key, pod in self._groups.members(group).items() if key not in self._groups.running[group]]
        names = sorted(pod.metadata.name for pod in missing)
        more = ", …" if len(names) > _NAMED else ""
        running = self._groups.running_count(group)
        self._recorder.event(
            wanted,
            controller=missing[0].spec.scheduler_name,
            type_="Warning",
            reason="GroupIncomplete",
            action="Scheduling",
            note=f"only {running} of at least {wanted.least} pods have had a node for {AFTER_S:.0f} s; "
            f"without a node: {', '.join(names[:_NAMED])}{more}",
        )
