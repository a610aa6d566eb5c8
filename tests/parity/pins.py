"""Our verdict, next to the recorded one, where they are known to differ: one file per version and mode, two lines per tried pod.

A pin of a later version that follows from the first version's by `recordings.in_words_of` is the text `AS_BEFORE`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parity.recordings import AS_BEFORE, FIRST, Run, in_words_of
from tests.parity.verdict import Verdict, verdict

HERE: Final = Path(__file__).parent / "pins"


@dataclass(frozen=True)
class Pin:
    """What kube-scheduler said when the pin was written, and what we have to say."""

    recorded: Verdict
    ours: Verdict


def read(asked: Run, place: Path = HERE) -> dict[tuple[str, str], Pin]:
    """(Scenario key, tried pod) → pin. Empty if there is no file."""
    file = _file(asked, place)
    if not file.exists():
        return {}
    first = _of_first(asked, place)
    return {
        (key, name): (
            first[key, name] if fields == AS_BEFORE else Pin(verdict(fields["recorded"]), verdict(fields["ours"]))
        )
        for key, by_name in json.loads(file.read_text()).items()
        for name, fields in by_name.items()
        if fields != AS_BEFORE or (key, name) in first
    }


def write(asked: Run, pins: Mapping[tuple[str, str], Pin], place: Path = HERE) -> None:
    """Replace the file of the version and mode. The same pins give the same bytes. Write the first version first."""
    first = _of_first(asked, place)
    groups: dict[str, list[str]] = {}
    for (key, name), pin in sorted(pins.items()):
        if first.get((key, name)) == pin:
            groups.setdefault(key, []).append(f"  {json.dumps(name)}: {json.dumps(AS_BEFORE)}")
            continue
        lines = (
            f'   "{side}": {json.dumps(said.to_json(), sort_keys=True)}'
            for side, said in (("recorded", pin.recorded), ("ours", pin.ours))
        )
        groups.setdefault(key, []).append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    texts = [f" {json.dumps(key)}: {{\n" + ",\n".join(by_name) + "\n }" for key, by_name in groups.items()]
    file = _file(asked, place)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def _of_first(asked: Run, place: Path) -> dict[tuple[str, str], Pin]:
    """Return the pins of the first version in the words of this one; none for the first."""
    if asked.version == FIRST:
        return {}
    return {
        at: Pin(in_words_of(asked.version, pin.recorded), in_words_of(asked.version, pin.ours))
        for at, pin in read(asked._replace(version=FIRST), place).items()
    }


def _file(asked: Run, place: Path) -> Path:
    return (place if asked.version == FIRST else place / asked.version) / f"{asked.mode}.json"
