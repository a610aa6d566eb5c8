"""Writes, and takes back, the claims of a pod: PreBind, Unreserve, PostFilter (docs/spec/dra.md §3.5–§3.11, §10.3).

Allocations in flight are released at once, and the cache retries the pods that wait for them. Written allocations
and reservations are taken back in the background.
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
from scheduler.plugins.dra.binding.binding_conditions import ConditionWaiter
from scheduler.plugins.dra.binding.claim_writer import ClaimError, ClaimWriter, WrittenAllocation
from scheduler.plugins.dra.binding.device_conflicts import DeviceConflicts, Precedence
from scheduler.plugins.dra.binding.double_check import DeviceDoubleCheck
from scheduler.plugins.dra.binding.extended_resource_claim import ExtendedResourceClaimWriter
from scheduler.plugins.dra.claims import NAMED_ANEW, claim_keys, names_other_claims, not_owned
from scheduler.plugins.dra.extended_resources import is_in_memory, own_claims
from scheduler.plugins.dra.state import DeviceState

NOTHING_TO_FREE: Final = "no new claims to deallocate"
FREED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
NOT_HELPED: Final = "still not schedulable"


class ClaimReleaser:
    """Releases claims, for one profile.

    Without `is_thorough`, as upstream: one claim per attempt, and reservations stay.
    """

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
        """Deallocate claims that keep the pod from running on any node. Returns upstream's text for it.

        Several claims are deallocated only if the pod is the only user of each of them; otherwise the pod still
        could not run. Other reservations for the pod were left by a daemon that died. They are released too: pods
        that share a useless claim would wait for each other.
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
        """Release everything that the attempt has taken. Safe to repeat."""
        self.land(known)
        is_bound = self._is_bound(pod)  # another scheduler bound it: it runs with its claims' devices
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
        """Return the name of the claim for extended resources in the pod's status."""
        newest = self._cluster.get(pod.uid)
        named = newest.pod.status.extended_resource_claim_status if newest is not None else None
        return named.resource_claim_name if named is not None else ""

    def _useless(self, known: DeviceState, pod: PodInfo) -> Iterator[ResourceClaim]:
        """Yield claims that were created for the pod and that its status no longer names: no other pod can use them."""
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
        """Drop the attempt's allocations in flight: each is written, or will never be."""
        signalled, known.signalled = known.signalled, ()
        for uid in signalled:
            self._devices.claims.drop_pending(uid)

    def _is_bound(self, pod: PodInfo) -> bool:
        return self._cluster.get(pod.uid) is not None and not self._cluster.is_assumed(pod.uid)


class ClaimBinder:
    """Binds claims, for one profile and any number of pods concurrently."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        devices, ours, metrics = handle.cluster.devices, handle.ours, handle.device_metrics
        looks_twice = ours.device_double_check == "on"
        cluster = handle.cluster
        conflicts = None
        if looks_twice:
            conflicts = DeviceConflicts(
                devices, runs=lambda uid: cluster.get(uid) is not None and not cluster.is_assumed(uid)
            )
        self._has_binding_conditions = handle.feature_gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}
        self._recorder = handle.recorder
        self._profile = handle.scheduler_name
        self._cluster = cluster
        self._writer = ClaimWriter(
            devices,
            handle.writer.device_claims,
            clock=handle.clock,
            chance=handle.chance,
            metrics=metrics,
            stamps=self._has_binding_conditions,
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
        self._double_check = DeviceDoubleCheck(
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
        self._releaser = ClaimReleaser(handle.cluster, self._writer, self._maker, is_thorough=not ours.parity)

    async def bind(self, known: DeviceState, pod: PodInfo, node_name: str) -> None:
        """Write the allocations, check that no other claim had the devices first, and wait for them (§3.10, §3.11).

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
        self._releaser.land(known)
        await self._double_check.confirm_all(written, pod.uid)
        self._check_names(known, pod)
        if known.special is not None:
            await self._maker.set_pod_status(pod.pod, written[-1].metadata.name, known.mappings)
        if self._has_binding_conditions:
            await self._waiter.wait(written, self._profile, begins=lambda: self._record_wait(pod, node_name))

    def take_back(self, known: DeviceState, pod: PodInfo) -> None:
        """Release allocations in flight at once, and written reservations in the background (§3.8)."""
        self._releaser.take_back(known, pod, self._background)

    def free(self, known: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim]) -> str:
        """Deallocate useless claims in the background; return upstream's text for it (§3.5)."""
        return self._releaser.free(known, pod, useless, self._background)

    def is_misled(self, known: DeviceState, pod: PodInfo) -> bool:
        """Return whether the pod's status now names other claims than the attempt's; the kubelet uses the named ones.

        A claim controller with an old cache may create a second claim and name it in the status.
        """
        newest = self._cluster.get(pod.uid)
        return newest is not None and names_other_claims(newest.pod, own_claims(known))

    def _check_names(self, known: DeviceState, pod: PodInfo) -> None:
        if self.is_misled(known, pod):
            raise ClaimError(NAMED_ANEW)

    def _record_wait(self, pod: PodInfo, node_name: str) -> None:
        self._recorder.event(
            pod.pod,
            controller=self._profile,
            type_="Normal",
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
