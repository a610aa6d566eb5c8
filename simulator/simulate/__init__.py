"""`kubestow simulate`: the real daemon schedules the pods of manifests on an in-process API server."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec
import uvloop
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from scheduler.config.types import Configuration, LeaderElection, RunOptions
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.feature_gates import closest_version
from scheduler.core.terminal import counted, printable
from scheduler.daemon.app import Daemon
from scheduler.explain.answer import EXIT_CODES, what_if_as_text
from scheduler.explain.what_if import WhatIfRequest
from scheduler.server.cache_dump import indented
from simulator.simulate import orders, pod_groups
from simulator.simulate.input.complete import Completed, complete
from simulator.simulate.input.dump import save
from simulator.simulate.input.from_cluster import ClusterObjects, ClusterOptions, lacking, read_cluster
from simulator.simulate.input.manifests import Found, InputError, Level, load
from simulator.simulate.input.references import MissingObject, driver_notes
from simulator.simulate.orders import DEFAULT_SEED
from simulator.simulate.outcome import Outcome
from simulator.simulate.planning import nodes_needed
from simulator.simulate.planning.changes import Changes, changed, node_named
from simulator.simulate.planning.difference import Difference, difference, plan_lines
from simulator.simulate.report import (
    ReportConsole,
    as_html,
    as_json,
    as_table,
    nodes_needed_as_json,
    orders_as_json,
    orders_as_text,
    plain,
)
from simulator.simulate.run import Progress as PodProgress, SimulatedDaemon, simulate
from simulator.simulate.world import ReadOptions

__all__ = [
    "DEFAULT_SEED",
    "Changes",
    "ClusterOptions",
    "DaemonFor",
    "DaemonOptions",
    "ReadOptions",
    "SimulateArguments",
    "SimulatedDaemon",
    "daemons",
    "main",
    "outcome_of",
]

_MOST_LINES = 50
_TRIAL_S: Final = 10.0
"""The time of one trial of an explanation where no other pods wait."""
_SLOW_S = 1.0
"""Reading that takes longer is reported even without a terminal."""


@dataclass(frozen=True, slots=True)
class SimulateArguments:
    files: tuple[str, ...]
    output: Literal["table", "wide", "json", "html"]
    rules: ReadOptions
    is_recursive: bool = False
    validate: Level = "strict"
    is_strict: bool = False
    """Whether missing objects end the command."""
    cluster: ClusterOptions | None = None
    """The cluster whose objects are read first; objects of the files replace them."""
    save_to: str = ""
    """File for the objects of the cluster."""
    explains: bool = False
    """Whether pending pods are explained."""
    emulated_version: str = ""
    """The version whose behaviour is simulated; "": that of the cluster, and 1.36 without a cluster."""
    question: WhatIfRequest | None = None
    """A what-if question, whose answer is printed instead of the outcome."""
    seed: int = DEFAULT_SEED
    """From which each draw follows, such as that of one of several equal nodes."""
    seeds: int | None = None
    """With how many seeds, `seed` and those after it, the input is simulated; None: with one, whose outcome is printed."""
    changes: Changes = field(default_factory=Changes)
    """Changes of the input. With one seed the outcome is compared with that of the input as it is."""
    prints_plan_only: bool = False
    """Whether the text is only the difference that the changes make."""
    nodes_like: str = ""
    """The node of which copies are added until every pod is placed; their number is printed instead of the outcome."""


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """How a simulation runs its scheduler."""

    url: str
    token: str
    version: str
    """The version whose behaviour is simulated."""
    seed: int
    clock: Clock


DaemonFor: TypeAlias = Callable[[DaemonOptions], SimulatedDaemon]


def daemons(configuration_for: Callable[[str], Configuration], *, is_long: bool = False) -> DaemonFor:
    """Return what creates the daemon of a simulation with the configuration for its version.

    If the simulation `is_long`, the daemon does not keep the scores of every pod, and no self-audit runs.

    The daemon serves no port and writes to the server of the simulation only: no kubeconfig of the configuration is
    read, and no extender is called to bind.
    """

    def daemon(run: DaemonOptions) -> SimulatedDaemon:
        config = configuration_for(run.version)
        config = dataclasses.replace(
            config,
            client_connection=dataclasses.replace(config.client_connection, kubeconfig="", qps=-1.0),
            leader_election=LeaderElection(),
            extenders=tuple(dataclasses.replace(each, bind_verb="") for each in config.extenders),
        )
        options = RunOptions(
            config=config,
            master=run.url,
            token=run.token,
            emulated_version=run.version,
            drain_timeout_s=5.0,
            trial_s=_TRIAL_S,
            seed=run.seed,
            keeps_choices=not is_long,
            audits=not is_long,
        )
        return Daemon(options, clock=run.clock)

    return daemon


def main(asked: SimulateArguments, daemon_for: DaemonFor) -> int:
    """Simulate and print the outcome; return the exit code.

    0: as expected. 1: a pod was not, or the daemon failed. 2: the input cannot be used. 5: no pod is to be scheduled.
    With `nodes_like` 0 means that a number of nodes suffices, and 1 that none does.
    With a question, the exit code is that of the answer, and 3 if the input cannot be used.
    """
    errors = Console(stderr=True)
    found: Difference | None = None
    try:
        simulation = _prepared(asked, daemon_for, errors)
        changed_input = changed(simulation.objects, asked.changes)
        cluster = complete(changed_input.objects)
        _report(cluster, errors, is_strict=asked.is_strict)

        def run(seed: int) -> Outcome:
            return dataclasses.replace(simulation.run(cluster, seed), abandoned=changed_input.abandoned)

        if asked.nodes_like:
            return _print_nodes_needed(asked, simulation)
        if asked.seeds is not None:
            return _print_orders(asked, run, range(asked.seed, asked.seed + asked.seeds))
        outcome = run(asked.seed)
        if texts := asked.changes.texts:
            found = difference(texts, simulation.run(complete(simulation.objects), asked.seed, is_brief=True), outcome)
    except InputError as wrong:
        _say(errors, str(wrong).removeprefix("--from-cluster: ") if asked.prints_plan_only else str(wrong))
        return 2 if asked.question is None else EXIT_CODES["unreadable"]
    if outcome.what_if is not None:
        as_json_ = indented(outcome.what_if).decode() + "\n"
        sys.stdout.write(as_json_ if asked.output == "json" else what_if_as_text(outcome.what_if))
        return outcome.what_if.exit_code
    if asked.output == "json":
        sys.stdout.write(as_json(outcome, found) + "\n")
    elif asked.prints_plan_only and found is not None:
        sys.stdout.write(printable("\n".join(plan_lines(found, _MOST_LINES)) + "\n"))
    elif asked.output == "html":
        sys.stdout.buffer.write(as_html(outcome))
    else:
        as_table(outcome, ReportConsole(), found)
    return _exit_code(is_good=outcome.is_good, is_empty=outcome.is_empty)


def _print_orders(asked: SimulateArguments, run: Callable[[int], Outcome], seeds: Sequence[int]) -> int:
    found = orders.Orders([orders.order(seed, run(seed)) for seed in seeds])
    sys.stdout.write(orders_as_json(found) if asked.output == "json" else orders_as_text(found))
    return _exit_code(is_good=found.fits == len(found.orders), is_empty=found.is_empty)


def _print_nodes_needed(asked: SimulateArguments, simulation: _Simulation) -> int:
    like = asked.nodes_like
    node_named(simulation.objects, like, "--nodes-needed")

    def simulated(added: int) -> Outcome:
        cluster = complete(changed(simulation.objects, asked.changes.with_nodes(like, added)).objects)
        return simulation.run(cluster, asked.seed, is_brief=True)

    found = nodes_needed.nodes_needed(like, simulated)
    sys.stdout.write(nodes_needed_as_json(found) if asked.output == "json" else printable(nodes_needed.as_text(found)))
    return _exit_code(is_good=found.nodes is not None and not found.is_empty, is_empty=found.is_empty)


def _exit_code(*, is_good: bool, is_empty: bool) -> int:
    return 0 if is_good else EXIT_CODES["nothingToPlace"] if is_empty else 1


@dataclass(frozen=True, slots=True)
class _Simulation:
    """The input, and what simulates it."""

    asked: SimulateArguments
    daemon_for: DaemonFor
    errors: Console
    objects: Sequence[Found]
    version: str
    question: WhatIfRequest | None

    def run(self, cluster: Completed, seed: int, *, is_brief: bool = False) -> Outcome:
        """Simulate a cluster with a seed; with `is_brief` without explanations, details and the data of the page."""
        bar = _bar(self.errors, "scheduling", MofNCompleteColumn(), TextColumn("{task.fields[rest]}"))
        with bar:
            task = bar.add_task("pods", total=None, rest="")

            def progress(answered: int, waiting: int, placed: int) -> None:
                bar.update(task, completed=answered, total=answered + waiting, rest=f"{placed} placed")

            return outcome_of(
                cluster,
                self.daemon_for,
                dataclasses.replace(self.asked, explains=False, output="table") if is_brief else self.asked,
                version=self.version,
                seed=seed,
                progress=progress,
                question=self.question,
            )


def _prepared(asked: SimulateArguments, daemon_for: DaemonFor, errors: Console) -> _Simulation:
    """Read the input once."""
    of_cluster = None if asked.cluster is None else uvloop.run(_read_cluster(asked, asked.cluster, errors))
    version = asked.emulated_version or closest_version(of_cluster.git_version if of_cluster else "")
    found = _read(asked, version, errors) if asked.files or of_cluster is None else []
    if of_cluster is not None:
        found = of_cluster.with_files(found)
    return _Simulation(
        asked, daemon_for, errors, found, version, asked.question and with_objects(asked.question, found)
    )


def _report(cluster: Completed, errors: Console, *, is_strict: bool) -> None:
    """Print what the input lacks. Raises InputError if `is_strict` and an object is missing."""
    _report_missing(cluster.missing, errors, is_strict=is_strict)
    for note in driver_notes(cluster.objects):
        _say(errors, f"note: {note}")
    for warning in pod_groups.warnings(cluster.objects):
        _say(errors, warning)


def outcome_of(  # noqa: PLR0913 (the parts of one simulation)
    cluster: Completed,
    daemon_for: DaemonFor,
    asked: SimulateArguments,
    *,
    version: str,
    seed: int,
    progress: PodProgress = lambda *_: None,
    question: WhatIfRequest | None = None,
) -> Outcome:
    """Simulate the cluster in virtual time. Of the arguments, those of the input are not read, and `seed` replaces theirs."""

    def simulation(clock: Clock) -> Awaitable[Outcome]:
        return simulate(
            cluster,
            lambda url, token: daemon_for(DaemonOptions(url, token, version, seed, clock)),
            asked.rules,
            clock=clock,
            version=version,
            progress=progress,
            explains=asked.explains,
            keeps_pages=asked.output == "html",
            question=question,
            with_detail=asked.seeds is None and asked.output in {"json", "wide", "html"},
            seed=seed,
        )

    return orders.run(simulation, cluster.objects)


def with_objects(question: WhatIfRequest, found: Sequence[Found]) -> WhatIfRequest:
    """Return the question with the objects of the cluster that its pods may need and a scheduler does not watch."""
    needed = (each.value for each in found if each.kind in {"PriorityClass", "ResourceClaimTemplate"})
    return msgspec.structs.replace(question, manifests=(*needed, *question.manifests))


def _report_missing(missing: Sequence[MissingObject], errors: Console, *, is_strict: bool) -> None:
    if not missing:
        return
    objects = "1 object is" if len(missing) == 1 else f"{len(missing)} objects are"
    lines = [f"  {each}" for each in missing[:_MOST_LINES]]
    if len(missing) > _MOST_LINES:
        lines.append(f"  … and {len(missing) - _MOST_LINES} more")
    text = "\n".join([f"{objects} missing in the input:", *lines])
    if is_strict:
        raise InputError(text)
    _say(errors, text)


def _read(asked: SimulateArguments, version: str, errors: Console) -> list[Found]:
    bar = _bar(errors, "reading", DownloadColumn())
    with bar:
        task = bar.add_task("bytes", total=None)
        loaded = load(
            asked.files,
            recursive=asked.is_recursive,
            level=asked.validate,
            version=version,
            progress=lambda done, total: bar.update(task, completed=done, total=total or None),
        )
    for warning in loaded.warnings:
        _say(errors, f"warning: {warning}")
    if loaded.large_yaml and errors.is_terminal:
        _say(errors, f"hint: {loaded.large_yaml} is large; JSON (kubectl get -o json) is read faster than YAML")
    if errors.is_terminal or loaded.seconds > _SLOW_S:
        _say(errors, str(loaded))
    return loaded.objects


async def _read_cluster(asked: SimulateArguments, options: ClusterOptions, errors: Console) -> ClusterObjects:
    bar = _bar(errors, "reading", MofNCompleteColumn(), TextColumn("kinds, {task.fields[objects]} objects"))
    with bar:
        task = bar.add_task("kinds", total=None, objects=0)

        def progress(kinds: int, total: int, objects: int) -> None:
            bar.update(task, completed=kinds, total=total, objects=objects)

        read = await read_cluster(options, clock=SystemClock(), progress=progress)
    for note in read.notes:
        _say(errors, f"warning: {note}")
    if read.gaps:
        _say(errors, f"warning: {lacking(read.gaps)}")
    if asked.save_to:
        save(read.objects, asked.save_to)
        _say(errors, f"saved {counted(len(read.objects), 'object')} in {asked.save_to}")
    return read


def _bar(errors: Console, title: str, *columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn(title),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


def _say(errors: Console, line: str) -> None:
    errors.print(plain(line), soft_wrap=True)
