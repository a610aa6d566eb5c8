"""Timestamps and durations: conversions, arithmetic, and their parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from scheduler.cel.calendar import date, date_and_time, day_of_year, nanos_of, zone_offset_s
from scheduler.cel.check.types import DURATION, INT, STRING, TIMESTAMP, Overload
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import without_exponent
from scheduler.cel.libraries.conversions import itself, refused
from scheduler.cel.libraries.declaring import Remembered, function, member
from scheduler.cel.libraries.operators import int64
from scheduler.cel.values import Duration, Timestamp, Value

SECOND: Final = 10**9
FIRST_S: Final = -62135596800
LAST_S: Final = 253402300799
_FIRST: Final = FIRST_S * SECOND
_LAST: Final = LAST_S * SECOND + SECOND - 1
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_THURSDAY: Final = 4
"""The weekday of 1970-01-01."""
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": _MINUTE, "h": _HOUR}
_INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 20
"""A number with this many digits exceeds an int64; Python refuses to read thousands of them."""
_PART: Final = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]+)")


@Remembered
def _to_timestamp(text: str) -> Timestamp:
    """Parse RFC 3339 as Go does: one-digit hours and decimal commas are valid, lower-case letters are not."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise refused("string", "google.protobuf.Timestamp")
    *parts, fraction, sign, hours, minutes = match.groups()
    offset_s = 0
    if sign:
        if int(hours) > 24 or int(minutes) > 60:
            raise refused("string", "google.protobuf.Timestamp")
        offset_s = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)
    nanos = nanos_of(*map(int, parts))
    if nanos is None:
        raise refused("string", "google.protobuf.Timestamp")
    nanos += int((fraction or "").ljust(9, "0")[:9]) - offset_s * SECOND
    return _timestamp(nanos, offset_s)


def _timestamp(nanos: int, offset_s: int = 0) -> Timestamp:
    if _FIRST <= nanos <= _LAST:
        return Timestamp(nanos, offset_s)
    raise EvalError("timestamp overflow")


def _of_seconds(seconds: int) -> Timestamp:
    if FIRST_S <= seconds <= LAST_S:
        return Timestamp(seconds * SECOND)
    raise EvalError("timestamp overflow")


@Remembered
def _to_duration(text: str) -> Duration:
    """Parse a duration as Go does: `1h15m`, `-1.5s`."""
    nanos = _nanos(text.removeprefix("-") if text.startswith("-") else text.removeprefix("+"))
    if nanos is None or nanos > 2**63 or (nanos == 2**63 and not text.startswith("-")):
        raise refused("string", "google.protobuf.Duration")
    return Duration(-nanos if text.startswith("-") else nanos)


def _nanos(text: str) -> int | None:
    if text == "0":
        return 0
    total = at = 0
    while at < len(text):
        part = _PART.match(text, at)
        unit = _UNITS.get(part[4]) if part else None
        if part is None or unit is None or not (part[1] or part[3]):
            return None
        total += int(part[1].lstrip("0")[:_DIGITS_MAX] or 0) * unit
        if part[3]:
            total += _fraction(part[3], unit)
        at = part.end()
    return total if text else None


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of the digits after the point. Further digits than an int64 has do not count.

    As leadingFraction of Go's time.ParseDuration.
    """
    value, scale = 0, 1.0
    for digit in digits:
        if value > _INT64_MAX // 10 or value * 10 + int(digit) > _INT64_MAX + 1:
            break
        value, scale = value * 10 + int(digit), scale * 10
    return int(value * (unit / scale))


def timestamp_text(value: Timestamp) -> str:
    """Return RFC 3339 text with the necessary digits of a second, in the zone in which the timestamp was written."""
    seconds, rest = divmod(value.nanos, SECOND)
    if not rest and not value.offset_s:
        return f"{date_and_time(seconds)}Z"
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    if not value.offset_s:
        return f"{date_and_time(seconds)}{fraction}Z"
    minutes = abs(value.offset_s) // 60
    zone = f"{'-' if value.offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{date_and_time(seconds + value.offset_s)}{fraction}{zone}"


def duration_text(value: Duration) -> str:
    """Return the duration in seconds as text."""
    return without_exponent(_in_units(value.nanos, SECOND)) + "s"


def _in_units(nanos: int, unit: int) -> float:
    """Divide with Go's rounding: the whole units, plus the rest as a fraction."""
    sign = -1 if nanos < 0 else 1
    whole, rest = divmod(abs(nanos), unit)
    return sign * (float(whole) + rest / unit)


def _later(one: Timestamp, other: Duration) -> Timestamp:
    return _timestamp(one.nanos + other.nanos, one.offset_s)


def _earlier(one: Timestamp, other: Duration) -> Timestamp:
    int64(-other.nanos)
    return _timestamp(one.nanos - other.nanos, one.offset_s)


def _between(one: Timestamp | Duration, other: Timestamp | Duration) -> Duration:
    return Duration(int64(one.nanos - other.nanos))


