"""Dates and times of day of moments, in the calendar that Go uses: also where a zone leads out of years 1 to 9999."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from time import gmtime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler.cel.gotext import quoted
from scheduler.cel.values import EvalError

_SECOND: Final = 10**9
_DAY_S: Final = 86400
_SYSTEM_S: Final = 3 * 10**11
"""As far from 1970 the system's own calendar, which is quicker, is surely right: more than nine thousand years."""
_ERA_DAYS: Final = 146097
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZONED_S: Final = (-62000000000, 253300000000)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


class Moment(NamedTuple):
    """Months and days from 1; the day of the year and of the week (Sunday) from 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    millisecond: int
    day_of_year: int
    day_of_week: int


def moment(nanos: int, offset_s: int) -> Moment:
    """What calendar and clock show, so many seconds east of Greenwich."""
    seconds, rest = divmod(nanos, _SECOND)
    seconds += offset_s
    if -_SYSTEM_S < seconds < _SYSTEM_S:
        year, month, day, hour, minute, second, day_of_week, day_of_year, _ = gmtime(seconds)
        return Moment(year, month, day, hour, minute, second, rest // 10**6, day_of_year - 1, (day_of_week + 1) % 7)
    days, second = divmod(seconds, _DAY_S)
    year, month, day = _date(days)
    since_new_year = days - _days(year, 1, 1)
    hour, minute = second // 3600, second // 60 % 60
    return Moment(year, month, day, hour, minute, second % 60, rest // 10**6, since_new_year, (days + 4) % 7)


def nanos_of(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:  # noqa: PLR0917
    """The moment of a date and time in UTC; None if there is no such."""
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 60):
        return None
    days = _days(year, month, day)
    if day < 1 or _date(days) != (year, month, day):
        return None
    return (days * _DAY_S + hour * 3600 + minute * 60 + second) * _SECOND


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, in the proleptic Gregorian calendar; years begin in March here."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def _date(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719468, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = (month_from_march + 2) % 12 + 1
    return year_of_era + era * 400 + (month <= 2), month, day


def zone_offset_s(zone: str, nanos: int) -> int:
    """Seconds east of Greenwich at a moment, for `+hh:mm` or a name of the time zone database."""
    hours, colon, minutes = zone.partition(":")
    if colon:
        whole, rest = _number(hours), _number(minutes)
        return (whole * 60 - rest if zone.startswith("-") else whole * 60 + rest) * 60
    if zone in {"", "UTC", "Local"}:
        return 0
    if ".." in zone or zone[0] in "/\\":
        raise EvalError("time: invalid location name")
    try:
        there = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvalError(f"unknown time zone {zone}") from None
    seconds = min(max(nanos // _SECOND, _ZONED_S[0]), _ZONED_S[1])
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(there).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise EvalError(f"strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise EvalError(f"strconv.Atoi: parsing {quoted(text)}: value out of range")
    return int(text)
