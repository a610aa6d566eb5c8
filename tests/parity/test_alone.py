"""The replay uses both modes of one daemon. A user's daemon says the same, and the switches that a reason names are the reason."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest

from scheduler.config.args import SPELLED, UPSTREAM
from simulator.apiserver import ApiServer
from tests.parity import ours
from tests.parity.api import InProcess, make_lasting
from tests.parity.known import REASONS, Place, Reason, changes, differences_by_default, pinned
from tests.parity.recordings import RECORDED, Mode, Recording, Run
from tests.parity.replay import PAUSE_S, SERVED, put_cluster
from tests.parity.scenario import Scenario
from tests.parity.side import Stage
from tests.parity.suite import scenarios
from tests.parity.verdict import Verdict

OF_UPSTREAM: Final[Mapping[str, Any]] = MappingProxyType({SPELLED[name]: value for name, value in UPSTREAM.items()})
"""Field of KubestowArgs → the value with which we do as kube-scheduler."""


async def verdicts_at(
    version: str, scenarios: Iterable[Scenario], places: Collection[Place], switches: Iterable[str] = ()
) -> dict[Place, Verdict]:
    """Return our verdicts on the pods at these places with kube-scheduler's values of these `switches`."""
    groups: dict[tuple[str, ...], list[Scenario]] = {}
    for one in scenarios:
        if any((one.key, name) in places for name in one.asked):
            groups.setdefault(one.feature_gates, []).append(one)
    found: dict[Place, Verdict] = {}
    values = {name: OF_UPSTREAM[name] for name in switches}
    await asyncio.gather(*(_verdicts_at(version, some, places, gates, values, found) for gates, some in groups.items()))
    return found


async def _verdicts_at(
    version: str,
    scenarios: Iterable[Scenario],
    places: Collection[Place],
    gates: tuple[str, ...],
    switches: Mapping[str, Any],
    found: dict[Place, Verdict],
) -> None:
    async with ApiServer(served=SERVED) as server:
        api = InProcess(server, version)
        await make_lasting(api)
        running = ours.running(
            api,
            version=version,
            pause_s=PAUSE_S,
            master=server.url,
            gates=gates,
            modes=(Mode.DEFAULT,),
            switches=switches,
        )
        async with running as we:
            for one in scenarios:
                await put_cluster(one, we)
                stage = Stage(one)
                for name in one.asked:
                    if (one.key, name) in places:
                        found[one.key, name] = await stage.try_pod(we, name)


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
