"""How long groups of hostile sizes hold the event loop, and what memory they leave behind.

`python -m benchmarks.hostile_groups [CASE …]` prints one row per case: the wall time, and the longest stretch of processor time
without a turn for other tasks, from the first object of the case until all are gone again. The last two columns are the memory
before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from benchmarks.in_process import resident_mib
from scheduler.api.decode import Delta
from scheduler.api.pod_group import POD_GROUP
from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, AttemptError, Skip
from tests.unit.harness import SchedulerHarness, StepClock

NODES: Final = 200
_STEPS: Final = 100_000
"""Turns of the loop, each of some milliseconds, in which a case must be over."""


def _grouped(name: str) -> dict[str, Any]:
    return {"schedulingGroup": {"podGroupName": name}}


def _without_pods(sched: SchedulerHarness) -> None:
    """10,000 PodGroups without pods."""
    for at in range(10_000):
        sched.group(f"g{at}", 3)


def _one_large(sched: SchedulerHarness) -> None:
    """One group of 10,000 pods that fits."""
    sched.group("g", 10_000)
    for at in range(10_000):
        sched.pod(f"p{at}", cpu="10m", **_grouped("g"))


def _one_too_large(sched: SchedulerHarness) -> None:
    """One group of 10,000 pods of which one does not fit."""
    sched.group("g", 10_000)
    for at in range(10_000):
        sched.pod(f"p{at}", cpu="10m" if at else "100", **_grouped("g"))


def _one_of_two_kinds(sched: SchedulerHarness) -> None:
    """One group of 10,000 pods of two kinds, too large by a tenth."""
    sched.group("g", 10_000)
    for at in range(10_000):
        sched.pod(f"p{at}", cpu="90m" if at % 2 else "85m", **_grouped("g"))


def _late_object(sched: SchedulerHarness) -> None:
    """One group of 10,000 pods whose object comes last."""
    for at in range(10_000):
        sched.pod(f"p{at}", cpu="10m", **_grouped("g"))
    sched.group("g", 10_000)


def _given_up(sched: SchedulerHarness) -> None:
    """One group of 10,000 pods whose last one fails in PreBind when all its mates are prepared."""
    sched.plug(pre_bind=(_FailingLast(10_000),))
    _one_large(sched)


def _of_one_name(sched: SchedulerHarness) -> None:
    """1000 groups of one name in 1000 namespaces, three pods each, which all fit."""
    for at in range(1000):
        namespace = f"team-{at}"
        sched.group("g", 3, namespace=namespace)
        for pod in range(3):
            sched.pod(f"p{at}-{pod}", cpu="10m", namespace=namespace, **_grouped("g"))


class _FailingLast:
    """A PreBind plugin that fails for the last pod of a number."""

    name = "FailingLast"
    is_brief = is_reversible = True

    def __init__(self, count: int) -> None:
        self._left = count

    def pre_bind_pre_flight(self, _state: CycleState, _pod: PodInfo, _node_name: str) -> Skip | None:
        self._left -= 1
        return SKIP if self._left else None

    async def pre_bind(self, _state: CycleState, _pod: PodInfo, _node_name: str) -> None:
        raise AttemptError("the disk is gone")


CASES: Final[Mapping[str, Callable[[SchedulerHarness], None]]] = {
    "empty": _without_pods,
    "large": _one_large,
    "late": _late_object,
    "given-up": _given_up,
    "too-large": _one_too_large,
    "two-kinds": _one_of_two_kinds,
    "one-name": _of_one_name,
}


class _Running(StepClock):
    """A clock that goes on by itself, so that long work makes pauses."""

    def now(self) -> float:
        return time.perf_counter()


class _Stretches:
    """The longest processor time between two turns of the event loop, or of one change."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.is_over = False
        self._since = time.process_time()

    async def watch(self) -> None:
        """Look at the clock in every turn."""
        while not self.is_over:
            await asyncio.sleep(0)
            self._ended()

    def change(
        self, apply: Callable[[str, Iterable[Delta[Any]]], None], kind: str, deltas: Iterable[Delta[Any]]
    ) -> None:
        """Apply a change, which the daemon does in a turn."""
        self._since = time.process_time()
        apply(kind, deltas)
        self._ended()

    def _ended(self) -> None:
        now = time.process_time()
        self.longest_s = max(self.longest_s, now - self._since)
        self._since = now


async def measured(build: Callable[[SchedulerHarness], None]) -> tuple[float, float, int]:
    """Return seconds, the longest stretch, and how many pods were bound."""
    sched = SchedulerHarness(clock=_Running())
    sched.served(POD_GROUP)
    for at in range(NODES):
        sched.node(f"n{at}", pods="200")
    stretches = _Stretches()
    watching = asyncio.create_task(stretches.watch())
    await asyncio.sleep(0)
    gc.disable()  # as in the daemon, where it runs when nothing else does
    began = time.perf_counter()
    handlers = sched.parts.event_handlers
    setattr(handlers, "apply", partial(stretches.change, handlers.apply))  # noqa: B010 (a method)
    build(sched)
    await sched.settle(_STEPS)
    took_s = time.perf_counter() - began
    bound = len(sched.writer.binds)
    for name in list(sched.seen):
        sched.gone(name)
    for kind, name in list(sched.groups):
        sched.group_gone(name, kind)
    await sched.settle(_STEPS)
    gc.enable()
    stretches.is_over = True
    await watching
    return took_s, stretches.longest_s, bound


async def main(names: Iterable[str]) -> None:
    """Print one row per case."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print("case        seconds  longest ms   bound   MiB before  after")
    for name in names:
        gc.collect()
        before = resident_mib()
        took_s, longest_s, bound = await measured(CASES[name])
        gc.collect()
        row = (f"{name:10}", f"{took_s:8.2f}", f"{1000 * longest_s:10.1f}", f"{bound:7}", f"{before:10.0f}")
        print(*row, f"{resident_mib():8.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_groups", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    asyncio.run(main(parser.parse_args().cases or CASES))
