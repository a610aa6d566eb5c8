"""`kubestow explain`, `what-if` and the commands for operators through a real API server and upstream's port forwarding, with each right missing once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import sys
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml

from kubestow.commands.flags import OPERATOR_COMMANDS
from scheduler.cli import kubectl_plugin
from tests.e2e.cluster import Cluster, Json, account, node, pod, until
from tests.e2e.controlplane.gate import built_or_skip
from tests.e2e.controlplane.harness import ControlPlane, daemon
from tests.e2e.controlplane.process import Group, ServerProcess, free_port
from tests.e2e.kubelet.build import kubelet
from tests.support.kubeconfigs import kubeconfig
from tests.unit.server.authorities import Authority

pytestmark = pytest.mark.e2e
NAME = "explained"
NAMESPACE = "kube-system"
HOST = socket.gethostname()
PORT_FORWARD = ["get", "create"]


@dataclass
class Installation:
    """A daemon that leads, its pod on a node whose kubelet forwards ports to it, and a pod that fits nowhere."""

    plane: ControlPlane
    http: aiohttp.ClientSession
    server: ServerProcess
    kubelet: ServerProcess
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def flags(self, token: str) -> tuple[str, ...]:
        file = self.directory / "kubeconfig"
        authority = {"certificate-authority": str(self.plane.ca_file)}
        file.write_text(yaml.safe_dump(kubeconfig({"token": token}, self.plane.url, **authority)))
        return ("--kubeconfig", str(file), f"--lease-name={NAME}", "--timeout=100s")

    async def run_program(self, token: str, *argv: str) -> tuple[int, str, str]:
        """Run the plugin of kubectl as a process; return exit code and both outputs."""
        code = "import sys; from scheduler.cli.kubectl_plugin import main; sys.exit(main())"
        command = (sys.executable, "-c", code, *argv, *self.flags(token))
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def run(self, token: str, *argv: str) -> tuple[int, str, str]:
        """Run the same in a thread of this process, which saves a second."""
        self.capsys.readouterr()
        code = await asyncio.to_thread(kubectl_plugin.main, [*argv, *self.flags(token)], OPERATOR_COMMANDS)
        return (code, *self.capsys.readouterr())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of the kubelet, which the API server does not verify."""
    issued, file = Authority("kubelet").issues("127.0.0.1"), tmp_path / "kubelet.pem"
    file.write_bytes(issued.key + issued.certificate)
    return file


@pytest.fixture
async def installation(
    control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], certificate: Path
) -> AsyncIterator[Installation]:
    program, port, kubelet_port = built_or_skip(kubelet), free_port(), free_port()
    election = {"leaderElect": True, "resourceName": NAME, "resourceNamespace": NAMESPACE}
    flags = [f"--secure-port={port}", "--bind-address=127.0.0.1"]
    async with contextlib.AsyncExitStack() as stack:
        group = Group(control_plane.logs)
        stack.callback(group.stop)
        forwarding = group.start("kubelet", [str(program), f"127.0.0.1:{kubelet_port}", str(certificate), str(port)])
        http = await stack.enter_async_context(control_plane.client())
        system, mine = Cluster(http, NAMESPACE), Cluster(http)
        holder = node("explained-1")
        holder["status"] |= {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        }
        own = pod(HOST, "none", {"nodeName": "explained-1"})
        own["metadata"]["namespace"] = NAMESPACE
        stack.push_async_callback(mine.wipe)
        stack.push_async_callback(system.wipe)
        await mine.create(holder, pod("large", NAME, cpu="64"))
        await system.create(own)
        server = stack.enter_context(daemon(control_plane, NAME, config={"leaderElection": election}, flags=flags))

        async def is_tried() -> bool:
            found = await mine.get(f"{mine.pods}/large")
            return any(each["type"] == "PodScheduled" for each in found["status"].get("conditions") or ())

        async def listens() -> bool:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", kubelet_port)
                writer.close()
                await writer.wait_closed()
                return True
            return False

        await until(is_tried, "the condition of pod large", server=server)
        await until(listens, "the kubelet's port", server=forwarding)
        yield Installation(control_plane, http, server, forwarding, tmp_path, capsys)
        assert "Traceback" not in server.output()


