"""Writes, and takes back, the claims of a pod: PreBind, Unreserve, PostFilter (docs/spec/dra.md §3.5–§3.11, §10.3).

Allocations in flight are released at once, and the cache retries the pods that wait for them. Written allocations
and reservations are taken back in the background.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim, claim_keys
from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS
from scheduler.framework.handle import Handle
from scheduler.framework.wait import BackgroundWrites
from scheduler.plugins.dra.binding.binding_conditions import ConditionWaiter
from scheduler.plugins.dra.binding.claim_writer import ClaimError, ClaimWriter
from scheduler.plugins.dra.binding.device_conflicts import DeviceConflicts
from scheduler.plugins.dra.binding.double_check import DeviceDoubleCheck
from scheduler.plugins.dra.binding.extended_resource_claim import ExtendedResourceClaimWriter
from scheduler.plugins.dra.claims import NAMED_ANEW, not_owned
from scheduler.plugins.dra.extended_resources import is_in_memory, own_claims
from scheduler.plugins.dra.state import DeviceState

NOTHING_TO_FREE: Final = "no new claims to deallocate"
FREED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
NOT_HELPED: Final = "still not schedulable"


class ClaimBinder:
    """Binds and releases claims, for one profile and any number of pods concurrently.

    With parity it releases as upstream: one claim per attempt, and reservations stay.
    """

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._claims = handle.cluster.devices.claims
        self._is_thorough = not handle.ours.parity
        self._has_binding_conditions = handle.feature_gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}
        looks_twice = handle.ours.device_double_check == "on"
        conflicts = DeviceConflicts(handle.cluster.devices, runs=self._is_bound) if looks_twice else None
        self._writer = ClaimWriter(handle, conflicts, stamps=self._has_binding_conditions)
        self._maker = ExtendedResourceClaimWriter(handle, self._writer, must_be_seen=looks_twice)
        self._waiter = ConditionWaiter(args, handle)
        self._double_check = DeviceDoubleCheck(handle, self._writer, conflicts) if conflicts is not None else None
        self._delete_claim = handle.writer.device_claims.delete_claim
        self._background = handle.kept(
            "DynamicResources.background",
            lambda: BackgroundWrites(handle.clock, given_up=self._claims.retry_waiting, errors=handle.errors),
        )

    async def bind(self, device_state: DeviceState, pod: PodInfo, node_name: str) -> None:
        """Write the allocations, check that no other claim had the devices first, and wait for them (§3.10, §3.11).

        Raises ClaimError, ApiError. May be cancelled between two writes.
        """
        # An earlier attempt may still be taking back the same claims. Both writes at once would leave the order to
        # chance.
        await self._background.done(claim.key for claim in device_state.claims)
        self._check_names(device_state, pod)
        written = []
        for claim in device_state.claims:
            if is_in_memory(claim):
                continue
            # Another pod may have finished the same claim in the meantime. Then nothing is written.
            current = self._writer.newest(claim)
            if current.is_allocated and current.is_reserved_for(pod.uid) and claim.uid not in device_state.allocations:
                written.append(current)
                continue
            written.append(await self._writer.bind(pod.pod, claim, device_state.allocations.get(claim.uid)))
        if device_state.special is not None:
            written.append(await self._maker.write(pod.pod, device_state))
        device_state.claims = tuple(written)
        self.land(device_state)
        # All claims are written before the first is checked: the watch shows them together, and a pod waits once.
        if self._double_check is not None:
            await self._double_check.confirm_all(written, pod.uid)
        # The waits above take seconds, in which the claim controller may have named another claim.
        self._check_names(device_state, pod)
        if device_state.special is not None:
            await self._maker.set_pod_status(pod.pod, written[-1].metadata.name, device_state.mappings)
        if self._has_binding_conditions:
            await self._waiter.wait(written, pod.pod, node_name)

    def is_misled(self, device_state: DeviceState, pod: PodInfo) -> bool:
        """Return whether the pod's status now names other claims than the attempt's; the kubelet uses the named ones.

        A claim controller with an old cache may create a second claim and name it in the status.
        """
        newest = self._cluster.get(pod.uid)
        return newest is not None and set(claim_keys(newest.pod)) != {claim.key for claim in own_claims(device_state)}

    def _check_names(self, device_state: DeviceState, pod: PodInfo) -> None:
        if self.is_misled(device_state, pod):
            raise ClaimError(NAMED_ANEW)

    # -- releasing -----------------------------------------------------------------------------------------------------

    def free(self, device_state: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim]) -> str:
        """Deallocate claims that keep the pod from running on any node; return upstream's text for it (§3.5).

        Several claims are deallocated only if the pod is the only user of each of them; otherwise the pod still
        could not run. Other reservations for the pod were left by a daemon that died. They are released too: pods
        that share a useless claim would wait for each other.
        """
        if not device_state.claims:
            return NOTHING_TO_FREE
        # A claim with other users keeps its devices: these pods may run with them.
        idle = [claim for claim in useless if all(user.uid == pod.uid for user in claim.status.reserved_for)]
        freed = idle if self._is_thorough and len(idle) == len(useless) else idle[:1]
        for claim in freed:
            self._run(self._writer.deallocate, "deallocate", claim)
        if self._is_thorough:
            self._release((claim for claim in device_state.claims if claim not in freed), pod)
        if idle:
            return FREED
        if device_state.stale is not None:
            self._run(self._delete_claim, "delete", device_state.stale)
            return DELETED
        return NOT_HELPED

    def free_group(self, pods: Sequence[PodInfo]) -> None:
        """Deallocate the claims of these pods of one group that no other pod uses. O(claims of the pods).

        A claim without users belongs to a pod only if it was made for it.
        """
        uids = {pod.uid for pod in pods}
        for key in dict.fromkeys(key for pod in pods for key in claim_keys(pod.pod)):
            claim = self._claims.get(key)
            if claim is None or not claim.is_allocated:
                continue
            users = [user.uid for user in claim.status.reserved_for]
            owners = [owner.uid for owner in claim.metadata.owner_references if owner.controller]
            if uids.issuperset(users or owners) and (users or owners):
                self._run(self._writer.deallocate, "deallocate", claim)

    def take_back(self, device_state: DeviceState, pod: PodInfo) -> None:
        """Release allocations in flight at once, and written reservations in the background (§3.8). Safe to repeat."""
        self.land(device_state)
        is_bound = self._is_bound(pod.uid)  # another scheduler bound it: it runs with its claims' devices
        newest = self._cluster.get(pod.uid) if is_bound else None
        named = newest.pod.status.extended_resource_claim_status if newest is not None else None
        for made in self._maker.unmake(
            pod.pod, device_state, kept=named.resource_claim_name if named is not None else ""
        ):
            self._run(self._delete_claim, "delete", made)
        if is_bound:
            return
        useless = {claim.uid: claim for claim in self._useless(device_state, pod)}
        for claim in useless.values():
            self._run(self._writer.deallocate, "deallocate", claim)
        device_state.claims = tuple(claim for claim in device_state.claims if claim.uid not in useless)
        self._release(device_state.claims, pod)

    def land(self, device_state: DeviceState) -> None:
        """Drop the attempt's allocations in flight: each is written, or will never be."""
        # The list is emptied before the loop, so a second call, after a cancellation, does nothing.
        signalled, device_state.signalled = device_state.signalled, ()
        for uid in signalled:
            self._claims.drop_pending(uid)

    def _run(self, write: Callable[[ResourceClaim], Awaitable[None]], what: str, claim: ResourceClaim) -> None:
        self._background.run(partial(write, claim), f"{what} claim {claim.key}", about=claim.key, uid=claim.uid)

    def _useless(self, device_state: DeviceState, pod: PodInfo) -> Iterator[ResourceClaim]:
        """Yield claims that were created for the pod and that its status no longer names: no other pod can use them."""
        newest = self._cluster.get(pod.uid)
        if newest is None:
            return
        named = claim_keys(newest.pod)
        for latest in self._reserved(own_claims(device_state), pod):
            if latest.key not in named and not not_owned(pod.pod, latest) and len(latest.status.reserved_for) == 1:
                yield latest

    def _release(self, claims: Iterable[ResourceClaim], pod: PodInfo) -> None:
        for latest in self._reserved(claims, pod):
            what = f"release claim {latest.key} from pod {pod.key} ({pod.uid})"
            write = partial(self._writer.release, latest, pod.uid)
            self._background.run(write, what, about=latest.key, uid=latest.uid)

    def _reserved(self, claims: Iterable[ResourceClaim], pod: PodInfo) -> Iterator[ResourceClaim]:
        """Yield those of the claims that are reserved for the pod, in their newest state."""
        for claim in claims:
            latest = self._claims.get(claim.key)
            if latest is not None and latest.uid == claim.uid and latest.is_reserved_for(pod.uid):
                yield latest

    def _is_bound(self, pod_uid: str) -> bool:
        return self._cluster.get(pod_uid) is not None and not self._cluster.is_assumed(pod_uid)
