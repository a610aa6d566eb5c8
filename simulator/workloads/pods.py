"""Pods as the workload controllers make, read and rank them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from simulator.controllers.controller import is_deleting, is_finished

Object: TypeAlias = dict[str, Any]
REVISION: Final = "controller-revision-hash"
"""Label of pods of a StatefulSet or DaemonSet: the name of the ControllerRevision that they were made from."""
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class Plan:
    """What one sync of a workload changes. Claims are created before pods, and pods are deleted first."""

    create: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()
    delete_claims: tuple[str, ...] = ()
    """Names of the claims that a retention policy deletes together with their pods."""
    reason: str = ""
    """Return why there are fewer pods than `spec` requests, or ""."""
    needs_readiness: bool = False
    """Whether the next sync is due when a pod of the workload becomes ready or unready."""


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference of the controller, None for an object that has none."""
    return next((each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")), None)


def labels_of(obj: Object) -> dict[str, str]:
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels


def phase_of(pod: Object) -> str:
    """Return `status.phase`; a pod without one is pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_active(pod: Object) -> bool:
    """Return whether the pod runs or will run.

    Upstream: pkg/controller/controller_utils.go IsPodActive
    """
    return not is_finished(pod) and not is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Return whether the pod's condition Ready is true. `minReadySeconds` are not waited for: ready is available."""
    return _ready_since(pod) is not None


def is_running_and_ready(pod: Object) -> bool:
    """Return whether a StatefulSet may go on to the next pod."""
    return phase_of(pod) == "Running" and is_ready(pod) and not is_deleting(pod)


def _ready_since(pod: Object) -> str | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return str(condition.get("lastTransitionTime") or "")
    return None


Before: TypeAlias = Callable[[Object], Object]
"""Returns the pod as a dump has it: with the uid, the times and the status that it had in its cluster."""


def deletion_order(
    pods: Sequence[Object], *, before: Before, now_s: float, related: Iterable[Object] = ()
) -> list[Object]:
    """Return the pods, those first that a ReplicaSet deletes first. `related` count as neighbours on one node.

    Upstream: pkg/controller/controller_utils.go ActivePodsWithRanks
    """
    neighbours = Counter(pod["spec"].get("nodeName", "") for pod in related if is_active(pod))
    return sorted(pods, key=lambda pod: _rank(pod, before(pod), neighbours, now_s))


def _rank(pod: Object, former: Object, neighbours: Mapping[str, int], now_s: float) -> tuple[Any, ...]:
    node = pod["spec"].get("nodeName", "")
    ready = _ready_since(former)
    metadata = former["metadata"]
    return (
        bool(node),
        _PHASES.get(phase_of(former), 0),
        ready is not None,
        _cost(pod),
        -neighbours[node],
        0 if ready is None else _age_rank(ready, now_s),
        -_restarts(former),
        _age_rank(str(metadata.get("creationTimestamp") or ""), now_s),
        str(metadata.get("uid", "")),
    )


def youngest_first(pods: Sequence[Object], before: Before) -> list[Object]:
    """Return the pods, those first that a Job deletes first. Unlike a ReplicaSet it compares times exactly.

    Upstream: pkg/controller/controller_utils.go ActivePods
    """

    def rank(pod: Object) -> tuple[Any, ...]:
        former = before(pod)
        ready = _ready_since(former)
        return (
            bool(pod["spec"].get("nodeName")),
            _PHASES.get(phase_of(former), 0),
            ready is not None,
            -seconds_of(ready or ""),
            -_restarts(former),
            -seconds_of(str(former["metadata"].get("creationTimestamp") or "")),
        )

    return sorted(pods, key=rank)


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(each.get("restartCount") or 0) for each in statuses), default=0)


def _cost(pod: Object) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0"))
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 10
    return int(text) if is_number else 0


def _age_rank(moment: str, now_s: float) -> int:
    """Return the logarithm of the age, so that of pods of about one age the uid decides. No time is the youngest."""
    age_ns = (now_s - seconds_of(moment)) * 1e9 if moment else 0.0
    return int(math.log2(age_ns)) if age_ns >= 1 else -1


def seconds_of(moment: str) -> float:
    """Return an API time in seconds since the epoch; 0 for a text that is no time."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0


def oldest_first(objects: Iterable[Object], before: Before) -> list[Object]:
    """Return objects by the time of their creation, then by name."""
    return sorted(
        objects,
        key=lambda obj: (
            seconds_of(str(before(obj)["metadata"].get("creationTimestamp") or "")),
            obj["metadata"]["name"],
        ),
    )
