"""The detail of `kubestow simulate`: volumes and devices of pods, scores, and how full nodes and pools are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.core import pod as a_pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.integration.conftest import Simulation
from tests.integration.test_simulate import NODE, pod

EXAMPLES = Path(__file__).parents[2] / "examples"
VOLUMES = str(EXAMPLES / "volumes.yaml")
DEVICES = str(EXAMPLES / "devices.yaml")
LARGER = NODE.replace('"n"', '"larger"').replace('"2"', '"3"')


def named(rows: list[dict[str, Any]], name: str, field: str = "pod") -> dict[str, Any]:
    """Return the row of this name."""
    (row,) = (each for each in rows if each[field] == name)
    return row


def test_the_volumes_of_pods(simulate: Simulation) -> None:
    _, shown, _ = simulate(VOLUMES)
    static = named(shown["pods"], "demo/archive")
    dynamic = named(shown["pods"], "demo/queue-0")
    (local,), (volume,) = static["volumes"], dynamic["volumes"]

    assert local | {"volume": ""} == {
        "claim": "demo/archive",
        "volume": "",
        "storageClass": "local-disk",
        "driver": "",
        "capacity": "500Gi",
        "segments": [{"kubernetes.io/hostname": [static["node"]]}],
        "pool": None,
    }
    assert volume["volume"].startswith("pvc-")
    assert (volume["driver"], volume["capacity"]) == ("rack.csi.example.com", "100Gi")
    assert (volume["segments"], volume["pool"]) == ([{"example.com/rack": ["rack-1"]}], "demo/rack-1")
    assert [each["volumes"] for each in shown["pods"] if each["node"] is None] == [[], [], []]


def test_slots_and_capacity_of_nodes(simulate: Simulation) -> None:
    """Capacity is what the objects of the driver have after all volumes are made."""
    _, shown, _ = simulate(VOLUMES)
    small = named(shown["nodes"], "small-1", "node")

    assert [each["node"] for each in shown["nodes"]] == ["small-1", "store-1", "store-2", "store-3"]
    assert small["attachments"] == [{"driver": "rack.csi.example.com", "used": 2, "limit": 2}]
    assert small["storage"] == [{"storageClass": "rack", "pool": "demo/rack-2", "free": "10Gi"}]
    assert {"resource": "pods", "requested": "2", "allocatable": "110"} in small["resources"]


def test_the_devices_of_pods_and_pools(simulate: Simulation) -> None:
    _, shown, _ = simulate(DEVICES)
    (part,) = named(shown["pods"], "demo/part-five")["devices"]
    (extended,) = named(shown["pods"], "demo/legacy")["devices"]
    (gpus,) = named(shown["nodes"], "gpu-1", "node")["devicePools"]
    (cards,) = named(shown["nodes"], "shared-1", "node")["devicePools"]

    assert part == {
        "claim": "demo/five",
        "request": "part",
        "driver": "slice.example.com",
        "pool": "shared-1",
        "device": "card",
        "consumed": {"memory": "5Gi"},
        "adminAccess": False,
    }
    assert (extended["driver"], extended["pool"]) == ("gpu.example.com", "gpu-2")
    assert (gpus["devices"], gpus["used"], gpus["free"], gpus["shared"]) == (4, 3, 1, [])
    assert cards["shared"] == [{"device": "card", "capacity": "memory", "used": "8Gi", "of": "8Gi"}]


def test_a_pool_of_no_single_node(simulate: Simulation) -> None:
    """Only the slices of the newest generation count."""
    slices = [
        a_slice("fabric", "d.example", *devices).set(
            {
                "metadata": {"name": f"fabric-{generation}"},
                "spec": {"nodeName": None, "allNodes": True, "pool": {"generation": generation}},
            }
        )
        for generation, devices in ((1, [a_device("old")]), (2, [a_device("x"), a_device("y")]))
    ]
    claim = a_device_claim("c").request("r", "any")
    _, shown, _ = simulate.of(NODE, a_device_class("any"), *slices, claim, a_pod("p").claim("c", "c"))

    pool = {"driver": "d.example", "pool": "fabric", "devices": 2, "used": 1, "free": 1, "shared": []}
    assert shown["devicePools"] == [pool]
    assert shown["nodes"][0]["devicePools"] == []


@pytest.mark.parametrize(
    ("other", "is_tie"), [pytest.param(LARGER, False, id="better"), pytest.param(NODE, True, id="equal")]
)
def test_why_a_pod_is_there(simulate: Simulation, other: str, is_tie: bool) -> None:
    """The total is the sum of the parts, and the runner-up has no more."""
    twin = other.replace('"n"', '"larger"')
    _, shown, _ = simulate.of(NODE, twin, pod("a"), pod("b", nodeSelector={"kubernetes.io/hostname": "n"}))
    choice = named(shown["pods"], "default/a")["choice"]
    chosen, runner_up = choice["chosen"], choice["runnerUp"]

    assert chosen["node"] == named(shown["pods"], "default/a")["node"]
    assert {chosen["node"], runner_up["node"]} == {"n", "larger"}
    assert all(each["total"] == sum(each["parts"].values()) for each in (chosen, runner_up))
    assert "NodeResourcesFit" in chosen["parts"]
    assert (chosen["total"] == runner_up["total"], chosen["total"] >= runner_up["total"]) == (is_tie, True)
    assert named(shown["pods"], "default/b")["choice"] is None


@pytest.mark.usefixtures("guest")
@pytest.mark.parametrize(
    ("file", "lines"),
    [
        pytest.param(
            VOLUMES,
            [
                "  volume disk-1b of claim demo/archive: class local-disk, 500Gi, kubernetes.io/hostname=store-1",
                "  attach slots of rack.csi.example.com: 2 of 2 used",
                "  storage of class rack: 10Gi free in pool demo/rack-2",
                "  no other node was compared",
            ],
            id="volumes",
        ),
        pytest.param(
            DEVICES,
            [
                "  device slice.example.com/shared-1/card for request part of claim demo/five, 5Gi of its memory",
                "  devices of gpu.example.com/gpu-1: 3 of 4 used, 1 free",
                "    card: 8Gi of 8Gi memory used",
                "  score 97 = 97 NodeResourcesFit",
            ],
            id="devices",
        ),
    ],
)
def test_the_wide_text(capsys: pytest.CaptureFixture[str], file: str, lines: list[str]) -> None:
    """The short text has none of these lines."""
    cli.main(["simulate", file])
    short = capsys.readouterr().out.splitlines()
    cli.main(["simulate", "-o", "wide", file])
    wide = capsys.readouterr().out.splitlines()

    assert [line for line in lines if line not in wide] == []
    assert [line for line in lines if line in short] == []
    assert short[0] == wide[0]
