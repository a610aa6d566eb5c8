"""One browser for all tests of the page, and the directory of the screenshots: `KUBESTOW_SCREENSHOTS`, if it is set."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import tools
from tests.e2e.controlplane.build import BuildFailed, Unavailable
from tests.e2e.controlplane.gate import built_or_skip
from tests.page.browser import Browser
from tests.page.examined import Examine, Examined


def pytest_collection_finish(session: pytest.Session) -> None:
    """Unpack Chromium before the first test: within a test, the test's timeout would end it."""
    if session.config.option.collectonly or not any("browser" in getattr(i, "fixturenames", ()) for i in session.items):
        return
    try:
        tools.chromium()
        tools.axe()
    except Unavailable:
        return  # each test that needs it says so
    except BuildFailed as why:
        pytest.exit(str(why), returncode=1)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(built_or_skip(tools.chromium), tmp_path_factory.mktemp("profile"))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    return built_or_skip(tools.axe).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("KUBESTOW_SCREENSHOTS")
    directory = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture
def examine(axe: str, shots: Path) -> Examine:
    return lambda page: Examined(page, axe, shots)
