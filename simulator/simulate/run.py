"""Run a simulation: the in-process API server, its kubelets and controllers, and the real daemon."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.pod_group import KINDS
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.feature_gates import DEFAULT_VERSION
from scheduler.explain import questions
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.explain.what_if import WhatIfRequest
from scheduler.scheduler import Scheduler
from scheduler.server.endpoints import NotReady
from scheduler.server.ui.page import UiPages
from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer, Refused
from simulator.controllers.kubelet import Kubelet
from simulator.simulate.budgets import Budgets
from simulator.simulate.detail import Detail, detail
from simulator.simulate.group_rows import group_rows
from simulator.simulate.input.complete import Completed, controllers, device_controllers
from simulator.simulate.input.manifests import InputError, Manifest
from simulator.simulate.lineage import Lineage
from simulator.simulate.outcome import (
    TIME_IS_OVER,
    AnnotatedPod,
    Outcome,
    Tracker,
    fills,
    full,
    is_expected_pending,
    placement,
    preempted,
    victims,
)
from simulator.simulate.refused_volumes import RefusedVolumes
from simulator.simulate.world import ReadOptions, World
from simulator.workloads.controllers import Dump, WorkloadControllers

T = TypeVar("T")

_POLL_S: Final = 0.01
_QUIET_S: Final = 0.25
"""The scheduler must be idle for this long, so that its last writes have returned to it."""
_STILL_S: Final = 2.0
"""A scheduler that was idle for this long writes no more: the other pods wait for missing objects."""
_EXPLANATIONS_MAX: Final = 20
_EXPLAIN_S: Final = 30.0


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called with the pods that have an answer, the pods without, and the placed pods."""


