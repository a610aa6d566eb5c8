"""Every plugin is missed when it is switched off: the suite would notice if one of them did nothing.

What judges the scenarios by mutants tests the recordings, not the scheduler, and takes minutes: `make nightly`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import pytest

from scheduler.config.plugins import DEFAULT_PLUGINS
from scheduler.core.feature_gates import CHANGES
from scheduler.plugins import BUILT_IN
from tests.parity.change_mutants import CHANGE_MUTANTS, SWITCHED_OFF, UNSEEN, VERSION, mutated_changes
from tests.parity.daily import VERSIONS
from tests.parity.device_mutants import DEVICE_MUTANTS, mutated_devices
from tests.parity.mutants import MUTANTS, VOLUME_MUTANTS, mutated, mutated_volumes
from tests.parity.reasons import UNASKED
from tests.parity.recordings import RECORDED, Recording
from tests.parity.replay import Replay
from tests.parity.scenario import Scenario
from tests.parity.suite import crowds, random_ones, scenarios, volume_ones, written

_ELSEWHERE = {"PrioritySort", "DefaultBinder"}  # order in the queue, the binding
JUDGING = [ref.name for ref in DEFAULT_PLUGINS if ref.name in BUILT_IN and ref.name not in _ELSEWHERE]
OWN = [(version, one) for version in RECORDED for one in scenarios() if one.group in JUDGING]


PLANTED = {
    mutated: MUTANTS,
    mutated_volumes: VOLUME_MUTANTS,
    mutated_devices: DEVICE_MUTANTS,
    mutated_changes: CHANGE_MUTANTS,
}


@pytest.mark.parametrize(("plant", "mutant"), [(plant, each) for plant, names in PLANTED.items() for each in names])
def test_what_a_mutant_replaces_exists(plant: Callable[[str], AbstractContextManager[None]], mutant: str) -> None:
    """A mutant names modules and functions; after a move it would fail in the nightly run alone."""
    with plant(mutant):
        pass


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.nightly
@pytest.mark.parametrize("plugin", [name for name in JUDGING if name not in UNASKED])
def test_a_plugin_that_is_switched_off_is_missed(replayed: Mapping[str, Replay], version: str, plugin: str) -> None:
    """At least one recorded verdict cannot be reached without it."""
    assert replayed[version].needing(plugin)


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(replayed: Mapping[str, Replay], version: str, mutant: str) -> None:
    """Preemption that goes wrong in this way evicts other pods than kube-scheduler did, or says something else."""
    assert replayed[version].catching(mutant)


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.nightly
@pytest.mark.parametrize("mutant", VOLUME_MUTANTS)
def test_a_mutant_of_volumes_is_caught(caught: Callable[[str, str], object], version: str, mutant: str) -> None:
    """Some claim would get a PV that kube-scheduler did not give it, or a node would be refused, or not be refused."""
    assert caught(version, mutant)


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.nightly
@pytest.mark.parametrize("mutant", DEVICE_MUTANTS)
def test_a_mutant_of_devices_is_caught(caught: Callable[[str, str], object], version: str, mutant: str) -> None:
    """Some claim would get a device that kube-scheduler did not give it, or be refused, or not be refused."""
    assert caught(version, mutant)


@pytest.mark.nightly
@pytest.mark.parametrize("version", [VERSION])
@pytest.mark.parametrize("mutant", CHANGE_MUTANTS)
def test_a_mutant_of_the_changes_is_caught(caught: Callable[[str, str], object], version: str, mutant: str) -> None:
    """With the answer of 1.37 some pod would get another verdict than kube-scheduler gave it."""
    assert caught(version, mutant)


def test_each_change_has_a_mutant_or_a_reason() -> None:
    """A named change of 1.38 that no recording shows would be right by assertion alone."""
    assert {*SWITCHED_OFF.values(), *UNSEEN} == CHANGES["1.38"] - CHANGES["1.37"]
    assert not UNSEEN.keys() & set(SWITCHED_OFF.values())


@pytest.mark.nightly
@pytest.mark.parametrize(("version", "scenario"), OWN, ids=[f"{version}, {scenario.key}" for version, scenario in OWN])
def test_a_scenario_in_the_file_of_a_plugin_is_about_it(
    replayed: Mapping[str, Replay], version: str, scenario: Scenario
) -> None:
    """One of its tried pods needs that plugin, so the table may count it."""
    missed = [name for name in scenario.asked if scenario.group in replayed[version].pods[scenario.key, name].needs]

    assert missed


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.nightly
def test_plugins_that_do_not_run_are_not_missed(replayed: Mapping[str, Replay], version: str) -> None:
    """The excuses of `UNASKED` still hold."""
    assert {name: len(replayed[version].needing(name)) for name in UNASKED} == dict.fromkeys(UNASKED, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_judging_plugin_was_switched_off(replayed: Mapping[str, Replay], version: str) -> None:
    """The replay tries all that the profiles have, and knows of no further ones."""
    assert set(JUDGING) <= replayed[version].plugins


@pytest.mark.parametrize("version", RECORDED)
def test_enough_preemptions(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """100 scenarios in which a pod is preempted for another one, 50 of them random."""
    evicting = [
        key
        for key, recording in recorded[version].items()
        if any(way.evicted for verdict in recording.verdicts.values() for way in verdict.ways)
    ]
    drawn = {scenario.key for scenario in crowds()}

    assert (len(evicting) >= 100, len(drawn & set(evicting)) >= 50) == (True, True)


def test_enough_scenarios() -> None:
    """150 in all, 80 of them random, and a file for every plugin that can be switched off; 130 and 60 with volumes."""
    drawn = len(random_ones()) + len(crowds())
    with_volumes = [scenario for scenario in written() if scenario.uses_volumes]

    assert (len(scenarios()) >= 150, drawn >= 80) == (True, True)
    assert (len(with_volumes) >= 130, len(volume_ones()) >= 60) == (True, True)
    assert {scenario.group for scenario in written()} >= set(JUDGING) - UNASKED.keys()