def _longer(one: Duration, other: Duration) -> Duration:
    return Duration(int64(one.nanos + other.nanos))


def _from_int(_: int) -> Value:
    raise refused("int", "google.protobuf.Duration")


_PARTS: Final[tuple[tuple[str, str, Callable[[int], int]], ...]] = (
    ("getFullYear", "timestamp_to_year", lambda nanos: date(nanos // _DAY).year),
    ("getMonth", "timestamp_to_month", lambda nanos: date(nanos // _DAY).month - 1),
    ("getDayOfYear", "timestamp_to_day_of_year", lambda nanos: day_of_year(nanos // _DAY)),
    ("getDayOfMonth", "timestamp_to_day_of_month", lambda nanos: date(nanos // _DAY).day - 1),
    ("getDate", "timestamp_to_day_of_month_1_based", lambda nanos: date(nanos // _DAY).day),
    ("getDayOfWeek", "timestamp_to_day_of_week", lambda nanos: (nanos // _DAY + _THURSDAY) % 7),
    ("getHours", "timestamp_to_hours", lambda nanos: nanos // _HOUR % 24),
    ("getMinutes", "timestamp_to_minutes", lambda nanos: nanos // _MINUTE % 60),
    ("getSeconds", "timestamp_to_seconds", lambda nanos: nanos // SECOND % 60),
    ("getMilliseconds", "timestamp_to_milliseconds", lambda nanos: nanos % SECOND // 10**6),
)
"""Parts of a date and time of day, which is given as nanoseconds since 1970-01-01T00:00:00 in the same zone."""
_LENGTHS: Final = (("getHours", "hours", _HOUR), ("getMinutes", "minutes", _MINUTE))


def _parts() -> list[Overload]:
    overloads = []
    for name, id_, part in _PARTS:
        with_zone = f"{id_}_tz" if name == "getSeconds" else f"{id_}_with_tz"
        overloads += [
            member(name, id_, ((TIMESTAMP,), INT), _in_utc(part)),
            member(name, with_zone, ((TIMESTAMP, STRING), INT), _in_zone(part)),
        ]
    return overloads


def _in_utc(part: Callable[[int], int]) -> Callable[[Timestamp], int]:
    return lambda value: part(value.nanos)


def _in_zone(part: Callable[[int], int]) -> Callable[[Timestamp, str], int]:
    return lambda value, zone: part(value.nanos + zone_offset_s(zone, value.nanos) * SECOND)


def _length(unit: int) -> Callable[[Duration], int]:
    """Return a function that counts whole units."""
    return lambda value: int(_in_units(value.nanos, unit))


def _milliseconds(value: Duration) -> int:
    return value.nanos // 10**6 if value.nanos >= 0 else -(-value.nanos // 10**6)


TIMES: Final[tuple[Overload, ...]] = (
    function("timestamp", "string_to_timestamp", ((STRING,), TIMESTAMP), _to_timestamp),
    function("timestamp", "int64_to_timestamp", ((INT,), TIMESTAMP), _of_seconds),
    function("timestamp", "timestamp_to_timestamp", ((TIMESTAMP,), TIMESTAMP), itself),
    function("duration", "string_to_duration", ((STRING,), DURATION), _to_duration),
    function("duration", "int64_to_duration", ((INT,), DURATION), _from_int),
    function("duration", "duration_to_duration", ((DURATION,), DURATION), itself),
    function("string", "timestamp_to_string", ((TIMESTAMP,), STRING), timestamp_text),
    function("string", "duration_to_string", ((DURATION,), STRING), duration_text),
    function("int", "timestamp_to_int64", ((TIMESTAMP,), INT), lambda value: value.nanos // SECOND),
    function("int", "duration_to_int64", ((DURATION,), INT), lambda value: value.nanos),
    function("_+_", "add_duration_duration", ((DURATION, DURATION), DURATION), _longer),
    function(
        "_+_", "add_duration_timestamp", ((DURATION, TIMESTAMP), TIMESTAMP), lambda one, other: _later(other, one)
    ),
    function("_+_", "add_timestamp_duration", ((TIMESTAMP, DURATION), TIMESTAMP), _later),
    function("_-_", "subtract_duration_duration", ((DURATION, DURATION), DURATION), _between),
    function("_-_", "subtract_timestamp_duration", ((TIMESTAMP, DURATION), TIMESTAMP), _earlier),
    function("_-_", "subtract_timestamp_timestamp", ((TIMESTAMP, TIMESTAMP), DURATION), _between),
    *_parts(),
    *(member(name, f"duration_to_{word}", ((DURATION,), INT), _length(unit)) for name, word, unit in _LENGTHS),
    member("getSeconds", "duration_to_seconds", ((DURATION,), INT), _length(SECOND)),
    member("getMilliseconds", "duration_to_milliseconds", ((DURATION,), INT), _milliseconds),
)
