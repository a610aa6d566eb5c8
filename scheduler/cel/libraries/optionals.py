"""Optional values, and the functions in expansions of macros with two variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scheduler.cel.check.types import BOOL, DYN, INT, STRING, Overload, Type, list_of, map_of, optional_of
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import scalar
from scheduler.cel.libraries.declaring import function, member, of_the_plan
from scheduler.cel.values import NONE, Duration, Optional, Timestamp, UInt, Value, key, type_name

_EMPTY_OR_NOT: Final = frozenset({type(None), bool, int, UInt, float, str, bytes, list, dict})
_YEAR_1_NANOS: Final = -62135596800 * 10**9


def _of_non_zero(value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Value) -> bool:
    class_ = type(value)
    if class_ in _EMPTY_OR_NOT:
        return not value
    if class_ is Timestamp:
        return bool(value.nanos == _YEAR_1_NANOS)
    if class_ is Duration:
        return bool(value.nanos == 0)
    return isinstance(value, list | tuple | Mapping) and not value


def _value(optional: Optional) -> Value:
    if not optional.present:
        raise EvalError("optional.none() dereference")
    return optional.value


def _unwrapped(optionals: Sequence[Value]) -> list[Value]:
    for each in optionals:
        if not isinstance(each, Optional):
            raise EvalError(f"value {scalar(each)} is not optional")
    return [each.value for each in optionals if each.present]


def _first(values: Sequence[Value]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: Sequence[Value]) -> Optional:
    return Optional(values[-1]) if values else NONE


def _inserted(entries: Mapping[Any, Value], name: Value, value: Value) -> dict[Any, Value]:
    if _hashed(name) in entries:
        raise EvalError(f"insert failed: key {scalar(name)} already exists")
    return {**entries, _hashed(name): value}


def _hashed(name: Value) -> Value:
    try:
        return key(name)
    except TypeError:
        raise EvalError(f"unsupported key type: {type_name(name)}") from None


def _merged(entries: Mapping[Any, Value], more: Mapping[Any, Value]) -> dict[Any, Value]:
    for name in more:
        if name in entries:
            raise EvalError(f"insert failed: key {scalar(getattr(name, 'value', name))} already exists")
    return {**entries, **more}


_K: Final = Type("K")
_V: Final = Type("V")
_OPTIONAL: Final = optional_of(_V)
_LIST: Final = list_of(_V)
_MAP: Final = map_of(_K, _V)

OPTIONALS: Final[tuple[Overload, ...]] = (
    function("optional.of", "optional_of", ((_V,), _OPTIONAL), Optional),
    function("optional.ofNonZeroValue", "optional_ofNonZeroValue", ((_V,), _OPTIONAL), _of_non_zero),
    function("optional.none", "optional_none", ((), _OPTIONAL), lambda: NONE),
    member("value", "optional_value", ((_OPTIONAL,), _V), _value),
    member("hasValue", "optional_hasValue", ((_OPTIONAL,), BOOL), lambda optional: optional.present),
    member("or", "optional_or_optional", ((_OPTIONAL, _OPTIONAL), _OPTIONAL), of_the_plan),
    member("orValue", "optional_orValue_value", ((_OPTIONAL, _V), _V), of_the_plan),
    function("_?._", "select_optional_field", ((DYN, STRING), _OPTIONAL), of_the_plan),
    function("_[?_]", "list_optindex_optional_int", ((_LIST, INT), _OPTIONAL), of_the_plan),
    function("_[?_]", "optional_list_optindex_optional_int", ((optional_of(_LIST), INT), _OPTIONAL), of_the_plan),
    function("_[?_]", "map_optindex_optional_value", ((_MAP, _K), _OPTIONAL), of_the_plan),
    function("_[?_]", "optional_map_optindex_optional_value", ((optional_of(_MAP), _K), _OPTIONAL), of_the_plan),
    function("_[_]", "optional_list_index_int", ((optional_of(_LIST), INT), _OPTIONAL), of_the_plan),
    function("_[_]", "optional_map_index_value", ((optional_of(_MAP), _K), _OPTIONAL), of_the_plan),
    member("first", "list_first", ((_LIST,), _OPTIONAL), _first),
    member("last", "list_last", ((_LIST,), _OPTIONAL), _last),
    function("optional.unwrap", "optional_unwrap", ((list_of(_OPTIONAL),), _LIST), _unwrapped),
    member("unwrapOpt", "optional_unwrapOpt", ((list_of(_OPTIONAL),), _LIST), _unwrapped),
)

TWO_VARIABLES: Final[tuple[Overload, ...]] = (
    function("cel.@mapInsert", "@mapInsert_map_key_value", ((_MAP, _K, _V), _MAP), _inserted),
    function("cel.@mapInsert", "@mapInsert_map_map", ((_MAP, _MAP), _MAP), _merged),
)
