"""What the compiler that kube-scheduler v1.36.3 uses answered, and what ours answers (docs/spec/cel.md).

The answers are in goldens/answers.jsonl; goldens/regenerate.py asks again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.api import quantity
from scheduler.api.resource_v1 import Device
from scheduler.cache.devices.selectors import Compiled, DeviceSelectors
from tests.unit.cel.goldens import questions

GOLDENS = Path(__file__).parent / "goldens"


class Kind:
    """One of the test devices."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.driver: str = manifest["driver"]
        self.device = msgspec.convert(manifest, Device, dec_hook=lambda _type, raw: quantity.parse(raw))


KINDS = {each["name"]: Kind(each) for each in json.loads((GOLDENS / "devices.json").read_text())}
SELECTORS = {lists: DeviceSelectors(list_attributes=lists) for lists in (False, True)}
ANSWERS = list(map(json.loads, (GOLDENS / "answers.jsonl").read_text().splitlines()))

A, C = questions.A, questions.C
# Upstream wraps what `add` and `sub` give, and the value of an optional that a variable holds, in another Go type than
# the rest of it expects. Whoever writes such a selector means what we answer.
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
# Upstream evaluates what these are called on twice; ours gives it a name, which costs one.
CHEAPER = (".optMap(", ".optFlatMap(")


def _cases(*, compiles: bool) -> list[Any]:
    chosen = [each for each in ANSWERS if ("compileError" not in each) is compiles]
    return [
        pytest.param(each, id=f"{number} {each['expression'][:60]}{' (with lists)' if each['lists'] else ''}")
        for number, each in enumerate(chosen)
    ]


@pytest.mark.parametrize("answer", _cases(compiles=False))
def test_what_does_not_compile(answer):
    """The text is upstream's, place and picture included."""
    ours = SELECTORS[answer["lists"]].compile(answer["expression"])

    if answer["expression"] in NOT_WORD_FOR_WORD:
        part = NOT_WORD_FOR_WORD[answer["expression"]]
        assert part in answer["compileError"]
        assert isinstance(ours, str)
        assert part in ours
        assert answer["compileError"] != ours
        return
    assert answer["compileError"] == ours


@pytest.mark.parametrize("answer", _cases(compiles=True))
def test_what_compiles(answer):
    """Every device gets upstream's verdict or error; and what it costs is what upstream counts."""
    selectors = SELECTORS[answer["lists"]]
    compiled = selectors.compile(answer["expression"])
    assert isinstance(compiled, Compiled), compiled
    told = {each["device"]: each.get("value", each.get("error")) for each in answer["outcomes"]}

    ours = {name: selectors.evaluate(compiled, KINDS[name]) for name in told}

    meant = MEANT.get(answer["expression"])
    if meant is not None:
        assert meant == {name: ours[name] for name in meant}
        assert told != ours
        return
    assert told == ours


@pytest.mark.parametrize("answer", _cases(compiles=True))
def test_costs(answer):
    """An evaluation that succeeds costs what upstream counts, to the unit."""
    selectors = SELECTORS[answer["lists"]]
    compiled = selectors.compile(answer["expression"])
    assert isinstance(compiled, Compiled)
    told = {
        each["device"]: each["cost"] for each in answer["outcomes"] if each.get("value") is not None and "cost" in each
    }

    ours = {name: selectors.measure(compiled, KINDS[name]).cost for name in told}

    if any(each in answer["expression"] for each in CHEAPER):
        assert all(ours[name] <= told[name] + 1 for name in told)
        return
    assert told == ours


def test_there_is_something_to_compare():
    """A file that was cut short would pass too."""
    evaluated = [each for each in ANSWERS if len(each.get("outcomes", ())) >= 12]

    assert 250 < len(evaluated)
    assert {*MEANT, *NOT_WORD_FOR_WORD} <= {each["expression"] for each in ANSWERS}
