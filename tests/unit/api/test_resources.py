"""Resource names."""

from __future__ import annotations

import pytest

from scheduler.api.quantity import domain, is_extended, is_scalar


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("example.com/gpu", True, True),
        ("requests.example.com/gpu", False, False),
        ("kubernetes.io/thing", False, True),
        ("sub.kubernetes.io/thing", False, True),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-csi-x", False, True),
        ("cpu", False, False),
        ("storage", False, False),
    ],
)
def test_kinds(name: str, extended: bool, scalar: bool) -> None:
    """Spelling decides, as upstream's does."""
    assert (extended, scalar) == (is_extended(name), is_scalar(name))


def test_domain() -> None:
    """What ignoredResourceGroups compare."""
    assert domain("example.com/gpu") == "example.com"
