"""The resource claim controller, and the DRA driver: pools and their generations, taints, and binding conditions of claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.builders.claims import ClaimBuilder, a_claim, a_claim_template, a_result
from simulator.builders.core import Builder, PodBuilder, pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.actors.dra_driver import PublishingDriver
from tests.actors.mortal import MortalClaimController
from tests.support.clock import VirtualClock
from tests.unit.simulator.stage import add, server_with, settle

CLAIMS = "resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"
TEMPLATE = a_claim_template("t").request("r", "gpu").claim_label("a", "b").claim_annotation("c", "d")
USER = pod("p").claim("e", template="t")
ALLOCATED = a_claim("c").request("r", "gpu").allocated(a_result("r", "d.example/n1/d0"), on="n1")


class Harness:
    """A server, and the controller."""

    def __init__(self, *objects: Builder[object], **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = server_with(*objects, clock=self.clock)
        self.controller = MortalClaimController(self.server, clock=self.clock, **options)

    def add(self, *objects: Builder[object]) -> None:
        add(self.server, *objects)

    def use(self, claim: ClaimBuilder, *users: PodBuilder) -> None:
        """Add the pods, and the claim that is reserved for them."""
        self.add(*users)
        for name in (user.obj()["metadata"]["name"] for user in users):
            claim = claim.reserved_for(name, self.uid(name))
        self.add(claim)

    def settle(self) -> None:
        settle(self.controller)

    def uid(self, name: str) -> str:
        uid: str = self.server.get("pods", name)["metadata"]["uid"]
        return uid

    def claims(self) -> list[dict[str, Any]]:
        return self.server.objects(CLAIMS)

    def made(self, name: str = "p") -> dict[str, str | None]:
        """Return the claims of the entries in the pod's status."""
        statuses = self.server.get("pods", name)["status"].get("resourceClaimStatuses") or []
        return {each["name"]: each.get("resourceClaimName") for each in statuses}

    def claim(self, name: str = "c") -> tuple[list[str], bool, bool]:
        """Return the users, whether the claim is allocated, and whether it has its finalizer."""
        claim = self.server.get(CLAIMS, name)
        status = claim.get("status") or {}
        users = [each["name"] for each in status.get("reservedFor") or []]
        return users, "allocation" in status, FINALIZER in (claim["metadata"].get("finalizers") or [])


# -- claims from templates ---------------------------------------------------------------------------------------------


def test_a_claim_is_made_from_the_template() -> None:
    harness = Harness(TEMPLATE, USER)
    harness.settle()
    (claim,) = harness.claims()
    metadata = claim["metadata"]
    assert metadata["generateName"] == "p-e-"
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "e"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": harness.uid("p"), "controller": True}
    assert metadata["ownerReferences"] == [owner]
    assert claim["spec"] == TEMPLATE.obj()["spec"]["spec"]
    assert harness.made() == {"e": metadata["name"]}
    assert harness.controller.created == 1


@pytest.mark.parametrize(
    ("pod_name", "entry", "prefix"),
    [
        pytest.param("p" * 30, "e" * 25, "p" * 30 + "-" + "e" * 25 + "-", id="it fits"),
        pytest.param("p" * 30, "e" * 26, "p" * 29 + "-" + "e" * 25, id="one too many"),
        pytest.param("p" * 100, "e" * 2, "p" * 54 + "-" + "e", id="a long name of the pod"),
    ],
)
def test_both_parts_of_a_long_name_are_cut_in_proportion(pod_name: str, entry: str, prefix: str) -> None:
    harness = Harness(TEMPLATE, pod(pod_name).claim(entry, template="t"))
    harness.settle()
    assert harness.claims()[0]["metadata"]["generateName"] == prefix


def test_entries_with_templates_claims_and_no_claim() -> None:
    user = USER.claim("f", template="t").claim("g", "c").claim("h", template="t").claim_made("h", None)
    harness = Harness(TEMPLATE, user)
    harness.settle()
    made = harness.made()
    assert made.keys() == {"e", "f", "h"}
    assert made["h"] is None
    assert len({made["e"], made["f"]}) == 2
    assert len(harness.claims()) == 2


