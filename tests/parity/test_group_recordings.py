"""Kubestow's answers about groups against the recorded ones of kube-scheduler with its gates for groups (tests/parity/groups.py)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config.types import KubeSchedulerProfile
from scheduler.core.feature_gates import defaults
from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer
from tests.integration.daemon import rig_on
from tests.parity import groups
from tests.parity.words import Json

_VERSIONS = {"1.37": "v1.37.2", "1.38": "v1.38.0-beta.0"}


class _Simulated:
    """The API server of the simulator."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def create(self, item: Json) -> None:
        if item["kind"] == "Pod" and (priority := item["spec"].pop("priority")):
            policy = item["spec"].pop("preemptionPolicy", "PreemptLowerPriority")
            name = f"of{priority}-{policy.lower()}"
            if name not in {each["metadata"]["name"] for each in self._server.objects("priorityclasses")}:
                made = {"metadata": {"name": name}, "value": priority, "preemptionPolicy": policy}
                self._server.create("priorityclasses", made)
            item["spec"]["priorityClassName"] = name
        self._server.create(f"{item['kind'].lower()}s", item)

    async def items(self, kind: str) -> list[Json]:
        return list(self._server.objects(f"{kind.lower()}s"))


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize("scene", groups.scenes(), ids=lambda scene: scene.id)
async def test_as_recorded(scene: groups.GroupScene, version: str) -> None:
    server = ApiServer(served=(*LIKE_1_37, GROUPS[0]))
    server.upgrade(_VERSIONS[version])

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[None]:
        more: Any = {"pod_initial_backoff_s": 60.0, "pod_max_backoff_s": 60.0, "feature_gates": defaults(version)}
        async with rig_on(server, profiles=(KubeSchedulerProfile(groups.SCHEDULER_NAME),), **more):
            yield

    async with server:
        ours = await groups.verdict(scene, _Simulated(server), start)
    assert groups.differences(scene, version, groups.ANSWERS.of(version)[scene.id], ours) == {}


def test_all_scenarios_are_recorded() -> None:
    for version in _VERSIONS:
        assert groups.ANSWERS.of(version).keys() - {"provenance"} == {scene.id for scene in groups.scenes()}
