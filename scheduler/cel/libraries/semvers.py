"""Kubernetes' versions: `semver("1.2.3")`.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/semverlib.go SemverLib
"""

from __future__ import annotations

import operator
import re
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from scheduler.cel.check.types import BOOL, INT, SEMVER, STRING, Overload
from scheduler.cel.go_format import quoted
from scheduler.cel.libraries.declaring import Remembered, function, member

_DIGITS: Final = re.compile(r"[0-9]*")
_WORD: Final = re.compile(r"[0-9A-Za-z-]+")
_UINT_MAX: Final = 2**64 - 1


_RELEASE: Final = (1,)
"""The pre-release of a release, which orders it after its pre-releases."""
_Words: TypeAlias = tuple[int | tuple[int, int | str], ...]


class Semver(Struct, frozen=True, order=True):
    """A version. Build metadata is parsed and dropped, because no comparison uses it.

    `prerelease` is 0 and its identifiers. Each identifier is a pair, with 0 for a number and 1 for a word, because
    numbers come before words.
    """

    major: int
    minor: int
    patch: int
    prerelease: _Words = _RELEASE
    cel_type: ClassVar[str] = "kubernetes.Semver"


def parse(text: str) -> Semver:
    """Parse `1.2.3-rc.1+build`: three numbers without leading zeros, no `v`. Raise ValueError with upstream's text."""
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
    words: _Words = (0, *map(_word, prerelease.split("."))) if dash else _RELEASE
    for each in build.split(".") if plus else ():
        if not each:
            raise ValueError("Build meta data is empty")
        if not _WORD.fullmatch(each):
            raise ValueError(f"Invalid character(s) found in build meta data {quoted(each)}")
    return Semver(major, minor, patch, words)


def _parse_tolerant(text: str) -> Semver:
    """Parse as `parse`, but also accept a leading `v`, leading zeros, and only one or two numbers."""
    parts = [_without_zeros(each) for each in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return parse(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _without_zeros(part: str) -> str:
    if len(part) < 2 and part.isascii():
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


def _word(text: str) -> tuple[int, int | str]:
    if not text:
        raise ValueError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text.startswith("0"):
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {quoted(text)}")
        return 0, _uint(text)
    if not _WORD.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return 1, text


_strict: Final = Remembered(parse)
_tolerant: Final = Remembered(_parse_tolerant)


def _semver(text: str, normalize: bool) -> Semver:
    return _tolerant(text) if normalize else _strict(text)


def _is_semver(text: str, normalize: bool) -> bool:
    return (_tolerant if normalize else _strict).accepts(text)


def _order(one: Semver, other: Semver) -> int:
    return (one > other) - (one < other)


def _int64(number: int) -> int:
    """Return the number as a signed 64-bit integer; as in upstream, a large one wraps."""
    return number if number < 2**63 else number - 2**64


_PAIR: Final = (SEMVER, SEMVER)

SEMVERS: Final[tuple[Overload, ...]] = (
    function("semver", "string_to_semver", ((STRING,), SEMVER), _strict),
    function("semver", "string_bool_to_semver", ((STRING, BOOL), SEMVER), _semver),
    function("isSemver", "is_semver_string", ((STRING,), BOOL), _strict.accepts),
    function("isSemver", "is_semver_string_bool", ((STRING, BOOL), BOOL), _is_semver),
    member("isGreaterThan", "semver_is_greater_than", (_PAIR, BOOL), operator.gt),
    member("isLessThan", "semver_is_less_than", (_PAIR, BOOL), operator.lt),
    member("compareTo", "semver_compare_to", (_PAIR, INT), _order),
    member("major", "semver_major", ((SEMVER,), INT), lambda version: _int64(version.major)),
    member("minor", "semver_minor", ((SEMVER,), INT), lambda version: _int64(version.minor)),
    member("patch", "semver_patch", ((SEMVER,), INT), lambda version: _int64(version.patch)),
)
