"""Pods that are about to take a place they do not hold yet (docs/spec/core.md §1.15, §2.6).

Ours, by a preemption, by their status, or derived from their claims (docs/adr/0012); and those of other schedulers, which
we respect and never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.changes import ChangeLog

DERIVED: Final = "derived"
STATUS: Final = "status"
PREEMPTION: Final = "preemption"


class Nominator(ChangeLog[str]):
    """Node name → pods in the order they were nominated. Every call is O(1), `for_node` O(pods on that node).

    The log has the nodes whose nominations have changed.

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
        """Nominate; "" clears, None takes what the pod's status says.

        Refused (nothing is stored) when the store no longer has this pod, or has it on a node.
        """
        name = info.pod.status.nominated_node_name if node_name is None else node_name
        newest = self._newest(info.key) if name else None
        if newest is not None and newest.uid == info.uid and not newest.node_name:
            self._put(info, name)
        else:
            self._remove(info.uid)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """The pod changed. A nomination that only we know of stays: its patch has not come back yet."""
        in_memory = None
        if not old.pod.status.nominated_node_name and not new.pod.status.nominated_node_name:
            in_memory = self.node_of(old.uid)
        is_derived = in_memory is not None and old.uid in self._derived
        if in_memory is not None or old.uid in self._node_of or new.pod.status.nominated_node_name:
            self.add(new, in_memory)
        if is_derived and self.node_of(new.uid) == in_memory:
            self._derived.add(new.uid)

    def delete(self, info: PodInfo) -> str | None:
        """Forget the pod: assumed, bound or gone. Answers with the node it was nominated to."""
        return self._remove(info.uid) or None

    def derive(self, info: PodInfo, node_name: str) -> str:
        """Nominate a pod of ours to the one node that its claims leave it. Return the node that it leaves, or "".

        A nomination to the same node by status or preemption stays what it is.
        """
        before = self._node_of.get(info.uid, "")
        newest = self._newest(info.key)
        if before != node_name and newest is not None and newest.uid == info.uid and not newest.node_name:
            self._put(info, node_name)
            self._derived.add(info.uid)
            return before
        return ""

    def end_derived(self, info: PodInfo) -> str:
        """End the pod's derived nomination; what its status says counts again. Return the node that it leaves, or ""."""
        if info.uid not in self._derived:
            return ""
        before = self._node_of[info.uid]
        self.add(info, None)
        return before if self._node_of.get(info.uid) != before else ""

    def derived_node(self, uid: str) -> str:
        """The node of the pod's derived nomination, or ""."""
        return self._node_of[uid] if uid in self._derived else ""

    def source(self, info: PodInfo) -> str:
        """Return "derived", "status" or "preemption" for a nominated pod of ours, else ""."""
        name = self._node_of.get(info.uid, "")
        if not name or info.uid in self._foreign:
            return ""
        if info.uid in self._derived:
            return DERIVED
        return STATUS if info.pod.status.nominated_node_name == name else PREEMPTION

    def node_of(self, uid: str) -> str | None:
        """Where this pod is nominated to."""
        return self._node_of.get(uid)

    def is_nominated(self, uid: str) -> bool:
        """Whether this pod is nominated anywhere."""
        return uid in self._node_of

    def for_node(self, name: str) -> tuple[PodInfo, ...]:
        """Pods nominated to this node, foreign ones included."""
        pods = self._by_node.get(name)
        return tuple(pods.values()) if pods else ()

    def pods(self) -> Iterator[tuple[str, PodInfo]]:
        """All nominated pods, each with its node."""
        return ((name, info) for name, pods in self._by_node.items() for info in pods.values())

    def nodes(self) -> tuple[str, ...]:
        """Names of nodes with at least one nominated pod."""
        return tuple(self._by_node)

    def version(self, name: str) -> int:
        """Changes whenever somebody is nominated to this node, or no longer is."""
        return self._versions.get(name, 0)

    def add_foreign(self, info: PodInfo, node_name: str) -> PodInfo | None:
        """Another scheduler's unbound pod says where it is going. Answers with what it held on another node before."""
        before = self.remove_foreign(info.uid) if self._node_of.get(info.uid) != node_name else None
        self._put(info, node_name)
        self._foreign.add(info.uid)
        return before

    def remove_foreign(self, uid: str) -> PodInfo | None:
        """It is bound, gone, or nominated no more: the pod whose nomination ended. Pods of ours are nothing."""
        if uid not in self._foreign:
            return None
        info = self._by_node[self._node_of[uid]][uid]
        self._remove(uid)
        return info

    def _put(self, info: PodInfo, node_name: str) -> None:
        """One that was nominated there keeps its place among the others."""
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
