"""Between PreBind and Bind of the pods of a group: they wait for each other, and are given up together (docs/spec/groups.md §7).

`GroupBarrier` counts the prepared ones. This module checks all of them at one moment before the first Binding, and cancels the
bindings of a group that is given up. Each binding undoes itself, as after any failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from scheduler.api.pod_group import GroupKey
from scheduler.binding_state import GONE, Binding, GroupBarrier
from scheduler.context import Shared
from scheduler.framework.status import AttemptError, Rejection
from scheduler.framework.wait import WaitingPodsMap

_CANCELLED_AT_ONCE: Final = 500


class Barriers:
    """The barriers of all groups whose pods are being bound."""

    def __init__(
        self,
        shared: Shared,
        tasks: Mapping[asyncio.Task[None], Binding],
        waiting_pods: WaitingPodsMap,
        check: Callable[[Binding], Rejection | None],
    ) -> None:
        """Create the barriers for these tasks. `check` says why a pod does not fit on its node any more."""
        self._cluster = shared.cluster
        self._metrics = shared.metrics
        self._tasks = tasks
        self._waiting_pods = waiting_pods
        self._check = check
        self._closed: dict[GroupKey, GroupBarrier] = {}
        self.given_up: set[str] = set()
        """Uids of the pods whose bindings are being cancelled: they keep their nodes only for a moment."""

    def closed(self, group: GroupKey) -> GroupBarrier | None:
        """Return the closed barrier of the group, which one more pod of the group must not pass alone."""
        return self._closed.get(group)

    def hold(self, group: GroupKey, least: int) -> None:
        """Keep the pods of a group, whose bindings begin next, until this number of them are prepared.

        If pods of the group wait already, all of them wait together.
        """
        barrier = self._closed.get(group)
        if barrier is None:
            self._closed[group] = GroupBarrier(group, least)
        else:
            barrier.expect(least)

    async def halfway(self, binding: Binding, barrier: GroupBarrier) -> None:
        """Wait until enough pods of the group have prepared what can be taken back. Raises as `wait`."""
        barrier.raise_failure()
        await _passed(binding, barrier.arrive_halfway(binding))

    async def wait(self, binding: Binding, barrier: GroupBarrier) -> None:
        """Wait for the rest of the group. Raises AttemptError if the group is given up. May be cancelled."""
        barrier.raise_failure()
        opened = barrier.arrive(binding)
        if barrier.has_enough and not barrier.is_open:
            self._check_all(barrier)
            if binding.aborted:
                raise AttemptError(binding.aborted)
            if barrier.has_enough:
                for mate in barrier.waiting():
                    mate.is_preparing = False  # from now on none of them may be taken from its mates
                barrier.open()
                del self._closed[barrier.group]
        await _passed(binding, opened)

    def leave(self, binding: Binding, why: str) -> None:
        """Record the end of a binding. If the barrier is closed and the rest is too few, the group is given up."""
        if binding.barrier is not None and binding.barrier.leave(binding, why):
            self._give_up(binding.barrier)

    def _check_all(self, barrier: GroupBarrier) -> None:
        """Check pods and nodes of all prepared bindings again. One that fails leaves the group, which may end it."""
        for mate in barrier.waiting():
            if mate.preempted_by:
                why = f"preempted by {mate.preempted_by}"
            elif self._cluster.get(mate.assumed.uid) is None:
                why = GONE
            elif (rejection := self._check(mate)) is not None:
                self._metrics.binding_conflict("node")
                why = rejection.message
            else:
                continue
            self._abort({mate}, why)
            if barrier.leave(mate, why):
                self._give_up(barrier)
                return

    def _give_up(self, barrier: GroupBarrier) -> None:
        """End all bindings of a group. One that has not begun ends at the barrier."""
        if self._closed.get(barrier.group) is barrier:
            del self._closed[barrier.group]
        self._metrics.group_given_up()
        self._abort({each for each in self._tasks.values() if each.barrier is barrier}, barrier.failure)

    def _abort(self, bindings: Collection[Binding], why: str) -> None:
        """End these bindings between their writes. The caller ends the one in whose task it runs."""
        cancelled: list[asyncio.Task[None]] = []
        for task, binding in self._tasks.items():
            if binding not in bindings or binding.aborted or binding.preempted_by:
                continue
            if self._waiting_pods.is_held(binding.assumed.uid):
                self._waiting_pods.reject(binding.assumed.uid, "", why)
            elif binding.is_preparing:
                binding.aborted = why
                self.given_up.add(binding.assumed.uid)
                if task is not asyncio.current_task():
                    cancelled.append(task)
        _cancel(cancelled)


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel some of the tasks in each turn of the event loop: ten thousand that end in one turn would hold it too long."""
    for task in tasks[:_CANCELLED_AT_ONCE]:
        task.cancel()
    if rest := tasks[_CANCELLED_AT_ONCE:]:
        asyncio.get_running_loop().call_soon(_cancel, rest)


async def _passed(binding: Binding, opened: asyncio.Future[None]) -> None:
    try:
        await opened
    except asyncio.CancelledError:
        if binding.preempted_by or not binding.aborted:
            raise
        raise AttemptError(binding.aborted) from None
