"""Kubernetes' quantities: `quantity("10Gi")`."""

from __future__ import annotations

import re
from typing import Final

from scheduler.cel.libraries.declaring import function, member, traversal
from scheduler.cel.libraries.remembered import remembered
from scheduler.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING, Overload
from scheduler.cel.values import EvalError
from scheduler.core.quantity import Form, Quantity, of_int, parse

_MOST_DIGITS: Final = 15
_HALF: Final = 10**_MOST_DIGITS // 2
_WELL_FORMED: Final = re.compile(r"[+-]?[0-9]*(?:\.[0-9]*)?[eEinumkKMGTP]*[-+]?[0-9]*")
_WITHOUT_DIGITS: Final = re.compile(r"([+-]?)\.?([A-Za-z].*)?")
_ILL_FORMED_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _quantity(text: str) -> Quantity:
    """Raises EvalError."""
    found = _read(text)
    if type(found) is Quantity:
        return found
    raise EvalError(str(found))


@remembered
def _read(text: str) -> Quantity | EvalError:
    """No digits are a zero to upstream, as long as it reads the number the short way."""
    if text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS:
        return _whole(int(text))
    bare = _WITHOUT_DIGITS.fullmatch(text) if text else None
    try:
        found = parse(f"{bare[1]}0{bare[2] or ''}" if bare else text)
    except ValueError:
        is_well_formed = text and _WELL_FORMED.fullmatch(text)
        return EvalError("unable to parse quantity's suffix" if is_well_formed else _ILL_FORMED_TEXT)
    if bare and not found.form.is_small:
        return EvalError("unable to parse numeric part of quantity")
    return found


def _whole(number: int) -> Quantity:
    """Of at most so many digits: with them there is nothing to round and nothing too large."""
    return Quantity(value=number, milli=number * 10**3, nano=number * 10**9, form=Form(number, 0, is_small=True))


def _of_int(number: int) -> Quantity:
    return _whole(number) if abs(number) < 10**_MOST_DIGITS else of_int(number)


def _plus(one: Quantity, other: Quantity) -> Quantity:
    (number, exponent, is_small), (more, other_exponent, is_other_small) = one.form, other.form
    if exponent == other_exponent == 0 and is_small and is_other_small and max(abs(number), abs(more)) < _HALF:
        return _whole(number + more)
    return one.plus(other)


def _minus(one: Quantity, other: Quantity) -> Quantity:
    (number, exponent, is_small), (less, other_exponent, is_other_small) = one.form, other.form
    if exponent == other_exponent == 0 and is_small and is_other_small and max(abs(number), abs(less)) < _HALF:
        return _whole(number - less)
    return one.minus(other)


def _is_quantity(text: str) -> bool:
    return (text.isdecimal() and text.isascii()) or type(_read(text)) is Quantity


def _integer(value: Quantity) -> int:
    whole = value.as_int64()
    if whole is None:
        raise EvalError("cannot convert value to integer")
    return whole


def _order(one: Quantity, other: Quantity) -> int:
    return int(one.nano > other.nano) - int(one.nano < other.nano)


def _sign(value: Quantity) -> int:
    return int(value.nano > 0) - int(value.nano < 0)


_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)

QUANTITIES: Final[tuple[Overload, ...]] = (
    function("quantity", "string_to_quantity", ((STRING,), QUANTITY), _quantity, traversal),
    function("isQuantity", "is_quantity_string", ((STRING,), BOOL), _is_quantity, traversal),
    function("sign", "quantity_sign", ((QUANTITY,), INT), _sign),
    member("isGreaterThan", "quantity_is_greater_than", (_PAIR, BOOL), lambda one, other: one.nano > other.nano),
    member("isLessThan", "quantity_is_less_than", (_PAIR, BOOL), lambda one, other: one.nano < other.nano),
    member("compareTo", "quantity_compare_to", (_PAIR, INT), _order),
    member("asApproximateFloat", "quantity_get_float", ((QUANTITY,), DOUBLE), Quantity.as_float),
    member("asInteger", "quantity_get_int", ((QUANTITY,), INT), _integer),
    member("isInteger", "quantity_is_integer", ((QUANTITY,), BOOL), lambda value: value.as_int64() is not None),
    member("add", "quantity_add", (_PAIR, QUANTITY), _plus),
    member("add", "quantity_add_int", (_WITH_INT, QUANTITY), lambda value, more: _plus(value, _of_int(more))),
    member("sub", "quantity_sub", (_PAIR, QUANTITY), _minus),
    member("sub", "quantity_sub_int", (_WITH_INT, QUANTITY), lambda value, less: _minus(value, _of_int(less))),
)
