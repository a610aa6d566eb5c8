"""Pods on nodes: bound pods, assumed pods, and trials that undo themselves.

The invariants are those of docs/spec/core.md §2.1 and §2.2. An assumption never expires by time: the pod's own
events, a failed binding, or the pod's deletion end it. Where upstream exits ("cache is corrupted"), this cache
corrects itself: the newest object wins, and the correction is counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from scheduler.api.core_v1 import Node
from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.nodes.contested import ForeignBindings
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pod_groups import PodGroups
from scheduler.cache.pods import TermKind, has_pod_affinity
from scheduler.cache.storage.volumes import Volumes
from scheduler.cache.workloads import Namespaces, Workloads
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.feature_gates import DEVICE_GATES_ON


class Trial:
    """Temporary changes of the cache, made by `Cluster.trial`. Each step costs as much as adding or removing a pod.

    Afterwards, a node may list its pods in another order: the removed pods come after the other ones, the last
    removed first. Nothing may depend on that order.
    """

    __slots__ = ("_nodes", "_steps")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._steps: list[tuple[PodInfo, str, bool]] = []

    def add(self, info: PodInfo, node_name: str) -> None:
        """Add the pod to the node; do nothing if it is there."""
        slot = self._nodes.slot(node_name)
        if slot is None or info.uid not in self._nodes.pods(slot):
            self._nodes.add_pod(node_name, info)
            self._steps.append((info, node_name, True))

    def remove(self, info: PodInfo) -> None:
        """Remove the pod from `info.node_name`; do nothing if it is not there."""
        taken = self._nodes.remove_pod(info.node_name, info.uid)
        if taken is not None:
            self._steps.append((taken, info.node_name, False))

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the cache until the block ends, and then apply the trial again. The block must not change the cache."""
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
        """Restore the cache."""
        while self._steps:
            info, node_name, came = self._steps.pop()
            if came:
                self._nodes.remove_pod(node_name, info.uid)
            else:
                self._nodes.add_pod(node_name, info)


class AssumptionError(Exception):
    """The caller's state of a pod is wrong: the pod is already in the cache, or not assumed there."""


