"""The replay uses both modes of one daemon. A user's daemon says the same, and the switches that a reason names are the reason."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.parity.alone import verdicts_at
from tests.parity.bydefault import changes, differences_by_default
from tests.parity.known import REASONS, Place, Reason, pinned
from tests.parity.modes import Mode, Run
from tests.parity.recordings import RECORDED, Recording
from tests.parity.suite import scenarios
from tests.parity.verdict import Verdict

SUITE = {one.key: one for one in scenarios()}
BY_DEFAULT = {
    version: {
        place: one
        for place, one in REASONS[Run(version, Mode.DEFAULT)].items()
        if place not in REASONS[Run(version, Mode.PARITY)]
    }
    for version in RECORDED
}
PLACES = [(version, place) for version, places in BY_DEFAULT.items() for place in places]
BY_SWITCH: dict[tuple[str, tuple[str, ...]], list[Place]] = {}
for _version, _place in PLACES:
    if _switches := BY_DEFAULT[_version][_place].switches:
        BY_SWITCH.setdefault((_version, _switches), []).append(_place)


@pytest.fixture(scope="module")
def alone() -> Mapping[str, dict[Place, Verdict]]:
    """What daemons say whose profiles all have `parity: false`, by version, wherever that mode alone differs."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return {
            version: runner.run(verdicts_at(version, scenarios(), places)) for version, places in BY_DEFAULT.items()
        }


@pytest.mark.parametrize(("version", "place"), PLACES, ids=[f"{version}, {at[0]}: {at[1]}" for version, at in PLACES])
def test_a_daemon_without_other_profiles_says_the_same(
    alone: Mapping[str, dict[Place, Verdict]], version: str, place: Place
) -> None:
    """Profiles with `parity: true` in the same daemon change nothing for those without."""
    expected = pinned(Run(version, Mode.DEFAULT))[place].ours
    assert changes(SUITE[place[0]], expected, alone[version][place]) == []


@pytest.mark.parametrize(
    ("version", "switches"), BY_SWITCH, ids=[f"{at}, {', '.join(names)}" for at, names in BY_SWITCH]
)
def test_the_switches_of_a_reason_are_the_reason(
    recorded: Mapping[str, dict[str, Recording]], version: str, switches: tuple[str, ...]
) -> None:
    """With kube-scheduler's values of them, and the rest at their defaults, nothing differs at its places."""
    places = BY_SWITCH[version, switches]
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        told = runner.run(verdicts_at(version, scenarios(), places, switches))

    found = {
        place: differences_by_default(SUITE[place[0]], recorded[version][place[0]].verdicts[place[1]], told[place])
        for place in places
    }
    assert {place: differs for place, differs in found.items() if differs} == {}


@pytest.mark.parametrize("version", RECORDED)
def test_parity_needs_no_reason_of_the_default_mode(version: str) -> None:
    """What a switch explains does not differ with `parity: true`."""
    explained: list[Reason] = [one for one in REASONS[Run(version, Mode.PARITY)].values() if one.switches]

    assert explained == []
