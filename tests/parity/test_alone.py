"""The replay asks both modes of one daemon. A user's daemon says the same, and the switches that a reason names are the reason."""

import asyncio

import pytest

from tests.parity.alone import asked
from tests.parity.bydefault import changes, differences_by_default
from tests.parity.known import REASONS, Place, Reason, pinned
from tests.parity.modes import Mode
from tests.parity.recordings import Recording
from tests.parity.suite import scenarios
from tests.parity.verdict import Verdict

SUITE = {one.key: one for one in scenarios()}
BY_DEFAULT = {place: one for place, one in REASONS[Mode.DEFAULT].items() if place not in REASONS[Mode.PARITY]}
BY_SWITCH: dict[tuple[str, ...], list[Place]] = {}
for _place, _one in BY_DEFAULT.items():
    if _one.switches:
        BY_SWITCH.setdefault(_one.switches, []).append(_place)


@pytest.fixture(scope="module")
def alone() -> dict[Place, Verdict]:
    """What a daemon says whose profiles all have `parity: false`, wherever that mode alone differs."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(asked(scenarios(), BY_DEFAULT))


@pytest.mark.parametrize("place", BY_DEFAULT, ids=[f"{key}: {name}" for key, name in BY_DEFAULT])
def test_a_daemon_without_other_profiles_says_the_same(alone: dict[Place, Verdict], place: Place) -> None:
    """Profiles with `parity: true` in the same daemon change nothing for those without."""
    assert changes(SUITE[place[0]], pinned(Mode.DEFAULT)[place].ours, alone[place]) == []


@pytest.mark.parametrize("switches", BY_SWITCH, ids=", ".join)
def test_the_switches_of_a_reason_are_the_reason(recorded: dict[str, Recording], switches: tuple[str, ...]) -> None:
    """With kube-scheduler's values of them, and all others at their defaults, nothing differs at its places."""
    places = BY_SWITCH[switches]
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        told = runner.run(asked(scenarios(), places, switches))

    found = {
        place: differences_by_default(SUITE[place[0]], recorded[place[0]].verdicts[place[1]], told[place])
        for place in places
    }
    assert {place: differs for place, differs in found.items() if differs} == {}


def test_parity_needs_no_reason_of_the_default_mode() -> None:
    """What a switch explains does not differ with `parity: true`."""
    explained: list[Reason] = [one for one in REASONS[Mode.PARITY].values() if one.switches]

    assert explained == []
