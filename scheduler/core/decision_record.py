"""Records of scheduling attempts: what one attempt decided, and why.

Event, condition, metrics and /debug/pod are made from them (docs/operations.md, "How to read /debug/pod"). The memory
is bounded: the records of the least recently used pod are dropped first. Records are not copied, so later changes by
the binding are visible here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.core.caching import BoundedCache


class GroupRecord(msgspec.Struct, frozen=True):
    """Nodes that one plugin rejected for the same reasons; `examples` are up to five of their names."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    nodes: int
    examples: tuple[str, ...]


class NodeScore(msgspec.Struct, frozen=True):
    """A scored node: the weighted score of each plugin, and their sum."""

    node: str
    total: int
    parts: dict[str, int]


class DecisionRecord(msgspec.Struct):
    """One attempt. It is filled during the attempt; `result` and the following fields change again when binding ends.

    `result` is `scheduled`, `unschedulable` or `error`, or `binding` while the binding cycle runs.
    """

    pod: str
    uid: str
    profile: str
    attempt: int
    started_wall: float
    """Seconds since the epoch."""
    result: str = ""
    node: str = ""
    seen_resource_version: str = ""
    """The last resourceVersion of the pod watch at the last check of the node before binding; "" before any check."""
    message: str = ""
    node_count: int = 0
    feasible_count: int = 0
    groups: tuple[GroupRecord, ...] = ()
    preemption: tuple[GroupRecord, ...] = ()
    """Why evicting pods from these nodes would not help; only nodes that preemption evaluated."""
    scores: tuple[NodeScore, ...] = ()
    nominated: str = ""
    """The node on which preemption evicts pods for this pod."""
    victims: tuple[str, ...] = ()
    """Pods that a preemption evicts for this one, the most important first."""
    cycle_s: float = 0.0
    """Seconds of the scheduling cycle."""
    binding_s: float = 0.0
    """Seconds from the decision to the end of binding."""


class DecisionRecords:
    """At most `per_pod` records for each of the last `pods` pods. Only the scheduling loop uses it."""

    def __init__(self, pods: int = 2000, per_pod: int = 8) -> None:
        self._per_pod = per_pod
        self._by_pod: BoundedCache[str, deque[DecisionRecord]] = BoundedCache(pods)

    def add(self, record: DecisionRecord) -> None:
        """Add an attempt. O(1)."""
        self._by_pod.get_or_make(record.pod, lambda: deque(maxlen=self._per_pod)).append(record)

    def of(self, pod: str) -> tuple[DecisionRecord, ...]:
        """Return the attempts of a pod (`namespace/name`), oldest first; deleted pods of the same name are included."""
        return tuple(self._by_pod.get(pod) or ())

    def to_dict(self, pod: str) -> Mapping[str, Any] | None:
        """Return the JSON of /debug/pod, newest attempt first; None if there is no record of the pod."""
        records = self._by_pod.get(pod)
        if records is None:
            return None
        return {"pod": pod, "attempts": [msgspec.to_builtins(record) for record in reversed(records)]}
