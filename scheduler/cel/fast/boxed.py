"""Durations, moments and unsigned integers in generated source: numbers, made values only where somebody needs these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.cel.fast.writer import BOOL, DURATION, TIMESTAMP, UINT, Kind, Term, Writer
from scheduler.cel.libraries.times import FIRST_S, LAST_S, SECOND
from scheduler.cel.values import Duration, Timestamp, UInt

BOXED: Final = frozenset({DURATION, TIMESTAMP, UINT})
_INT_MAX: Final = 2**63 - 1
_UINT_MAX: Final = 2**64 - 1
_ORDERS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_SUMS: Final = {"_+_": "+", "_-_": "-"}
_ARITHMETIC: Final = {**_SUMS, "_*_": "*", "_/_": "//", "_%_": "%"}
_BY_ZERO: Final = {"_/_": "division by zero", "_%_": "modulus by zero"}


def number_of(write: Writer, term: Term) -> str:
    """What is in it. An unsigned integer is one to Python, too."""
    if term.number:
        return term.number
    named = write.named(term).text
    return named if term.kind == UINT else f"{named}.nanos"


def operation(write: Writer, name: str, args: Sequence[Term]) -> Term | None:
    """Their order, sum, and so on. None for anything else."""
    one, other = args
    if one.kind == other.kind and one.kind in BOXED:
        if name in _ORDERS:
            write.charge(1)
            return Term(f"({number_of(write, one)} {_ORDERS[name]} {number_of(write, other)})", BOOL)
        if one.kind == UINT:
            return _unsigned(write, name, args) if name in _ARITHMETIC else None
        return _duration(write, name, args) if name in _SUMS and (name, one.kind) != ("_+_", TIMESTAMP) else None
    if name == "_+_" and (one.kind, other.kind) == (DURATION, TIMESTAMP):
        return _moved(write, name, other, one)
    if name in _SUMS and (one.kind, other.kind) == (TIMESTAMP, DURATION):
        return _moved(write, name, one, other)
    return None


def moment(write: Writer, seconds: Term) -> Term:
    """So many seconds after the beginning of 1970."""
    made = write.let(f"{seconds.text} * {SECOND}").text
    write.charge(1)
    write.fails(f"not {FIRST_S * SECOND} <= {made} <= {LAST_S * SECOND}", "'timestamp overflow'")
    return _boxed(write, Timestamp, TIMESTAMP, made)


def _boxed(write: Writer, class_: type, kind: Kind, number: str) -> Term:
    return Term(f"{write.held(class_)}({number})", kind, number=number)


def _unsigned(write: Writer, name: str, args: Sequence[Term]) -> Term:
    one, other = (number_of(write, each) for each in args)
    write.charge(1)
    if name in _BY_ZERO:
        write.fails(f"{other} == 0", repr(_BY_ZERO[name]))
    made = write.let(f"{one} {_ARITHMETIC[name]} {other}").text
    if name not in _BY_ZERO:
        write.fails(f"not 0 <= {made} <= {_UINT_MAX}", "'unsigned integer overflow'")
    return _boxed(write, UInt, UINT, made)


def _duration(write: Writer, name: str, args: Sequence[Term]) -> Term:
    one, other = (number_of(write, each) for each in args)
    made = write.let(f"{one} {_SUMS[name]} {other}").text
    write.charge(1)
    write.fails(f"not {-_INT_MAX - 1} <= {made} <= {_INT_MAX}", "'integer overflow'")
    return _boxed(write, Duration, DURATION, made)


def _moved(write: Writer, name: str, time: Term, by: Term) -> Term:
    """A moment, so much later or earlier, written in the same zone."""
    if not time.number:
        time = write.named(time)
    offset = time.offset if time.number else f"{time.text}.offset_s"
    length = number_of(write, by)
    made = write.let(f"{number_of(write, time)} {_SUMS[name]} {length}").text
    write.charge(1)
    if name == "_-_":
        write.fails(f"{length} == {-_INT_MAX - 1}", "'integer overflow'")
    write.fails(f"not {FIRST_S * SECOND} <= {made} < {(LAST_S + 1) * SECOND}", "'timestamp overflow'")
    return Term(f"{write.held(Timestamp)}({made}, {offset})", TIMESTAMP, number=made, offset=offset)
