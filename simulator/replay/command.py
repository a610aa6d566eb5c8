"""The commands `kubestow record` and `kubestow replay`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from scheduler.config.types import Configuration
from scheduler.core.clock import SystemClock
from scheduler.core.terminal import counted
from simulator.replay.answer import ReplayAnswer, RunAnswer, as_json, replay_answer, run_answer
from simulator.replay.history import History, read_history
from simulator.replay.recorder import RecordOptions, record
from simulator.replay.report import as_html, as_table, duration, notes
from simulator.replay.run import ReplayRules, recorded, replayed
from simulator.simulate import DaemonFor, daemons
from simulator.simulate.input.sources import InputError
from simulator.simulate.report import ReportConsole, plain

__all__ = ["REPLAYS_MAX", "Candidate", "RecordOptions", "ReplayArguments", "record_main", "replay_main", "replay_of"]

_NAMES: Final = ("A", "B")
REPLAYS_MAX: Final = len(_NAMES)
"""Configurations that one call compares."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that is tried."""

    config: str
    """The name of its file; "" for the default one."""
    version: str
    daemon_for: DaemonFor
    profile_names: tuple[str, ...]

    @classmethod
    def of(cls, configuration: Configuration, version: str, file: str = "") -> Self:
        """Return the candidate with this configuration."""
        names = tuple(profile.scheduler_name for profile in configuration.profiles)
        return cls(file, version, daemons({version: configuration}.__getitem__, is_long=True), names)


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """The arguments of one call."""

    file: str
    candidates: Sequence[Candidate]
    """One or two."""
    scheduler_names: tuple[str, ...] = ()
    """Recorded schedulers whose pods are replayed; none: those with the names of the profiles."""
    output: Literal["text", "json"] = "text"
    html: str = ""
    seed: int = 0
    speed: float | None = None
    pool_label: str = ""


def record_main(options: RecordOptions) -> int:
    """Record until the time is over, or SIGINT or SIGTERM comes. Return the exit code."""
    errors = Console(stderr=True)
    try:
        end, lacking = uvloop.run(_recording(options, errors))
    except InputError as wrong:
        _print(errors, f"kubestow record: {wrong}")
        return 2
    for note in lacking:
        _print(errors, f"warning: {note}")
    size = Path(options.path).stat().st_size
    _print(errors, f"{options.path}: {size} bytes; the recording ended because {end}")
    return 0


async def _recording(options: RecordOptions, errors: Console) -> tuple[str, list[str]]:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with _bar(errors, "recording", "{task.completed} events, {task.fields[size]} bytes") as bar:
        task = bar.add_task("events", total=None, size=0)

        def progress(events: int, size: int) -> None:
            bar.update(task, completed=events, size=size)

        running = asyncio.ensure_future(record(options, clock=SystemClock(), progress=progress))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if running.done():
            return running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return "it was stopped", []


def replay_main(arguments: ReplayArguments) -> int:
    """Replay and print the answer. Return the exit code: 2 if the recording cannot be used."""
    errors = Console(stderr=True)
    try:
        _check_folder(arguments.html)
        answer = replay_of(arguments, errors)
        if arguments.output == "json":
            sys.stdout.buffer.write(as_json(answer))
        else:
            ReportConsole().print(as_table(answer))
        if arguments.html:
            _write(arguments.html, as_html(answer))
    except InputError as wrong:
        _print(errors, f"kubestow replay: {wrong}")
        return 2
    for note in notes(answer):
        _print(errors, f"warning: {note}")
    return 0


def replay_of(arguments: ReplayArguments, errors: Console | None = None) -> ReplayAnswer:
    """Replay the recording with each candidate. Raises InputError."""
    errors = errors or Console(stderr=True, quiet=True)
    history = read_history(arguments.file)
    names = _scheduler_names(arguments, history)
    rules = _rules(arguments, names, arguments.candidates[0])
    runs = [run_answer("recorded", "", history.header.server, recorded(arguments.file, history, rules))]
    for name, each in zip(_NAMES, arguments.candidates):
        runs.append(_run(name, each, _rules(arguments, names, each), history, arguments, errors))
    return replay_answer(history, rules, runs)


def _rules(arguments: ReplayArguments, recorded_names: Sequence[str], candidate: Candidate) -> ReplayRules:
    """Return how a candidate replays: pods whose scheduler is none of its profiles go to the first profile."""
    profiles = candidate.profile_names
    names = {name: name if name in profiles else profiles[0] for name in recorded_names}
    return ReplayRules(names, candidate.version, arguments.seed, arguments.pool_label, arguments.speed)


def _run(  # noqa: PLR0917 (the parts of one run)
    name: str, each: Candidate, rules: ReplayRules, history: History, arguments: ReplayArguments, errors: Console
) -> RunAnswer:
    total = duration(history.duration_s)
    with _bar(errors, f"replaying {name}", f"{{task.fields[at]}} of {total}") as bar:
        task = bar.add_task("seconds", total=history.duration_s, at="")

        def progress(at_s: float) -> None:
            bar.update(task, completed=at_s, at=duration(at_s))

        measured = replayed(arguments.file, history, rules, each.daemon_for, progress)
    return run_answer(name, each.config, each.version, measured)


def _scheduler_names(arguments: ReplayArguments, history: History) -> tuple[str, ...]:
    """Return the recorded names. Raises InputError if the recording has no pod of them."""
    names = arguments.scheduler_names or tuple(
        dict.fromkeys(name for each in arguments.candidates for name in each.profile_names)
    )
    counts = history.by_scheduler()
    if not any(counts[name] for name in names):
        found = ", ".join(f"{name} ({counted(count, 'pod')})" for name, count in counts.most_common(10))
        raise InputError(
            f"{arguments.file}: no pod of {', '.join(names)} arrives in the recording. "
            f"It has pods of {found or 'no scheduler'}; name them by --scheduler-name"
        )
    return names


def _check_folder(path: str) -> None:
    """Raise InputError if the page cannot be written, before a replay that takes minutes."""
    if path and Path(path).is_dir():
        raise InputError(f"--html: {path}: is a folder; name a file")
    if path and not Path(path).parent.is_dir():
        raise InputError(f"--html: {path}: the folder {Path(path).parent} does not exist")


def _write(path: str, page: bytes) -> None:
    try:
        Path(path).write_bytes(page)
    except OSError as error:
        raise InputError(f"--html: {path}: {error.strerror}") from error


@contextlib.contextmanager
def _bar(errors: Console, title: str, text: str) -> Iterator[Progress]:
    columns = (TextColumn(title), BarColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        yield bar


def _print(errors: Console, line: str) -> None:
    errors.print(plain(line), soft_wrap=True)
