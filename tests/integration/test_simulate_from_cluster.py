"""`kubestow simulate --from-cluster`, whole: a kubeconfig in, and the same answer from the cluster and from its dump."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.apiserver import ApiServer
from simulator.builders.core import node, pod
from tests.integration.conftest import Simulation, workload
from tests.integration.test_transport import kubeconfig

pytestmark = pytest.mark.usefixtures("guest")

Object = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield a node of four CPUs, one of them in use by another namespace; each of two namespaces needs more pods."""
    async with ApiServer() as server:
        for obj in (
            node("n").cpu("4").obj(),
            pod("old", "b").cpu("1").bound_to("n").obj(),
            workload("Deployment", "web", 2, namespace="a"),
            workload("Deployment", "other", 1, namespace="b"),
            pod("waits", "b").cpu("4").obj(),
        ):
            server.apply(obj)
        yield server


@pytest.fixture
def cluster(tmp_path: Path, server: ApiServer) -> list[str]:
    """The flags for this cluster."""
    return ["--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "config", {}, server.url)]


def pods(shown: Object) -> dict[str, str]:
    return {each["pod"]: each["node"] or "" for each in shown["pods"]}


async def test_a_cluster_and_its_dump(simulate: Simulation, cluster: list[str], server: ApiServer) -> None:
    before = server.resource_version
    dump = Path("dump.json.gz")
    code, shown, said = await asyncio.to_thread(simulate, *cluster, "--save", str(dump))
    _, again, _ = await asyncio.to_thread(simulate, str(dump))

    assert (code, len(shown["pods"])) == (1, 4)
    assert shown["summary"]["placed"] == 3
    assert f"in {dump}" in said
    assert (pods(again), again["problems"]) == (pods(shown), shown["problems"])
    assert server.resource_version == before
    assert {request.partition(" ")[0] for request in server.requests()} == {"list"}


async def test_one_namespace(simulate: Simulation, cluster: list[str]) -> None:
    code, shown, _ = await asyncio.to_thread(simulate, *cluster, "-n", "a")

    assert (code, pods(shown)) == (0, {"a/web-0": "n", "a/web-1": "n"})
    assert shown["summary"]["boundBefore"] == 1


async def test_manifests_on_top(simulate: Simulation, cluster: list[str], tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    more = [workload("Deployment", "web", 5, namespace="a"), node("m").cpu("2").obj()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))
    code, shown, _ = await asyncio.to_thread(simulate, *cluster, "-n", "a", "-f", str(file))

    assert (code, sorted(pods(shown).values())) == (0, ["m", "m", "n", "n", "n"])


async def test_permissions_that_are_missing(simulate: Simulation, cluster: list[str], server: ApiServer) -> None:
    server.forbidden.update({("list", "pods"), ("list", "deployments")})
    refused, nothing, said = await asyncio.to_thread(simulate, *cluster)
    partial, shown, warned = await asyncio.to_thread(simulate, *cluster, "--allow-partial")

    assert (refused, nothing) == (2, {})
    assert "--verb=list --resource=pods,deployments.apps\n" in said
    assert "list pods at the cluster scope: " in said
    assert (partial, shown["pods"]) == (0, [])
    assert warned.count("warning: --from-cluster: the user lacks permissions") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["-n", "a", "x.yaml"], "--namespace has an effect only with --from-cluster", id="a namespace"),
        pytest.param(["--save", "d", "x.yaml"], "--save has an effect only with --from-cluster", id="a file to save"),
        pytest.param([], "no input: name files or directories", id="no input at all"),
    ],
)
def test_flags_without_a_cluster(capsys: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    assert cli.main(["simulate", *flags]) == 2
    assert said in capsys.readouterr().err


def test_the_dump_command_needs_no_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--print-dump-command"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("kubectl get pods,nodes,")
