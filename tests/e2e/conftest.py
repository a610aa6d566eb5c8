"""The real control plane as fixtures."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

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


@contextlib.contextmanager
def _shared(plane: ControlPlane, controllers: Sequence[str], *flags: str) -> Iterator[SharedPlane]:
    """The plane with these controllers, kube-scheduler, and our daemon with these flags."""

    async def start() -> None:
        await plane.start()
        await plane.start_controllers(controllers)
        await plane.start_scheduler(scheduler_config(THEIRS))

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(start())
        port = free_port()
        with daemon(plane, flags=[f"--plain-port={port}", *flags]) as server:
            yield SharedPlane(plane, server, port)
    finally:
        plane.stop()


_worlds = itertools.count()
_World = TypeVar("_World", World, DeviceWorld)


@contextlib.asynccontextmanager
async def _opened(kind: type[_World], shared: SharedPlane, *, scheduler: str = "") -> AsyncIterator[_World]:
    """A place of its own on the plane; for pods of ours unless another scheduler is named."""
    async with shared.plane.client() as http:
        world = kind(shared, http, f"w{next(_worlds)}")
        world.scheduler = scheduler or world.scheduler
        await world.open()
        yield world
        await world.close()


@pytest.fixture(scope="session")
def storage_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with volumes: the controllers act on all there is. Each test has a world of its own on it."""
    with _shared(ControlPlane(volume_resync_s=1), CONTROLLERS) as shared:
        yield shared


@pytest.fixture
async def world(storage_plane: SharedPlane) -> AsyncIterator[World]:
    """For pods of ours."""
    async with _opened(World, storage_plane) as world:
        yield world


@pytest.fixture
async def theirs(storage_plane: SharedPlane) -> AsyncIterator[World]:
    """For pods of kube-scheduler: what it does with them is right."""
    async with _opened(World, storage_plane, scheduler=THEIRS) as world:
        yield world


_TAINT_RULES = "--feature-gates=DRADeviceTaintRules=true"


@pytest.fixture(scope="session")
def device_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with devices: taint rules are served, and the daemon heeds them; kube-scheduler does not."""
    plane = ControlPlane(apiserver_flags=[_TAINT_RULES, "--runtime-config=resource.k8s.io/v1beta2=true"])
    with _shared(plane, ["resourceclaim-controller"], _TAINT_RULES) as shared:
        yield shared
        assert "Traceback" not in shared.server.log.read_text()


@pytest.fixture
async def devices(device_plane: SharedPlane) -> AsyncIterator[DeviceWorld]:
    """For pods of ours."""
    async with _opened(DeviceWorld, device_plane) as world:
        yield world


@pytest.fixture
async def their_devices(device_plane: SharedPlane) -> AsyncIterator[DeviceWorld]:
    """For pods of kube-scheduler: what it does with them is right."""
    async with _opened(DeviceWorld, device_plane, scheduler=THEIRS) as world:
        yield world
