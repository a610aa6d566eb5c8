"""`metav1.Duration`: the text form of Go's time.Duration, to and from seconds. Exact to the nanosecond up to 100 days."""

from __future__ import annotations

import re
from typing import Final

_UNIT_NS: Final = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ns": 1,
}
_TERM: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(h|ms|m|s|us|µs|μs|ns)")
_WHOLE: Final = re.compile(r"[-+]?(?:0|(?:[0-9.]+(?:h|ms|m|s|us|µs|μs|ns))+)")
_MAX_NS: Final = 2**63 - 1


def parse_duration_s(text: str) -> float:
    """`"1m30s"` → 90.0. Raises ValueError saying what a duration looks like."""
    if not _WHOLE.fullmatch(text):
        raise ValueError('must be a duration such as "15s" or "1m30s"')
    body = text.lstrip("+-")
    if body == "0":
        return 0.0
    total_ns, at = 0, 0
    while at < len(body):
        term = _TERM.match(body, at)
        if term is None:
            raise ValueError('must be a duration such as "15s" or "1m30s"')
        whole, fraction, unit = term.groups()
        total_ns += int(whole or "0") * _UNIT_NS[unit]
        if fraction:
            total_ns += int(fraction) * _UNIT_NS[unit] // 10 ** len(fraction)
        at = term.end()
    if total_ns > _MAX_NS:
        raise ValueError("is too long for a duration (more than 292 years)")
    return (-total_ns if text.startswith("-") else total_ns) / 1_000_000_000


def format_duration(seconds: float) -> str:
    """90.0 → `"1m30s"`, as Go prints it."""
    total_ns = round(seconds * 1_000_000_000)
    sign, rest_ns = ("-", -total_ns) if total_ns < 0 else ("", total_ns)
    if rest_ns == 0:
        return "0s"
    if rest_ns < _UNIT_NS["s"]:
        unit = next(u for u in ("ms", "µs", "ns") if rest_ns >= _UNIT_NS[u])
        return f"{sign}{_decimal(rest_ns, _UNIT_NS[unit])}{unit}"
    hours, rest_ns = divmod(rest_ns, _UNIT_NS["h"])
    minutes, rest_ns = divmod(rest_ns, _UNIT_NS["m"])
    text = f"{_decimal(rest_ns, _UNIT_NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(amount_ns: int, unit_ns: int) -> str:
    whole, rest = divmod(amount_ns, unit_ns)
    digits = len(str(unit_ns)) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
