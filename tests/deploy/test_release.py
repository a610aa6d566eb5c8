"""A release on loopback: the scripts of release.yml publish all artefacts, and a clean machine installs each in one command.

`make release-trial` prints the transcript of docs/releasing.md. Not part of the trial: the signatures of cosign and GitHub, which
need an identity, the second architecture, and the page of the release on GitHub.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from scheduler import __version__
from tests.deploy.commands import ROOT, ended, locked, step
from tests.deploy.engine import Podman, empty
from tests.deploy.publishing import (
    ARCHITECTURE,
    Places,
    Release,
    Tools,
    clean_machine,
    places as started_places,
    publish,
)
from tests.deploy.running import Running, daemon
from tests.e2e.cluster import Cluster, node, pod, until
from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.installed import account

SCRIPTS = ROOT / "deploy" / "release"
NAMESPACE = "kubestow"
SBOM, PROVENANCE = "application/vnd.cyclonedx+json", "application/vnd.in-toto+json"
RESTRICTED = ("--rm", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--no-healthcheck")

pytestmark = pytest.mark.timeout(900)  # the first test waits for the image and the wheels


@pytest.fixture(scope="module")
def programs(helm: Path, oras: Path, registry: Path, release_environment: Path) -> Tools:
    return Tools(helm, oras, registry, release_environment)


@pytest.fixture(scope="module")
def places(programs: Tools, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with started_places(programs, tmp_path_factory.mktemp("places"), dist) as found:
        yield found


@pytest.fixture(scope="module")
def release(programs: Tools, places: Places, dist: Path, podman: Podman) -> Release:
    return publish(programs, places, dist, podman)


def read(programs: Tools, places: Places, *arguments: str) -> Any:
    """Return the JSON that oras prints."""
    ran = ended([programs.oras, *arguments], env={"HOME": "/", **places.trust})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


# -- what was published ----------------------------------------------------------------------------------------------------


def test_the_image_is_an_index_of_architectures(programs: Tools, release: Release) -> None:
    found = read(programs, release.places, "manifest", "fetch", release.image)

    assert [each["platform"] for each in found["manifests"]] == [{"architecture": ARCHITECTURE, "os": "linux"}]


@pytest.mark.parametrize("name", ["image", "chart"])
def test_sbom_and_provenance_are_attached(programs: Tools, release: Release, name: str, tmp_path: Path) -> None:
    artefact = getattr(release, name)
    found = read(programs, release.places, "discover", "--format", "json", artefact)
    attached = {each["artifactType"]: each["reference"] for each in found["referrers"]}

    assert set(attached) == {SBOM, PROVENANCE}
    for reference in attached.values():
        read(programs, release.places, "pull", "--format", "json", "--output", str(tmp_path), reference)
    assert {each.name for each in tmp_path.iterdir()} == {
        f"kubestow-{__version__}.cdx.json",
        f"kubestow-{__version__}.intoto.json",
    }
    for each in tmp_path.iterdir():
        assert each.read_bytes() == (release.dist / each.name).read_bytes()


def test_the_provenance_names_what_can_be_downloaded(release: Release) -> None:
    statement = json.loads((release.dist / f"kubestow-{__version__}.intoto.json").read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    source, *locks = statement["predicate"]["buildDefinition"]["resolvedDependencies"]

    pushed = {
        address: subjects.pop(address) for address in (release.image.partition("@")[0], release.chart.partition("@")[0])
    }
    assert {f"{address}@sha256:{digest}" for address, digest in pushed.items()} == {release.image, release.chart}
    assert len(subjects) == 5
    for name, digest in subjects.items():
        with urllib.request.urlopen(f"{release.places.downloads}/{name}") as answer:
            assert hashlib.sha256(answer.read()).hexdigest() == digest
    assert ("gitCommit" in source.get("digest", {})) != ("annotations" in source)
    assert [each["uri"] for each in locks if not (ROOT / each["uri"]).exists()] == []


def test_the_published_chart_names_its_image(release: Release) -> None:
    with tarfile.open(release.dist / f"kubestow-{__version__}.tgz") as archive:
        texts = {name: archive.extractfile(f"kubestow/{name}").read().decode() for name in ("values.yaml", "README.md")}  # type: ignore[union-attr]

    image = yaml.safe_load(texts["values.yaml"])["image"]
    assert f"{image['repository']}@{image['digest']}" == release.image
    assert f"helm install kubestow oci://{release.places.charts}/kubestow " in texts["README.md"]
    assert "No release has been published" not in texts["README.md"]


# -- a clean machine -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment in which pip has installed Kubestow from the index.

    The versions of its dependencies are the locked ones, so that a new version of one changes no test.
    """
    place = tmp_path_factory.mktemp("installed")
    constraints = place / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in locked(_MARKERS).items()))
    env = clean_machine(place / "home", os.environ["PATH"])
    step(Path(sys.executable), "-m", "venv", place / "venv", env=env, is_clean=True)
    pip = (place / "venv/bin/pip", "install", "--quiet", "--index-url", f"{release.places.index}/simple/", "kubestow")
    step(*pip, env={**env, "PIP_CONSTRAINT": str(constraints)}, is_clean=True)
    return place / "venv"


