"""Writes a plan: PV pre-bindings, then selected nodes, in order and never undone (docs/spec/volumes.md §6.3).

A failed write is repeated for the same node while there is time, because a half-written plan keeps the pod on a
node (B-2). After a conflict the object is read again, a busy server is waited for, and after a lost answer the
object is read. A repeated write needs an object that still matches the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from scheduler.api.apps_and_policy import started_at
from scheduler.api.decode import Broken
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.nodes.node_groups import where_affinity
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, Unavailable, VolumeError
from scheduler.core.retry import Retry
from scheduler.framework.handle import Handle
from scheduler.framework.wait import settle
from scheduler.plugins.volumebinding.assume import pre_bound
from scheduler.plugins.volumebinding.find import first_miss
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, DynamicStep, StaticStep


def problem_of(decided: PersistentVolumeClaim, now: PersistentVolumeClaim | Broken | None) -> str:
    """Return why the claim on the server was replaced, or is being deleted; "" if neither is so."""
    if isinstance(now, Broken):
        return f"{now.kind} {now.key} cannot be read: {now.why}"
    metadata = decided.metadata
    if now is None or now.metadata.uid != metadata.uid or now.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{metadata.name}" is not the one that was decided on any more'
    return ""


T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)

_WRITES_IN_FLIGHT: Final = 64
_JITTER_S: Final = (0.01, 0.05)
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_YOUNG_S: Final = 1.0
_DELETE: Final = "Delete"
_CONFLICTS: Final = 3
"""How often a volume or claim that another component changed is read again and written again."""
"""Reclaim policy of volumes that the PV controller deletes with their claim."""


class WriteDeadline(NamedTuple):
    """The deadline of repeated writes, and a callback for writes that take long."""

    deadline: float
    takes_long: Callable[[], None]


class BindAPIUpdate:
    """Writes the steps of a plan.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go bindAPIUpdate
    """

    def __init__(
        self, handle: Handle, *, check: Callable[[BindingPlan], object], is_led: Callable[[str, str], bool]
    ) -> None:
        """Create it. `check` raises VolumeError for a plan that is no longer wanted.

        `is_led` takes a claim's key and a pod's uid, and returns whether another pod's plan writes that claim (B-15).
        """
        self._nodes = handle.cluster.nodes
        self._volumes = handle.cluster.volumes
        self._writer = handle.writer
        self._clock = handle.clock
        self._rng = handle.rng
        self._metrics = handle.volume_metrics
        self._check = check
        self._is_led = is_led
        self._retries = 0 if handle.ours.parity else _CONFLICTS
        """The limit of repetitions after conflicts; other failures are repeated until the deadline. 0 as upstream: none.
        """
        self._checks_live = handle.ours.pre_bind_live_check == "claims"
        self._write_slots = asyncio.Semaphore(_WRITES_IN_FLIGHT)

    async def write(self, plan: BindingPlan, write_deadline: WriteDeadline) -> None:
        """Write all volumes, then all claims that are not written yet. Raises the first failure.

        The plan shows what is written.
        """
        for static in plan.static:
            if static.written is None and self._is_to_write(static, plan):
                await self._pre_bind(static, plan, write_deadline)
        for dynamic in plan.dynamic:
            if dynamic.written is None and not self._is_selected(dynamic, plan):
                dynamic.is_left = self._is_led(dynamic.claim.key, plan.pod.uid)
                if not dynamic.is_left:
                    await self._select(dynamic, plan, write_deadline)

    def _is_to_write(self, step: StaticStep, plan: BindingPlan) -> bool:
        """Return False if the server has the step, or another pod writes it for the claim that both use."""
        step.is_left = False
        now = self._volumes.volumes.get_api(step.volume.key)
        if now is None or (now.spec.claim_ref is not None and not is_for(now, step.claim)):
            return step.is_dirty  # the write fails; without a write the wait reports the reason
        changed, marks = pre_bound(now, step.claim)
        if changed is now or step.is_dirty:
            return changed is not now
        step.is_left = self._is_led(step.claim.key, plan.pod.uid)
        if not step.is_left:
            step.volume, step.marks = changed, marks
        return not step.is_left

    def _is_selected(self, step: DynamicStep, plan: BindingPlan) -> bool:
        """Return whether the server has the node: another pod shares the claim, or this is a second attempt."""
        stored = self._volumes.claims.get_api(step.claim.key)
        return (
            stored is not None
            and stored.metadata.uid == step.claim.metadata.uid
            and stored.selected_node == plan.node_name
        )

    def _check_wanted(self, plan: BindingPlan) -> None:
        """Check the plan before each request, because the previous one may have taken long."""
        try:
            self._check(plan)
        except VolumeError as error:
            raise VolumeError(f"binding volumes: {error}") from error

    def _check_use(self, step: StaticStep, node_name: str) -> None:
        """Check the claim before each request: the volume's version does not show changes of the claim."""
        claim, now = step.claim, self._volumes.claims.get_api(step.claim.key)
        problem = ""
        if now is None or now.metadata.uid != claim.metadata.uid:
            problem = self._volumes.claims.absence(claim.key)
        elif now.metadata.deletion_timestamp is not None:
            problem = f'persistentvolumeclaim "{claim.metadata.name}" is being deleted'
        elif now.spec.volume_name not in {"", step.volume.key}:
            problem = f'persistentvolumeclaim "{claim.metadata.name}" has another volume'
        elif now.selected_node not in {None, node_name}:
            problem = f'persistentvolumeclaim "{claim.metadata.name}" has another node'
        if problem:
            raise VolumeError(f"binding volumes: {problem}")

    async def _pre_bind(self, step: StaticStep, plan: BindingPlan, write_deadline: WriteDeadline) -> None:
        if self._checks_live and step.volume.spec.persistent_volume_reclaim_policy == _DELETE:
            await self._confirm(step.claim, write_deadline)

        def again(now: PersistentVolume) -> PersistentVolume:
            problem = self._volume_problem(now, step.volume, step.claim, plan.node_name)
            if problem:
                raise VolumeError(problem)
            changed, step.marks = pre_bound(now, step.claim)
            return changed

        async def write(volume: PersistentVolume) -> PersistentVolume | Broken:
            self._check_wanted(plan)
            self._check_use(step, plan.node_name)
            return await self._writer.prebind_volume(volume, step.claim, marks=step.marks)

        step.written = await self._persist(
            step.volume,
            write_deadline,
            write=write,
            read=partial(self._writer.read_volume, step.volume.key),
            again=again,
            is_done=lambda now: now.spec.claim_ref == step.volume.spec.claim_ref and not _is_deleted(now, step.volume),
        )

    async def _select(self, step: DynamicStep, plan: BindingPlan, write_deadline: WriteDeadline) -> None:
        metadata = step.claim.metadata

        def again(now: PersistentVolumeClaim) -> PersistentVolumeClaim:
            problem = _selection_problem(now, step.claim)
            if problem:
                raise VolumeError(problem)
            return now

        async def write(claim: PersistentVolumeClaim) -> PersistentVolumeClaim | Broken:
            self._check_wanted(plan)
            return await self._writer.select_node(claim, plan.node_name)

        step.written = await self._persist(
            step.claim,
            write_deadline,
            write=write,
            read=partial(self._writer.read_claim, metadata.namespace, metadata.name),
            again=again,
            is_done=lambda now: now.metadata.uid == metadata.uid and now.selected_node == plan.node_name,
        )

    async def _persist(
        self,
        wanted: T,
        write_deadline: WriteDeadline,
        *,
        write: Callable[[T], Coroutine[Any, Any, T | Broken]],
        read: Callable[[], Awaitable[T | Broken | None]],
        again: Callable[[T], T],
        is_done: Callable[[T], bool],
    ) -> T:
        """Return the object as written. Raises the last failure at the deadline, or when a repetition is useless."""
        conflicts, current = 0, wanted
        retry = self._retry(write_deadline)
        while True:
            await asyncio.sleep(0)  # a cancellation during the last request takes effect here
            try:
                async with self._write_slots:
                    return _readable(await settle(write(current)))
            except (Conflict, Ambiguous, Unavailable) as error:
                failed: ApiError = error
            conflicts += isinstance(failed, Conflict)
            if not isinstance(failed, Unavailable):
                self._metrics.write_conflict(type(wanted).__name__)
            if not self._retries or conflicts > self._retries:
                raise failed
            is_conflict = isinstance(failed, Conflict)
            await retry.pause(failed, pause_s=self._rng.uniform(*_JITTER_S) if is_conflict else None)
            if isinstance(failed, Unavailable):
                continue
            now = await self._reread(read, write_deadline)
            if now is None:
                raise failed
            if is_done(now):
                return now
            try:
                current = again(now)
            except VolumeError as problem:
                failed.add_note(str(problem))
                raise failed from problem

    def _retry(self, write_deadline: WriteDeadline) -> Retry:
        return Retry(
            self._clock,
            first_s=_FIRST_PAUSE_S,
            longest_s=_LONGEST_PAUSE_S,
            deadline=write_deadline.deadline,
            on_longest=write_deadline.takes_long,
        )

    async def _reread(
        self, read: Callable[[], Awaitable[T | Broken | None]], write_deadline: WriteDeadline
    ) -> T | None:
        retry = self._retry(write_deadline)
        while True:
            try:
                found = await read()
            except Fenced:
                raise
            except (Ambiguous, Unavailable) as error:
                await retry.pause(error)
            else:
                return None if found is None else _readable(found)

    async def _confirm(self, claim: PersistentVolumeClaim, write_deadline: WriteDeadline) -> None:
        """Read a young claim before a volume that is deleted with its claim is bound to it (B-19)."""
        metadata = claim.metadata
        created_at = metadata.creation_timestamp
        if not created_at or self._clock.wall() - started_at(created_at) >= _YOUNG_S:
            return
        read = partial(self._writer.read_claim, metadata.namespace, metadata.name)
        problem = problem_of(claim, await self._reread(read, write_deadline))
        if problem:
            raise VolumeError(problem)

    def _volume_problem(
        self, now: PersistentVolume, decided: PersistentVolume, claim: PersistentVolumeClaim, node_name: str
    ) -> str:
        """Return why the claim cannot have this volume on the node any more; "" if it can (§12.2 B-2)."""
        miss = first_miss(now, claim)
        if now.metadata.uid != decided.metadata.uid:
            problem = "is another one now"
        elif miss is not None:
            problem = miss.value
        else:
            slot = self._nodes.present_slot(node_name)
            reached = self._volumes.groups.nodes_of(where_affinity(now.required_nodes))
            problem = "" if slot is not None and reached >> slot & 1 else "cannot be used on the node"
        return f"persistentvolume {now.key} {problem}" if problem else ""


def _selection_problem(now: PersistentVolumeClaim, decided: PersistentVolumeClaim) -> str:
    """Return why the node may not be written any more; "" if it may (§12.2 B-2)."""
    wrong = {
        "is another one now": now.metadata.uid != decided.metadata.uid,
        "is being deleted": now.metadata.deletion_timestamp is not None,
        "has a volume": bool(now.spec.volume_name),
        "has another node": now.selected_node not in {None, decided.selected_node},
        "has another spec": now.spec != decided.spec,
    }
    found = next((what for what, is_so in wrong.items() if is_so), "")
    return f"persistentvolumeclaim {now.key} {found}" if found else ""


def _is_deleted(now: PersistentVolume, decided: PersistentVolume) -> bool:
    return now.metadata.deletion_timestamp is not None or now.metadata.uid != decided.metadata.uid


def _readable(found: T | Broken) -> T:
    if isinstance(found, Broken):
        raise VolumeError(f"{found.kind} {found.key} cannot be read: {found.why}")
    return found
