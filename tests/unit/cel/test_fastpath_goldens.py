"""Generated code against upstream's answers: all that is known of devices and of the language, on the other path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.cache.deviceselectors import Compiled, DeviceSelectors, bindings_of, environment
from scheduler.cel.environment import KUBERNETES
from scheduler.cel.plan import NotInstantiable
from scheduler.cel.values import CompileError
from tests.unit.cel.conformance import cases
from tests.unit.cel.test_goldens import CHEAPER, KINDS, MEANT
from tests.unit.cel.twopaths import LEFT, answer, closures_of, generated

_ANSWERS = [
    each
    for each in map(json.loads, (Path(__file__).parent / "goldens" / "answers.jsonl").read_text().splitlines())
    if "compileError" not in each
]
_ENVIRONMENTS = {lists: environment(list_attributes=lists) for lists in (False, True)}


@pytest.mark.parametrize(
    "golden", [pytest.param(each, id=f"{number} {each['expression'][:60]}") for number, each in enumerate(_ANSWERS)]
)
def test_devices(golden):
    """Upstream's verdict, and upstream's cost, or none."""
    counting, plain = (
        generated(golden["expression"], _ENVIRONMENTS[golden["lists"]], counts=counts) for counts in (True, False)
    )
    for told in golden["outcomes"] if "device" in golden["expression"] else golden["outcomes"][:1]:
        kind = KINDS[told["device"]]
        bindings = bindings_of(kind.driver, kind.device, lists=golden["lists"])
        if isinstance(bindings, str):
            continue
        by_closures = closures_of(golden["expression"], _ENVIRONMENTS[golden["lists"]], bindings)
        ours, quick = answer(counting, bindings), answer(plain, bindings)

        assert ours in (by_closures, LEFT)
        assert quick in (LEFT, by_closures) or quick[0] == by_closures[0]
        if isinstance(told.get("value"), bool) and ours[0][0] == "bool" and golden["expression"] not in MEANT:
            assert ours[0] == ("bool", str(told["value"]))
            if not any(each in golden["expression"] for each in CHEAPER):
                assert ours[1] == told.get("cost", ours[1])


def test_most_answers_are_the_generated_codes():
    """Of all evaluations that succeed."""
    succeeded = answered = 0
    for golden in _ANSWERS:
        fast = generated(golden["expression"], _ENVIRONMENTS[golden["lists"]])
        for told in golden["outcomes"]:
            kind = KINDS[told["device"]]
            bindings = bindings_of(kind.driver, kind.device, lists=golden["lists"])
            if told.get("value") is not None and not isinstance(bindings, str):
                succeeded += 1
                answered += answer(fast, bindings) != LEFT

    assert 0.8 < answered / succeeded


def test_a_selector_is_generated_after_a_while():
    """And answers as before."""
    selectors = DeviceSelectors(list_attributes=False)
    compiled = selectors.compile('device.attributes["dra.example.com"].?model.orValue("none") != "x"')
    assert isinstance(compiled, Compiled)

    rounds = [{name: selectors.evaluate(compiled, kind) for name, kind in KINDS.items()} for _ in range(5)]

    assert all(each == rounds[0] for each in rounds)
    assert compiled.program.is_generated


def _compilable() -> list[object]:
    return [pytest.param(each, id=each.name) for each in cases()]


@pytest.mark.parametrize("case", _compilable())
def test_conformance(case):
    """cel-spec's cases: what generated code says of them is what closures say, which other tests hold against cel-spec."""
    env = KUBERNETES.extended(case.variables)
    try:
        fast = generated(case.expression, env)
    except (CompileError, NotInstantiable):
        return

    assert answer(fast, case.bindings) in (closures_of(case.expression, env, case.bindings), LEFT)
