"""Function calls: selection of the overload by the arguments' run-time types, and upstream's error if none fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from scheduler.cel.check.types import Overload, Type, is_dyn, is_variable
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.attributes import Growing
from scheduler.cel.eval.logic import NO_SUCH_OVERLOAD
from scheduler.cel.eval.running import Code, Run
from scheduler.cel.go_format import scalar
from scheduler.cel.values import UInt, Value, type_name, unkey

_NUMBERS: Final = frozenset({"int", "uint", "double"})
_TIMES: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_COMPARABLE: Final = _NUMBERS | _TIMES | {"bool", "string", "bytes"}
_RECEIVERS: Final = _TIMES | {"string"}
_BY_TRAIT: Final[Mapping[str, frozenset[str]]] = {
    "_+_": _NUMBERS | _TIMES | {"string", "bytes", "list"},
    "_-_": _NUMBERS | _TIMES,
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": frozenset({"int", "uint"}),
    "-_": frozenset({"int", "double", "bool"}),
    "_<_": _COMPARABLE,
    "_<=_": _COMPARABLE,
    "_>_": _COMPARABLE,
    "_>=_": _COMPARABLE,
    "sort": frozenset({"list"}),
    "@sortByAssociatedKeys": frozenset({"list"}),
    "size": frozenset({"string", "bytes", "list", "map"}),
    "matches": frozenset({"string"}),
    "contains": frozenset(),
    "startsWith": frozenset(),
    "endsWith": frozenset(),
    "@in": frozenset(),
}
"""Functions that upstream implements once for all their overloads, and the types that support them.

