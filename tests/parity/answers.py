"""The answers of kube-scheduler to the scenarios of one subject: a file for each version, with its source as `provenance`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from tests.parity.recordings import provenance_of
from tests.parity.words import Json

HERE: Final = Path(__file__).parent


class RecordedAnswers(NamedTuple):
    """The files of one subject."""

    subject: str

    def of(self, version: str) -> dict[str, Json]:
        """Return the answers of this minor version by scenario, and their source. Empty if there are none."""
        return _read(self._file(version))

    def write(self, version: str, found: Mapping[str, Json], scenarios: Iterable[str], kube_scheduler: Path) -> None:
        """Write the answers that this binary gave now, and keep those to the other scenarios."""
        before = self.of(version)
        kept = {name: found.get(name, before.get(name)) for name in scenarios}
        text = json.dumps({"provenance": asdict(provenance_of(kube_scheduler)), **kept}, indent=1, ensure_ascii=False)
        self._file(version).write_text(text + "\n", encoding="utf-8")

    def _file(self, version: str) -> Path:
        return HERE / f"{self.subject}_recordings_{version}.json"


@functools.cache
def _read(file: Path) -> dict[str, Json]:
    read: dict[str, Json] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return read
