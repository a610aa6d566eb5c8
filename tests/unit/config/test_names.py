"""Names that only a configuration has to judge."""

import pytest

from scheduler.config.names import csi_driver, extended_resource, resource_group


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("example.com/gpu", True),
        ("cpu", False),
        ("kubernetes.io/x", False),
        ("sub.kubernetes.io/x", False),
        ("requests.example.com/x", False),
        ("a" * 250 + ".b/x", False),
        ("example.com/", False),
    ],
)
def test_extended_resources(name: str, good: bool) -> None:
    """Outside kubernetes.io, and short enough for a quota."""
    assert (extended_resource(name) == []) is good


@pytest.mark.parametrize(("group", "complaints"), [("example.com", 0), ("example.com/", 3), ("a b", 1)])
def test_resource_groups(group: str, complaints: int) -> None:
    """A label key without a slash; both are told."""
    assert len(resource_group(group)) == complaints


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("ebs.csi.aws.com", True),
        ("Upper.Example", True),
        ("", False),
        ("a/b", False),
        ("a_b", False),
        ("a" * 64, False),
    ],
)
def test_csi_drivers(name: str, good: bool) -> None:
    """A subdomain in any case, no longer than a label."""
    assert (csi_driver(name) == []) is good
