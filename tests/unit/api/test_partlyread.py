"""Of a bound pod all is read that can be read; what is left out is named, and nothing of it selects more than it did."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import Container, Pod, PodSpec, ResourceRequirements
from scheduler.api.decode import HIGHEST_PRIORITY, Broken, ObjectDecoder, PartlyReadPod
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import host_ports, pod_info, requests_of
from scheduler.api.quantity import UNREADABLE, parse

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
LIKE = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Like"}]}
MOST = 2**53


def read(metadata: Any = (), spec: Any = (), status: Any = None) -> Any:
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", **dict(metadata)},
        "spec": {"nodeName": "n", **dict(spec)},
        "status": status,
    }
    return ObjectDecoder("Pod", Pod).decode(json.dumps(raw).encode())


def container(**requests: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "wanted", "field"),
    [
        pytest.param(
            {"containers": [container(cpu="1", memory="much"), container(cpu="1")]},
            {"cpu": 2000, "memory": MOST},
            "$.spec.containers[0].resources.requests[memory]",
            id="an amount fills its resource, and other amounts count",
        ),
        pytest.param(
            {"containers": [container(cpu={}), 5, container(cpu="1")]},
            {"cpu": MOST},
            "$.spec.containers[1]",
            id="an invalid container does not affect other containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "x", "memory": "1"}},
            {"cpu": MOST, "memory": 1},
            "$.spec.overhead[cpu]",
            id="an amount of overhead fills its resource",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "x"}}},
            {"cpu": MOST},
            "$.spec.resources.requests[cpu]",
            id="an amount of the pod as a whole fills its resource",
        ),
        pytest.param(
            {"containers": [{"resources": {"requests": []}}, container(cpu="1")]},
            {"cpu": 1000},
            "$.spec.containers[0].resources.requests",
            id="requests that are no map request nothing",
        ),
        pytest.param({"containers": "many"}, {}, "$.spec.containers", id="containers that are no list request nothing"),
        pytest.param({"containers": [{}] * 1001 + [5]}, {}, "$.spec.containers", id="a list of over 1000 is left out"),
    ],
)
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


def test_each_container_of_start_up_costs_the_same() -> None:
    def steps(containers: int) -> int:
        """Calls of functions."""
        asked = [ResourceRequirements({f"e.com/{n}": parse("1")}) for n in range(containers)]
        pod = Pod(Metadata(), PodSpec(init_containers=tuple(Container(resources=each) for each in asked)))
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
