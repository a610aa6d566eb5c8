"""Kubernetes' versions: `semver("1.2.3")`."""

from __future__ import annotations

import operator
from typing import Final

from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.declaring import function, member, traversal
from scheduler.cel.libraries.remembered import remembered
from scheduler.cel.semver import Semver, is_tolerable, is_version, parse, parse_tolerant
from scheduler.cel.types import BOOL, INT, SEMVER, STRING, Overload


def _semver(text: str, normalize: bool = False) -> Semver:
    found = _read_tolerantly(text) if normalize else _read(text)
    if type(found) is Semver:
        return found
    raise EvalError(str(found))


@remembered
def _read(text: str) -> Semver | str:
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


@remembered
def _read_tolerantly(text: str) -> Semver | str:
    try:
        return parse_tolerant(text)
    except ValueError as error:
        return str(error)


def _is_semver(text: str, normalize: bool) -> bool:
    return is_tolerable(text) if normalize else is_version(text)


def _order(one: Semver, other: Semver) -> int:
    return (one > other) - (one < other)


def _int64(number: int) -> int:
    """Upstream lets the bits of a large one become a sign."""
    return number if number < 2**63 else number - 2**64


_PAIR: Final = (SEMVER, SEMVER)

SEMVERS: Final[tuple[Overload, ...]] = (
    function("semver", "string_to_semver", ((STRING,), SEMVER), _semver, traversal),
    function("semver", "string_bool_to_semver", ((STRING, BOOL), SEMVER), _semver, traversal),
    function("isSemver", "is_semver_string", ((STRING,), BOOL), is_version, traversal),
    function("isSemver", "is_semver_string_bool", ((STRING, BOOL), BOOL), _is_semver, traversal),
    member("isGreaterThan", "semver_is_greater_than", (_PAIR, BOOL), operator.gt),
    member("isLessThan", "semver_is_less_than", (_PAIR, BOOL), operator.lt),
    member("compareTo", "semver_compare_to", (_PAIR, INT), _order),
    member("major", "semver_major", ((SEMVER,), INT), lambda version: _int64(version.major)),
    member("minor", "semver_minor", ((SEMVER,), INT), lambda version: _int64(version.minor)),
    member("patch", "semver_patch", ((SEMVER,), INT), lambda version: _int64(version.patch)),
)
