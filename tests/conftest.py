"""What every test may rely on.

How tests import: pytest runs with `--import-mode=importlib` and `pythonpath = ["."]`, and `tests/` has no
`__init__.py` anywhere. So each test file has its own full name (two `test_queue.py` in two folders are fine), and
what tests share is imported absolutely, by its place in the repository:

    from tests.e2e.controlplane.harness import ControlPlane

Fixtures of one directory come from its `conftest.py`; a directory that needs those of another imports
the harness itself, not the other's conftest. pytest must be started in the repository's root.

Tests that need a real API server carry the marker `e2e`, and get its binaries by
`tests.e2e.controlplane.gate.binaries_or_skip`.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from scheduler.metrics import logs
from tests.e2e.controlplane.build import BuildFailed, Unavailable, binaries, is_built
from tests.examples import examples

pytest_plugins = ["tests.required", "tests.seeds", "tests.drawn"]

# The same with and without `CI`, for which Hypothesis has a separate profile that tries the same examples in each run.
settings.register_profile(
    "kubestow",
    parent=settings.get_profile("default"),
    max_examples=examples(),
    derandomize=False,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples"),
    # The machine may be busy: how long an example takes says nothing.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kubestow")

# As the daemon does it. structlog's default prints an exception with all local variables: a second for each.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(autouse=True)
def restored_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that configures the logs does so for its test alone, and no module keeps a logger that writes to its output."""
    monkeypatch.setattr(logs.setup, "__kwdefaults__", {**(logs.setup.__kwdefaults__ or {}), "cache_loggers": False})
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the first test that needs it: within a test, the test's timeout would end it."""
    gc.collect()
    gc.freeze()  # thousands of tests and their tables live to the end: need not be looked through time and again
    if session.config.option.collectonly or not any(item.get_closest_marker("e2e") for item in session.items):
        return
    if is_built():
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal.write_line("building the control plane for the e2e tests, some ten minutes once ...")
    try:
        binaries()
    except Unavailable:
        return  # each test that needs it says so
    except BuildFailed as why:
        pytest.exit(str(why), returncode=1)
