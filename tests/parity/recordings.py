"""The recorded verdicts of kube-scheduler: one file per group, one line per asked pod, in the order of the suite.

Each scenario carries its own provenance, since some scenarios are recorded again while others stay.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, verdict

HERE: Final = Path(__file__).parent / "recordings"


_VERSION: Final = re.compile(r"Kubernetes (v\S+)\s*")
_SHA256: Final = re.compile("[0-9a-f]{64}")


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
"""Of a recording that does not say where it comes from. `flaws` refuses it; asking again replaces it."""


@dataclass(frozen=True)
class Recording:
    """The verdicts on the asked pods of a scenario, the digest of that scenario, and the source of the verdicts."""

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


def read(place: Path = HERE) -> dict[str, Recording]:
    """Scenario key → recording. Empty if there are none."""
    found: dict[str, Recording] = {}
    for file in sorted(place.glob("*.json")):
        for identifier, recorded in json.loads(file.read_text()).items():
            verdicts = {name: verdict(fields) for name, fields in recorded["asked"].items()}
            provenance = Provenance(**recorded["provenance"]) if "provenance" in recorded else UNKNOWN
            found[f"{file.stem}/{identifier}"] = Recording(recorded["digest"], provenance, verdicts)
    return found


def write(recorded: Iterable[tuple[Scenario, Recording]], place: Path = HERE) -> list[str]:
    """Replace all recordings and return the names of the files that changed. Equal recordings give equal bytes."""
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
    head = (
        f' {json.dumps(identifier)}: {{\n  "digest": {json.dumps(recording.digest)},\n'
        f'  "provenance": {json.dumps(asdict(recording.provenance))},\n  "asked": {{\n'
    )
    return head + ",\n".join(lines) + "\n  }\n }"
