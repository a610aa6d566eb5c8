"""Decisions that differ between versions of kube-scheduler, by `kubestow simulate --emulated-version` (docs/spec/changes-1.38.md §1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest

from scheduler.config.types import RunOptions
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from simulator.builders.core import node as a_node, pod as a_pod
from simulator.simulate.input.from_cluster import ClusterObjects
from tests.integration.conftest import Simulation, placements

OTHER = {"metadata": {"namespace": "other"}}


def simulated(simulate: Simulation, version: str, *objects: Any) -> dict[str, Any]:
    """Return the outcome of a simulation with the behaviour of this version."""
    _, shown, _ = simulate.of(*objects, flags=[f"--emulated-version={version}"])
    assert isinstance(shown, dict)
    return shown


@pytest.mark.parametrize(
    ("version", "victim"),
    [
        pytest.param("1.37", "protected", id="1.37: the pod of the lowest priority"),
        pytest.param("1.38", "higher", id="1.38: the budget counts"),
    ],
)
def test_a_budget_with_an_empty_selector(simulate: Simulation, version: str, victim: str) -> None:
    """A pod of priority 0 and without labels is under the budget on node a; a pod of priority 5 is on node b."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    shown = simulated(
        simulate,
        version,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
        a_node("a").cpu("1"),
        a_node("b").cpu("1"),
        a_pod("protected").cpu("1").bound_to("a").priority(0),
        a_pod("higher").set(OTHER).cpu("1").bound_to("b").priority(5),
        a_pod("p").set(OTHER).cpu("1").priority(9),
        budget,
    )

    assert [each["pod"].partition("/")[2] for each in shown["preempted"]] == [victim]


CROWDED = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod topology spread constraints"


@pytest.mark.parametrize(("version", "placed"), [("1.37", ("a", "")), ("1.38", ("", CROWDED))])
def test_a_spread_constraint_with_an_empty_selector(
    simulate: Simulation, version: str, placed: tuple[str, str]
) -> None:
    """Two pods are on node a, none is on node b, and a third pod is to be on node a. Up to 1.37 an empty selector counts none."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "nodeAffinityPolicy": "Ignore",
    }
    shown = simulated(
        simulate,
        version,
        a_node("a").cpu("9"),
        a_node("b").cpu("9"),
        a_pod("one").cpu("1").bound_to("a"),
        a_pod("two").cpu("1").bound_to("a"),
        a_pod("p")
        .cpu("1")
        .set({"spec": {"topologySpreadConstraints": [constraint], "nodeSelector": {"kubernetes.io/hostname": "a"}}}),
    )

    assert placements(shown)["p"] == placed


@pytest.mark.parametrize(("version", "node"), [("1.37", "pa"), ("1.38", "pb")])
def test_the_node_of_a_pod_with_pod_level_requests(simulate: Simulation, version: str, node: str) -> None:
    """Node pa is empty and has 4 CPU. Node pb has 16 CPU, of which 4 are used. Up to 1.37 the score counts containers only."""
    shown = simulated(
        simulate,
        version,
        a_node("pa").cpu("4").memory("64Gi"),
        a_node("pb").cpu("16").memory("64Gi"),
        a_pod("used").cpu("4").bound_to("pb"),
        a_pod("p").set({"spec": {"resources": {"requests": {"cpu": "3", "memory": "38Gi"}}}}),
    )

    assert placements(shown)["p"] == (node, "")


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the versions of each simulation: that of its API server, and the one that the scheduler has."""
    found: list[tuple[str, str]] = []

    class Reading(Daemon):
        def __init__(self, options: RunOptions, *, clock: Clock) -> None:
            super().__init__(options, clock=clock)
            self._given = options

        async def start(self) -> None:
            headers = {"Authorization": f"Bearer {self._given.token}"}
            async with (
                aiohttp.ClientSession() as http,
                http.get(f"{self._given.master}/version", headers=headers) as answer,
            ):
                found.append(((await answer.json())["gitVersion"], self._given.emulated_version))
            await super().start()

    monkeypatch.setattr("simulator.simulate.Daemon", Reading)
    return found


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        pytest.param((), "1.36", id="default"),
        pytest.param(("--emulated-version=1.36",), "1.36", id="1.36"),
        pytest.param(("--emulated-version=1.37",), "1.37", id="1.37"),
        pytest.param(("--emulated-version=1.38",), "1.38", id="1.38"),
    ],
)
def test_the_api_server_and_the_scheduler_have_the_emulated_version(
    simulate: Simulation, versions: list[tuple[str, str]], flags: Sequence[str], version: str
) -> None:
    code, _, said = simulate.of(a_node("a"), a_pod("p"), flags=flags)

    assert (code, said, versions) == (0, "", [(f"v{version}.0", version)])


@pytest.mark.parametrize(
    ("git_version", "flags", "version"),
    [
        pytest.param("v1.37.2", (), "1.37", id="that of the cluster"),
        pytest.param("v1.38.0-beta.0", (), "1.38", id="a pre-release"),
        pytest.param("v1.38.0", ("--emulated-version=1.36",), "1.36", id="the flag wins"),
    ],
)
def test_the_version_of_a_cluster(
    simulate: Simulation,
    monkeypatch: pytest.MonkeyPatch,
    versions: list[tuple[str, str]],
    git_version: str,
    flags: Sequence[str],
    version: str,
) -> None:
    async def read(*_: Any, **__: Any) -> ClusterObjects:
        return ClusterObjects(objects=(), git_version=git_version)

    monkeypatch.setattr("simulator.simulate.read_cluster", read)
    code, _, said = simulate.of(a_node("a"), a_pod("p"), flags=("--from-cluster", *flags))

    assert (code, said, versions) == (0, "", [(f"v{version}.0", version)])


def capacity_claim(amount: str, version: str = "v1") -> dict[str, Any]:
    asked = {"deviceClassName": "x", "capacity": {"requests": {"m": amount}}}
    request = {"name": "a"} | (asked if version == "v1beta1" else {"exactly": asked})
    spec = {"devices": {"requests": [request]}}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        pytest.param(
            capacity_claim("-1"),
            'spec.devices.requests[0].exactly.capacity.requests[m]: Invalid value: "-1": must be greater than or equal to 0',
            id="a negative amount",
        ),
        pytest.param(
            capacity_claim("1", "v1beta1"),
            'kind: no matches for kind "ResourceClaim" in version "resource.k8s.io/v1beta1"; Kubernetes 1.38 serves resource.k8s.io/v1',
            id="a version that is gone",
        ),
    ],
)
@pytest.mark.parametrize("version", ["1.36", "1.37", "1.38"])
def test_manifests_are_validated_as_by_the_emulated_version(
    simulate: Simulation, version: str, claim: dict[str, Any], why: str
) -> None:
    """Without validation the server of 1.38 has the claim, as one that was upgraded with it."""
    flag = f"--emulated-version={version}"
    code, _, said = simulate.of(a_node("a"), a_pod("p"), claim, flags=[flag])
    assert (code, why in said) == ((2, True) if version == "1.38" else (0, False))

    code, *_ = simulate.of(a_node("a"), a_pod("p"), claim, flags=[flag, "--validate=ignore"])
    assert code == 0
