"""Changes of the cache and placements of pods that are in force together, and are taken back or repeated.

A plan of two pods: the first attempt finds node a, assumes the pod there and reserves its volumes and devices. The second
attempt sees all that, because it reads the same cache. If it finds no node, both are undone, the last one first, and no
waiting pod is woken by what the plan has held for a moment.

Between two attempts a plan may be suspended, so that other pods are tried on the cache as it is without the plan, and
resumed. It repeats its changes without a search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, claim_keys
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.cache.nodes.nodes import NodeView
from scheduler.core.cooperative import Work
from scheduler.cycle import Scheduled

Undo: TypeAlias = Callable[[], None]


class NotApplicable(Exception):
    """A change cannot be applied to the objects in the cache; the text says which one."""


class Changed(NotApplicable):
    """A change or a placement cannot be repeated, because the cluster has changed."""


class Plan:
    """Changes of the cache in order. Only the scheduling loop's task uses it.

    Changes go straight to the columns and stores: no waiting pod is woken and no version that bindings compare is raised.
    All news that the cache has for waiting pods until they are taken back is withdrawn. Until then the cluster `is_planning`, so that
    plugins write nothing when a placement is taken back. One plan is in force at a time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._apply: list[Callable[[], Undo]] = []
        self._undo: list[Undo] = []
        self._withdraw: Undo | None = None
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._apply)

    def begin(self) -> None:
        """Let the plan be in force, and withdraw the news for waiting pods from now on when all is taken back. Idempotent."""
        if self._withdraw is None:
            self._withdraw = self._cluster.silenced()
            self._cluster.is_planning = True

    def add(self, apply: Callable[[], Undo]) -> None:
        """Begin, and apply a change. `apply` returns its undo, and may raise NotApplicable; then nothing is added."""
        self.begin()
        self._undo.append(apply())
        self._apply.append(apply)

    def drop(self, count: int) -> None:
        """Take back the changes after the first `count`, for good."""
        while len(self._undo) > count:
            self._undo.pop()()
            self._has_dropped = True
        del self._apply[count:]

    def dropping(self, count: int) -> Work[None]:
        """As `drop`, with a pause after each change: thousands of placements would hold the event loop."""
        while len(self._undo) > count:
            self._undo.pop()()
            self._apply.pop()
            self._has_dropped = True
            yield

    def end(self) -> None:
        """Take back all changes for good. Idempotent."""
        self.suspend()
        self._apply.clear()

    def keep(self) -> Work[None]:
        """Leave the changes in force for good, as if nothing else had been tried before. Raises Changed.

        Closed before its end, it leaves some of them in force, and `end` takes these back.
        """
        if self._has_dropped:  # what was given back by a change that was dropped is no news
            while self._undo:
                self._undo.pop()()
                yield
            self.suspend()
            self.begin()
            for apply in self._apply:
                self._undo.append(_repeated(apply))
                yield
        self._apply.clear()
        self._undo.clear()
        self._withdraw = None
        self._cluster.is_planning = False

    def suspend(self) -> None:
        """Take back all changes, last one first, and withdraw the news of them."""
        with self._cluster.devices.use.at_once():
            while self._undo:
                self._undo.pop()()
        if self._withdraw is not None:
            self._withdraw()
            self._withdraw = None
            self._cluster.is_planning = False

    def resume(self) -> None:
        """Repeat all changes. Raises Changed; the changes before that one stay in force until `end`."""
        self.begin()
        with self._cluster.devices.use.at_once():
            for apply in self._apply:
                self._undo.append(_repeated(apply))

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Take back all changes until the block ends, and then repeat them; not after an error. Raises Changed."""
        self.suspend()
        yield
        self.resume()


def _repeated(apply: Callable[[], Undo]) -> Undo:
    try:
        return apply()
    except (NotApplicable, AssumptionError) as error:
        raise Changed(str(error)) from error


class Placement:
    """The placement of one pod, in force when it is made: assumes and reserves it again after it was taken back."""

    def __init__(self, cluster: Cluster, outcome: Scheduled) -> None:
        self._cluster = cluster
        self._outcome = outcome
        self._is_held = True

    @property
    def node(self) -> str:
        return self._outcome.assumed.node_name

    def __call__(self) -> Undo:
        """Return the undo. Raises NotApplicable if the pod does not fit there any more, or AssumptionError."""
        outcome, cluster = self._outcome, self._cluster
        if not self._is_held:
            assumed = outcome.assumed
            cluster.assume(assumed)
            for plugin in outcome.runner.profile.reserve:
                rejection = plugin.reserve(outcome.state, assumed, assumed.node_name)
                if rejection is not None:
                    self.undo()
                    raise NotApplicable(rejection.message)
            if self._is_overfull():
                self.undo()
                raise NotApplicable(f"node {assumed.node_name} is full")
            self._is_held = True
        return self.undo

    def undo(self) -> None:
        """Take the placement back."""
        self._is_held = False
        self._outcome.runner.unreserve(self._outcome.state, self._outcome.assumed)
        self._cluster.forget(self._outcome.assumed)

    def _is_overfull(self) -> bool:
        """Return whether the node lacks a resource that the pod requests. No filter runs when a placement is repeated."""
        assumed, nodes = self._outcome.assumed, self._cluster.nodes
        slot = nodes.present_slot(assumed.node_name)
        if slot is None:
            return True
        wanted = ("pods", *(resource for resource, amount in assumed.requests.items() if amount))
        return any(NodeView(nodes, slot).free(resource) < 0 for resource in wanted)


class Departure:
    """The end of one pod on its node: it takes its devices along, as far as no other pod has reserved them."""

    def __init__(self, cluster: Cluster, pod: PodInfo) -> None:
        self._cluster = cluster
        self._pod = pod
        self._held: list[tuple[str, AllocationResult]] = []

    def __call__(self) -> Undo:
        """Remove the pod, and return the undo. Raises NotApplicable if it is not there."""
        taken = self._cluster.nodes.remove_pod(self._pod.node_name, self._pod.uid)
        if taken is None:
            raise NotApplicable(f"pod {self._pod.key} is on no node")
        self._pod, self._held = taken, self._devices_alone(taken)
        for uid, _ in self._held:
            self._cluster.devices.use.hold(uid, None)
        return self._undo

    def _undo(self) -> None:
        self._cluster.nodes.add_pod(self._pod.node_name, self._pod)
        for uid, allocation in self._held:
            self._cluster.devices.use.hold(uid, allocation)

    def _devices_alone(self, info: PodInfo) -> list[tuple[str, AllocationResult]]:
        """Return the allocations that become free with the pod: of claims that no other pod has reserved."""
        found = []
        for key in claim_keys(info.pod):
            claim = self._cluster.devices.claims.get(key)
            allocation = self._cluster.devices.use.held(claim.uid) if claim is not None else None
            if claim is not None and allocation is not None and len(claim.status.reserved_for) <= 1:
                found.append((claim.uid, allocation))
        return found
