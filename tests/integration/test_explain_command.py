"""`kubestow explain` and a whole daemon: through the Lease, the pod and a port forwarding, with the rights of each user."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kubestow.commands.flags import OPERATOR_COMMANDS
from scheduler.cli import main as cli
from scheduler.config.types import LeaderElection, RunOptions
from tests.integration.daemon import options
from tests.integration.test_serving import Served, served
from tests.support.kubeconfigs import kubeconfig
from tests.support.port_forwarding import ApiFront, Forwarder, fronted

NAMESPACE = "kube-system"


def electing(url: str) -> RunOptions:
    return options(url, leader_election=LeaderElection(leader_elect=True), serves_ui=True)


@dataclass
class Explained:
    """A daemon that leads, the pod of its name, and an API server that forwards its port."""

    cluster: Served
    front: ApiFront
    directory: Path
    capsys: pytest.CaptureFixture[str]

    async def run(self, *argv: str, user: dict[str, Any]) -> tuple[int, str, str]:
        """Run the command in a thread, because it has an event loop itself; return exit code and both outputs."""
        file = self.directory / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig(user, self.front.url)))
        self.capsys.readouterr()
        code = await asyncio.to_thread(cli.main, [*argv, "--kubeconfig", str(file)], OPERATOR_COMMANDS)
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err


@contextlib.asynccontextmanager
async def explained(
    directory: Path, capsys: pytest.CaptureFixture[str], given: Callable[[str], RunOptions] = electing
) -> AsyncIterator[Explained]:
    async with served(given=given) as cluster:
        rig = cluster.rig
        rig.server.people.sees |= {("ann", "post", "/debug/what-if"), ("ann", "get", "/ui"), ("ann", "get", "/ui/data")}
        secure_port = rig.daemon.secure_port
        assert secure_port is not None
        name = socket.gethostname()
        container = {"name": "scheduler", "image": "kubestow:dev", "args": ["run", "--secure-port=8443"]}
        spec = {"nodeName": "n1", "containers": [container]}
        pod = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        rig.server.create("pods", pod)
        rig.node("n1")
        rig.pod("large", cpu="64")
        await rig.until(rig.leads, "never leads")
        await rig.until(lambda: rig.condition("large").get("status") == "False", "never tried")
        async with fronted(ApiFront(Forwarder(secure_port), behind=rig.server.url)) as front:
            yield Explained(cluster, front, directory, capsys)


ANN, BOB = {"token": "ann's"}, {"token": "bob's"}


async def test_an_explanation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("explain", "large", user=ANN)
        assert (code, err) == (2, "")
        assert out.startswith("default/large: none of 1 node fits: 1 Insufficient cpu\n")
        assert "needs 64, n1 has 4" in out
        name = socket.gethostname()
        assert cluster.front.forwarder.requested == [
            f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/portforward?ports=8443"
        ]

        code, out, err = await cluster.run("explain", "default/large", "-o", "json", user=ANN)
        assert (code, err) == (2, "")
        assert yaml.safe_load(out)["exitCode"] == 2

        code, out, err = await cluster.run("explain", "group", "none", user=ANN)
        assert (code, out, err) == (3, "", "kubestow: there is no group default/none\n")

        code, out, err = await cluster.run("explain", "none", user=ANN)
        assert (code, out, err) == (3, "", "kubestow: there is no pod default/none that has not ended\n")


POD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {schedulerName: kubestow, containers: [{name: c, image: none, resources: {requests: {cpu: "2"}}}]}
"""


async def test_a_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four CPUs hold two of three pods, and a second node the third."""
    manifest = tmp_path / "web.yaml"
    manifest.write_text(POD)
    async with explained(tmp_path, capsys) as cluster:
        question = ("what-if", "-f", str(manifest), "-o", "json")
        code, out, err = await cluster.run(*question, user=BOB)
        assert (code, out) == (4, "")
        assert 'cannot post path "/debug/what-if"; a ClusterRole needs the rule {nonResourceURLs: ' in err

        code, out, err = await cluster.run(*question, user=ANN)
        assert (code, err) == (2, "")
        assert {key: yaml.safe_load(out)[key] for key in ("replicas", "placed")} == {"replicas": 3, "placed": 2}

        code, out, err = await cluster.run(*question, "--replicas=2", user=ANN)
        assert (code, err) == (0, "")
        code, out, err = await cluster.run(*question, "--add-node-like=n1", user=ANN)
        assert (code, err) == (0, "")
        assert yaml.safe_load(out)["placed"] == 3

        code, out, err = await cluster.run(*question, "--cordon=none", user=ANN)
        assert (code, out) == (3, "")
        assert err.startswith("kubestow: 400 ")
        assert set(cluster.cluster.rig.pods()) == {"large", socket.gethostname()}


GROUP = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: training}
spec: {minMember: 3}
---
apiVersion: batch/v1
kind: Job
metadata: {name: training}
spec:
  parallelism: 3
  template:
    metadata: {labels: {scheduling.x-k8s.io/pod-group: training}}
    spec: {schedulerName: kubestow, containers: [{name: c, image: none, resources: {requests: {cpu: "2"}}}]}
"""


