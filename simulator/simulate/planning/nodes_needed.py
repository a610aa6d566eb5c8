"""Find the least number of additional nodes with which every pod is placed, by doubling and bisection over simulations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.core.terminal import counted
from simulator.simulate.input.sources import InputError
from simulator.simulate.outcome import TIME_RAN_OUT, Outcome, Placement

NODES_MAX: Final = 1000
"""More additional nodes are not tried."""
_LIMITS: Final[Mapping[str, str]] = {
    "cannot allocate all claims": "devices",
    "Too many pods": "pods",
    "node(s) exceed max volume count": "attach slots",
    "node(s) did not have enough free storage": "storage",
}
"""Reason of a node in the scheduler's message → what the node has too little of."""
_REASON: Final = re.compile(rf"(\d+) (?:Insufficient (\S+?)|({'|'.join(map(re.escape, _LIMITS))}))(?=[,.](?:\s|$)|$)")


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation with this many nodes more."""

    added: int
    pods: int
    """Pods that were to be scheduled."""
    placed: int
    unfit: Sequence[Placement]
    """Pending pods that were not expected to be pending."""
    refused: Sequence[str]
    """Why workloads have no new pods."""
    most: int
    """With this many nodes more, each pod that is not of a DaemonSet can have one alone."""

    @property
    def fits(self) -> bool:
        """Whether every pod is placed."""
        return not self.unfit and not self.refused

    @property
    def reason(self) -> str:
        """Return the first pod that is not placed, and why; "" if every pod is placed."""
        named = [f"{each.pod}: {' '.join((each.message or each.reason).split())}" for each in self.unfit[:1]]
        return next(iter([*named, *self.refused]), "")


@dataclass(frozen=True, slots=True)
class NodesNeeded:
    """The number of nodes like `like` that are needed; None if no number helps."""

    like: str
    nodes: int | None
    runs: Sequence[Run]
    """By number of added nodes."""

    @property
    def is_empty(self) -> bool:
        """Whether no pod was to be scheduled."""
        return not self.runs[0].pods and self.runs[0].fits

    @property
    def failed(self) -> Run | None:
        """Return the simulation with the most nodes in which a pod is pending; None if there is none."""
        return next((each for each in reversed(self.runs) if not each.fits), None)

    @property
    def limits(self) -> list[str]:
        """Return what the added nodes have too little of, the most frequent first.

        The reasons of the added nodes are those that more nodes give than without them.
        """
        failed = self.failed
        if failed is None:
            return []
        before = _shortages(self.runs[0].unfit) if failed.added else {}
        growth = {limit: nodes - before.get(limit, 0) for limit, nodes in _shortages(failed.unfit).items()}
        return sorted(
            (limit for limit, nodes in growth.items() if nodes > 0), key=lambda limit: (-growth[limit], limit)
        )


def nodes_needed(like: str, simulated: Callable[[int], Outcome]) -> NodesNeeded:
    """Return the least number with which every pod is placed, if more nodes never make another pod pending.

    In any case every pod is placed with this number, and not with one node less. Cost: about two simulations for each
    binary digit of the number. If none helps, all powers of two up to one node per pod, or `NODES_MAX`, are simulated.
    Raises InputError if the time of a simulation runs out.
    """
    runs: dict[int, Run] = {}

    def fits(added: int) -> bool:
        runs[added] = _run(like, added, simulated(added))
        return runs[added].fits

    too_few, enough = -1, 0
    while not fits(enough):
        most = min(runs[enough].most, NODES_MAX)
        if enough >= most:
            return NodesNeeded(like, None, [runs[each] for each in sorted(runs)])
        too_few, enough = enough, min(2 * enough or 1, most)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(middle):
            enough = middle
        else:
            too_few = middle
    return NodesNeeded(like, enough, [runs[each] for each in sorted(runs)])


def _run(like: str, added: int, outcome: Outcome) -> Run:
    if outcome.is_cut_short:  # more nodes would seem not to help
        raise InputError(f"with {counted(added, 'more node')} like {like}: {TIME_RAN_OUT}")
    return Run(
        added,
        len(outcome.placements),
        outcome.placed,
        [each for each in outcome.placements if each.problem and not each.node],
        [f"{each.workload} has no new pods: {each.refused}" for each in outcome.workloads if each.refused],
        most=sum(not each.owner.startswith("DaemonSet/") for each in outcome.placements),
    )


def _shortages(unfit: Sequence[Placement]) -> dict[str, int]:
    """Return what nodes have too little of → the most nodes that a message counts for it."""
    found: dict[str, int] = {}
    for each in unfit:
        for nodes, resource, reason in _REASON.findall(each.message.partition(" preemption: ")[0]):
            limit = resource or _LIMITS[reason]
            found[limit] = max(found.get(limit, 0), int(nodes))
    return found


def as_text(found: NodesNeeded) -> str:
    """Return the answer in one or two lines."""
    failed = found.failed
    limit = f", limited by {' and '.join(found.limits)}" if found.limits else ""
    if found.nodes is None:
        lines = [f"more nodes like {found.like} do not help{limit}"]
    else:
        needed = f"{counted(found.nodes, 'more node')} like {found.like} {'is' if found.nodes == 1 else 'are'} needed"
        lines = [needed + limit]
    if failed is not None:
        nodes = counted(failed.added, "more node")
        lines.append(f"with {nodes}: {failed.placed} of {counted(failed.pods, 'pod')} placed; {failed.reason}")
    return "\n".join(lines) + "\n"
