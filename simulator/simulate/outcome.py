"""The outcome of a simulation: the node of each pod or the reason, the utilization of nodes, times, and the verdict.

Follows the pods as the API server changes them, at constant cost per change.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from scheduler.api.apps_and_policy import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.meta import GroupAnnotations, PodMetadata
from scheduler.api.podinfo import CPU, allocatable, requests_of
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.terminal import counted
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.server.ui.page import UiPages
from simulator.simulate.detail import Count, Detail, Part, PodName
from simulator.simulate.group_rows import GroupRow
from simulator.simulate.input.references import MissingObject

EXPECT: Final = "kubestow.dev/expect"
"""Annotation; the value `pending` has the effect of --expect-pending."""
PODS: Final = "pods"
_NO_CHANGES: Final = frozenset({"events", "leases"})
_REFUSALS: Final = frozenset({"Unschedulable", "SchedulerError"})
"""Reasons of the condition PodScheduled that are an answer."""
_EXAMPLES: Final = 5
TIME_IS_OVER: Final = "the time ran out (--timeout)"
"""Why a controller creates no pod any more."""
TIME_RAN_OUT: Final = "the time ran out before the scheduler had come to rest (--timeout)"
NOTHING_TO_PLACE: Final = "nothing to place: the input has no pod without a node for this scheduler"
FEW: Final = 100
"""No rate is given for fewer pods, because the start of the daemon would dominate it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod that was to be scheduled. `node` is empty if it was not; then `reason` and `message` say why.

    `owner` is its workload; empty without one.
    """

    pod: str
    node: str
    reason: str
    message: str
    is_expected_pending: bool
    owner: str = ""

    @property
    def problem(self) -> str:
        """How the outcome differs from the expectation; "" if it does not."""
        if self.node:
            return f"{self.pod} was expected to stay pending, and is on {self.node}" if self.is_expected_pending else ""
        return "" if self.is_expected_pending else f"{self.pod} was not placed: {self.message or self.reason}"


class Victim(Part, frozen=True):
    """One pod that was evicted."""

    pod: PodName
    priority: int
    node: Annotated[str, Meta(description="The node that it was evicted from.")]
    preemptor: PodName | None = msgspec.field(name="for")
    preemptor_priority: Annotated[int | None, Meta(description="Null if the other pod is gone.")] = msgspec.field(
        name="forPriority"
    )
    preemptor_node: Annotated[str | None, Meta(description="Where the other pod is; null if it is on no node.")] = (
        msgspec.field(name="forNode")
    )


@dataclass(frozen=True, slots=True)
class Fill:
    """Capacity of one resource on all nodes; cpu in milli-CPU, the rest in whole units."""

    resource: str
    requested: int
    allocatable: int
    fullest: tuple[str, float]
    emptiest: tuple[str, float]

    @property
    def share(self) -> float:
        return self.requested / self.allocatable if self.allocatable else 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds since the daemon's start; None if no pod was placed."""

    first_s: float | None
    last_s: float | None
    total_s: float

    def rate(self, placed: int) -> float | None:
        """Return pods per second between the first and the last; None for fewer than 100 pods."""
        if self.first_s is None or self.last_s is None or placed < FEW or self.last_s <= self.first_s:
            return None
        return placed / (self.last_s - self.first_s)


