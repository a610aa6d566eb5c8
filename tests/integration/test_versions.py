"""Devices and capacity objects on servers of several versions and through an upgrade, with the whole daemon.

Rules: docs/spec/dra.md §4.11, §6, and docs/spec/volumes.md §8."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from scheduler.cache.storage.capacity import Capacities
from scheduler.config.types import GATES_ON
from scheduler.core.feature_gates import TAINT_RULES
from scheduler.kube.resources import KINDS
from scheduler.kube.self_check import KINDS_SERVED
from simulator.apiserver import ApiServer
from simulator.apiserver.resources import (
    LIKE_1_23,
    LIKE_1_25,
    LIKE_1_32,
    LIKE_1_33,
    LIKE_1_36,
    LIKE_1_36_WITH_BETAS,
    LIKE_1_37,
)
from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device, a_device_class, a_slice, a_taint_rule
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig_on, until

BEFORE_DEVICES = LIKE_1_25
ALPHA_RULES = (*LIKE_1_36, "resource.k8s.io/v1alpha3")
BETA_RULES = (*LIKE_1_36, "resource.k8s.io/v1beta2/devicetaintrules")
WITH_RULES = GATES_ON | {TAINT_RULES}
SLICE = a_slice("n1", "drv.example.com", a_device("d0").attr("model", "x").cap("memory", "8Gi"))
CLAIM = a_claim("c").request("r", "gpu", count=2, cel="true")


@asynccontextmanager
async def running(served: Sequence[str], gates: frozenset[str] = GATES_ON, **more: Any) -> AsyncIterator[Rig]:
    """Run a daemon on a server with these kinds, with one object of each kind that allocation reads and one of capacity."""
    clock = HastyClock()
    async with ApiServer(clock=clock, served=LIKE_1_36_WITH_BETAS) as server:
        for built in (SLICE, CLAIM, a_device_class("gpu", "true"), a_taint_rule("rule", "example.com/broken")):
            server.apply(built.obj())
        offer(server, "a")
        server.serve(served)
        async with rig_on(server, clock=clock, feature_gates=gates, **more) as cluster:
            yield cluster


def sizes(cluster: Rig) -> tuple[int, int, int, int]:
    devices = cluster.daemon.scheduler.cluster.devices
    published = [device for each in devices.slices() for device in each.spec.devices]
    claims, classes = tuple(devices.claims), tuple(devices.classes)
    return len(claims), len(published), len(classes), sum(len(device.taints) for device in published)


def versions(cluster: Rig) -> Mapping[str, str]:
    return {
        name: "gone" if mirror.stats.absent else mirror.served.version
        for name, mirror in cluster.daemon.informers.reflectors.items()
        if name in {"ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"}
    }


def all_in(version: str) -> dict[str, str]:
    return dict.fromkeys(("ResourceClaim", "ResourceSlice", "DeviceClass"), version)


ALL_WITH_RULES = all_in("v1") | {"DeviceTaintRule": "v1beta2"}


def absences(logs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the plurals of this group that the log reports as not served."""
    problems = [line["problem"] for line in logs if line.get("check") == KINDS_SERVED]
    return [problem.split()[2] for problem in problems if "(resource.k8s.io/" in problem]


async def shows(cluster: Rig, wanted: Mapping[str, str], *counts: int) -> None:
    await until(
        lambda: cluster.daemon.is_synced and versions(cluster) == wanted and sizes(cluster) == counts,
        lambda: f"{versions(cluster)} {sizes(cluster)}, not {wanted} {counts}",
    )


