"""Every change that is made to claims for devices (docs/spec/dra.md §3.5–§3.12); `writes.DEVICE_RULES` are its permissions.

Each write waits for a token of its own and goes before events, is sent once, and answers the claim as it is then: whoever
must know what became of a lost answer reads the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.core.clock import Clock
from scheduler.core.decode import Broken, ObjectDecoder
from scheduler.core.errors import Conflict, Invalid, NotFound
from scheduler.core.pod import ExtendedResourceClaimStatus, Pod
from scheduler.core.resourceclaims import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.kube import claimbody
from scheduler.kube.kinds import RESOURCE_CLAIM
from scheduler.kube.preconditions import is_namesake
from scheduler.kube.sending import Sending, always
from scheduler.kube.throttle import Throttle
from scheduler.kube.wire import JSON_PATCH, MERGE, STRATEGIC_MERGE, Transport

NEWEST: Final = "v1"


def newest() -> str:
    """The version that claims have where nobody has asked the server."""
    return NEWEST


class ClaimWrites(Sending):
    """The writes of claims for devices, of the `Writer` port.

    `claims_version` is asked for each request: the version of resource.k8s.io in which the server has claims.
    """

    def __init__(
        self,
        transport: Transport,
        throttle: Throttle,
        clock: Clock,
        *,
        may_write: Callable[[], bool] = always,
        claims_version: Callable[[], str] = newest,
    ) -> None:
        super().__init__(transport, throttle, clock, may_write=may_write)
        self._claims_version = claims_version
        self._resource_claims: ObjectDecoder[ResourceClaim] = RESOURCE_CLAIM.decoder()

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Add the finalizer. Precondition: nothing was written since `claim`; `Conflict` otherwise.

        A write of its own, for the server takes nothing but a status where it takes a status; and before the allocation,
        or the claim could be deleted while its devices are in use.
        """
        return await self._change(claim, claimbody.protection(claim), STRATEGIC_MERGE)

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        """Set allocation and first user. Precondition: nothing was written since `claim`; `Conflict` otherwise.

        `Invalid` if the claim has devices already: they cannot be replaced.
        """
        return await self._change_status(claim, claimbody.allocating(claim, allocation, user), JSON_PATCH)

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        """One user more. Precondition: nothing was written since `claim`. `Invalid` if it has as many as it may have."""
        return await self._change_status(claim, claimbody.reserving(claim, user), STRATEGIC_MERGE)

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        """One user less, and nothing if it is none. Precondition: it is this very claim; `Conflict` otherwise."""
        try:
            return await self._change_status(claim, claimbody.releasing(claim, pod_uid), STRATEGIC_MERGE)
        except Invalid as refused:
            if is_namesake(refused):
                raise Conflict(refused.message, status=refused.status, reason=refused.reason) from refused
            raise

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """No devices, no users. Precondition: nothing was written since `claim`; `Conflict` otherwise."""
        return await self._change_status(claim, claimbody.deallocating(claim), MERGE)

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        """A claim for what `claim` asks for, owned by the pod and found by that, by its annotation and by this name.

        Precondition: there is none of this name; `Conflict` otherwise. So it may be repeated after `Ambiguous`.
        """
        version = self._claims_version()
        body = claimbody.extended_claim(claim, pod, version, name=name)
        return self._read_claim(await self._post_once(_collection(pod.metadata.namespace, version), body), version)

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Remove the finalizer, then the claim. Precondition of both: it is this very claim; else there is nothing to do.

        Cancelled between the two it leaves the claim without protection, and the second call ends it.
        """
        path = self._path(claim, self._claims_version())
        try:
            await self._patch_once(path, claimbody.unprotecting(claim), STRATEGIC_MERGE)
        except NotFound:
            return
        except Invalid as refused:
            if is_namesake(refused):
                return
            raise
        try:
            await self._delete_once(path, claimbody.deletion(claim))
        except (NotFound, Conflict):  # gone, or a namesake by now
            return

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Which claim serves which extended resource of which container. Precondition: the pod's uid."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        await self._patch_once(path, claimbody.extended_status(pod, status), STRATEGIC_MERGE)

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        """The newest state, from the server's storage; None when it is gone."""
        version = self._claims_version()
        raw = await self._read(f"{_collection(namespace, version)}/{name}")
        return self._read_claim(raw, version) if raw is not None else None

    async def _change(self, claim: ResourceClaim, body: bytes, content_type: str) -> ResourceClaim | Broken:
        version = self._claims_version()
        return self._read_claim(await self._patch_once(self._path(claim, version), body, content_type), version)

    async def _change_status(self, claim: ResourceClaim, body: bytes, content_type: str) -> ResourceClaim | Broken:
        version = self._claims_version()
        path = f"{self._path(claim, version)}/status"
        return self._read_claim(await self._patch_once(path, body, content_type), version)

    def _path(self, claim: ResourceClaim, version: str) -> str:
        return f"{_collection(claim.metadata.namespace, version)}/{claim.metadata.name}"

    def _read_claim(self, raw: bytes, version: str) -> ResourceClaim | Broken:
        return self._resource_claims.decode(raw, version)


def _collection(namespace: str, version: str) -> str:
    return f"/apis/resource.k8s.io/{version}/namespaces/{namespace}/resourceclaims"