class Cluster:
    """The cache of nodes and pods. It has no locks, because only the scheduling loop changes it.

    Upstream: pkg/scheduler/backend/cache/cache.go cacheImpl
    """

    def __init__(self, clock: Clock | None = None, device_gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        """Create an empty cache; of the enabled feature gates in `device_gates`, only those for devices are read."""
        self._clock = clock or SystemClock()
        self.nodes = Nodes()
        self.volumes = Volumes(self.nodes, self._clock)
        self.devices = SharedDRAManager(self.nodes, device_gates)
        self.namespaces = Namespaces()
        self.workloads = Workloads()
        self.disruptions = Disruptions()
        self.pod_groups = PodGroups()
        self.foreign_bindings = ForeignBindings()
        self.is_planning = False
        """Whether some assumptions are those of a plan, and may be taken back. `Plan` sets it."""
        self.healed = 0
        """The number of events that contradicted the cache, which was then corrected."""
        self._versions: dict[str, int] = {}
        self._last_version = 0
        self._pods: dict[str, PodInfo] = {}
        self._assumed: set[str] = set()
        self._answered: dict[str, float] = {}
        """Assumed pods that the API server has bound but the watch has not shown, with the time of the response.

        Oldest first.
        """
        self._broken: dict[str, Broken] = {}

    # -- nodes -----------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or update a node."""
        self._disturb(node.metadata.name)
        self.nodes.set_node(node)

    def remove_node(self, name: str) -> None:
        """Remove a node that is gone or unreadable. Its pods stay counted until their own deletions arrive."""
        self._disturb(name)
        self.nodes.remove_node(name)
        self._tidy(name)

    def version(self, name: str) -> int:
        """Return a number that changes with every change of the node except this scheduler's own assumptions.

        A decision for the node may be outdated when the number differs.
        """
        return self._versions.get(name, 0)

    def decision_version(self, info: PodInfo) -> int:
        """Return a number that changes when a decision for this pod and its node may be outdated.

        That is the version of the node. It is the version of the whole cluster where pods on other nodes matter, for
        spread constraints and pod affinity.
        """
        rules = info.spread_shape or has_pod_affinity(info.pod.spec.affinity)
        if rules or self.nodes.pod_terms.any(TermKind.REQUIRED_ANTI):
            return self._last_version
        return self.version(info.node_name)

    # -- pods as the API server has them -----------------------------------------------------------------------------

    def add_pod(self, info: PodInfo) -> None:
        """Add a bound pod: it confirms the assumption, or corrects it if the real node differs."""
        held = self._pods.get(info.uid)
        if held is None:
            self._disturb(info.node_name)
            self._place(info)
            return
        if info.uid not in self._assumed:
            self.healed += held.node_name != info.node_name
        self._confirmed(info.uid)
        self._replace(held, info)

    def update_pod(self, info: PodInfo) -> None:
        """Update a bound pod. If it was unknown or on another node, the cache is corrected."""
        held = self._pods.get(info.uid)
        if held is None or (info.uid in self._assumed and held.node_name != info.node_name):
            self.healed += 1
        self.add_pod(info)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a deleted or finished pod from the node of the *cached* copy, and return that copy."""
        held = self._pods.pop(uid, None)
        if held is None:
            return None
        self._confirmed(uid)
        self.nodes.remove_pod(held.node_name, uid)
        self._tidy(held.node_name)
        return held

    def add_broken(self, broken: Broken) -> None:
        """Record a bound pod that cannot be decoded: it exists (`is_broken`), but nothing is counted for it."""
        if broken.node_name:
            self._broken[broken.metadata.uid or broken.key] = broken

    def remove_broken(self, uid: str) -> None:
        """Remove the record of a pod that is gone or can be decoded now."""
        self._broken.pop(uid, None)

    # -- our own assumptions -----------------------------------------------------------------------------------------

    def assume(self, info: PodInfo) -> None:
        """Count a pod, with its nodeName set by `placed`, before it is bound. Raise AssumptionError if it is known."""
        if info.uid in self._pods:
            raise AssumptionError(f"pod {info.key} ({info.uid}) is in the cache, so can't be assumed")
        self._place(info)
        self._assumed.add(info.uid)

    def forget(self, info: PodInfo) -> None:
        """Undo `assume`. Raise AssumptionError, without a change, if the pod is not assumed on that node."""
        held = self._pods.get(info.uid)
        if held is None or info.uid not in self._assumed or held.node_name != info.node_name:
            raise AssumptionError(f"pod {info.key} ({info.uid}) wasn't assumed so cannot be forgotten")
        self.remove_pod(info.uid)

    def name_claims(self, info: PodInfo) -> None:
        """Update the device claims in an assumed pod's status. The decision for the pod may be outdated."""
        old = self._pods.get(info.uid)
        if old is None or info.uid not in self._assumed:
            return
        status = msgspec.structs.replace(
            old.pod.status, resource_claim_statuses=info.pod.status.resource_claim_statuses
        )
        named = msgspec.structs.replace(old, pod=msgspec.structs.replace(old.pod, status=status))
        self._pods[info.uid] = named
        self._disturb(old.node_name)
        self.nodes.replace_pod(old.node_name, named)

    def answered(self, uid: str) -> None:
        """Record that the API server has bound the pod, so that the watch should show it."""
        if uid in self._assumed:
            self._answered[uid] = self._clock.now()

    def unconfirmed_s(self) -> float:
        """Return for how many seconds the oldest bound pod has been missing in the watch; 0 if none is. O(1)."""
        since = next(iter(self._answered.values()), None)
        return 0.0 if since is None else self._clock.now() - since

    def is_assumed(self, uid: str) -> bool:
        """Return whether the pod is assumed and not confirmed by the watch."""
        return uid in self._assumed

    def drop_unexplained(self) -> dict[str, list[str]]:
        """Drop assumptions without a pod, and responses without an assumption; return their uids. For the self-audit."""
        assumed = sorted(self._assumed - self._pods.keys())
        self._assumed.difference_update(assumed)
        answered = sorted(self._answered.keys() - self._assumed)
        for uid in answered:
            del self._answered[uid]
        return {"assumed without a pod": assumed, "answered and not assumed": answered}

    def get(self, uid: str) -> PodInfo | None:
        """Return the cached copy of a bound or assumed pod."""
        return self._pods.get(uid)

    @contextlib.contextmanager
    def trial(self, *, add: Iterable[tuple[PodInfo, str]] = (), remove: Iterable[PodInfo] = ()) -> Iterator[Trial]:
        """Change columns and indexes as if pods were added to nodes and removed; the end of the block undoes it.

        The cost grows with the number of pods, never with the cluster. Unknown pods in `remove` are skipped, and so
        are pods in `add` that are on that node already. The `Trial` can add and remove more pods.
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

    def silenced(self) -> Callable[[], None]:
        """Return a function that withdraws all news for waiting pods since this call, and the changes of device holds.

        For changes that were taken back. Nothing else may have changed since this call.
        """
        volumes, claims, holds = self.volumes, self.devices.claims, self.devices.device_holds
        reservations = volumes.reservations
        given_back, freed, expired = dict(volumes.given_back), set(reservations.freed), dict(reservations.expired)
        changes, devices, held = list(claims.changes), list(claims.given_back), holds.saved()

        def withdraw() -> None:
            volumes.given_back = dict(given_back)
            if reservations.expired == expired:  # else time has freed storage, too
                reservations.freed = set(freed)
            claims.changes[:], claims.given_back[:] = changes, devices
            holds.restore(held)

        return withdraw

    # -- counting ----------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Return the values of scheduler_cache_size: nodes, pods, assumed_pods."""
        return {"nodes": len(self.nodes), "pods": len(self._pods), "assumed_pods": len(self._assumed)}

    def pods(self) -> Iterator[PodInfo]:
        """Return every pod in the cache, assumed ones included, in any order."""
        return iter(self._pods.values())

    def assumed(self) -> Iterator[PodInfo]:
        """Return the assumed pods that the watch has not confirmed."""
        return (self._pods[uid] for uid in self._assumed)

    def is_broken(self, uid: str) -> bool:
        """Return whether this is a bound pod that could not be decoded, which `get` does not return."""
        return uid in self._broken

    def broken(self) -> Iterator[Broken]:
        """Return the bound pods that could not be decoded."""
        return iter(self._broken.values())

    def _confirmed(self, uid: str) -> None:
        self._assumed.discard(uid)
        self._answered.pop(uid, None)

    def _place(self, info: PodInfo) -> None:
        self._pods[info.uid] = info
        self.nodes.add_pod(info.node_name, info)

    def _replace(self, old: PodInfo, info: PodInfo) -> None:
        self._pods[info.uid] = info
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
