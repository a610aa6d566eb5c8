"""What kube-scheduler said: one file per group, one line per asked pod, in the order of the suite."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, verdict

HERE: Final = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Recording:
    """The verdicts on a scenario's asked pods, and which scenario that was: its digest."""

    digest: str
    verdicts: Mapping[str, Verdict]


def read(place: Path = HERE) -> dict[str, Recording]:
    """Scenario key → recording. Empty if there are none."""
    found: dict[str, Recording] = {}
    for file in sorted(place.glob("*.json")):
        for identifier, recorded in json.loads(file.read_text()).items():
            verdicts = {name: verdict(fields) for name, fields in recorded["asked"].items()}
            found[f"{file.stem}/{identifier}"] = Recording(recorded["digest"], verdicts)
    return found


def write(recorded: Iterable[tuple[Scenario, Recording]], place: Path = HERE) -> list[str]:
    """Replace all recordings; the names of the files that changed. Stable: the same verdicts give the same bytes."""
    groups: dict[str, list[str]] = {}
    for scenario, recording in recorded:
        groups.setdefault(scenario.group, []).append(_scenario_text(scenario.id, recording))
    place.mkdir(exist_ok=True)
    old = {file.name: file.read_text() for file in place.glob("*.json")}
    new = {f"{group}.json": "{\n" + ",\n".join(texts) + "\n}\n" for group, texts in groups.items()}
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in changed:
        if name in new:
            (place / name).write_text(new[name])
        else:
            (place / name).unlink()
    return changed


def steady(new: Verdict, old: Verdict | None) -> Verdict:
    """The old verdict if the new one differs only in which of the best nodes chance took."""
    is_chance = old is not None and new.node and old.scores == new.scores and old.node in new.best()
    if not is_chance or old is None or old.writes or new.writes:
        return new
    return old


def _scenario_text(identifier: str, recording: Recording) -> str:
    lines = [
        f"    {json.dumps(name)}: {json.dumps(told.to_json(), sort_keys=True)}"
        for name, told in recording.verdicts.items()
    ]
    head = f' {json.dumps(identifier)}: {{\n  "digest": {json.dumps(recording.digest)},\n  "asked": {{\n'
    return head + ",\n".join(lines) + "\n  }\n }"
