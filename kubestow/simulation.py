"""Simulate from Python as `kubestow simulate` does: the real scheduler on an in-process API server, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

import structlog

from kubestow import option_values
from kubestow.result import Result
from scheduler.config import load
from scheduler.config.errors import ConfigErrors, PluginLoadError
from scheduler.config.types import Configuration
from scheduler.core.feature_gates import DEFAULT_VERSION, VERSIONS
from scheduler.profiles.build import build_profiles
from simulator.replay.answer import ReplayAnswer
from simulator.replay.command import REPLAYS_MAX, Candidate, ReplayArguments, replay_of
from simulator.simulate import DEFAULT_SEED, ReadOptions, SimulateArguments, daemons, outcome_of
from simulator.simulate.answer import Answer, NodesNeededAnswer, answer, nodes_needed_answer
from simulator.simulate.input.complete import complete
from simulator.simulate.input.json_values import as_json_value
from simulator.simulate.input.manifests import Found, InputError, Level, from_values, load as load_files
from simulator.simulate.outcome import Outcome
from simulator.simulate.planning.changes import Changes, Scale, changed, node_named
from simulator.simulate.planning.difference import difference
from simulator.simulate.planning.nodes_needed import nodes_needed as find_nodes_needed

__all__ = [
    "ConfigErrors",
    "Input",
    "InputError",
    "NodesNeededAnswer",
    "Options",
    "PluginLoadError",
    "ReplayAnswer",
    "nodes_needed",
    "replay",
    "simulate",
]

Input: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a file or directory with manifests, or one manifest. A List is a manifest, too."""
_T = TypeVar("_T")


class Options(TypedDict, total=False):
    """The options of `simulate`, which describes them."""

    seed: int
    version: str
    config: str | os.PathLike[str] | Mapping[str, Any] | None
    explain: bool
    expect_pending: Sequence[str]
    validate: bool
    timeout_s: float
    add_nodes_like: Mapping[str, int]
    drain: Sequence[str]
    cordon: Sequence[str]
    scale: Mapping[str, int]


def simulate(  # noqa: PLR0913 (the options of the command)
    *inputs: Input,
    seed: int = DEFAULT_SEED,
    version: str = DEFAULT_VERSION,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    explain: bool = False,
    expect_pending: Sequence[str] = (),
    validate: bool = True,
    timeout_s: float = 120.0,
    add_nodes_like: Mapping[str, int] | None = None,
    drain: Sequence[str] = (),
    cordon: Sequence[str] = (),
    scale: Mapping[str, int] | None = None,
) -> Result:
    """Schedule the pending pods and the workloads of the inputs on their nodes, and return the result.

    Equal inputs and options have equal results. Ties between equal nodes follow from `seed`. `version` is the version of
    Kubernetes whose behaviour is simulated. `config` is a KubeSchedulerConfiguration or its path; the default has one
    profile. With `explain`, the result says why pods are pending. `expect_pending` has globs over `namespace/name` of pods
    that may stay pending. Without `validate`, unknown and wrong fields are accepted where possible. `timeout_s` limits
    the time of the simulation. Extenders of the configuration are called, but never to bind.

    The other options change the cluster before the first pod is placed. `add_nodes_like` has how many nodes to add, by the
    name of their model, `drain` and `cordon` have names of nodes, and `scale` has numbers of pods by `KIND/NAME` or
    `KIND/NAMESPACE/NAME`. With a change, the input is simulated a second time without it, and `Result.plan` compares both.

    A thread runs the simulation if the caller is in an event loop, such as a notebook; the caller waits for it.
    Raises InputError for manifests that cannot be used, ConfigErrors for a wrong configuration, and PluginLoadError for a
    plugin that cannot be loaded. Raises ValueError for an unknown version, a workload that cannot be scaled, or a number
    that is out of range, and TypeError for a value of another type. The message names the option.
    """
    simulation = _SimulatedCluster(
        inputs,
        seed=seed,
        version=version,
        config=config,
        explain=explain,
        expect_pending=expect_pending,
        validate=validate,
        timeout_s=timeout_s,
        add_nodes_like=add_nodes_like,
        drain=drain,
        cordon=cordon,
        scale=scale,
    )
    return Result(_outside_of_event_loop(simulation.answer))


def nodes_needed(like: str, *inputs: Input, **options: Unpack[Options]) -> NodesNeededAnswer:
    """Return the least number of additional nodes like the node `like` with which every pod of the inputs is placed.

    The options are those of `simulate`, whose changes are in force, too. `nodes` of the answer is None if no number
    suffices. docs/simulate.md describes the search. Cost: about two simulations for each binary digit of the number.
    Raises InputError if the inputs have no node of this name, and whatever `simulate` raises.
    """
    simulation = _SimulatedCluster(inputs, **options)
    return _outside_of_event_loop(lambda: simulation.nodes_needed(like))


