"""The simulation itself: the in-process API server, its kubelets and controllers, and the real daemon on top."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.core.clock import Clock
from scheduler.testing.apiserver import ApiServer, Refused
from scheduler.testing.controllers.kubelet import Kubelet
from scheduler.testing.simulate.budgets import Budgets
from scheduler.testing.simulate.complete import controllers, device_controllers, retie, retie_claims
from scheduler.testing.simulate.manifests import Found, InputError, Manifest
from scheduler.testing.simulate.outcome import (
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

DEFAULT_SCHEDULER: Final = "default-scheduler"
_POLL_S: Final = 0.01
_QUIET_S: Final = 0.25
"""So long must the scheduler have nothing to do: what it wrote last has then come back to it."""
_NEVER: Final = ("Event", "Lease")
"""Kinds that a dump may have and that mean nothing here."""
_ORDER: Final = ("Namespace", "PriorityClass", "StorageClass", "Node")


Progress: TypeAlias = Callable[[int, int, int], None]
"""Told how many pods have their answer, how many have not, and how many of the former are placed."""


class SimulatedDaemon(Protocol):
    """What a simulation needs of the scheduler."""

    async def start(self) -> None: ...
    async def wait(self) -> None: ...
    async def stop(self) -> None: ...
    def idle(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the input is read. The first of `scheduler_names` is given to pods that name the default scheduler or none."""

    scheduler_names: tuple[str, ...]
    keeps_scheduler_names: bool = False
    expect_pending: tuple[str, ...] = ()
    timeout_s: float = 120.0


class World:
    """The simulated cluster, filled from manifests. Raises InputError for what the API server refuses."""

    def __init__(self, server: ApiServer, objects: Sequence[Found], rules: ReadOptions) -> None:
        self._server = server
        self._rules = rules
        self._served = dict.fromkeys(_NEVER, False)
        self.has_nodes = any(each.kind == "Node" for each in objects)
        self.ours: list[str] = []
        """Pods to be scheduled, in the order of the input."""
        self.bound_before = 0
        self.left_alone = 0
        self.left_out: Counter[str] = Counter()
        """Objects by kind that scheduling does not look at."""
        rank = {kind: at for at, kind in enumerate(_ORDER)}
        first = [each for each in objects if each.kind in rank]
        for each in sorted(first, key=lambda each: rank[each.kind]):
            self._create(each, each.value)
        for each in objects:
            if each.kind not in rank and each.kind != "Pod":
                self._create(each, each.value)
        pods = [each for each in objects if each.kind == "Pod"]
        for each in sorted(pods, key=lambda each: not each.value["spec"].get("nodeName")):
            self._create(each, self._pod(each))
        retie(server)
        retie_claims(server)
        if self._served.get("PodDisruptionBudget"):
            budgets = [each for each in objects if each.kind == "PodDisruptionBudget" and each.value.get("status")]
            Budgets(server, {f"{each.namespace}/{each.name}" for each in budgets})

    def _pod(self, found: Found) -> Manifest:
        spec = dict(found.value["spec"])
        name, rules = spec.get("schedulerName") or DEFAULT_SCHEDULER, self._rules
        if name == DEFAULT_SCHEDULER and name not in rules.scheduler_names and not rules.keeps_scheduler_names:
            name = spec["schedulerName"] = rules.scheduler_names[0]
        if spec.get("nodeName"):
            self.bound_before += 1
        elif name in rules.scheduler_names:
            self.ours.append(f"{found.namespace}/{found.name}")
        else:
            self.left_alone += 1
        return {**found.value, "spec": spec}

    def _create(self, found: Found, value: Manifest) -> None:
        if found.kind == "Namespace" and any(
            found.name == each["metadata"]["name"] for each in self._server.objects("Namespace")
        ):
            return  # every cluster has this one
        if found.kind == "ConfigMap" or not self._serves(found.kind):  # served for who signs client certificates alone
            self.left_out[found.kind] += 1
            return
        try:
            if found.namespace:
                self._server.ensure_namespace(found.namespace)
            if found.kind in {"Node", "Pod"}:
                self._server.create(found.kind, value)
                self._runs_since(found, value)
            else:
                self._server.apply(value)  # with the status that a dump has
        except Refused as refused:
            raise InputError(f"{found.where}: {refused.message}") from refused

    def _runs_since(self, found: Found, value: Manifest) -> None:
        """The time at which a bound pod of a dump was started; kubelets start the others now."""
        if found.kind == "Pod" and value.get("status"):
            status = {"phase": "Running", **value["status"]}
            patch = {"status": status}
            self._server.patch("Pod", found.name, patch, namespace=found.namespace, subresource="status")

    def _serves(self, kind: str) -> bool:
        if kind not in self._served:
            try:
                self._server.objects(kind)
            except KeyError:
                self._served[kind] = False
            else:
                self._served[kind] = True
        return self._served[kind]


