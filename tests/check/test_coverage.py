"""Every row of §9 of docs/spec/core.md and docs/spec/dra.md has a test that bears its number, or a reason why there is none.

A test counts for devices if it stands in their folder, or its file names their specification in its first words and not
the core's. Recorded scenarios of devices count by the numbers that their ids begin with ("5, 6, 7: small and large").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[1]
SPECS = TESTS.parent / "docs" / "spec"
RECORDED = TESTS / "parity" / "scenarios" / "devices"
CORE, DEVICES = "core.md", "dra.md"

NO_SNAPSHOT = "an attempt reads the cache itself, there is no copy to bring up to date (architecture, ADR 0002)"
NO_TREE = "nodes have no order: all of them are looked at at once (architecture, ADR 0002)"
ALL_NODES = "all nodes are looked at unless a percentage is given (architecture, deliberate differences)"
LOOPBACK = "the endpoints need no token: they are served on loopback only (tests/unit/server/test_http.py)"
ONE_LOOP = (
    "one task changes the caches and decides: nothing is collected again, and no Filter is cancelled (architecture)"
)
PICKED = "every claim that is searched for gets its devices: results are made of what the search picked, claim by claim"
ONE_ALLOCATOR = "there is one allocator for all gates (§0.3)"
LOCKED = "the gate is on and locked in every supported version (§3.1)"
BATCHING = "batching is not built, and idle in kube-scheduler with its default plugins (§3.13)"
LIST_TYPES = "with DRAListTypeAttributes, an alpha gate that is off in every version and is not built"
WITHOUT: dict[str, dict[int, str]] = {
    CORE: {
        79: NO_SNAPSHOT,
        80: NO_TREE,
        81: NO_TREE,
        105: ALL_NODES,
        107: ALL_NODES,
        112: ALL_NODES,
        220: LOOPBACK,
        224: BATCHING,
        225: BATCHING,
    },
    DEVICES: {
        **dict.fromkeys((*range(92, 100), *range(101, 107)), LIST_TYPES),
        258: ONE_LOOP,
        299: LOCKED,
        300: ONE_LOOP,
        312: PICKED,
        314: ONE_ALLOCATOR,
    },
}
of_each = pytest.mark.parametrize("spec", [CORE, DEVICES])


@cache
def rows(spec: str) -> dict[int, str]:
    """Number → scenario, of the tables of §9."""
    section = (SPECS / spec).read_text().partition("\n## 9. ")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| (.+?) \|", section, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {int(number): scenario for number, scenario in found}


def numbers(name: str) -> set[int]:
    """Rows that an id ("23 a failure …") or the name of a test (`test_33_34_…`) begins with."""
    if (of_id := re.match(r"(\d+) ", name)) is not None:
        return {int(of_id[1])}
    of_test = re.match(r"test((?:_\d+)+)_", name)
    return {int(number) for number in of_test[1].split("_")[1:]} if of_test else set()


def names(tree: ast.Module) -> Iterator[str]:
    """The names of all functions, and all ids of parameters."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.keyword(
                arg="id",
                value=ast.Constant(value=str(name)) | ast.JoinedStr(values=[ast.Constant(value=str(name)), *_]),
            ):
                yield name
            case ast.keyword(arg="ids", value=ast.List(elts=listed)):
                yield from (
                    item.value for item in listed if isinstance(item, ast.Constant) and isinstance(item.value, str)
                )


def numbers_of(tree: ast.Module) -> set[int]:
    """Rows that a test's docstring begins with ("275, 298: …")."""
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {number for test in tests for number in listed(ast.get_docstring(test) or "")}


def listed(text: str) -> set[int]:
    """Return the numbers that a text begins with ("275, 298: …")."""
    found = re.match(r"(\d+(?:, \d+)*)[:.]", text)
    return {int(number) for number in found[1].split(", ")} if found is not None else set()


def recorded() -> set[int]:
    """Return the rows of the recorded scenarios of devices."""
    scenarios = [each for path in sorted(RECORDED.glob("*.yaml")) for each in yaml.safe_load(path.read_text())]
    return {number for scenario in scenarios for number in listed(scenario["id"])}


