"""Builders of claims for devices, of their allocations, and of pods that use them."""

from typing import Any

import pytest

from scheduler.testing.apiserver import ApiServer
from scheduler.testing.apiserver.patches import strategic
from scheduler.testing.builders import Builder, pod
from scheduler.testing.deviceclaimbuilders import (
    ClaimBuilder,
    ClaimTemplateBuilder,
    a_claim,
    a_claim_template,
    a_result,
    a_toleration,
    an_option,
)

_DEVICE = "d.example/n1/d0"
_SHARE = "5f9f0d6c-9e6e-4c8e-8f5e-0d5d8f4a2b11"
_THE_DEVICE = {"driver": "d.example", "pool": "n1", "device": "d0"}


@pytest.mark.parametrize(
    ("built", "path"),
    [
        pytest.param(a_claim("c", ns="ns"), ("spec", "devices"), id="of a claim"),
        pytest.param(a_claim_template("c", ns="ns"), ("spec", "spec", "devices"), id="of a template"),
    ],
)
def test_what_is_asked_for(built: ClaimBuilder | ClaimTemplateBuilder, path: tuple[str, ...]) -> None:
    """Requests, constraints and configurations stand where the kind has them."""
    toleration = a_toleration("k", value="v", effect="NoExecute", seconds=5)
    asked = (
        built.request("a", "gpu")
        .request("b", "gpu", count=2, cel=("x", "y"), capacity={"memory": "1Gi"}, tolerations=[toleration])
        .request("c", "gpu", every=True, admin=True, cel="z")
        .first_available("d", an_option("big", "gpu", count=2), an_option("small", "gpu-small"))
        .match("d.example/numa", "a", "b")
        .distinct("d.example/id")
        .config("d.example", {"k": 1}, "a")
        .config("d.example", {"k": 2})
        .obj()
    )
    here: Any = asked
    for key in path:
        here = here[key]
    assert here["requests"] == [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
        {
            "name": "b",
            "exactly": {
                "deviceClassName": "gpu",
                "allocationMode": "ExactCount",
                "count": 2,
                "selectors": [{"cel": {"expression": "x"}}, {"cel": {"expression": "y"}}],
                "capacity": {"requests": {"memory": "1Gi"}},
                "tolerations": [
                    {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}
                ],
            },
        },
        {
            "name": "c",
            "exactly": {
                "deviceClassName": "gpu",
                "allocationMode": "All",
                "selectors": [{"cel": {"expression": "z"}}],
                "adminAccess": True,
            },
        },
        {
            "name": "d",
            "firstAvailable": [
                {"name": "big", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                {"name": "small", "deviceClassName": "gpu-small", "allocationMode": "ExactCount", "count": 1},
            ],
        },
    ]
    assert here["constraints"] == [
        {"requests": ["a", "b"], "matchAttribute": "d.example/numa"},
        {"distinctAttribute": "d.example/id"},
    ]
    assert here["config"] == [
        {"requests": ["a"], "opaque": {"driver": "d.example", "parameters": {"k": 1}}},
        {"opaque": {"driver": "d.example", "parameters": {"k": 2}}},
    ]
    assert asked["metadata"] == {"name": "c", "namespace": "ns"}


def test_a_template_says_what_its_claims_carry() -> None:
    """Labels and annotations of the claims, not of the template."""
    spec = a_claim_template("t").claim_label("a", "b").claim_annotation("c", "d").obj()["spec"]
    assert spec["metadata"] == {"labels": {"a": "b"}, "annotations": {"c": "d"}}


def test_an_allocated_claim() -> None:
    """With its finalizer, once; usable on one node or on those with a label."""
    result = a_result(
        "r/s",
        _DEVICE,
        admin=True,
        share="u",
        consumed={"memory": "1Gi"},
        tolerations=[a_toleration()],
        binding=("Ready",),
        binding_failure=("Broken",),
    )
    assert result == {
        "request": "r/s",
        **_THE_DEVICE,
        "adminAccess": True,
        "tolerations": [{"operator": "Exists"}],
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Broken"],
        "shareID": "u",
        "consumedCapacity": {"memory": "1Gi"},
    }
    claim = a_claim("c").allocated(a_result("r", _DEVICE)).allocated(a_result("r", _DEVICE), on="n1")
    claim = claim.allocated_config("FromClass", "d.example", {"k": 1}, "r").allocated_at("2026-01-01T00:00:00Z")
    manifest = claim.obj()
    assert manifest["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    parameters = {"opaque": {"driver": "d.example", "parameters": {"k": 1}}}
    assert manifest["status"]["allocation"] == {
        "devices": {
            "results": [{"request": "r", **_THE_DEVICE}],
            "config": [{"source": "FromClass", "requests": ["r"], **parameters}],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        },
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    usable = a_claim("c").allocated(a_result("r", _DEVICE)).usable_where("zone", "a").obj()["status"]["allocation"]
    (term,) = usable["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    assert "nodeSelector" not in a_claim("c").allocated().obj()["status"]["allocation"]


def test_who_uses_a_claim_and_whose_it_is() -> None:
    """Reservations add up; owner and annotations are those that controllers write."""
    claim = a_claim("c").reserved_for("p").reserved_for("q", "u").reserved_for_other("jobs", "j", "w", group="batch")
    assert claim.obj()["status"]["reservedFor"] == [
        {"resource": "pods", "name": "p", "uid": "p-uid"},
        {"resource": "pods", "name": "q", "uid": "u"},
        {"resource": "jobs", "name": "j", "uid": "w", "apiGroup": "batch"},
    ]
    metadata = a_claim("c").owned_by("p", "u").for_entry("e").for_extended_resources().deleting().obj()["metadata"]
    assert metadata["annotations"] == {
        "resource.kubernetes.io/pod-claim-name": "e",
        "resource.kubernetes.io/extended-resource-claim": "true",
    }
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ]
    assert "deletionTimestamp" in metadata


def test_conditions_of_devices() -> None:
    """One entry per device and share; one condition per type, the last word counts."""
    claim = a_claim("c").condition(_DEVICE, "Ready", "False").condition(_DEVICE, "Ready").condition(_DEVICE, "Broken")
    claim = claim.condition(_DEVICE, "Ready", share="u").condition("d.example/n1/d1", "Ready", reason="Why")
    devices = claim.obj()["status"]["devices"]
    told = [
        (entry["device"], entry.get("shareID"), [(each["type"], each["status"]) for each in entry["conditions"]])
        for entry in devices
    ]
    assert told == [
        ("d0", None, [("Ready", "True"), ("Broken", "True")]),
        ("d0", "u", [("Ready", "True")]),
        ("d1", None, [("Ready", "True")]),
    ]
    assert devices[2]["conditions"][0]["reason"] == "Why"


def test_a_pod_that_uses_claims() -> None:
    """Entries, what was made for them, and extended resources."""
    built = pod("p").claim("a", "c").claim("b", template="t").claim_made("b", "p-b-x").claim_made("n", None)
    built = built.extended("d.example/gpu", "1").extended_claim("e", ("main", "d.example/gpu", "container-0-request-0"))
    manifest = built.obj()
    assert manifest["spec"]["resourceClaims"] == [
        {"name": "a", "resourceClaimName": "c"},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]
    resources = {"requests": {"d.example/gpu": "1"}, "limits": {"d.example/gpu": "1"}}
    assert manifest["spec"]["containers"][0]["resources"] == resources
    mapping = {"containerName": "main", "resourceName": "d.example/gpu", "requestName": "container-0-request-0"}
    assert manifest["status"] == {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "n"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": [mapping]},
    }
    typed = pod("p").claim("a", "c").claim("b", template="t").claim_made("n", None).typed()
    assert [each.resource_claim_name for each in typed.spec.resource_claims] == ["c", None]
    assert [each.resource_claim_template_name for each in typed.spec.resource_claims] == [None, "t"]
    assert typed.status.resource_claim_statuses[0].resource_claim_name is None


def test_a_claim_decodes() -> None:
    """What is said arrives in the typed claim."""
    given = a_result("r", _DEVICE, share="u", consumed={"memory": "1Gi"}, binding=("Ready",))
    claim = a_claim("c").request("r", "gpu", count=2, cel="x").first_available("s", an_option("t", "gpu", every=True))
    typed = claim.allocated(given, on="n1").reserved_for("p").condition(_DEVICE, "Ready", share="u").typed()
    first, second = typed.spec.devices.requests
    assert first.exactly is not None
    assert (first.exactly.count, first.exactly.device_class_name, len(first.exactly.selectors)) == (2, "gpu", 1)
    assert [each.allocation_mode for each in second.first_available] == ["All"]
    assert typed.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert typed.is_reserved_for("p-uid")
    allocation = typed.status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    assert (str(result.id), result.share_id, result.binding_conditions) == (_DEVICE, "u", ("Ready",))
    assert result.consumed_capacity is not None
    assert result.consumed_capacity["memory"].value == 1 << 30
    assert allocation.node_selector is not None
    assert [each.share_id for each in typed.status.devices] == ["u"]
    assert not a_claim("c").typed().is_allocated


_ASKS = a_claim("c").request("r", "gpu", count=2, cel='device.driver == "d.example"', tolerations=[a_toleration("k")])


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(_ASKS.match("d.example/numa").config("d.example", {"k": 1}, "r"), id="a claim"),
        pytest.param(a_claim("c").request("r", "gpu", every=True), id="a claim of all devices"),
        pytest.param(a_claim("c").first_available("r", an_option("a", "gpu"), an_option("b", "x")), id="alternatives"),
        pytest.param(
            _ASKS.allocated(a_result("r", _DEVICE, binding=("Ready",), binding_failure=("Broken",)), on="n1")
            .reserved_for("p")
            .condition(_DEVICE, "Ready"),
            id="a claim that is allocated, reserved and told of",
        ),
        pytest.param(
            a_claim("c")
            .request("r", "gpu", capacity={"memory": "1Gi"})
            .allocated(a_result("r", _DEVICE, share=_SHARE, consumed={"memory": "1Gi"}))
            .usable_where("zone", "a")
            .condition(_DEVICE, "Ready", share=_SHARE),
            id="a part of a shared device",
        ),
        pytest.param(a_claim("c").request("r", "gpu").for_entry("e").owned_by("p", "u"), id="a claim of a pod"),
        pytest.param(a_claim_template("t").request("r", "gpu").claim_label("a", "b"), id="a template"),
        pytest.param(pod("p").claim("e", "c").claim("f", template="t"), id="a pod with claims"),
        pytest.param(pod("p").extended("d.example/gpu", "1"), id="a pod with extended resources"),
    ],
)
def test_a_server_takes_them(built: Builder[object]) -> None:
    """With their status, where they have one; it only adds to what they say."""
    manifest = built.obj()
    stored = ApiServer().apply(manifest)
    assert strategic(stored, {"metadata": {}} | {key: manifest[key] for key in manifest if key != "metadata"}) == stored
