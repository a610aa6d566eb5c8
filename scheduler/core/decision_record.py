"""Records of scheduling attempts: event, condition, metrics and /debug print from them.

What one attempt decided, and why: event, condition, metrics and /debug print from it
(docs/operations.md, "How to read /debug/pod").

The last decisions about each pod, for /debug/pod: a bounded memory, the longest untouched pod leaves first.

Records are kept as they are, not copied: what binding adds to one later is seen here too.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler.core.caching import BoundedCache


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Nodes that one plugin refused for the same reasons; `examples` are up to five of their names."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    nodes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node that was scored: weighted parts by plugin, and their sum."""

    node: str
    total: int
    parts: dict[str, int]


@dataclass(slots=True)
class DecisionRecord:
    """One attempt. Filled as the attempt goes on; `result` and what follows change once more when binding ends.

    `result` is `scheduled`, `unschedulable` or `error`, or `binding` while the background half runs.
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
    """Of the pod watch when the node was looked at for the last time before the Binding left; "" while none has."""
    message: str = ""
    node_count: int = 0
    feasible_count: int = 0
    groups: tuple[GroupRecord, ...] = ()
    preemption: tuple[GroupRecord, ...] = ()
    """Why evicting pods from these nodes would not help, as far as they were looked at."""
    scores: tuple[NodeScore, ...] = ()
    nominated: str = ""
    """Where a preemption makes room for it."""
    victims: tuple[str, ...] = ()
    """Pods that a preemption evicts for this one, the most important first."""
    cycle_s: float = 0.0
    """Time spent deciding."""
    binding_s: float = 0.0
    """Time from the decision to the binding's outcome."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self)


PODS: Final = 2000
PER_POD: Final = 8


class DecisionRecords:
    """At most `per_pod` records for each of the last `pods` pods. Single owner: the scheduling loop."""

    def __init__(self, pods: int = PODS, per_pod: int = PER_POD) -> None:
        self._per_pod = per_pod
        self._by_pod: BoundedCache[str, deque[DecisionRecord]] = BoundedCache(pods)

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._by_pod)

    def add(self, record: DecisionRecord) -> None:
        """Remember an attempt, at constant cost."""
        self._by_pod.get_or_make(record.pod, lambda: deque(maxlen=self._per_pod)).append(record)

    def of(self, pod: str) -> tuple[DecisionRecord, ...]:
        """The attempts of a pod (`namespace/name`), oldest first; those of namesakes that are gone included."""
        return tuple(self._by_pod.get(pod) or ())

    def latest(self, pod: str) -> DecisionRecord | None:
        """The newest attempt of a pod, None if it is not remembered."""
        records = self._by_pod.get(pod)
        return records[-1] if records else None

    def to_dict(self, pod: str) -> Mapping[str, Any] | None:
        """What /debug/pod prints, newest attempt first; None if the pod is not remembered."""
        records = self._by_pod.get(pod)
        if records is None:
            return None
        return {"pod": pod, "attempts": [record.to_dict() for record in reversed(records)]}
