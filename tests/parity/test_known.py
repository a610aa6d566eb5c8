"""A known difference excuses the pinned verdict and no other, and the rules of the default mode excuse one text and one kind of node."""

import asyncio
import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from scheduler.config.args import UPSTREAM
from scheduler.config.schema import spelled
from simulator.apiserver import ApiServer
from tests.parity import ours, pins
from tests.parity.api import InProcess, make_lasting
from tests.parity.daily import nightly_unless_default
from tests.parity.known import (
    REASONS,
    Place,
    Reason,
    changes,
    differences_by_default,
    pinned,
    read,
    surprise,
    surprises,
)
from tests.parity.pin import pin, steady
from tests.parity.pins import Pin
from tests.parity.recordings import RECORDED, RUNS, Mode, Recording, Run
from tests.parity.replay import PAUSE_S, SERVED, put_cluster
from tests.parity.scenario import Scenario, scenario
from tests.parity.side import TrialStage
from tests.parity.suite import scenarios
from tests.parity.verdict import Verdict, Way

ROOT = Path(__file__).parents[2]
SUITE = {one.key: one for one in scenarios()}
PINS = [(asked, place) for asked in RUNS for place in pinned(asked)]
IDS = [f"{asked}: {key}: {name}" for asked, (key, name) in PINS]
REFUSED = Verdict(reason="Unschedulable", message="0/2 nodes are available: 2 Insufficient cpu.")
MADE = replace(REFUSED, ways=(Way("a", ("low",)),))
FOUND = " preemption: found a potential placement for pod on node a, preempting 1 victims."
WHY = Reason("upstream errs", "docs/spec/core.md §1.1 ours")
PLAIN = scenario("Rules", {"id": "plain", "nodes": {"a": {}, "b": {}}, "asked": {"p": {}}})
LEAVING = scenario(
    "Rules",
    {
        "id": "one leaves",
        "nodes": {"a": {}, "b": {}},
        "pods": {
            "gone soon": {"at": "a", "leaving": True},
            "stays": {"at": "a"},
            "elsewhere": {"at": "b", "leaving": True},
        },
        "asked": {"p": {}},
    },
)
DEVICES = scenario(
    "Rules", {"id": "devices", "nodes": {"a": {}, "b": {}}, "devices": {"claims": {"c": "a"}}, "asked": {"p": {}}}
)


def said(victims: int, node: str = "a") -> str:
    return f"{REFUSED.message} preemption: found a potential placement for pod on node {node}, preempting {victims} victims."


# -- pins --------------------------------------------------------------------------------------------------------------


def spoiled(verdict: Verdict) -> list[Verdict]:
    """Verdicts that are wrong in one more way each."""
    more_writes = replace(verdict, writes=(*verdict.writes, "devices default/c: no stamped"))
    if verdict.node:
        return [more_writes, REFUSED, Verdict("another-node")]
    ways = replace(verdict, ways=(Way("another-node", ("another-pod",)),))
    return [
        more_writes,
        ways,
        replace(verdict, message=f"{verdict.message} x"),
        replace(verdict, reason="x"),
        Verdict("a"),
    ]


@pytest.mark.parametrize(("asked", "place"), PINS, ids=IDS)
def test_another_verdict_at_a_known_place_is_a_surprise(asked: Run, place: tuple[str, str]) -> None:
    """The pinned verdict is none, and each further mistake is one."""
    one, (key, name) = pinned(asked)[place], place

    assert surprises(asked, SUITE[key], name, one.recorded, one.ours) == []
    assert [bad for bad in spoiled(one.ours) if not surprises(asked, SUITE[key], name, one.recorded, bad)] == []


@pytest.mark.parametrize(("asked", "place"), PINS, ids=IDS)
def test_agreeing_at_a_known_place_is_a_surprise(asked: Run, place: tuple[str, str]) -> None:
    """A difference that is gone has to leave differences.yaml."""
    one, (key, name) = pinned(asked)[place], place
    (way, *_) = one.recorded.ways
    message = one.recorded.message
    if asked.mode is Mode.DEFAULT and way.evicted and not way.victims:
        message += said(len(way.evicted), way.nominated).removeprefix(REFUSED.message)
    agreeing = replace(one.recorded, message=message, ways=(way,))

    why = REASONS[asked][place].why
    assert surprises(asked, SUITE[key], name, one.recorded, agreeing) == [
        f"no longer a difference, take it out of differences.yaml: {why}"
    ]


