"""Pods on nodes: everybody's bound pods, our own assumed ones, and overlays that undo themselves.

The laws of docs/spec/core.md §2.1 and §2.2. An assumption never expires by time: the pod's own events, a failed binding,
or its deletion end it. Where upstream exits ("cache is corrupted") this heals: the newest object wins, and it is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from scheduler.cache.devices import Devices
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.foreignbindings import ForeignBindings
from scheduler.cache.namespaces import Namespaces
from scheduler.cache.nodes import Nodes
from scheduler.cache.podterms import TermKind, has_pod_affinity
from scheduler.cache.trial import Trial
from scheduler.cache.volumes import Volumes
from scheduler.cache.workloads import Workloads
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.decode import Broken
from scheduler.core.devicegates import DEVICE_GATES_ON
from scheduler.core.node import Node
from scheduler.core.podinfo import PodInfo


class AssumptionError(Exception):
    """The caller's picture of a pod is wrong: it is already in the cache, or not assumed there."""


@dataclass(slots=True)
class _Held:
    info: PodInfo
    is_assumed: bool


class Cluster:
    """The cache of nodes and pods. Plain calls, no locks: the scheduling loop is the only writer."""

    def __init__(self, clock: Clock | None = None, device_gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        """`device_gates` are kube-scheduler's feature gates for devices that are on; others among them do not matter."""
        self._clock = clock or SystemClock()
        self.nodes = Nodes()
        self.volumes = Volumes(self.nodes, self._clock)
        self.devices = Devices(self.nodes, device_gates)
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
