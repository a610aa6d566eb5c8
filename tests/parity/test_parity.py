"""Ours decides as the recorded kube-scheduler did: the same texts, and its node among our best, by the same scores."""

import pytest

from tests.parity.known import REASONS, pinned
from tests.parity.modes import Mode
from tests.parity.recordings import Recording
from tests.parity.replay import Replay
from tests.parity.scenario import Scenario
from tests.parity.suite import recordable, scenarios

PLACES = [(scenario, name) for scenario in scenarios() for name in scenario.asked]
IDS = [f"{scenario.key}: {name}" for scenario, name in PLACES]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("scenario", "name"), PLACES, ids=IDS)
def test_the_verdict_is_kube_schedulers(replayed: Replay, mode: Mode, scenario: Scenario, name: str) -> None:
    """Both bind, or both refuse, with `parity: true` and without; what is known to differ must differ as it is pinned."""
    told = replayed.told(mode)
    assert (scenario.key, name) in told, "not recorded: make parity"
    assert told[scenario.key, name].wrong == []


@pytest.mark.parametrize("scenario", recordable(), ids=lambda scenario: scenario.key)
def test_the_recording_is_of_this_scenario(recorded: dict[str, Recording], scenario: Scenario) -> None:
    """Nobody changed a file, the short form or the generator without recording anew."""
    recording = recorded.get(scenario.key)
    assert recording is not None, "not recorded: make parity"

    assert recording.digest == scenario.digest(), "changed since it was recorded: make parity"


def test_no_scenario_is_recorded_twice() -> None:
    """Each seed of a generator draws another scenario, and each scenario in a file is another one."""
    assert len({scenario.digest() for scenario in recordable()}) == len(recordable())


def test_nothing_else_is_recorded(recorded: dict[str, Recording]) -> None:
    """A scenario that is gone takes its recording with it."""
    assert recorded.keys() <= {scenario.key for scenario in recordable()}


@pytest.mark.parametrize("mode", Mode)
def test_a_reason_is_of_an_asked_pod(mode: Mode) -> None:
    """No line of differences.yaml outlives its scenario."""
    assert REASONS[mode].keys() <= {(scenario.key, name) for scenario, name in PLACES}


@pytest.mark.parametrize("mode", Mode)
def test_reasons_and_pins_are_of_the_same_pods(mode: Mode) -> None:
    """A reason without a pin would excuse any verdict, and a pin without a reason explains nothing."""
    assert REASONS[mode].keys() == pinned(mode).keys(), "python -m tests.parity.pin"


@pytest.mark.parametrize("mode", Mode)
def test_a_pin_shows_what_is_recorded(recorded: dict[str, Recording], mode: Mode) -> None:
    """The verdict next to ours is the recording's."""
    stale = [(key, name) for (key, name), pin in pinned(mode).items() if pin.recorded != recorded[key].verdicts[name]]

    assert stale == [], "python -m tests.parity.pin"
