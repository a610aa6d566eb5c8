"""Record events for pods whose volumes take long to bind, with the reason (docs/spec/volumes.md §12.2 B-21).

The provisioner's last event on the claim is read and quoted. At most a few events are read at once, for a short time.
The report is made without a quote if the read fails, and no binding waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from scheduler.api.storage_v1 import STORAGE_PROVISIONERS, PersistentVolumeClaim
from scheduler.core.clock import done_within
from scheduler.core.errors import ApiError
from scheduler.framework.handle import Handle
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan

_log = structlog.get_logger(__name__)

MARKS_S: Final = (30, 60, 300)
"""Seconds of waiting after which there is an event and a count; the last event is a warning."""
ASKING_S: Final = 2.0
AT_ONCE: Final = 4
"""An API server without a cache of events reads all events of the namespace per request; thousands of pods may wait."""


class _Wait(NamedTuple):
    claim: PersistentVolumeClaim
    awaited: str
    provisioner: str
    """Empty for a claim that waits for no provisioner."""


class SlowBindingReports:
    """Reports slow bindings to the pod; the binding continues."""

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cluster.volumes
        self._recorder = handle.recorder
        self._metrics = handle.volume_metrics
        self._writer = handle.writer
        self._clock = handle.clock
        self._scheduler_name = handle.scheduler_name
        self._ours = handle.scheduler_names | {handle.scheduler_name}
        """Reporters of this process's own events, which are not quoted."""
        self._reading: set[asyncio.Task[None]] = set()
        self._has_failed = False
        self._errors = handle.errors

    def report(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        """Report that the plan is not bound after this time; do nothing if it is. Raises nothing.

        The report is made at once, or when the returned task ends. If the task is cancelled, the report has only
        the events read until then.
        """
        try:
            return self._report(plan, after_s)
        except Exception as error:  # noqa: BLE001 (only a message is lost, never the binding)
            self._failed(plan, error)
            return None

    def _report(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        waits = list(self._waits(plan))
        if not waits:
            return None
        self._metrics.long_wait(after_s)
        quotes: dict[str, str] = {}
        provisioned = [wait for wait in waits if wait.provisioner]
        if not provisioned or len(self._reading) >= AT_ONCE:
            self._record_event(plan, after_s, waits, quotes=quotes)
            return None
        task = asyncio.ensure_future(self._read_events_within(provisioned, quotes))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        task.add_done_callback(lambda _: self._record_event_later(plan, after_s, waits, quotes))
        return task

    def _record_event_later(self, plan: BindingPlan, after_s: int, waits: list[_Wait], quotes: dict[str, str]) -> None:
        try:
            self._record_event(plan, after_s, waits, quotes=quotes)
        except Exception as error:  # noqa: BLE001 (in the event loop it would be lost)
            self._failed(plan, error)

    def _failed(self, plan: BindingPlan, error: Exception) -> None:
        what = "the message that volumes are not bound yet failed"
        self._errors.record("binding", error, what, pod=plan.pod.key)

    def _record_event(self, plan: BindingPlan, after_s: int, waits: list[_Wait], *, quotes: dict[str, str]) -> None:
        parts = []
        for wait in waits:
            quote = quotes.get(wait.claim.key)
            last_event = f" (last event: {quote})" if quote else ""
            parts.append(f'claim "{wait.claim.metadata.name}" waits for {wait.awaited}{last_event}')
        self._recorder.event(
            plan.pod.pod,
            controller=self._scheduler_name,
            type_="Warning" if after_s == MARKS_S[-1] else "Normal",
            reason="WaitForVolumeBinding",
            action="Binding",
            note=f"volumes are not bound after {after_s} s: {'; '.join(parts)}",
        )

    # -- what is waited for --------------------------------------------------------------------------------------------

    def _waits(self, plan: BindingPlan) -> Iterator[_Wait]:
        for claim in plan.claims():
            now = self._volumes.claims.get_api(claim.key) or claim
            if not now.is_fully_bound:
                yield self._wait(plan, now)

    def _wait(self, plan: BindingPlan, claim: PersistentVolumeClaim) -> _Wait:
        meant = next((step.volume.key for step in plan.static if step.claim.key == claim.key), claim.spec.volume_name)
        if meant:
            return _Wait(claim, f'the PV controller to bind it to volume "{meant}"', "")
        storage_class = self._volumes.classes.get(claim.storage_class)
        where = f'to provision it for node "{plan.node_name}"'
        if storage_class is None:
            return _Wait(claim, f"a provisioner (its StorageClass does not exist) {where}", "")
        provisioner, annotations = storage_class.obj.provisioner, claim.metadata.annotations
        # The PV controller writes the provisioner on the claim: for an in-tree plugin its CSI driver.
        written = next((name for key in STORAGE_PROVISIONERS if (name := annotations.get(key))), provisioner)
        return _Wait(claim, f"{provisioner} {where}", written)

    # -- events of provisioners ----------------------------------------------------------------------------------------

    async def _read_events_within(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        await done_within(self._clock, self._read_events(waits, quotes), ASKING_S)

    async def _read_events(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        """Read the events one after the other; stop at the first failure, because the next read would fail too."""
        for wait in waits:
            try:
                quote = await self._writer.last_event(wait.claim, provisioner=wait.provisioner, besides=self._ours)
            except ApiError as error:
                if not self._has_failed:
                    self._has_failed = True
                    _log.debug("events of claims cannot be read", claim=wait.claim.key, error=error.message)
                return
            if quote:
                quotes[wait.claim.key] = quote
