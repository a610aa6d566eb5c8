"""Asked pods on which we are known to differ from kube-scheduler v1.36.3: why, and which verdict of ours is expected.

The reasons stand in `differences.yaml`, per mode. The verdicts stand in `pins/`, which `python -m tests.parity.pin`
writes. A verdict that is not the pinned one is a surprise, and so is a difference that is gone.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import yaml

from tests.parity import pins
from tests.parity.bydefault import changes, differences_by_default
from tests.parity.modes import Mode
from tests.parity.pins import Pin
from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, differences

Place: TypeAlias = tuple[str, str]
"""Scenario key and name of the asked pod."""
FILE: Final = Path(__file__).parent / "differences.yaml"


@dataclass(frozen=True)
class Reason:
    """Why we differ, where the documentation says so, and the switches that turn the difference off."""

    why: str
    where: str
    """A file, and a section with its row, or words of docs/differences.md in quotes."""
    switches: tuple[str, ...] = ()
    """Fields of KubestowArgs. With kube-scheduler's values of all of them the default mode does not differ."""


def read(text: str) -> dict[Mode, dict[Place, Reason]]:
    """Mode → place → reason. Raises ValueError for a place that comes twice in a mode."""
    found: dict[Mode, dict[Place, Reason]] = {mode: {} for mode in Mode}
    for entry in yaml.safe_load(text):
        reason = Reason(entry["why"], entry["where"], tuple(entry.get("switches", ())))
        places = [(key, name) for key, names in entry["places"].items() for name in names]
        for mode in entry["modes"]:
            for place in places:
                if place in found[Mode(mode)]:
                    raise ValueError(f"twice in mode {mode}: {place}")
                found[Mode(mode)][place] = reason
    return found


REASONS: Final[Mapping[Mode, Mapping[Place, Reason]]] = read(FILE.read_text())
KNOWN: Final[Mapping[Place, str]] = MappingProxyType({at: one.why for at, one in REASONS[Mode.PARITY].items()})
"""Of the mode `PARITY`: (scenario, asked pod) → why."""


@functools.cache
def pinned(mode: Mode) -> Mapping[Place, Pin]:
    """The pins of a mode, as they are on the disk when this is called first."""
    return pins.read(mode)


def differing(mode: Mode, scenario: Scenario, recorded: Verdict, ours: Verdict) -> list[str]:
    """Return how we differ from kube-scheduler by the rules of the mode."""
    if mode is Mode.DEFAULT:
        return differences_by_default(scenario, recorded, ours)
    return differences(recorded, ours)


def expected(place: Place, recorded: Verdict) -> Verdict:
    """Return what we have to say in the mode `PARITY`: the pinned verdict, or the recorded one."""
    pin = pinned(Mode.PARITY).get(place)
    return recorded if pin is None else pin.ours


def surprises(mode: Mode, scenario: Scenario, name: str, recorded: Verdict, ours: Verdict) -> list[str]:
    """Return what is wrong at an asked pod; empty if we agree, or differ exactly as it is pinned."""
    place = (scenario.key, name)
    return surprise(
        REASONS[mode].get(place), pinned(mode).get(place), scenario, differing(mode, scenario, recorded, ours), ours
    )


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
