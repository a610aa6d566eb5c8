"""Recorded answers of the compilers that kube-scheduler v1.36.3 and v1.37.2 use, and cel-spec's conformance cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.api import quantity
from scheduler.api.resource_v1 import Device
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import DeviceSelectors
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import DYN, INT, STRING, list_of, map_of, optional_of
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.program import Program, compile_expression
from scheduler.cel.values import Optional, Value
from scheduler.core.cooperative import finish
from tests.unit.cel.conformance import ConformanceCase, cases, shortcoming
from tests.unit.cel.conftest import meaning
from tests.unit.cel.departures import FILE, reasons
from tests.unit.cel.goldens import questions

GOLDENS = Path(__file__).parent / "goldens"


def _kind(manifest: dict[str, Any]) -> DeviceKind:
    device = msgspec.convert(manifest, Device, dec_hook=lambda _type, raw: quantity.parse(raw))
    return DeviceKind(manifest["driver"], device)


KINDS = {each["name"]: _kind(each) for each in json.loads((GOLDENS / "devices.json").read_text())}
SELECTORS = {lists: DeviceSelectors(list_attributes=lists) for lists in (False, True)}
ANSWERS = list(map(json.loads, (GOLDENS / "answers.jsonl").read_text().splitlines()))

_CHANGED = {
    each.pop("line"): each for each in map(json.loads, (GOLDENS / "answers-1.37.jsonl").read_text().splitlines())
}
NEWER = [_CHANGED.get(number, answer) for number, answer in enumerate(ANSWERS)]
"""The answers of v1.37.2, in which attributes are always dynamic and may be lists."""

A, C = questions.A, questions.C
# Upstream wraps what `add` and `sub` give, and the value of an optional that a variable holds, in another Go type than
# the rest of it expects. The author of such a selector expects our answer.
MEANT = {
    f"{C}.memory.add(quantity('1Gi')).sub(1) == quantity('81Gi').sub(1)": {"full": True, "small": False},
    f"quantity('81Gi') == {C}.memory.add(quantity('1Gi'))": {"full": True, "small": False},
    f"cel.bind(o, {C}.?memory, o.orValue(quantity('0')).isGreaterThan(quantity('20Gi')))": {
        "full": True,
        "bare": False,
    },
    f"cel.bind(o, {A}.?driverVersion, o.orValue(semver('1.0.0')) == semver('1.2.3'))": {"full": True, "bare": False},
}
# The first line is upstream's up to the column: a field's place is not kept.
NOT_WORD_FOR_WORD = {
    "kubernetes.DRADevice{nothing: 1} == device": "undefined field 'nothing'",
    "kubernetes.DRADevice{driver: 1} == device": "expected type of field 'driver' is 'string'",
}
# docs/spec/changes-1.37-devices.md §2 has the reasons.
NOT_FOLLOWED = {
    f"{A}.numbers.includes(59)",
    f"{A}.numbers.includes(100)",
    "dyn(1).orValue(2) == 1",
    "device.`driver` == 'x'",
}


def _cases(*, compiles: bool) -> list[Any]:
    chosen = [each for each in ANSWERS if ("compileError" not in each) is compiles]
    return [
        pytest.param(each, id=f"{number} {each['expression'][:60]}{' (with lists)' if each['lists'] else ''}")
        for number, each in enumerate(chosen)
    ]


@pytest.mark.parametrize("answer", _cases(compiles=False))
def test_what_does_not_compile(answer):
    """The text is upstream's, place and picture included, but for syntax errors: their words are ours."""
    ours = finish(SELECTORS[answer["lists"]].compiling(answer["expression"]))

    if answer["expression"] in NOT_WORD_FOR_WORD:
        part = NOT_WORD_FOR_WORD[answer["expression"]]
        assert part in answer["compileError"]
        assert isinstance(ours, str)
        assert part in ours
        assert answer["compileError"] != ours
        return
    assert meaning(answer["compileError"]) == meaning(ours)


@pytest.mark.parametrize("answer", _cases(compiles=True))
def test_what_compiles(answer):
    """Every device gets upstream's verdict or error."""
    selectors = SELECTORS[answer["lists"]]
    compiled = finish(selectors.compiling(answer["expression"]))
    assert isinstance(compiled, Program), compiled
    told = {each["device"]: each.get("value", each.get("error")) for each in answer["outcomes"]}

    ours = {name: finish(selectors.evaluating(answer["expression"], KINDS[name])) for name in told}

    meant = MEANT.get(answer["expression"])
    if meant is not None:
        assert meant == {name: ours[name] for name in meant}
        assert told != ours
        return
    assert told == ours


