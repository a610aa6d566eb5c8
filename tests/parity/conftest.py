"""One replay of the whole suite per version for all tests of this folder."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.parity import recordings
from tests.parity.recordings import RECORDED, Recording
from tests.parity.replay import Replay, catch, replay
from tests.parity.suite import scenarios
from tests.parity.table import table

_REPLAYS: pytest.StashKey[Mapping[str, Replay]] = pytest.StashKey()


@pytest.fixture(scope="session")
def recorded() -> Mapping[str, dict[str, Recording]]:
    """What kube-scheduler said, by version."""
    return {version: recordings.read(version) for version in RECORDED}


class Replays(dict[str, Replay]):
    """What we say, by version; a minute of CPU for each version when it is read first, several if tests want mutants.

    Mutants of caches have not been tried.
    """

    def __init__(self, recorded: Mapping[str, Mapping[str, Recording]], *, tries_mutants: bool) -> None:
        super().__init__()
        self._recorded = recorded
        self._tries_mutants = tries_mutants

    def __missing__(self, version: str) -> Replay:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            one = replay(version, scenarios(), self._recorded[version], tries_mutants=self._tries_mutants)
            self[version] = runner.run(one)
        return self[version]


@pytest.fixture(scope="session")
def replayed(recorded: Mapping[str, dict[str, Recording]], request: pytest.FixtureRequest) -> Replays:
    tries_mutants = any(item.get_closest_marker("nightly") for item in request.session.items)
    request.config.stash[_REPLAYS] = found = Replays(recorded, tries_mutants=tries_mutants)
    return found


@pytest.fixture
def caught(
    recorded: Mapping[str, dict[str, Recording]], replayed: Replays
) -> Callable[[str, str], tuple[str, str] | None]:
    """Where a mutant of caches is noticed in a version, if it is; a second of CPU each."""

    def tried(version: str, mutant: str) -> tuple[str, str] | None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(catch(mutant, scenarios(), recorded[version], replayed[version]))
        return replayed[version].caught[mutant]

    return tried


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was held against each plugin."""
    for version, result in config.stash.get(_REPLAYS, {}).items():
        if result.tries_mutants:
            terminalreporter.section(f"parity with kube-scheduler {version}")
            for line in table(recordings.read(version), result):
                terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that uses the replay waits for all of it."""
    for item in items:
        if "replayed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(2400))