def test_a_missing_template_has_an_event_and_is_waited_for() -> None:
    harness = Harness(USER)
    harness.settle()
    harness.controller.look_again()
    harness.settle()
    (event,) = harness.server.objects("events")
    assert (event["reason"], event["type"]) == ("FailedResourceClaimCreation", "Warning")
    assert event["note"] == (
        'PodResourceClaim e: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    )
    assert harness.made() == {}
    harness.add(TEMPLATE)
    harness.settle()
    assert harness.made().keys() == {"e"}


async def test_a_claim_that_is_refused_has_an_event_and_is_retried() -> None:
    """The namespace loses the label for admin access for a while."""
    label = "resource.kubernetes.io/admin-access"
    harness = Harness()
    harness.server.patch("namespaces", "default", {"metadata": {"labels": {label: "true"}}})
    harness.add(a_claim_template("t").request("r", "gpu", admin=True))
    harness.server.patch("namespaces", "default", {"metadata": {"labels": {label: None}}})
    harness.add(USER)
    harness.settle()
    (event,) = harness.server.objects("events")
    assert event["reason"] == "FailedResourceClaimCreation"
    assert event["note"].startswith("PodResourceClaim e: create ResourceClaim : ")
    harness.server.patch("namespaces", "default", {"metadata": {"labels": {label: "true"}}})
    harness.settle()
    assert harness.made() == {}
    await harness.clock.advance(1)
    harness.settle()
    assert harness.made().keys() == {"e"}


def test_a_claim_that_the_status_lacks_is_not_created_twice() -> None:
    harness = Harness(TEMPLATE, USER, loses=1)
    harness.settle()
    (claim,) = harness.claims()
    assert (harness.made(), harness.controller.lost) == ({}, 1)
    harness.controller.look_again()
    harness.settle()
    assert harness.made() == {"e": claim["metadata"]["name"]}
    assert (len(harness.claims()), harness.controller.created) == (1, 1)


def test_a_dead_controller_makes_no_claim_until_it_is_revived() -> None:
    harness = Harness(TEMPLATE)
    harness.controller.die()
    harness.add(USER)
    harness.settle()
    assert harness.claims() == []
    harness.controller.revive()
    harness.settle()
    assert harness.made().keys() == {"e"}


# -- reservations ------------------------------------------------------------------------------------------------------


def _delete(harness: Harness) -> None:
    harness.server.delete("pods", "p")


def _finish(harness: Harness) -> None:
    harness.server.patch("pods", "p", {"status": {"phase": "Succeeded"}}, subresource="status")


@pytest.mark.parametrize(
    ("user", "happens", "is_over"),
    [
        pytest.param(pod("p").claim("e", "c"), _delete, True, id="deleted before it had a node"),
        pytest.param(pod("p").claim("e", "c").bound_to("n1"), _delete, False, id="terminating"),
        pytest.param(pod("p").claim("e", "c").bound_to("n1"), _finish, True, id="ended"),
    ],
)
def test_a_reservation_ends_with_its_pod(user: PodBuilder, happens: Callable[[Harness], None], is_over: bool) -> None:
    harness = Harness()
    harness.use(ALLOCATED, user)
    harness.settle()
    assert harness.claim() == (["p"], True, True)
    happens(harness)
    harness.settle()
    assert harness.claim() == (([], False, False) if is_over else (["p"], True, True))
    assert harness.controller.deallocated == is_over


def test_users_that_are_not_pods_stay() -> None:
    harness = Harness()
    claim = ALLOCATED.reserved_for_other("jobs", "j", "u", group="batch").reserved_for("gone")
    harness.add(claim)
    harness.settle()
    assert harness.claim() == (["j"], True, True)


def test_a_pod_bound_by_hand_gets_its_reservation() -> None:
    """The claim must be allocated."""
    harness = Harness(ALLOCATED, a_claim("free").request("r", "gpu"))
    harness.add(pod("p").claim("e", "c").claim("f", "free").bound_to("n1"), pod("q").claim("e", "c"))
    harness.settle()
    assert harness.claim() == (["p"], True, True)
    assert harness.claim("free") == ([], False, False)


# -- the end of claims -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(ALLOCATED, id="allocated"),
        pytest.param(a_claim("c").request("r", "gpu").finalizer(FINALIZER), id="not allocated"),
    ],
)
def test_a_deleted_claim_without_users_is_removed_at_once(claim: ClaimBuilder) -> None:
    harness = Harness(claim)
    harness.server.delete(CLAIMS, "c")
    harness.settle()
    assert harness.claims() == []


