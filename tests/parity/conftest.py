"""One replay of the whole suite for all tests of this room."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.parity import recordings
from tests.parity.recordings import Recording
from tests.parity.replay import Replay, catch, replay
from tests.parity.suite import scenarios
from tests.parity.table import table

_REPLAY: pytest.StashKey[Replay] = pytest.StashKey()


@pytest.fixture(scope="session")
def recorded() -> dict[str, Recording]:
    """What kube-scheduler said."""
    return recordings.read()


@pytest.fixture(scope="session")
def replayed(recorded: dict[str, Recording], request: pytest.FixtureRequest) -> Replay:
    """What we say; a minute of CPU, several if tests want mutants. Those of caches have not been tried."""
    tries_mutants = any(item.get_closest_marker("nightly") for item in request.session.items)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        result = runner.run(replay(scenarios(), recorded, tries_mutants=tries_mutants))
    request.config.stash[_REPLAY] = result
    return result


@pytest.fixture
def caught(recorded: dict[str, Recording], replayed: Replay) -> Callable[[str], tuple[str, str] | None]:
    """Where a mutant of caches is noticed, if it is; a second of CPU each."""

    def tried(mutant: str) -> tuple[str, str] | None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(catch(mutant, scenarios(), recorded, replayed))
        return replayed.caught[mutant]

    return tried


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was held against each plugin."""
    if (result := config.stash.get(_REPLAY, None)) is not None and result.tries_mutants:
        terminalreporter.section("parity with kube-scheduler v1.36.3")
        for line in table(recordings.read(), result):
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that asks for the replay waits for all of it."""
    for item in items:
        if "replayed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(2400))
