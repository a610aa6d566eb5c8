"""Tools as fixtures: a test that asks for one is skipped where it cannot be had, or fails if `E2E=required`."""

from pathlib import Path

import pytest

from tests.deploy import tools
from tests.e2e.controlplane.build import BuildFailed, Unavailable


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


@pytest.fixture(scope="session")
def helm() -> Path:
    return tools.or_skip(tools.helm)


@pytest.fixture(scope="session")
def helm3() -> Path:
    return tools.or_skip(tools.helm3)


@pytest.fixture(scope="session")
def kubeconform() -> Path:
    return tools.or_skip(tools.kubeconform)


@pytest.fixture(scope="session")
def promtool() -> Path:
    return tools.or_skip(tools.promtool)


@pytest.fixture(scope="session")
def prometheus() -> Path:
    return tools.or_skip(tools.prometheus)