For these functions, the overload that the checker found does not matter.
"""
_CHARACTERS_PER_STEP: Final = 10
"""Characters or elements of the first argument that cost as much as one step."""
_LONG: Final = 256
"""Elements or characters. The deadline is checked before a longer call: some functions take a microsecond per character."""
_INVOCATIONS: Final = 4096
"""More than the number of overloads and of the checker's choices among them."""
_SIZED: Final = frozenset({list, str, bytes})
_UNGUARDED: Final = frozenset({"flatten", "sort", "@sortByAssociatedKeys"})
"""Functions that check the elements of a list themselves, independently of their overloads."""
_NAMELESS: Final = frozenset({"@in", "contains", "endsWith", "startsWith"})
"""Functions whose error texts do not contain the function's name."""
_CLASSES: Final[Mapping[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null_type": type(None),
}

_Function: TypeAlias = Callable[..., Value]
_DECISIVE: Final = frozenset(_CLASSES.values())
_Fits = Callable[[Value], bool]


def call(
    overloads: tuple[Overload, ...],
    possible: tuple[Overload, ...],
    args: tuple[Code, ...],
    *,
    is_nameless: bool = False,
) -> Code:
    """Return the code of a call. `possible` are the overloads that the checker found.

    `is_nameless`: upstream has a special form of this call, whose errors do not name the function.
    """
    name = possible[0].name
    invoke = _invocation(overloads, possible, len(args), is_nameless=is_nameless)
    if name == "cel.@mapInsert":
        return _insertion(invoke, args)
    if len(args) == 1:
        return _unary(invoke, args[0])
    if len(args) == 2 and not is_nameless and (len(possible) == 1 or name in _BY_TRAIT):
        return _binary(invoke, *args)
    return _of_many(invoke, args)


@lru_cache(maxsize=_INVOCATIONS)
def _invocation(
    overloads: tuple[Overload, ...], possible: tuple[Overload, ...], count: int, *, is_nameless: bool = False
) -> Invocation:
    """Return the stateless callable of a call with `count` arguments. Equal calls share one."""
    name = possible[0].name
    candidates = possible if len(possible) == 1 and name not in _BY_TRAIT else dict.fromkeys((*possible, *overloads))
    of_this_size = [each for each in candidates if len(each.params) == count]
    return Invocation(of_this_size, is_nameless=is_nameless or name in _NAMELESS)


class Invocation:
    """A function with its possible overloads."""

    __slots__ = ("_candidates", "_chosen", "_is_nameless", "_name", "_refused")

    def __init__(self, candidates: Sequence[Overload], *, is_nameless: bool) -> None:
        self._name = candidates[0].name
        self._is_nameless = is_nameless
        self._candidates = [(each, [_fitting(param) for param in each.params]) for each in candidates]
        self._chosen: dict[tuple[type, ...], _Function] = {}
        """The function of the overload by the classes of the arguments, if they determine it."""
        self._refused: dict[tuple[type, ...], str] = {}

    def __call__(self, run: Run, *args: Value) -> Value:
        call = self._chosen.get(tuple(map(type, args))) or self._choose(args)
        run.cost += 1
        if args and type(args[0]) in _SIZED:
            run.cost += len(args[0]) // _CHARACTERS_PER_STEP
            if len(args[0]) > _LONG:
                run.work(len(args[0]))
        result = call(*args)
        if type(result) in _SIZED:
            run.made(result)
            if type(result) is list:
                run.cost += len(result)
        if run.cost > run.next_check:
            run.check()
        return result

    def _choose(self, args: Sequence[Value]) -> _Function:
        classes = tuple(map(type, args))
        if classes in self._refused:
            raise EvalError(self._refused[classes])
        for overload, fits in self._candidates:
            if all(fit(each) for fit, each in zip(fits, args)):
                if all(map(_is_decisive, classes)):
                    self._chosen[classes] = overload.call
                return overload.call
        if self._name in _UNGUARDED and isinstance(args[0], list | tuple):
            return self._candidates[0][0].call
        text = self._unfit(args)
        if all(map(_is_decisive, classes)):
            self._refused[classes] = text
        raise EvalError(text)

    def _unfit(self, args: Sequence[Value]) -> str:
        if self._is_nameless:
            return NO_SUCH_OVERLOAD
        able = _BY_TRAIT.get(self._name)
        names = [type_name(each) for each in args]
        if self._name == "flatten":
            target = "map(dyn, dyn)" if names[0] == "map" else names[0]
            return f"{NO_SUCH_OVERLOAD}: {target}.flatten({', '.join(names[1:])})"
        if able is None:
            return f"{NO_SUCH_OVERLOAD}: {self._name}({', '.join(names)})"
        if names[0] in able or names[0] in _RECEIVERS:
            return NO_SUCH_OVERLOAD
        return f"{NO_SUCH_OVERLOAD}: {self._name}"


def _unary(invoke: Invocation, argument: Code) -> Code:
    return lambda run: invoke(run, argument(run))


def _binary(invoke: Invocation, left: Code, right: Code) -> Code:
    def evaluate(run: Run) -> Value:
        one, other = left(run), right(run)
        if type(one) is Growing:
            run.cost += 1
            one.extend(other)
            return one
        return invoke(run, one, other)

    return evaluate


def _of_many(invoke: Invocation, args: tuple[Code, ...]) -> Code:
    """Return the code of a call. The first argument that fails ends it."""
    return lambda run: invoke(run, *[each(run) for each in args])


def _insertion(invoke: Invocation, args: tuple[Code, ...]) -> Code:
    """Return the code of an insertion into the private map of a loop. Copies would make the loop quadratic."""

    def evaluate(run: Run) -> Value:
        entries, *more = [each(run) for each in args]
        for name, value in invoke(run, {}, *more).items():
            if name in entries:
                raise EvalError(f"insert failed: key {scalar(unkey(name))} already exists")
            entries[name] = value
        return entries

    return evaluate


def _fitting(param: Type) -> _Fits:
    """Return a check whether a value has the type. As upstream, it reads only the first element of a list or map."""
    if is_dyn(param) or is_variable(param):
        return _always
    if param.name in _CLASSES:
        class_ = _CLASSES[param.name]
        return lambda value: type(value) is class_
    if param.name == "list":
        element = _fitting(param.params[0])
        return lambda value: isinstance(value, list | tuple) and (not value or element(value[0]))
    if param.name == "map":
        return _map_fitting(_fitting(param.params[0]), _fitting(param.params[1]))
    name = param.name
    return lambda value: getattr(value, "cel_type", None) == name


def _map_fitting(key: _Fits, held: _Fits) -> _Fits:
    def fits(value: Value) -> bool:
        if not isinstance(value, Mapping):
            return False
        first = next(iter(value.items()), None)
        return first is None or (key(unkey(first[0])) and held(first[1]))

    return fits


def _is_decisive(class_: type) -> bool:
    """Return whether all values of the class fit the same parameters."""
    return class_ in _DECISIVE or (hasattr(class_, "cel_type") and not issubclass(class_, Mapping))


def _always(_value: Value) -> bool:
    return True