def rules(*leaves_out: str, port_forward: list[str] = PORT_FORWARD) -> list[Json]:
    """The rules that docs/explain.md names, without some."""
    found: dict[str, Json] = {
        "leases": {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get"],
        },
        "pods": {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        "portforward": {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": port_forward},
        "explain": {"nonResourceURLs": ["/debug/explain/*"], "verbs": ["get"]},
        "what-if": {"nonResourceURLs": ["/debug/what-if"], "verbs": ["post"]},
    }
    return [rule for name, rule in found.items() if name not in leaves_out]


FORWARDED = "no permission to forward port 10259 of pod kube-system/"
ROWS: dict[str, tuple[list[Json], str]] = {
    "a user without any right": (
        [],
        f'no permission to get Lease kube-system/{NAME}: leases.coordination.k8s.io "{NAME}"',
    ),
    "no right to the pod": (
        rules("pods"),
        f'no permission to get Pod kube-system/{HOST}: pods "{HOST}" is forbidden: ',
    ),
    "no right to forward ports": (rules("portforward"), FORWARDED),
    "a right to get port forwardings alone": (rules(port_forward=["get"]), FORWARDED),
    "a right to create port forwardings alone": (rules(port_forward=["create"]), FORWARDED),
    "no right to the page": (
        rules("explain"),
        (
            'no permission: forbidden: User "system:serviceaccount:default:{user}" cannot get path '
            '"/debug/explain/default/large"'
        ),
    ),
}


async def test_users(installation: Installation) -> None:
    """One test, because the daemon and its pod are the same for all users."""
    admin = await account(installation.http, "explain-all", rules())
    code, out, err = await installation.run_program(admin, "explain", "default/large")
    assert (code, err) == (2, ""), installation.server.tail()
    assert "needs 64, explained-1 has 4" in out
    assert f"GET /portForward/{NAMESPACE}/{HOST}?port=10259\n" in installation.kubelet.log.read_text()

    code, out, err = await installation.run(admin, "what-if", "--drain=explained-1", "-o", "json")
    assert (code in {0, 1, 2}, err) == (True, "")
    assert json.loads(out)["exitCode"] == code

    tokens = {
        name: await account(installation.http, f"explain-{at}", row[0]) for at, (name, row) in enumerate(ROWS.items())
    }
    for at, (name, (_, said)) in enumerate(ROWS.items()):
        code, out, err = await installation.run(tokens[name], "explain", "default/large")
        assert (code, out) == (4, ""), name
        assert err.startswith("kubectl kubestow: " + said.format(user=f"explain-{at}")), name
        assert (err.count("\n"), "needs the rule {" in err) == (1, True), name


def documented_rules() -> list[Json]:
    """The rules of the roles in docs/commands.md."""
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return [rule for role in yaml.safe_load_all(block) for rule in role["rules"]]


async def test_commands_for_operators(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the documented rules each command does its work; the report names the objects that the user may not list."""
    monkeypatch.chdir(installation.directory)
    token = await account(installation.http, "operator", documented_rules())
    code, out, err = await installation.run(token, "status", "-o", "json")
    shown = json.loads(out)
    assert (err, shown["unavailable"]) == ("", []), installation.server.tail()
    assert (shown["leader"]["pod"], shown["leads"]) == (f"{NAMESPACE}/{HOST}", True)
    assert (code, shown["healthy"]) == ((0, True) if not shown["troubles"] else (1, False))

    code, out, err = await installation.run(token, "queue")
    assert (code, err) == (0, "")
    assert any(line.split()[:2] == ["default/large", "unschedulable"] for line in out.splitlines())

    code, out, err = await installation.run(token, "bugreport", "--output-file=report.tar.gz")
    assert (code, err) == (0, "")
    with tarfile.open(installation.directory / "report.tar.gz") as tar:
        read = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        files = {name: file.read().decode() for name, file in read.items() if file is not None}
    pages = {"status.txt", "queue.txt", "metrics.txt", "configz.json", "debug-cache.json"}
    assert pages | {"lease.json", "pods.json", "deployments.json", "events.json"} <= files.keys()
    assert "objects.json: Node  the user may not list nodes at the cluster scope" in files["MANIFEST.txt"]
    assert [name for name, text in files.items() if token in text] == []

    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}
    planner = await account(installation.http, "planner", [*documented_rules(), everything])
    code, out, err = await installation.run(planner, "what-if", "--nodes-needed=explained-1")
    assert (code, "note: the default configuration" in err) == (2, False)
    assert out.startswith("more nodes like explained-1 do not help, limited by cpu\n")
