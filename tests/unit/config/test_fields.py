"""Durations as Go writes them, and rules for names."""

import pytest
from hypothesis import given, strategies as st

from scheduler.config.document import format_duration, parse_duration_s
from scheduler.config.fields import csi_driver, extended_resource, resource_group


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h0m0.5s", 3600.5),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("-2s", -2.0),
        ("+1h", 3600.0),
        ("0", 0.0),
        ("10us", 0.00001),
        ("1.5h", 5400.0),
    ],
)
def test_reading(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", "s", "1 m", "1d", ".s", "1.2.3s", "1m-3s", "abc", "٣s", "--1s", "99999999h"]
)
def test_refusing(text: str) -> None:
    """A number needs a unit; there are no days; Go's limit holds."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (15.0, "15s"),
        (600.0, "10m0s"),
        (5400.25, "1h30m0.25s"),
        (0.3, "300ms"),
        (0.0000015, "1.5µs"),
        (7e-9, "7ns"),
        (-90.0, "-1m30s"),
    ],
)
def test_writing(seconds: float, text: str) -> None:
    """As Go's Duration.String."""
    assert format_duration(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_written_and_read_is_the_same(nanoseconds: int) -> None:
    seconds = nanoseconds / 1_000_000_000

    assert parse_duration_s(format_duration(seconds)) == seconds


LONG = "a" * 250 + ".b/x"
BAD = ["cpu", "kubernetes.io/x", "sub.kubernetes.io/x", "requests.example.com/x", LONG, "example.com/"]


@pytest.mark.parametrize("name", ["example.com/gpu", *BAD])
def test_extended_resources(name: str) -> None:
    assert (extended_resource(name) == []) is (name not in BAD)


@pytest.mark.parametrize(("group", "complaints"), [("example.com", 0), ("example.com/", 3), ("a b", 1)])
def test_resource_groups(group: str, complaints: int) -> None:
    assert len(resource_group(group)) == complaints


@pytest.mark.parametrize("name", ["ebs.csi.aws.com", "Upper.Example", "", "a/b", "a_b", "a" * 64])
def test_csi_drivers(name: str) -> None:
    assert (csi_driver(name) == []) is ("." in name)
