"""docs/plugins.md, run unchanged: the plugin on that page is a separate distribution, and Kubestow finds it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scheduler.config import load
from scheduler.config.types import KubeSchedulerProfile, PluginRef, PluginSet
from simulator.builders.core import pod
from tests.deploy.commands import ROOT, ended, named
from tests.integration.daemon import Rig, rig

PAGE = named("plugins.md")
DOCUMENT = ROOT / "docs/plugins.md"
GENERATION = "example.com/generation"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which pip installs the distribution of the page."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "nodegeneration.py", "together.py"):
        (source / name).write_text(PAGE[name])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, *offline, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A directory with all files of the page."""
    for name, text in PAGE.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def kubestow(*arguments: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, with the packages of `site` installed."""
    env = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}
    return ended([sys.executable, "-m", "scheduler", *arguments], cwd=cwd, env=env)


def test_it_is_found(site: Path, page: Path) -> None:
    """The output that the page shows, in lines of another width and without some of them, is what the command prints."""
    ran = kubestow("check-config", "config.yaml", site=site, cwd=page)
    printed = " ".join(ran.stdout.split())
    shown = re.search(r"```\n(config.yaml: ok\n.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert shown is not None
    parts = [" ".join(part.split()) for part in shown[1].split("…\n")]
    assert [part for part in parts if part not in printed] == []
    lines = [line.split() for line in ran.stdout.splitlines() if "NodeGeneration" in line]
    assert [(line[0], line[-1]) for line in lines] == [("filter", "NodeGeneration"), ("score", "NodeGeneration:5")]
    assert [" ".join(line) for line in lines if " ".join(line) not in " ".join(parts)] == []


def test_it_decides(site: Path, page: Path) -> None:
    with_it, without = placed("--config=config.yaml", site=site, page=page), placed(site=site, page=page)

    nodes = {name: each["node"] for name, each in with_it.items()}
    assert nodes == {"anywhere": "new", "modern": "new", "futuristic": None}
    assert "2 node(s) were of an older generation" in with_it["futuristic"]["message"]
    assert without["anywhere"]["node"] == "old"  # the larger node, where the plugin is not enabled
    assert without["futuristic"]["node"]


def test_arguments_may_wait_for_it_to_be_enabled(site: Path, page: Path) -> None:
    head, _, tail = PAGE["config.yaml"].partition("    plugins:\n")
    (page / "config.yaml").write_text(head + tail[tail.index("    pluginConfig:") :])
    ran = kubestow("check-config", "config.yaml", site=site, cwd=page)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "NodeGeneration" not in ran.stdout


def placed(*flags: str, site: Path, page: Path) -> dict[str, dict[str, Any]]:
    ran = kubestow("simulate", "-o", "json", *flags, "cluster.yaml", site=site, cwd=page)
    assert ran.stdout, ran.stderr
    return {each["pod"].removeprefix("default/"): each for each in json.loads(ran.stdout)["pods"]}


@pytest.fixture
def importable(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installed in this process, until the block ends."""
    monkeypatch.syspath_prepend(site)
    yield
    for name in ("nodegeneration", "together"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("importable")
async def test_its_hint_wakes(page: Path) -> None:
    config = await asyncio.to_thread(load.load, str(page / "config.yaml"))
    async with rig(profiles=config.profiles) as cluster:
        cluster.node("n1", labels={GENERATION: "1"})
        cluster.server.create("pods", pod("p").label(GENERATION, "2").scheduler("kubestow").obj())
        await cluster.until(lambda: "message" in cluster.condition("p"), "no condition")
        assert "older generation" in cluster.condition("p")["message"]

        cluster.server.patch("nodes", "n1", {"metadata": {"labels": {GENERATION: "2"}}})
        await cluster.bound("p")


TOGETHER = (KubeSchedulerProfile("kubestow", plugins={"multiPoint": PluginSet(enabled=(PluginRef("Together"),))}),)


def member(name: str) -> dict[str, Any]:
    """A pod of a group of three."""
    labels = {"example.com/together": "ring", "example.com/together-size": "3"}
    return pod(name).labels(labels).cpu("1").scheduler("kubestow").obj()


async def hold_two(cluster: Rig) -> None:
    """Create two pods of the group and wait until both are held."""
    waiting_pods = cluster.daemon.scheduler.binder.waiting_pods
    for name in ("a", "b"):
        cluster.server.create("pods", member(name))
    await cluster.until(lambda: len(waiting_pods) == 2, "never held")


@pytest.mark.usefixtures("importable")
async def test_a_group_is_bound_when_its_last_pod_has_a_node() -> None:
    async with rig(profiles=TOGETHER) as cluster:
        cluster.node("n1")
        await hold_two(cluster)
        assert {"a": "", "b": ""} == cluster.pods()

        cluster.server.create("pods", member("c"))
        await cluster.bound("a", "b", "c")


@pytest.mark.usefixtures("importable")
async def test_a_group_of_which_one_pod_is_deleted_is_not_bound() -> None:
    async with rig(profiles=TOGETHER) as cluster:
        cluster.node("n1", cpu="2")
        await hold_two(cluster)
        cluster.pod("other", cpu="2")
        await cluster.until(lambda: "message" in cluster.condition("other"), "never refused")

        cluster.server.delete("pods", "a")
        await cluster.bound("other")
        await cluster.until(lambda: "message" in cluster.condition("b"), "b was never refused")
        assert "another pod of group default/ring was not bound" in cluster.condition("b")["message"]


def test_its_own_tests_pass(site: Path, page: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nodegeneration.py"]
    ran = ended(command, cwd=page, env=env)

    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_it_is_as_short_as_it_is_said_to_be() -> None:
    body = PAGE["nodegeneration.py"].partition("class NodeGeneration:")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25


# -- those that cannot be used -------------------------------------------------------------------------------------------------

COMMANDS = [
    pytest.param(["check-config", "config.yaml"], id="check-config"),
    pytest.param(["simulate", "--config=config.yaml", "cluster.yaml"], id="simulate"),
    pytest.param(["run", "--config=config.yaml", "--master=http://127.0.0.1:1", "--secure-port=0"], id="run"),
]


def distribution(site: Path, name: str, *, plugin: str, module: str, code: str) -> Path:
    """Install a distribution in the directory, as pip leaves one."""
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(code)
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kubestow.plugins]\n{plugin} = {module}:Made\n")
    return site


def refused(command: list[str], *, site: Path, cwd: Path) -> str:
    """The only line before it ends with 1. No traceback."""
    ran = kubestow(*command, site=site, cwd=cwd)
    lines = [line for line in ran.stderr.splitlines() if "[info" not in line]
    assert (ran.returncode, len(lines)) == (1, 1), ran.stderr
    return lines[0]


UNUSABLE: Final[dict[str, tuple[str, str, list[str]]]] = {
    "an import that fails": (
        "Broken",
        "import not_installed_anywhere",
        ['"Broken"', "a_broken_one", "kubestow-broken", "cannot be imported", "not_installed_anywhere"],
    ),
    "nothing of that name": ("Broken", "Other = None", ['"Broken"', "kubestow-broken", "cannot be imported", "Made"]),
    "a module that raises": ("Broken", "Made = 1 / 0", ['"Broken"', "kubestow-broken", "ZeroDivisionError"]),
    "the name of a built-in one": (
        "NodeName",
        "Made = None",
        ['"NodeName"', "scheduler.plugins.nodename", "kubestow-broken"],
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("plugin", "code", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_one_that_cannot_be_used(
    plugin: str, code: str, words: list[str], command: list[str], tmp_path: Path, page: Path
) -> None:
    place = distribution(tmp_path / "site", "kubestow-broken", plugin=plugin, module="a_broken_one", code=code)
    (page / "config.yaml").write_text("\n".join(PAGE["config.yaml"].splitlines()[:4]))
    said = refused(command, site=place, cwd=page)

    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_two_of_one_name(command: list[str], site: Path, tmp_path: Path, page: Path) -> None:
    place = tmp_path / "site"
    shutil.copytree(site, place)
    distribution(place, "kubestow-twin", plugin="NodeGeneration", module="a_twin", code="Made = None")
    said = refused(command, site=place, cwd=page)

    assert [word for word in ("NodeGeneration", "kubestow-nodegeneration", "kubestow-twin") if word not in said] == []


MISTAKES: Final[dict[str, tuple[str, str, str, str]]] = {
    "an argument that is not known": ("newest: 4", "newst: 4", ".pluginConfig[0].args.newst", 'did you mean "newest"'),
    "a wrong value": ("newest: 4", "newest: 0", ".pluginConfig[0].args.newest", "must be > 0, got 0"),
    "no mapping": ("newest: 4", "[a, list]", ".pluginConfig[0].args", "must be a mapping"),
    "a name that is not known": (
        "- name: NodeGeneration\n            weight",
        "- name: NodeGenerations\n            weight",
        ".plugins.multiPoint.enabled[0].name",
        'unknown plugin "NodeGenerations"',
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("line", "wrong", "path", "why"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_its_configuration(  # the parameters are a table's columns
    line: str, wrong: str, path: str, why: str, command: list[str], site: Path, page: Path
) -> None:
    assert line in PAGE["config.yaml"]
    (page / "config.yaml").write_text(PAGE["config.yaml"].replace(line, wrong))
    said = refused(command, site=site, cwd=page)

    assert said.startswith(f"config.yaml: profiles[0]{path}: ")
    assert why in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_constructor_that_fails(command: list[str], tmp_path: Path, page: Path) -> None:
    code = "class Made:\n    name = 'NodeGeneration'\n    def __init__(self, args, handle):\n        args.value['needed']\n"
    place = tmp_path / "site"
    distribution(place, "kubestow-careless", plugin="NodeGeneration", module="a_careless_one", code=code)
    said = refused(command, site=place, cwd=page)

    assert said.startswith(
        'config.yaml: profiles[0].pluginConfig[0].args: plugin "NodeGeneration" cannot be created from these arguments: '
    )
    assert "KeyError: 'needed'" in said
