"""`python -m tests.unit.cel.departures`: write Kubernetes' answers where they depart from cel-spec again. Needs Go.

Every case of `conformance/` is put to Kubernetes' own CEL environment (`conformance/oracle/main.go`). Cases with another
answer than cel-spec's go to `conformance/departures.json`. The reasons in that file are written by hand and stay; the command
exits with 1 if a departure has none yet.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e.controlplane.build import MINOR, Unavailable, program

HERE: Final = Path(__file__).parent / "conformance"
FILE: Final = HERE / "departures.json"


def binary() -> Path:
    """Return the path of the oracle, built if need be. Raises `Unavailable` without Go. 1.38 has cel-go under another path."""
    source = HERE / "oracle" / "main.go"
    if MINOR != "1.38":
        return program("cel-conformance", [source])
    with tempfile.TemporaryDirectory() as scratch:
        renamed = Path(scratch, source.name)
        renamed.write_text(source.read_text().replace("github.com/google/cel-go", "cel.dev/cel-go"))
        return program("cel-conformance", [renamed])


def written_cases() -> dict[str, dict[str, Any]]:
    """Return cel-spec's cases by name, in the order of the files and of the cases in them."""
    return {
        f"{path.stem}/{case['name']}": case
        for path in sorted(HERE.glob("*.json"))
        if path != FILE
        for case in json.loads(path.read_text())["cases"]
    }


def answers(oracle: Path, cases: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return which modules answer, and the answer to each case: `compile`, `error` or `value`."""
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    ran = subprocess.run([oracle], input=lines, text=True, stdout=subprocess.PIPE, check=True)
    source, *told = map(json.loads, ran.stdout.splitlines())
    return source, told


def is_as_wanted(case: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Return whether the answer is cel-spec's. Where cel-spec wants an error, any error will do."""
    if "value" not in case:
        return "value" not in answer
    return "value" in answer and _comparable(answer["value"]) == _comparable(case["value"])


def departures(oracle: Path, reasons: Mapping[str, str]) -> str:
    """Return the text of `departures.json`, with these reasons by name of the case; "" where there is none."""
    cases = written_cases()
    source, told = answers(oracle, list(cases.values()))
    assert len(told) == len(cases), "the oracle has ended, and says why on standard error"
    rows = (
        f"  {json.dumps(name)}: {json.dumps({'why': reasons.get(name, ''), **answer}, ensure_ascii=False)}"
        for (name, case), answer in zip(cases.items(), told, strict=True)
        if not is_as_wanted(case, answer)
    )
    return f'{{"source": {json.dumps(source)},\n "cases": {{\n' + ",\n".join(rows) + "\n}}\n"


def reasons(text: str) -> dict[str, str]:
    """Return the reasons in a text of `departures.json`, by name of the case."""
    return {name: departure["why"] for name, departure in json.loads(text)["cases"].items()}


def _comparable(value: Sequence[Any]) -> object:
    """Equal if and only if kind and content are: doubles by all their digits, maps in any order."""
    kind, *content = value
    match kind:
        case "double":
            number = float(content[0])
            return kind, "nan" if math.isnan(number) else repr(number)
        case "list":
            return kind, tuple(map(_comparable, content[0]))
        case "map":
            return kind, frozenset(_entries(content[0]))
        case _:
            return kind, *content


def _entries(written: Sequence[Sequence[Any]]) -> Iterator[tuple[object, object]]:
    return ((_comparable(key), _comparable(value)) for key, value in written)


def main() -> int:
    try:
        oracle = binary()
    except Unavailable as why:
        sys.stderr.write(f"{why}\n")
        return 1
    text = departures(oracle, reasons(FILE.read_text()))
    FILE.write_text(text)
    bare = sorted(name for name, why in reasons(text).items() if not why)
    for name in bare:
        sys.stdout.write(f"{name}: why it departs is not written yet\n")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
