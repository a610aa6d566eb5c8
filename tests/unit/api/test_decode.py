"""Objects that cannot be read are named and stop nothing (ADR 0005); sizes are limited."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, ObjectDecoder, from_manifest
from scheduler.api.resource_v1 import AllocationResult, DeviceClass, ResourceClaim
from scheduler.api.storage_v1 import StorageClass
from scheduler.core import api_json as apijson

_TOO_LARGE = 2**31
_TERM = {"topologyKey": "zone", "labelSelector": {}}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def port(**numbers: int) -> dict[str, Any]:
    return {"containers": [{"ports": [{"containerPort": 80, **numbers}]}]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"priority": _TOO_LARGE}, "$.spec.priority", id="priority"),
        pytest.param({"priority": -_TOO_LARGE - 1}, "$.spec.priority", id="priority, far below"),
        pytest.param(port(hostPort=_TOO_LARGE), "$.spec.containers[0].ports[0].hostPort", id="hostPort"),
        pytest.param(port(containerPort=2**64), "$.spec.containers[0].ports[0].containerPort", id="containerPort"),
        pytest.param(
            {"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 2**64, "preference": {}}]}}},
            f"$.spec.affinity.nodeAffinity.{_PREFERRED}[0].weight",
            id="the weight of what nodes have",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {_PREFERRED: [{"weight": 2**64, "podAffinityTerm": _TERM}]}}},
            f"$.spec.affinity.podAffinity.{_PREFERRED}[0].weight",
            id="the weight of what pods are near",
        ),
        pytest.param(
            {"topologySpreadConstraints": [_SPREAD | {"maxSkew": 2**64}]},
            "$.spec.topologySpreadConstraints[0].maxSkew",
            id="maxSkew",
        ),
        pytest.param(
            {"topologySpreadConstraints": [_SPREAD | {"minDomains": 2**64}]},
            "$.spec.topologySpreadConstraints[0].minDomains",
            id="minDomains",
        ),
    ],
)
def test_numbers_that_the_api_does_not_have(spec: dict[str, Any], field: str) -> None:
    """Nothing else of a pending pod is believed, and whatever counts or compares its numbers is spared."""
    raw = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"schedulerName": "s", **spec}}
    seen = ObjectDecoder("Pod", Pod).decode(json.dumps(raw).encode())

    assert isinstance(seen, Broken)
    assert (seen.key, seen.scheduler_name) == ("default/p", "s")
    assert seen.why.endswith(f"- at `{field}`")


WHOLE = {"request": "r", "driver": "drv", "pool": "p", "device": "d0"}
PART = WHOLE | {"device": "d1", "shareID": "s", "consumedCapacity": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("results", "seen"),
    [
        pytest.param([WHOLE, PART], [("d0", None, None), ("d1", "s", None)], id="as they are"),
        pytest.param([PART | {"consumedCapacity": {"memory": "much"}}], [("d1", None, False)], id="a part is whole"),
        pytest.param([WHOLE | {"adminAccess": True, "shareID": 5}], [("d0", None, True)], id="for administrators"),
        pytest.param([WHOLE | {"device": 5}, PART], [("d1", "s", None)], id="one without a name"),
        pytest.param(["d0", None], None, id="none with a name"),
        pytest.param([], None, id="none"),
        pytest.param("d0", None, id="no list"),
    ],
)
@pytest.mark.parametrize("metadata", [{"name": "c"}, {"name": "c", "labels": 5}], ids=["", "nor its labels"])
def test_what_a_claim_that_cannot_be_read_has(metadata: Any, results: Any, seen: Any) -> None:
    """Each of its devices by itself; whatever else is wrong with it."""
    allocation = {"devices": {"results": results}, "allocationTimestamp": 5}
    raw = {"metadata": metadata, "spec": {"devices": 5}, "status": {"allocation": allocation}}
    read = ObjectDecoder("ResourceClaim", ResourceClaim).decode(json.dumps(raw).encode())

    assert isinstance(read, Broken)
    found = read.allocation
    assert seen == (found and [(each.device, each.share_id, each.admin_access) for each in found.devices.results])


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        pytest.param({}, AllocationResult(), id="an empty status"),
        pytest.param({"allocation": None}, AllocationResult(), id="the allocation is null"),
        pytest.param(None, AllocationResult(), id="the status is null"),
        pytest.param({"allocation": {"devices": 5}}, None, id="the devices are not a mapping"),
        pytest.param({"allocation": 5}, None, id="the allocation is not a mapping"),
        pytest.param(5, None, id="the status is not a mapping"),
    ],
)
def test_whether_a_claim_that_cannot_be_read_has_anything(status: Any, seen: AllocationResult | None) -> None:
    raw = {"metadata": {"name": "c"}, "spec": {"devices": 5}, "status": status}
    read = ObjectDecoder("ResourceClaim", ResourceClaim).decode(json.dumps(raw).encode())

    assert isinstance(read, Broken)
    assert read.allocation == seen


def test_annotations_of_pods_are_not_kept() -> None:
    """Any user may write 256 KiB of them into each pod, and none is read; of nodes and claims some are."""
    metadata = {"name": "x", "annotations": {"note": "n" * 100_000}}
    pod = ObjectDecoder("Pod", Pod).decode(json.dumps({"metadata": metadata, "spec": {"nodeName": "n"}}).encode())
    node = ObjectDecoder("Node", Node).decode(json.dumps({"metadata": metadata}).encode())

    assert isinstance(pod, Pod)
    assert not hasattr(pod.metadata, "annotations")
    assert isinstance(node, Node)
    assert "note" in node.metadata.annotations


ODD = b'{"z":null,"a":1e3,"b":1.0,"c":"\\u00e9\xc3\xa9","d":[null,{"e":null}]}'
CONFIG = b'[{"requests":null},{"opaque":{"driver":"d.x","parameters":' + ODD + b"}}]"


@pytest.mark.parametrize("conditions", [b"[]", b"null"])
def test_the_bytes_of_parameters_are_kept(conditions: bytes) -> None:
    allocation = b'{"devices":{"config":' + CONFIG.replace(b'"requests":null', b'"source":"FromClass"') + b"}}"
    status = b'{"allocation":' + allocation + b',"devices":[{"driver":"d.x","conditions":' + conditions + b"}]}"
    raw = b'{"metadata":{"name":"c"},"spec":{"devices":{"config":' + CONFIG + b'}},"status":' + status + b"}"
    claim = ObjectDecoder("ResourceClaim", ResourceClaim).decode(raw)
    assert isinstance(claim, ResourceClaim), claim
    assert claim.status.allocation is not None
    own, passed_on = claim.spec.devices.config[1].opaque, claim.status.allocation.devices.config[1].opaque
    assert own is not None
    assert own == passed_on
    assert bytes(own.parameters) == ODD


def test_the_bytes_of_parameters_of_a_class() -> None:
    raw = b'{"metadata":{"name":"c","labels":null},"spec":{"selectors":null,"config":' + CONFIG + b"}}"
    seen = ObjectDecoder("DeviceClass", DeviceClass).decode(raw)
    assert isinstance(seen, DeviceClass)
    opaque = seen.spec.config[1].opaque
    assert opaque is not None
    assert bytes(opaque.parameters) == ODD


def test_a_manifest_gives_parameters_too() -> None:
    manifest = {"metadata": {"name": "c"}, "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"b": None}}}]}}
    before = json.dumps(manifest)
    opaque = from_manifest(DeviceClass, manifest).spec.config[0].opaque
    assert opaque is not None
    assert bytes(opaque.parameters) == b'{"b":null}'
    assert json.dumps(manifest) == before


def test_parameters_that_were_cut_are_not_passed_on() -> None:
    """The claim is unreadable instead: its driver would get other parameters than it names."""
    parameters = {"a": apijson.CUT.decode()}
    raw = {"metadata": {"name": "c"}, "spec": {"devices": {"config": [{"opaque": {"parameters": parameters}}]}}}
    claim = ObjectDecoder("ResourceClaim", ResourceClaim).decode(json.dumps(raw).encode())
    assert isinstance(claim, Broken)
    assert (
        claim.why == "the parameters are nested too deeply for this interpreter - at `$.spec.devices.config[0].opaque`"
    )


DEEP = b'{"a":' * 9_900 + b"1" + b"}" * 9_900
SURROGATE = b'{"a":"\\ud800"}'


@pytest.mark.parametrize(
    ("parameters", "read"),
    [
        pytest.param(DEEP, DEEP, id="nested as deeply as a server stores it"),
        pytest.param(SURROGATE, b'{"a":"\\ufffd"}', id="a lone surrogate, as Go reads it"),
    ],
)
@pytest.mark.parametrize("conditions", [b"[]", b"null"])
def test_hostile_parameters(parameters: bytes, read: bytes, conditions: bytes) -> None:
    """They are passed on, or the claim is unreadable; other objects are read."""
    config = b'{"devices":{"config":[{"opaque":{"driver":"d.x","parameters":' + parameters + b"}}]}}"
    status = b'{"devices":[{"driver":"d.x","conditions":' + conditions + b"}]}"
    raw = b'{"metadata":{"name":"c"},"spec":' + config + b',"status":' + status + b"}"
    claim = ObjectDecoder("ResourceClaim", ResourceClaim).decode(raw)
    if isinstance(claim, Broken):
        assert claim.key == "/c"
        assert parameters is DEEP
    else:
        opaque = claim.spec.devices.config[0].opaque
        assert opaque is not None
        assert bytes(opaque.parameters) == read


def decoded(kind: str, typ: Any, **fields: Any) -> Any:
    return ObjectDecoder(kind, typ).decode(msgspec.json.encode({"metadata": {"name": "x"}, **fields}))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param((5_000, 5_000), 2, id="ten thousand names all count"),
        pytest.param((5_000, 5_000, 1), 2, id="an image after the ten-thousandth name does not count"),
        pytest.param((10_001, 1), 0, id="an image with more names than may count ends the list"),
    ],
)
def test_names_of_images_count_up_to_a_limit(counts: tuple[int, ...], expected: int) -> None:
    images = [
        {"names": [f"image-{at}-{number}" for number in range(count)], "sizeBytes": 1}
        for at, count in enumerate(counts)
    ]

    assert len(decoded("Node", Node, status={"images": images}).status.images) == expected


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_a_storage_class_with_too_many_topologies_is_unreadable_and_says_which_field(count: int) -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": [f"z{at}"]}]} for at in range(count)]

    found = decoded("StorageClass", StorageClass, provisioner="p", allowedTopologies=terms)

    assert isinstance(found, Broken) == (count > 1_000)
    if isinstance(found, Broken):
        assert "allowedTopologies" in found.why
