"""Limits on what one Node or StorageClass may cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import Node
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.storage_v1 import StorageClass


def decoded(kind: str, typ: Any, **fields: Any) -> Any:
    return ObjectDecoder(kind, typ).decode(msgspec.json.encode({"metadata": {"name": "x"}, **fields}))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param((5_000, 5_000), 2, id="ten thousand names all count"),
        pytest.param((5_000, 5_000, 1), 2, id="an image after the ten-thousandth name does not count"),
        pytest.param((10_001, 1), 0, id="an image with more names than may count ends the list"),
    ],
)
def test_names_of_images_count_up_to_a_limit(counts: tuple[int, ...], expected: int) -> None:
    images = [
        {"names": [f"image-{at}-{number}" for number in range(count)], "sizeBytes": 1}
        for at, count in enumerate(counts)
    ]

    assert len(decoded("Node", Node, status={"images": images}).status.images) == expected


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_a_storage_class_with_too_many_topologies_is_unreadable_and_says_which_field(count: int) -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": [f"z{at}"]}]} for at in range(count)]

    found = decoded("StorageClass", StorageClass, provisioner="p", allowedTopologies=terms)

    assert isinstance(found, Broken) == (count > 1_000)
    if isinstance(found, Broken):
        assert "allowedTopologies" in found.why