_MARKERS = {"python_version": f"3.{sys.version_info.minor}", "python_full_version": f"3.{sys.version_info.minor}.0"}


def test_pip_installs_the_wheel(installed: Path, release: Release, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    simulated = ended([installed / "bin/kubestow", "simulate", ROOT / "examples/groups.yaml"], cwd=tmp_path, env=env)
    version = ended([installed / "bin/python", "-m", "kubestow", "version"], cwd=tmp_path, env=env)
    shown = ended([installed / "bin/pip", "show", "--files", "kubestow"], env={**os.environ, **env})

    assert simulated.returncode == 0, simulated.stderr
    assert version.stdout.startswith(f"kubestow {__version__} (")
    assert str(installed) in shown.stdout
    with urllib.request.urlopen(f"{release.places.index}/packages/kubestow-{__version__}-py3-none-any.whl") as answer:
        assert answer.read() == (release.dist / f"kubestow-{__version__}-py3-none-any.whl").read_bytes()


@pytest.fixture(scope="module")
def plugin(krew: Path, release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the plugins of krew, which has installed ours from an index that has its manifest."""
    place = tmp_path_factory.mktemp("krew")
    manifests = place / "index/plugins"
    manifests.mkdir(parents=True)
    shutil.copy(release.dist / "kubestow.yaml", manifests)
    author = ("-c", "user.name=trial", "-c", "user.email=trial@localhost")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "kubestow")):
        assert ended(["git", *author, *words], cwd=place / "index").returncode == 0
    env = clean_machine(place / "home", os.environ["PATH"])
    krew_env = {"KREW_ROOT": str(place / "root"), "KREW_DEFAULT_INDEX_URI": f"file://{place}/index"}
    step(krew, "install", "kubestow", env={**env, **krew_env}, is_clean=True)
    return place / "root/bin"


def test_krew_refuses_another_archive(krew: Path, release: Release, tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    other.write_bytes((release.dist / f"kubestow-{__version__}.tar.gz").read_bytes())
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "root")}
    ran = ended([krew, "install", f"--manifest={release.dist / 'kubestow.yaml'}", f"--archive={other}"], env=env)

    assert ran.returncode != 0
    assert "checksum does not match" in ran.stderr


@pytest.fixture
async def plane() -> Any:
    binaries_or_skip()
    async with ControlPlane() as found:
        yield found


async def test_helm_installs_the_chart_and_its_image_schedules(
    programs: Tools, release: Release, plane: ControlPlane, plugin: Path, installed: Path, tmp_path: Path
) -> None:
    """No kubelet runs here, so podman starts the container from the Deployment that helm has created, as a kubelet would."""
    machine = clean_machine(tmp_path / "home", f"{programs.helm.parent}:/usr/bin:/bin")
    chart = f"oci://{release.places.charts}/kubestow"
    await asyncio.to_thread(
        partial(step, env={**machine, **release.places.trust, "KUBECONFIG": str(plane.kubeconfig)}, is_clean=True),
        *("helm", "install", "kubestow", chart, "--namespace", NAMESPACE, "--create-namespace"),
    )
    async with plane.client() as http:
        (container,) = await containers(http)
        assert container["image"] == release.image
        engine = await asyncio.to_thread(pulled, tmp_path / "engine", release)
        try:
            with_files = await mounts(http, plane, container, tmp_path)
            command = Container(engine, container, plane, with_files)
            log = tmp_path / "log"
            async with daemon(command, log=log, environ=engine.environ, find_pid=command.find_pid) as running:
                await schedules(http, running)
                answer = await asyncio.to_thread(explained, plugin, installed, plane, running.port, tmp_path)
                assert await running.ended() == 0, log.read_text()
        finally:
            await asyncio.to_thread(engine.close)

    assert answer.returncode == 2, answer.stderr
    assert answer.stdout.startswith("default/large: none of 1 node fits: 1 Insufficient cpu\n")
    assert re.findall("forbidden|Traceback", log.read_text()) == []


async def containers(http: aiohttp.ClientSession) -> list[dict[str, Any]]:
    """Return the containers of the Deployment on the API server."""
    async with http.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kubestow") as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["spec"]["template"]["spec"]["containers"]  # type: ignore[no-any-return]


def pulled(directory: Path, release: Release) -> Podman:
    """Return an engine without other images that has pulled the image of the release."""
    engine = empty(directory)
    step("podman", "pull", "--quiet", release.image, env={**engine.environ, **release.places.trust})
    return engine


async def mounts(
    http: aiohttp.ClientSession, plane: ControlPlane, container: dict[str, Any], directory: Path
) -> dict[str, Path]:
    """Return the directories to mount by their place in the container: the configuration and the service account."""
    found = {
        "/var/run/secrets/kubernetes.io/serviceaccount": directory / "account",
        "/etc/kubestow": directory / "config",
    }
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/etc/kubestow"]
    token = (await account(http, "kubestow", NAMESPACE)).token
    async with http.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/kubestow") as answer:
        files = (await answer.json())["data"]
    files_of = {
        "account": {"token": token, "namespace": NAMESPACE, "ca.crt": plane.ca_file.read_text()},
        "config": files,
    }
    for place, texts in files_of.items():
        (directory / place).mkdir(mode=0o755)
        for name, text in texts.items():
            (directory / place / name).write_text(text)
    return found


class Container:
    """The command that starts the container, as `daemon` calls it. Each attempt has another name."""

    def __init__(
        self, engine: Podman, container: dict[str, Any], plane: ControlPlane, mounted: dict[str, Path]
    ) -> None:
        host, port = plane.url.removeprefix("https://").split(":")
        given = [*container.get("env", ()), {"name": "KUBERNETES_SERVICE_HOST", "value": host}]
        given.append({"name": "KUBERNETES_SERVICE_PORT", "value": port})
        environment = [f"--env={each['name']}={each['value']}" for each in given]
        volumes = [f"--volume={path}:{place}:ro" for place, path in mounted.items()]
        self._engine, self._names = engine, (f"installed-{number}" for number in itertools.count())
        self._options, self._program = [*RESTRICTED, *environment, *volumes, container["image"]], container["args"]
        self._name = ""

    def __call__(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command. The port and the address of the test replace those of the Deployment."""
        self._name = next(self._names)
        assert words[0] == self._program[0] == "run"
        return ["podman", "run", f"--name={self._name}", *self._options, *self._program, *words[1:]]

    def find_pid(self, _: int) -> int | None:
        """Return the process id outside of the container."""
        return int(self._engine.run("inspect", "--format={{.State.Pid}}", self._name).stdout) or None


async def schedules(http: aiohttp.ClientSession, running: Running) -> None:
    """Wait until the daemon has bound a pod that fits and has rejected one that does not."""
    cluster = Cluster(http)
    await cluster.create(node("n1"), pod("small", "kubestow", cpu="1"), pod("large", "kubestow", cpu="9"))

    async def is_done() -> bool:
        running.check()
        return await cluster.node_of("small") == "n1" and await cluster.condition("large") is not None

    await until(is_done, "a bound pod and a rejected one")


def explained(
    plugin: Path, installed: Path, plane: ControlPlane, port: int, home: Path
) -> subprocess.CompletedProcess[str]:
    """Request from the daemon why a pod waits, with the plugin that krew has installed and the package that pip has installed."""
    env = {"PATH": f"{plugin}:{installed}/bin:/usr/bin:/bin", "HOME": str(home), "KUBECONFIG": str(plane.kubeconfig)}
    question = ("explain", "default/large", f"--server=https://127.0.0.1:{port}")
    return ended(["kubectl-kubestow", *question], env=env)


# -- what is not published -------------------------------------------------------------------------------------------------


class Machine:
    """A copy of the scripts and their inputs, and programs that only record their calls."""

    def __init__(self, directory: Path) -> None:
        self.root, self._programs = directory / "clone", directory / "bin"
        for name in ("deploy", "examples", "requirements"):
            shutil.copytree(ROOT / name, self.root / name)
        self._programs.mkdir()
        self._calls = directory / "calls"
        self._calls.touch()

    def records(self, name: str, fails: str = "none") -> None:
        """Add a program that fails if this is one of its words."""
        script = f'#!/bin/sh\necho "{name} $*" >>"{self._calls}"\ncase " $* " in *" {fails} "*) exit 1 ;; esac\n'
        (self._programs / name).write_text(script)
        (self._programs / name).chmod(0o755)

    def run(self, script: str, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self._programs}:{os.environ['PATH']}"
        return ended([self.root / "deploy/release" / script, *arguments], env={**os.environ, "PATH": path, **env})

    @property
    def calls(self) -> str:
        return self._calls.read_text()


@pytest.mark.parametrize("word", ["version", "simulate"])
def test_an_image_that_does_not_run_is_not_pushed(word: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.records("engine", fails=word)
    ran = machine.run("image.sh", "registry.example.com/kubestow:1", ENGINE="engine")

    assert ran.returncode == 1
    assert f" {word}" in machine.calls
    assert "push" not in machine.calls


def test_a_chart_without_its_image_is_not_pushed(helm: Path, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "bin/helm").symlink_to(helm)
    values = machine.root / "deploy/helm/values.yaml"
    values.write_text(values.read_text().replace('repository: ""', "repository: elsewhere"))
    image = f"registry.example.com/kubestow@sha256:{'0' * 64}"
    ran = machine.run("chart.sh", tmp_path, image, "127.0.0.1:1/charts")

    assert (ran.returncode, ran.stderr) == (1, f"chart.sh: the packaged chart does not name {image}\n")
    assert list(tmp_path.glob("*.tgz")) == []


def test_a_wrong_wheel_is_not_uploaded(release_environment: Path, dist: Path, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    shutil.copy(dist / f"kubestow-{__version__}.tar.gz", tmp_path)
    (tmp_path / f"kubestow-{__version__}-py3-none-any.whl").write_bytes(b"no archive")
    python = str(release_environment / "bin/python")
    ran = machine.run("upload.sh", tmp_path, "http://127.0.0.1:1", RELEASE_PYTHON=python)

    assert ran.returncode != 0
    assert "Uploading" not in ran.stdout


def test_a_release_without_a_file_has_no_provenance(tmp_path: Path) -> None:
    ran = ended([SCRIPTS / "provenance.py", tmp_path, "1.2.3"])

    assert (ran.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "kubestow-1.2.3-py3-none-any.whl is missing; deploy/release/build.sh" in ran.stderr