class _Deadline:
    """The end of a simulation, in its own time and in the user's: virtual time may be slower, or faster."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._ends = [(each, each.now() + timeout_s) for each in (clock, SystemClock())]

    @property
    def is_over(self) -> bool:
        return any(each.now() >= end for each, end in self._ends)


class SimulatedDaemon(Protocol):
    """The part of the scheduler that a simulation needs."""

    scheduler: Scheduler

    async def start(self) -> None: ...
    async def wait(self) -> None: ...
    async def stop(self) -> None: ...
    def at_rest(self, since: float, waiting: int = 0) -> bool: ...
    async def explain(self, pod: str) -> Explanation | None: ...
    async def ui_pages(self) -> UiPages: ...
    async def what_if(self, request: WhatIfRequest) -> WhatIfAnswer: ...


async def simulate(  # noqa: PLR0913 (the parts of one call)
    cluster: Completed,
    daemon_for: Callable[[str, str], SimulatedDaemon],
    rules: ReadOptions,
    *,
    clock: Clock,
    version: str = DEFAULT_VERSION,
    progress: Progress = lambda *_: None,
    explains: bool = False,
    keeps_pages: bool = False,
    question: WhatIfRequest | None = None,
    with_detail: bool = False,
    seed: int | None = None,
) -> Outcome:
    """Run until every pod is bound or refused and the scheduler is idle, or the time is up.

    Uids and random parts of names follow from `seed`.

    `daemon_for` gets the URL of the API server and the token that it requires: no other process can use the server.
    The server is of `version` once the objects of the cluster are loaded: an upgraded server keeps objects that it
    would refuse now.
    With `explains`, the daemon explains pending pods before it stops; then it answers the question. With `keeps_pages`,
    the outcome has the data of the page /ui; `with_detail`, what pods, nodes and pools use. Raises the daemon's errors, and InputError for a question that cannot be
    answered.
    """
    deadline = _Deadline(rules.timeout_s, clock)
    server = ApiServer(clock=clock, rng=random.Random(seed), served=(*LIKE_1_37, *_groups(cluster)))
    server.token = secrets.token_urlsafe()
    async with (
        server,
        Kubelet(server, clock=clock) as kubelet,
        AsyncExitStack() as running,
    ):
        world = World(server, cluster, rules)
        server.upgrade(f"v{version}.0")
        workloads = _workload_controllers(server, world, deadline, clock)
        tracker = _tracker(server, world, clock)
        actors = (workloads, *controllers(server, clock), *device_controllers(server, clock))
        while kubelet.step() + sum(actor.step() for actor in actors):
            pass
        if server.objects("PodDisruptionBudget"):
            Budgets(server, world.given)
        for actor in actors:
            await running.enter_async_context(actor)
        daemon = daemon_for(server.url, server.token)
        refused = RefusedVolumes(server, actors)
        outcome = partial(_outcome, server, world, workloads, tracker=tracker, refused=refused)
        explanations: tuple[Explanation, ...] = ()
        pages: UiPages | None = None
        answer: WhatIfAnswer | None = None
        found: Detail | None = None
        tracker.start()
        try:
            await daemon.start()
            # Without nodes pods are tried forever (docs/spec/core.md §1.7): an answer for each is enough.

            def is_at_rest() -> bool:
                since = tracker.changed_at + _QUIET_S
                return not world.has_nodes or daemon.at_rest(since, refused.pods())

            is_settled = await _settle(daemon, tracker, is_at_rest, deadline, clock=clock, progress=progress)
            if with_detail:
                found = detail(daemon.scheduler, (from_manifest(Pod, each) for each in server.objects("Pod")))
            if explains:
                explanations = await _explained(daemon, outcome(is_settled=is_settled), clock)
            if keeps_pages:
                pages = await _once_ready(daemon.ui_pages, "-o html", clock, rules.timeout_s)
            if question is not None:
                put = partial(daemon.what_if, question)
                answer = await _once_ready(put, "what-if", clock, rules.timeout_s)
        finally:
            await daemon.stop()
        return replace(
            outcome(is_settled=is_settled), explanations=explanations, detail=found, pages=pages, what_if=answer
        )


def _workload_controllers(server: ApiServer, world: World, deadline: _Deadline, clock: Clock) -> WorkloadControllers:
    """Return controllers that create no pod after the deadline: they create all pods of a workload in one step."""

    def admitted(pod: Manifest) -> Manifest:
        if deadline.is_over:
            raise Refused(504, "Timeout", TIME_IS_OVER)
        return world.admit(pod)

    return WorkloadControllers(server, clock=clock, dump=Dump(world.former, world.finished), prepare=admitted)


def _tracker(server: ApiServer, world: World, clock: Clock) -> Tracker:
    """Return a tracker that knows the pods of the server and follows its writes."""
    tracker = Tracker(world.is_ours, clock)
    for pod in server.objects("pods"):
        tracker.heard("ADDED", "pods", pod)
    server.subscribe(tracker.heard)
    return tracker


def _groups(cluster: Completed) -> list[str]:
    """Return the versions of the kinds of groups that the cluster has."""
    kinds = {each.kind for each in cluster.objects}
    return [version for kind, version in zip(KINDS, GROUPS) if kind in kinds]


async def _explained(daemon: SimulatedDaemon, outcome: Outcome, clock: Clock) -> tuple[Explanation, ...]:
    """Explain one pod for each reason and workload, the most frequent reasons first; none after 30 seconds."""
    found: list[Explanation] = []
    deadline = clock.now() + _EXPLAIN_S
    for _, pods in outcome.pending_by_reason():
        for each in {each.owner or each.pod: each for each in reversed(pods)}.values():
            if len(found) == _EXPLANATIONS_MAX or clock.now() > deadline:
                return tuple(found)
            explanation = await daemon.explain(each.pod)
            if explanation is not None:
                found.append(explanation)
    return tuple(found)


async def _once_ready(call: Callable[[], Awaitable[T]], what: str, clock: Clock, timeout_s: float) -> T:
    """Return the daemon's answer. Without nodes a simulation can end before the cache is filled."""
    deadline = clock.now() + timeout_s
    while True:
        try:
            return await call()
        except NotReady as why:
            if clock.now() > deadline:
                raise InputError(f"{what}: {why} (--timeout)") from why
            await clock.sleep(_POLL_S)
        except questions.Refused as refused:
            raise InputError(str(refused)) from refused


