"""Every row of docs/spec/core.md §9 has a test that bears its number, or a reason why there is none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SPEC = TESTS.parent / "docs" / "spec" / "core.md"

NO_SNAPSHOT = "an attempt reads the cache itself, there is no copy to bring up to date (architecture, ADR 0002)"
NO_TREE = "nodes have no order: all of them are looked at at once (architecture, ADR 0002)"
ALL_NODES = "all nodes are looked at unless a percentage is given (architecture, deliberate differences)"
EXTENDERS = "extenders are not built yet"
LOOPBACK = "the endpoints ask nobody for a token: they are served on loopback only (tests/unit/insight/test_http.py)"
BATCHING = "batching is not built, and idle in kube-scheduler with its default plugins (§3.13)"

WITHOUT = {
    79: NO_SNAPSHOT,
    80: NO_TREE,
    81: NO_TREE,
    105: ALL_NODES,
    107: ALL_NODES,
    112: ALL_NODES,
    130: EXTENDERS,
    220: LOOPBACK,
    224: BATCHING,
    225: BATCHING,
}


@cache
def rows() -> dict[int, str]:
    """Number → scenario, of the tables of §9."""
    section = SPEC.read_text().partition("\n## 9. ")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| (.+?) \|", section, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {int(number): scenario for number, scenario in found}


def numbers(name: str) -> set[int]:
    """Rows that an id ("23 a failure …") or the name of a test (`test_33_34_…`) begins with."""
    if (of_id := re.match(r"(\d+) ", name)) is not None:
        return {int(of_id[1])}
    of_test = re.match(r"test((?:_\d+)+)_", name)
    return {int(number) for number in of_test[1].split("_")[1:]} if of_test else set()


def names(source: str) -> Iterator[str]:
    """The names of all functions, and all ids of parameters."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.keyword(arg="id", value=ast.Constant(value=str(name))):
                yield name
            case ast.keyword(arg="ids", value=ast.List(elts=listed)):
                yield from (
                    item.value for item in listed if isinstance(item, ast.Constant) and isinstance(item.value, str)
                )


@cache
def covered() -> frozenset[int]:
    """Rows that some test bears the number of."""
    sources = (path.read_text() for path in sorted(TESTS.rglob("*.py")))
    return frozenset(number for source in sources for name in names(source) for number in numbers(name))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param('pytest.param(1, id="23 a failure")', {23}, id="an id"),
        pytest.param('parametrize("a", [1], ids=["92 taken", "free"])', {92}, id="a list of ids"),
        pytest.param("def test_71_assume_then_add(): ...", {71}, id="a name"),
        pytest.param("async def test_127_128_129_the_nominated_node(): ...", {127, 128, 129}, id="a name of several"),
        pytest.param('pytest.param("24 hours", id="a day")', set(), id="a number in a value"),
        pytest.param('pytest.param(1, id="2Gi are enough")', set(), id="an amount"),
        pytest.param("def test_in_2_ways(): ...", set(), id="a number elsewhere in a name"),
    ],
)
def test_what_counts_as_a_number(source: str, found: set[int]) -> None:
    assert found == {number for name in names(source) for number in numbers(name)}


def test_the_tables_are_read_whole() -> None:
    assert list(rows()) == list(range(1, 226))


def test_every_row_has_a_test_or_a_reason() -> None:
    missing = {number: scenario for number, scenario in rows().items() if number not in covered() | WITHOUT.keys()}

    assert missing == {}


def test_no_row_has_both() -> None:
    """A reason that has been overtaken goes."""
    assert sorted(covered() & WITHOUT.keys()) == []
