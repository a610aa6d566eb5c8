"""What the plugin is about to be asked, found out bit by bit, so that a hard search holds up nothing but its own pod.

The lease is renewed and bindings go on meanwhile; other pods wait, as they do for upstream's Filter. So there is an end to it:
for one node filterTimeout (docs/spec/dra.md §3.4), and for an attempt as a whole, over however many nodes. What has been
found out by then is kept for the next attempt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.core.clock import Clock
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import Work
from scheduler.core.verdicts import AttemptError
from scheduler.framework.points import Before
from scheduler.framework.state import CycleState
from scheduler.plugins.dra.alternatives import Alternatives
from scheduler.plugins.dra.board import Boards
from scheduler.plugins.dra.demand import Demand
from scheduler.plugins.dra.errornodes import ErrorNodes
from scheduler.plugins.dra.evicting import Evicting
from scheduler.plugins.dra.searches import Limits
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant

LONGEST_ATTEMPT_S: Final = 30.0
"""So long one pod may keep all others waiting, whatever it asks for; also one node's search, with filterTimeout 0."""
LONGEST_HOLD_S: Final = 2.0
"""So long a search may hold up everything, the renewal of the lease included: where a question cannot rest."""


def limits_of(filter_timeout_s: float, *, parity: bool) -> Limits:
    """0 for none, as the gate or the configuration says it. Parity takes that as it is, also where nobody else has a turn."""
    if parity:
        return Limits(filter_timeout_s, filter_timeout_s)
    resting_s = min(filter_timeout_s or LONGEST_ATTEMPT_S, LONGEST_ATTEMPT_S)
    return Limits(resting_s, min(resting_s, LONGEST_HOLD_S))


class Asked(NamedTuple):
    """Those who can work something out beforehand."""

    boards: Boards
    error_nodes: ErrorNodes
    alternatives: Alternatives
    evicting: Evicting


class Pondering:
    """Of one profile."""

    def __init__(self, asked: Asked, clock: Clock, *, longest_s: float) -> None:
        """`longest_s`: for all that one attempt ponders; 0 is for ever."""
        self._boards, self._error_nodes, self._alternatives, self._evicting = asked
        self._clock = clock
        self._longest_s = longest_s

    def before(self, state: CycleState, pod: PodInfo, nodes: NodeSet, point: Before) -> Work[None] | None:
        """None if there is nothing that may take long."""
        known = state.get(STATE) if state.has(STATE) else None
        if known is None or known.allocations:
            return None
        tried = self._evicting.tried_on(state, nodes)
        if point is Before.FILTER:
            work: Work[None] | None = None
            if known.usable_on or known.worn_out or tried or self._may_err(known.variants, nodes):
                work = self._filtering(state, pod, nodes, tried=tried)
        elif point is Before.SCORE:
            if PLUGIN in state.skip_score:
                return None
            work = self._alternatives.scoring(known, nodes)
        else:
            slot = nodes.bit_length() - 1
            variant = known.variant(slot)
            if variant is None or variant.demand is None:
                return None
            if point is Before.VERIFY:
                if tried:
                    return None  # it was asked the same before Filter
                work = self._judging(state, pod, variant.demand, slot=slot)
            else:
                use = self._evicting.besides_kept(known, pod, slot)
                work = self._boards.settling_allocation(variant.demand, slot, use)
        return self.timed(known, work) if work is not None else None

    def _filtering(self, state: CycleState, pod: PodInfo, nodes: NodeSet, *, tried: NodeSet) -> Work[None]:
        """`tried` is the node that the trial is about, if it is one."""
        known = state.get(STATE)
        for each in known.variants:
            yield from self._errors(each, nodes & ~tried)
        if known.usable_on or known.worn_out:
            yield from self._all(known.variants, nodes)
        slot = tried.bit_length() - 1
        variant = known.variant(slot) if tried else None
        if variant is not None and variant.demand is not None:
            work = self._judging(state, pod, variant.demand, slot=slot)
            if work is not None:
                yield from work

    def _may_err(self, variants: tuple[Variant, ...], nodes: NodeSet) -> bool:
        """Whether nodes must be searched before one is chosen, or it must be found out first which."""
        demands = [(each.demand, nodes & each.nodes) for each in variants if each.demand is not None]
        return any(
            self._error_nodes.settling(demand) is not None or here & self._error_nodes.of(demand)
            for demand, here in demands
        )

    def _errors(self, variant: Variant, nodes: NodeSet) -> Work[None]:
        if variant.demand is None or not nodes & variant.nodes:
            return
        work = self._error_nodes.settling(variant.demand)
        if work is not None:
            yield from work
        here = nodes & variant.nodes & self._error_nodes.of(variant.demand)
        if here:
            yield from self._boards.settling_errors(variant.demand, here)

    def _judging(self, state: CycleState, pod: PodInfo, demand: Demand, *, slot: int) -> Work[None] | None:
        use = self._evicting.use(state, pod, slot)
        if use is None:
            return self._boards.settling(demand, slot)
        return self._boards.settling_allocation(demand, slot, use)

    def _all(self, variants: tuple[Variant, ...], nodes: NodeSet) -> Work[None]:
        for variant in variants:
            here = nodes & variant.nodes
            if variant.demand is not None and here:
                yield from self._boards.settling_all(variant.demand, here)

    def timed(self, known: DeviceState, work: Work[None]) -> Work[None]:
        """Raises AttemptError when the attempt has pondered for too long."""
        began = self._clock.now()
        for _ in work:
            known.pondered_s += self._clock.now() - began
            if 0 < self._longest_s < known.pondered_s:
                raise AttemptError(
                    f'running "{PLUGIN}" filter plugin: timed out trying to allocate devices', plugin=PLUGIN
                )
            yield
            began = self._clock.now()
