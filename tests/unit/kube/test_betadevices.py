"""Devices on servers that had them before v1 (docs/spec/dra.md §6)."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.api.decode import Broken
from scheduler.api.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from scheduler.kube.resources import (
    DEVICES,
    KINDS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    TAINT_RULE,
    KindSpec,
    watched,
    with_taint_rules,
)
from simulator.apiserver.kinds.device_versions import to_v1beta1
from simulator.builders.claims import a_claim, a_result, a_toleration, an_option
from simulator.builders.core import Manifest
from simulator.builders.devices import a_device, a_device_class, a_policy, a_slice, a_taint_rule

FULL_CLAIM = (
    a_claim("c")
    .request("r", "gpu", count=2, cel="true", admin=True, capacity={"memory": "1Gi"}, tolerations=[a_toleration("k")])
    .request("all", "gpu", every=True)
    .first_available("f", an_option("a", "gpu", count=3, cel="false"), an_option("b", "other", every=True))
    .match("example.com/model", "r")
    .config("drv", {"a": 1}, "r")
    .allocated(a_result("r", "drv/p/d", share="s", consumed={"memory": "1Gi"}), on="n1")
    .reserved_for("p")
    .condition("drv/p/d", "Ready")
    .finalizer("f")
)
FULL_SLICE = (
    a_slice(
        "n1",
        "drv",
        a_device("d0").attr("model", "x").version("v", "1.2.3").cap("memory", "8Gi", a_policy("1Gi")).shared(),
        a_device("d1")
        .consumes("set", {"c": "1"})
        .taint("k", since="2026-01-01T00:00:00Z")
        .binding("a")
        .binds_to_node(),
        a_device("d2"),
    )
    .counters("set", {"c": "4"})
    .generation(3)
)


@pytest.mark.parametrize(
    ("spec", "manifest"),
    [
        pytest.param(RESOURCE_CLAIM, FULL_CLAIM.obj(), id="a claim with everything"),
        pytest.param(RESOURCE_CLAIM, a_claim("c").obj(), id="a claim for nothing"),
        pytest.param(RESOURCE_SLICE, FULL_SLICE.obj(), id="a slice with everything"),
        pytest.param(RESOURCE_SLICE, a_slice("n1", "drv", a_device("d")).everywhere().obj(), id="for all nodes"),
        pytest.param(RESOURCE_SLICE, a_slice("n1", "drv", a_device("d").on("n1")).per_device().obj(), id="by device"),
        pytest.param(RESOURCE_SLICE, a_slice("n1", "drv").where("zone", "a").obj(), id="by label, without devices"),
        pytest.param(KINDS["DeviceClass"], a_device_class("gpu", "true").extended_resource("a/b").obj(), id="a class"),
    ],
)
def test_every_version_is_read_alike(spec: KindSpec, manifest: Manifest) -> None:
    decoder = spec.decoder()
    newest = decoder.decode(msgspec.json.encode(manifest), "v1")

    assert not isinstance(newest, Broken)
    assert newest == decoder.decode(msgspec.json.encode(manifest), "v1beta2")
    assert newest == decoder.decode(msgspec.json.encode(to_v1beta1(spec.plural, manifest)), "v1beta1")


@pytest.mark.parametrize(("request_", "is_exact"), [
    ({"deviceClassName": "gpu"}, True),
    ({"deviceClassName": "", "allocationMode": "", "count": 0}, False),
    ({"selectors": [{"cel": {"expression": "true"}}]}, True),
    ({"allocationMode": "All"}, True),
    ({"count": 1}, True),
    ({"adminAccess": False}, True),
    ({"tolerations": [{"key": "k"}]}, True),
    ({"capacity": {}}, True),
    ({"firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}, False),
], ids=str)  # fmt: skip
def test_what_makes_a_request_an_exact_one(request_: Manifest, is_exact: bool) -> None:
    manifest = a_claim("c").set({"spec": {"devices": {"requests": [{"name": "r"} | request_]}}}).obj()
    claim = RESOURCE_CLAIM.decoder().decode(msgspec.json.encode(manifest), "v1beta1")
    assert isinstance(claim, ResourceClaim)
    (read,) = claim.spec.devices.requests

    assert ("r", is_exact) == (read.name, read.exactly is not None)
    assert bool(request_.get("firstAvailable")) == bool(read.first_available)


def test_an_empty_node_name_says_nothing() -> None:
    manifest = a_slice("n1", "drv").where("zone", "a").set({"spec": {"nodeName": "", "allNodes": False}}).obj()
    each = RESOURCE_SLICE.decoder().decode(msgspec.json.encode(manifest), "v1beta1")

    assert isinstance(each, ResourceSlice)
    assert (None, None) == (each.spec.node_name, each.spec.all_nodes)


@pytest.mark.parametrize(
    ("spec", "manifest", "field"),
    [
        (
            RESOURCE_SLICE,
            a_slice("n1", "drv")
            .set({"spec": {"devices": [{"name": "d", "basic": {"capacity": {"m": {"value": "much"}}}}]}})
            .obj(),
            "devices[0].basic.capacity",
        ),
        (
            RESOURCE_CLAIM,
            a_claim("c").set({"spec": {"devices": {"requests": [{"count": "two"}]}}}).obj(),
            "requests[0].count",
        ),
    ],
    ids=["a slice", "a claim"],
)
def test_what_cannot_be_read_is_named_as_the_server_has_it(spec: KindSpec, manifest: Manifest, field: str) -> None:
    broken = spec.decoder().decode(msgspec.json.encode(manifest), "v1beta1")

    assert isinstance(broken, Broken)
    assert (spec.name, manifest["metadata"]["name"]) == (broken.kind, broken.metadata.name)
    assert field in broken.why


CEL = [{"cel": {"expression": "device.driver == 'drv'"}}]


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        pytest.param({"deviceClassName": "gpu"}, "deviceClassName", id="by class"),
        pytest.param({"selectors": CEL}, "selectors", id="by CEL"),
        pytest.param({"driver": "drv", "selectors": CEL}, "selectors", id="by driver and CEL"),
        pytest.param({"driver": "drv", "pool": "p", "device": "d"}, "", id="by driver, pool and device"),
        pytest.param({"deviceClassName": None, "selectors": None}, "", id="by null"),
        pytest.param({}, "", id="by nothing"),
        pytest.param(None, "", id="without a selector"),
    ],
)
def test_rules_that_select_by_class_or_cel_are_unreadable(selector: Manifest | None, field: str) -> None:
    """Kubernetes 1.33 and 1.34 had them in v1alpha3. Without these fields they would taint every device."""
    manifest = a_taint_rule("r", "k").set({"spec": {"deviceSelector": selector}}).obj()
    read = TAINT_RULE.decoder().decode(msgspec.json.encode(manifest), "v1alpha3")

    if field:
        assert isinstance(read, Broken)
        assert ("DeviceTaintRule", "r") == (read.kind, read.key)
        assert read.why.endswith(f"- at `$.spec.deviceSelector.{field}`")
    else:
        assert read == TAINT_RULE.decoder().decode(msgspec.json.encode(manifest), "v1beta2")
        assert isinstance(read, DeviceTaintRule)


def test_rules_are_watched_where_devices_and_their_gate_are() -> None:
    """§4.11: few servers have them; a plugin need not name the kind."""
    devices = watched(spec.name for spec in DEVICES)
    named = watched([*(spec.name for spec in DEVICES), TAINT_RULE.name])
    on = DEVICE_GATES_ON | {TAINT_RULES}

    assert (*devices, TAINT_RULE) == with_taint_rules(devices, on) == with_taint_rules(named, on)
    assert devices == with_taint_rules(devices, DEVICE_GATES_ON) == with_taint_rules(named, DEVICE_GATES_ON)
    assert watched([]) == with_taint_rules(watched([]), on)
