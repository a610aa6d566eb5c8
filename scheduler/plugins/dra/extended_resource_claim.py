"""The claim for a pod's extended resources is made, and unmade (docs/spec/dra.md §3.8, §3.10, §3.12).

Its devices are in use from Reserve on: under a uid of its own, then as the claim that was made, then as what the watch
shows, with no moment in between. It is named before it is made, as a server would have done: so it can be asked for once
more after a lost answer, there is never a second one, and who has made what there is can be read.

Upstream: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go createExtendedResourceClaimInAPI
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from scheduler.api.core_v1 import ContainerExtendedResourceRequest, ExtendedResourceClaimStatus, Pod
from scheduler.api.decode import Broken
from scheduler.api.resource_v1 import ClaimMetadata, ResourceClaim
from scheduler.cache.devices.claim_tracker import is_made_for
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.storage.assume_cache import NotKnown, OutOfSync
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.background_writes import BackgroundWrites
from scheduler.framework.handle import ClaimWrites, DeviceMetrics
from scheduler.framework.wait import settle, wait_until
from scheduler.plugins.dra.claim_writer import ClaimError, ClaimWriter
from scheduler.plugins.dra.state import DeviceState

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
KNOWN_WITHIN_S: Final = 120.0
"""How long our own watch may take to show a claim that we have made."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.1
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LETTERS_COUNT: Final = 5
_BASE_MAX: Final = 58
"""As API servers make names up."""