@pytest.mark.parametrize(
    "in_status", [pytest.param(True, id="named in the status"), pytest.param(False, id="not in the status")]
)
def test_the_claim_of_extended_resources_ends_with_its_pod(in_status: bool) -> None:
    harness = Harness()
    harness.add(pod("p").extended("d.example/gpu", "1").bound_to("n1"))
    uid = harness.uid("p")
    harness.add(ALLOCATED.for_extended_resources().owned_by("p", uid).reserved_for("p", uid))
    if in_status:
        status = pod("p").extended_claim("c", ("main", "d.example/gpu", "container-0-request-0")).obj()["status"]
        harness.server.patch("pods", "p", {"status": status}, subresource="status")
    harness.settle()
    assert harness.claim() == (["p"], True, True)
    if in_status:
        _finish(harness)
    else:
        harness.server.delete("pods", "p", grace_s=0)
    harness.settle()
    assert harness.claims() == []


DRIVER = "d.example"
DEVICE = f"{DRIVER}/n1/d0"
FIRST = a_slice("n1", DRIVER, a_device("d0"), a_device("d1"))
SECOND = a_slice("n1", DRIVER, a_device("d2"))
WAITS = a_claim("c").request("r", "gpu")


def allocated(*results: dict[str, Any]) -> ClaimBuilder:
    return WAITS.allocated(*results, on="n1")


PENDING = allocated(a_result("r", DEVICE, binding=("Ready", "Warm"), binding_failure=("Broken", "Lost")))


class DriverHarness:
    def __init__(self, *objects: Builder[object], **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = server_with(*objects, clock=self.clock)
        self.driver = PublishingDriver(self.server, DRIVER, clock=self.clock, **options)

    def settle(self) -> None:
        settle(self.driver)

    def publish(self, *slices: SliceBuilder, **options: Any) -> None:
        self.driver.publish(*slices, **options)
        self.settle()

    def pool(self, name: str = "n1") -> list[str]:
        """Return `devices@generation/count` of each slice."""
        return [
            f"{','.join(device['name'] for device in spec['devices'])}"
            f"@{spec['pool']['generation']}/{spec['pool']['resourceSliceCount']}"
            for spec in (each["spec"] for each in self.server.objects("resourceslices"))
            if spec["pool"]["name"] == name
        ]

    def taints(self) -> dict[str, list[dict[str, Any]]]:
        return {
            device["name"]: device["taints"]
            for each in self.server.objects("resourceslices")
            for device in each["spec"]["devices"]
            if device.get("taints")
        }

    def conditions(self) -> dict[str, list[str]]:
        """Return the types of the true conditions of each device."""
        devices = self.server.get("resourceclaims", "c")["status"].get("devices") or []
        return {
            each["device"]: [condition["type"] for condition in each["conditions"] if condition["status"] == "True"]
            for each in devices
        }


# -- slices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slices", "pool"), [
    pytest.param((FIRST, SECOND), ["d0,d1@1/2", "d2@1/2"], id="nothing changes"),
    pytest.param((FIRST, SECOND.device(a_device("d3"))), ["d0,d1@1/2", "d2,d3@1/2"],
        id="one slice changes: the same generation"),
    pytest.param((SECOND, FIRST), ["d2@2/2", "d0,d1@2/2"], id="two slices change: a new generation"),
    pytest.param((FIRST, SECOND, SECOND), ["d0,d1@2/3", "d2@2/3", "d2@2/3"], id="one more slice: a new generation"),
    pytest.param((FIRST,), ["d0,d1@1/1"], id="one slice less: the same generation"),
])  # fmt: skip
def test_a_change_makes_a_new_generation_if_one_write_is_not_enough(
    slices: tuple[SliceBuilder, ...], pool: list[str]
) -> None:
    """A reader never takes a part of a change for the whole pool."""
    harness = DriverHarness()
    harness.publish(FIRST, SECOND)
    harness.publish(*slices)
    assert harness.pool() == pool


