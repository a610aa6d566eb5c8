"""Calls that take longer than their costs allow: where a million may be spent, a cost of one should take 60 ns.

These are counted in nanoseconds, too, and together may take what `MOST_NANOS` says. That is far from anything that is
meant: four thousand calls of the slowest of them. Texts that are read may be of the kind that takes longest.
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
    "string_to_duration": 3000,
    **dict.fromkeys(("string_index_of_string", "string_index_of_string_int"), 1150),
    **dict.fromkeys(("string_last_index_of_string", "string_last_index_of_string_int"), 1100),
    **dict.fromkeys(("string_replace_string_string", "string_replace_string_string_int"), 700),
    **dict.fromkeys(("string_lower_ascii", "string_upper_ascii"), 400),
    "strings_quote": 700,
    "format-validate": 1500,
    "string_to_timestamp": 750,
    **dict.fromkeys(("string_to_url", "is_url_string"), 9000),
    **dict.fromkeys(("string_to_ip", "is_ip", "ip_is_canonical"), 10_000),
    **dict.fromkeys(("string_to_cidr", "is_cidr"), 6000),
    **dict.fromkeys(("string_to_semver", "string_bool_to_semver"), 4500),
    **dict.fromkeys(("is_semver_string", "is_semver_string_bool"), 1200),
    "string_to_quantity": 2400,
    "is_quantity_string": 900,
    "timestamp_to_string": 450,
    "duration_to_string": 500,
    "string_to_bytes": 900,
    "bytes_to_string": 320,
    "double_to_string": 250,
    "string_to_double": 650,
    "string_to_uint64": 450,
    "string_to_int64": 400,
    "double_to_uint64": 300,
    "int64_to_uint64": 280,
    "uint64_to_int64": 220,
    "type": 350,
}
"""By the id of an overload, nanoseconds of a call."""
LETTERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("string_to_url", "is_url_string"), 700),
    **dict.fromkeys(("string_to_ip", "is_ip", "ip_is_canonical", "string_to_cidr", "is_cidr"), 65),
    "string_to_duration": 210,
    **dict.fromkeys(("string_to_int64", "string_to_uint64"), 60),
    "string_to_double": 30,
    "strings_quote": 55,
    **dict.fromkeys(("string_lower_ascii", "string_upper_ascii"), 65),
}
"""Of those, nanoseconds more for each letter of the text that is read: the first argument."""