async def _settle(
    daemon: SimulatedDaemon,
    tracker: Tracker,
    rests: Callable[[], bool],
    deadline: _Deadline,
    *,
    clock: Clock,
    progress: Progress,
) -> bool:
    """Return whether the scheduler came to rest before the deadline."""
    failed = asyncio.ensure_future(daemon.wait())
    quiet_since: float | None = None
    seen_before = -1
    try:
        while not deadline.is_over:
            progress(tracker.answered, len(tracker.unsettled), tracker.placed)
            if failed.done():
                failed.result()
            if not rests() or tracker.heard_count != seen_before:
                quiet_since, seen_before = None, tracker.heard_count
            elif quiet_since is None:
                quiet_since = clock.now()
            elif clock.now() - quiet_since >= (_STILL_S if tracker.unsettled else _QUIET_S):
                return True
            await clock.sleep(_POLL_S)
        return False
    finally:
        failed.cancel()


def _expected(pods: Sequence[AnnotatedPod], patterns: Sequence[str]) -> frozenset[str]:
    for pattern in patterns:
        if not any(is_expected_pending(pod, [pattern]) for pod in pods):
            raise InputError(f"--expect-pending: no pod {full(pattern)} is to be scheduled")
    return frozenset(pod.key for pod in pods if is_expected_pending(pod, patterns))


def _outcome(
    server: ApiServer,
    world: World,
    workloads: WorkloadControllers,
    *,
    tracker: Tracker,
    refused: RefusedVolumes,
    is_settled: bool,
) -> Outcome:
    """Return the outcome. Pods that their controllers deleted again, as in a rollout, are no part of it."""
    raw = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in server.objects("Pod")}
    pods = {key: from_manifest(Pod, each) for key, each in raw.items()}
    nodes = [from_manifest(Node, each) for each in server.objects("Node")]
    gone = {pod.key: pod for pod in (from_manifest(Pod, each) for each in tracker.preempted.values())}
    lineage = Lineage(server, world.positions)
    last = {key: raw.get(key) or tracker.preempted_by_key[key] for key in tracker.ours if key in raw or key in gone}
    ours = sorted(last, key=lambda key: lineage.order(last[key]))
    expected = _expected([from_manifest(AnnotatedPod, last[key]) for key in ours], world.expect_pending)
    return Outcome(
        placements=tuple(
            placement(
                pods[key],
                is_expected_pending=key in expected,
                missing=world.missing_of(last[key]),
                waits=refused.of(pods[key]),
            )
            if key in pods
            else preempted(gone[key], gone[key].spec.node_name, is_expected_pending=key in expected)
            for key in ours
        ),
        fills=fills(nodes, pods.values()),
        timing=tracker.timing(),
        nodes=len(nodes),
        bound_before=world.bound_before,
        left_alone=sum(1 for key, pod in pods.items() if not pod.spec.node_name and key not in last),
        left_out=dict(world.left_out),
        missing=world.missing,
        is_settled=is_settled,
        victims=victims(gone.values(), _preemptors(server), ours, pods),
        workloads=lineage.rows(workloads.tallies, existing=world.existing, leaving=world.leaving),
        groups=group_rows(server, pods.values(), tracker.ours, world.positions),
        bound={key: pod.spec.node_name for key, pod in pods.items() if pod.spec.node_name and not pod.is_terminal},
    )


def _preemptors(server: ApiServer) -> dict[str, str]:
    """Return uid of the victim → namespace/name of its preemptor, by the scheduler's events."""
    found = {}
    for event in server.objects("Event"):
        related = event.get("related") or {}
        if event.get("reason") == "Preempted" and related:
            found[event["regarding"]["uid"]] = f"{related['namespace']}/{related['name']}"
    return found
