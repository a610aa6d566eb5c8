"""Writes of claims for devices by a whole daemon: in the version that the server has, and with rights that it asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.app import Daemon
from scheduler.config.args import DynamicResourcesArgs
from scheduler.config.types import PluginSet, Profile
from scheduler.core.resourceclaims import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from scheduler.kube.access import PERMISSIONS
from scheduler.kube.kinds import RESOURCE_CLAIM
from scheduler.testing.apiserver import ApiServer
from scheduler.testing.apiserver.resources import LIKE_1_32, LIKE_1_33, LIKE_1_36, LIKE_1_36_WITH_BETAS
from scheduler.testing.deviceclaimbuilders import a_claim
from tests.integration.daemon import options, until

USER = ConsumerReference(resource="pods", name="p", uid="u-p")
DEVICES = DynamicResourcesArgs.plugin


@pytest.mark.parametrize("served", [LIKE_1_32, LIKE_1_33, LIKE_1_36], ids=["v1beta1", "v1beta2", "v1"])
async def test_claims_are_written_where_they_are(served: Sequence[str]) -> None:
    """Read, protected and allocated through the daemon's own writer."""
    async with ApiServer(served=LIKE_1_36_WITH_BETAS) as server:
        server.apply(a_claim("c").request("r", "gpu").obj())
        server.serve(served)
        daemon = Daemon(options(server.url))
        try:
            await daemon.start()
            await until(lambda: RESOURCE_CLAIM.name in daemon._discovery.served, lambda: "no claims found")
            await until(daemon._leadership.may_write, lambda: "writes are never permitted")
            writer = daemon._writer
            claim = await writer.device_claims.read_resource_claim("default", "c")
            assert isinstance(claim, ResourceClaim)
            claim = await writer.device_claims.protect_claim(claim)
            assert isinstance(claim, ResourceClaim)
            claim = await writer.device_claims.allocate_claim(claim, AllocationResult(), USER)
            assert isinstance(claim, ResourceClaim)
        finally:
            await daemon.stop()

        (stored,) = server.list("resourceclaims")
        assert stored["metadata"]["finalizers"] == [FINALIZER]
        assert [user["uid"] for user in stored["status"]["reservedFor"]] == ["u-p"]
        assert claim.metadata.resource_version == stored["metadata"]["resourceVersion"]


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_rights_are_asked_for_where_devices_are_allocated(is_enabled: bool) -> None:
    """The synthetic one too; nobody asks where the plugin is off. What the plugin counts, the daemon shows."""
    without = Profile("kubestow", plugins={"multiPoint": PluginSet(disabled=(DEVICES,))})
    profiles: dict[str, Any] = {} if is_enabled else {"profiles": (without,)}
    async with ApiServer() as server:
        server.forbidden.add(("patch", "resourceclaims/binding"))
        daemon = Daemon(options(server.url, **profiles))
        try:
            await daemon.start()
            await until(lambda: daemon._check.kinds_served() is None, lambda: "not asked yet")
            missing = daemon._check.minor(PERMISSIONS)
        finally:
            await daemon.stop()

        wanted = "missing permission: patch resourceclaims/binding in group resource.k8s.io"
        assert missing.startswith(wanted) if is_enabled else not missing
        plugins = [p for profile in daemon.decisions.profiles.values() for p in profile.pre_bind if p.name == DEVICES]
        assert [p._binder._writer._metrics for p in plugins] == [daemon.metrics.devices] * is_enabled  # type: ignore[attr-defined]
