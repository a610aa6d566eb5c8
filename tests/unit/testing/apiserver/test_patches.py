"""Merge and strategic merge, on plain objects."""

from typing import Any

import pytest

from scheduler.testing.apiserver import Refused
from scheduler.testing.apiserver.patches import merge, strategic

CONDITIONS = [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        pytest.param({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}, id="maps merge"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="nulls of new maps vanish"),
    ],
)
def test_merge(original: Any, patch: Any, result: Any) -> None:
    """RFC 7386, and the original stays as it was."""
    before = repr(original)
    assert merge(original, patch) == result
    assert repr(original) == before


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        pytest.param(
            {"conditions": CONDITIONS},
            {"conditions": [{"type": "B", "reason": "r"}]},
            {"conditions": [CONDITIONS[0], {"type": "B", "status": "2", "reason": "r"}]},
            id="an element merges in its place",
        ),
        pytest.param(
            {"conditions": CONDITIONS},
            {"conditions": [{"type": "C"}]},
            {"conditions": [{"type": "C"}, *CONDITIONS]},
            id="a new element comes first",
        ),
        pytest.param(
            {"conditions": CONDITIONS},
            {"conditions": [{"type": "A", "$patch": "delete"}]},
            {"conditions": CONDITIONS[1:]},
            id="an element is deleted by its key",
        ),
        pytest.param(
            {"conditions": CONDITIONS},
            {"conditions": [{"$patch": "replace"}, {"type": "Z"}]},
            {"conditions": [{"type": "Z"}]},
            id="a list is replaced on request",
        ),
        pytest.param({"conditions": CONDITIONS[:1]}, {"conditions": [{"type": "A", "$patch": "delete"}]}, {}, id="an empty list vanishes"),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}, id="sets unite"),
        pytest.param({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}, id="sets shrink"),
        pytest.param({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}, id="taints are atomic"),
        pytest.param({"x": {"a": 1}}, {"x": {"$patch": "replace", "b": 2}}, {"x": {"b": 2}}, id="a map is replaced on request"),
        pytest.param({"x": {"a": 1}, "y": 2}, {"x": {"$patch": "delete"}}, {"y": 2}, id="a map is deleted on request"),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "hostPort": 8080}]},
            {"ports": [{"containerPort": 80, "hostPort": 8080}]},
            id="container ports merge by number",
        ),
    ],
)  # fmt: skip
def test_strategic_merge(original: Any, patch: Any, result: Any) -> None:
    """Lists by their merge key, and the original stays as it was."""
    before = repr(original)
    assert strategic(original, patch) == result
    assert repr(original) == before


@pytest.mark.parametrize(
    "patch",
    [{"conditions": [{"status": "1"}]}, {"$patch": "explode"}],
    ids=["no merge key", "an unknown directive"],
)
def test_a_patch_that_makes_no_sense_is_refused(patch: Any) -> None:
    """400."""
    with pytest.raises(Refused) as refused:
        strategic({"conditions": CONDITIONS}, patch)
    assert refused.value.code == 400