def spec_of(path: Path, source: str) -> str:
    """Whose rows the numbers in a file are."""
    about = source.partition("\nfrom __future__")[0]
    is_of_devices = f"docs/spec/{DEVICES}" in about and f"docs/spec/{CORE}" not in about
    return DEVICES if is_of_devices or "dra" in path.parts else CORE


@cache
def covered(spec: str) -> frozenset[int]:
    """Rows that some test bears the number of."""
    sources = [(path.relative_to(TESTS), path.read_text()) for path in sorted(TESTS.rglob("*.py"))]
    mine = [ast.parse(source) for path, source in sources if spec_of(path, source) == spec]
    by_name = {number for tree in mine for name in names(tree) for number in numbers(name)}
    return frozenset(by_name.union(recorded() if spec == DEVICES else (), *map(numbers_of, mine)))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param('pytest.param(1, id="23 a failure")', {23}, id="an id"),
        pytest.param('pytest.param(1, id=f"23 {what}")', {23}, id="an id that is put together"),
        pytest.param('parametrize("a", [1], ids=["92 taken", "free"])', {92}, id="a list of ids"),
        pytest.param("def test_71_assume_then_add(): ...", {71}, id="a name"),
        pytest.param("async def test_127_128_129_the_nominated_node(): ...", {127, 128, 129}, id="a name of several"),
        pytest.param('pytest.param("24 hours", id="a day")', set(), id="a number in a value"),
        pytest.param('pytest.param(1, id="2Gi are enough")', set(), id="an amount"),
        pytest.param("def test_in_2_ways(): ...", set(), id="a number elsewhere in a name"),
    ],
)
def test_what_counts_as_a_number(source: str, found: set[int]) -> None:
    assert found == {number for name in names(ast.parse(source)) for number in numbers(name)}


@pytest.mark.parametrize(
    ("docstring", "found"),
    [
        pytest.param("271.", {271}, id="nothing more to say"),
        pytest.param("275, 298: twice is as good as once.", {275, 298}, id="several"),
        pytest.param("24 hours later.", set(), id="a number of something"),
    ],
)
def test_the_numbers_in_a_docstring(docstring: str, found: set[int]) -> None:
    assert found == numbers_of(ast.parse(f'def test_a() -> None:\n    """{docstring}"""'))


@pytest.mark.parametrize(("path", "source", "spec"), [
    pytest.param("unit/queueing/test_queue.py", '"""The queue: docs/spec/core.md §2."""', CORE, id="the core's"),
    pytest.param("unit/queueing/test_queue.py", '"""The queue."""', CORE, id="a folder of no subject is the core's"),
    pytest.param("unit/eventhandlers/test_devices.py", '"""Deltas (docs/spec/dra.md §7)."""', DEVICES,
        id="about devices"),
    pytest.param("unit/test_args.py", '"""docs/spec/core.md, docs/spec/dra.md"""', CORE, id="about both"),
    pytest.param("unit/plugins/dra/test_bounds.py", '"""Bounds."""', DEVICES, id="in the folder of devices"),
])  # fmt: skip
def test_whose_numbers_they_are(path: str, source: str, spec: str) -> None:
    assert spec == spec_of(Path(path), f"{source}\n\nfrom __future__ import annotations\n\nSECOND = 'docs/spec/dra.md'")


@pytest.mark.parametrize(("spec", "last"), [(CORE, 225), (DEVICES, 345)])
def test_the_tables_are_read_whole(spec: str, last: int) -> None:
    assert list(rows(spec)) == list(range(1, last + 1))


@of_each
def test_every_row_has_a_test_or_a_reason(spec: str) -> None:
    there = covered(spec) | WITHOUT[spec].keys()

    assert {} == {number: scenario for number, scenario in rows(spec).items() if number not in there}


@of_each
def test_no_row_has_both(spec: str) -> None:
    """A reason that has been overtaken goes."""
    assert sorted(covered(spec) & WITHOUT[spec].keys()) == []
