"""The recorded verdicts of kube-scheduler: one file per group, one line per tried pod, in the order of the suite.

Each scenario carries its own provenance, since some scenarios are recorded again while the rest stays. The recordings of the first
version are whole. A later version has its own folder: a verdict that follows from the first version's by `in_words_of` is only
named there, under `AS_BEFORE`.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from tests.parity.verdict import Scores, Verdict, heard, verdict

HERE: Final = Path(__file__).parent / "recordings"
RECORDED: Final = ("1.36", "1.37", "1.38")
"""The versions of kube-scheduler whose verdicts on all scenarios are recorded."""
FIRST: Final = RECORDED[0]
AS_BEFORE: Final = f"as in {FIRST}"
"""The field with the names of tried pods whose verdict follows from that of the first version."""
_VERDICTS: Final = "asked"
"""The field with the verdicts of a scenario by the name of the tried pod."""
_NOTHING_FREED: Final = re.compile(r" no new claims to deallocate(?:,|\Z)")
_FULL_STOP: Final = re.compile(r"(?<= victims)\.\Z")

_VERSION: Final = re.compile(r"Kubernetes (v\S+)\s*")
_SHA256: Final = re.compile("[0-9a-f]{64}")


class Mode(StrEnum):
    """The value in the profiles that are compared."""

    PARITY = "parity"
    """`parity: true`, but in the profile `OWN_WAYS`."""
    DEFAULT = "default"
    """`parity: false`, which a profile has that does not name the switch."""


class Run(NamedTuple):
    """How ours runs: with the feature gates of this version of kube-scheduler, and in this mode."""

    version: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.version}, {self.mode}"


RUNS: Final = tuple(Run(version, mode) for version in RECORDED for mode in Mode)

PREFIXES: Final = {Mode.PARITY: "kubestow", Mode.DEFAULT: "kubestow-by-default"}
"""The beginning of the scheduler names of a mode's profiles."""


@dataclass(frozen=True)
class Provenance:
    """Which kube-scheduler gave the verdicts of a scenario, and when."""

    version: str
    """As the binary reports it, such as "v1.36.3"."""
    sha256: str
    """Hash of the binary, in hexadecimal digits."""
    date: str
    """The UTC day, such as "2026-01-31"."""

    def flaws(self, version: str) -> list[str]:
        """Return what is wrong with it in a project that compares itself with this version of kube-scheduler."""
        found = [] if self.version == version else [f"version {self.version!r} instead of {version!r}"]
        if not _SHA256.fullmatch(self.sha256):
            found.append(f"sha256 {self.sha256!r} is not 64 hexadecimal digits")
        try:
            date.fromisoformat(self.date)
        except ValueError as error:
            found.append(f"date {self.date!r}: {error}")
        return found


UNKNOWN: Final = Provenance("", "", "")
"""Of a recording that does not say where it comes from. `flaws` refuses it; a new recording replaces it."""


@dataclass(frozen=True)
class Recording:
    """The verdicts on the tried pods of a scenario, the digest of that scenario, and the source of the verdicts."""

    digest: str
    provenance: Provenance
    verdicts: Mapping[str, Verdict]


def provenance_of(kube_scheduler: Path) -> Provenance:
    """Return the provenance of what this binary says today. Runs it with `--version` and hashes it."""
    ran = subprocess.run([kube_scheduler, "--version"], capture_output=True, text=True, check=True)
    matched = _VERSION.fullmatch(ran.stdout)
    if matched is None:
        raise ValueError(f"{kube_scheduler} --version: {ran.stdout!r}, expected 'Kubernetes v…'")
    with kube_scheduler.open("rb") as binary:
        sha256 = hashlib.file_digest(binary, "sha256").hexdigest()
    return Provenance(matched[1], sha256, datetime.now(UTC).date().isoformat())


def in_words_of(version: str, said: Verdict) -> Verdict:
    """Return what the version says where the first one says this, if only known texts differ (docs/spec/changes-1.37.md §3)."""
    if version == FIRST:
        return said
    changed = heard(replace(said, message=_FULL_STOP.sub("", _NOTHING_FREED.sub("", said.message))))
    ways = (replace(way, victims=way.victims or len(way.evicted)) for way in changed.ways)
    return replace(changed, ways=tuple(ways), scores=_with_capacities(said))


