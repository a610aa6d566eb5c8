"""`make image` and `make kind`: the calls that the scripts make of docker or podman, kind, helm and kubectl, which are stubs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.deploy.commands import ROOT, ended

IMAGE = "localhost/kubestow:dev"
PLAYED = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $1 $2" in
  "$SILENT info "*) exit 1 ;;
  "kind get clusters") echo "$CLUSTERS" ;;
  *" image inspect") echo sha256:abc ;;
  *" save "*) echo archive ;;
esac
"""


class Played:
    """A machine with these stubs and the tools of any system."""

    def __init__(self, directory: Path, *tools: str, silent: str = "none", clusters: str = "") -> None:
        self._calls = directory / "calls"
        self._calls.touch()
        places = directory / "bin"
        places.mkdir()
        for tool in tools:
            (places / tool).write_text(PLAYED)
            (places / tool).chmod(0o755)
        for tool in ("bash", "sh", "env", "git", "grep", "basename", "dirname", "mktemp", "rm", "cat"):
            found = next(Path(at) / tool for at in os.environ["PATH"].split(":") if (Path(at) / tool).exists())
            (places / tool).symlink_to(found)
        self._env = {"PATH": str(places), "CALLS": str(self._calls), "SILENT": silent, "CLUSTERS": clusters}

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        return ended([ROOT / "deploy" / script, IMAGE], env={**self._env, **env})

    def calls(self, *begin: str) -> list[str]:
        """In order; only those with this prefix."""
        lines = self._calls.read_text().splitlines()
        return [line for line in lines if line.startswith(begin)] if begin else lines


@pytest.mark.parametrize(
    ("tools", "silent", "env", "engine"),
    [
        pytest.param(["docker", "podman"], "none", {}, "docker", id="docker first"),
        pytest.param(["docker", "podman"], "docker", {}, "podman", id="podman where docker's daemon is silent"),
        pytest.param(["podman"], "none", {}, "podman", id="podman alone"),
        pytest.param(["docker", "nerdctl"], "none", {"ENGINE": "nerdctl"}, "nerdctl", id="the chosen one"),
    ],
)
def test_the_engine(tools: list[str], silent: str, env: Mapping[str, str], engine: str, tmp_path: Path) -> None:
    played = Played(tmp_path, *tools, silent=silent)
    ran = played.run("image/make.sh", **env)
    build = played.calls(f"{engine} build")

    assert (ran.returncode, len(build)) == (0, 1), ran.stderr
    assert f"--tag {IMAGE}" in build[0]
    assert "--build-arg VERSION=dev --build-arg REVISION=" in build[0]
    assert ("--format=docker" in build[0]) == (engine == "podman")


@pytest.mark.parametrize(
    ("tools", "silent"), [([], "none"), (["docker"], "docker")], ids=["none there", "none answers"]
)
@pytest.mark.parametrize("script", ["image/make.sh", "kind/up.sh"])
def test_without_an_engine(script: str, tools: list[str], silent: str, tmp_path: Path) -> None:
    ran = Played(tmp_path, "kind", "kubectl", "helm", *tools, silent=silent).run(script)

    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "No container engine answers (tried: docker podman). Install one, start its daemon, or name yours: ENGINE=..."
    ]


@pytest.mark.parametrize("missing", ["kind", "kubectl", "helm"])
def test_without_a_tool(missing: str, tmp_path: Path) -> None:
    played = Played(tmp_path, *({"docker", "kind", "kubectl", "helm"} - {missing}))
    ran = played.run("kind/up.sh")

    assert (ran.returncode, ran.stderr) == (1, f"{missing} is needed and was not found: see docs/kind.md\n")
    assert played.calls() == []


@pytest.mark.parametrize(("clusters", "made"), [("other", 1), ("kubestow", 0)], ids=["a new cluster", "again"])
def test_kind(clusters: str, made: int, tmp_path: Path) -> None:
    played = Played(tmp_path, "docker", "kind", "kubectl", "helm", clusters=clusters)
    ran = played.run("kind/up.sh")
    workload = "kubectl --context kind-kubestow apply -f examples/"
    steps = ("kind create", "docker save", "kind load", "helm upgrade", workload)
    found = [next(step for step in steps if call.startswith(step)) for call in played.calls(*steps)]

    assert ran.returncode == 0, ran.stderr
    assert found == list(steps[1 - made :])
    assert ran.stderr.startswith("These steps were never run on a container engine")
    assert f"docker save {IMAGE}" in played.calls()
    for path in ("deploy/kind/cluster.yaml", "deploy/helm/Chart.yaml", "examples/kind.yaml"):
        assert (ROOT / path).is_file()


def test_the_chart_takes_what_it_is_given(helm: Path, tmp_path: Path) -> None:
    played = Played(tmp_path, "docker", "kind", "kubectl", "helm")
    played.run("kind/up.sh")
    words = played.calls("helm upgrade")[0].split()
    given = [word for at, word in enumerate(words) if word.startswith("--set") or words[at - 1].startswith("--set")]
    rendered = ended([helm, "template", "kubestow", ROOT / "deploy/helm", *given])

    assert rendered.returncode == 0, rendered.stderr
    made = [each for each in yaml.safe_load_all(rendered.stdout) if each and each["kind"] == "Deployment"]
    template = made[0]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert made[0]["metadata"]["name"] == "kubestow"
    assert (container["image"], container["imagePullPolicy"]) == (IMAGE, "Never")
    assert template["metadata"]["annotations"]["image"] == "sha256:abc"
    assert "command" not in container  # the image's entrypoint is the program
    assert container["args"][0] == "run"


def test_the_workload_is_for_us() -> None:
    objects = list(yaml.safe_load_all((ROOT / "examples/kind.yaml").read_text()))
    named = {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}
    placed = [each for each in objects if each["kind"] in {"Deployment", "StatefulSet", "Pod"}]
    specs = [each["spec"].get("template", each)["spec"] for each in placed]

    assert {"Namespace/kubestow-demo", "Deployment/web", "StatefulSet/store", "Pod/too-large"} <= set(named)
    assert [spec["schedulerName"] for spec in specs] == ["kubestow"] * 3
    nodes = yaml.safe_load((ROOT / "deploy/kind/cluster.yaml").read_text())["nodes"]
    assert [node["role"] for node in nodes].count("worker") == named["StatefulSet/store"]["spec"]["replicas"]
