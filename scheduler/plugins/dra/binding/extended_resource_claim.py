"""Creates and deletes the claim for a pod's extended resources (docs/spec/dra.md §3.8, §3.10, §3.12).

Its devices are in use without a gap from Reserve on: under a temporary uid, then as the created claim, then as the
watch shows it. The claim's name is chosen before the request, so that a request with a lost answer is repeated
without creating a second claim.

Upstream: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go createExtendedResourceClaimInAPI
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import structlog

from scheduler.api.core_v1 import ContainerExtendedResourceRequest, ExtendedResourceClaimStatus, Pod
from scheduler.api.decode import Broken
from scheduler.api.resource_v1 import ClaimMetadata, ResourceClaim
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.cache.devices.claim_tracker import is_made_for
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import Handle
from scheduler.framework.wait import settle, wait_until
from scheduler.plugins.dra.binding.claim_writer import ClaimError, ClaimWriter
from scheduler.plugins.dra.state import DeviceState

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
KNOWN_WITHIN_S: Final = 120.0
"""Longest time in which the watch may show a created claim."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.1
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LETTERS_COUNT: Final = 5
_BASE_MAX: Final = 58
"""API servers cut generated names at the same length."""


class ExtendedResourceClaimWriter:
    """Writes one claim at a time per pod, and any number of pods concurrently."""

    def __init__(self, handle: Handle, claims: ClaimWriter, *, must_be_seen: bool) -> None:
        """`must_be_seen`: fail if the watch does not show the claim; upstream continues."""
        self._devices = handle.cluster.devices
        self._writer = handle.writer.device_claims
        self._claims = claims
        self._clock = handle.clock
        self._rng = handle.rng
        self._metrics = handle.device_metrics
        self._must_be_seen = must_be_seen

    async def write(self, pod: Pod, device_state: DeviceState) -> ResourceClaim:
        """Create the claim that Reserve has decided, with its devices, and wait until the cache has it.

        The created claim is in `device_state` as soon as it exists. Raises ClaimError, ApiError.
        """
        special = device_state.special
        assert special is not None
        if not device_state.mappings:  # only the pod's overhead requests the resource
            raise ClaimError(f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus")
        made = await self._make(pod, special, device_state)
        # The allocation in flight moves from the temporary uid to the real one. The devices are in use under one of
        # them at each moment.
        self._devices.claims.adopt(special.uid, made)
        device_state.signalled = tuple(made.uid if uid == special.uid else uid for uid in device_state.signalled)
        allocation = device_state.allocations[made.uid] = device_state.allocations.pop(special.uid)
        was_shown = False

        def note_if_shown() -> None:
            nonlocal was_shown
            was_shown = was_shown or self._devices.claims.get_api(made.key) is not None

        unsubscribe = self._devices.subscribe((made.key,), note_if_shown)
        note_if_shown()
        try:
            written = await self._claims.bind(pod, made, allocation, is_new=True)
            if not await self._become_known(written, lambda: was_shown) and self._must_be_seen:
                raise ClaimError(f"claim {written.key}: the watch is behind")
        finally:
            unsubscribe()
        await self._remove_duplicates(pod, written)
        return written

    def unmake(self, pod: Pod, device_state: DeviceState, *, kept: str = "") -> Sequence[ResourceClaim]:
        """Forget the claims that `write` has created, or whose creation was unknown, and return those to delete.

        `kept` is the name of a claim that stays. Safe to repeat.
        """
        if device_state.special is None:
            return ()
        found = {claim.uid: claim for claim in self._devices.claims.all_made_for(pod)}
        if device_state.made is not None:
            found[device_state.made.uid] = device_state.made
        device_state.special = device_state.made = None
        device_state.claims = tuple(claim for claim in device_state.claims if claim.uid not in found)
        return [made for made in found.values() if made.metadata.name != kept]

    async def _make(self, pod: Pod, claim: ResourceClaim, device_state: DeviceState) -> ResourceClaim:
        """Create the claim, and note it at once in `device_state`, to be deleted if the pod is not bound. Raises ClaimError."""
        # `generateName` would let a repeated request create a second claim. A name of our own makes the creation
        # idempotent.
        names = [self._name_for(pod)]

        async def create() -> ResourceClaim | Broken:
            try:
                answer = await self._writer.create_claim(claim, pod, names[-1])
            except Conflict as taken:
                # Conflict: the name exists. It is either ours, from a request with a lost answer, or another
                # creator's, and then a new name is drawn.
                found = await self._made_before(pod, names[-1])
                if found is None:
                    names.append(self._name_for(pod))
                    raise Unavailable(taken.message, status=taken.status, reason=taken.reason) from taken
                answer = found
            device_state.made = _to_remove(answer)  # before the next point of cancellation
            return answer

        try:
            answer = await repeated(self._clock, lambda: settle(create()))
        except ApiError as error:
            self._metrics.claim_created("failure")
            raise ClaimError(f"create claim for extended resources {claim.metadata.namespace}/: {error}") from error
        self._metrics.claim_created("success")
        if isinstance(answer, Broken):
            raise ClaimError(f"{answer.kind} {answer.key} cannot be read: {answer.why}")
        return answer

    async def set_pod_status(
        self, pod: Pod, claim: str, mappings: tuple[ContainerExtendedResourceRequest, ...]
    ) -> None:
        """Write into the pod's status what its containers get of the claim of this name. Raises ClaimError."""
        status = ExtendedResourceClaimStatus(claim, mappings)
        try:
            await repeated(self._clock, lambda: settle(self._writer.set_extended_resource_status(pod, status)))
        except ApiError as error:
            raise ClaimError(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error

    async def _remove_duplicates(self, pod: Pod, kept: ResourceClaim) -> None:
        """Delete claims that a server created although it answered with an error.

        They were created before `kept`, so the watch has shown them.
        """
        # A server may answer with an error after it has written. Such a claim is found only now, in the cache.
        for other in self._devices.claims.all_made_for(pod):
            if other.uid == kept.uid:
                continue
            try:
                await settle(self._writer.delete_claim(other))
            except ApiError as error:  # it has no devices, and is deleted with its pod
                _log.info("not done", what=f"delete claim {other.key}", error=str(error))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _name_for(self, pod: Pod) -> str:
        """Generate a name like an API server, from upstream's prefix."""
        base = f"{pod.metadata.name}-extended-resources-"[:_BASE_MAX]
        return base + "".join(self._rng.choices(_LETTERS, k=_LETTERS_COUNT))

    async def _made_before(self, pod: Pod, name: str) -> ResourceClaim | Broken | None:
        """Return the claim of that name if it is this pod's: the answer to its creation was lost. Raises ApiError."""
        found = await self._writer.read_resource_claim(pod.metadata.namespace, name)
        if isinstance(found, Broken):
            return found if any(owner.uid == pod.metadata.uid for owner in found.metadata.owner_references) else None
        return found if found is not None and is_made_for(found, pod) else None

    async def _become_known(self, claim: ResourceClaim, was_shown: Callable[[], bool]) -> bool:
        """Wait until the cache has the claim as written, or newer; return False if that takes too long.

        Raises ClaimError if it is already gone: the watch has shown it, and it is missing.
        """

        def is_known() -> bool:
            if self._assume(claim):
                return True
            if was_shown():
                raise ClaimError(f"claim {claim.key} got deleted in the meantime")
            return False

        deadline = self._clock.now() + KNOWN_WITHIN_S
        if await wait_until(is_known, self._clock, deadline, subscribe=partial(self._devices.subscribe, (claim.key,))):
            return True
        _log.warning("the watch does not show a claim that was made", claim=claim.key)
        return False

    def _assume(self, claim: ResourceClaim) -> bool:
        try:
            self._devices.claims.assume(claim)
        except NotKnown:
            return False
        except OutOfSync:
            return True  # the watch has a newer version
        return True


async def repeated(clock: Clock, write: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat the write while the server is busy, and after a lost answer: repeating it does no harm."""
    retry = Retry(clock, first_s=_PAUSE_S, tries=_TRIES)
    while True:
        try:
            return await write()
        except (Unavailable, Ambiguous) as error:
            await retry.pause(error)


def _to_remove(answer: ResourceClaim | Broken) -> ResourceClaim:
    """Return a claim that can be deleted; of an unreadable claim name and uid are known."""
    if isinstance(answer, ResourceClaim):
        return answer
    seen = answer.metadata
    return ResourceClaim(ClaimMetadata(name=seen.name, namespace=seen.namespace, uid=seen.uid))
