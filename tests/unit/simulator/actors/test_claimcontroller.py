"""The claim controller actor: claims from templates, reservations that end, claims that nobody needs any more."""

from collections.abc import Callable
from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.claims import ClaimBuilder, a_claim, a_claim_template, a_result
from simulator.builders.core import Builder, PodBuilder, pod
from simulator.controllers import ResourceClaimController
from tests.support.clock import VirtualClock

CLAIMS = "resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"
TEMPLATE = a_claim_template("t").request("r", "gpu").claim_label("a", "b").claim_annotation("c", "d")
USER = pod("p").claim("e", template="t")
ALLOCATED = a_claim("c").request("r", "gpu").allocated(a_result("r", "d.example/n1/d0"), on="n1")


class World:
    """A server, and the controller."""

    def __init__(self, *objects: Builder[object], **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock)
        self.add(*objects)
        self.controller = ResourceClaimController(self.server, clock=self.clock, **options)

    def add(self, *objects: Builder[object]) -> None:
        for each in objects:
            self.server.apply(each.obj())

    def use(self, claim: ClaimBuilder, *users: PodBuilder) -> None:
        """The pods first; then the claim, reserved for them by their real uids."""
        self.add(*users)
        for user in users:
            claim = claim.reserved_for(_name(user), self.uid(_name(user)))
        self.add(claim)

    def settle(self) -> None:
        rounds = 0
        while self.controller.step():
            rounds += 1
            assert rounds < 50, "the controller never comes to rest"

    def uid(self, name: str) -> str:
        uid: str = self.server.get("pods", name)["metadata"]["uid"]
        return uid

    def claims(self) -> list[dict[str, Any]]:
        return self.server.objects(CLAIMS)

    def made(self, name: str = "p") -> dict[str, str | None]:
        """What the pod's status tells of its entries."""
        told = self.server.get("pods", name)["status"].get("resourceClaimStatuses") or []
        return {each["name"]: each.get("resourceClaimName") for each in told}

    def claim(self, name: str = "c") -> tuple[list[str], bool, bool]:
        """Names of its users; whether it is allocated; whether it has its finalizer."""
        claim = self.server.get(CLAIMS, name)
        status = claim.get("status") or {}
        users = [each["name"] for each in status.get("reservedFor") or []]
        return users, "allocation" in status, FINALIZER in (claim["metadata"].get("finalizers") or [])


def _name(built: Builder[object]) -> str:
    name: str = built.obj()["metadata"]["name"]
    return name


# -- claims from templates ---------------------------------------------------------------------------------------------


def test_a_claim_is_made_from_the_template() -> None:
    """With the template's labels and annotations, the pod's name and the entry's, and the pod as its controller."""
    world = World(TEMPLATE, USER)
    world.settle()
    (claim,) = world.claims()
    metadata = claim["metadata"]
    assert metadata["generateName"] == "p-e-"
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "e"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": world.uid("p"), "controller": True}
    assert metadata["ownerReferences"] == [owner]
    assert claim["spec"] == TEMPLATE.obj()["spec"]["spec"]
    assert world.made() == {"e": metadata["name"]}
    assert world.controller.created == 1


@pytest.mark.parametrize(
    ("pod_name", "entry", "prefix"),
    [
        pytest.param("p" * 30, "e" * 25, "p" * 30 + "-" + "e" * 25 + "-", id="it fits"),
        pytest.param("p" * 30, "e" * 26, "p" * 29 + "-" + "e" * 25, id="one too many"),
        pytest.param("p" * 100, "e" * 2, "p" * 54 + "-" + "e", id="a long name of the pod"),
    ],
)
def test_names_that_are_too_long_lose_both_their_ends(pod_name: str, entry: str, prefix: str) -> None:
    """In proportion, so that something is left of either."""
    world = World(TEMPLATE, pod(pod_name).claim(entry, template="t"))
    world.settle()
    assert world.claims()[0]["metadata"]["generateName"] == prefix


def test_entries_of_all_sorts() -> None:
    """Two of one template get two claims; one of a claim gets none, nor does one that was found to need none."""
    user = USER.claim("f", template="t").claim("g", "c").claim("h", template="t").claim_made("h", None)
    world = World(TEMPLATE, user)
    world.settle()
    made = world.made()
    assert made.keys() == {"e", "f", "h"}
    assert made["h"] is None
    assert len({made["e"], made["f"]}) == 2
    assert len(world.claims()) == 2


