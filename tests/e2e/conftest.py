"""The real control plane as fixtures."""

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane, daemon, scheduler_config, started
from tests.e2e.devices import DeviceSandbox
from tests.e2e.sandbox import THEIRS, SharedPlane
from tests.e2e.storage import CONTROLLERS, StorageSandbox


@pytest.fixture(scope="session")
def control_plane_binaries() -> Path:
    """For tests that start a separate `ControlPlane`; skips without Go, and fails with `E2E=required`."""
    return binaries_or_skip()


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for the whole session. Tests leave it empty or use unique names."""
    with started(ControlPlane()) as plane:
        yield plane


@pytest.fixture
async def http(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A session on the module's `plane`."""
    async with plane.client() as session:
        yield session


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """A cluster for tests that need no own control plane: `E2E_KUBECONFIG`, else `control_plane`."""
    if given := os.environ.get("E2E_KUBECONFIG"):
        return Path(given)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.kubeconfig


@contextlib.contextmanager
def _shared(
    plane: ControlPlane, controllers: Sequence[str], *flags: str, theirs: Sequence[str] = ()
) -> Iterator[SharedPlane]:
    """The plane with these controllers, kube-scheduler with the flags `theirs`, and the daemon with these flags."""

    async def prepare(plane: ControlPlane) -> None:
        await plane.start_controllers(controllers)
        await plane.start_scheduler(scheduler_config(THEIRS), *theirs)

    with started(plane, prepare), daemon(plane, flags=flags) as server:
        yield SharedPlane(plane, server)


_numbers = itertools.count()
_Opened = TypeVar("_Opened", StorageSandbox, DeviceSandbox)


@contextlib.asynccontextmanager
async def _opened(kind: type[_Opened], shared: SharedPlane, *, scheduler: str = "") -> AsyncIterator[_Opened]:
    """A sandbox on the plane, for pods of the daemon unless another scheduler is named."""
    async with shared.plane.client() as http:
        sandbox = kind(shared, http, f"w{next(_numbers)}")
        sandbox.scheduler = scheduler or sandbox.scheduler
        await sandbox.open()
        yield sandbox
        await sandbox.close()


@pytest.fixture(scope="session")
def storage_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with volumes: the controllers act on all objects. Each test has a sandbox on it."""
    with _shared(ControlPlane(volume_resync_s=1), CONTROLLERS) as shared:
        yield shared


@pytest.fixture
async def sandbox(storage_plane: SharedPlane) -> AsyncIterator[StorageSandbox]:
    async with _opened(StorageSandbox, storage_plane) as sandbox:
        yield sandbox


@pytest.fixture
async def theirs(storage_plane: SharedPlane) -> AsyncIterator[StorageSandbox]:
    """For pods of kube-scheduler, whose behaviour is the expected one."""
    async with _opened(StorageSandbox, storage_plane, scheduler=THEIRS) as sandbox:
        yield sandbox


_TAINT_RULES = "--feature-gates=DRADeviceTaintRules=true"
_SERVES_RULES = "--runtime-config=resource.k8s.io/v1beta2=true"


@pytest.fixture(scope="session")
def device_plane(control_plane_binaries: Path) -> Iterator[SharedPlane]:
    """For tests with devices: taint rules are served, and the daemon reads them; kube-scheduler does not."""
    plane = ControlPlane(apiserver_flags=[_TAINT_RULES, _SERVES_RULES])
    with _shared(plane, ["resourceclaim-controller"], _TAINT_RULES) as shared:
        yield shared
        assert "Traceback" not in shared.server.output()


@pytest.fixture
async def devices(device_plane: SharedPlane) -> AsyncIterator[DeviceSandbox]:
    async with _opened(DeviceSandbox, device_plane) as sandbox:
        yield sandbox


@pytest.fixture
async def their_devices(device_plane: SharedPlane) -> AsyncIterator[DeviceSandbox]:
    """For pods of kube-scheduler, whose behaviour is the expected one."""
    async with _opened(DeviceSandbox, device_plane, scheduler=THEIRS) as sandbox:
        yield sandbox
