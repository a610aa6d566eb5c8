"""Tried pods on which we are known to differ from kube-scheduler: why, and which verdict of ours is expected.

The reasons stand in `differences.yaml`, per version and mode. The verdicts stand in `pins/`, which `python -m tests.parity.pin`
writes. A verdict that is not the pinned one is a surprise, and so is a difference that is gone.

A verdict of a profile with `parity: false` is compared by `verdict.differences` and two narrow rules:

1. With the gates of 1.36 the message of a preemption ends with its node and the number of its victims
   (docs/spec/core.md §3.9). A victim is a pod that is evicted, or one on that node that is leaving already. In 1.37
   kube-scheduler says it as well, and `verdict.heard` has made it a part of the way.
2. With devices the nodes that are scored may be more than those that kube-scheduler found feasible, because only the
   best are verified (docs/adr/0003). Our node must then be one of kube-scheduler's best; the scores are not compared.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from tests.parity import pins
from tests.parity.pins import Pin
from tests.parity.recordings import RECORDED, RUNS, Mode, Run
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
    found: dict[Run, dict[Place, Reason]] = {asked: {} for asked in RUNS}
    for entry in yaml.safe_load(text):
        reason = Reason(entry["why"], entry["where"], tuple(entry.get("switches", ())))
        places = [(key, name) for key, names in entry["places"].items() for name in names]
        for asked in (
            Run(version, Mode(mode)) for version in entry.get("versions", RECORDED) for mode in entry["modes"]
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


# -- the default mode --------------------------------------------------------------------------------------------------


_FOUND: Final = re.compile(
    r" preemption: found a potential placement for pod on node (?P<node>\S+), preempting (?P<victims>[1-9]\d*) victims\.\Z"
)


def differences_by_default(scenario: Scenario, theirs: Verdict, ours: Verdict) -> list[str]:
    """Return the differences in words; empty if the verdicts agree. `theirs` is kube-scheduler's."""
    if scenario.devices and theirs.node and theirs.totals().keys() < ours.totals().keys():
        found = differences(replace(theirs, scores={}), replace(ours, scores={}, node=theirs.node))
        return found if ours.node in theirs.best() else [*found, f"{ours.node} is not among {sorted(theirs.best())}"]
    said = _FOUND.search(ours.message)
    if said is None:
        is_silent = any(way.evicted and not way.victims for way in ours.ways)
        silent = [f"nothing is said of the preemption: {ours.ways}"] if is_silent else []
        return differences(theirs, ours) + silent
    if not _is_true(scenario, said, ours):
        return [f"ours: {ours.message}", f"ways: {ours.ways}"]
    return differences(theirs, replace(ours, message=ours.message[: said.start()]))


def changes(scenario: Scenario, before: Verdict, ours: Verdict) -> list[str]:
    """Return how our verdict differs from a pinned one of ours, by the same second rule."""
    if scenario.devices and before.node and ours.node and before.totals().keys() != ours.totals().keys():
        return differences(replace(before, scores={}), replace(ours, scores={}))
    return differences(before, ours)


def _is_true(scenario: Scenario, said: re.Match[str], ours: Verdict) -> bool:
    """Whether the sentence names the node and the number of victims that the verdict has."""
    if len(ours.ways) != 1 or ours.ways[0].nominated != said["node"]:
        return False
    leaving: int = sum(
        pod["metadata"]["name"] in scenario.leaving and pod["spec"]["nodeName"] == said["node"] for pod in scenario.pods
    )
    evicted = len(ours.ways[0].evicted)
    victims = int(said["victims"])
    return evicted <= victims <= evicted + leaving
