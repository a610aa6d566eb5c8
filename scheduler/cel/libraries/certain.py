"""Which functions never fail, whatever they are given of the types that they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
_ORDERED: Final = ("bool", "int64", "uint64", "string", "bytes", "timestamp", "duration")
_QUANTITIES: Final = ("is_greater_than", "is_less_than", "compare_to", "get_float", "is_integer", "add", "add_int")
_VERSIONS: Final = ("is_greater_than", "is_less_than", "compare_to", "major", "minor", "patch")
_OF_TIMES: Final = (
    *("year", "month", "day_of_year", "day_of_month", "day_of_month_1_based", "day_of_week"),
    *("hours", "minutes", "seconds", "milliseconds", "int64"),
)
_OF_DURATIONS: Final = ("hours", "minutes", "seconds", "milliseconds", "int64")


def _ids() -> Iterator[str]:
    yield from (f"{order}_{each}" for order in _ORDERS for each in _ORDERED)
    yield from (f"{order}_{pair}" for order in _ORDERS for pair in ("int64_uint64", "uint64_int64"))
    yield from (f"quantity_{each}" for each in (*_QUANTITIES, "sub", "sub_int"))
    yield from (f"semver_{each}" for each in _VERSIONS)
    yield from (f"timestamp_to_{each}" for each in _OF_TIMES)
    yield from (f"duration_to_{each}" for each in _OF_DURATIONS)


CERTAIN: Final = frozenset(_ids())
"""Their ids."""
