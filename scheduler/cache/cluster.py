"""Pods on nodes: bound pods, assumed pods, pods bound by other schedulers a moment ago, and trials that undo themselves.

Nodes to which another scheduler bound a pod a moment ago (docs/spec/core.md §2.6).

That scheduler may have decided on more pods for such a node than the watch shows yet.

Pods on nodes: everybody's bound pods, our own assumed ones, and overlays that undo themselves.

The laws of docs/spec/core.md §2.1 and §2.2. An assumption never expires by time: the pod's own events, a failed binding,
or its deletion end it. Where upstream exits ("cache is corrupted") this heals: the newest object wins, and it is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node
from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pods.affinity_terms import TermKind, has_pod_affinity
from scheduler.cache.storage.volumes import Volumes
from scheduler.cache.workloads import Namespaces, Workloads
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.core.nodeset import Slots


class Trial:
    """Made by `Cluster.trial`. Each step costs as much as the pod's coming or going does; nothing is copied.

    A node lists its pods in another order afterwards: those that left come back behind those that stayed, the last to
    leave first. Nothing may hang on that order.
    """

    __slots__ = ("_nodes", "_steps")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._steps: list[tuple[PodInfo, str, bool]] = []

    def add(self, info: PodInfo, node_name: str) -> None:
        """As if it were on that node; nothing happens if it is there."""
        slot = self._nodes.slot(node_name)
        if slot is None or info.uid not in self._nodes.pods(slot):
            self._nodes.add_pod(node_name, info)
            self._steps.append((info, node_name, True))

    def remove(self, info: PodInfo) -> None:
        """As if it had left `info.node_name`; nothing happens if it is not there."""
        taken = self._nodes.remove_pod(info.node_name, info.uid)
        if taken is not None:
            self._steps.append((taken, info.node_name, False))

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Everything as it was until the block ends, in which nobody may change anything: then the trial goes on."""
        steps = self._steps.copy()
        self.undo()
        try:
            yield
        finally:
            for info, node_name, came in steps:
                if came:
                    self.add(info, node_name)
                else:
                    self.remove(info)

    def undo(self) -> None:
        """Everything as it was."""
        while self._steps:
            info, node_name, came = self._steps.pop()
            if came:
                self._nodes.remove_pod(node_name, info.uid)
            else:
                self._nodes.add_pod(node_name, info)


RECENT_S: Final = 1.0


class ForeignBindings:
    """The time of the last one per slot. A slot that is given to another node keeps it for the rest of its second."""

    def __init__(self) -> None:
        self._at: npt.NDArray[np.float64] = np.full(64, -math.inf)
        self._last = -math.inf

    def add(self, slot: int, now: float) -> None:
        """A pod that this scheduler did not bind has appeared on the node. O(1)."""
        if slot >= len(self._at):
            more = np.full(max(slot + 1, 2 * len(self._at)) - len(self._at), -math.inf)
            self._at = np.concatenate((self._at, more))
        self._at[slot] = self._last = now

    def spared(self, slots: Slots, now: float) -> Slots:
        """Return those without a recent one, or all of them where there are none without. O(slots), or O(1) at rest."""
        since = now - RECENT_S
        if self._last <= since:
            return slots
        inside = slots[slots < len(self._at)]
        spared = np.concatenate((inside[self._at[inside] <= since], slots[slots >= len(self._at)]))
        return spared if len(spared) else slots


class AssumptionError(Exception):
    """The caller's picture of a pod is wrong: it is already in the cache, or not assumed there."""


@dataclass(slots=True)
class _Held:
    info: PodInfo
    is_assumed: bool


