"""`python -m tests.parity.pin`: pin our verdicts where `differences.yaml` says why they differ from the recorded ones.

Replays all scenarios in both versions and both modes, and writes `pins/`. `--only <text>` replays the scenarios whose key holds the text; the
all other pins stay. Says which pins are new, changed or gone. Never writes a reason: a difference without one is not
pinned, and neither is a reason without a difference; both are named, and then the command exits with 1.
"""

import argparse
import asyncio
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

from scheduler.metrics import logs
from tests.parity import pins, recordings
from tests.parity.known import REASONS, Place, Reason, changes
from tests.parity.pins import Pin
from tests.parity.recordings import RECORDED, Mode, Run
from tests.parity.replay import replay
from tests.parity.scenario import Scenario
from tests.parity.suite import scenarios


class PinPlan(NamedTuple):
    """The pins to write, and what has to be done about `differences.yaml`."""

    pins: dict[Place, Pin]
    problems: list[str]


def pin(
    old: Mapping[Place, Pin],
    asked: Mapping[Place, tuple[Pin, list[str]]],
    known: Mapping[Place, Reason],
    *,
    places: Collection[Place],
) -> PinPlan:
    """Return the pins after a replay.

    `asked` is what was replayed: the recorded verdict and ours, and how they differ. `places` are all that the suite has.
    """
    kept = {place: one for place, one in old.items() if place not in asked and place in known and place in places}
    problems = [
        f"{key}: {name}: no such tried pod, in differences.yaml" for key, name in known if (key, name) not in places
    ]
    for place, (one, found) in asked.items():
        where = f"{place[0]}: {place[1]}"
        if found and place in known:
            kept[place] = one
        elif found:
            problems.append("\n    ".join([f"{where}: no reason in differences.yaml", *found]))
        elif place in known:
            problems.append(f"{where}: no longer a difference, take it out of differences.yaml")
    return PinPlan(kept, problems)


def steady(scenario: Scenario, old: Pin | None, new: Pin) -> Pin:
    """Return the old pin if the new one says the same: chance takes one of several best nodes."""
    if old is None or old.recorded != new.recorded or changes(scenario, old.ours, new.ours):
        return new
    return old


def pin_all(version: str, only: str) -> bool:
    """Write the pins of the version and say what changed. Return whether nothing has to be done about `differences.yaml`."""
    recorded = recordings.read(version)
    suite = {one.key: one for one in scenarios()}
    places = {(key, name) for key, one in suite.items() for name in one.asked}
    replayed = asyncio.run(replay(version, [one for one in suite.values() if only in one.key], recorded))
    failed = False
    for mode in Mode:
        at = Run(version, mode)
        old = pins.read(at)
        asked = {
            (key, name): (
                steady(suite[key], old.get((key, name)), Pin(recorded[key].verdicts[name], told.ours)),
                told.found,
            )
            for (key, name), told in replayed.verdicts_of(mode).items()
        }
        new, problems = pin(old, asked, REASONS[at], places=places)
        changed = [place for place in sorted(old.keys() | new.keys()) if old.get(place) != new.get(place)]
        for key, name in changed:
            state = "new" if (key, name) not in old else "gone" if (key, name) not in new else "changed"
            print(f"{at}: {key}: {name}: {state}")  # noqa: T201
        for problem in problems:
            print(f"{at}: {problem}", file=sys.stderr)  # noqa: T201
        pins.write(at, new)
        print(f"{at}: {len(new)} pins, {len(changed)} of them changed; problems: {len(problems)}")  # noqa: T201
        failed = failed or bool(problems)
    return not failed


def main() -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.pin")
    parser.add_argument("--only", default="", metavar="TEXT")
    only: str = parser.parse_args().only
    agree = [pin_all(version, only) for version in RECORDED]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
