"""Variables and selections from them: `a.b`, `a["b"]`, `a.?b`, `has(a.b)`.

A chain of selections is one step, as in cel-go. An optional selection makes all following ones optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler.cel.errors import EvalError, NoSuchKey
from scheduler.cel.eval.running import Code, Failed, Run, go_type
from scheduler.cel.go_format import scalar
from scheduler.cel.values import NONE, Optional, UInt, Value, key, type_name

MISSING: Final = object()
"""The result of `find` if there is no value."""
_KEYS: Final = frozenset({str, int, bool, UInt, float})


class Qualifier(msgspec.Struct, frozen=True):
    """One selection. The key is a constant, or the code that computes it."""

    constant: Value = None
    code: Code | None = None
    is_optional: bool = False
    is_test: bool = False


class Attribute(msgspec.Struct, frozen=True):
    """The base and the selections of a chain."""

    base: Code
    qualifiers: tuple[Qualifier, ...] = ()

    def qualified(self, qualifier: Qualifier) -> Attribute:
        """Return the chain with one more selection."""
        return Attribute(self.base, (*self.qualifiers, qualifier))

    def resolved(self) -> Code:
        """Return the code of the chain."""
        if not self.qualifiers:
            return self.base
        if all(_is_plain(each) for each in self.qualifiers):
            return _plain(self.base, tuple(each.constant for each in self.qualifiers))
        return _general(self.base, self.qualifiers)


def global_variable(name: str) -> Code:
    """Return the code that reads a variable of the caller."""

    def read(run: Run) -> Value:
        try:
            return run.bindings[name]
        except KeyError:
            raise EvalError(f"no such attribute(s): {name}") from None

    return read


def iteration_variable(slot: int) -> Code:
    """Return the code that reads the current item of a loop."""
    return lambda run: run.slots[slot]


def accumulator(slot: int, init: Code, *, grows: bool) -> Code:
    """Return the code that reads the accumulator of a loop. As upstream, its first value is computed at the first read.

    With `grows`, an empty initial list or map is private to the loop, and steps may add to it in place.
    """

    def read(run: Run) -> Value:
        value = run.slots[slot]
        if value is UNSET:
            try:
                value = init(run)
            except EvalError as error:
                value = Failed(str(error))
            if grows and not value and type(value) in _GROWN:
                value = _GROWN[type(value)]()
            run.slots[slot] = value
        if type(value) is Failed:
            raise EvalError(value.text)
        return value

    return read


UNSET: Final = object()
"""The value of an accumulator's slot before its first read."""


class Growing(list[Value]):
    """A list that is private to its loop until the loop ends."""

    __slots__ = ()


class GrowingMap(dict[Value, Value]):
    """A map that is private to its loop until the loop ends."""

    __slots__ = ()


_GROWN: Final[Mapping[type, type]] = {list: Growing, dict: GrowingMap}


def grown(value: Value) -> Value:
    """Return the result of a loop as an ordinary list or map."""
    if type(value) is Growing:
        return list(value)
    return dict(value) if type(value) is GrowingMap else value


def pick(holder: Value, name: Value) -> Value:
    """Return `holder[name]`; raise upstream's error if there is none."""
    found = find(holder, name)
    if found is not MISSING:
        return found
    if isinstance(holder, list | tuple):
        raise EvalError(f"index out of bounds: {scalar(name)}")
    raise NoSuchKey(f"no such key: {scalar(name)}")


def is_key(name: Value) -> bool:
    """Return whether a value can be used as a key or an index."""
    return type(name) in _KEYS


def find(holder: Value, name: Value) -> Value:
    """Return `holder[name]`, or MISSING."""
    if not is_key(name):
        raise EvalError(f"invalid qualifier type: {go_type(type_name(name))}")
    if isinstance(holder, dict | Mapping):
        try:
            return holder[name if type(name) is str else key(name)]
        except KeyError:
            return MISSING
    if isinstance(holder, list | tuple):
        index = _index(name)
        return holder[index] if 0 <= index < len(holder) else MISSING
    return MISSING


def _index(name: Value) -> int:
    if isinstance(name, bool | str):
        raise EvalError(f"unsupported index type '{type_name(name)}' in list")
    is_lossless = name.is_integer() if isinstance(name, float) else name < 1 << 63
    if not is_lossless:
        raise EvalError(f"unsupported index value {scalar(name)} in list")
    return int(name)


def _is_plain(qualifier: Qualifier) -> bool:
    return qualifier.code is None and not qualifier.is_optional and not qualifier.is_test


def _plain(base: Code, names: tuple[Value, ...]) -> Code:
    """Return the code of a chain with only constant keys, as in nearly every device selector."""
    as_general = tuple(Qualifier(each) for each in names)
    keys = tuple(map(key, names))

    def resolve(run: Run) -> Value:
        start = holder = base(run)
        try:
            for each in keys:
                if not isinstance(holder, dict):
                    return _walk(run, start, as_general)
                holder = holder[each]
        except KeyError:
            return _walk(run, start, as_general)
        run.cost += 1
        return holder

    return resolve


def _general(base: Code, qualifiers: tuple[Qualifier, ...]) -> Code:
    return lambda run: _walk(run, base(run), qualifiers)


def _walk(run: Run, holder: Value, qualifiers: tuple[Qualifier, ...]) -> Value:
    run.cost += 1
    is_optional = isinstance(holder, Optional)
    if is_optional:
        if not holder.present:
            return False if qualifiers[-1].is_test else NONE
        holder = holder.value
    for each in qualifiers:
        is_optional = is_optional or each.is_optional
        name = each.constant if each.code is None else each.code(run)
        if each.is_test:
            return find(holder, name) is not MISSING
        if not is_optional:
            holder = pick(holder, name)
            continue
        holder = find(holder, name)
        if holder is MISSING:
            return False if qualifiers[-1].is_test else NONE
    return Optional(holder) if is_optional else holder
