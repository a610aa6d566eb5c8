"""Claims of a pod are bound, and given back (docs/spec/dra.md §3.8, §3.10).

What a pod does not need, or cannot get to run with, is given back (docs/spec/dra.md §3.5, §3.8, §10.3).

What is in flight goes at once (the cache tells who waits for it); what is written is taken back in the background.

What is decided of a pod's claims is written, and taken back: PreBind, Unreserve, PostFilter (docs/spec/dra.md §3.5–§3.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS
from scheduler.framework.background_writes import BackgroundWrites
from scheduler.framework.handle import Handle
from scheduler.plugins.dra.binding_conditions import ConditionWaiter
from scheduler.plugins.dra.claim_writer import ClaimError, ClaimWriter, WrittenAllocation
from scheduler.plugins.dra.claims import NAMED_ANEW, claim_keys, names_others, not_owned
from scheduler.plugins.dra.device_conflicts import DeviceConflicts, Precedence
from scheduler.plugins.dra.double_check import DeviceDoubleCheck
from scheduler.plugins.dra.extended_resource_claim import ExtendedResourceClaimWriter
from scheduler.plugins.dra.extended_resources import is_in_memory, own_claims
from scheduler.plugins.dra.state import DeviceState

NOTHING_TO_FREE: Final = "no new claims to deallocate"
FREED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
NOT_HELPED: Final = "still not schedulable"


class ClaimReleaser:
    """Those of one profile. `is_thorough`: upstream frees one claim in each attempt, and leaves reservations as they are."""

    def __init__(
        self, cluster: Cluster, writer: ClaimWriter, maker: ExtendedResourceClaimWriter, *, is_thorough: bool
    ) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._writer = writer
        self._maker = maker
        self._is_thorough = is_thorough

    def free(
        self, known: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim], background: BackgroundWrites
    ) -> str:
        """Devices of claims that keep the pod from running anywhere. Returns what upstream says of it.

        Several claims at once only if nobody else uses any of those that are in the way: the others would still be. What
        else is reserved for the pod a daemon that died has left so: given back, or pods that share a useless claim would
        each wait for the others to leave it.
        """
        if not known.claims:
            return NOTHING_TO_FREE
        idle = [claim for claim in useless if all(user.uid == pod.uid for user in claim.status.reserved_for)]
        freed = idle if self._is_thorough and len(idle) == len(useless) else idle[:1]
        for claim in freed:
            background.run(
                partial(self._writer.deallocate, claim), f"deallocate claim {claim.key}", about=claim.key, uid=claim.uid
            )
        if self._is_thorough:
            self._release((claim for claim in known.claims if claim not in freed), pod, background)
        if idle:
            return FREED
        if known.stale is not None:
            stale = known.stale
            background.run(
                partial(self._maker.remove, stale), f"delete claim {stale.key}", about=stale.key, uid=stale.uid
            )
            return DELETED
        return NOT_HELPED

    def take_back(self, known: DeviceState, pod: PodInfo, background: BackgroundWrites) -> None:
        """Everything that the attempt has taken. Safe to repeat."""
        self.land(known)
        is_bound = self._is_bound(pod)  # by somebody else, meanwhile: it runs with what its claims have
        self._maker.unmake(pod.pod, known, background, kept=self._named_made(pod) if is_bound else "")
        if is_bound:
            return
        useless = {claim.uid: claim for claim in self._useless(known, pod)}
        for claim in useless.values():
            background.run(
                partial(self._writer.deallocate, claim), f"deallocate claim {claim.key}", about=claim.key, uid=claim.uid
            )
        known.claims = tuple(claim for claim in known.claims if claim.uid not in useless)
        self._release(known.claims, pod, background)

    def _named_made(self, pod: PodInfo) -> str:
        """The claim for extended resources that the pod's status names."""
        newest = self._cluster.get(pod.uid)
        named = newest.pod.status.extended_resource_claim_status if newest is not None else None
        return named.resource_claim_name if named is not None else ""

    def _useless(self, known: DeviceState, pod: PodInfo) -> Iterator[ResourceClaim]:
        """Claims that were made for the pod, and which its status does not name any more: nobody else will ever use them."""
        newest = self._cluster.get(pod.uid)
        named = claim_keys(newest.pod) if newest is not None else ()
        for claim in own_claims(known) if newest is not None else ():
            latest = self._devices.claims.get(claim.key)
            if claim.key in named or latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            if not not_owned(pod.pod, latest) and len(latest.status.reserved_for) == 1:
                yield latest

    def _release(self, claims: Iterable[ResourceClaim], pod: PodInfo, background: BackgroundWrites) -> None:
        for claim in claims:
            latest = self._devices.claims.get(claim.key)
            if latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            what = f"release claim {claim.key} from pod {pod.key} ({pod.uid})"
            background.run(partial(self._writer.release, latest, pod.uid), what, about=claim.key, uid=claim.uid)

    def land(self, known: DeviceState) -> None:
        """Nothing of the attempt is in flight any more: it is written, or it will never be."""
        signalled, known.signalled = known.signalled, ()
        for uid in signalled:
            self._devices.claims.drop_pending(uid)

    def _is_bound(self, pod: PodInfo) -> bool:
        return self._cluster.get(pod.uid) is not None and not self._cluster.is_assumed(pod.uid)


class ClaimBinder:
    """Of one profile; any number of pods beside each other."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        devices, ours, metrics = handle.cluster.devices, handle.ours, handle.device_metrics
        looks_twice = ours.device_double_check == "on"
        cluster = handle.cluster
        conflicts = None
        if looks_twice:
            conflicts = DeviceConflicts(
                devices, runs=lambda uid: cluster.get(uid) is not None and not cluster.is_assumed(uid)
            )
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
            conflicts=conflicts,
        )
        if looks_twice:
            self._writer.unconfirmed = handle.kept("DynamicResources.unconfirmed", dict[str, WrittenAllocation])
        self._maker = ExtendedResourceClaimWriter(
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
        self._confirmer = DeviceDoubleCheck(
            devices,
            self._writer,
            Precedence(handle.writer.device_claims, handle.clock),
            conflicts=conflicts,
            clock=handle.clock,
            metrics=metrics,
        )
        self._background = handle.kept(
            "DynamicResources.background",
            lambda: BackgroundWrites(handle.clock, given_up=devices.claims.retry_waiting, errors=handle.errors),
        )
        self._giver = ClaimReleaser(handle.cluster, self._writer, self._maker, is_thorough=not ours.parity)

    async def bind(self, known: DeviceState, pod: PodInfo, node_name: str) -> None:
        """Write what was decided, see that nobody else has it, wait until it is ready (§3.10, §3.11).

        Raises ClaimError, ApiError. May be cancelled between two writes.
        """
        await self._background.done(claim.key for claim in known.claims)
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
        self._giver.take_back(known, pod, self._background)

    def free(self, known: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim]) -> str:
        """Give devices back, in the background, that keep the pod from running anywhere; how upstream says it (§3.5)."""
        return self._giver.free(known, pod, useless, self._background)

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