def test_a_pool_may_be_half_published() -> None:
    harness = DriverHarness()
    harness.publish(FIRST, SECOND)
    harness.driver.stall_after(1)
    harness.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    assert harness.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    assert harness.driver.is_publishing
    harness.driver.go_on()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@2/2", "d2,d9@2/2"]
    assert not harness.driver.is_publishing


def test_a_deleted_slice_is_published_again_in_a_new_generation() -> None:
    harness = DriverHarness()
    harness.publish(FIRST, SECOND)
    harness.server.delete("resourceslices", harness.server.objects("resourceslices")[0]["metadata"]["name"])
    harness.settle()
    assert harness.pool() == ["d0,d1@2/2", "d2@2/2"]


def test_a_driver_that_restarts_publishes_a_new_generation() -> None:
    harness = DriverHarness()
    harness.publish(FIRST, SECOND)
    harness.driver.stall_after(1)
    harness.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    harness.driver.die()
    harness.driver.go_on()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    harness.driver.revive()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@3/2", "d2,d9@3/2"]


async def test_devices_get_taints_and_lose_them() -> None:
    harness = DriverHarness()
    harness.publish(FIRST, SECOND)
    harness.driver.taint("n1/d1", "k", effect="NoExecute")
    harness.settle()
    (first,) = harness.taints()["d1"]
    assert (first["key"], first["effect"]) == ("k", "NoExecute")
    await harness.clock.advance(60)
    harness.driver.taint("n1/d1", "l", "v")
    harness.settle()
    assert harness.taints()["d1"][0] == first
    assert [each["key"] for each in harness.taints()["d1"]] == ["k", "l"]
    harness.driver.untaint("n1/d1", "k")
    harness.settle()
    assert [(each["key"], each["value"]) for each in harness.taints()["d1"]] == [("l", "v")]
    assert harness.pool() == ["d0,d1@1/2", "d2@1/2"]
    with pytest.raises(KeyError, match=r"pool n1 of d\.example has no device d7"):
        harness.driver.taint("n1/d7", "k")


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_device_that_cannot_be_prepared() -> None:
    harness = DriverHarness(fault=lambda _: "no power")
    add(harness.server, PENDING)
    harness.settle()
    assert harness.conditions() == {"d0": ["Broken"]}
    (entry,) = harness.server.get("resourceclaims", "c")["status"]["devices"]
    assert (entry["conditions"][0]["reason"], entry["conditions"][0]["message"]) == ("PreparationFailed", "no power")
    assert (harness.driver.prepared, harness.driver.failures) == (0, 1)


def test_an_allocation_that_is_made_again_is_answered_again() -> None:
    answers: list[str | None] = [None, ""]
    harness = DriverHarness(PENDING, fault=lambda _: answers.pop(0))
    harness.settle()
    harness.server.patch("resourceclaims", "c", {"metadata": {"labels": {"a": "b"}}})
    harness.settle()
    assert harness.conditions() == {}
    assert len(harness.driver.preparations) == 1
    harness.server.patch("resourceclaims", "c", {"status": {"allocation": None}}, subresource="status")
    harness.settle()
    harness.server.patch("resourceclaims", "c", {"status": PENDING.obj()["status"]}, subresource="status")
    harness.settle()
    assert harness.conditions() == {"d0": ["Ready", "Warm"]}


def test_only_devices_of_the_driver_with_binding_conditions_are_answered() -> None:
    others = a_result("r", "o.example/n1/x", binding=("Ready",), binding_failure=("Broken",))
    plain = a_result("r", f"{DRIVER}/n1/d1")
    waits = a_result("r", DEVICE, binding=("Ready",), binding_failure=("Broken",))
    harness = DriverHarness(allocated(others, plain, waits).condition("o.example/n1/x", "Other"))
    harness.settle()
    assert harness.conditions() == {"x": ["Other"], "d0": ["Ready"]}


def test_a_dead_driver_answers_no_claim_until_it_is_revived() -> None:
    harness = DriverHarness()
    harness.driver.die()
    add(harness.server, PENDING)
    harness.settle()
    assert harness.conditions() == {}
    harness.driver.revive()
    harness.settle()
    assert harness.conditions() == {"d0": ["Ready", "Warm"]}
