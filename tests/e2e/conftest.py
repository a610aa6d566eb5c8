"""The real control plane as fixtures."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane


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
