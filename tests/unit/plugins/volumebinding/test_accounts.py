"""The explanation of a pod whose claims find no volume: docs/spec/volumes.md §12.4 B-20."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.volumebuilders import a_capacity, a_claim, a_pv
from tests.unit.plugins.volumebinding.world import World, using

TAKEN = a_pv("taken", "5Gi", "W").claimed_by("other", uid="other")


@pytest.mark.parametrize(
    ("things", "explained"),
    [
        pytest.param((), {"problem": 'persistentvolumeclaim "c" not found'}, id="the claim is missing"),
        pytest.param((a_claim("c", "1Gi", "W").bound_to("v"), a_pv("v", "1Gi", "W")), None, id="everything is bound"),
    ],
)
def test_nothing_to_count(things: tuple[Any, ...], explained: Any) -> None:
    """A bound claim has its volume. The text of PreFilter is passed on."""
    assert explained == World(*things).plugin.explain(using("p", "c"))


def test_volumes_of_the_class_by_what_is_wrong_with_them() -> None:
    """All of the class, wherever they are, and nothing of other classes."""
    others = (a_pv("other", "5Gi", "I"), TAKEN, a_pv("small", "1Gi", "W"), a_pv("good", "3Gi", "W"))
    found = World(a_claim("c", "2Gi", "W"), *others).plugin.explain(using("p", "c"))
    assert found is not None
    (account,) = found["claims"]
    assert ("default/c", "W", 2 << 30) == (account["claim"], account["storageClass"], account["bytes"])
    assert {"taken": 1, "too small": 1, "fitting": 1} == account["volumes"]


def test_the_largest_capacity_of_the_class() -> None:
    """Of all capacity objects."""
    rooms = (a_capacity("a", "D", "3Gi").everywhere(), a_capacity("b", "D", "7Gi").everywhere())
    found = World(a_claim("c", "9Gi", "D"), *rooms).plugin.explain(using("p", "c"))
    assert found is not None
    (account,) = found["claims"]
    assert (2, 7 << 30) == (account["capacityObjects"], account["largestBytes"])
