"""Our verdict, next to the recorded one, where they are known to differ: one file per mode, two lines per asked pod."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parity.modes import Mode
from tests.parity.verdict import Verdict, verdict

HERE: Final = Path(__file__).parent / "pins"


@dataclass(frozen=True)
class Pin:
    """What kube-scheduler said when the pin was written, and what we have to say."""

    recorded: Verdict
    ours: Verdict


def read(mode: Mode, place: Path = HERE) -> dict[tuple[str, str], Pin]:
    """(Scenario key, asked pod) → pin. Empty if there is no file."""
    file = place / f"{mode}.json"
    if not file.exists():
        return {}
    return {
        (key, name): Pin(verdict(fields["recorded"]), verdict(fields["ours"]))
        for key, asked in json.loads(file.read_text()).items()
        for name, fields in asked.items()
    }


def write(mode: Mode, pins: Mapping[tuple[str, str], Pin], place: Path = HERE) -> None:
    """Replace the file of the mode. The same pins give the same bytes."""
    groups: dict[str, list[str]] = {}
    for (key, name), pin in sorted(pins.items()):
        lines = (
            f'   "{side}": {json.dumps(said.to_json(), sort_keys=True)}'
            for side, said in (("recorded", pin.recorded), ("ours", pin.ours))
        )
        groups.setdefault(key, []).append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    texts = [f" {json.dumps(key)}: {{\n" + ",\n".join(asked) + "\n }" for key, asked in groups.items()]
    place.mkdir(exist_ok=True)
    (place / f"{mode}.json").write_text("{\n" + ",\n".join(texts) + "\n}\n")
