"""Dates and times of day in Go's calendar, also where a time zone leads out of the years 1 to 9999."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import quoted
from scheduler.cel.libraries.declaring import Remembered

_SECOND: Final = 10**9
_DAY_S: Final = 86400
_ERA_DAYS: Final = 146097
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_ZONED_S: Final = (-62000000000, 253300000000)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


class Date(NamedTuple):
    """A date; months and days start at 1."""

    year: int
    month: int
    day: int


def day_of_year(days: int) -> int:
    """Return the day of the year, from 0."""
    return days - _days(date(days).year, 1, 1)


def date_and_time(seconds: int) -> str:
    """Return `2026-01-02T03:04:05` for a number of seconds after the beginning of 1970."""
    days, second = divmod(seconds, _DAY_S)
    year, month, day = date(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def nanos_of(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:  # noqa: PLR0917
    """Return the time of a date and time of day in UTC, in nanoseconds; None if it does not exist."""
    if not (hour < 24 and minute < 60 and second < 60):
        return None
    try:
        days = _days(year, month, day)
    except ValueError:
        return None
    return (days * _DAY_S + hour * 3600 + minute * 60 + second) * _SECOND


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the proleptic Gregorian calendar; raise ValueError for no date."""
    # Python's calendar has the years 1 to 9999. Every 400 years the calendar is the same.
    era, year_of_era = divmod(year - 1, 400)
    return era * _ERA_DAYS + dt.date(year_of_era + 1, month, day).toordinal() - _EPOCH_ORDINAL


def date(days: int) -> Date:
    """Return the date of a number of days after 1970-01-01."""
    era, day_of_era = divmod(days + _EPOCH_ORDINAL - 1, _ERA_DAYS)
    found = dt.date.fromordinal(day_of_era + 1)
    return Date(found.year + era * 400, found.month, found.day)


_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
"""Names of the time zone database. Other texts must not reach zoneinfo, which imports a module for a name with a dot.
"""


def zone_offset_s(zone: str, nanos: int) -> int:
    """Return the seconds east of Greenwich at a time, for `+hh:mm` or a name of the time zone database."""
    there = _zone(zone)
    if isinstance(there, int):
        return there
    seconds = max(nanos // _SECOND, _ZONED_S[0])
    # Python's calendar may end during that day; four centuries earlier the calendar is the same
    if seconds > _ZONED_S[1]:
        seconds -= _ERA_DAYS * _DAY_S
    offset = dt.datetime.fromtimestamp(seconds, there).utcoffset()
    return offset.days * _DAY_S + offset.seconds if offset is not None else 0


@Remembered
def _zone(zone: str) -> int | ZoneInfo:
    """Return the offset of a fixed zone, or the zone."""
    hours, colon, minutes = zone.partition(":")
    if colon:
        whole, rest = _number(hours), _number(minutes)
        return (whole * 60 - rest if zone.startswith("-") else whole * 60 + rest) * 60
    if zone in {"", "UTC", "Local"}:
        return 0
    if ".." in zone or zone[0] in "/\\":
        raise EvalError("time: invalid location name")
    if not _ZONE_NAME.fullmatch(zone):
        raise EvalError(f"unknown time zone {zone}")
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvalError(f"unknown time zone {zone}") from None


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise EvalError(f"strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise EvalError(f"strconv.Atoi: parsing {quoted(text)}: value out of range")
    return int(text)