@pytest.mark.parametrize(
    ("reason", "pinned_verdict", "found", "ours", "told"),
    [
        pytest.param(None, None, ["x"], MADE, "x", id="a difference without a reason"),
        pytest.param(WHY, None, ["x"], MADE, "not pinned", id="a reason without a pin"),
        pytest.param(WHY, MADE, [], MADE, "no longer a difference", id="a difference that is gone"),
        pytest.param(WHY, REFUSED, ["x"], MADE, "not as it is pinned", id="a changed verdict"),
    ],
)
def test_it_is_a_surprise(
    reason: Reason | None, pinned_verdict: Verdict | None, found: list[str], ours: Verdict, told: str
) -> None:
    one = Pin(REFUSED, pinned_verdict) if pinned_verdict is not None else None

    assert told in surprise(reason, one, PLAIN, found, ours)[0]


@pytest.mark.parametrize(
    ("reason", "one", "found"),
    [
        pytest.param(None, None, [], id="no difference"),
        pytest.param(WHY, Pin(REFUSED, MADE), ["x"], id="the pinned difference"),
    ],
)
def test_it_is_no_surprise(reason: Reason | None, one: Pin | None, found: list[str]) -> None:
    assert surprise(reason, one, PLAIN, found, MADE) == []


@pytest.mark.parametrize(
    ("versions", "read_in"),
    [
        pytest.param("", ["1.36", "1.37", "1.38"], id="an entry without versions is of all"),
        pytest.param(", versions: ['1.37']", ["1.37"], id="an entry with a version is of that version"),
    ],
)
def test_versions_of_a_reason(versions: str, read_in: list[str]) -> None:
    found = read(f"- {{why: w, where: x, modes: [parity], places: {{s: [p]}}{versions}}}")

    assert [asked.version for asked, reasons in found.items() if reasons] == read_in


def test_a_place_with_two_reasons_is_refused() -> None:
    """Which of them would be the truth?"""
    entry = "- {why: w, where: x, modes: [parity], places: {s: [p]}}\n"

    with pytest.raises(ValueError, match=r"twice in 1\.36, parity"):
        read(entry + entry)


# -- the command -------------------------------------------------------------------------------------------------------

AT = ("s", "p")
OLD, NEW = Pin(REFUSED, MADE), Pin(REFUSED, Verdict("a"))


def test_a_difference_with_a_reason_is_pinned() -> None:
    assert pin({AT: OLD}, {AT: (NEW, ["x"])}, {AT: WHY}, places={AT}) == ({AT: NEW}, [])


def test_a_difference_without_a_reason_is_not_pinned() -> None:
    """The command refuses it and says how it differs."""
    assert pin({}, {AT: (NEW, ["x"])}, {}, places={AT}) == ({}, ["s: p: no reason in differences.yaml\n    x"])


def test_a_difference_that_is_gone_loses_its_pin() -> None:
    new, problems = pin({AT: OLD}, {AT: (NEW, [])}, {AT: WHY}, places={AT})

    assert (new, problems) == ({}, ["s: p: no longer a difference, take it out of differences.yaml"])


def test_what_was_not_replayed_keeps_its_pin() -> None:
    assert pin({AT: OLD}, {}, {AT: WHY}, places={AT}) == ({AT: OLD}, [])


@pytest.mark.parametrize(
    ("reasons", "places"), [pytest.param({}, {AT}, id="no reason"), pytest.param({AT: WHY}, set(), id="no such pod")]
)
def test_a_pin_for_nothing_goes(reasons: dict[tuple[str, str], Reason], places: set[tuple[str, str]]) -> None:
    new, problems = pin({AT: OLD}, {}, reasons, places=places)

    assert (new, len(problems)) == ({}, len(reasons))


def test_chance_between_equal_nodes_leaves_a_pin_as_it_is() -> None:
    """Otherwise each run of the command would change the file."""
    scores = {"Fit": {"a": 1, "b": 1}}
    old = Pin(REFUSED, Verdict("a", scores))

    assert steady(PLAIN, old, Pin(REFUSED, Verdict("b", scores))) == old
    assert steady(PLAIN, old, NEW) == NEW


