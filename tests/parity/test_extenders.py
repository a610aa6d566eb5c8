"""Kubestow makes the calls that kube-scheduler made to extenders, and gives its verdict."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from scheduler.config.load import gates_on, parse
from scheduler.config.types import RunOptions
from scheduler.core.feature_gates import VERSIONS
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer
from tests.e2e.controlplane.build import RELEASES
from tests.parity.api import InProcess, make_lasting
from tests.parity.extenders import Scene, recorded, scenes, verdict
from tests.parity.recordings import Provenance
from tests.parity.words import Json

SCENES = scenes()
PARITY = {"name": "Kubestow", "args": {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True}}


async def ours(scene: Scene, version: str) -> Json:
    """Return the verdict of the daemon, as this version, on a server in this process."""
    async with ApiServer() as server:
        api = InProcess(server)
        await make_lasting(api)

        @contextlib.asynccontextmanager
        async def start(config: Json) -> AsyncIterator[None]:
            config["profiles"][0]["pluginConfig"] = [PARITY]
            read = parse(json.dumps(config), source="test", feature_gates=gates_on({}, version))
            daemon = Daemon(RunOptions(config=read, master=server.url, port=0, emulated_version=version))
            try:
                await daemon.start()
                yield
            finally:
                await daemon.stop(0)

        async def bind(name: str, node_name: str) -> None:
            server.bind(name, node_name)

        return await verdict(scene, api, bind, start)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.key)
async def test_calls_and_verdict_are_kube_schedulers(scene: Scene, version: str) -> None:
    """All calls in their order per extender, the fields that were sent, texts byte for byte, and the victims."""
    assert await ours(scene, version) == recorded(version)[scene.key]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_scenario_is_recorded(version: str) -> None:
    """And nothing else: `python -m tests.parity.record_extenders`."""
    assert list(recorded(version)) == ["provenance", *(scene.key for scene in SCENES)]
    assert Provenance(**recorded(version)["provenance"]).flaws(RELEASES[version]) == []
