"""Objects that cannot be read, or only in parts, are named and stop nothing (ADR 0005); sizes are limited."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import msgspec
import pytest

from scheduler.api import core_v1, podinfo, selectors
from scheduler.api.core_v1 import Affinity, Container, Node, NodeAffinity, Pod, PodSpec, ResourceRequirements
from scheduler.api.decode import HIGHEST_PRIORITY, Broken, ObjectDecoder, PartlyReadPod, from_manifest
from scheduler.api.meta import GroupAnnotations, Metadata, PodMetadata
from scheduler.api.podinfo import host_ports, pod_info, requests_of
from scheduler.api.quantity import UNREADABLE, parse
from scheduler.api.resource_v1 import AllocationResult, DeviceClass, ResourceClaim
from scheduler.api.storage_v1 import StorageClass
from scheduler.core import api_json as apijson

_TOO_LARGE = 2**31
_TERM = {"topologyKey": "zone", "labelSelector": {}}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def port(**numbers: int) -> dict[str, Any]:
    return {"containers": [{"ports": [{"containerPort": 80, **numbers}]}]}


@pytest.mark.parametrize(("spec", "field"), [
    pytest.param({"priority": _TOO_LARGE}, "$.spec.priority", id="priority"),
    pytest.param({"priority": -_TOO_LARGE - 1}, "$.spec.priority", id="priority, far below"),
    pytest.param(port(hostPort=_TOO_LARGE), "$.spec.containers[0].ports[0].hostPort", id="hostPort"),
    pytest.param(port(containerPort=2**64), "$.spec.containers[0].ports[0].containerPort", id="containerPort"),
    pytest.param({"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 2**64, "preference": {}}]}}},
        f"$.spec.affinity.nodeAffinity.{_PREFERRED}[0].weight", id="the weight of what nodes have"),
    pytest.param({"affinity": {"podAffinity": {_PREFERRED: [{"weight": 2**64, "podAffinityTerm": _TERM}]}}},
        f"$.spec.affinity.podAffinity.{_PREFERRED}[0].weight", id="the weight of what pods are near"),
    pytest.param({"topologySpreadConstraints": [_SPREAD | {"maxSkew": 2**64}]},
        "$.spec.topologySpreadConstraints[0].maxSkew", id="maxSkew"),
    pytest.param({"topologySpreadConstraints": [_SPREAD | {"minDomains": 2**64}]},
        "$.spec.topologySpreadConstraints[0].minDomains", id="minDomains"),
])  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("", 0), ("x", 0), ("²", 0), ("9" * 21, 0)],
    ids=["a number", "none", "a word", "a digit that is no number", "too long"],
)
def test_a_version_as_a_number(text: str, number: int) -> None:
    assert Metadata(resource_version=text).version == number


def test_annotations_of_pods_are_not_kept() -> None:
    """Any user may write 256 KiB of them into each pod, and two are read; of nodes and claims some are."""
    metadata = {"name": "x", "annotations": {"note": "n" * 100_000}}
    pod = ObjectDecoder("Pod", Pod).decode(json.dumps({"metadata": metadata, "spec": {"nodeName": "n"}}).encode())
    node = ObjectDecoder("Node", Node).decode(json.dumps({"metadata": metadata}).encode())

    assert isinstance(pod, Pod)
    assert pod.metadata.annotations == GroupAnnotations()
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


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
LIKE = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Like"}]}
MOST = 2**63 - 1


def read(metadata: Any = (), spec: Any = (), status: Any = None) -> Any:
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", **dict(metadata)},
        "spec": {"nodeName": "n", **dict(spec)},
        "status": status,
    }
    return ObjectDecoder("Pod", Pod).decode(json.dumps(raw).encode())


def container(**requests: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


@pytest.mark.parametrize(("spec", "wanted", "field"), [
    pytest.param({"containers": [container(cpu="1", memory="much"), container(cpu="1")]}, {"cpu": 2000, "memory": MOST},
        "$.spec.containers[0].resources.requests[memory]", id="an amount fills its resource, and other amounts count"),
    pytest.param({"containers": [container(cpu={}), 5, container(cpu="1")]}, {"cpu": MOST}, "$.spec.containers[1]",
        id="an invalid container does not affect other containers"),
    pytest.param({"containers": [container(cpu="1")], "overhead": {"cpu": "x", "memory": "1"}},
        {"cpu": MOST, "memory": 1}, "$.spec.overhead[cpu]", id="an amount of overhead fills its resource"),
    pytest.param({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "x"}}}, {"cpu": MOST},
        "$.spec.resources.requests[cpu]", id="an amount of the pod as a whole fills its resource"),
    pytest.param({"containers": [{"resources": {"requests": []}}, container(cpu="1")]}, {"cpu": 1000},
        "$.spec.containers[0].resources.requests", id="requests that are no map request nothing"),
    pytest.param({"containers": "many"}, {}, "$.spec.containers", id="containers that are no list request nothing"),
    pytest.param({"containers": [{}] * 1001 + [5]}, {}, "$.spec.containers", id="a list of over 1000 is left out"),
])  # fmt: skip
def test_requests(spec: dict[str, Any], wanted: dict[str, int], field: str) -> None:
    pod = read(spec=spec)

    assert isinstance(pod, PartlyReadPod)
    assert wanted == requests_of(pod)
    assert f"`{field}`" in pod.why


def test_amounts_of_a_status_that_cannot_be_read_fill_their_resource() -> None:
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}

    assert requests_of(read(spec={"containers": [container(cpu="1", memory="1")]}, status=status)) == {
        "cpu": MOST,
        "memory": 1,
    }


@pytest.mark.parametrize(
    ("kept", "field", "metadata", "spec"),
    [
        pytest.param(
            lambda pod: pod.metadata.labels == {"b": "c"},
            "$.metadata.labels[a]",
            {"labels": {"a": 5, "b": "c"}},
            {},
            id="the other labels",
        ),
        pytest.param(
            lambda pod: len(pod.spec.affinity.pod_anti_affinity.required) == 1,
            f"$.spec.affinity.podAntiAffinity.{REQUIRED}[0]",
            {},
            {"affinity": {"podAntiAffinity": {REQUIRED: [{**TERM, "labelSelector": LIKE}, TERM]}}},
            id="the other terms, and nothing of this one",
        ),
        pytest.param(
            lambda pod: pod.spec.affinity.node_affinity is None and pod.spec.affinity.pod_affinity.required,
            "$.spec.affinity.nodeAffinity",
            {},
            {"affinity": {"nodeAffinity": 5, "podAffinity": {REQUIRED: [TERM]}}},
            id="the other kind of affinity",
        ),
        pytest.param(
            lambda pod: [each.key for each in pod.spec.tolerations] == ["a"],
            "$.spec.tolerations[0]",
            {},
            {"tolerations": [{"key": 5}, {"key": "a"}]},
            id="the other tolerations",
        ),
        pytest.param(
            lambda pod: [port.port for port in host_ports(pod)] == [81],
            "$.spec.containers[0].ports[0]",
            {},
            {"containers": [{"ports": [{"hostPort": "x"}, {"hostPort": 81}]}]},
            id="the other ports",
        ),
        pytest.param(
            lambda pod: [volume.name for volume in pod.spec.volumes] == ["v"],
            "$.spec.volumes[0]",
            {},
            {"volumes": [{"name": 5}, {"name": "v"}]},
            id="the other volumes",
        ),
        pytest.param(
            lambda pod: len(pod.spec.topology_spread_constraints) == 1,
            "$.spec.topologySpreadConstraints[0]",
            {},
            {"topologySpreadConstraints": [{"maxSkew": 2**64}, {"topologyKey": "zone"}]},
            id="the other constraints",
        ),
    ],
)
def test_readable_parts_are_kept(kept: Any, field: str, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    pod = read(metadata, spec)

    assert isinstance(pod, PartlyReadPod)
    assert kept(pod)
    assert [f"`{field}`" in each for each in pod.unread] == [True]
    assert pod_info(pod).node_name == "n"


def test_a_pod_that_is_read_in_part_is_never_evicted() -> None:
    """Its labels, which budgets select, or its priority may be what is missing."""
    assert read(spec={"priority": 5, "volumes": 5}).priority == HIGHEST_PRIORITY
    assert read(spec={"priority": 5}).priority == 5


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        pytest.param({"name": 5}, {}, id="no name"),
        pytest.param({"uid": 5}, {}, id="no uid"),
        pytest.param({}, {"nodeName": 5}, id="no node"),
        pytest.param({}, {"nodeName": "", "priority": "x"}, id="not bound"),
    ],
)
def test_a_pod_without_identity_or_node_is_left_out(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    assert isinstance(read(metadata, spec), Broken)


def test_nulls_and_deep_json_next_to_an_unreadable_field() -> None:
    """Fields that are skipped may be nested more deeply than Python recurses."""
    deep = "[" * 9_000 + "]" * 9_000
    metadata = '{"name": "p", "uid": "u", "managedFields": ' + deep + ', "labels": null}'
    spec = '{"nodeName": "n", "tolerations": null, "containers": [{"resources": {"requests": {"cpu": "x"}}}]}'
    pod = ObjectDecoder("Pod", Pod).decode(f'{{"metadata": {metadata}, "spec": {spec}}}'.encode())

    assert isinstance(pod, PartlyReadPod)
    assert pod.spec.containers[0].resources.requests == {"cpu": UNREADABLE}


def test_a_large_pod_that_cannot_be_read_takes_little_time_and_names_little() -> None:
    """Twenty times what it takes: the pace of the machine does not matter."""
    began = time.process_time()
    pod = read({"labels": {f"key-{at}": 5 for at in range(50_000)}}, {"tolerations": [{"key": 5}] * 50_000})
    many = read(spec={"tolerations": [{"key": 5}] * 1000})

    assert time.process_time() - began < 2
    assert len(pod.why) < 1024
    assert len(many.why) < 4096
    assert many.why.endswith("and 990 more")


def test_at_most_200_characters_of_a_field_are_named() -> None:
    pod = read(metadata={"labels": {"k" * 500: 5}})

    (told,) = pod.unread
    assert told.partition(" in ")[2] == f"`{('$.metadata.labels[' + 'k' * 500)[:200]}`"


def test_a_selector_with_too_many_values_is_left_out_and_named() -> None:
    """Any user can store a hundred thousand; what comes of them would hold up everything else."""
    few, many = (
        {"key": "k", "operator": "In", "values": [f"v{n}" for n in range(count)]} for count in (10_000, 10_001)
    )
    terms = [{"topologyKey": "zone", "labelSelector": {"matchExpressions": [each]}} for each in (few, many)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    raw = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": "n", "affinity": affinity}}
    read = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))

    assert isinstance(read, PartlyReadPod)
    assert read.spec.affinity is not None
    assert read.spec.affinity.pod_anti_affinity is not None
    assert 1 == len(read.spec.affinity.pod_anti_affinity.required)
    assert "Expected `array` of length <= 10000" in read.why


@pytest.mark.parametrize(("field", "most"), [("resourceClaims", 128), ("tolerations", 1000), ("volumes", 1000)])
@pytest.mark.parametrize(("more", "node", "kind"), [
    pytest.param(0, "", Pod, id="as many are read"),
    pytest.param(1, "", Broken, id="a pending pod with more is unreadable"),
    pytest.param(1, "n", Pod, id="a bound pod may have more"),
])  # fmt: skip
def test_a_pod_with_a_long_list(field: str, most: int, more: int, node: str, kind: type) -> None:
    """The first step of a search handles all claims at once: 1,500 took 0.7 s, and 20,000 tolerations 0.6 s."""
    items = [{"name": f"c{n}", "key": f"c{n}"} for n in range(most + more)]
    raw = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": node, field: items}}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))

    assert type(pod) is kind
    if isinstance(pod, Broken):
        assert pod.why == f"Expected `array` of length <= {most} - at `$.spec.{field}`"


@pytest.mark.parametrize(("most", "node", "kind"), [
    pytest.param(256, "", Pod, id="as many are read"),
    pytest.param(257, "", Broken, id="a pending pod with more is unreadable"),
    pytest.param(257, "n", Pod, id="a bound pod may have more"),
])  # fmt: skip
@pytest.mark.parametrize("source", [
    pytest.param({"persistentVolumeClaim": {"claimName": "c"}}, id="claims"),
    pytest.param({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, id="ephemeral volumes"),
])  # fmt: skip
def test_a_pod_with_many_claims(source: dict[str, Any], most: int, node: str, kind: type) -> None:
    """An attempt costs in proportion to the claims, and runs without a break. Other volumes do not count."""
    volumes = [{"name": f"v{n}", **source} for n in range(most)] + [{"name": f"e{n}", "emptyDir": {}} for n in range(9)]
    raw = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": node, "volumes": volumes}}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))

    assert type(pod) is kind
    if isinstance(pod, Broken):
        assert pod.why == "Expected at most 256 volumes with a claim in `$.spec.volumes`"


@pytest.mark.parametrize(("more", "node", "kind"), [
    pytest.param(0, "", Pod, id="as many are read"),
    pytest.param(1, "", Broken, id="a pending pod with more is unreadable"),
    pytest.param(1, "n", PartlyReadPod, id="a bound pod with more loses them"),
])  # fmt: skip
@pytest.mark.parametrize("field", ["nodeSelector", "affinity"])
def test_a_pod_with_many_requirements_on_nodes_or_namespaces(field: str, more: int, node: str, kind: type) -> None:
    """One takes ten to twenty times its stored bytes while the pod waits."""
    halves = ([f"n{n}" for n in range(5_000)], [f"m{n}" for n in range(5_000 + more)])
    required, preferred = ({"topologyKey": "zone", "namespaces": each} for each in halves)
    spec: dict[str, Any] = {
        "nodeSelector": {f"k{n}": "v" for n in range(1_000 + more)},
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": preferred}]
            },
        },
    }
    raw = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": node, field: spec[field]}}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))

    assert type(pod) is kind
    if isinstance(pod, PartlyReadPod):
        assert not pod.spec.node_selector
        assert pod.spec.affinity in (None, Affinity())
    if isinstance(pod, (Broken, PartlyReadPod)):
        assert f"$.spec.{field}" in pod.why


@pytest.mark.parametrize(("count", "node", "kind"), [(1_000, "", Pod), (1_001, "", Broken), (1_001, "n", Pod)])
def test_a_pod_with_many_labels(count: int, node: str, kind: type) -> None:
    metadata = {"name": "p", "namespace": "d", "uid": "u", "labels": {f"k{n}": "v" for n in range(count)}}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}}))

    assert type(pod) is kind
    if isinstance(pod, Broken):
        assert pod.why == "Expected `object` of length <= 1000 - at `$.metadata.labels`"


def many_requests(*, node: str, per_container: int = 1_001) -> Any:
    names = ["cpu", *(f"example.com/r{n}" for n in range(per_container))]
    containers = [container(**{f"{name}{at * (name != 'cpu') or ''}": "1" for name in names}) for at in (1, 2)]
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": node, "containers": containers},
    }
    return ObjectDecoder("Pod", Pod).decode(json.dumps(raw).encode())


def test_a_bound_pod_with_too_many_requests_counts_without_extended_resources() -> None:
    pod = many_requests(node="n")

    assert isinstance(pod, PartlyReadPod)
    assert requests_of(pod) == {"cpu": 2000}
    assert pod.why == "Expected at most 2000 requests of resources in `$.spec`"


def test_a_pending_pod_with_too_many_requests_is_unreadable() -> None:
    pod = many_requests(node="")

    assert isinstance(pod, Broken)
    assert pod.why == "Expected at most 2000 requests of resources in `$.spec`"


def test_a_pod_with_many_requests_is_read_whole() -> None:
    pod = many_requests(node="n", per_container=900)

    assert type(pod) is Pod
    assert len(requests_of(pod)) == 1801


def with_terms(*, node: str, terms: int, constraints: int) -> Any:
    everything = [{"topologyKey": "zone", "labelSelector": {}} for _ in range(terms)]
    spread = [{"topologyKey": f"k{n}", "labelSelector": {}} for n in range(constraints)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": everything}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}]}
    affinity = {"podAntiAffinity": required, "podAffinity": preferred, "nodeAffinity": {}}
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": node, "affinity": affinity, "topologySpreadConstraints": spread},
    }
    return ObjectDecoder("Pod", Pod).decode(json.dumps(raw).encode())


TOO_MANY_TERMS = "Expected at most 64 terms of pod affinity and spread constraints in `$.spec`"


def test_a_bound_pod_with_too_many_terms_and_spread_constraints_counts_without_them() -> None:
    pod = with_terms(node="n", terms=60, constraints=4)

    assert isinstance(pod, PartlyReadPod)
    assert pod.spec.affinity == Affinity(node_affinity=NodeAffinity())
    assert (pod.spec.topology_spread_constraints, pod.why) == ((), TOO_MANY_TERMS)


def test_a_pending_pod_with_too_many_terms_and_spread_constraints_is_unreadable() -> None:
    pod = with_terms(node="", terms=0, constraints=64)

    assert isinstance(pod, Broken)
    assert pod.why == TOO_MANY_TERMS


@pytest.mark.parametrize("node", ["", "n"])
def test_a_pod_with_64_terms_and_spread_constraints_is_read_whole(node: str) -> None:
    pod = with_terms(node=node, terms=60, constraints=3)

    assert type(pod) is Pod
    assert len(pod.spec.affinity.pod_anti_affinity.required) == 60  # type: ignore[union-attr]


def test_each_container_of_start_up_costs_the_same() -> None:
    def steps(containers: int) -> int:
        """Calls of functions."""
        asked = [ResourceRequirements({f"e.com/{n}": parse("1")}) for n in range(containers)]
        pod = Pod(PodMetadata(), PodSpec(init_containers=tuple(Container(resources=each) for each in asked)))
        counted = 0

        def count(_frame: object, _event: str, _argument: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            found = requests_of(pod)
        finally:
            sys.setprofile(None)
        assert len(found) == containers
        return counted

    assert steps(400) <= 5 * steps(100)


def test_nothing_of_a_large_pod_stays_when_it_is_gone() -> None:
    """Shared parts are kept by number, so a tenant could fill them with large ones."""
    stores = (core_v1._interner, core_v1._known_labels, core_v1._known_containers, podinfo._sums, selectors._probes)
    core_v1.one(b"")  # the shape of a pod without constraints
    before = [len(store) for store in stores]
    labels = {f"large{n}": "v" * 60 for n in range(2_000)}
    requests = {f"example.com/large{n}": "1" for n in range(1_000)}
    few = dict(list(labels.items())[:1_000])
    spec = {"nodeName": "n", "nodeSelector": few, "containers": [{"resources": {"requests": requests}}]}
    raw = {"metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": labels}, "spec": spec}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))
    assert type(pod) is Pod
    info = podinfo.pod_info(pod)
    selectors.probes("d", labels)

    assert (len(info.requests), len(info.placement_shape) > 60_000) == (1_000, True)
    assert [len(store) for store in stores] == before


@pytest.mark.parametrize(("annotation", "expected"), [
    ("storageclass.kubernetes.io/is-default-class", True),
    ("storageclass.beta.kubernetes.io/is-default-class", True),
    ("example.com/is-default-class", False),
])  # fmt: skip
def test_both_annotations_mark_the_default_class(annotation: str, expected: bool) -> None:
    found = from_manifest(
        StorageClass, {"metadata": {"name": "c", "annotations": {annotation: "true"}}, "provisioner": "p"}
    )

    assert found.is_default is expected