def test_it_waits_for_the_template() -> None:
    """And says so, once."""
    world = World(USER)
    world.settle()
    world.controller.look_again()
    world.settle()
    (event,) = world.server.objects("events")
    assert (event["reason"], event["type"]) == ("FailedResourceClaimCreation", "Warning")
    assert event["note"] == (
        'PodResourceClaim e: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    )
    assert world.made() == {}
    world.add(TEMPLATE)
    world.settle()
    assert world.made().keys() == {"e"}


async def test_a_claim_that_is_refused_is_told_and_tried_again() -> None:
    """Here the namespace may not have admin access any more, and then may again."""
    label = "resource.kubernetes.io/admin-access"
    world = World()
    world.server.patch("namespaces", "default", {"metadata": {"labels": {label: "true"}}})
    world.add(a_claim_template("t").request("r", "gpu", admin=True))
    world.server.patch("namespaces", "default", {"metadata": {"labels": {label: None}}})
    world.add(USER)
    world.settle()
    (event,) = world.server.objects("events")
    assert event["reason"] == "FailedResourceClaimCreation"
    assert event["note"].startswith("PodResourceClaim e: create ResourceClaim : ")
    world.server.patch("namespaces", "default", {"metadata": {"labels": {label: "true"}}})
    world.settle()
    assert world.made() == {}
    await world.clock.advance(1)
    world.settle()
    assert world.made().keys() == {"e"}


def test_it_finds_what_it_had_made_before_it_died() -> None:
    """A claim that the pod's status does not tell is not made twice."""
    world = World(TEMPLATE, USER, loses=1)
    world.settle()
    (claim,) = world.claims()
    assert (world.made(), world.controller.lost) == ({}, 1)
    world.controller.look_again()
    world.settle()
    assert world.made() == {"e": claim["metadata"]["name"]}
    assert (len(world.claims()), world.controller.created) == (1, 1)


def test_a_dead_controller_makes_no_claim_until_it_is_revived() -> None:
    world = World(TEMPLATE)
    world.controller.die()
    world.add(USER)
    world.settle()
    assert world.claims() == []
    world.controller.revive()
    world.settle()
    assert world.made().keys() == {"e"}


# -- reservations ------------------------------------------------------------------------------------------------------


def _delete(world: World) -> None:
    world.server.delete("pods", "p")


def _finish(world: World) -> None:
    world.server.patch("pods", "p", {"status": {"phase": "Succeeded"}}, subresource="status")


def _replace(world: World) -> None:
    world.server.delete("pods", "p", grace_s=0)
    world.add(pod("p"))


@pytest.mark.parametrize(
    ("user", "happens", "is_over"),
    [
        pytest.param(pod("p").claim("e", "c"), _delete, True, id="deleted before it had a node"),
        pytest.param(pod("p").claim("e", "c").bound_to("n1"), _delete, False, id="on its way out"),
        pytest.param(pod("p").claim("e", "c").bound_to("n1"), _finish, True, id="ended"),
        pytest.param(pod("p").claim("e", "c").bound_to("n1"), _replace, True, id="replaced by one of its name"),
        pytest.param(pod("p").claim("e", "c"), lambda _: None, False, id="still waiting"),
    ],
)
def test_a_reservation_ends_with_its_pod(user: PodBuilder, happens: Callable[[World], None], is_over: bool) -> None:
    """The last one takes the allocation and the finalizer with it; the claim of a user stays."""
    world = World()
    world.use(ALLOCATED, user)
    world.settle()
    assert world.claim() == (["p"], True, True)
    happens(world)
    world.settle()
    assert world.claim() == (([], False, False) if is_over else (["p"], True, True))
    assert world.controller.deallocated == is_over


def test_other_users_are_believed() -> None:
    """Whoever is not a pod stays."""
    world = World()
    claim = ALLOCATED.reserved_for_other("jobs", "j", "u", group="batch").reserved_for("gone")
    world.add(claim)
    world.settle()
    assert world.claim() == (["j"], True, True)


def test_a_pod_bound_by_hand_gets_its_reservation() -> None:
    """If the claim is allocated; a scheduler would have done it."""
    world = World(ALLOCATED, a_claim("free").request("r", "gpu"))
    world.add(pod("p").claim("e", "c").claim("f", "free").bound_to("n1"), pod("q").claim("e", "c"))
    world.settle()
    assert world.claim() == (["p"], True, True)
    assert world.claim("free") == ([], False, False)


# -- claims that go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(ALLOCATED, id="allocated"),
        pytest.param(a_claim("c").request("r", "gpu").finalizer(FINALIZER), id="not allocated"),
    ],
)
def test_a_deleted_claim_without_users_goes_at_once(claim: ClaimBuilder) -> None:
    """Whether it is allocated or not."""
    world = World(claim)
    world.server.delete(CLAIMS, "c")
    world.settle()
    assert world.claims() == []


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(_delete, id="deleted before it had a node"),
        pytest.param(_finish, id="ended"),
        pytest.param(_replace, id="replaced by one of its name"),
    ],
)
def test_claims_of_a_template_go_with_their_pod(happens: Callable[[World], None]) -> None:
    """Allocated, reserved, and gone."""
    world = World(TEMPLATE, USER)
    world.settle()
    name = world.made()["e"]
    assert name is not None
    reserved = ALLOCATED.reserved_for("p", world.uid("p")).obj()
    world.server.patch(CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}})
    world.server.patch(CLAIMS, name, {"status": reserved["status"]}, subresource="status")
    world.settle()
    assert world.claim(name) == (["p"], True, True)
    happens(world)
    world.settle()
    assert world.claims() == []


@pytest.mark.parametrize("is_told", [pytest.param(True, id="told by its status"), pytest.param(False, id="not told")])
def test_the_claim_behind_extended_resources_goes_with_its_pod(is_told: bool) -> None:
    """It is found by the pod's status, and by its owner when the pod has gone."""
    world = World()
    world.add(pod("p").extended("d.example/gpu", "1").bound_to("n1"))
    uid = world.uid("p")
    world.add(ALLOCATED.for_extended_resources().owned_by("p", uid).reserved_for("p", uid))
    if is_told:
        status = pod("p").extended_claim("c", ("main", "d.example/gpu", "container-0-request-0")).obj()["status"]
        world.server.patch("pods", "p", {"status": status}, subresource="status")
    world.settle()
    assert world.claim() == (["p"], True, True)
    if is_told:
        _finish(world)
    else:
        world.server.delete("pods", "p", grace_s=0)
    world.settle()
    assert world.claims() == []
