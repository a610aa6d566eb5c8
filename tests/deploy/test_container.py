"""The image in a container engine: how it is built, its labels, and that it runs as a container."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scheduler import __version__
from simulator.apiserver import ApiServer
from tests.deploy.engine import BASE, IMAGE, Podman
from tests.deploy.image import PROGRAM
from tests.deploy.running import bound, daemon, fill

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 170_000_000
EXAMPLES = ("demo", "devices", "groups", "preemption", "volumes")
RESTRICTED = ("--rm", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--no-healthcheck")

pytestmark = pytest.mark.timeout(900)  # the first test waits for the image


def run(podman: Podman, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kubestow in a container that may write nothing."""
    return podman.run("run", *RESTRICTED, f"--volume={ROOT / 'examples'}:/examples:ro", IMAGE, *words, check=False)


# -- metadata --------------------------------------------------------------------------------------------------------------


def test_configuration(podman: Podman) -> None:
    """The user is numeric, so that `runAsNonRoot` can check it, and no shell runs between the engine and the daemon."""
    config = podman.inspect(IMAGE)["Config"]

    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (list(PROGRAM), ["run"])
    assert config["ExposedPorts"] == {"10259/tcp": {}}
    assert config["Env"] == ["PATH=/opt/kubestow/bin"]


def test_labels(podman: Podman) -> None:
    prefix = "org.opencontainers.image."
    found = podman.inspect(IMAGE)["Labels"]
    labels = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    created, revision = labels.pop("created"), labels.pop("revision")

    assert labels == {
        "title": "kubestow",
        "description": "A secondary Kubernetes scheduler that stows each pod together with its volumes and devices",
        "url": "https://github.com/kubestow/kubestow",
        "source": "https://github.com/kubestow/kubestow",
        "documentation": "https://github.com/kubestow/kubestow/tree/main/docs",
        "licenses": "Apache-2.0",
        "base.name": BASE,
        "version": "1.2.3",
    }
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", created)
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", revision)


def test_size(podman: Podman) -> None:
    assert 50_000_000 < podman.inspect(IMAGE)["Size"] < LIMIT_BYTES


def test_the_context_is_small(podman: Podman, tmp_path: Path) -> None:
    everything = tmp_path / "Dockerfile"
    everything.write_text("FROM scratch\nCOPY . /\nCMD none\n")
    podman.run("build", "--format=docker", f"--file={everything}", "--tag=localhost/context", str(ROOT))
    podman.export("localhost/context", tmp_path / "context")
    podman.run("rmi", "localhost/context")
    sent = {str(each.relative_to(tmp_path / "context")) for each in (tmp_path / "context").rglob("*") if each.is_file()}
    allowed = (
        r"(kubestow/.+|scheduler/.+|simulator/.+|requirements/.+|deploy/image/.+|LICENSE|README\.md|pyproject\.toml)"
    )
    mounted = r"(dev|etc|proc|run|sys)/.*|\.dockerenv"

    assert [name for name in sent if not re.fullmatch(f"{allowed}|{mounted}", name)] == []
    assert [name for name in sent if name.endswith(".pyc")] == []
    assert {"scheduler/daemon/app.py", "pyproject.toml", "requirements/runtime.txt", "deploy/image/build.sh"} <= sent


# -- commands --------------------------------------------------------------------------------------------------------------


def test_version(podman: Podman) -> None:
    ended = run(podman, "version")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"kubestow {__version__} (Python ")


@pytest.mark.parametrize("name", EXAMPLES)
def test_simulate(podman: Podman, name: str) -> None:
    ended = run(podman, "simulate", f"/examples/{name}.yaml")

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^[1-9]\d* of \d+ pods? placed on ", ended.stdout, re.MULTILINE), ended.stdout


def test_all_examples_are_simulated() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.yaml")} == {*EXAMPLES, "kind"}


def test_check_config(podman: Podman) -> None:
    ended = run(podman, "check-config", "/examples/config/kubestow.yaml")

    assert ended.returncode == 0, ended.stderr


# -- the daemon ------------------------------------------------------------------------------------------------------------


async def test_the_daemon(podman: Podman, tmp_path: Path) -> None:
    names = (f"daemon-{at}" for at in itertools.count())
    name = ""

    def command(words: Sequence[str]) -> Sequence[str]:
        nonlocal name
        name = next(names)
        return ["podman", "run", f"--name={name}", *RESTRICTED, IMAGE, *words]

    def find_pid(_: int) -> int | None:
        return int(podman.run("inspect", "--format={{.State.Pid}}", name).stdout) or None

    async with ApiServer() as server:
        fill(server)
        master = f"--master={server.url}"
        async with daemon(command, master, log=tmp_path / "log", environ=podman.environ, find_pid=find_pid) as running:
            await bound(server, running)
            status = await asyncio.to_thread(Path(f"/proc/{running.pid}/status").read_text)
            is_healthy = await asyncio.to_thread(healthy, podman, name, running.port)
            is_healthy_elsewhere = await asyncio.to_thread(healthy, podman, name, 1)
            assert await running.ended() == 0, running.log.read_text()

    assert (is_healthy, is_healthy_elsewhere) == (True, False)
    assert re.findall(r"^Uid:\s+(\d+)\s+(\d+)", status, re.MULTILINE) == [("65532", "65532")]
    assert re.findall(r"^CapEff:\s+(\w+)", status, re.MULTILINE) == ["0" * 16]


def healthy(podman: Podman, container: str, port: int) -> bool:
    """Run the command of HEALTHCHECK in the container, with another port than the default."""
    _, *command = podman.inspect(IMAGE)["Healthcheck"]["Test"]
    assert any("10259" in word for word in command)
    there = [word.replace("10259", str(port)) for word in command]
    return podman.run("exec", container, *there, check=False).returncode == 0
