"""The result of a simulation: typed values, the JSON of the command, and tables for pandas and polars."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from scheduler.api.quantity import parse
from scheduler.core.terminal import counted
from simulator.simulate.answer import Answer, PlanAnswer, PodAnswer, Summary

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["Answer", "Result", "Table"]

Table: TypeAlias = Literal["pods", "volumes", "devices", "nodes", "changes"]
_Rows: TypeAlias = Iterator[tuple[Any, ...]]
_NANO: Final = 10**9


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a simulation. `answer` has all of it; docs/simulate.schema.json describes its fields."""

    answer: Answer

    @property
    def ok(self) -> bool:
        """Return whether everything is as expected: each pod has a node, except those that may stay pending."""
        return self.answer.ok

    @property
    def problems(self) -> list[str]:
        """Return what is not as expected, one sentence each."""
        return self.answer.problems

    @property
    def summary(self) -> Summary:
        """Return numbers of pods and nodes."""
        return self.answer.summary

    @property
    def pods(self) -> list[PodAnswer]:
        """Return the pods that were to be scheduled, in the order of the input."""
        return self.answer.pods

    @property
    def pending(self) -> list[PodAnswer]:
        """Return the pods without a node. Their `message` is the scheduler's reason."""
        return [each for each in self.answer.pods if each.node is None]

    @property
    def placements(self) -> dict[str, str | None]:
        """Return `namespace/name` of each pod → its node, or None."""
        return {each.pod: each.node for each in self.answer.pods}

    @property
    def plan(self) -> PlanAnswer | None:
        """Return what the changes of the cluster change; None for a cluster without changes."""
        return self.answer.plan

    def to_json(self) -> str:
        """Return the JSON that `kubestow simulate -o json` prints."""
        return msgspec.json.format(msgspec.json.encode(self.answer), indent=2).decode()

    def rows(self, table: Table = "pods") -> list[dict[str, Any]]:
        """Return the rows of a table, which are also those of the data frames.

        `pods`: one row for each pod that was to be scheduled. `volumes` and `devices`: one for each volume and device of
        these pods. `nodes`: one for each node and resource, amounts in units of the resource, such as CPUs and bytes.
        `changes`: one for each pod whose node differs by the changes of the cluster.
        """
        columns, rows = self._table(table)
        return [dict(zip(columns, row)) for row in rows]

    def to_pandas(self, table: Table = "pods") -> pd.DataFrame:
        """Return a table (`rows`) as a DataFrame of pandas. Raises ImportError if pandas is not installed."""
        columns, rows = self._table(table)
        frame: pd.DataFrame = _library("pandas").DataFrame(list(rows), columns=list(columns))
        return frame

    def to_polars(self, table: Table = "pods") -> pl.DataFrame:
        """Return a table (`rows`) as a DataFrame of polars. Raises ImportError if polars is not installed."""
        columns, rows = self._table(table)
        frame: pl.DataFrame = _library("polars").DataFrame(list(rows), schema=dict(columns), orient="row")
        return frame

    def __str__(self) -> str:
        counts = self.answer.summary
        placed = f"{counts.placed} of {counted(counts.pods, 'pod')} placed on {counted(counts.nodes, 'node')}"
        return "\n".join([placed, *self.problems])

    def _table(self, table: Table) -> tuple[Mapping[str, type], _Rows]:
        if not isinstance(table, str) or table not in _TABLES:
            raise ValueError(f"table: {table!r} is unknown; expected one of {', '.join(_TABLES)}")
        columns, rows = _TABLES[table]
        return columns, rows(self.answer)


def _pods(answer: Answer) -> _Rows:
    for each in answer.pods:
        score = each.choice and each.choice.chosen.total
        reason, message = ("" if text is UNSET else text for text in (each.reason, each.message))
        yield each.pod, each.owner, each.node, score, each.expected_pending, reason, message


def _volumes(answer: Answer) -> _Rows:
    for pod in answer.pods:
        for each in pod.volumes:
            capacity = _amount(each.capacity)
            yield pod.pod, pod.node, each.claim, each.volume, each.storage_class, each.driver, capacity, each.pool


def _devices(answer: Answer) -> _Rows:
    for pod in answer.pods:
        for each in pod.devices:
            yield pod.pod, pod.node, each.claim, each.request, each.driver, each.pool, each.device, each.admin_access


def _nodes(answer: Answer) -> _Rows:
    for node in answer.nodes:
        for each in node.resources:
            yield node.node, each.resource, _amount(each.requested), _amount(each.allocatable)


def _changes(answer: Answer) -> _Rows:
    if answer.plan is None:
        return
    for change, pods in (
        ("unplaced", answer.plan.unplaced),
        ("placed", answer.plan.placed),
        ("moved", answer.plan.moved),
    ):
        for each in pods:
            yield each.pod, change, each.before, each.after, each.reason


def _amount(quantity: str) -> float:
    return parse(quantity).nano / _NANO


_OF_POD: Final[dict[str, type]] = {"pod": str, "node": str, "claim": str}
_TABLES: Final[Mapping[str, tuple[Mapping[str, type], Callable[[Answer], _Rows]]]] = {
    "pods": (
        {"pod": str, "owner": str, "node": str, "score": int, "expected_pending": bool, "reason": str, "message": str},
        _pods,
    ),
    "volumes": (
        {**_OF_POD, "volume": str, "storage_class": str, "driver": str, "capacity": float, "pool": str},
        _volumes,
    ),
    "devices": (
        {**_OF_POD, "request": str, "driver": str, "pool": str, "device": str, "admin_access": bool},
        _devices,
    ),
    "nodes": ({"node": str, "resource": str, "requested": float, "allocatable": float}, _nodes),
    "changes": ({"pod": str, "change": str, "before": str, "after": str, "reason": str}, _changes),
}
"""The columns of each table with their types, and what returns its rows."""


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise ImportError(f"{name} is not installed; run: pip install {name}", name=name) from missing
