"""Calls that take longer than their costs allow: where a million may be spent, a cost of one should take 60 ns.

These are counted in nanoseconds, too, and together may take what `MOST_NANOS` says. That is far from anything that is
meant: ten thousand calls of the slowest of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_TYPES: Final = {
    **dict.fromkeys(("int", "uint", "double", "bool"), 1400),
    **dict.fromkeys(("string", "bytes", "timestamp", "duration"), 3500),
}
_DATES: Final = ("year", "month", "day_of_year", "day_of_month", "day_of_month_1_based", "day_of_week")
_CLOCK: Final = ("hours", "minutes", "seconds", "milliseconds")


def _of_lists() -> Iterator[tuple[str, int]]:
    for type_, nanos in _TYPES.items():
        yield f"list_{type_}_is_sorted_bool", nanos
        yield from ((f"list_{type_}_{word}_{type_}", nanos) for word in ("min", "max"))
    yield from ((f"list_{type_}_sum_{type_}", _TYPES[type_]) for type_ in ("int", "uint", "double", "duration"))
    yield from (
        (f"list_{type_}_sort", 700 if "." in type_ else 250)
        for type_ in ("uint", "double", "bool", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration")
    )


def _of_times() -> Iterator[tuple[str, int]]:
    for part in (*_DATES, *_CLOCK):
        yield f"timestamp_to_{part}", 300 if part in _DATES else 150
        yield f"timestamp_to_{part}_{'tz' if part == 'seconds' else 'with_tz'}", 1400


PACE: Final[Mapping[str, int]] = {
    **dict(_of_lists()),
    **dict(_of_times()),
    "list_flatten": 900,
    "list_flatten_int": 450,
    "list_distinct": 300,
    "list_reverse": 250,
    **dict.fromkeys(("list_sets_contains_list", "list_sets_equivalent_list", "list_sets_intersects_list"), 600),
    "string_to_duration": 300,
    "string_to_timestamp": 500,
    "timestamp_to_string": 450,
    "duration_to_string": 500,
    "string_to_bytes": 350,
    "bytes_to_string": 320,
    "double_to_string": 250,
    "string_to_double": 300,
    "string_to_uint64": 250,
    "double_to_uint64": 300,
    "int64_to_uint64": 280,
    "uint64_to_int64": 220,
    "type": 350,
}
"""By the id of an overload, nanoseconds of a call."""
