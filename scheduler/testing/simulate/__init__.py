"""`kubestow simulate`: the real daemon schedules the pods of manifests on an in-process API server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scheduler.core.clock import SystemClock
from scheduler.testing.simulate.complete import complete
from scheduler.testing.simulate.manifests import InputError, load
from scheduler.testing.simulate.outcome import Outcome
from scheduler.testing.simulate.report import as_json, as_table
from scheduler.testing.simulate.run import SimulatedDaemon, simulate
from scheduler.testing.simulate.world import ReadOptions

__all__ = ["ReadOptions", "SimulateArguments", "SimulatedDaemon", "main"]


@dataclass(frozen=True, slots=True)
class SimulateArguments:
    """One call of the command."""

    files: tuple[str, ...]
    output: Literal["table", "json"]
    rules: ReadOptions


def main(asked: SimulateArguments, daemon_for: Callable[[str], SimulatedDaemon]) -> int:
    """Simulate and print. 0: as expected; 1: a pod was not, or the daemon failed; 2: the input cannot be used.

    `daemon_for` makes the scheduler for an API server's URL.
    """
    errors = Console(stderr=True)
    try:
        outcome = uvloop.run(_run(asked, daemon_for, errors))
    except InputError as wrong:
        errors.print(str(wrong), markup=False, highlight=False, soft_wrap=True)
        return 2
    if asked.output == "json":
        sys.stdout.write(as_json(outcome) + "\n")
    else:
        as_table(outcome, Console())
    return 0 if outcome.is_good else 1


async def _run(asked: SimulateArguments, daemon_for: Callable[[str], SimulatedDaemon], errors: Console) -> Outcome:
    objects = complete(load(asked.files))
    bar = Progress(
        TextColumn("scheduling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rest]}"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task("pods", total=None, rest="")

        def progress(answered: int, waiting: int, placed: int) -> None:
            bar.update(task, completed=answered, total=answered + waiting, rest=f"{placed} placed")

        return await simulate(objects, daemon_for, asked.rules, clock=SystemClock(), progress=progress)