class WorkloadRow(Part, frozen=True):
    """The pods of one workload without a controlling workload."""

    workload: Annotated[str, Meta(description="Kind, and namespace and name.")]
    replicas: Annotated[Count | None, Meta(description="`spec.replicas`; null for kinds without it.")]
    existing: Annotated[Count, Meta(description="Pods of the input.")]
    created: Count
    deleted: Annotated[list[str], Meta(description="Names of the pods that the controller deleted.")]
    ignored: Annotated[Count, Meta(description="Pods that have finished or are being deleted.")]
    reason: Annotated[str, Meta(description="Why it has fewer pods than it wants, or none; empty otherwise.")]
    refused: Annotated[str, Meta(description="Why the API server refuses its pods; empty otherwise.")]

    @property
    def is_notable(self) -> bool:
        """Whether the row says more than that all pods were created or existed."""
        is_new = self.created and not self.existing
        return bool(self.deleted or self.ignored or self.reason or (self.created and not is_new))

    @property
    def summary(self) -> str:
        """The counts that are not zero, and the reason, in one line."""
        counts = {
            "existing": self.existing,
            "created": self.created,
            "deleted": len(self.deleted),
            "ignored": self.ignored,
        }
        wanted = [] if self.replicas is None else [counted(self.replicas, "replica")]
        parts = [*wanted, *(f"{count} {name}" for name, count in counts.items() if count)]
        return ", ".join(parts) + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole outcome. `is_settled` is False if the time ran out before the scheduler was idle."""

    placements: tuple[Placement, ...]
    fills: tuple[Fill, ...]
    timing: Timing
    nodes: int
    bound_before: int
    left_alone: int
    left_out: Mapping[str, int]
    """Objects by kind that scheduling does not use."""
    is_settled: bool
    victims: tuple[Victim, ...] = ()
    """In the order of their preemptors in the input."""
    workloads: tuple[WorkloadRow, ...] = ()
    """In the order of the input."""
    groups: tuple[GroupRow, ...] = ()
    """In the order of the input."""
    missing: tuple[MissingObject, ...] = ()
    """Objects that the input refers to and does not have."""
    explanations: tuple[Explanation, ...] = ()
    """Of pending pods, with `--explain`: one for each reason and workload."""
    detail: Detail | None = None
    """What pods, nodes and pools use, with `-o json` and `-o wide`."""
    pages: UiPages | None = None
    """The data of the page /ui at the end, with `-o html`."""
    what_if: WhatIfAnswer | None = None
    """The answer to the question of `kubestow what-if`."""
    bound: Mapping[str, str] = field(default_factory=dict)
    """The node of each pod that has one, also of pods of the input, by namespace/name."""
    abandoned: Mapping[str, str] = field(default_factory=dict)
    """Pods of drained nodes that are gone, by namespace/name, and why."""

    @property
    def placed(self) -> int:
        return sum(1 for each in self.placements if each.node)

    @property
    def is_cut_short(self) -> bool:
        """Whether the time ran out while pods had no node or did not exist: what it says about them is no answer."""
        is_all_placed = self.placed == len(self.placements) and not any(each.refused for each in self.workloads)
        return not self.is_settled and not is_all_placed

    @property
    def problems(self) -> list[str]:
        """Return differences from the expectation, one sentence each."""
        late = [TIME_RAN_OUT] if self.is_cut_short else []
        refused = [f"{each.workload} has no new pods: {each.refused}" for each in self.workloads if each.refused]
        abandoned = [f"{pod} is gone: {why}" for pod, why in self.abandoned.items()]
        empty = [NOTHING_TO_PLACE] if self.is_empty else []
        return [*late, *(each.problem for each in self.placements if each.problem), *refused, *abandoned, *empty]

    @property
    def is_empty(self) -> bool:
        """Whether no pod was to be scheduled, and neither a workload nor a drained node lost pods."""
        return not (self.placements or self.abandoned or any(each.refused for each in self.workloads))

    @property
    def is_good(self) -> bool:
        return not self.problems

    def pending_by_reason(self) -> list[tuple[str, list[Placement]]]:
        """Return the pending pods by reason, most frequent first."""
        groups: dict[str, list[Placement]] = {}
        for each in self.placements:
            if not each.node:
                groups.setdefault(each.message or each.reason, []).append(each)
        return sorted(groups.items(), key=lambda item: -len(item[1]))


def placement(pod: Pod, *, is_expected_pending: bool, missing: str = "", waits: str = "") -> Placement:
    """Return the placement of a pod from the API server.

    `missing` names the objects that the pod waits for. `waits` says why it has no volumes: it has a node until then, so
    the scheduler gives no reason.
    """
    node, reason, message = pod.spec.node_name, "", ""
    if node and pod.status.phase == "Failed":
        node, reason, message = "", pod.status.reason, f"bound to {node}, whose kubelet refused it: {pod.status.reason}"
    elif not node:
        condition = pod.condition("PodScheduled")
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            reason, message = "SchedulingGated", f"waits for its scheduling gates: {gates}"
        elif waits:
            reason, message = "WaitForVolumeBinding", waits
        elif condition is not None:
            reason, message = condition.reason, condition.message
        elif missing:
            reason, message = "NotTried", f"waits for {missing}"
        else:
            reason, message = "NotTried", "the scheduler said nothing about it"
    return Placement(pod.key, node, reason, message, is_expected_pending, _owner(pod))


def _owner(pod: Pod) -> str:
    return next((f"{ref.kind}/{ref.name}" for ref in pod.metadata.owner_references if ref.controller), "")


def preempted(pod: Pod, node: str, *, is_expected_pending: bool) -> Placement:
    """Return the placement of a pod that was placed and then evicted."""
    message = f"was placed on {node} and preempted there"
    return Placement(pod.key, "", "Preempted", message, is_expected_pending, _owner(pod))


def victims(
    gone: Iterable[Pod], preemptors: Mapping[str, str], order: Sequence[str], pods: Mapping[str, Pod]
) -> tuple[Victim, ...]:
    """Return the victims. `preemptors` are by uid of the victim, `pods` are those at the end."""
    rank = {key: at for at, key in enumerate(order)}
    found = []
    for pod in gone:
        key = preemptors.get(pod.metadata.uid)
        by = pods.get(key) if key is not None else None
        priority, node = (by.priority, by.spec.node_name or None) if by is not None else (None, None)
        found.append(Victim(pod.key, pod.priority, pod.spec.node_name, key, priority, node))
    return tuple(sorted(found, key=lambda each: (rank.get(each.preemptor or "", len(rank)), each.pod)))


class ExpectedAnnotations(GroupAnnotations, frozen=True):
    """The annotations of a pod that a simulation reads."""

    expected: str = msgspec.field(default="", name=EXPECT)


class ExpectedMetadata(PodMetadata, frozen=True):
    annotations: ExpectedAnnotations = ExpectedAnnotations()


class AnnotatedPod(Pod, frozen=True):
    """A pod with the annotation that says whether it may stay pending."""

    metadata: ExpectedMetadata


def is_expected_pending(pod: AnnotatedPod, patterns: Iterable[str]) -> bool:
    """Return whether the pod may stay pending, by its annotation or by a glob over `namespace/name`.

    A glob without a slash means the namespace default.
    """
    if pod.metadata.annotations.expected == "pending":
        return True
    return any(fnmatch.fnmatchcase(pod.key, full(pattern)) for pattern in patterns)


def full(pattern: str) -> str:
    """Return the pattern with its namespace."""
    return pattern if "/" in pattern else f"default/{pattern}"


def fills(nodes: Sequence[Node], pods: Iterable[Pod]) -> tuple[Fill, ...]:
    """Return the utilization per resource: cpu, memory and pods first."""
    room = {node.metadata.name: allocatable(node.status.allocatable) for node in nodes}
    used: dict[str, Counter[str]] = {name: Counter() for name in room}
    for pod in pods:
        if pod.spec.node_name in used and not pod.is_terminal:
            used[pod.spec.node_name].update({**requests_of(pod), PODS: 1})
    names = dict.fromkeys([CPU, "memory", PODS])
    for taken in used.values():
        names.update(dict.fromkeys(name for name, amount in taken.items() if amount))
    return tuple(filled for name in names if (filled := _filled(name, room, used)) is not None)


def _filled(resource: str, room: dict[str, dict[str, int]], used: dict[str, Counter[str]]) -> Fill | None:
    shares = {name: used[name][resource] / has[resource] for name, has in room.items() if has.get(resource)}
    if not shares:
        return None
    fullest, emptiest = max(shares, key=lambda n: shares[n]), min(shares, key=lambda n: shares[n])
    return Fill(
        resource,
        requested=sum(used[name][resource] for name in shares),
        allocatable=sum(room[name][resource] for name in shares),
        fullest=(fullest, shares[fullest]),
        emptiest=(emptiest, shares[emptiest]),
    )


def examples(placements: Sequence[Placement]) -> str:
    """Return a few of their names."""
    names = ", ".join(each.pod for each in placements[:_EXAMPLES])
    return names if len(placements) <= _EXAMPLES else f"{names}, …"


class Tracker:
    """Track which pods have no answer yet, and when answers came. `heard` is called with every write."""

    def __init__(
        self, is_ours: Callable[[dict[str, Any]], bool], clock: Clock, *, stopwatch: Clock | None = None
    ) -> None:
        """Create the tracker. `is_ours` returns whether the scheduler should place a pod without a node.

        Times for people come from `stopwatch`, by default the clock of the machine: virtual time says nothing to them.
        """
        self._is_ours = is_ours
        self._clock = clock
        self._stopwatch = stopwatch or SystemClock()
        self._started = self._stopwatch.now()
        self._bound: set[str] = set()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._total_s = 0.0
        self.heard_count = 0
        """Number of writes of pods."""
        self.changed_at = clock.now()
        """When a write changed the input of a decision; the scheduler's verdict on a pod does not."""
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self.unsettled: set[str] = set()
        """Pods that are neither bound nor refused nor gated."""
        self.ours: set[str] = set()
        """Pods that were to be scheduled, by namespace/name, including deleted ones."""
        self.preempted: dict[str, dict[str, Any]] = {}
        """Pods that a scheduler evicted, by uid, in their last state, including pods of other schedulers."""
        self.preempted_by_key: dict[str, dict[str, Any]] = {}
        """The same by namespace/name."""

    def start(self) -> None:
        """Start the clock."""
        self._started = self._stopwatch.now()

    @property
    def answered(self) -> int:
        """Return how many pods have a node or a reason."""
        return len(self.ours) - len(self.unsettled)

    @property
    def placed(self) -> int:
        """Return how many pods have a node."""
        return len(self._bound)

    def heard(self, type_: str, resource: str, obj: dict[str, Any]) -> None:
        """Take one written object."""
        self._note_change(type_, resource, obj)
        if resource != "pods":
            return
        self.heard_count += 1
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if "deletionTimestamp" in metadata and is_preempted(obj):
            self.preempted[metadata["uid"]] = self.preempted_by_key[key] = obj
        if type_ == "ADDED" and self._is_ours(obj):
            self.ours.add(key)
        if key not in self.ours:
            return
        if type_ == "DELETED":
            self._bound.discard(key)
            self.unsettled.discard(key)
        elif obj["spec"].get("nodeName"):
            if key not in self._bound:
                self._bound.add(key)
                self._last_s = self._total_s = self._stopwatch.now() - self._started
                if self._first_s is None:
                    self._first_s = self._last_s
            self.unsettled.discard(key)
        elif _is_refused(obj):
            self.unsettled.discard(key)
            self._total_s = self._stopwatch.now() - self._started
        else:
            self.unsettled.add(key)

    def _note_change(self, type_: str, resource: str, obj: dict[str, Any]) -> None:
        if resource in _NO_CHANGES:
            return
        if resource == PODS:
            metadata, status = obj["metadata"], obj.get("status") or {}
            key = f"{metadata['namespace']}/{metadata['name']}"
            rest = {key: value for key, value in metadata.items() if key != "resourceVersion"}
            now = (type_ == "DELETED", rest, obj["spec"], status.get("phase"), status.get("nominatedNodeName"))
            if self._inputs.get(key) == now:
                return
            self._inputs[key] = now
        self.changed_at = self._clock.now()

    def timing(self) -> Timing:
        """Return the times until the last answer."""
        return Timing(self._first_s, self._last_s, self._total_s)


def is_preempted(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == DISRUPTION_TARGET and c.get("reason") == PREEMPTION_BY_SCHEDULER for c in conditions)


def _is_refused(pod: dict[str, Any]) -> bool:
    if pod["spec"].get("schedulingGates"):
        return True
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "PodScheduled" and c.get("reason") in _REFUSALS for c in conditions)
