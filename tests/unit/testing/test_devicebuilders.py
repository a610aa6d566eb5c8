"""Builders of devices: what is said stands in the manifest, where an API server looks for it."""

from typing import Any

import pytest

from scheduler.testing.apiserver import ApiServer
from scheduler.testing.apiserver.patches import strategic
from scheduler.testing.builders import Builder
from scheduler.testing.devicebuilders import (
    Attribute,
    SliceBuilder,
    a_device,
    a_device_class,
    a_policy,
    a_slice,
    a_taint_rule,
)


def test_a_slice_is_the_whole_pool_of_its_node() -> None:
    """Its name, its pool and its node follow from two words."""
    assert a_slice("n1", "d.example", a_device("d0")).obj() == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-d.example"},
        "spec": {
            "driver": "d.example",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [{"name": "d0"}],
        },
    }


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("a", {"string": "a"}, id="a string"),
        pytest.param(3, {"int": 3}, id="a number"),
        pytest.param(True, {"bool": True}, id="a truth is no number"),
        pytest.param(["a", "b"], {"strings": ["a", "b"]}, id="strings"),
        pytest.param([1], {"ints": [1]}, id="numbers"),
        pytest.param([False], {"bools": [False]}, id="truths"),
    ],
)
def test_an_attribute_has_the_type_of_its_value(value: Attribute, written: dict[str, Any]) -> None:
    """One call for all of them but versions."""
    assert a_device("d").attr("k", value).obj()["attributes"] == {"k": written}


def test_a_device_with_everything() -> None:
    """Each call adds to what stands, and takes nothing away."""
    base = a_device("d").version("v", "1.2.3").versions("w", "1.0.0", "2.0.0").cap("memory", "8Gi")
    policy = a_policy("1Gi", minimum="1Gi", maximum="4Gi", step="1Gi")
    device = (
        base.cap("cores", "4", policy)
        .shared()
        .consumes("gpu0", {"memory": "8Gi"})
        .consumes("gpu1", {"memory": "1Gi"})
        .taint("k", "v", "NoExecute", since="2026-01-01T00:00:00Z")
        .taint("l")
        .binding("Ready")
        .binding_failure("Broken")
        .binds_to_node()
        .maps("cpu", capacity="cores", multiplier="2")
        .obj()
    )
    assert device == {
        "name": "d",
        "attributes": {"v": {"version": "1.2.3"}, "w": {"versions": ["1.0.0", "2.0.0"]}},
        "capacity": {
            "memory": {"value": "8Gi"},
            "cores": {
                "value": "4",
                "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}},
            },
        },
        "allowMultipleAllocations": True,
        "consumesCounters": [
            {"counterSet": "gpu0", "counters": {"memory": {"value": "8Gi"}}},
            {"counterSet": "gpu1", "counters": {"memory": {"value": "1Gi"}}},
        ],
        "taints": [
            {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": "l", "effect": "NoSchedule"},
        ],
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Broken"],
        "bindsToNode": True,
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores", "allocationMultiplier": "2"}},
    }
    assert base.obj()["capacity"] == {"memory": {"value": "8Gi"}}
    assert a_policy("1", "1", "2") == {"default": "1", "validValues": ["1", "2"]}


_SLICE = a_slice("n1", "d.example")
_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}


@pytest.mark.parametrize(
    ("built", "nodes"),
    [
        pytest.param(_SLICE.on("n2"), {"nodeName": "n2"}, id="another node"),
        pytest.param(_SLICE.everywhere(), {"allNodes": True}, id="all nodes"),
        pytest.param(_SLICE.everywhere().where("zone", "a", "b"), {"nodeSelector": _ZONE}, id="nodes by a label"),
        pytest.param(_SLICE.selecting(("zone", "In", "a", "b")), {"nodeSelector": _ZONE}, id="nodes by expressions"),
        pytest.param(_SLICE.per_device(), {"perDeviceNodeSelection": True}, id="told by each device"),
        pytest.param(_SLICE.nowhere(), {}, id="no nodes"),
    ],
)
def test_a_slice_is_for_one_kind_of_nodes(built: SliceBuilder, nodes: dict[str, Any]) -> None:
    """The last word counts, and a server takes only one."""
    spec = built.obj()["spec"]
    assert {key: spec[key] for key in spec if key not in {"driver", "pool"}} == nodes


def test_a_pool_of_several_slices() -> None:
    """Counters in one, devices that say their nodes in another."""
    first = a_slice("n1", "d.example").named("n1-counters").pool("p").generation(3).of(2)
    counters = first.counters("gpu0", {"memory": "8Gi"}).counters("gpu1", {"memory": "4Gi"}).obj()
    assert counters["metadata"] == {"name": "n1-counters"}
    assert counters["spec"]["pool"] == {"name": "p", "generation": 3, "resourceSliceCount": 2}
    assert [each["name"] for each in counters["spec"]["sharedCounters"]] == ["gpu0", "gpu1"]
    assert counters["spec"]["sharedCounters"][1]["counters"] == {"memory": {"value": "4Gi"}}
    devices = (a_device("a").on("n1"), a_device("b").everywhere(), a_device("c").where("zone", "a", "b"))
    listed = first.per_device().device(devices[0]).device(*devices[1:]).obj()["spec"]["devices"]
    assert listed == [
        {"name": "a", "nodeName": "n1"},
        {"name": "b", "allNodes": True},
        {"name": "c", "nodeSelector": _ZONE},
    ]


