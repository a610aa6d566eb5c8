"""cel-spec's conformance cases, run by our compiler: `python -m tests.unit.cel.conformance` counts.

`conformance/*.json` are cel-spec's cases (convert_conformance.py). `conformance/departures.json` holds the answers of
Kubernetes v1.36.3 where they depart from cel-spec, each with the reason (departures.py). These answers win.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, UINT, Type, list_of, map_of
from scheduler.cel.errors import CompileError, EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.values import Duration, Timestamp, TypeValue, UInt, Value

_DATA = Path(__file__).parent / "conformance"
_TYPES = {str(each): each for each in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN)}


class ConformanceCase(NamedTuple):
    """One expression, its variables, and what becomes of it: `value`, `error` (any), or `compile` (this very text)."""

    name: str
    expression: str
    variables: Mapping[str, Type]
    bindings: Mapping[str, Value]
    wanted: Mapping[str, Any]


def cases() -> Iterator[ConformanceCase]:
    """In the order of the files and of the cases in them."""
    departures = json.loads((_DATA / "departures.json").read_text())["cases"]
    for path in sorted(_DATA.glob("*.json")):
        if path.stem == "departures":
            continue
        for case in json.loads(path.read_text())["cases"]:
            name = f"{path.stem}/{case['name']}"
            variables = {variable: _type(each) for variable, each in case.get("env", {}).items()}
            bindings = {variable: _native(each) for variable, each in case.get("bindings", {}).items()}
            yield ConformanceCase(name, case["expr"], variables, bindings, departures.pop(name, case))
    assert not departures, f"departures from cases that are not there: {sorted(departures)}"


def shortcoming(case: ConformanceCase) -> str | None:
    """What is wrong with our answer; None if nothing is."""
    try:
        value = compile_expression(case.expression, KUBERNETES.extended(case.variables)).evaluate(case.bindings)
    except CompileError as error:
        if "compile" in case.wanted:
            return None if str(error) == case.wanted["compile"] else f"refused, but with other words: {error}"
        return None if "error" in case.wanted else f"refused: {error}"
    except EvalError as error:
        return None if "error" in case.wanted else f"failed: {error}"
    if "value" not in case.wanted:
        return f"is {value!r}, where an error was wanted"
    return None if _is_same(value, case.wanted["value"]) else f"is {value!r}, not {case.wanted['value']}"


def _type(written: Any) -> Type:
    if isinstance(written, str):
        return _TYPES[written]
    kind, *parameters = written
    return list_of(_type(parameters[0])) if kind == "list" else map_of(_type(parameters[0]), _type(parameters[1]))


_READ: Mapping[str, Callable[..., Value]] = {
    "null": lambda: None,
    "uint": UInt,
    "double": float,
    "bytes": bytes.fromhex,
    "list": lambda values: [_native(each) for each in values],
    "map": lambda entries: {_native(key): _native(value) for key, value in entries},
    "timestamp": Timestamp,
    "duration": Duration,
    "type": TypeValue,
}


def _native(written: list[Any]) -> Value:
    kind, *content = written
    return _READ[kind](*content) if kind in _READ else content[0]


def _is_same(value: Value, written: list[Any]) -> bool:
    """Types count: 1, 1u, 1.0 and true are four things, and so are 0.0 and -0.0."""
    kind = written[0]
    wanted = _native(written)
    match kind:
        case "double":
            return isinstance(value, float) and (
                repr(value) == repr(wanted) or (math.isnan(value) and math.isnan(wanted))
            )
        case "list":
            return (
                isinstance(value, list | tuple) and len(value) == len(wanted) and all(map(_is_same, value, written[1]))
            )
        case "map":
            return (
                isinstance(value, Mapping)
                and len(value) == len(wanted)
                and all(
                    any(_is_same(k, key) and _is_same(v, content) for k, v in value.items())
                    for key, content in written[1]
                )
            )
        case _:
            return type(value) is type(wanted) and bool(value == wanted)


def main() -> None:
    every = list(cases())
    wrong = {case.name: told for case in every if (told := _difference(case)) is not None}
    for name, told in wrong.items():
        sys.stdout.write(f"{name}: {told}\n")
    sys.stdout.write(f"cel: {len(every) - len(wrong)}/{len(every)}\n")


def _difference(case: ConformanceCase) -> str | None:
    try:
        return shortcoming(case)
    except Exception as error:  # noqa: BLE001 - a count goes on; the test does not
        return f"broke: {error!r} of {case.expression}"


if __name__ == "__main__":
    main()