def test_pins_are_read_as_they_were_written(tmp_path: Path) -> None:
    both = {AT: OLD, ("s", "q"): NEW, ("t", "p"): Pin(Verdict("a", {"Fit": {"a": 1, "b": 2}}), REFUSED)}
    pins.write(Run("1.36", Mode.DEFAULT), both, tmp_path)

    assert pins.read(Run("1.36", Mode.DEFAULT), tmp_path) == both
    assert pins.read(Run("1.36", Mode.PARITY), tmp_path) == {}


def test_a_pin_that_follows_from_that_of_1_36_is_only_named(tmp_path: Path) -> None:
    """The other pins of 1.37 are whole, and a pin of 1.36 alone is not one of 1.37."""
    first = {AT: OLD, ("s", "q"): NEW, ("s", "only in 1.36"): OLD}
    followed = Pin(REFUSED, replace(MADE, ways=(replace(MADE.ways[0], victims=1),)))
    later = {AT: followed, ("s", "q"): Pin(Verdict("a"), REFUSED)}
    pins.write(Run("1.36", Mode.PARITY), first, tmp_path)
    pins.write(Run("1.37", Mode.PARITY), later, tmp_path)

    assert pins.read(Run("1.37", Mode.PARITY), tmp_path) == later
    assert (tmp_path / "1.37" / "parity.json").read_text().count('"as in 1.36"') == 1


# -- the rules of the default mode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "ours"),
    [
        pytest.param(PLAIN, replace(MADE, message=said(1)), id="one victim"),
        pytest.param(LEAVING, replace(MADE, message=said(1)), id="the one that is leaving is none"),
        pytest.param(LEAVING, replace(MADE, message=said(2)), id="the one that is leaving is one more"),
    ],
)
def test_a_preemption_that_was_found_may_say_so(one: Scenario, ours: Verdict) -> None:
    assert differences_by_default(one, MADE, ours) == []


def test_a_preemption_whose_only_victim_is_leaving_may_say_so() -> None:
    nominated = replace(REFUSED, ways=(Way("a"),))

    assert differences_by_default(LEAVING, nominated, replace(nominated, message=said(1))) == []


@pytest.mark.parametrize(
    ("one", "ours"),
    [
        pytest.param(PLAIN, MADE, id="nothing is said"),
        pytest.param(PLAIN, replace(MADE, message=said(1, "b")), id="of another node"),
        pytest.param(PLAIN, replace(MADE, message=said(2)), id="of more victims"),
        pytest.param(LEAVING, replace(MADE, message=said(3)), id="of those that leave elsewhere"),
        pytest.param(PLAIN, replace(MADE, message=said(0)), id="of no victim"),
        pytest.param(PLAIN, replace(MADE, message=said(1)[:-1]), id="without the full stop"),
        pytest.param(PLAIN, replace(MADE, message=f"{said(1)} x"), id="with more behind it"),
        pytest.param(PLAIN, replace(MADE, message=said(1) + FOUND), id="twice"),
        pytest.param(PLAIN, replace(MADE, message=FOUND), id="instead of the reasons"),
        pytest.param(PLAIN, replace(REFUSED, message=said(1)), id="where no node is nominated"),
        pytest.param(
            PLAIN, replace(MADE, message=said(1), ways=(Way("a", ("other",)),)), id="and another pod is evicted"
        ),
    ],
)
def test_another_sentence_is_a_difference(one: Scenario, ours: Verdict) -> None:
    assert differences_by_default(one, MADE, ours) != []


ONE = Verdict("a", {"Fit": {"a": 2, "b": 1}}, writes=("w",))
MORE = {"Fit": {"a": 3, "b": 1, "c": 2}}


def test_with_devices_more_nodes_may_be_scored() -> None:
    assert differences_by_default(DEVICES, ONE, replace(ONE, scores=MORE)) == []


@pytest.mark.parametrize(
    ("one", "ours"),
    [
        pytest.param(PLAIN, replace(ONE, scores=MORE), id="without devices"),
        pytest.param(DEVICES, replace(ONE, scores=MORE, node="b"), id="another node than its best"),
        pytest.param(DEVICES, replace(ONE, scores=MORE, node="c"), id="a node that it refuses"),
        pytest.param(DEVICES, replace(ONE, scores=MORE, writes=()), id="and other writes"),
        pytest.param(DEVICES, replace(ONE, scores={}), id="fewer nodes"),
        pytest.param(DEVICES, replace(ONE, scores={"Fit": {"a": 2, "b": 0}}), id="the same nodes, and other scores"),
        pytest.param(DEVICES, REFUSED, id="none is found"),
    ],
)
def test_other_nodes_are_a_difference(one: Scenario, ours: Verdict) -> None:
    assert differences_by_default(one, ONE, ours) != []


