"""Kubestow makes the calls that kube-scheduler made to extenders, and gives its verdict."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config.load import parse
from scheduler.config.types import RunOptions
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer
from tests.parity.api import InProcess, make_lasting
from tests.parity.extenders import RECORDINGS, Scene, recorded, scenes, verdict
from tests.parity.recordings import Provenance
from tests.parity.words import Json

SCENES = scenes()
PARITY = {"name": "Kubestow", "args": {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True}}


async def ours(scene: Scene, arguments: list[Json]) -> Json:
    """Return the verdict of the daemon on a server in this process."""
    async with ApiServer() as server:
        api = InProcess(server)
        await make_lasting(api)

        @contextlib.asynccontextmanager
        async def start(config: Json) -> AsyncIterator[None]:
            config["profiles"][0]["pluginConfig"] = arguments
            options = RunOptions(config=parse(json.dumps(config), source="test"), master=server.url, port=0)
            daemon = Daemon(options)
            try:
                await daemon.start()
                yield
            finally:
                await daemon.stop(0)

        async def bind(name: str, node_name: str) -> None:
            server.bind(name, node_name)

        return await verdict(scene, api, bind, start)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.key)
async def test_calls_and_verdict_are_kube_schedulers(scene: Scene) -> None:
    """All calls in their order per extender, the fields that were sent, texts byte for byte, and the victims."""
    assert await ours(scene, [PARITY]) == recorded()[scene.key]


def test_every_scenario_is_recorded() -> None:
    """And nothing else: `python -m tests.parity.record_extenders`."""
    assert list(recorded()) == [scene.key for scene in SCENES]


def test_the_recordings_are_of_the_version_that_we_follow() -> None:
    read: dict[str, Any] = json.loads(RECORDINGS.read_text(encoding="utf-8"))
    assert Provenance(**read["provenance"]).flaws("v1.36.3") == []
