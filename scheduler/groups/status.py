"""What is reported about a group: a condition, events on its object, and metrics.

Only a PodGroup of scheduling.k8s.io has a condition from here: the status of the other kinds belongs to their own
controllers.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from scheduler.api.core_v1 import PodCondition
from scheduler.api.pod_group import STARTED, AnyPodGroup, PodGroup, VolcanoPodGroup
from scheduler.core.caching import BoundedCache
from scheduler.core.errors import ApiError, Fenced, NotFound
from scheduler.framework.handle import Recorder, Writer
from scheduler.framework.wait import settle

_log = structlog.get_logger(__name__)

SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
_DEFAULT_QUEUE: Final = "default"
_WRITTEN_MAX: Final = 1000


class GroupStatus:
    """Report the attempts of groups. No call blocks.

    Upstream: pkg/scheduler/schedule_one_podgroup.go submitPodGroupAlgorithmResult
    """

    def __init__(self, writer: Writer, recorder: Recorder) -> None:
        self._writer = writer
        self._recorder = recorder
        self._wanted: dict[str, tuple[PodGroup, PodCondition]] = {}
        """By uid: what the next patch writes."""
        self._written: BoundedCache[str, tuple[str, PodCondition]] = BoundedCache(_WRITTEN_MAX)
        """By uid: the last patch, with the version of the object that the watch showed then; a newer one says more."""
        self._running: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def report(self, group: AnyPodGroup, *, controller: str, reason: str, message: str) -> None:
        """Write the event, and the condition if it says something new."""
        is_started = reason == SCHEDULED
        self._recorder.event(
            group,
            controller=controller,
            type_="Normal" if is_started else "Warning",
            reason="GroupScheduled" if is_started else "FailedScheduling",
            action="Scheduling",
            note=message,
        )
        if isinstance(group, PodGroup):
            self.submit(group, reason, "" if is_started else message)
        elif isinstance(group, VolcanoPodGroup) and is_started and group.spec.queue not in {"", _DEFAULT_QUEUE}:
            self._recorder.event(
                group,
                controller=controller,
                type_="Warning",
                reason="QueueIgnored",
                action="Scheduling",
                note=f'queue "{group.spec.queue}" is not read: the group has started without any quota',
            )

    def is_news(self, group: PodGroup, reason: str, message: str) -> bool:
        """Return whether the condition would change; once True it does not."""
        shown = self._shown(group)
        return shown is None or not (shown.status == "True" or (shown.reason, shown.message) == (reason, message))

    def submit(self, group: PodGroup, reason: str, message: str) -> None:
        """Write the condition if it says something new, and no event."""
        if not self.is_news(group, reason, message):
            return
        uid, status = group.metadata.uid, "True" if reason == SCHEDULED else "False"
        condition = PodCondition(STARTED, status, reason, message, group.metadata.generation)
        self._wanted[uid] = (group, condition)
        if uid not in self._running:
            self._running[uid] = task = asyncio.ensure_future(self._write(uid))
            task.add_done_callback(lambda _: self._running.pop(uid))

    def _shown(self, group: PodGroup) -> PodCondition | None:
        uid = group.metadata.uid
        if uid in self._wanted:
            return self._wanted[uid][1]
        version, condition = self._written.get(uid) or ("", None)
        return condition if version == group.metadata.resource_version else group.condition(STARTED)

    async def drain(self) -> None:
        """Wait until all patches have been answered."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def _write(self, uid: str) -> None:
        while (wanted := self._wanted.get(uid)) is not None:
            group, condition = wanted
            try:
                await settle(self._writer.patch_pod_group_status(group, condition))
                self._written.put(uid, (group.metadata.resource_version, condition))
            except ApiError as error:
                if not isinstance(error, (NotFound, Fenced)):
                    _log.warning("group status not written", group=group.key, error=error.message)
            if self._wanted.get(uid) is wanted:
                del self._wanted[uid]
