"""Which cluster events can help a pod that a plugin rejected (docs/spec/core.md §1.10)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from scheduler.core.events import ClusterEvent
from scheduler.core.podinfo import PodInfo


class Hint(enum.Enum):
    """`value` is the label of queueing_hint_execution_duration_seconds."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFn: TypeAlias = Callable[[PodInfo, Any, Any], Hint]
"""`(waiting pod, old, new)`: objects are `PodInfo` for pod events, core objects for others, None where absent.

An exception is logged and counts as QUEUE.
"""


@dataclass(frozen=True, slots=True)
class EventHint:
    """One registration of a plugin.

    `hint is None` means: always worth a try. `shape` maps a waiting pod to a value such that pods of equal value
    always get the same answer; the queue then asks once per value instead of once per pod. Without it every
    waiting pod that the plugin rejected is asked. A hint that depends on the pod's own identity (events about
    the waiting pod itself) must not have a shape.
    """

    event: ClusterEvent
    hint: HintFn | None = None
    shape: Callable[[PodInfo], Hashable] | None = None
