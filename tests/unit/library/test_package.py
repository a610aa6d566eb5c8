"""The package: names that load when they are used, the interface of plugins, and foreign packages named `scheduler`."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import kubestow
from kubestow import __main__ as commands, plugin
from kubestow.commands import completion
from kubestow.commands.flags import OPERATOR_COMMANDS
from kubestow.own_package import ForeignPackage, require_own_package
from scheduler import __version__
from scheduler.cli import kubectl_plugin, main as cli
from scheduler.framework import interface

ROOT = Path(__file__).parents[3]


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Replace the package `scheduler` by one of another distribution."""
    package = ModuleType("scheduler")
    package.__spec__ = ModuleSpec("scheduler", None, origin="/site/scheduler/__init__.py")
    monkeypatch.setitem(sys.modules, "scheduler", package)
    return package


def python(*arguments: str, cwd: Path, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_all_names_can_be_imported() -> None:
    assert [name for name in kubestow.__all__ if getattr(kubestow, name) is None] == []
    assert set(kubestow.__all__) <= set(dir(kubestow))
    assert kubestow.__version__ == __version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kubestow' has no attribute 'nothing'"):
        _ = kubestow.nothing  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing() -> None:
    """The plugin of pytest imports it in each test run."""
    code = "import kubestow.pytest_plugin, sys; print({'scheduler', 'simulator', 'msgspec', 'numpy'} & {*sys.modules})"
    assert python("-c", code, cwd=ROOT).stdout == "set()\n"


def test_every_protocol_of_plugins_is_public() -> None:
    protocols = {
        name for name, value in vars(interface).items() if inspect.isclass(value) and interface.Plugin in value.__mro__
    }

    assert protocols <= set(plugin.__all__)
    assert plugin.FilterPlugin is interface.FilterPlugin
    assert [name for name in plugin.__all__ if not hasattr(plugin, name)] == []


# -- the commands ----------------------------------------------------------------------------------------------------------


def test_the_package_is_the_command(tmp_path: Path) -> None:
    assert python("-m", "kubestow", "version", cwd=tmp_path).stdout.startswith(f"kubestow {__version__} (")
    assert python("-m", "kubestow", "simulate", "nowhere.yaml", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("function", "module", "name", "more"),
    [
        pytest.param(commands.main, cli, "main", {"more": OPERATOR_COMMANDS}, id="kubestow"),
        pytest.param(
            commands.kubectl_plugin, kubectl_plugin, "main", {"more": OPERATOR_COMMANDS}, id="kubectl kubestow"
        ),
        pytest.param(commands.kubectl_complete, completion, "complete_for_kubectl", {}, id="its completion"),
    ],
)
def test_scripts_run_their_command(
    monkeypatch: pytest.MonkeyPatch, function: object, module: ModuleType, name: str, more: dict[str, object]
) -> None:
    monkeypatch.setattr(module, name, lambda **given: 7 if given == more else 0)

    assert callable(function)
    assert function() == 7


def test_the_scripts_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    scripts = dict.fromkeys(each.partition(":")[2] for each in project["scripts"].values())

    assert [name for name in scripts if not callable(getattr(commands, name))] == []


# -- a foreign package -----------------------------------------------------------------------------------------------------


def test_our_package_is_accepted() -> None:
    require_own_package()


def test_a_foreign_distribution_is_named(foreign: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces files in our directory, so the place of the package is right."""
    owners = {"scheduler": ["kubestow", "scheduler"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: owners)

    with pytest.raises(ForeignPackage) as raised:
        require_own_package()

    assert str(raised.value) == (
        "kubestow: the package scheduler in /site/scheduler/__init__.py is not Kubestow's; "
        "run: pip uninstall scheduler && pip install --force-reinstall --no-deps kubestow"
    )


@pytest.mark.parametrize("text", [
    pytest.param("import nothing_that_exists\n", id="its import fails"),
    pytest.param(None, id="an uninstaller removed the file"),
])  # fmt: skip
def test_a_replaced_package_is_installed_again(tmp_path: Path, text: str | None) -> None:
    for name in ("kubestow", "scheduler"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "scheduler/__init__.py").unlink()
    if text:
        (tmp_path / "scheduler/__init__.py").write_text(text)

    ran = python("-S", "-m", "kubestow", "version", cwd=tmp_path, path=tmp_path)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.endswith("is not Kubestow's; run: pip install --force-reinstall --no-deps kubestow\n")


def test_the_library_names_a_foreign_package(foreign: ModuleType) -> None:
    with pytest.raises(ForeignPackage):
        _ = kubestow.Cluster


def test_the_command_names_a_foreign_package(tmp_path: Path) -> None:
    (tmp_path / "scheduler.py").write_text("class Scheduler: ...\n")

    ran = python("-m", "kubestow", "version", cwd=tmp_path)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"kubestow: the package scheduler in {tmp_path}/scheduler.py is not Kubestow's; "
        "rename it, or remove its directory from PYTHONPATH and from the current directory\n"
    )