class ExtendedResourceClaimWriter:
    """One claim at a time per pod, any number of pods beside each other."""

    def __init__(  # noqa: PLR0913 (what it acts through)
        self,
        devices: SharedDRAManager,
        writer: ClaimWrites,
        claims: ClaimWriter,
        *,
        clock: Clock,
        chance: random.Random,
        metrics: DeviceMetrics,
        must_be_seen: bool,
    ) -> None:
        """`must_be_seen`: a claim that the watch does not show in time is given up; upstream goes on without."""
        self._devices = devices
        self._writer = writer
        self._claims = claims
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._must_be_seen = must_be_seen

    async def write(self, pod: Pod, known: DeviceState) -> ResourceClaim:
        """From what Reserve has decided on to a claim that has its devices and that the cache knows.

        What is made stands in `known` from the moment on that it is there. Raises ClaimError, ApiError.
        """
        special = known.special
        assert special is not None
        if not known.mappings:  # nobody but the pod's overhead asks for it
            raise ClaimError(f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus")

        def note(made: ResourceClaim) -> None:
            known.made = made

        made = await self.make(pod, special, made=note)
        self._devices.claims.adopt(special.uid, made)
        known.signalled = tuple(made.uid if uid == special.uid else uid for uid in known.signalled)
        allocation = known.allocations[made.uid] = known.allocations.pop(special.uid)
        sighting = _Sighting(self._devices, made.key)
        try:
            written = await self._claims.bind(pod, made, allocation, is_new=True)
            if not await self._become_known(written, sighting) and self._must_be_seen:
                raise ClaimError(f"claim {written.key}: the watch is behind")
        finally:
            sighting.end()
        await self._remove_others(pod, written)
        return written

    def unmake(self, pod: Pod, known: DeviceState, background: BackgroundWrites, *, kept: str = "") -> None:
        """Remove in the background what `write` has made, or has found to be made after all. Safe to repeat.

        `kept` is the name of a claim that stays.
        """
        if known.special is None:
            return
        found = {claim.uid: claim for claim in self._devices.claims.all_made_for(pod)}
        if known.made is not None:
            found[known.made.uid] = known.made
        known.special = known.made = None
        known.claims = tuple(claim for claim in known.claims if claim.uid not in found)
        for made in (each for each in found.values() if each.metadata.name != kept):
            background.run(partial(self.remove, made), f"delete claim {made.key}", about=made.key, uid=made.uid)

    async def make(self, pod: Pod, claim: ResourceClaim, *, made: Callable[[ResourceClaim], None]) -> ResourceClaim:
        """Make the claim. `made` is told at once what there is to be removed if the pod does not get there.

        Raises ClaimError.
        """
        names = [self._name_for(pod)]

        async def create() -> ResourceClaim | Broken:
            try:
                answer = await self._writer.create_claim(claim, pod, names[-1])
            except Conflict as taken:
                found = await self._made_before(pod, names[-1])
                if found is None:
                    names.append(self._name_for(pod))
                    raise Unavailable(taken.message, status=taken.status, reason=taken.reason) from taken
                answer = found
            made(_to_remove(answer))  # before a cancellation can come in between
            return answer

        try:
            answer = await self._patiently(lambda: settle(create()))
        except ApiError as error:
            self._metrics.claim_created("failure")
            raise ClaimError(f"create claim for extended resources {claim.metadata.namespace}/: {error}") from error
        self._metrics.claim_created("success")
        if isinstance(answer, Broken):
            raise ClaimError(f"{answer.kind} {answer.key} cannot be read: {answer.why}")
        return answer

    async def tell(self, pod: Pod, claim: str, mappings: tuple[ContainerExtendedResourceRequest, ...]) -> None:
        """Say in the pod's status what its containers get of the claim of this name. Raises ClaimError."""
        status = ExtendedResourceClaimStatus(claim, mappings)
        try:
            await self._patiently(lambda: settle(self._writer.set_extended_resource_status(pod, status)))
        except ApiError as error:
            raise ClaimError(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error

    async def remove(self, claim: ResourceClaim) -> None:
        """For good. Nothing if it is gone. Raises ApiError."""
        await self._writer.delete_claim(claim)

    async def _remove_others(self, pod: Pod, kept: ResourceClaim) -> None:
        """What a server has made that said it could not. It was there before `kept`, so the watch has shown it by now."""
        for other in self._devices.claims.all_made_for(pod):
            if other.uid == kept.uid:
                continue
            try:
                await settle(self.remove(other))
            except ApiError as error:  # it has no devices, and goes when its pod goes
                _log.info("not done", what=f"delete claim {other.key}", error=str(error))

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _patiently(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Again while the server is busy, and after a lost answer: a second time does no harm."""
        retry = Retry(self._clock, first_s=_PAUSE_S, tries=_TRIES)
        while True:
            try:
                return await write()
            except (Unavailable, Ambiguous) as error:
                await retry.pause(error)

    def _name_for(self, pod: Pod) -> str:
        """As a server makes it up from upstream's prefix."""
        base = f"{pod.metadata.name}-extended-resources-"[:_BASE_MAX]
        return base + "".join(self._chance.choices(_LETTERS, k=_LETTERS_COUNT))

    async def _made_before(self, pod: Pod, name: str) -> ResourceClaim | Broken | None:
        """The claim of that name if it is one for this pod: then the answer was lost when it was made. Raises ApiError."""
        found = await self._writer.read_resource_claim(pod.metadata.namespace, name)
        if isinstance(found, Broken):
            return found if any(owner.uid == pod.metadata.uid for owner in found.metadata.owner_references) else None
        return found if found is not None and is_made_for(found, pod) else None

    async def _become_known(self, claim: ResourceClaim, sighting: _Sighting) -> bool:
        """Wait until the cache has the claim as it is written, or something newer; False if that takes too long.

        Raises ClaimError when it is gone already.
        """

        def is_known() -> bool:
            if self._assume(claim):
                return True
            if sighting.was_shown:
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
            return True  # the watch knows better
        return True


class _Sighting:
    """Whether the watch has ever shown a claim: one that was shown and is not there any more is gone."""

    def __init__(self, devices: SharedDRAManager, key: str) -> None:
        self.was_shown = False
        self._devices = devices
        self._key = key
        self.end = devices.subscribe((key,), self._look)
        self._look()

    def _look(self) -> None:
        self.was_shown = self.was_shown or self._devices.claims.get_api(self._key) is not None


def _to_remove(answer: ResourceClaim | Broken) -> ResourceClaim:
    """Of a claim that cannot be read enough is known to remove it."""
    if isinstance(answer, ResourceClaim):
        return answer
    seen = answer.metadata
    return ResourceClaim(ClaimMetadata(name=seen.name, namespace=seen.namespace, uid=seen.uid))