def test_a_device_class() -> None:
    """Expressions, configuration, an extended resource."""
    assert a_device_class("gpu").obj()["spec"] == {}
    built = a_device_class("gpu", "a").selector("b").config("d.example", {"k": 1}).extended_resource("d.example/gpu")
    assert built.created("2026-01-01T00:00:00Z").obj() == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "selectors": [{"cel": {"expression": "a"}}, {"cel": {"expression": "b"}}],
            "config": [{"opaque": {"driver": "d.example", "parameters": {"k": 1}}}],
            "extendedResourceName": "d.example/gpu",
        },
    }


def test_a_taint_rule() -> None:
    """All devices, until told which; it is of an older version of the API."""
    built = a_taint_rule("r", "k", "v", "NoExecute")
    assert built.obj() == {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {}, "taint": {"key": "k", "value": "v", "effect": "NoExecute"}},
    }
    chosen = built.driver("d.example").pool("p").device("d").since("2026-01-01T00:00:00Z").obj()["spec"]
    assert chosen["deviceSelector"] == {"driver": "d.example", "pool": "p", "device": "d"}
    assert chosen["taint"]["timeAdded"] == "2026-01-01T00:00:00Z"
    assert "deviceSelector" not in built.none().obj()["spec"]


def test_all_of_it_decodes() -> None:
    """What is said arrives in the typed objects."""
    device = (
        a_device("d").attr("a", 1).versions("v", "1.0.0").cap("memory", "1Gi", a_policy("1Mi", step="1Mi")).shared()
    )
    typed = a_slice("n1", "d.example", device.consumes("c", {"memory": "1Gi"}).taint("k")).generation(2).of(3).typed()
    assert (typed.key, typed.spec.node_name, typed.spec.pool.generation) == ("n1-d.example", "n1", 2)
    (decoded,) = typed.spec.devices
    assert (decoded.attributes["a"].int_, decoded.attributes["v"].versions) == (1, ("1.0.0",))
    policy = decoded.capacity["memory"].request_policy
    assert policy is not None
    assert policy.valid_range is not None
    assert policy.valid_range.step is not None
    assert policy.valid_range.step.value == 1 << 20
    assert decoded.consumes_counters[0].counters["memory"].value.value == 1 << 30
    assert (decoded.taints[0].effect, decoded.allow_multiple_allocations) == ("NoSchedule", True)
    counters = a_slice("n1", "d.example").counters("c", {"memory": "1Gi"}).typed().spec.shared_counters
    assert counters[0].counters["memory"].value.value == 1 << 30
    assert device.typed().allow_multiple_allocations
    device_class = a_device_class("gpu", "x").config("d.example", {"k": 1}).extended_resource("d.example/gpu").typed()
    assert device_class.spec.selectors[0].cel is not None
    assert device_class.spec.selectors[0].cel.expression == "x"
    assert device_class.spec.extended_resource_name == "d.example/gpu"
    rule = a_taint_rule("r", "k").pool("p").typed().spec
    assert rule.device_selector is not None
    assert rule.device_selector.selects("d", "p", "x")
    assert not rule.device_selector.selects("d", "q", "x")


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(
            a_slice("n1", "d.example", a_device("d").attr("a", 1).cap("memory", "1Gi")), id="a node's devices"
        ),
        pytest.param(
            a_slice("p", "d.example", a_device("d").taint("k", since="2026-01-01T00:00:00Z")).everywhere(),
            id="devices of all nodes",
        ),
        pytest.param(
            a_slice("p", "d.example", a_device("d").binding("Ready").binding_failure("Broken").binds_to_node()).where(
                "zone", "a", "b"
            ),
            id="devices of some nodes",
        ),
        pytest.param(a_slice("p", "d.example", a_device("d").on("n1")).per_device(), id="devices with nodes each"),
        pytest.param(a_slice("p", "d.example").counters("c", {"memory": "1Gi"}).of(2), id="counters"),
        pytest.param(
            a_slice("n1", "d.example", a_device("d").consumes("c", {"memory": "1Gi"})).of(2), id="devices that count"
        ),
        pytest.param(
            a_slice("n1", "d.example", a_device("d").shared().cap("m", "4Gi", a_policy("1Gi", "1Gi", "2Gi"))),
            id="a shared device",
        ),
        pytest.param(
            a_device_class("gpu", 'device.driver == "d.example"').config("d.example", {"k": 1}), id="a device class"
        ),
        pytest.param(a_device_class("gpu").extended_resource("d.example/gpu"), id="a class of an extended resource"),
        pytest.param(a_taint_rule("r", "k").pool("p").since("2026-01-01T00:00:00Z"), id="a taint rule"),
    ],
)
def test_a_server_takes_them(built: Builder[object]) -> None:
    """It only adds to what they say."""
    manifest = built.obj()
    stored = ApiServer().apply(manifest)
    assert strategic(stored, {"metadata": {}} | {key: manifest[key] for key in manifest if key != "metadata"}) == stored
