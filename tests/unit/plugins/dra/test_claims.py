"""The plugin resolves a pod's claims: docs/spec/dra.md §2, rows 264–270, 342–344."""

from __future__ import annotations

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.storage.assume_cache import NotKnown
from scheduler.plugins.dra.claims import Unresolved, claim_keys, claim_name, claims_of, consumer, is_full, not_owned
from simulator.builders.claims import ClaimBuilder, a_claim
from simulator.builders.core import PodBuilder, pod

P = pod("p").uid("p")


def made(name: str = "c") -> ClaimBuilder:
    return a_claim(name).uid(name)


def resolved(builder: PodBuilder, *claims: ClaimBuilder) -> list[str] | str:
    """Return the names of the claims, or the reason why there are none."""
    there = {claim.key: claim for claim in (each.typed() for each in claims)}

    def need(key: str) -> ResourceClaim:
        if key not in there:
            raise NotKnown(f'could not find ResourceClaim "{key}"')
        return there[key]

    try:
        return [claim.metadata.name for claim in claims_of(builder.typed(), need)]
    except Unresolved as error:
        return str(error)


TEMPLATE = P.claim("e", template="t")
GENERATED = TEMPLATE.claim_made("e", "c")


@pytest.mark.parametrize(("builder", "claims", "expected"), [
    pytest.param(GENERATED, [made().owned_by("p", "other").deleting()], 'resourceclaim "c" is being deleted',
        id="§2.2 deletion is reported before a wrong owner"),
    pytest.param(P.claim("e"), [], 'pod "default/p", spec.resourceClaim "e": none of the supported fields are set',
        id="342 neither name nor template"),
    pytest.param(P.claim("e", claim="c").claim("f", claim="c").claim("g", claim="d"), [made(), made("d")], ["c", "d"],
        id="§2.2 a claim under two entries is one claim, in the place of the first"),
    pytest.param(P.claim("e", claim="c").claim("f", claim="gone").claim("g", template="t"), [made()],
        'could not find ResourceClaim "default/gone"', id="§2.2 the first problem is reported"),
])  # fmt: skip
def test_claims_of_a_pod(builder: PodBuilder, claims: list[ClaimBuilder], expected: list[str] | str) -> None:
    """A pod's claims in the order of its entries, or the first reason why it has to wait."""
    assert expected == resolved(builder, *claims)


def test_an_entry_that_has_both_is_taken_by_its_name() -> None:
    """342 §2.1: a name goes before a template, and the owner of a named claim is not checked."""
    both: Pod = P.claim("e", claim="c", template="t").typed()

    assert ("c", False) == claim_name(both, both.spec.resource_claims[0])


def test_keys_of_claims_are_known_as_far_as_their_names_are() -> None:
    """A waiting pod depends on each claim once, and on no entry that has no claim name yet."""
    builder = P.claim("e", claim="c").claim("f", template="t").claim("g", template="u").claim("h", claim="c")
    builder = builder.claim_made("g", "made").claim_made("h", None)

    assert ("default/c", "default/made") == claim_keys(builder.typed())


def test_a_claim_of_another_namespace_is_not_the_pods() -> None:
    """343: the owner of the claim does not matter."""
    claim = a_claim("c", ns="elsewhere").owned_by("p", "p").typed()

    assert "ResourceClaim elsewhere/c is not in the same namespace as Pod default/p" == not_owned(P.typed(), claim)


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(made().reserved_for("p", "p"), True, id="344 the pod"),
    pytest.param(made().reserved_for("x").reserved_for("p", "p"), True, id="344 the pod and another pod"),
    pytest.param(made().reserved_for("p", "earlier"), False, id="344 a namesake"),
    pytest.param(made(), False, id="344 no pod"),
])  # fmt: skip
def test_reserved_for_a_pod(claim: ClaimBuilder, *, expected: bool) -> None:
    """Only the uid counts."""
    assert expected == claim.typed().is_reserved_for("p")


def test_a_pod_is_named_as_a_user_of_a_claim() -> None:
    """§2.3: the user has the resource and no group, because pods are in the core group."""
    user = consumer(P.typed())

    assert ("", "pods", "p", "p") == (user.api_group, user.resource, user.name, user.uid)


@pytest.mark.parametrize(("users", "is_there", "expected"), [
    pytest.param(255, False, False, id="§10.3 one more is allowed"),
    pytest.param(256, False, True, id="§10.3 as many as there may be"),
    pytest.param(255, True, False, id="§10.3 as many as there may be, and this pod is one of them"),
])  # fmt: skip
def test_a_full_claim(users: int, *, is_there: bool, expected: bool) -> None:
    """A claim accepts no 257th user."""
    claim = made()
    for at in range(users):
        claim = claim.reserved_for(f"x{at}")
    if is_there:
        claim = claim.reserved_for("p", "p")

    assert expected == is_full(claim.typed(), "p")
