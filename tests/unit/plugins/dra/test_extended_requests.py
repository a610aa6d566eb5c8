"""The requests of the claim for extended resources: docs/spec/dra.md §3.12, rows 323–327 of §9.15."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import requests_of
from scheduler.plugins.dra.extended_resources import mapped_requests
from tests.unit.objects import container, pod

GPU, TPU = "example.com/gpu", "example.com/tpu"
CLASSES = {GPU: "gpu"}


def a(name: str, count: int | str, **more: str) -> dict[str, Any]:
    """Return a container that requests `count` GPUs."""
    return container(name, **{GPU: str(count), **more})


def sidecar(name: str, count: int) -> dict[str, Any]:
    return a(name, count) | {"restartPolicy": "Always"}


def wanted(*containers: dict[str, Any], first: tuple[dict[str, Any], ...] = ()) -> tuple[dict[str, int], str]:
    """Return the count of each request, and `container.request` in order. `1.0` stands for `container-1-request-0`."""
    found = mapped_requests(pod(containers=list(containers), initContainers=list(first)), CLASSES)
    requests = {short(request.name): request.exactly.count for request in found.requests if request.exactly is not None}
    return requests, " ".join(f"{mapped.container_name}{short(mapped.request_name)}" for mapped in found.mappings)


def short(request: str) -> str:
    return request.removeprefix("container-").replace("-request-", ".")


@pytest.mark.parametrize(("first", "containers", "requests", "mappings"), [
    pytest.param((), [a("x", 2)], {"0.0": 2}, "x0.0", id="321 one container requests devices"),
    pytest.param((), [a("x", 1), a("y", 2)], {"0.0": 1, "1.0": 2}, "x0.0 y1.0",
        id="323 two containers request devices"),
    pytest.param((), [container("x", cpu="1"), a("y", 1)], {"1.0": 1}, "y1.0",
        id="323 one of two containers requests devices"),
    pytest.param((), [a("x", 1, cpu="1", memory="1Gi", **{"a.com/b": "1"})], {"0.2": 1}, "x0.2",
        id="324 the number is the index among all sorted names: a.com/b, cpu, example.com/gpu, memory"),
    pytest.param((), [a("x", 0), a("y", 1, cpu="0")], {"1.1": 1}, "y1.1",
        id="324 a zero is no request but takes a number"),
    pytest.param((a("i", 2),), [a("m", 1)], {"0.0": 1, "1.0": 1}, "m1.0 i1.0 i0.0",
        id="325 init 2, main 1: init uses the main device and one more"),
    pytest.param((a("i", 1),), [a("m", 2)], {"1.0": 2}, "m1.0 i1.0",
        id="325 the main devices are enough for the init container"),
    pytest.param((a("i", 2),), [a("m", 1), a("n", 1), a("o", 1)], {"1.0": 1, "2.0": 1, "3.0": 1},
        "m1.0 n2.0 o3.0 i1.0 i2.0", id="325 init uses as many main requests as it needs, in order"),
    pytest.param((a("i", 3), a("j", 2)), [a("m", 1)], {"0.0": 2, "2.0": 1}, "m2.0 i2.0 i0.0 j2.0 j0.0",
        id="326 inits 3 and 2, main 1: both inits use two more devices"),
    pytest.param((a("i", 2), a("j", 3)), [a("m", 1)], {"1.0": 2, "2.0": 1}, "m2.0 i2.0 i1.0 j2.0 j1.0",
        id="326 the largest init container comes second"),
    pytest.param((a("i", 2), a("j", 2)), [container("m")], {"0.0": 2}, "i0.0 j0.0",
        id="326 the first of equal init containers gets the request"),
    pytest.param((a("i", 2),), [container("m")], {"0.0": 2}, "i0.0", id="326 only the init container requests devices"),
    pytest.param((sidecar("s", 1), a("i", 2)), [a("m", 1)], {"0.0": 1, "1.0": 1, "2.0": 1}, "s0.0 m2.0 i2.0 i1.0",
        id="327 a running sidecar keeps its devices"),
    pytest.param((a("i", 2), sidecar("s", 1)), [a("m", 1)], {"1.0": 1, "2.0": 1}, "s1.0 m2.0 i1.0 i2.0",
        id="327 a sidecar that starts later lends its devices"),
    pytest.param((), [container("x", cpu="1")], {}, "", id="no container requests the resource"),
    pytest.param((), [a("x", "1500m")], {}, "", id="an amount that is no whole number counts as none"),
    pytest.param((), [a("x", "2k")], {"0.0": 2000}, "x0.0", id="an amount with a suffix is a whole number"),
])  # fmt: skip
def test_one_resource(first: tuple[Any, ...], containers: list[Any], requests: dict[str, int], mappings: str) -> None:
    assert (requests, mappings) == wanted(*containers, first=first)


def test_324_several_resources() -> None:
    """Resources and requests are sorted by name. For each resource, main containers come before init containers."""
    both = container("m", **{TPU: "1", GPU: "2", "cpu": "1"})
    found = mapped_requests(pod(containers=[both], initContainers=[container("i", **{TPU: "3"})]), {TPU: "t", GPU: "g"})

    exactly = [(r.name, r.exactly and (r.exactly.device_class_name, r.exactly.count)) for r in found.requests]
    assert exactly == [
        ("container-0-request-0", ("t", 2)),
        ("container-1-request-1", ("g", 2)),
        ("container-1-request-2", ("t", 1)),
    ]
    assert {"ExactCount"} == {request.exactly.allocation_mode for request in found.requests if request.exactly}
    assert [(m.container_name, m.resource_name, m.request_name) for m in found.mappings] == [
        ("m", GPU, "container-1-request-1"),
        ("m", TPU, "container-1-request-2"),
        ("i", TPU, "container-1-request-2"),
        ("i", TPU, "container-0-request-0"),
    ]


def test_requests_are_ordered_by_name_as_text() -> None:
    """The eleventh container comes before the third."""
    requests, mappings = wanted(*(a(f"c{at}", 1) for at in range(11)))

    assert sorted(requests) == list(requests)
    assert list(requests).index("10.0") == 2
    assert mappings == " ".join(f"c{at}{at}.0" for at in range(11))


def test_only_resources_that_devices_serve_count() -> None:
    """The node itself has one of the two resources."""
    both = container("m", **{TPU: "1", GPU: "2"})
    found = mapped_requests(pod(containers=[both]), {TPU: "t"})

    assert ["container-0-request-1"] == [request.name for request in found.requests]
    assert [TPU] == [mapped.resource_name for mapped in found.mappings]


def test_the_requests_add_up_to_the_requests_of_the_pod() -> None:
    """The sum of the requests is the amount that the pod requests, for each mix of containers."""
    for first in ((), (a("i", 2),), (a("i", 3), a("j", 2)), (a("i", 1), sidecar("s", 2))):
        for containers in ([a("m", 1)], [a("m", 2), a("n", 1)], [container("m")]):
            requests, _ = wanted(*containers, first=first)
            counted = requests_of(pod(containers=containers, initContainers=list(first)))

            assert counted.get(GPU, 0) == sum(requests.values())
