"""Nominated pods: they will use a node, but are not assumed or bound yet (docs/spec/core.md §1.15, §2.6).

Pods of this scheduler are nominated by a preemption, by their status, or from their claims (docs/adr/0012).
Nominations by other schedulers are respected and never changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.changes import ChangeLog

DERIVED: Final = "derived"
STATUS: Final = "status"
PREEMPTION: Final = "preemption"


class Nominator(ChangeLog[str]):
    """A map of node name → pods in the order of nomination.

    Every call is O(1), except `for_node`: O(pods on that node). The log contains the nodes whose nominations have
    changed.

    Upstream: pkg/scheduler/backend/queue/nominator.go nominator
    """

    log_max = 4096

    def __init__(self, newest: Callable[[str], PodInfo | None]) -> None:
        super().__init__()
        self._newest = newest
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._foreign: set[str] = set()
        self._derived: set[str] = set()
        self._versions: dict[str, int] = {}

    def add(self, info: PodInfo, node_name: str | None) -> None:
        """Nominate the pod; "" clears its nomination, and None stands for the node in the pod's status.

        The nomination is removed instead if the store no longer has this pod, or has it on a node.
        """
        name = info.pod.status.nominated_node_name if node_name is None else node_name
        newest = self._newest(info.key) if name else None
        if newest is not None and newest.uid == info.uid and not newest.node_name:
            self._put(info, name)
        else:
            self._remove(info.uid)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Update a changed pod. A nomination without a status stays, because its patch may be under way."""
        in_memory = None
        if not old.pod.status.nominated_node_name and not new.pod.status.nominated_node_name:
            in_memory = self.node_of(old.uid)
        is_derived = in_memory is not None and old.uid in self._derived
        if in_memory is not None or old.uid in self._node_of or new.pod.status.nominated_node_name:
            self.add(new, in_memory)
        if is_derived and self.node_of(new.uid) == in_memory:
            self._derived.add(new.uid)

    def delete(self, info: PodInfo) -> str | None:
        """Remove the pod because it was assumed, bound or deleted. Return the node of its nomination, or None."""
        return self._remove(info.uid) or None

    def derive(self, info: PodInfo, node_name: str) -> str:
        """Nominate a pod of this scheduler to the only node that its claims allow.

        Return the node of its previous nomination, or "". A nomination to the same node by status or preemption is
        not changed.
        """
        before = self._node_of.get(info.uid, "")
        newest = self._newest(info.key)
        if before != node_name and newest is not None and newest.uid == info.uid and not newest.node_name:
            self._put(info, node_name)
            self._derived.add(info.uid)
            return before
        return ""

    def end_derived(self, info: PodInfo) -> str:
        """End the pod's derived nomination and use its status again. Return the node that it leaves, or ""."""
        if info.uid not in self._derived:
            return ""
        before = self._node_of[info.uid]
        self.add(info, None)
        return before if self._node_of.get(info.uid) != before else ""

    def derived_node(self, uid: str) -> str:
        """Return the node of the pod's derived nomination, or ""."""
        return self._node_of[uid] if uid in self._derived else ""

    def source(self, info: PodInfo) -> str:
        """Return "derived", "status" or "preemption" for a nominated pod of this scheduler, else ""."""
        name = self._node_of.get(info.uid, "")
        if not name or info.uid in self._foreign:
            return ""
        if info.uid in self._derived:
            return DERIVED
        return STATUS if info.pod.status.nominated_node_name == name else PREEMPTION

    @contextlib.contextmanager
    def without(self, infos: Iterable[PodInfo]) -> Iterator[None]:
        """Remove these pods until the block ends: a pod that is assumed and nominated would be counted twice."""
        removed = [
            (info, self._node_of[info.uid], info.uid in self._derived) for info in infos if self.is_nominated(info.uid)
        ]
        for info, _, _ in removed:
            self._remove(info.uid)
        try:
            yield
        finally:
            for info, node_name, is_derived in removed:
                self._put(info, node_name)
                if is_derived:
                    self._derived.add(info.uid)

    def node_of(self, uid: str) -> str | None:
        """Return the node that the pod is nominated to."""
        return self._node_of.get(uid)

    def is_nominated(self, uid: str) -> bool:
        return uid in self._node_of

    def for_node(self, name: str) -> tuple[PodInfo, ...]:
        """Return the pods nominated to this node, pods of other schedulers included."""
        pods = self._by_node.get(name)
        return tuple(pods.values()) if pods else ()

    def pods(self) -> Iterator[tuple[str, PodInfo]]:
        """Return all nominated pods, each with its node."""
        return ((name, info) for name, pods in self._by_node.items() for info in pods.values())

    def uids(self) -> dict[str, None]:
        """Return the uids of all pods of which anything is known, for the self-audit."""
        listed = (uid for pods in self._by_node.values() for uid in pods)
        return dict.fromkeys((*self._node_of, *listed, *self._foreign, *self._derived))

    def entries(self, uid: str) -> dict[str, Any]:
        """Return all that is known of a pod: its node, the nodes that list it, and its kinds."""
        listed = [name for name, pods in self._by_node.items() if uid in pods]
        kinds = [name for name, uids in (("foreign", self._foreign), (DERIVED, self._derived)) if uid in uids]
        return {"nominated to": self._node_of.get(uid), "listed on": listed, "kinds": kinds}

    def forget(self, uid: str) -> None:
        """Remove a pod from all nodes, whatever is wrong with its nomination."""
        self._node_of.pop(uid, None)
        self._foreign.discard(uid)
        self._derived.discard(uid)
        for name, pods in tuple(self._by_node.items()):
            if pods.pop(uid, None) is not None:
                self._record(name)
            if not pods:
                del self._by_node[name]
                self._versions.pop(name, None)

    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes with at least one nominated pod."""
        return tuple(self._by_node)

    def version(self, name: str) -> int:
        """Return a number that changes with every nomination to this node and every end of one."""
        return self._versions.get(name, 0)

    def add_foreign(self, info: PodInfo, node_name: str) -> PodInfo | None:
        """Nominate an unbound pod of another scheduler. Return its previous nomination if that was on another node."""
        before = self.remove_foreign(info.uid) if self._node_of.get(info.uid) != node_name else None
        self._put(info, node_name)
        self._foreign.add(info.uid)
        return before

    def remove_foreign(self, uid: str) -> PodInfo | None:
        """End a nomination by another scheduler, and return the pod. Pods of this scheduler are not changed."""
        if uid not in self._foreign:
            return None
        info = self._by_node[self._node_of[uid]][uid]
        self._remove(uid)
        return info

    def _put(self, info: PodInfo, node_name: str) -> None:
        """Store the nomination; a pod that was nominated to this node before keeps its position."""
        if self._node_of.get(info.uid) != node_name:
            self._remove(info.uid)
        self._foreign.discard(info.uid)
        self._derived.discard(info.uid)
        self._node_of[info.uid] = node_name
        self._by_node.setdefault(node_name, {})[info.uid] = info
        self._record(node_name)

    def _remove(self, uid: str) -> str:
        node_name = self._node_of.pop(uid, "")
        if node_name:
            self._foreign.discard(uid)
            self._derived.discard(uid)
            pods = self._by_node[node_name]
            del pods[uid]
            self._record(node_name)
            if not pods:
                del self._by_node[node_name], self._versions[node_name]
        return node_name

    def _record(self, node_name: str) -> None:
        self.note(node_name)
        self._versions[node_name] = self.position
