"""The walk over tables: order, places, and where it stops."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.meta import dns_label
from simulator.apiserver.validation import (
    Table,
    at_most,
    gate,
    name_of,
    names,
    not_negative,
    optional,
    positive,
    present,
    required,
    unique,
)

PORTS = Table(
    ("ports", at_most(3)),
    ("ports[*].name", optional, names(dns_label)),
    ("ports[*].number", required(), positive),
    ("ports", unique(name_of, at="name")),
    ("limits{*}", not_negative),
    ("limits{cpu}", positive),
    ("owner?.uid", required("every owner has one")),
    ("source", present()),
    ("source.path", required()),
)


def fields(value: Any) -> list[str]:
    return [each.field for each in PORTS(value)]


@pytest.mark.parametrize(("change", "expected"), [
    pytest.param({}, [], id="no problem"),
    pytest.param({"ports": [{"name": "A"}, {"name": "A", "number": -1}]},
        ["ports[0].name", "ports[0].number", "ports[1].name", "ports[1].number", "ports[1].name"],
        id="one item after the other, the list last"),
    pytest.param({"ports": [{"name": "A"}] * 4}, ["ports"], id="the items of a list that is too long are not checked"),
    pytest.param({"ports": [None]}, ["ports[0].number"], id="null in a list is an empty object"),
    pytest.param({"limits": {"a/b": -1, "cpu": 0}}, ["limits[a/b]", "limits[cpu]"], id="values of a map, and one of them"),
    pytest.param({"owner": {}}, ["owner.uid"], id="a pointer"),
    pytest.param({"source": None}, ["source"], id="nothing below an absent object that must be there"),
    pytest.param({"source": {}}, ["source.path"], id="an empty object is present"),
])  # fmt: skip
def test_problems_come_in_the_order_of_a_server(change: dict[str, Any], expected: list[str]) -> None:
    assert fields({"source": {"path": "/"}, "limits": {"cpu": 1}} | change) == expected


def test_rules_get_the_context() -> None:
    seen: list[object] = []

    def rule(value: Any, context: Any) -> list[Any]:
        seen.append((value, context))
        return []

    Table(("a[*].b", rule), ("", rule))({"a": [{"b": 1}]}, "context")

    assert seen == [(1, "context"), ({"a": [{"b": 1}]}, "context")]


def test_rules_behind_a_gate_do_not_see_what_it_refuses() -> None:
    def relies(value: dict[str, str], _: Any) -> list[Any]:
        assert value["name"]
        return []

    table = Table(("", gate(Table(("name", required()))), relies))

    assert [each.field for each in table({})] == ["name"]
    assert table({"name": "a"}) == []
