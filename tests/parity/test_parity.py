"""Ours decides as the recorded kube-scheduler did: the same texts, and its node among our best, by the same scores."""

import pytest

from tests.parity.known import KNOWN, surprises
from tests.parity.recordings import Recording
from tests.parity.replay import Replay
from tests.parity.scenario import Scenario
from tests.parity.suite import recordable, scenarios

PLACES = [(scenario.key, name) for scenario in scenarios() for name in scenario.asked]


@pytest.mark.parametrize(("key", "name"), PLACES, ids=[f"{key}: {name}" for key, name in PLACES])
def test_the_verdict_is_kube_schedulers(replayed: Replay, key: str, name: str) -> None:
    """Both bind, or both refuse; what is known to differ must still differ."""
    assert (key, name) in replayed.pods, "not recorded: make parity"
    assert surprises((key, name), replayed.pods[key, name].found) == []


@pytest.mark.parametrize("scenario", recordable(), ids=lambda scenario: scenario.key)
def test_the_recording_is_of_this_scenario(recorded: dict[str, Recording], scenario: Scenario) -> None:
    """Nobody changed a file, the short form or the generator without recording anew."""
    recording = recorded.get(scenario.key)
    assert recording is not None, "not recorded: make parity"

    assert recording.digest == scenario.digest(), "changed since it was recorded: make parity"


def test_nothing_else_is_recorded(recorded: dict[str, Recording]) -> None:
    """A scenario that is gone takes its recording with it."""
    assert recorded.keys() <= {scenario.key for scenario in recordable()}


def test_what_is_known_to_differ_is_asked() -> None:
    """No line of known.py outlives its scenario."""
    assert KNOWN.keys() <= set(PLACES)