def _with_capacities(said: Verdict) -> Scores:
    """Add the zeros of VolumeBinding, which scores every pod from 1.37 on (§1.2)."""
    if not said.scores or "VolumeBinding" in said.scores:
        return said.scores
    return {**said.scores, "VolumeBinding": dict.fromkeys(said.totals(), 0)}


def read(version: str = FIRST, place: Path = HERE) -> dict[str, Recording]:
    """Scenario key → recording of the version. Empty if there are none."""
    found: dict[str, Recording] = {}
    first = {} if version == FIRST else read(FIRST, place)
    for file in sorted(_folder(version, place).glob("*.json")):
        for identifier, recorded in json.loads(file.read_text()).items():
            key = f"{file.stem}/{identifier}"
            before = first[key].verdicts if key in first else {}
            verdicts = {
                name: in_words_of(version, before[name]) for name in recorded.get(AS_BEFORE, ()) if name in before
            }
            verdicts |= {name: verdict(fields) for name, fields in recorded[_VERDICTS].items()}
            provenance = Provenance(**recorded["provenance"]) if "provenance" in recorded else UNKNOWN
            found[key] = Recording(recorded["digest"], provenance, verdicts)
    return found


def write(version: str, recorded: Mapping[str, Recording], place: Path = HERE) -> list[str]:
    """Replace all recordings of the version and return the names of the files that changed.

    Equal recordings give equal bytes. Recordings of later versions keep their verdicts when the first version's change.
    """
    if version != FIRST:
        return _written(version, recorded, read(FIRST, place), place)
    later = {other: read(other, place) for other in RECORDED[1:]}
    changed = _written(FIRST, recorded, {}, place)
    return changed + [name for other, kept in later.items() for name in _written(other, kept, recorded, place)]


def _written(version: str, recorded: Mapping[str, Recording], first: Mapping[str, Recording], place: Path) -> list[str]:
    groups: dict[str, list[str]] = {}
    for key, recording in recorded.items():
        group, _, identifier = key.partition("/")
        before = first[key].verdicts if key in first else {}
        same = [n for n, told in recording.verdicts.items() if n in before and told == in_words_of(version, before[n])]
        groups.setdefault(group, []).append(_scenario_text(identifier, recording, same))
    folder = _folder(version, place)
    folder.mkdir(parents=True, exist_ok=True)
    old = {file.name: file.read_text() for file in folder.glob("*.json")}
    new = {f"{group}.json": "{\n" + ",\n".join(texts) + "\n}\n" for group, texts in groups.items()}
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in changed:
        if name in new:
            (folder / name).write_text(new[name])
        else:
            (folder / name).unlink()
    return [str((folder / name).relative_to(place)) for name in changed]


def _folder(version: str, place: Path) -> Path:
    return place if version == FIRST else place / version


def steady(new: Verdict, old: Verdict | None) -> Verdict:
    """The old verdict if the new one differs only in which of the best nodes chance took."""
    is_chance = old is not None and new.node and old.scores == new.scores and old.node in new.best()
    if not is_chance or old is None or old.writes or new.writes:
        return new
    return old


def _scenario_text(identifier: str, recording: Recording, as_before: Collection[str]) -> str:
    lines = [
        f"    {json.dumps(name)}: {json.dumps(told.to_json(), sort_keys=True)}"
        for name, told in recording.verdicts.items()
        if name not in as_before
    ]
    head = (
        f' {json.dumps(identifier)}: {{\n  "digest": {json.dumps(recording.digest)},\n'
        f'  "provenance": {json.dumps(asdict(recording.provenance))},\n'
    )
    same = f"  {json.dumps(AS_BEFORE)}: {json.dumps(sorted(as_before))},\n" if as_before else ""
    key = f'  "{_VERDICTS}": '
    asked = key + "{\n" + ",\n".join(lines) + "\n  }\n }" if lines else key + "{}\n }"
    return head + same + asked
