"""The manifest and the archive for krew: krew accepts the manifest, and the installed program starts the plugin.

The rules are those of internal/index/validation/validate.go of krew.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import __version__
from tests.deploy.commands import ROOT, ended

NAME = "kubestow"
_FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "metadata": {"name"},
    "spec": {"version", "shortDescription", "description", "caveats", "homepage", "platforms"},
    "platform": {"uri", "sha256", "files", "selector", "bin"},
    "file": {"from", "to"},
}
_SEMVER = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def mistakes(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the rules that the manifest breaks. Unknown fields are mistakes, too: krew would ignore them."""
    spec = manifest["spec"]
    if manifest["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2" or manifest["kind"] != "Plugin":
        yield "kind"
    if manifest["metadata"]["name"] != NAME or not re.fullmatch(r"[\w-]+", NAME):
        yield "name"
    if not spec.get("shortDescription") or re.search(r"[\r\n]", spec["shortDescription"]):
        yield "shortDescription"
    if not _SEMVER.fullmatch(spec.get("version", "")):
        yield "version"
    if not spec.get("platforms"):
        yield "platforms"
    for place, each in (("", manifest), ("metadata", manifest["metadata"]), ("spec", spec)):
        if each.keys() - _FIELDS[place]:
            yield f"unknown field in {place or 'the manifest'}"
    for platform in spec.get("platforms") or ():
        yield from _mistakes_of(platform)


def _mistakes_of(platform: dict[str, Any]) -> Iterator[str]:
    if platform.keys() - _FIELDS["platform"]:
        yield "unknown field in platforms"
    if not platform.get("uri"):
        yield "uri"
    if not re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", "")):
        yield "sha256"
    if not platform.get("bin"):
        yield "bin"
    files = platform.get("files")
    if files is not None and (not files or any(each.keys() != _FIELDS["file"] for each in files)):
        yield "files"
    labels = platform.get("selector", {}).get("matchLabels")
    if not labels or labels.keys() - {"os", "arch"}:
        yield "selector"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("krew")
    ran = ended([ROOT / "deploy/krew/build.sh", out])
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.fixture
def manifest(built: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((built / f"{NAME}.yaml").read_text(encoding="utf-8"))
    return found


def test_krew_accepts_the_manifest(built: Path, manifest: dict[str, Any]) -> None:
    assert list(mistakes(manifest)) == []
    assert "@" not in (built / f"{NAME}.yaml").read_text(encoding="utf-8")
    assert manifest["spec"]["version"] == f"v{__version__}"
    (platform,) = manifest["spec"]["platforms"]
    archive = built / f"kubectl-kubestow-{__version__}.tar.gz"
    assert platform["uri"].endswith(f"/v{__version__}/{archive.name}")
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(lambda each: each.update(kind="Plug"), "kind", id="another kind"),
        pytest.param(lambda each: each["metadata"].update(name="x"), "name", id="another name"),
        pytest.param(lambda each: each["spec"].update(version="1.0"), "version", id="no version"),
        pytest.param(lambda each: each["spec"].update(shortDescription="a\nb"), "shortDescription", id="two lines"),
        pytest.param(lambda each: each["spec"].update(platforms=[]), "platforms", id="no platform"),
        pytest.param(lambda each: each["spec"].update(notes=""), "unknown field in spec", id="an unknown field"),
        pytest.param(lambda each: each["spec"]["platforms"][0].update(sha256="@SHA256@"), "sha256", id="no checksum"),
        pytest.param(lambda each: each["spec"]["platforms"][0].update(files=[]), "files", id="no files"),
        pytest.param(lambda each: each["spec"]["platforms"][0].update(bin=""), "bin", id="no program"),
        pytest.param(lambda each: each["spec"]["platforms"][0].update(uri=""), "uri", id="no address"),
        pytest.param(
            lambda each: each["spec"]["platforms"][0].update(selector={"matchLabels": {"libc": "musl"}}),
            "selector",
            id="an unknown label",
        ),
    ],
)
def test_what_krew_refuses(manifest: dict[str, Any], change: Callable[[dict[str, Any]], None], found: str) -> None:
    broken = copy.deepcopy(manifest)
    change(broken)

    assert list(mistakes(broken)) == [found]


def test_the_archive_is_reproducible(built: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    for path in ("deploy/krew", "LICENSE", "scheduler/__init__.py"):
        (copied / path).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copy)(ROOT / path, copied / path)
    os.utime(copied / "LICENSE", (1, 1))
    ran = ended([copied / "deploy/krew/build.sh", tmp_path / "out"])
    assert ran.returncode == 0, ran.stderr

    for file in sorted(built.iterdir()):
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()


@pytest.fixture
def installed(built: Path, manifest: dict[str, Any], tmp_path: Path) -> Path:
    """Return the program as krew installs it: the files of the manifest, and a link to `bin`."""
    store, links = tmp_path / "store", tmp_path / "bin"
    (platform,) = manifest["spec"]["platforms"]
    with tarfile.open(built / platform["uri"].rpartition("/")[2]) as archive:
        archive.extractall(tmp_path / "archive", filter="data")
    links.mkdir()
    for each in platform["files"]:
        (store / each["to"]).mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "archive" / each["from"], store / each["to"])
    link = links / f"kubectl-{NAME}"
    link.symlink_to(store / platform["bin"])
    return link


def test_the_program_starts_the_package(installed: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name, module in (("kubestow", "main"), ("kubectl-kubestow", "kubectl_plugin")):
        script = package / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom scheduler.cli.{module} import main\nsys.exit(main())\n"
        )
        script.chmod(0o755)
    env = {"PATH": f"{installed.parent}:{package}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    helped = ended([installed, "explain", "--help"], env=env)
    wrong = ended([installed, "explain", "a", "b"], env=env)

    assert (helped.returncode, helped.stdout.startswith("usage: kubectl kubestow explain ")) == (0, True)
    assert (wrong.returncode, "error: expected one pod, or the word group and one group" in wrong.stderr) == (3, True)

    (package / "kubectl-kubestow").unlink()
    old = ended([installed, "explain", "a"], env=env)
    assert (old.returncode, old.stdout) == (4, "")
    assert (
        old.stderr
        == f"kubectl kubestow: {package}/kubestow is of a version without the plugin; install a newer wheel\n"
    )


def test_the_program_without_the_package(installed: Path) -> None:
    ran = ended([installed, "explain", "a"], env={"PATH": f"{installed.parent}:/usr/bin:/bin"})

    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (4, "", 1)
    assert ran.stderr.startswith("kubectl kubestow: the Python package kubestow is not installed, ")