@pytest.mark.parametrize(
    ("served", "gates", "wanted", "counts"),
    [
        pytest.param(LIKE_1_32, GATES_ON, {}, (0, 0, 0, 0), id="1.32: only v1beta1, which is not read"),
        pytest.param(LIKE_1_33, GATES_ON, all_in("v1beta2"), (1, 1, 1, 0), id="1.33: v1beta2"),
        pytest.param(LIKE_1_36_WITH_BETAS, GATES_ON, all_in("v1"), (1, 1, 1, 0), id="1.36 with betas: no rules"),
        pytest.param(BETA_RULES, WITH_RULES, ALL_WITH_RULES, (1, 1, 1, 1), id="1.36 with rules"),
        pytest.param(
            ALPHA_RULES, WITH_RULES, all_in("v1"), (1, 1, 1, 0), id="1.35: rules in v1alpha3, which is not read"
        ),
        pytest.param(LIKE_1_36, WITH_RULES, all_in("v1"), (1, 1, 1, 0), id="rules are wanted and not there"),
        pytest.param(
            LIKE_1_37, WITH_RULES, all_in("v1") | {"DeviceTaintRule": "v1"}, (1, 1, 1, 1), id="1.37: rules in v1"
        ),
        pytest.param(BEFORE_DEVICES, GATES_ON, {}, (0, 0, 0, 0), id="no devices at all"),
    ],
)
async def test_servers_of_every_age(
    served: Sequence[str], gates: frozenset[str], wanted: Mapping[str, str], counts: tuple[int, ...]
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(served, gates) as cluster:
            await shows(cluster, wanted, *counts)
            cluster.node("n1")
            cluster.pod("p")
            await cluster.bound("p")
            kinds = {*all_in(""), *(("DeviceTaintRule",) if gates is WITH_RULES else ())}
            cluster.daemon.metrics.sample()
            assert cluster.metric("kubestow_device_kind_served") == {(kind,): kind in wanted for kind in kinds}
            for kind in kinds:
                lag = cluster.daemon.informers.lag(kind)
                assert (lag is None) == (kind in wanted)
                assert lag is None or not lag.matters
            missing = {KINDS[kind].plural for kind in kinds - wanted.keys()}
            await until(lambda: len(absences(logs)) >= len(missing), lambda: f"{absences(logs)}, not {missing}")
    assert sorted(absences(logs)) == sorted(missing)


@pytest.mark.parametrize(
    ("before", "after", "versions_"),
    [
        pytest.param(LIKE_1_33, LIKE_1_36, ("v1beta2", "v1"), id="over the versions that have both"),
        pytest.param(
            LIKE_1_33, LIKE_1_36_WITH_BETAS, ("v1beta2", "v1beta2"), id="to a server that still has the old one"
        ),
        pytest.param(LIKE_1_36, LIKE_1_33, ("v1", "v1beta2"), id="set back"),
    ],
)
async def test_an_upgrade_in_flight(before: Sequence[str], after: Sequence[str], versions_: tuple[str, str]) -> None:
    async with running(before) as cluster:
        await shows(cluster, all_in(versions_[0]), 1, 1, 1, 0)
        least: tuple[int, ...] = sizes(cluster)
        cluster.server.serve(after)
        cluster.server.apply(a_slice("n2", "drv.example.com", a_device("d0"), a_device("d1")).obj())
        cluster.server.apply(a_claim("later").request("r", "gpu").obj())
        cluster.server.apply(a_device_class("later").obj())

        def has_moved() -> bool:
            nonlocal least
            least = tuple(map(min, least, sizes(cluster)))
            return (versions(cluster), sizes(cluster)) == (all_in(versions_[1]), (2, 3, 2, 0))

        await until(has_moved, lambda: f"{versions(cluster)} {sizes(cluster)}")
        assert least == (1, 1, 1, 0)


async def test_rules_go_and_come_back() -> None:
    """While rules cannot be read, devices keep the taints of the last rules."""
    async with running(LIKE_1_36_WITH_BETAS, WITH_RULES) as cluster:
        await shows(cluster, ALL_WITH_RULES, 1, 1, 1, 1)
        cluster.server.serve(LIKE_1_36)
        await shows(cluster, all_in("v1") | {"DeviceTaintRule": "gone"}, 1, 1, 1, 1)
        assert cluster.daemon.informers.device_kinds()["DeviceTaintRule"] == 0
        cluster.server.delete("DeviceTaintRule", "rule")
        cluster.server.serve(BETA_RULES)
        await shows(cluster, ALL_WITH_RULES, 1, 1, 1, 0)


async def test_what_may_not_be_read_is_waited_for() -> None:
    """Without claims, devices in use could be allocated again, so no pod is scheduled."""
    clock = HastyClock()
    async with ApiServer(clock=clock, served=LIKE_1_36) as server:
        server.forbidden.update({("list", "resourceclaims"), ("watch", "resourceclaims")})
        async with rig_on(server, clock=clock) as cluster:
            daemon = cluster.daemon

            def is_reported() -> bool:
                lag = daemon.informers.lag("ResourceClaim")
                return lag is not None and lag.matters and "forbidden" in lag.why

            await until(is_reported, lambda: str(daemon.informers.lag("ResourceClaim")))
            await until(
                lambda: "list resourceclaims in group resource.k8s.io" in (daemon.self_check.permissions() or ""),
                lambda: str(daemon.self_check.permissions()),
            )
            assert not daemon.is_synced
            server.forbidden.clear()
            await shows(cluster, all_in("v1"), 0, 0, 0, 0)


# -- capacity ----------------------------------------------------------------------------------------------------------


def offer(server: ApiServer, name: str, room: str = "1Gi") -> None:
    metadata = {"name": name, "namespace": "default"}
    selector: dict[str, Any] = {"matchLabels": {}}
    server.create(
        "csistoragecapacities",
        {"metadata": metadata, "storageClassName": "s", "nodeTopology": selector, "capacity": room},
    )


def capacities(cluster: Rig) -> Capacities:
    return cluster.daemon.scheduler.cluster.volumes.capacities


def state(cluster: Rig) -> tuple[str | None, bool, int]:
    known = capacities(cluster)
    return cluster.daemon.informers.capacity_version(), known.is_served, len(known)


async def shows_capacity(cluster: Rig, *wanted: object) -> None:
    await until(
        lambda: cluster.daemon.is_synced and state(cluster) == wanted, lambda: f"{state(cluster)}, not {wanted}"
    )


@pytest.mark.parametrize(
    ("served", "flag", "wanted"),
    [
        pytest.param(LIKE_1_36, "auto", ("v1", True, 1), id="1.27: only v1"),
        pytest.param(LIKE_1_23, "auto", ("none", False, 0), id="1.23: only v1beta1: capacity everywhere"),
        pytest.param(LIKE_1_36, "v1", ("v1", True, 1), id="the flag names v1"),
        pytest.param(LIKE_1_36, "none", ("none", False, 0), id="the flag is none"),
    ],
)
async def test_capacity_on_servers_of_every_age(
    served: Sequence[str], flag: str, wanted: tuple[str, bool, int]
) -> None:
    """D1, D2, D3, D5, D9: one version is watched or none, and pods are scheduled in any case."""
    async with running(served, csi_storage_capacity_api_version=flag) as cluster:
        await shows_capacity(cluster, *wanted)
        cluster.node("n1")
        cluster.pod("p")
        await cluster.bound("p")
        assert len(cluster.daemon.informers.reflectors) > 3
        cluster.daemon.metrics.sample()
        assert cluster.metric("scheduler_volume_capacity_api_info")[wanted[0],] == 1


async def test_capacity_goes_and_comes_back() -> None:
    """D5, D7: without the kind, no pod is refused for lack of capacity."""
    async with running(LIKE_1_36) as cluster:
        await shows_capacity(cluster, "v1", True, 1)
        cluster.server.serve(LIKE_1_23)
        await shows_capacity(cluster, "none", False, 1)
        lag = cluster.daemon.informers.lag("CSIStorageCapacity")
        assert lag is not None
        assert not lag.matters
        cluster.server.serve(LIKE_1_36)
        await shows_capacity(cluster, "v1", True, 1)
        assert cluster.daemon.informers.lag("CSIStorageCapacity") is None
