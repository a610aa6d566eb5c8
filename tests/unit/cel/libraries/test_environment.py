"""Declarations of functions, their answers, and the memo of values that are read from short texts.

goldens/libraries.json has the answers and costs of cel-go v0.26.0 in Kubernetes v1.36.3, by library and rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from scheduler.cel.check.environment import CEL_GO, KUBERNETES
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.plan import NotInstantiable
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.declaring import remembered
from scheduler.cel.libraries.times import timestamp_text
from scheduler.cel.values import Duration, Optional, Timestamp, TypeValue, UInt, Value, unkey


def answer(expression: str) -> str:
    """`VALUE for COST`, or `error: TEXT`."""
    try:
        value, cost = compile_expression(expression, KUBERNETES).measure({})
    except (EvalError, NotInstantiable) as error:  # constants are computed by the compiler
        return f"error: {error}"
    return f"{shown(value)} for {cost}"


def _double(value: float) -> str:
    return f"d{value:.17e}" if abs(value) < float("inf") else f"d{value:+}".replace("inf", "Inf").replace("+nan", "NaN")


_JSON: Final = partial(json.dumps, ensure_ascii=False)
_SCALARS: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): _JSON,
    bool: _JSON,
    str: _JSON,
    int: str,
    UInt: lambda value: f"{int(value)}u",
    float: _double,
    bytes: lambda value: f"b{value.hex()}",
    Timestamp: lambda value: f"ts{timestamp_text(value)}",
    Duration: lambda value: f"dur{value.nanos}",
    TypeValue: lambda value: f"type {value.name}",
    Optional: lambda value: f"opt({shown(value.value)})" if value.present else "none",
}


def shown(value: Value) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{shown(unkey(name))}: {shown(each)}' for name, each in value.items()))}}}"
    write = _SCALARS.get(type(value))
    return f"<{value.cel_type}>" if write is None else write(value)


UNDECLARED = ("math.greatest", "base64.encode", "regex.replace", "authorizer")


def test_no_two_overloads_of_a_function_share_an_id():
    for name, overloads in KUBERNETES.functions.items():
        ids = [each.id for each in overloads]
        assert sorted(set(ids)) == sorted(ids), name


def test_kubernetes_adds_to_the_standard_and_takes_nothing_away():
    """Every standard overload is there, before those that Kubernetes adds."""
    standard = list(chain(*CEL_GO))
    for name, overloads in KUBERNETES.functions.items():
        first = [each for each in standard if each.name == name]
        assert overloads[: len(first)] == tuple(first)
    names = {each.name for each in standard}
    assert names < KUBERNETES.functions.keys()
    assert {"quantity", "semver", "ip", "cidr", "url", "find", "isSorted", "format.named", "includes"} <= (
        KUBERNETES.functions.keys() - names
    )


def test_libraries_that_kubernetes_does_not_have_are_not_declared():
    assert not set(UNDECLARED) & KUBERNETES.functions.keys()
    assert [("list",)] == [tuple(param.name for param in each.params) for each in KUBERNETES.functions["reverse"]]


def test_types_have_names_that_evaluate_to_them():
    assert {"int", "google.protobuf.Timestamp", "net.IP", "net.CIDR"} <= KUBERNETES.variables.keys()
    assert all("type" == each.name for each in KUBERNETES.variables.values())


def test_short_texts_are_read_once():
    reads: list[str] = []

    @remembered
    def read(text: str) -> int:
        reads.append(text)
        return len(text)

    long = "x" * 1000
    assert [read("a"), read("a"), read(long), read(long)] == [1, 1, 1000, 1000]
    assert reads == ["a", long, long]


@pytest.mark.parametrize(
    "source", ["quantity(s)", "semver(s)", "ip(s)", "cidr(s)", "url(s)", "duration(s)", "timestamp(s)"]
)
def test_a_refusal_is_remembered_as_well(source):
    program = compile_expression(f"type({source}) == type(1)", KUBERNETES.extended({"s": STRING}))
    texts = set()
    for _ in range(3):
        with pytest.raises(EvalError) as caught:
            program.evaluate({"s": "a text of none\x7f"})
        texts.add(str(caught.value))

    assert len(texts) == 1


# -- answers --------------------------------------------------------------------------------------------------------------


ANSWERS = json.loads((Path(__file__).parents[1] / "goldens" / "libraries.json").read_text())
RULES = {f"{library}: {rule}": rows for library, rules in ANSWERS.items() for rule, rows in rules.items()}


@pytest.mark.parametrize("answers", RULES.values(), ids=RULES)
def test_answers(answers: dict[str, str]) -> None:
    assert answers == {each: answer(each) for each in answers}


def test_there_is_something_to_compare() -> None:
    """A file that was cut short would pass too."""
    assert (13, 677) == (len(ANSWERS), sum(map(len, RULES.values())))
