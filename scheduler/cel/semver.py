"""Versions by semver.org, as selectors compare them."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import ClassVar, Final

from scheduler.cel.gotext import quoted

_DIGITS: Final = re.compile(r"[0-9]*")
_PLAIN: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})")
_WORD: Final = re.compile(r"[0-9A-Za-z-]+")
_UINT_MAX: Final = 2**64 - 1


@total_ordering
class Semver:
    """A version. Build metadata is read and forgotten: no comparison heeds it."""

    __slots__ = ("major", "minor", "patch", "prerelease")
    cel_type: ClassVar[str] = "kubernetes.Semver"

    def __init__(self, major: int, minor: int, patch: int, prerelease: tuple[int | str, ...] = ()) -> None:
        self.major, self.minor, self.patch = major, minor, patch
        self.prerelease = prerelease

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._rank() == other._rank()

    def __lt__(self, other: Semver) -> bool:
        return self._rank() < other._rank()

    def __hash__(self) -> int:
        return hash(self._rank())

    def __repr__(self) -> str:
        tail = "".join(f"{'.' if at else '-'}{each}" for at, each in enumerate(self.prerelease))
        return f"Semver({self.major}.{self.minor}.{self.patch}{tail})"

    def _rank(self) -> tuple[object, ...]:
        """A release comes after its pre-releases, words after numbers, and more after less."""
        words = tuple((1, 0, each) if isinstance(each, str) else (0, each, "") for each in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, words


def parse(text: str) -> Semver:
    """`1.2.3-rc.1+build`: three numbers without leading zeros, no `v`. Raises ValueError with upstream's text."""
    if plain := _PLAIN.fullmatch(text):
        return Semver(int(plain[1]), int(plain[2]), int(plain[3]))
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major = _number(parts[0], "major", "Major")
    minor = _number(parts[1], "minor", "Minor")
    rest, plus, build = parts[2].partition("+")
    number, dash, prerelease = rest.partition("-")
    patch = _number(number, "patch", "Patch")
    words = tuple(map(_word, prerelease.split("."))) if dash else ()
    for each in build.split(".") if plus else ():
        if not each:
            raise ValueError("Build meta data is empty")
        if not _WORD.fullmatch(each):
            raise ValueError(f"Invalid character(s) found in build meta data {quoted(each)}")
    return Semver(major, minor, patch, words)


def parse_tolerant(text: str) -> Semver:
    """As `parse`, but also with a `v` before it, with leading zeros, and of one or two numbers alone."""
    parts = [_without_zeros(each) for each in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return parse(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"


def _number(text: str, name: str, at_the_beginning: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {name} number {quoted(text)}")
    if len(text) > 1 and text.startswith("0"):
        raise ValueError(f"{at_the_beginning} number must not contain leading zeroes {quoted(text)}")
    return _uint(text)


def _uint(text: str) -> int:
    if not text:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > _UINT_MAX:
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return int(text)


def _word(text: str) -> int | str:
    if not text:
        raise ValueError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text.startswith("0"):
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {quoted(text)}")
        return _uint(text)
    if not _WORD.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return text
