"""Rows of the counts of hints for devices: each waiting pod has another claim and another class.

`(plugin, event, text, old, new, concerned, another, given)`: the columns of `Case` in `test_hints_table_counts`.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.hints.hint_rows import CAME, LABELLED, RESIZED_NODE, requesting
from tests.unit.hints.hint_rows_devices import (
    CLAIM_CAME,
    CLAIM_CHANGED,
    CLAIM_GONE,
    CLASS_CAME,
    CLASS_CHANGED,
    GPU,
    SLICE_CAME,
    SLICE_CHANGED,
    SLICE_GONE,
    claimed,
    held,
    uses,
)
from tests.unit.objects import node

ONE: dict[str, Any] = uses("c")
EXTENDED: dict[str, Any] = {"containers": requesting(**{GPU: "1"})}


def another(i: int) -> dict[str, Any]:
    """Another claim."""
    return uses(f"c{i}")


def waiting(i: int | str) -> list[Builder[Any]]:
    """A claim without devices; each has another class."""
    return [claimed(f"c{i}", f"s{i}")]


def served(i: int | str) -> list[Builder[Any]]:
    """A claim that has its device; that of the first has none."""
    return [claimed("c") if i == "" else held(f"c{i}", f"drv/pool/d{i}")]


def missing(i: int | str) -> list[Builder[Any]]:
    """Only the first has a claim that is there."""
    return [claimed("c")] if i == "" else []


D0 = a_device("d0")
SLICE, TAINTED = a_slice("n1", "drv", D0), a_slice("n1", "drv", D0.taint("x"))
PLAIN, LABEL, GROWN = node("n1"), node("n1", labels={"a": "b"}), node("n1", cpu="64")
_AT_EASE: Final = "pods that have their devices"
_NOT_YET: Final = "pods whose claims are not there"

COUNTS: Final[list[Any]] = [
    ("DynamicResources", *row)
    for row in (
        (CAME, _NOT_YET, None, PLAIN, ONE, another, missing),
        (LABELLED, _NOT_YET, PLAIN, LABEL, ONE, another, missing),
        (RESIZED_NODE, "pods that only have claims", PLAIN, GROWN, EXTENDED, another, waiting),
        (CLAIM_CAME, "pods with other claims", None, claimed("c"), ONE, another, waiting),
        (CLAIM_CHANGED, "pods with other claims", claimed("c"), held("c"), ONE, another, waiting),
        (CLAIM_CHANGED, _AT_EASE, held("x"), claimed("x"), ONE, another, served),
        (CLAIM_GONE, _AT_EASE, held("x"), None, ONE, another, served),
        (DEVICES_GIVEN_BACK, _AT_EASE, held("x"), claimed("x"), ONE, another, served),
        (CLASS_CAME, "pods with other classes", None, a_device_class("s"), ONE, another, waiting),
        (CLASS_CHANGED, _NOT_YET, a_device_class("gpu"), a_device_class("gpu", "true"), ONE, another, missing),
        (CLASS_CAME, "pods with claims", None, a_device_class("s").extended_resource(GPU), EXTENDED, another, waiting),
        (SLICE_CAME, _AT_EASE, None, SLICE, ONE, another, lambda i: [*served(i), SLICE]),
        (SLICE_CAME, _NOT_YET, None, SLICE, ONE, another, lambda i: [*missing(i), SLICE]),
        (SLICE_CHANGED, _AT_EASE, TAINTED, SLICE, ONE, another, lambda i: [*served(i), SLICE]),
        (SLICE_GONE, _AT_EASE, TAINTED, None, ONE, another, lambda i: [*served(i), SLICE]),
    )
]
