"""CEL expressions on devices: compilation, evaluation and upstream's error texts (docs/spec/dra.md §5).

Compiled expressions are cached up to 64 MiB, the least recently used are dropped first, and the CEL values of devices
are cached, too. The caller caches whether an expression selects a kind of device. Long compilations and evaluations
run in the worker thread.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, TypeVar

from scheduler.api.resource_v1 import Device, DeviceAttribute, by_bare_name
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selector_errors import CompileProblem, MissingKey
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import (
    ANY,
    BOOL,
    DYN,
    QUANTITY,
    STRING,
    Env,
    ObjectType,
    Type,
    declared,
    map_of,
)
from scheduler.cel.errors import CelError, CompileError, EvalError, NoSuchKey
from scheduler.cel.eval.plan import NotInstantiable
from scheduler.cel.eval.program import Program, TooCostly, compile_expression
from scheduler.cel.libraries.quantities import Amount
from scheduler.cel.libraries.semvers import parse
from scheduler.cel.values import Optional, Value, type_name
from scheduler.core.cooperative import Work, awaited, finish, submitted
from scheduler.core.errors import shortened

T = TypeVar("T")

COMPILED_BYTES: Final = 64 * 2**20


class CompiledSelectors(Generic[T]):
    """A cache of expression → compiled expression. Only the event loop uses it.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/cel/cache.go Cache
    """

    def __init__(self, limit_bytes: int = COMPILED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.size_bytes = 0
        """The memory of all entries, in bytes."""

    def get(self, expression: str) -> T | None:
        kept = self._kept.get(expression)
        if kept is None:
            return None
        self._kept.move_to_end(expression)
        return kept[0]

    def put(self, expression: str, value: T, size_bytes: int) -> None:
        """Add an entry and drop the least recently used ones. An entry that exceeds the limit is not added."""
        previous = self._kept.pop(expression, None)
        if previous is not None:
            self.size_bytes -= previous[1]
        if size_bytes > self._limit_bytes:
            return
        self._kept[expression] = value, size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes:
            _, (_, freed_bytes) = self._kept.popitem(last=False)
            self.size_bytes -= freed_bytes


_OBJECT: Final = "kubernetes.DRADevice"
_SHORT: Final = 512
"""The longest expression, in characters, that is compiled at once: this takes a few milliseconds at most."""
_DEVICES: Final = 16384
_Held = TypeVar("_Held")
_Found = TypeVar("_Found")


class AttributeDomains(dict[str, _Held], Generic[_Held]):
    """Domain → identifiers. The look-up of a missing domain returns an empty one, but it is not a member."""

    def __missing__(self, _name: object) -> Mapping[str, Any]:
        return _NOTHING


_NOTHING: Final[Mapping[str, Any]] = {}


_UNREADABLE: Final = object()
"""The place of a value that is invalid or has an unsupported type."""


class _Attributes(dict[str, Value]):
    """The attributes of a domain with an unreadable one, which fails the expression that reads it.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go CompilationResult.DeviceMatches
    """

    def __getitem__(self, name: str) -> Value:
        value = super().__getitem__(name)
        if value is _UNREADABLE:
            raise EvalError(f"attribute {name}: value is invalid or its type is not supported by this version")
        return value

    def __contains__(self, name: Any) -> bool:
        return self.get(name, _UNREADABLE) is not _UNREADABLE


class _Variable(dict[str, Value]):
    cel_type: Final = _OBJECT


class DeviceSelectors:
    """Compiles and evaluates selectors. `list_attributes`: attributes may be lists.

    `when_read`: an attribute with an unsupported value fails only expressions that read it.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go CompileCELExpression, DeviceMatches
    """

    def __init__(self, *, list_attributes: bool, when_read: bool = False) -> None:
        self._list_attributes = list_attributes
        self._when_read = when_read
        self._accepted = {BOOL, ANY, DYN} if list_attributes else {BOOL, ANY}
        self._env = environment(list_attributes=list_attributes)
        self.compiled = CompiledSelectors[Program | str]()
        self._underway: dict[Hashable, tuple[Future[Any], Callable[[], Any]]] = {}
        """Jobs of the worker thread: compilations, by expression, and evaluations, by expression and device."""
        self._bindings: dict[int, tuple[Device, str, Mapping[str, Value] | str]] = {}

    def holds(self, expression: str, kind: DeviceKind) -> bool | str:
        """Return whether the device is selected, or `CEL compile error: …` or `CEL runtime error: …`.

        The call blocks the event loop.
        """
        return finish(self.holding(expression, kind))

    def holding(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Return the result of `holds` by work that yields. Long computations run in the worker thread."""
        held = yield from self.evaluating(expression, kind)
        if isinstance(held, bool):
            return held
        if isinstance(held, CompileProblem):
            return CompileProblem(shortened(f"CEL compile error: {held}"))
        text = shortened(f"CEL runtime error: {held}")
        return MissingKey(text) if isinstance(held, MissingKey) else text

    def evaluating(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Return the result, or upstream's error text without a prefix; a `CompileProblem` does not depend on the device."""
        compiled = yield from self.compiling(expression)
        if isinstance(compiled, str):
            return CompileProblem(compiled)
        bindings = self._bound(kind)
        if isinstance(bindings, str):
            return bindings
        try:
            return _tried(compiled.evaluate_cheaply, bindings)
        except TooCostly:  # the job keeps the bindings, and so their id
            job = partial(_tried, compiled.evaluate, bindings)
            return (yield from self._in_worker((expression, id(bindings)), job))

    def prepare(self, expression: str) -> None:
        """Begin to compile an expression that will be needed, if that takes long. Return at once."""
        self._collect()
        if len(expression) > _SHORT and self.compiled.get(expression) is None:
            self._started(expression, partial(self._compile, expression))

    def compiling(self, expression: str) -> Work[Program | str]:
        """Return the compiled expression, or upstream's error text."""
        compiled = self.compiled.get(expression)
        if compiled is None and self._underway:
            self._collect()
            compiled = self.compiled.get(expression)
        if compiled is not None:
            return compiled
        if len(expression) <= _SHORT:
            compiled, size_bytes = self._compile(expression)
        else:
            compiled, size_bytes = yield from self._in_worker(expression, partial(self._compile, expression))
        self.compiled.put(expression, compiled, size_bytes)
        return compiled

    def _in_worker(self, key: Hashable, job: Callable[[], _Found]) -> Work[_Found]:
        """Return the job's result from the worker thread. A job that is already running is not started again."""
        future = self._started(key, job)
        try:
            return (yield from awaited(future))
        finally:
            if future.done() or future.cancel():
                self._underway.pop(key, None)

    def _started(self, key: Hashable, job: Callable[[], _Found]) -> Future[_Found]:
        running = self._underway.get(key)
        if running is None:
            running = self._underway[key] = submitted(job), job
        return running[0]

    def _collect(self) -> None:
        """Store the results of compilations that no caller waited for, and drop those of evaluations."""
        for key, (future, _) in list(self._underway.items()):
            if future.done():
                del self._underway[key]
                if isinstance(key, str) and future.exception() is None:
                    self.compiled.put(key, *future.result())

    def _compile(self, expression: str) -> tuple[Program | str, int]:
        """Return the compiled expression or an error text, and the bytes that it takes."""
        try:
            program = compile_expression(expression, self._env)
        except NotInstantiable as error:
            wrong = self._refusal(error.result) or f"program instantiation failed: {error}"
        except CompileError as error:
            wrong = f"compilation failed: {error}"
        else:
            wrong = self._refusal(program.result)
        if wrong:
            wrong = shortened(wrong)
            return wrong, sys.getsizeof(expression) + sys.getsizeof(wrong)
        return program, program.size_bytes

    def _refusal(self, result: Type) -> str:
        """Return why a type is no type of a selector; "" if it is one."""
        return "" if result in self._accepted else f"must evaluate to bool or the unknown type, not {declared(result)}"

    def _bound(self, kind: DeviceKind) -> Mapping[str, Value] | str:
        """Return the variable for a device, or an error text.

        The entry keeps the device alive, so that its id stays unique.
        """
        cached = self._bindings.get(id(kind.device))
        if cached is not None and cached[1] == kind.driver:
            return cached[2]
        bindings = bindings_of(kind.driver, kind.device, lists=self._list_attributes, when_read=self._when_read)
        if len(self._bindings) >= _DEVICES:
            self._bindings.clear()
        self._bindings[id(kind.device)] = (kind.device, kind.driver, bindings)
        return bindings


def _tried(evaluate: Callable[[Mapping[str, Value]], Value], bindings: Mapping[str, Value]) -> bool | str:
    try:
        return _truth(evaluate(bindings))
    except NoSuchKey as error:
        return MissingKey(_error_text(error))
    except (CelError, RecursionError) as error:
        return _error_text(error)


def _error_text(error: CelError | RecursionError) -> str:
    return "max recursion depth exceeded" if isinstance(error, RecursionError) else shortened(str(error))


def environment(*, list_attributes: bool) -> Env:
    """Return the declarations that a selector may use. `list_attributes` as in DeviceSelectors."""
    attributes = map_of(STRING, map_of(STRING, DYN if list_attributes else ANY))
    device = ObjectType(
        _OBJECT,
        {
            "driver": STRING,
            "allowMultipleAllocations": BOOL,
            "attributes": attributes,
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        },
    )
    return KUBERNETES.extended({"device": Type(_OBJECT)}, (device,))


# --- the variable `device` -------------------------------------------------------------------------------------------


def bindings_of(driver: str, device: Device, *, lists: bool, when_read: bool) -> Mapping[str, Value] | str:
    """Return the variable `device`, or an error text. `lists` and `when_read` as in DeviceSelectors."""
    attributes: AttributeDomains[dict[str, Value]] = AttributeDomains()
    # Of two names for one attribute, the one with the domain wins.
    for name, attribute in sorted(device.attributes.items(), key=lambda named: "/" in named[0]):
        domain, identifier = _qualified(name, driver)
        try:
            value = _scalar_or_list(attribute) if when_read else _value(attribute, lists=lists)
        except ValueError as error:
            if not when_read:
                return f"attribute {name}: {error}"
            value = _UNREADABLE
        attributes.setdefault(domain, {})[identifier] = value
    for domain, held in attributes.items():
        if any(value is _UNREADABLE for value in held.values()):
            attributes[domain] = _Attributes(held)
    capacity: AttributeDomains[dict[str, Value]] = AttributeDomains()
    for name, amount in by_bare_name(driver, device.capacity).items():
        domain, identifier = _qualified(name, driver)
        capacity.setdefault(domain, {})[identifier] = Amount(*amount.value.form)
    return {
        "device": _Variable(
            driver=driver,
            allowMultipleAllocations=device.allow_multiple_allocations,
            attributes=attributes,
            capacity=capacity,
        )
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _value(attribute: DeviceAttribute, *, lists: bool) -> Value:
    """Return the attribute's value; of several, upstream uses the first in this order.

    Raise ValueError without a value.
    """
    several = _list(attribute) if lists else None
    return several if several is not None else _scalar(attribute)


def _scalar_or_list(attribute: DeviceAttribute) -> Value:
    """Return the attribute's value, as 1.38 converts it: a list without elements is no value.

    Raise ValueError without a value.
    """
    several = _list(attribute)
    return several or _scalar(attribute)


def _list(attribute: DeviceAttribute) -> Value:
    """Return the attribute's list, or None."""
    for several in (attribute.ints, attribute.bools, attribute.strings):
        if several is not None:
            return several
    return tuple(map(_version, attribute.versions)) if attribute.versions is not None else None


def _scalar(attribute: DeviceAttribute) -> Value:
    for one in (attribute.int_, attribute.bool_, attribute.string):
        if one is not None:
            return one
    if attribute.version is not None:
        return _version(attribute.version)
    raise ValueError("unsupported attribute value")


def _version(text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"parse semantic version: {error}") from None


# --- the result ------------------------------------------------------------------------------------------------------


def _truth(value: Value) -> bool | str:
    if value is True or value is False:
        return bool(value)
    inner = value.value if isinstance(value, Optional) and value.present else value
    if isinstance(inner, bool):
        return inner
    name = "map" if isinstance(value, Mapping) else type_name(value)
    return f"CEL result of type {name} could not be converted to bool: {_reason(inner)}"


_REASONS: Final = {
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "string": "unsupported native conversion from string to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "type": "type conversion not supported for 'type'",
    "optional_type": "optional.none() dereference",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to 'bool'",
}


def _reason(value: Value) -> str:
    name = "map" if isinstance(value, Mapping) else type_name(value)
    return _REASONS.get(name) or f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'"