async def simulate(
    objects: Sequence[Found],
    daemon_for: Callable[[str], SimulatedDaemon],
    rules: ReadOptions,
    *,
    clock: Clock,
    progress: Progress = lambda *_: None,
) -> Outcome:
    """Run until every pod is bound or refused and the scheduler rests, or the time is up. Raises what the daemon raises."""
    async with ApiServer(clock=clock) as server, Kubelet(server, clock=clock), AsyncExitStack() as running:
        world = World(server, objects, rules)
        for actor in (*controllers(server, clock), *device_controllers(server, clock)):
            await running.enter_async_context(actor)
        expected = _expected(server, world.ours, rules.expect_pending)
        tracker = Tracker(world.ours, clock)
        for key in world.ours:
            tracker.heard("ADDED", "pods", _pod(server, key))
        server.subscribe(tracker.heard)
        daemon = daemon_for(server.url)
        tracker.start()
        try:
            await daemon.start()
            # Without a node pods are tried for ever (docs/spec/core.md §1.7): then each having its answer is enough.
            rests = daemon.idle if world.has_nodes else lambda: True
            is_settled = await _settle(
                daemon, tracker, rests, timeout_s=rules.timeout_s, clock=clock, progress=progress
            )
        finally:
            await daemon.stop()
        return _outcome(server, world, expected, tracker=tracker, is_settled=is_settled)


async def _settle(
    daemon: SimulatedDaemon,
    tracker: Tracker,
    rests: Callable[[], bool],
    *,
    timeout_s: float,
    clock: Clock,
    progress: Progress,
) -> bool:
    failed = asyncio.ensure_future(daemon.wait())
    deadline = clock.now() + timeout_s
    quiet_since: float | None = None
    try:
        while clock.now() < deadline:
            progress(tracker.answered, len(tracker.unsettled), tracker.placed)
            if failed.done():
                failed.result()
            if tracker.unsettled or not rests():
                quiet_since = None
            elif quiet_since is None:
                quiet_since = clock.now()
            elif clock.now() - quiet_since >= _QUIET_S:
                return True
            await clock.sleep(_POLL_S)
        return False
    finally:
        failed.cancel()


def _pod(server: ApiServer, key: str) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    return server.get("Pod", name, namespace)


def _expected(server: ApiServer, ours: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    pods = [from_manifest(AnnotatedPod, _pod(server, key)) for key in ours]
    for pattern in patterns:
        if not any(is_expected_pending(pod, [pattern]) for pod in pods):
            raise InputError(f"--expect-pending: no pod {full(pattern)} is to be scheduled")
    return frozenset(pod.key for pod in pods if is_expected_pending(pod, patterns))


def _outcome(
    server: ApiServer, world: World, expected: frozenset[str], *, tracker: Tracker, is_settled: bool
) -> Outcome:
    pods = {pod.key: pod for pod in (from_manifest(Pod, each) for each in server.objects("Pod"))}
    nodes = [from_manifest(Node, each) for each in server.objects("Node")]
    gone = {pod.key: pod for pod in (from_manifest(Pod, each) for each in tracker.preempted.values())}
    return Outcome(
        placements=tuple(
            placement(pods[key], is_expected_pending=key in expected)
            if key in pods
            else preempted(gone[key], gone[key].spec.node_name, is_expected_pending=key in expected)
            for key in world.ours
        ),
        fills=fills(nodes, pods.values()),
        timing=tracker.timing(),
        nodes=len(nodes),
        bound_before=world.bound_before,
        left_alone=world.left_alone,
        left_out=dict(world.left_out),
        is_settled=is_settled,
        victims=victims(gone.values(), _preemptors(server), [*world.ours], pods),
    )


def _preemptors(server: ApiServer) -> dict[str, str]:
    """Uid of the victim → namespace/name of the pod it went for, as the scheduler's events say."""
    found = {}
    for event in server.objects("Event"):
        related = event.get("related") or {}
        if event.get("reason") == "Preempted" and related:
            found[event["regarding"]["uid"]] = f"{related['namespace']}/{related['name']}"
    return found
