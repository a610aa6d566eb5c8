"""`kubestow.Result`: typed values and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kubestow
from kubestow import Result
from kubestow.result import Table
from tests.unit.library.manifests import NODE, a_pod

EXAMPLES = Path(__file__).parents[3] / "examples"
TABLES: tuple[Table, ...] = ("pods", "volumes", "devices", "nodes", "changes")


class DataFrame:
    """Stands in for the class of pandas and polars."""

    def __init__(self, data: list[tuple[Any, ...]], **options: Any) -> None:
        self.data, self.options = data, options


@pytest.fixture(scope="module")
def result() -> Result:
    return kubestow.simulate(NODE, a_pod("a"), a_pod("large", "9"))


def test_values(result: Result) -> None:
    assert not result.ok
    assert result.placements == {"default/a": "n", "default/large": None}
    assert [each.pod for each in result.pending] == ["default/large"]
    assert [each.pod for each in result.pods] == ["default/a", "default/large"]
    assert (result.summary.placed, result.summary.pending) == (1, 1)
    assert result.problems == result.answer.problems
    assert str(result).splitlines() == ["1 of 2 pods placed on 1 node", *result.problems]


def test_rows_of_pods_and_nodes(result: Result) -> None:
    placed, pending = result.rows()
    assert (placed["node"], placed["message"], pending["node"], pending["reason"]) == ("n", "", None, "Unschedulable")
    assert {"node": "n", "resource": "memory", "requested": 0.0, "allocatable": 4.0 * 2**30} in result.rows("nodes")


def test_rows_of_volumes_and_devices() -> None:
    volume = kubestow.simulate(EXAMPLES / "volumes.yaml").rows("volumes")[0]
    device = kubestow.simulate(EXAMPLES / "devices.yaml").rows("devices")[0]

    assert volume["pod"] == "demo/database-0"
    assert volume["capacity"] == 100 * 2**30
    assert device["admin_access"] is False
    assert device["node"] is not None


def test_rows_of_changes() -> None:
    """One pod of two has a place on the node, and the node that is added takes the other."""
    workload = (NODE, a_pod("a", "2"), a_pod("b", "2"))
    plain = kubestow.simulate(*workload)
    larger = kubestow.simulate(*workload, add_nodes_like={"n": 1})
    drained = kubestow.simulate(*workload, cordon=["n"])

    assert (plain.plan, plain.rows("changes")) == (None, [])
    assert larger.plan is not None
    assert larger.plan.changes == ["add 1 node like n"]
    (row,) = larger.rows("changes")
    assert (row["change"], row["before"], row["reason"]) == ("placed", None, "")
    assert row["after"] == larger.placements[row["pod"]]
    (row,) = drained.rows("changes")
    assert (row["change"], row["before"], row["after"]) == ("unplaced", "n", None)
    assert row["reason"].startswith("0/1 nodes are available: 1 node(s) were unschedulable.")


def test_an_unknown_table_is_named(result: Result) -> None:
    with pytest.raises(
        ValueError, match="table: 'claims' is unknown; expected one of pods, volumes, devices, nodes, changes"
    ):
        result.rows("claims")  # type: ignore[arg-type]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_become_data_frames(result: Result, monkeypatch: pytest.MonkeyPatch, library: str, table: Table) -> None:
    module = ModuleType(library)
    module.DataFrame = DataFrame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library, module)

    frame = getattr(result, f"to_{library}")(table)

    names = frame.options["columns" if library == "pandas" else "schema"]
    assert [dict(zip(names, row)) for row in frame.data] == result.rows(table)
    assert len(names) > 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(result: Result, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(ImportError, match=f"{library} is not installed; run: pip install {library}"):
        getattr(result, f"to_{library}")()
