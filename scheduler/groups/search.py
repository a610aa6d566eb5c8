"""The search for the nodes of a group: several orders of its pods, then a search in depth (docs/spec/groups.md §4).

The pods are placed by ordinary attempts on the live cache, one after the other. Each sees the pods before it, with their volumes
and devices. If too many fail, all placements are taken back, and another order is tried. A worked example: nodes a, b and c
have 4 cpu each, two pods of 1 cpu may only go to a or b, and two pods of 4 cpu may go anywhere.

    1. by scores        pods that fit on the fewest nodes go first: a and b, then c. The second large pod fails
    2. fullest node     the same order: a and a, then b and c. All are placed

Where that does not help either, the pod that failed goes first, with all pods like it, and the search starts again. In a small
group the last step is a search in depth: the pod before the one that failed goes to another node. Two rules
end it early. If the failed pod fits nowhere without the plan, no order helps. And if all pods are alike and do not depend on
each other, there is only one order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import claim_keys
from scheduler.cache.cluster import Cluster
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.cycle import Cycle, Outcome, Scheduled, SchedulingFailed
from scheduler.framework.interface import AttemptMode
from scheduler.groups.outcome import GroupOutcome
from scheduler.plan import Placement, Plan
from scheduler.queue import QueuedPodInfo

_ROUNDS: Final = 12
"""Orders that are tried after the first two."""
ATTEMPTS_PER_POD: Final = 4
_MORE_ATTEMPTS: Final = 600
_DEPTH_FIRST_PODS: Final = 16
_DEPTH_FIRST_ATTEMPTS: Final = 300
"""The search ends after 4 attempts per pod and these, also within a round. The domains of a group share these, not the 4."""


@dataclass(eq=False, repr=False)
class GroupSearch:
    """The search for one group: rounds of attempts, each in another order. Its placements are added to `plan`."""

    cycle: Cycle
    cluster: Cluster
    plan: Plan
    members: Sequence[QueuedPodInfo]
    least: int
    within: NodeSet | None = None
    """The nodes of a domain; None for all nodes."""
    domain_count: int = 1
    """The number of domains that are searched like this one."""
    nominated: Mapping[str, str] = field(default_factory=dict)
    """By uid, the nodes that an earlier attempt has chosen for these pods, and for which it may have evicted other pods."""
    outcomes: dict[str, Outcome] = field(default_factory=dict, init=False)
    """Of the last round."""
    is_certain: bool = field(default=True, init=False)
    """Whether a failure of the search says that the pods do not fit."""
    attempts: int = field(default=0, init=False)
    """Attempts of pods, and questions which nodes are feasible for one."""
    by_scores: AttemptMode = field(init=False)
    _packed: AttemptMode = field(init=False)
    base: int = field(init=False)
    """The length of the plan before the first placement."""
    _pins: Mapping[str, str] = field(default_factory=dict, init=False)
    """By uid, the only nodes that these pods may have now."""
    _attempts_left: int = field(default=0, init=False)
    _failed: QueuedPodInfo | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.by_scores = AttemptMode(preempts=False, within=self.within, shares=True)
        self._packed = replace(self.by_scores, packs=True)
        self.base = len(self.plan)

    def run(self) -> Work[GroupOutcome]:
        """Place enough of the pods; then the plan is in force."""
        is_placed = False
        for pins in (self.nominated, {}) if self.nominated else ({},):
            self._pins = pins
            self._attempts_left = ATTEMPTS_PER_POD * len(self.members) + _MORE_ATTEMPTS // self.domain_count
            self.is_certain = True
            is_placed = yield from self.search()
            if is_placed:
                yield from self._place_unpinned()
                break
        return GroupOutcome(is_placed, self.outcomes, self.least, is_certain=self.is_certain)

    def _place_unpinned(self) -> Work[None]:
        """Place those of the additional pods on any node that did not fit on their own nodes."""
        pinned, self._pins = self._pins, {}
        yield from self._place_each(
            [
                queued
                for queued in self.members
                if queued.uid in pinned and not isinstance(self.outcomes.get(queued.uid), Scheduled)
            ],
            self.by_scores,
        )

    def search(self) -> Work[bool]:
        """Return whether enough pods are placed; then the plan is in force."""
        kinds = by_kind(self.members, self.cluster)
        if len(kinds) == 1 and not _depends_on_mates(self.members[0].info):
            return (yield from self.place(self.members, self.by_scores))
        order = hardest = yield from self.hardest_first(kinds)
        if (yield from self.place(in_turn(order, kinds), self.by_scores)):
            return True
        seen: set[tuple[Hashable, ...]] = set()
        while tuple(order) not in seen and len(seen) < _ROUNDS and self._attempts_left:
            seen.add(tuple(order))
            before = self.outcomes
            if (yield from self.place(in_turn(order, kinds), self._packed)):
                return True
            failed = self._failed
            if failed is None or not (yield from self._fits_alone(failed)):
                self.outcomes = before  # in the first round these are the verdicts by scores, as for a single pod
                return False
            kind = _kind(failed.info, self.cluster)
            order = [kind, *(each for each in order if each != kind)]
        self.is_certain = False
        if not self._attempts_left:  # also after an error
            return False
        return (yield from self._depth_first(in_turn(hardest, kinds)))

    def _depth_first(self, members: Sequence[QueuedPodInfo]) -> Work[bool]:
        """Go back to other nodes for the pods before the one that fits nowhere; return whether enough are placed.

        Only for small groups, and with a limit of attempts. If not all pods are needed, those that fit on the most nodes are.
        """
        if len(members) > _DEPTH_FIRST_PODS:
            return False
        before, self._attempts_left = self.outcomes, max(2 * len(members), _DEPTH_FIRST_ATTEMPTS // self.domain_count)
        yield from self.plan.dropping(self.base)
        self.outcomes = {}
        needed, rest = members[-self.least :], members[: -self.least]
        if (yield from self._descend(needed, 0)):
            self._attempts_left = len(rest)
            yield from self._place_each(rest, self._packed)
            return True
        yield from self.plan.dropping(self.base)
        self.outcomes = before
        return False

    def _descend(self, members: Sequence[QueuedPodInfo], at: int) -> Work[bool]:
        """Place the pods from this one on. Every change of the plan is one pod."""
        if at == len(members):
            return True
        queued, tried = members[at], EMPTY
        while self._attempts_left:
            outcome = yield from self._attempt(queued, replace(self._packed, besides=tried))
            yield
            if not isinstance(outcome, Scheduled):
                return False
            if (yield from self._descend(members, at + 1)):
                return True
            yield from self.plan.dropping(self.base + at)
            tried |= self.cluster.nodes.by_name((outcome.assumed.node_name,))
        return False

    def place(self, members: Sequence[QueuedPodInfo], mode: AttemptMode) -> Work[bool]:
        """Place the pods in this order; return whether enough are placed. Otherwise `_failed` is the one that failed last.

        Ends as soon as the rest cannot be enough. Then all placements of this round are taken back.
        """
        yield from self.plan.dropping(self.base)
        self.outcomes, self._failed = {}, None
        placed = 0
        for at, queued in enumerate(members):
            if placed + len(members) - at < self.least or not self._attempts_left:
                break
            outcome = yield from self._attempt(queued, mode)
            if isinstance(outcome, Scheduled):
                placed += 1
            else:
                self._failed = queued
            if isinstance(outcome, SchedulingFailed):
                self._attempts_left = 0  # an error is no result about an order
            yield
        is_error = self._failed is not None and isinstance(self.outcomes[self._failed.uid], SchedulingFailed)
        if placed >= self.least and not is_error:
            return True
        yield from self.plan.dropping(self.base)
        return False

    def fill(self) -> Work[int]:
        """Place as many of the pods as fit, also if they are too few: the best of three orders. Then that plan is in force.

        Returns their number. O(attempts: 4 per pod).
        """
        kinds = by_kind(self.members, self.cluster)
        hardest = in_turn((yield from self.hardest_first(kinds)), kinds)
        orders = [(hardest, self.by_scores), (hardest, self._packed), (hardest[::-1], self._packed)]
        if len(kinds) == 1 and not _depends_on_mates(self.members[0].info):
            del orders[1:]
        counts = []
        for members, mode in orders:
            counts.append((yield from self._filled(members, mode)))
        best = max(range(len(orders)), key=counts.__getitem__)
        return counts[-1] if best == len(orders) - 1 else (yield from self._filled(*orders[best]))

    def _filled(self, members: Iterable[QueuedPodInfo], mode: AttemptMode) -> Work[int]:
        yield from self.plan.dropping(self.base)
        self.outcomes = {}
        yield from self._place_each(members, mode)
        return len(self.plan) - self.base

    def _place_each(self, members: Iterable[QueuedPodInfo], mode: AttemptMode) -> Work[None]:
        """Place those of the pods that fit."""
        for queued in members:
            yield from self._attempt(queued, mode)
            yield

    def _attempt(self, queued: QueuedPodInfo, mode: AttemptMode) -> Work[Outcome]:
        """Try one pod, and add it to the plan if it fits."""
        self._attempts_left -= 1
        self.attempts += 1
        outcome = yield from self.cycle.attempt(queued.info, queued.attempts, mode=self._pinned(queued, mode))
        self.outcomes[queued.uid] = outcome
        if isinstance(outcome, Scheduled):
            self.plan.add(Placement(self.cluster, outcome))
        return outcome

    def _pinned(self, queued: QueuedPodInfo, mode: AttemptMode) -> AttemptMode:
        if queued.uid not in self._pins:
            return mode
        node = self.cluster.nodes.by_name((self._pins[queued.uid],))
        return replace(mode, within=node if mode.within is None else node & mode.within)

    def _fits_alone(self, queued: QueuedPodInfo) -> Work[bool]:
        """Return whether the pod finds a node without the rest of the plan."""
        self._attempts_left = max(0, self._attempts_left - 1)
        self.attempts += 1
        mode = self._pinned(queued, self.by_scores)
        outcome = yield from self.cycle.attempt(queued.info, queued.attempts, mode=mode)
        if isinstance(outcome, Scheduled):
            self.plan.add(Placement(self.cluster, outcome))
            yield from self.plan.dropping(self.base)
        return isinstance(outcome, Scheduled)

    def hardest_first(self, kinds: Mapping[Hashable, Sequence[QueuedPodInfo]]) -> Work[list[Hashable]]:
        """Return the kinds by the number of nodes that can take one pod, then by size, then by name.

        O(kinds × one attempt's filters); constant for one kind, as most groups of equal pods are.
        """
        if len(kinds) == 1:
            return list(kinds)
        keys: dict[Hashable, tuple[int, float, str]] = {}
        for kind, members in kinds.items():
            info = members[0].info
            self.attempts += 1
            nodes = yield from self.cycle.feasible(info, self.by_scores)
            keys[kind] = (nodes.bit_count(), -self._share(info), info.key)
            yield
        return sorted(keys, key=keys.__getitem__)

    def _share(self, info: PodInfo) -> float:
        """Return the largest share of the cluster's capacity, over all resources, that the pod requests. O(requests × nodes)."""
        nodes = self.cluster.nodes
        rows = nodes.resources()
        wanted = ((rows[name], amount) for name, amount in info.requests.items() if name in rows)
        return max((amount / max(1.0, float(nodes.allocatable[row].sum())) for row, amount in wanted), default=0.0)


def by_kind(members: Iterable[QueuedPodInfo], cluster: Cluster) -> dict[Hashable, list[QueuedPodInfo]]:
    """Return kind → pods that the same nodes can take."""
    kinds: dict[Hashable, list[QueuedPodInfo]] = {}
    for queued in members:
        kinds.setdefault(_kind(queued.info, cluster), []).append(queued)
    return kinds


def in_turn(order: Iterable[Hashable], kinds: Mapping[Hashable, Sequence[QueuedPodInfo]]) -> list[QueuedPodInfo]:
    """Return the pods, kind after kind."""
    return [queued for kind in order for queued in kinds[kind]]


def _depends_on_mates(info: PodInfo) -> bool:
    """Return whether the node of one pod may decide about another pod like it, beyond the resources that it takes."""
    return bool(info.claims or info.disks or info.pod.spec.resource_claims or info.spread_shape) or (
        info.pod.spec.affinity is not None
    )


def _kind(info: PodInfo, cluster: Cluster) -> Hashable:
    """Return a value that is equal for pods which the same nodes can take. A pod with volumes is a kind by itself."""
    spec = info.pod.spec
    if info.claims or info.disks:
        return info.uid
    labels = tuple(sorted(info.pod.metadata.labels.items())) if info.spread_shape or spec.affinity is not None else ()
    return (
        tuple(sorted(info.requests.items())),
        info.placement_shape,
        info.spread_shape,
        labels,
        spec.tolerations,
        info.host_ports,
        tuple(_device_kind(key, cluster) for key in claim_keys(info.pod)) if spec.resource_claims else (),
    )


def _device_kind(key: str, cluster: Cluster) -> Hashable:
    """Return what a claim requests. A claim that has devices, or is not there, is a kind by itself."""
    claim = cluster.devices.claims.get(key)
    return key if claim is None or claim.is_allocated else claim.spec
