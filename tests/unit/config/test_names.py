"""Names that only a configuration has to judge."""

import pytest

from scheduler.config.fields import csi_driver, extended_resource, resource_group

LONG = "a" * 250 + ".b/x"
BAD = ["cpu", "kubernetes.io/x", "sub.kubernetes.io/x", "requests.example.com/x", LONG, "example.com/"]


@pytest.mark.parametrize("name", ["example.com/gpu", *BAD])
def test_extended_resources(name: str) -> None:
    """Outside kubernetes.io, and short enough for a quota."""
    assert (extended_resource(name) == []) is (name not in BAD)


@pytest.mark.parametrize(("group", "complaints"), [("example.com", 0), ("example.com/", 3), ("a b", 1)])
def test_resource_groups(group: str, complaints: int) -> None:
    """A label key without a slash; both are told."""
    assert len(resource_group(group)) == complaints


@pytest.mark.parametrize("name", ["ebs.csi.aws.com", "Upper.Example", "", "a/b", "a_b", "a" * 64])
def test_csi_drivers(name: str) -> None:
    """A subdomain in any case, no longer than a label."""
    assert (csi_driver(name) == []) is ("." in name)
