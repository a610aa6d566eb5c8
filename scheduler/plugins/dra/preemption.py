"""Preemption for devices, and devices for nominated pods (docs/spec/dra.md §10, switch devicePreemption).

Upstream never frees devices in a dry run, and does not remember for which pod the victims leave.
Here a claim frees its devices in a dry run when all its users have left, and the devices of a nominated pod are held:
free ones, or those that are being freed.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, Protocol

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.devices.allocation_state import DeviceUse
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import T, Work
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, StateKey
from scheduler.framework.status import AttemptError, Code, Groups, Rejection
from scheduler.plugins.dra.nominated_devices import HypotheticalNode, Look, NominatedDevices, claims_at
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_verdicts import NO_DEVICES, NodeVerdicts, SearchVerdict

WAITING: Final = Rejection(
    PLUGIN,
    Code.UNRESOLVABLE,
    ("preemption: not eligible due to devices that are being given back on the nominated node.",),
)
GIVE_UP_S: Final = 60.0
"""Longest time for which claims may keep their devices after their last user has gone."""
_REMEMBERED: Final = 4096
_NOTHING: Final[frozenset[str]] = frozenset()


class TimeLimit(Protocol):
    """Limits the time that an attempt may search."""

    def __call__(self, known: DeviceState, work: Work[T]) -> Work[T]:
        """Run the work; raise AttemptError when the attempt has searched for too long."""


class _Wait(NamedTuple):
    """Claims without users that still have devices, and since when."""

    claims: frozenset[str]
    since: float


_AS_IF: Final[StateKey[HypotheticalNode]] = StateKey(f"{PLUGIN}/AsIf")


class DevicePreemption:
    """Device preemption of one profile. Changes only the state of attempts, and nothing if the switch is off."""

    def __init__(self, handle: Handle, verdicts: NodeVerdicts, look: Look) -> None:
        self._is_on = handle.ours.device_preemption == "on"
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._verdicts = verdicts
        self._frees = partial(handle.preempting.frees, handle.cluster)
        self._nominated_devices = NominatedDevices(handle, verdicts, look)
        self._clock = handle.clock
        self._waits = handle.kept("DynamicResources.waits", partial(BoundedCache[str, _Wait], _REMEMBERED))
        """By uid of the preemptor."""

    # -- dry runs ------------------------------------------------------------------------------------------------------

    def left(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """Record that the pod has left the node."""
        as_if = self._as_if(state, slot)
        if as_if is not None:
            as_if.gone.add(other.uid)

    def came(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """Record that the pod is back on the node. The devices of a pod that is nominated to it are held."""
        as_if = self._as_if(state, slot)
        if as_if is not None:
            as_if.gone.discard(other.uid)

    def tried_on(self, state: CycleState, nodes: NodeSet) -> NodeSet:
        """Return the node of this dry run, if it is one of the nodes."""
        return nodes & 1 << state.get(_AS_IF).slot if state.has(_AS_IF) else EMPTY

    def verdict(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[SearchVerdict]:
        """Return the exact verdict for one node, in this dry run if it is one. Raises TimedOut.

        An error is ignored if the search meets it only because devices are kept for nominated pods or freed by
        victims: upstream does neither and would not meet it.
        """
        assert variant.demand is not None
        use = yield from self.use(state, pod, slot)
        if use is not None:
            verdict = yield from self._verdicts.verdict_if(variant.demand, slot, use)
            if not verdict.failed:
                return verdict
        as_it_is = yield from self._verdicts.verdict(variant.demand, slot)
        return as_it_is if use is None or as_it_is.failed else NO_DEVICES

    def use(self, state: CycleState, pod: PodInfo, slot: int) -> Work[DeviceUse | None]:
        """Return the device use on the node for this pod, in this dry run if it is one; None for the current use."""
        known, freed = state.get(STATE), _NOTHING
        if self.tried_on(state, 1 << slot):
            freed = state.get(_AS_IF).freed - {claim.uid for claim in known.claims}
        return (yield from self.besides_kept(known, pod, slot, freed))

    def besides_kept(
        self, known: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str] = _NOTHING
    ) -> Work[DeviceUse | None]:
        """Return the device use on the node with the devices of nominated pods taken; None for the current use.

        `freed` are claims that have freed their devices in a dry run.
        """
        has_none = not self._is_on or (known.nominated is not None and not known.nominated)
        kept = () if has_none else (yield from self._nominated_devices.of(known, pod, slot, freed))
        return self._nominated_devices.as_if(freed, kept) if freed or kept else None

    def _as_if(self, state: CycleState, slot: int) -> HypotheticalNode | None:
        """Return the node of the dry run; None if the pod needs no devices there, or has them."""
        known = state.get(STATE) if self._is_on and state.has(STATE) else None
        variant = known.variant(slot) if known is not None and not known.allocations else None
        if variant is None or variant.demand is None:
            return None
        if not state.has(_AS_IF) or state.get(_AS_IF).slot != slot:
            self._devices.on_nodes.catch_up()
            state.set(_AS_IF, HypotheticalNode(slot, claims_at(self._devices, slot, {})))
        return state.get(_AS_IF)

    # -- nodes where preemption helps ----------------------------------------------------------------------------------

    def preemptible_nodes(
        self, state: CycleState, pod: PodInfo, no: Rejection, *, nodes: NodeSet, timed: TimeLimit
    ) -> Work[NodeSet]:
        """Return the nodes that have too few devices, and enough once pods of lower priority have gone.

        `timed` limits the time. A node whose search takes too long, or begins after the limit, does not count.
        """
        if not self._is_on or not no.is_shortage or pod.pod.spec.preemption_policy == "Never":
            return EMPTY
        known = state.get(STATE)
        self._devices.on_nodes.catch_up()
        claims: dict[int, dict[str, ResourceClaim]] = {}
        helped = EMPTY
        for slot in nodeset.each(nodes & self._nodes.priorities.below(pod.priority)):
            lower_priority = {other.uid for other in self._nodes.pods(slot).values() if other.priority < pod.priority}
            as_if = HypotheticalNode(slot, claims_at(self._devices, slot, claims), lower_priority)
            freed = as_if.freed - {claim.uid for claim in known.claims}
            if freed and (yield from self._suffices(known, pod, slot, freed, timed)):
                helped |= 1 << slot
            yield
        return helped

    def _suffices(
        self, known: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str], timed: TimeLimit
    ) -> Work[bool]:
        try:
            return (yield from timed(known, self._fits(known, pod, slot, freed)))
        except (AttemptError, TimedOut):
            return False

    def _fits(self, known: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str]) -> Work[bool]:
        """Return whether the node has the devices once these claims have freed theirs. Raises TimedOut."""
        variant = known.variant(slot)
        use = yield from self.besides_kept(known, pod, slot, freed)
        if variant is None or variant.demand is None or use is None:
            return False
        return not (yield from self._verdicts.verdict_if(variant.demand, slot, use)).refusal

    # -- waiting for freed devices -------------------------------------------------------------------------------------

    def waits(self, known: DeviceState, pod: PodInfo, refused: Groups, what_if: DryRun, timed: TimeLimit) -> Work[bool]:
        """Return whether devices on the pod's nominated node are being freed, so that it needs no more victims."""
        short = _short(refused) if self._is_on else EMPTY
        nominated = what_if.nominated_to if short else ""
        slot = self._nodes.present_slot(nominated) if nominated else None
        if slot is None or not short >> slot & 1:
            return False
        claims = {claim.uid: claim for claim in claims_at(self._devices, slot, {})}
        leaving = frozenset(uid for uid, claim in claims.items() if self._frees(claim))
        leaving -= {claim.uid for claim in known.claims}
        if not leaving or not (yield from self._suffices(known, pod, slot, leaving, timed)):
            return False
        users = (user.uid for uid in leaving for user in claims[uid].status.reserved_for)
        if any(self._cluster.get(uid) is not None for uid in users):
            self._waits.pop(pod.uid)
            return True
        return self._waited_s(pod.uid, leaving) < GIVE_UP_S

    def _waited_s(self, uid: str, claims: frozenset[str]) -> float:
        now = self._clock.now()
        before = self._waits.get(uid)
        since = before.since if before is not None and claims <= before.claims else now
        self._waits.put(uid, _Wait(claims, since))
        return now - since


def _short(refused: Groups) -> NodeSet:
    """Return the nodes with too few devices."""
    out = EMPTY
    for no, nodes in refused.items():
        if no.plugin == PLUGIN and no.is_shortage:
            out |= nodes
    return out
