"""Literals of lists and maps, and whether something is in a list that is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from scheduler.cel.attributes import key_text
from scheduler.cel.costs import LIST_COST, MAP_COST, OBJECT_COST
from scheduler.cel.errors import EvalError
from scheduler.cel.running import Code, Run, go_type
from scheduler.cel.values import Optional, UInt, Value, key, type_name

_INTEGERS: Final = frozenset({int, UInt})
_SEARCHABLE: Final = frozenset({bool, int, UInt, float, str})


def built_list(elements: Sequence[Code], optional: frozenset[int]) -> Code:
    """`[a, ?b]`."""

    def evaluate(run: Run) -> Value:
        made: list[Value] = []
        try:
            for index, element in enumerate(elements):
                value = element(run)
                if index not in optional:
                    made.append(value)
                elif not isinstance(value, Optional):
                    text = f"cannot initialize optional list element from non-optional value {key_text(value)}"
                    raise EvalError(text)
                elif value.present:
                    made.append(value.value)
        finally:
            run.cost += LIST_COST
        return made

    return evaluate


def built_map(entries: Sequence[tuple[Code, Code]], optional: frozenset[int]) -> Code:
    """`{k: v, ?k: v}`."""

    def evaluate(run: Run) -> Value:
        made: dict[Value, Value] = {}
        try:
            for index, (name_code, value_code) in enumerate(entries):
                name = name_code(run)
                value = value_code(run)
                if index in optional:
                    if not isinstance(value, Optional):
                        start = f"cannot initialize optional entry '{key_text(name)}'"
                        raise EvalError(f"{start} from non-optional value {key_text(value)}")
                    if not value.present:
                        made.pop(key_of(name), None)
                        continue
                    value = value.value
                made[key_of(name)] = value
        finally:
            run.cost += MAP_COST
        return made

    return evaluate


def key_of(name: Value) -> Value:
    """As `key`, with upstream's error."""
    try:
        return key(name)
    except TypeError:
        raise EvalError(f"unsupported key type: {go_type(type_name(name))}") from None


def unbuildable(type_name: str, values: Sequence[Code]) -> Code:
    """`a.B{f: v}`: types with fields are only to be read, which upstream finds out at run time."""

    def evaluate(run: Run) -> Value:
        try:
            for value in values:
                value(run)
        finally:
            run.cost += OBJECT_COST
        raise EvalError(f"unknown type '{type_name.removeprefix('.')}'")

    return evaluate


def is_searchable(members: Sequence[Value]) -> bool:
    """Whether upstream makes a set of such a literal, so that looking into it is free."""
    return all(type(each) in _SEARCHABLE for each in members)


def member_of(element: Code, literal: Sequence[Value]) -> Code:
    """`element in literal`, of a searchable literal. It is free, so it must not be a search.

    As `contains`, to which an integer and a double are the same if the integer's nearest double is.
    """
    strings = frozenset(each for each in literal if type(each) is str)
    bools = frozenset(each for each in literal if type(each) is bool)
    integers = frozenset(int(each) for each in literal if type(each) in _INTEGERS)
    doubles = frozenset(each for each in literal if type(each) is float and not math.isnan(each))
    nearest = doubles | frozenset(map(float, integers))

    def evaluate(run: Run) -> Value:
        value = element(run)
        class_ = type(value)
        if class_ is str:
            return value in strings
        if class_ is bool:
            return value in bools
        if class_ in _INTEGERS:
            return value in integers or float(value) in doubles
        return class_ is float and value in nearest

    return evaluate
