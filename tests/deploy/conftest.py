"""Tools as fixtures: a test whose tool is missing is skipped, or fails if `E2E=required`."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy import engine, tools
from tests.deploy.commands import ROOT, step
from tests.deploy.engine import Podman
from tests.deploy.image import Image, from_script, prepared
from tests.e2e.controlplane.build import BuildFailed, Unavailable
from tests.e2e.controlplane.gate import built_or_skip


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make tools before the first test that needs them: within a test, the test's timeout would end it."""
    if session.config.option.collectonly:
        return
    for name, tool in tools.TOOLS.items():
        if any(name in getattr(item, "fixturenames", ()) for item in session.items):
            try:
                tool()
            except Unavailable:
                continue  # each test that needs it says so
            except BuildFailed as why:
                pytest.exit(str(why), returncode=1)


def _fixture(tool: Callable[[], Path]) -> Callable[[], Path]:
    @pytest.fixture(scope="session", name=tool.__name__)
    def made() -> Path:
        return built_or_skip(tool)

    return made


helm, helm3, kubeconform, actionlint = map(_fixture, (tools.helm, tools.helm3, tools.kubeconform, tools.actionlint))
release_environment, renovate_schema = map(_fixture, (tools.release_environment, tools.renovate_schema))
promtool, prometheus = map(_fixture, (tools.promtool, tools.prometheus))
oras, krew, registry = map(_fixture, (tools.oras, tools.krew, tools.registry))
notebook_environment = _fixture(tools.notebook_environment)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for a gigabyte of images."""
    directory = tmp_path_factory.mktemp("image")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def dist(release_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release, and a fresh environment in which the wheel is installed."""
    out = tmp_path_factory.mktemp("dist")
    pythons = {"PYTHON": sys.executable, "RELEASE_PYTHON": str(release_environment / "bin/python")}
    step(ROOT / "deploy/release/build.sh", out, env={**pythons, "SOURCE_DATE_EPOCH": "1700000000"})
    return out


@pytest.fixture(scope="session")
def podman(place: Path) -> Iterator[Podman]:
    """An engine that has built the image from the Dockerfile as `make image` does."""
    started = built_or_skip(lambda: engine.start(place / "podman"))
    try:
        started.build()
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest, place: Path) -> Image:
    """The files of the image. Without an engine the same script makes them."""
    if engine.missing():
        return built_or_skip(lambda: from_script(place))
    started: Podman = request.getfixturevalue("podman")
    started.export(engine.IMAGE, place / "root")
    return prepared(Image(place / "root"))
