"""One replay of the whole suite per version for all tests of this folder."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
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
    """What we say, by version; minutes of CPU for a whole version when it is read first, more if tests want mutants.

    Mutants of caches have not been tried.
    """

    def __init__(
        self,
        recorded: Mapping[str, Mapping[str, Recording]],
        wanted: Mapping[str, Collection[str] | None],
        *,
        tries_mutants: bool,
    ) -> None:
        """`wanted`: version → keys of scenarios; None: all."""
        super().__init__()
        self._recorded = recorded
        self._wanted = wanted
        self._tries_mutants = tries_mutants

    def __missing__(self, version: str) -> Replay:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            keys = self._wanted[version]
            some = [one for one in scenarios() if keys is None or one.key in keys]
            one = replay(version, some, self._recorded[version], tries_mutants=self._tries_mutants)
            self[version] = runner.run(one)
        return self[version]


def wanted(items: Iterable[pytest.Item]) -> Mapping[str, Collection[str] | None]:
    """Return version → keys of the scenarios that the tests of this run need; None: all, for a test of no single one."""
    found: dict[str, set[str] | None] = {}
    for item in items:
        if "replayed" not in getattr(item, "fixturenames", ()):
            continue
        params: Mapping[str, Any] = item.callspec.params if isinstance(item, pytest.Function) else {}
        version = params["asked"].version if "asked" in params else params["version"]
        keys = found.setdefault(version, set())
        if "scenario" not in params:
            found[version] = None
        elif keys is not None:
            keys.add(params["scenario"].key)
    return found


@pytest.fixture(scope="session")
def replayed(recorded: Mapping[str, dict[str, Recording]], request: pytest.FixtureRequest) -> Replays:
    tries_mutants = any(item.get_closest_marker("nightly") for item in request.session.items)
    request.config.stash[_REPLAYS] = found = Replays(
        recorded, wanted(request.session.items), tries_mutants=tries_mutants
    )
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
    """The first test that uses the replay waits for all of it.

    Here the tests of the nightly run are not deselected yet, so any run notices one that names no version.
    """
    wanted(items)
    for item in items:
        if "replayed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(2400))
