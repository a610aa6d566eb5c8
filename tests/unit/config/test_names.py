"""Names as Kubernetes checks them."""

import pytest

from scheduler.config.names import (
    csi_driver_problem,
    extended_resource_problem,
    label_value_problem,
    qualified_name_problem,
)

NAME_RULE = "must consist of alphanumeric characters, '-', '_' or '.', and start and end with an alphanumeric character"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("cpu", "", id="plain"),
        pytest.param("example.com/gpu_A.1", "", id="with a prefix"),
        pytest.param("a" * 63, "", id="as many as 63 characters"),
        pytest.param("a" * 64, "name part must be no more than 63 characters", id="as many as 64 characters"),
        pytest.param("", "name part must be non-empty", id="nothing"),
        pytest.param("x/", "name part must be non-empty", id="only a prefix"),
        pytest.param("/x", "prefix part must be non-empty", id="a slash without prefix"),
        pytest.param("a/b/c", "must have at most one '/'", id="two slashes"),
        pytest.param("-x", f"name part {NAME_RULE}", id="starts with a dash"),
        pytest.param("x\n", f"name part {NAME_RULE}", id="ends with a line break"),
        pytest.param(
            "Example.com/x",
            "prefix part must be a lower-case DNS subdomain of at most 253 characters",
            id="an upper-case prefix",
        ),
    ],
)
def test_qualified_names(name: str, problem: str) -> None:
    """An optional DNS subdomain, then a short name."""
    assert qualified_name_problem(name) == problem


@pytest.mark.parametrize(
    ("value", "good"), [("", True), ("a.b_c-1", True), ("a/b", False), ("é", False), ("a" * 64, False)]
)
def test_label_values(value: str, good: bool) -> None:
    """Empty or like a name."""
    assert (label_value_problem(value) == "") is good


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
    assert (extended_resource_problem(name) == "") is good


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
    assert (csi_driver_problem(name) == "") is good
