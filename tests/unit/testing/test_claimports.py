"""The scripted server of claims: it keeps what is written, and refuses what a real one refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from scheduler.core.decode import from_manifest
from scheduler.core.errors import Ambiguous, Conflict, Invalid
from scheduler.core.resourceclaims import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.testing.builders import pod
from scheduler.testing.deviceclaimbuilders import a_claim, a_result
from tests.support.ports import ScriptedWriter

FIRST, SECOND = (ConsumerReference(resource="pods", name=name, uid=f"u-{name}") for name in ("p", "q"))
GIVEN = from_manifest(AllocationResult, {"devices": {"results": [a_result("r", "d/p/x")]}})
CLAIM = a_claim("c").uid("u-c").typed()
Write = Callable[[ScriptedWriter, ResourceClaim], Awaitable[object]]


def claim(found: object) -> ResourceClaim:
    assert isinstance(found, ResourceClaim)
    return found


async def test_a_claim_from_beginning_to_end() -> None:
    """Each write shows in a read, newer than the one before; a release twice is one."""
    writer = ScriptedWriter()
    allocated = claim(
        await writer.device_claims.allocate_claim(claim(await writer.device_claims.protect_claim(CLAIM)), GIVEN, FIRST)
    )
    shared = claim(await writer.device_claims.reserve_claim(allocated, SECOND))
    assert (shared.status.allocation, shared.status.reserved_for) == (GIVEN, (FIRST, SECOND))
    released = claim(await writer.device_claims.unreserve_claim(allocated, "u-p"))
    assert released == await writer.device_claims.unreserve_claim(allocated, "u-p")
    assert released.status.reserved_for == (SECOND,)
    freed = claim(await writer.device_claims.deallocate_claim(released))
    assert freed == await writer.device_claims.read_resource_claim("default", "c")
    assert (freed.is_allocated, freed.status.reserved_for, len(freed.metadata.finalizers)) == (False, (), 1)
    versions = [int(each.metadata.resource_version) for each in (allocated, shared, released, freed)]
    assert versions == sorted(set(versions))
    await writer.device_claims.delete_claim(freed)
    assert await writer.device_claims.read_resource_claim("default", "c") is None
    asked = ["protect", "allocate", "reserve", "unreserve", "unreserve", "deallocate", "delete"]
    assert writer.claim_writes == [(what, "default/c") for what in asked]


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda writer, old: writer.device_claims.protect_claim(old), id="protect"),
        pytest.param(lambda writer, old: writer.device_claims.reserve_claim(old, SECOND), id="reserve"),
        pytest.param(lambda writer, old: writer.device_claims.deallocate_claim(old), id="deallocate"),
    ],
)
async def test_what_was_decided_on_an_old_version(write: Write) -> None:
    """Conflict, and nothing changes."""
    writer = ScriptedWriter()
    await writer.device_claims.allocate_claim(claim(await writer.device_claims.protect_claim(CLAIM)), GIVEN, FIRST)
    known = dict(writer.resource_claims)
    with pytest.raises(Conflict):
        await write(writer, CLAIM)
    assert writer.resource_claims == known


async def test_what_a_real_server_refuses() -> None:
    """Other devices, a user without devices, a release of a namesake."""
    writer = ScriptedWriter()
    with pytest.raises(Invalid):
        await writer.device_claims.reserve_claim(CLAIM, FIRST)
    allocated = claim(await writer.device_claims.allocate_claim(CLAIM, GIVEN, FIRST))
    with pytest.raises(Invalid):
        await writer.device_claims.allocate_claim(allocated, AllocationResult(), FIRST)
    with pytest.raises(Conflict):
        await writer.device_claims.unreserve_claim(a_claim("c").uid("another").typed(), "u-p")
    await writer.device_claims.delete_claim(a_claim("c").uid("another").typed())
    assert allocated == await writer.device_claims.read_resource_claim("default", "c")


async def test_a_lost_answer() -> None:
    """The hook sees the claim as it is written, and may lose it."""
    seen: list[tuple[str, str]] = []

    def lose(what: str, written: ResourceClaim) -> None:
        seen.append((what, written.metadata.resource_version))
        raise Ambiguous("connection lost")

    writer = ScriptedWriter(on_claim_written=lose)
    with pytest.raises(Ambiguous):
        await writer.device_claims.protect_claim(CLAIM)
    found = claim(await writer.device_claims.read_resource_claim("default", "c"))
    assert seen == [("protect", found.metadata.resource_version)]


async def test_a_claim_that_is_made() -> None:
    """A uid of its own, owned by the pod; once by each name."""
    writer, owner = ScriptedWriter(), pod("p").uid("u-p").typed()
    one, two = [claim(await writer.device_claims.create_claim(CLAIM, owner, name)) for name in ("one", "two")]
    assert one.uid != two.uid
    with pytest.raises(Conflict):
        await writer.device_claims.create_claim(CLAIM, owner, "one")
    assert one == await writer.device_claims.read_resource_claim("default", one.metadata.name)
    assert (one.spec, one.metadata.owner_references[0].uid) == (CLAIM.spec, "u-p")