@pytest.mark.parametrize(
    ("one", "ours", "is_same"),
    [
        pytest.param(DEVICES, replace(ONE, scores=MORE), True, id="with devices more nodes were scored"),
        pytest.param(DEVICES, replace(ONE, scores={}), True, id="with devices fewer were"),
        pytest.param(DEVICES, replace(ONE, scores=MORE, node="b"), False, id="and another node was taken"),
        pytest.param(DEVICES, replace(ONE, scores=MORE, writes=()), False, id="and less was written"),
        pytest.param(PLAIN, replace(ONE, scores=MORE), False, id="without devices more were scored"),
    ],
)
def test_a_pin_holds_node_and_writes(one: Scenario, ours: Verdict, is_same: bool) -> None:
    assert (changes(one, ONE, ours) == []) == is_same


# -- reasons -------------------------------------------------------------------------------------------------------------

REASONED = list(dict.fromkeys(reason for asked in RUNS for reason in REASONS[asked].values()))


@pytest.mark.parametrize("reason", REASONED, ids=lambda reason: reason.why)
def test_the_documentation_has_what_a_reason_refers_to(reason: Reason) -> None:
    """A page and its words, or a section of a specification and words of that section."""
    file, _, words = reason.where.partition(" ")
    text = (ROOT / file).read_text()
    wanted = words.strip('"')
    if not words.startswith('"'):
        number, _, wanted = words.partition(" ")
        heading = rf"{re.escape(number.removeprefix('§'))}\b"
        found = re.search(rf"^(#+) {heading}.*?$(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"{file} has no heading {heading}"
        text = found[2]

    assert wanted, "a reason names a word of its section"
    assert wanted in " ".join(text.split())


@pytest.mark.parametrize("reason", REASONED, ids=lambda reason: reason.why)
def test_a_reason_names_switches_that_parity_sets(reason: Reason) -> None:
    assert set(reason.switches) <= {spelled(name) for name in UPSTREAM}


# -- a daemon with the default mode alone says the same, and the switches that a reason names are the reason -----------


OF_UPSTREAM: Final[Mapping[str, Any]] = MappingProxyType(UPSTREAM)
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
    values = {name: value for name, value in OF_UPSTREAM.items() if spelled(name) in switches}
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
                stage = TrialStage(one)
                for name in one.asked:
                    if (one.key, name) in places:
                        found[one.key, name] = await stage.try_pod(we, name)


BY_DEFAULT = {
    version: {
        place: one
        for place, one in REASONS[Run(version, Mode.DEFAULT)].items()
        if place not in REASONS[Run(version, Mode.PARITY)]
    }
    for version in RECORDED
}
PLACES = [
    pytest.param(version, at, id=f"{version}, {at[0]}: {at[1]}", marks=nightly_unless_default(version))
    for version, places in BY_DEFAULT.items()
    for at in places
]
BY_SWITCH: dict[tuple[str, tuple[str, ...]], list[Place]] = {}
for _version, _places in BY_DEFAULT.items():
    for _place, _reason in _places.items():
        if _reason.switches:
            BY_SWITCH.setdefault((_version, _reason.switches), []).append(_place)


@pytest.fixture(scope="module")
def alone() -> Callable[[str], dict[Place, Verdict]]:
    """What a daemon of a version says whose profiles all have `parity: false`, wherever that mode alone differs."""

    @functools.cache
    def found(version: str) -> dict[Place, Verdict]:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(verdicts_at(version, scenarios(), BY_DEFAULT[version]))

    return found


@pytest.mark.parametrize(("version", "place"), PLACES)
def test_a_daemon_without_other_profiles_says_the_same(
    alone: Callable[[str], dict[Place, Verdict]], version: str, place: Place
) -> None:
    """Profiles with `parity: true` in the same daemon change nothing for those without."""
    expected = pinned(Run(version, Mode.DEFAULT))[place].ours
    assert changes(SUITE[place[0]], expected, alone(version)[place]) == []


@pytest.mark.parametrize(
    ("version", "switches"),
    [
        pytest.param(at, names, id=f"{at}, {', '.join(names)}", marks=nightly_unless_default(at))
        for at, names in BY_SWITCH
    ],
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