class _SimulatedCluster:
    """The inputs, read once, and the options of `simulate`."""

    def __init__(  # noqa: PLR0913 (the options of the command)
        self,
        inputs: Iterable[Input],
        *,
        seed: int = DEFAULT_SEED,
        version: str = DEFAULT_VERSION,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        explain: bool = False,
        expect_pending: Sequence[str] = (),
        validate: bool = True,
        timeout_s: float = 120.0,
        add_nodes_like: Mapping[str, int] | None = None,
        drain: Sequence[str] = (),
        cordon: Sequence[str] = (),
        scale: Mapping[str, int] | None = None,
    ) -> None:
        _check_version(version)
        configuration = _configuration("config", config, version)
        build_profiles(configuration)  # mistakes are raised before anything starts
        self._daemon_for = daemons(lambda _: configuration)
        self._rules = ReadOptions(
            scheduler_names=tuple(profile.scheduler_name for profile in configuration.profiles),
            expect_pending=option_values.texts("expect_pending", expect_pending),
            timeout_s=option_values.seconds("timeout_s", timeout_s),
        )
        self._explain, self._version = option_values.switch("explain", explain), version
        self._seed = option_values.whole("seed", seed)
        sizes = option_values.amounts("scale", scale).items()
        self._changes = Changes(
            option_values.node_counts("add_nodes_like", add_nodes_like),
            option_values.texts("drain", drain),
            option_values.texts("cordon", cordon),
            tuple(
                Scale.of(workload, option_values.integer(f"scale[{workload!r}]", count)) for workload, count in sizes
            ),
        )
        level: Level = "strict" if option_values.switch("validate", validate) else "ignore"
        self._objects = _objects(inputs, level, version)
        _quiet_logs()

    def answer(self) -> Answer:
        """Simulate the changed cluster and, if it is changed, also the cluster as it is."""
        outcome = self._run(self._changes)
        if not self._changes.texts:
            return answer(outcome)
        before = self._run(Changes(), is_brief=True)
        return answer(outcome, difference(self._changes.texts, before, outcome))

    def nodes_needed(self, like: str) -> NodesNeededAnswer:
        """Simulate the changed cluster with more and more nodes."""
        node_named(self._objects, option_values.text("like", like), "nodes_needed")
        return nodes_needed_answer(
            find_nodes_needed(like, lambda added: self._run(self._changes.with_nodes(like, added), is_brief=True))
        )

    def _run(self, changes: Changes, *, is_brief: bool = False) -> Outcome:
        """Simulate with these changes; with `is_brief` without explanations and details."""
        changed_input = changed(self._objects, changes)
        arguments = SimulateArguments(
            files=(),
            output="table" if is_brief else "json",
            rules=self._rules,
            explains=self._explain and not is_brief,
        )
        cluster = complete(changed_input.objects)
        outcome = outcome_of(cluster, self._daemon_for, arguments, version=self._version, seed=self._seed)
        return replace(outcome, abandoned=changed_input.abandoned)


def replay(
    recording: str | os.PathLike[str],
    *configs: str | os.PathLike[str] | Mapping[str, Any] | None,
    scheduler_names: Sequence[str] = (),
    version: str = DEFAULT_VERSION,
    seed: int = DEFAULT_SEED,
    pool_label: str = "",
) -> ReplayAnswer:
    """Replay a recording under one or two configurations as `kubestow replay` does, and return its answer.

    `configs` are KubeSchedulerConfigurations or their paths; without one the default is used. `scheduler_names` are the
    recorded schedulers whose pods are replayed, by default those with the names of the profiles. The answer has the fields of
    docs/replay.schema.json. Raises InputError for a file that cannot be replayed, and otherwise as `simulate`.
    """
    _check_version(version)
    if len(configs) > REPLAYS_MAX:
        raise ValueError(f"configs: at most {REPLAYS_MAX} are compared, got {len(configs)}")
    candidates = []
    for config in configs or (None,):
        configuration = _configuration("configs", config, version)
        build_profiles(configuration)
        name = "" if config is None or isinstance(config, Mapping) else os.fspath(config)
        candidates.append(Candidate.of(configuration, version, name))
    arguments = ReplayArguments(
        option_values.path("recording", recording, "must be a path"),
        candidates,
        option_values.texts("scheduler_names", scheduler_names),
        seed=option_values.whole("seed", seed),
        pool_label=option_values.text("pool_label", pool_label),
    )
    _quiet_logs()
    return _outside_of_event_loop(lambda: replay_of(arguments))


def _check_version(version: str) -> None:
    if version not in VERSIONS:
        raise ValueError(f"version: {version!r} is unknown; expected one of {', '.join(VERSIONS)}")


def _configuration(
    option: str, config: str | os.PathLike[str] | Mapping[str, Any] | None, version: str
) -> Configuration:
    gates = load.gates_on({}, version)
    if config is None:
        return load.default(feature_gates=gates)
    if isinstance(config, Mapping):
        return load.parse(json.dumps(as_json_value(config, option)), source=option, feature_gates=gates)
    return load.load(Path(option_values.path(option, config)), feature_gates=gates)


def _objects(inputs: Iterable[Input], level: Level, version: str) -> list[Found]:
    """Return the objects in the order of the inputs. Raises InputError with the mistakes of all inputs."""
    objects: list[Found] = []
    mistakes: list[str] = []
    checked = [
        each if isinstance(each, Mapping) else option_values.path(f"input {number}", each)
        for number, each in enumerate(inputs, start=1)
    ]
    for is_value, group in itertools.groupby(checked, lambda each: isinstance(each, Mapping)):
        values = list(group)
        try:
            if is_value:
                objects += from_values(values, level=level, version=version)
            else:
                objects += load_files(map(str, values), level=level, version=version).objects
        except InputError as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        raise InputError("\n".join(mistakes))
    return objects


def _quiet_logs() -> None:
    """Log warnings to standard error only. A program that configures structlog keeps its configuration."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # tests may replace and close the stream
        )


def _outside_of_event_loop(call: Callable[[], _T]) -> _T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()
