"""The harness itself: a real API server that stores, and a real kube-scheduler that binds."""

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from tests.e2e.controlplane.harness import ControlPlane, scheduler_config

pytestmark = pytest.mark.e2e

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
NODE_STATUS = {
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
    }
}
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, scheduler: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]},
    }


async def write(http: ClientSession, method: str, path: str, body: object) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    async with http.request(method, path, json=body, headers={"Content-Type": kind}) as answer:
        assert answer.status in {200, 201}, await answer.text()


async def node_of(http: ClientSession, name: str, within_s: float = 60) -> str:
    """The pod's node, once it has one."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        async with http.get(f"{PODS}/{name}") as answer:
            if node := (await answer.json())["spec"].get("nodeName"):
                return str(node)
        await asyncio.sleep(0.1)
    pytest.fail(f"pod {name} was not bound within {within_s} s")


async def test_kube_scheduler_binds_a_pod(control_plane_binaries: Path) -> None:
    """A plane starts, its kube-scheduler places a pod of a profile of our naming, and nothing is left after stop."""
    async with ControlPlane() as plane:
        await plane.start_scheduler(scheduler_config("theirs", "default-scheduler", qps=50, burst=100))
        async with plane.client() as http:
            await write(http, "POST", "/api/v1/nodes", NODE)
            await write(http, "PATCH", "/api/v1/nodes/n/status", NODE_STATUS)
            await write(http, "POST", PODS, pod("p", "theirs"))

            assert await node_of(http, "p") == "n"
        assert plane.cpu_s("kube-scheduler") > 0
        assert plane.rss_bytes("kube-apiserver") > 10_000_000
        directory = plane.directory

    assert not directory.exists()


async def test_the_api_server_restarts_with_its_objects(control_plane_binaries: Path) -> None:
    """After a stop connections are refused; after the start the same address serves the same objects."""
    async with ControlPlane(high_load=True) as plane:
        async with plane.client() as http:
            await write(http, "POST", "/api/v1/nodes", NODE)

        await plane.stop_apiserver(gracefully=False)
        async with plane.client() as http:
            with pytest.raises(ClientConnectionError):
                await http.get("/api/v1/nodes/n")

        await plane.start_apiserver()
        async with plane.client() as http, http.get("/api/v1/nodes/n") as answer:
            assert answer.status == 200


async def test_the_controllers_run(control_plane_binaries: Path) -> None:
    """The PV controller of the plane's kube-controller-manager finds a new volume and calls it available."""
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
        },
    }
    async with ControlPlane() as plane:
        await plane.start_controllers()
        async with plane.client() as http:
            await write(http, "POST", "/api/v1/persistentvolumes", volume)
            deadline = time.monotonic() + 60
            phase = None
            while phase != "Available" and time.monotonic() < deadline:
                async with http.get("/api/v1/persistentvolumes/v") as answer:
                    phase = (await answer.json())["status"].get("phase")
                await asyncio.sleep(0.1)

    assert phase == "Available"
