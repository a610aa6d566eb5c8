"""Bindings that take long say what they wait for (docs/spec/volumes.md §12.2 B-21).

What a provisioner said last is read from the claim's events and quoted. That is a courtesy: a few are asked about at
once, for a short while, and whatever comes of it the user is told, and no binding waits for it.
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
"""An event and a count after so much waiting; the last is a warning."""
ASKING_S: Final = 2.0
AT_ONCE: Final = 4
"""A server without a cache of events reads all those of the namespace for each question; and thousands may wait."""


class _Wait(NamedTuple):
    claim: PersistentVolumeClaim
    whom: str
    provisioner: str
    """"" where none is waited for."""


class SlowBindingReports:
    """Tells the pod's user; the binding goes on."""

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cluster.volumes
        self._recorder = handle.recorder
        self._metrics = handle.volume_metrics
        self._writer = handle.writer
        self._clock = handle.clock
        self._scheduler_name = handle.scheduler_name
        self._ours = handle.scheduler_names | {handle.scheduler_name}
        """Who reports what this process says of claims: that is not news."""
        self._asking: set[asyncio.Task[None]] = set()
        self._has_failed = False
        self._errors = handle.errors

    def tell(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        """The plan is not carried out after so long; nothing is said if it is by now. Raises nothing.

        Said at once, or when the task that is returned has ended. Whoever waits no longer cancels it: then it is said
        without what has not been answered.
        """
        try:
            return self._tell(plan, after_s)
        except Exception as error:  # noqa: BLE001 (it costs the pod's user a message, never the binding)
            self._failed(plan, error)
            return None

    def _tell(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        waits = list(self._waits(plan))
        if not waits:
            return None
        self._metrics.long_wait(after_s)
        quotes: dict[str, str] = {}
        asked = [wait for wait in waits if wait.provisioner]
        if not asked or len(self._asking) >= AT_ONCE:
            self._say(plan, after_s, waits, quotes=quotes)
            return None
        task = asyncio.ensure_future(self._ask_for_a_while(asked, quotes))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(lambda _: self._say_later(plan, after_s, waits, quotes))
        return task

    def _say_later(self, plan: BindingPlan, after_s: int, waits: list[_Wait], quotes: dict[str, str]) -> None:
        try:
            self._say(plan, after_s, waits, quotes=quotes)
        except Exception as error:  # noqa: BLE001 (it would end in the event loop, where nobody looks)
            self._failed(plan, error)

    def _failed(self, plan: BindingPlan, error: Exception) -> None:
        what = "the message that volumes are not bound yet failed"
        self._errors.record("binding", error, what, pod=plan.pod.key)

    def _say(self, plan: BindingPlan, after_s: int, waits: list[_Wait], *, quotes: dict[str, str]) -> None:
        parts = []
        for wait in waits:
            quote = quotes.get(wait.claim.key)
            told = f" (last event: {quote})" if quote else ""
            parts.append(f'claim "{wait.claim.metadata.name}" waits for {wait.whom}{told}')
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
        known = self._volumes.classes.get(claim.storage_class)
        where = f'to provision it for node "{plan.node_name}"'
        if known is None:
            return _Wait(claim, f"nobody (its class is gone) {where}", "")
        provisioner = known.obj.provisioner
        return _Wait(claim, f"{provisioner} {where}", _named(claim) or provisioner)

    # -- what was said of it -------------------------------------------------------------------------------------------

    async def _ask_for_a_while(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        await done_within(self._clock, self._ask(waits, quotes), ASKING_S)

    async def _ask(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        """One after the other; what one question failed of, the next would too."""
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


def _named(claim: PersistentVolumeClaim) -> str:
    """The PV controller writes on a claim who is to provision it: the CSI driver where its class names an in-tree plugin."""
    return next((name for key in STORAGE_PROVISIONERS if (name := claim.metadata.annotations.get(key))), "")
