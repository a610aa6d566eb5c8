"""Tried pods on which we are known to differ from kube-scheduler: why, and which verdict of ours is expected.

The reasons stand in `differences.yaml`, per version and mode. The verdicts stand in `pins/`, which `python -m tests.parity.pin`
writes. A verdict that is not the pinned one is a surprise, and so is a difference that is gone.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from scheduler.core.feature_gates import VERSIONS
from tests.parity import pins
from tests.parity.bydefault import changes, differences_by_default
from tests.parity.modes import ALL, Mode, Run
from tests.parity.pins import Pin
from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, differences

Place: TypeAlias = tuple[str, str]
"""Scenario key and name of the tried pod."""
FILE: Final = Path(__file__).parent / "differences.yaml"


@dataclass(frozen=True)
class Reason:
    """Why we differ, where the documentation says so, and the switches that turn the difference off."""

    why: str
    where: str
    """A file, and a section with its row, or words of docs/differences.md in quotes."""
    switches: tuple[str, ...] = ()
    """Fields of KubestowArgs. With kube-scheduler's values of all of them the default mode does not differ."""


def read(text: str) -> dict[Run, dict[Place, Reason]]:
    """Return the reasons of each version and mode; an entry without `versions` is of all. Raises ValueError for a place twice."""
    found: dict[Run, dict[Place, Reason]] = {asked: {} for asked in ALL}
    for entry in yaml.safe_load(text):
        reason = Reason(entry["why"], entry["where"], tuple(entry.get("switches", ())))
        places = [(key, name) for key, names in entry["places"].items() for name in names]
        for asked in (
            Run(version, Mode(mode)) for version in entry.get("versions", VERSIONS) for mode in entry["modes"]
        ):
            for place in places:
                if place in found[asked]:
                    raise ValueError(f"twice in {asked}: {place}")
                found[asked][place] = reason
    return found


REASONS: Final[Mapping[Run, Mapping[Place, Reason]]] = read(FILE.read_text())


@functools.cache
def pinned(asked: Run) -> Mapping[Place, Pin]:
    """The pins of a version and mode, as they are on the disk when this is called first."""
    return pins.read(asked)


def differing(mode: Mode, scenario: Scenario, recorded: Verdict, ours: Verdict) -> list[str]:
    """Return how we differ from kube-scheduler by the rules of the mode."""
    if mode is Mode.DEFAULT:
        return differences_by_default(scenario, recorded, ours)
    return differences(recorded, ours)


def expected(version: str, place: Place, recorded: Verdict) -> Verdict:
    """Return what we have to say in the mode `PARITY`: the pinned verdict, or the recorded one."""
    pin = pinned(Run(version, Mode.PARITY)).get(place)
    return recorded if pin is None else pin.ours


def surprises(asked: Run, scenario: Scenario, name: str, recorded: Verdict, ours: Verdict) -> list[str]:
    """Return what is wrong at a tried pod; empty if we agree, or differ exactly as it is pinned."""
    place = (scenario.key, name)
    found = differing(asked.mode, scenario, recorded, ours)
    return surprise(REASONS[asked].get(place), pinned(asked).get(place), scenario, found, ours)


def surprise(reason: Reason | None, pin: Pin | None, scenario: Scenario, found: list[str], ours: Verdict) -> list[str]:
    """As `surprises`, of this reason and this pin. `found` is how `ours` differs from kube-scheduler."""
    if reason is None:
        return found
    if not found:
        return [f"no longer a difference, take it out of differences.yaml: {reason.why}"]
    if pin is None:
        return ["known to differ, but not pinned: python -m tests.parity.pin", *found]
    changed = changes(scenario, pin.ours, ours)
    return ["not as it is pinned ('wanted' and 'kube-scheduler' are the pin):", *changed] if changed else []
