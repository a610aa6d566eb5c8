"""The daemon follows the version of the API server, and starts on it without a warning."""

from pathlib import Path

import pytest

from scheduler.core.feature_gates import closest_version
from tests.e2e.cluster import until
from tests.e2e.controlplane.build import VERSION
from tests.e2e.controlplane.harness import ControlPlane, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


async def test_the_start_names_the_version_and_warns_of_nothing(control_plane_binaries: Path) -> None:
    async with ControlPlane() as plane:
        with daemon(plane) as server:

            async def synced() -> bool:
                return "] synced " in server.output()

            await until(synced, "synced informers", server=server, within_s=150)
            lines = server.output().splitlines()

    assert [line for line in lines if "[info " not in line] == []
    (started,) = [line for line in lines if "] started " in line]
    assert f"emulated_version={closest_version(VERSION)} " in started