async def test_a_question_about_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four CPUs hold two of three pods, so that none is placed."""
    manifest = tmp_path / "group.yaml"
    manifest.write_text(GROUP)
    async with explained(tmp_path, capsys) as cluster:
        question = ("what-if", "-f", str(manifest))
        code, out, err = await cluster.run(*question, user=ANN)
        assert (code, err) == (2, "")
        said = "default/training (PodGroup of scheduling.x-k8s.io): 2 of 3 pods fit together, and 3 have to\n"
        assert out.startswith(f"0 of 3 pods fit\n{said}")

        code, out, err = await cluster.run(*question, "--add-node-like=n1", user=ANN)
        assert (code, err) == (0, "")
        assert "an attempt now places 3 of 3 pods\n" in out


@pytest.mark.parametrize(
    ("user", "said"),
    [
        pytest.param(
            BOB,
            'no permission: forbidden: User "bob" cannot get path "/debug/explain/default/large"; a ClusterRole needs '
            'the rule {nonResourceURLs: ["/debug/explain/*"], verbs: [get]}',
            id="a user without the right",
        ),
        pytest.param(
            {"token": "unknown"}, " does not accept your credentials (401): Unauthorized; ", id="a foreign token"
        ),
        pytest.param({}, 'forbidden: User "system:anonymous" cannot get path', id="no credentials"),
    ],
)
async def test_users_without_the_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], user: dict[str, str], said: str
) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("explain", "large", user=user)

    assert (code, out) == (4, "")
    assert said in err
    assert err.count("\n") == 1


async def test_a_daemon_that_no_lease_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another replica may have started after the last one ended: the old holder is in no Lease, or its pod has gone."""
    async with explained(tmp_path, capsys) as cluster:
        cluster.cluster.rig.server.delete("pods", socket.gethostname(), NAMESPACE, grace_s=0)
        code, _, err = await cluster.run("explain", "large", user=ANN)
        assert code == 4
        assert f"{socket.gethostname()}_" in err
        assert " is no pod of namespace kube-system; " in err

        code, _, err = await cluster.run("explain", "large", "--lease-name=other", user=ANN)
        assert (code, err.startswith("kubestow: there is no Lease kube-system/other; ")) == (4, True)

        code, out, err = await cluster.run("explain", "large", "--server", cluster.cluster.url, user=ANN)
        assert (code, err) == (2, "")
        assert out.startswith("default/large: ")


# -- the page ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def page_of(cluster: Explained, user: dict[str, Any]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `kubestow ui` in a process, because it ends by a signal."""
    file = cluster.directory / "of-the-page"
    file.write_text(yaml.safe_dump(kubeconfig(user, cluster.front.url)))
    command = (sys.executable, "-m", "scheduler", "ui", "--no-browser", "--kubeconfig", str(file))
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def test_the_page_through_the_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page has Ann's permissions, answers her browser alone, and ends at Ctrl-C."""
    async with (
        explained(tmp_path, capsys) as cluster,
        page_of(cluster, ANN) as running,
        aiohttp.ClientSession() as http,
    ):
        assert running.stdout is not None
        url = (await running.stdout.readline()).decode().strip()
        assert await running.stdout.readline() == b"The page has your permissions. Ctrl-C ends it.\n"
        async with http.get(url) as page:
            assert page.status == 200
            assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
            assert (await page.text()).startswith("<!doctype html>")
        base = url.removesuffix("/ui")
        async with http.get(f"{base}/ui/data") as data:
            assert (await data.json())["pending"] == 1
        async with http.get(f"{base}/debug/explain/default/large") as explanation:
            assert (await explanation.json())["verdict"] == "doesNotFit"
        question = {
            "manifests": [
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
            ]
        }
        async with http.post(f"{base}/debug/what-if", json=question) as answer:
            assert (await answer.json())["verdict"] == "fits"
        cluster.front.statuses = {"/portforward": 403}
        async with http.get(f"{base}/ui/data") as refused:
            assert (refused.status, "no permission to forward port" in await refused.text()) == (502, True)
        running.send_signal(signal.SIGINT)
        assert await running.communicate() == (b"", b"")
        assert running.returncode == 0


async def test_the_page_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("ui", "--no-browser", user=BOB)

    assert (code, out) == (4, "")
    assert 'a ClusterRole needs the rule {nonResourceURLs: ["/ui"], verbs: [get]}' in err