def test_there_is_something_to_compare():
    """A file that was cut short would pass too."""
    evaluated = [each for each in ANSWERS if len(each.get("outcomes", ())) >= 12]

    assert 250 < len(evaluated)
    assert {*MEANT, *NOT_WORD_FOR_WORD} <= {each["expression"] for each in ANSWERS}


ENV = KUBERNETES.extended(
    {"m": map_of(STRING, DYN), "x": DYN, "n": INT, "l": list_of(INT), "s": STRING, "o": optional_of(DYN)}
)
M = {"a": 1, "b": True, "c": "text", "l": [1, 2], "k": "a", "d": {"e": "f"}}
BINDINGS: dict[str, Any] = {"m": M, "x": 1.5, "n": 7, "l": [1, 2, 3], "s": "some text", "o": Optional({"k": 5})}
ROWS = list(map(json.loads, (Path(__file__).parent / "goldens" / "recorded.jsonl").read_text().splitlines()))


def strict(value: Value) -> object:
    """The value with the types of all its parts: 1, 1u, 1.0 and true are four values."""
    if isinstance(value, list | tuple):
        return ["list", [strict(each) for each in value]]
    if isinstance(value, Mapping):
        return ["map", [[strict(name), strict(each)] for name, each in value.items()]]
    if hasattr(value, "nanos"):
        return [type(value).__name__, str(value)]
    return [type(value).__name__, repr(getattr(value, "value", value))]


@pytest.mark.parametrize(("source", "more", "answer"), ROWS)
def test_recorded_answers(source: str, more: dict[str, Any], answer: object) -> None:
    program, bindings = compile_expression(source, ENV), BINDINGS | more
    if isinstance(answer, str):
        with pytest.raises(EvalError) as caught:
            program.evaluate(bindings)
        assert answer == f"EvalError: {caught.value}"
        return
    assert answer == strict(program.evaluate(bindings))


def test_there_is_something_recorded() -> None:
    """An empty file would pass too."""
    assert len(ROWS) > 500


def _outcome(selectors: DeviceSelectors, answer: dict[str, Any]) -> object:
    """Return the error of the compiler, or device → value or error."""
    compiled = finish(selectors.compiling(answer["expression"]))
    if not isinstance(compiled, Program):
        return compiled
    return {
        each["device"]: finish(selectors.evaluating(answer["expression"], KINDS[each["device"]]))
        for each in answer.get("outcomes", ())
    }


@pytest.mark.parametrize(
    "answer", [pytest.param(each, id=f"{number} {each['expression'][:60]}") for number, each in enumerate(NEWER)]
)
def test_what_1_37_says(answer):
    """As in 1.36, except for the rules that changed."""
    expression = answer["expression"]
    told = meaning(answer.get("compileError")) or {
        e["device"]: e.get("value", e.get("error")) for e in answer["outcomes"]
    }

    ours = meaning(_outcome(SELECTORS[True], answer))

    is_meant = expression in MEANT and told != {**told, **MEANT[expression]}
    assert (ours != told) is (is_meant or expression in NOT_FOLLOWED or expression in NOT_WORD_FOR_WORD)


_CASES = list(cases())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in _CASES])
def test_conformance(case):
    """cel-spec's cases, with Kubernetes' answers where it departs from them: docs/spec/cel.md."""
    assert shortcoming(case) is None, case.expression


def test_nothing_was_lost_in_conversion():
    """The cases of cel.dev/expr v0.25.1 without protocol buffers, enums and containers."""
    assert len(_CASES) == 1331
    assert len({case.name for case in _CASES}) == 1331


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("1", {"value": ["uint", 1]}),
        ("1", {"value": ["double", "1"]}),
        ("true", {"value": ["int", 1]}),
        ("-0.0", {"value": ["double", "0"]}),
        ("'a'", {"value": ["bytes", "61"]}),
        ("[1]", {"value": ["list", [["uint", 1]]]}),
        ("[1, 1]", {"value": ["list", [["int", 1]]]}),
        ("{1: 2}", {"value": ["map", [[["int", 1], ["int", 3]]]]}),
        ("{1: 2}", {"value": ["map", [[["uint", 1], ["int", 2]]]]}),
        ("{1: 2, 3: 4}", {"value": ["map", [[["int", 1], ["int", 2]]]]}),
        ("1", {"error": "any"}),
        ("1 / 0", {"value": ["int", 0]}),
        ("1 +", {"value": ["int", 1]}),
        ("1 +", {"compile": "another text"}),
    ],
)
def test_other_answers_are_reported(expression, wanted):
    assert shortcoming(ConformanceCase("", expression, {}, {}, wanted)) is not None


def test_every_departure_has_a_reason():
    """A new answer of Kubernetes needs an entry with the reason why it differs."""
    assert [name for name, why in reasons(FILE.read_text()).items() if not why] == []
