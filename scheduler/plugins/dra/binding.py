"""What is decided of a pod's claims is written, and taken back: PreBind, Unreserve, PostFilter (docs/spec/dra.md §3.5–§3.11)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.devicegates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.framework.ports import Handle
from scheduler.plugins.dra.claims import NAMED_ANEW, names_others
from scheduler.plugins.dra.clashes import Clashes
from scheduler.plugins.dra.conditions import ConditionWaiter
from scheduler.plugins.dra.confirming import Confirmer
from scheduler.plugins.dra.errands import Errands
from scheduler.plugins.dra.extended import is_in_memory, own_claims
from scheduler.plugins.dra.giving import Giver
from scheduler.plugins.dra.making import ClaimMaker
from scheduler.plugins.dra.precedence import Precedence
from scheduler.plugins.dra.state import DeviceState
from scheduler.plugins.dra.writing import ClaimError, ClaimWriter, Given


class ClaimBinder:
    """Of one profile; any number of pods beside each other."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        devices, ours, metrics = handle.cluster.devices, handle.ours, handle.device_metrics
        looks_twice = ours.device_double_check == "on"
        cluster = handle.cluster
        clashes = None
        if looks_twice:
            clashes = Clashes(devices, runs=lambda uid: cluster.get(uid) is not None and not cluster.is_assumed(uid))
        self._heeds_conditions = handle.feature_gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}
        self._recorder = handle.recorder
        self._profile = handle.scheduler_name
        self._cluster = cluster
        self._writer = ClaimWriter(
            devices,
            handle.writer.device_claims,
            clock=handle.clock,
            chance=handle.chance,
            metrics=metrics,
            stamps=self._heeds_conditions,
            clashes=clashes,
        )
        if looks_twice:
            self._writer.unconfirmed = handle.kept("DynamicResources.unconfirmed", dict[str, Given])
        self._maker = ClaimMaker(
            devices,
            handle.writer.device_claims,
            self._writer,
            clock=handle.clock,
            chance=handle.chance,
            metrics=metrics,
            must_be_seen=looks_twice,
        )
        self._waiter = ConditionWaiter(
            devices,
            clock=handle.clock,
            metrics=metrics,
            timeout_s=args.binding_timeout_s,
            follows_events=ours.bind_poll == "events",
        )
        self._confirmer = Confirmer(
            devices,
            self._writer,
            Precedence(handle.writer.device_claims, handle.clock),
            clashes=clashes,
            clock=handle.clock,
            metrics=metrics,
        )
        self._errands = handle.kept(
            "DynamicResources.errands",
            lambda: Errands(handle.clock, given_up=devices.claims.ask_again, errors=handle.errors),
        )
        self._giver = Giver(handle.cluster, self._writer, self._maker, is_thorough=not ours.parity)

    async def bind(self, known: DeviceState, pod: PodInfo, node_name: str) -> None:
        """Write what was decided, see that nobody else has it, wait until it is ready (§3.10, §3.11).

        Raises ClaimError, ApiError. May be cancelled between two writes.
        """
        await self._errands.done(claim.key for claim in known.claims)
        self._check_names(known, pod)
        written = []
        for claim in known.claims:
            if is_in_memory(claim):
                continue
            now = self._writer.newest(claim)
            if now.is_allocated and now.is_reserved_for(pod.uid) and claim.uid not in known.allocations:
                written.append(now)
                continue
            written.append(await self._writer.bind(pod.pod, claim, known.allocations.get(claim.uid)))
        if known.special is not None:
            written.append(await self._maker.write(pod.pod, known))
        known.claims = tuple(written)
        self._giver.land(known)
        await self._confirmer.confirm_all(written, pod.uid)
        self._check_names(known, pod)
        if known.special is not None:
            await self._maker.tell(pod.pod, written[-1].metadata.name, known.mappings)
        if self._heeds_conditions:
            await self._waiter.wait(written, self._profile, begins=lambda: self._say_that_we_wait(pod, node_name))

    def take_back(self, known: DeviceState, pod: PodInfo) -> None:
        """What is in flight at once, reservations that are written in the background (§3.8)."""
        self._giver.take_back(known, pod, self._errands)

    def free(self, known: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim]) -> str:
        """Give devices back, in the background, that keep the pod from running anywhere; how upstream says it (§3.5)."""
        return self._giver.free(known, pod, useless, self._errands)

    def is_misled(self, known: DeviceState, pod: PodInfo) -> bool:
        """Whether the pod's status has come to name other claims than those of the attempt: a kubelet goes by what it names.

        A claim controller whose cache lags makes a second one, and names that.
        """
        newest = self._cluster.get(pod.uid)
        return newest is not None and names_others(newest.pod, own_claims(known))

    def _check_names(self, known: DeviceState, pod: PodInfo) -> None:
        if self.is_misled(known, pod):
            raise ClaimError(NAMED_ANEW)

    def _say_that_we_wait(self, pod: PodInfo, node_name: str) -> None:
        self._recorder.event(
            pod.pod,
            controller=self._profile,
            type_="Normal",
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
