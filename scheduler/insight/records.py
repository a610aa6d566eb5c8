"""The last decisions about each pod, for /debug/pod: a bounded memory, the longest untouched pod leaves first.

Records are kept as they are, not copied: what binding adds to one later is seen here too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from scheduler.core.bounded_cache import BoundedCache
from scheduler.core.records import DecisionRecord

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
