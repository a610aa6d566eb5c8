"""Reading an IP address as Go's netip does, with its reasons for a refusal."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from scheduler.cel.go_format import quoted

_HEX: Final = re.compile(r"[0-9a-fA-F]*")
_FIELD = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN: Final = re.compile(rf"{_FIELD}(?:\.{_FIELD}){{3}}")
_GROUPS: Final = 8


class BadAddress(ValueError):
    """Not an address. The text is Go's."""


def parse_address(text: str) -> tuple[IPv4Address | IPv6Address, str]:
    """The address, and the zone behind a percent sign or ""."""
    if _PLAIN.fullmatch(text):
        return IPv4Address(bytes(map(int, text.split(".")))), ""
    for each in text:
        if each == ".":
            return IPv4Address(bytes(_v4_fields(text, text))), ""
        if each == ":":
            return _v6(text)
        if each == "%":
            raise _bad(text, "missing IPv6 address")
    raise _bad(text, "unable to parse IP")


def _bad(text: str, why: str, at: str = "") -> BadAddress:
    return BadAddress(f"ParseAddr({quoted(text)}): {why}" + (f" (at {quoted(at)})" if at else ""))


def _v4_fields(whole: str, text: str) -> list[int]:
    fields: list[int] = []
    value = digits = 0
    for at, each in enumerate(text):
        if "0" <= each <= "9":
            if digits == 1 and value == 0:
                raise _bad(whole, "IPv4 field has octet with leading zero")
            value = value * 10 + int(each)
            digits += 1
            if value > 255:
                raise _bad(whole, "IPv4 field has value >255")
        elif each == ".":
            if at in {0, len(text) - 1} or text[at - 1] == ".":
                raise _bad(whole, "IPv4 field must have at least one digit", text[at:])
            if len(fields) == 3:
                raise _bad(whole, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
        else:
            raise _bad(whole, "unexpected character", text[at:])
    if len(fields) < 3:
        raise _bad(whole, "IPv4 address too short")
    return [*fields, value]


def _v6(whole: str) -> tuple[IPv6Address, str]:
    rest, percent, zone = whole.partition("%")
    if percent and not zone:
        raise _bad(whole, "zone must be a non-empty string")
    groups: list[int] = []
    gap: int | None = None
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
    while rest and len(groups) < _GROUPS:
        if (embedded := _embedded(whole, rest, groups, gap)) is not None:
            groups, rest = embedded, ""
            break
        group, rest = _group(whole, rest)
        groups.append(group)
        if rest.startswith("::"):
            if gap is not None:
                raise _bad(whole, "multiple :: in address", rest[1:])
            gap, rest = len(groups), rest[2:]
        elif rest:
            rest = rest[1:]
    if rest:
        raise _bad(whole, "trailing garbage after address", rest)
    return _filled(whole, groups, gap), zone


def _embedded(whole: str, rest: str, groups: list[int], gap: int | None) -> list[int] | None:
    """The groups with the IPv4 address that the rest begins with; None if it does not."""
    digits = _HEX.match(rest)
    assert digits is not None
    if not digits[0] or rest[digits.end() : digits.end() + 1] != ".":
        return None
    _checked(whole, rest, digits[0])
    if gap is None and len(groups) != _GROUPS - 2:
        raise _bad(whole, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if len(groups) > _GROUPS - 2:
        raise _bad(whole, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    one, two, three, four = _v4_fields(whole, rest)
    return [*groups, one << 8 | two, three << 8 | four]


def _group(whole: str, rest: str) -> tuple[int, str]:
    """One group, and what follows, which is a colon and more, or nothing."""
    digits = _HEX.match(rest)
    assert digits is not None
    if not digits[0]:
        raise _bad(whole, "each colon-separated field must have at least one digit", rest)
    _checked(whole, rest, digits[0])
    after = rest[digits.end() :]
    if after and not after.startswith(":"):
        raise _bad(whole, "unexpected character, want colon", after)
    if after == ":":
        raise _bad(whole, "colon must be followed by more characters", after)
    return int(digits[0], 16), after


def _checked(whole: str, rest: str, digits: str) -> None:
    if len(digits) > 4:
        raise _bad(whole, "each group must have 4 or less digits", rest)


def _filled(whole: str, groups: list[int], gap: int | None) -> IPv6Address:
    missing = _GROUPS - len(groups)
    if missing and gap is None:
        raise _bad(whole, "address string too short")
    if not missing and gap is not None:
        raise _bad(whole, "the :: must expand to at least one field of zeros")
    at = gap or 0
    full = groups[:at] + [0] * missing + groups[at:]
    return IPv6Address(b"".join(each.to_bytes(2, "big") for each in full))
