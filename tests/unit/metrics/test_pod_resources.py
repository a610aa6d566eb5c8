"""The page of requests and limits: units, escaping, pieces. Amounts are compared with kube-scheduler's in tests/e2e/test_metrics_pages.py."""

from __future__ import annotations

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.metrics import pod_resources
from simulator.builders.core import pod


def page(*pods: Pod) -> list[str]:
    return [line for line in b"".join(pod_resources.pieces(pods)).decode().splitlines() if not line.startswith("#")]


def read(requests: dict[str, str], *, scheduler_name: str = "kubestow") -> Pod:
    built = pod("a").scheduler(scheduler_name)
    for resource, amount in requests.items():
        built = built.req(resource, amount)
    return built.typed()


@pytest.mark.parametrize(
    ("resource", "amount", "unit", "value"),
    [
        ("cpu", "1500m", "cores", "1.5"),
        ("cpu", "0.0001", "cores", "0.0001"),
        ("memory", "1Gi", "bytes", "1.073741824e+09"),
        ("storage", "1", "bytes", "1.0"),
        ("ephemeral-storage", "1", "bytes", "1.0"),
        ("hugepages-2Mi", "2Mi", "bytes", "2.097152e+06"),
        ("attachable-volumes-x", "3", "integer", "3.0"),
        ("example.com/gpu", "2", "", "2.0"),
    ],
)
def test_units(resource: str, amount: str, unit: str, value: str) -> None:
    (line,) = page(read({resource: amount}))

    assert line == (
        'kube_pod_resource_request{namespace="default",node="",pod="a",priority="",'
        f'resource="{resource}",scheduler="kubestow",unit="{unit}"}} {value}'
    )


def test_an_amount_of_zero_has_no_series() -> None:
    assert page(read({"cpu": "0"})) == []


def test_a_text_cannot_end_its_label() -> None:
    (line,) = page(read({"cpu": "1"}, scheduler_name='x"} 1\n\\'))

    assert r'scheduler="x\"} 1\n\\",unit="cores"' in line


@pytest.mark.parametrize(("node", "phase", "shown"), [("n", "Succeeded", 0), ("n", "Failed", 0), ("", "Failed", 1)])
def test_pods_that_ended_on_a_node_are_not_shown(node: str, phase: str, shown: int) -> None:
    assert len(page(pod("a").req("cpu", "1").bound_to(node).phase(phase).typed())) == shown


def test_pieces_are_small_and_each_metric_is_in_one_run() -> None:
    pods = [read({"cpu": "1"})] * 950

    made = list(pod_resources.pieces(pods))

    assert max(piece.count(b"\n") for piece in made) == 100
    assert b"".join(made).count(b"# TYPE") == 2
