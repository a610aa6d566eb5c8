"""Writes of claims for devices by a whole daemon: the permissions that it checks at start."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import DynamicResourcesArgs
from scheduler.config.types import KubeSchedulerProfile, PluginSet
from scheduler.daemon.app import Daemon
from scheduler.kube.self_check import PERMISSIONS
from simulator.apiserver import ApiServer
from tests.integration.daemon import options, until

DEVICES = DynamicResourcesArgs.plugin


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_permissions_are_checked_where_devices_are_allocated(is_enabled: bool) -> None:
    without = KubeSchedulerProfile("kubestow", plugins={"multiPoint": PluginSet(disabled=(DEVICES,))})
    profiles: dict[str, Any] = {} if is_enabled else {"profiles": (without,)}
    async with ApiServer() as server:
        server.forbidden.add(("patch", "resourceclaims/binding"))
        daemon = Daemon(options(server.url, **profiles))
        try:
            await daemon.start()
            await until(lambda: daemon.self_check.kinds_served() is None, lambda: "not checked yet")
            missing = daemon.self_check.minor(PERMISSIONS)
        finally:
            await daemon.stop()

        wanted = "missing permission: patch resourceclaims/binding in group resource.k8s.io"
        assert missing.startswith(wanted) if is_enabled else not missing
        plugins = [p for profile in daemon.decisions.profiles.values() for p in profile.pre_bind if p.name == DEVICES]
        assert [p._binder._writer._metrics for p in plugins] == [daemon.metrics.devices] * is_enabled  # type: ignore[attr-defined]
