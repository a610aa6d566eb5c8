"""Functions: patterns, and the memo of values that are read from short texts.

goldens/libraries.json has the answers of cel-go v0.26.0 in Kubernetes v1.36.3, by library and rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import re2
from hypothesis import given, strategies as st

from scheduler.cel.check.environment import CEL_GO, KUBERNETES
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import CostExceeded, EvalError
from scheduler.cel.eval.plan import NotInstantiable
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.declaring import Remembered
from scheduler.cel.libraries.regex import Pattern
from scheduler.cel.libraries.times import timestamp_text
from scheduler.cel.values import Duration, Optional, Timestamp, TypeValue, UInt, Value, unkey

_ATOMS = ["a", "b", "[ab]", "[^a]", "[a-c0-9]", "[b-]", ".", r"\d", r"\w", r"\.", "-"]
_TIMES = ["", "", "", "?", "*", "+", "{2}", "{0,2}", "{1,3}", "{01}", "{0}", "{00,2}"]
PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^"]),
    st.lists(st.builds("{}{}".format, st.sampled_from(_ATOMS), st.sampled_from(_TIMES)), max_size=4).map("".join),
    st.sampled_from(["", "$"]),
)
TEXTS = st.text("abc0.-\nä", max_size=12)


@given(PATTERNS, TEXTS, st.integers(-1, 3))
def test_it_matches_what_re2_matches(pattern, text, limit):
    """Whether, where first, and where in turn, as Go counts turns."""
    ours, theirs = Pattern(pattern), re2.compile(pattern)
    match = theirs.search(text)
    parts: list[Any] = []
    for each in theirs.finditer(text):
        if each.start() < each.end() or not parts or each.end() != parts[-1].end():
            parts.append(each)

    assert ours.is_in(text) == (match is not None)
    assert ours.first(text) == ("" if match is None else match.group())
    assert ours.all(text, limit) == [each.group() for each in parts][: None if limit < 0 else limit]


class Wrapper:
    """What google-re2 documents of a pattern, and nothing else."""

    def __init__(self, pattern: Any) -> None:
        self.search, self.programsize = pattern.search, pattern.programsize


@pytest.mark.parametrize("pattern", ["(a|b)+", "x*", r"\bb", "^a|b$", "(z)", "ä?"])
def test_the_documented_functions_of_re2_do_as_well(monkeypatch, pattern):
    text = "abä b\nxa b"
    usual = Pattern(pattern)
    documented = Wrapper(re2.compile(pattern))
    monkeypatch.delattr(re2, "_Regexp")
    monkeypatch.setattr(re2, "compile", lambda *_: documented)
    other = Pattern(pattern)

    assert other.all(text, -1) == usual.all(text, -1)
    assert other.first(text) == usual.first(text)
    assert other.is_in(text) == usual.is_in(text)


@pytest.mark.parametrize(
    ("pattern", "text", "parts"),
    [(r"\B", "aäa", []), (r"\B", "aäbc", [""]), (r"\B\w?", "ä0a", ["", "a"]), (r"x*", "ä", ["", ""])],
)
def test_no_match_begins_in_the_midst_of_a_character(pattern, text, parts):
    """RE2 sees bytes there that are no words; Go sees characters only."""
    assert Pattern(pattern).all(text, -1) == parts
    assert Pattern(pattern).is_in(text) == bool(parts)


@pytest.mark.usefixtures("busy_clock")
def test_finding_all_ends_where_each_part_takes_a_look_at_all_that_follows():
    """Upstream would go on for minutes."""
    environment = KUBERNETES.extended({"t": STRING})

    def count(pattern: str, limit: int) -> object:
        source = f"t.findAll('{pattern}', {limit}).size()"
        return compile_expression(source, environment).evaluate({"t": "a" * 10_000})

    with pytest.raises(CostExceeded):
        count("a*b|", -1)
    assert count("a*b|", 2) == 2


def answer(expression: str) -> str:
    """The value, or `error: TEXT`."""
    try:
        return shown(compile_expression(expression, KUBERNETES).evaluate({}))
    except (EvalError, NotInstantiable) as error:  # constants are computed by the compiler
        return f"error: {error}"


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

    @Remembered
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
    assert (13, 682) == (len(ANSWERS), sum(map(len, RULES.values())))