class Cluster:
    """The cache of nodes and pods. Plain calls, no locks: the scheduling loop is the only writer.

    Upstream: pkg/scheduler/backend/cache/cache.go cacheImpl
    """

    def __init__(self, clock: Clock | None = None, device_gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        """`device_gates` are kube-scheduler's feature gates for devices that are on; others among them do not matter."""
        self._clock = clock or SystemClock()
        self.nodes = Nodes()
        self.volumes = Volumes(self.nodes, self._clock)
        self.devices = SharedDRAManager(self.nodes, device_gates)
        self.namespaces = Namespaces()
        self.workloads = Workloads()
        self.disruptions = Disruptions()
        self.foreign_bindings = ForeignBindings()
        self.healed = 0
        """Times an event contradicted the cache and the cache was put right."""
        self._versions: dict[str, int] = {}
        self._last_version = 0
        self._pods: dict[str, _Held] = {}
        self._assumed: set[str] = set()
        self._answered: dict[str, float] = {}
        """Assumed pods that the API server has bound, and when it said so: the watch has yet to show them. Oldest first."""
        self._broken: dict[str, Broken] = {}

    # -- nodes -----------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """A node was added or changed."""
        self._disturb(node.metadata.name)
        self.nodes.set_node(node)

    def remove_node(self, name: str) -> None:
        """A node is gone (or became unreadable); pods on it stay counted until their own deletions arrive."""
        self._disturb(name)
        self.nodes.remove_node(name)
        self._tidy(name)

    def version(self, name: str) -> int:
        """Changes when anybody but our own assumptions changed the node: what was decided may no longer hold."""
        return self._versions.get(name, 0)

    def outlook(self, info: PodInfo) -> int:
        """Changes when anybody else changed what a decision for this pod and its node rests on.

        That is the node; and the whole cluster where pods elsewhere matter, to spread constraints and pod affinity.
        """
        rules = info.spread_shape or has_pod_affinity(info.pod.spec.affinity)
        if rules or self.nodes.pod_terms.any(TermKind.REQUIRED_ANTI):
            return self._last_version
        return self.version(info.node_name)

    # -- pods as the API server has them -----------------------------------------------------------------------------

    def add_pod(self, info: PodInfo) -> None:
        """A bound pod was seen: confirms our assumption, or corrects it when the real node differs."""
        held = self._pods.get(info.uid)
        if held is None:
            self._disturb(info.node_name)
            self._place(info, is_assumed=False)
            return
        self._confirmed(info.uid)
        if not held.is_assumed:
            self.healed += held.info.node_name != info.node_name
        self._replace(held, info)

    def update_pod(self, info: PodInfo) -> None:
        """A bound pod changed. Unknown or moved pods are put right."""
        held = self._pods.get(info.uid)
        if held is None or (held.is_assumed and held.info.node_name != info.node_name):
            self.healed += 1
        self.add_pod(info)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """A pod is gone or finished: frees the place of the *cached* copy, which is returned."""
        held = self._pods.pop(uid, None)
        if held is None:
            return None
        self._confirmed(uid)
        self.nodes.remove_pod(held.info.node_name, uid)
        self._tidy(held.info.node_name)
        return held.info

    def add_broken(self, broken: Broken) -> None:
        """A bound pod of which nothing can be read: it is there (`is_broken`), but nothing is counted for it."""
        if broken.node_name:
            self._broken[broken.metadata.uid or broken.key] = broken

    def remove_broken(self, uid: str) -> None:
        """The unreadable pod is gone or readable now."""
        self._broken.pop(uid, None)

    # -- our own assumptions -----------------------------------------------------------------------------------------

    def assume(self, info: PodInfo) -> None:
        """Count a pod (its nodeName set by `placed`) before the API server knows. Raises AssumptionError if known."""
        if info.uid in self._pods:
            raise AssumptionError(f"pod {info.key} ({info.uid}) is in the cache, so can't be assumed")
        self._place(info, is_assumed=True)
        self._assumed.add(info.uid)

    def forget(self, info: PodInfo) -> None:
        """Undo `assume`. Raises AssumptionError if the pod is not assumed on that node (state unchanged)."""
        held = self._pods.get(info.uid)
        if held is None or not held.is_assumed or held.info.node_name != info.node_name:
            raise AssumptionError(f"pod {info.key} ({info.uid}) wasn't assumed so cannot be forgotten")
        self.remove_pod(info.uid)

    def name_claims(self, info: PodInfo) -> None:
        """An assumed pod's status names other claims for devices by now: what was decided for it may no longer hold."""
        held = self._pods.get(info.uid)
        if held is None or not held.is_assumed:
            return
        old = held.info
        status = msgspec.structs.replace(
            old.pod.status, resource_claim_statuses=info.pod.status.resource_claim_statuses
        )
        held.info = dataclasses.replace(old, pod=msgspec.structs.replace(old.pod, status=status))
        self._disturb(old.node_name)
        self.nodes.replace_pod(old.node_name, held.info)

    def answered(self, uid: str) -> None:
        """The API server has bound the pod: from now on the watch should show it."""
        if uid in self._assumed:
            self._answered[uid] = self._clock.now()

    def unconfirmed_s(self) -> float:
        """How long the watch has owed us a pod that is bound, the longest; 0 if it owes none. Constant cost."""
        since = next(iter(self._answered.values()), None)
        return 0.0 if since is None else self._clock.now() - since

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod counts only because we said so."""
        return uid in self._assumed

    def get(self, uid: str) -> PodInfo | None:
        """The cached copy: bound or assumed."""
        held = self._pods.get(uid)
        return held.info if held else None

    # -- overlays ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def trial(self, *, add: Iterable[tuple[PodInfo, str]] = (), remove: Iterable[PodInfo] = ()) -> Iterator[Trial]:
        """Columns and indexes as if these pods came (to a node) and left; leaving the block undoes it, in reverse.

        Cost grows with the pods named, never with the cluster. Unknown pods in `remove` are skipped, and so are
        pods in `add` that are on that node already. More may come and leave through the `Trial`.
        """
        trial = Trial(self.nodes)
        try:
            for info in remove:
                trial.remove(info)
            for info, node_name in add:
                trial.add(info, node_name)
            yield trial
        finally:
            trial.undo()

    # -- counting ----------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """For scheduler_cache_size: nodes, pods, assumed_pods."""
        return {"nodes": len(self.nodes), "pods": len(self._pods), "assumed_pods": len(self._assumed)}

    def pods(self) -> Iterator[PodInfo]:
        """Every pod in the cache, assumed ones included, in no order."""
        return (held.info for held in self._pods.values())

    def assumed(self) -> Iterator[PodInfo]:
        """Pods we assumed and the watch has not confirmed."""
        return (self._pods[uid].info for uid in self._assumed)

    def is_broken(self, uid: str) -> bool:
        """Whether this is a bound pod that could not be read: it is there, though `get` does not know it."""
        return uid in self._broken

    def broken(self) -> Iterator[Broken]:
        """Bound pods that could not be read."""
        return iter(self._broken.values())

    def _confirmed(self, uid: str) -> None:
        self._assumed.discard(uid)
        self._answered.pop(uid, None)

    def _place(self, info: PodInfo, *, is_assumed: bool) -> None:
        self._pods[info.uid] = _Held(info, is_assumed)
        self.nodes.add_pod(info.node_name, info)

    def _replace(self, held: _Held, info: PodInfo) -> None:
        old = held.info
        held.info, held.is_assumed = info, False
        if old.node_name == info.node_name and self.nodes.replace_pod(info.node_name, info):
            return
        self._disturb(info.node_name)
        self.nodes.remove_pod(old.node_name, info.uid)
        self.nodes.add_pod(info.node_name, info)

    def _tidy(self, name: str) -> None:
        if self.nodes.slot(name) is None:
            self._versions.pop(name, None)

    def _disturb(self, name: str) -> None:
        self._last_version += 1
        self._versions[name] = self._last_version
