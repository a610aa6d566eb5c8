"""The real control plane as fixtures."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import free_port
from tests.e2e.daemon import daemon
from tests.e2e.devices import DeviceWorld
from tests.e2e.sandbox import THEIRS, SharedPlane
from tests.e2e.storage import CONTROLLERS, World


@pytest.fixture(scope="session")
def control_plane_binaries() -> Path:
    """For tests that start a `ControlPlane` of their own; skips without Go, fails so with `E2E=required`."""
    return binaries_or_skip()


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for the whole session. Tests leave it empty or use names of their own."""
    plane = ControlPlane()
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(plane.start())
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """A cluster for tests that need no own control plane: `E2E_KUBECONFIG`, else `control_plane`."""
    if given := os.environ.get("E2E_KUBECONFIG"):
        return Path(given)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.kubeconfig


@pytest.fixture(scope="session")
def storage_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with volumes: the controllers act on all there is. Each test has a world of its own on it."""
    plane = ControlPlane(volume_resync_s=1)

    async def start() -> None:
        await plane.start()
        await plane.start_controllers(CONTROLLERS)
        await plane.start_scheduler(scheduler_config(THEIRS))

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(start())
        port = free_port()
        with daemon(plane, flags=[f"--secure-port={port}"]) as server:
            yield SharedPlane(plane, server, port)
    finally:
        plane.stop()


_worlds = itertools.count()


@pytest.fixture
async def world(storage_plane: SharedPlane) -> AsyncIterator[World]:
    """For pods of ours."""
    async with storage_plane.plane.client() as http:
        world = World(storage_plane, http, f"w{next(_worlds)}")
        await world.open()
        yield world
        await world.close()


@pytest.fixture
async def theirs(storage_plane: SharedPlane) -> AsyncIterator[World]:
    """For pods of kube-scheduler: what it does with them is right."""
    async with storage_plane.plane.client() as http:
        world = World(storage_plane, http, f"w{next(_worlds)}")
        world.scheduler = THEIRS
        await world.open()
        yield world
        await world.close()


_TAINT_RULES = "--feature-gates=DRADeviceTaintRules=true"


@pytest.fixture(scope="session")
def device_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with devices: taint rules are served, and the daemon heeds them; kube-scheduler does not."""
    plane = ControlPlane(apiserver_flags=[_TAINT_RULES, "--runtime-config=resource.k8s.io/v1beta2=true"])

    async def start() -> None:
        await plane.start()
        await plane.start_controllers(["resourceclaim-controller"])
        await plane.start_scheduler(scheduler_config(THEIRS))

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(start())
        port = free_port()
        with daemon(plane, flags=[f"--secure-port={port}", _TAINT_RULES]) as server:
            yield SharedPlane(plane, server, port)
            assert "Traceback" not in server.log.read_text()
    finally:
        plane.stop()


@pytest.fixture
async def devices(device_plane: SharedPlane) -> AsyncIterator[DeviceWorld]:
    """For pods of ours."""
    async with device_plane.plane.client() as http:
        world = DeviceWorld(device_plane, http, f"w{next(_worlds)}")
        await world.open()
        yield world
        await world.close()


@pytest.fixture
async def their_devices(device_plane: SharedPlane) -> AsyncIterator[DeviceWorld]:
    """For pods of kube-scheduler: what it does with them is right."""
    async with device_plane.plane.client() as http:
        world = DeviceWorld(device_plane, http, f"w{next(_worlds)}")
        world.scheduler = THEIRS
        await world.open()
        yield world
        await world.close()
