"""CEL selectors over devices: the variable `device`, and upstream's words for what goes wrong (docs/spec/dra.md §5).

Both halves are remembered: compiled expressions, and what a device looks like to them. Whether an expression holds of a
kind of device is remembered by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from scheduler.cel.amounts import Amount
from scheduler.cel.environment import KUBERNETES
from scheduler.cel.plan import NotInstantiable
from scheduler.cel.program import Outcome, Program, compile_expression
from scheduler.cel.semver import parse
from scheduler.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Env, ObjectType, Type, map_of
from scheduler.cel.unify import declared
from scheduler.cel.values import CelError, CompileError, Optional, Value, type_name
from scheduler.core.devices import Device, DeviceAttribute

_OBJECT: Final = "kubernetes.DRADevice"
_EXPRESSIONS: Final = 4096
_DEVICES: Final = 16384
_Held = TypeVar("_Held")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A selector that can be evaluated."""

    program: Program


class Kind(Protocol):
    """A device and who published it."""

    @property
    def driver(self) -> str: ...
    @property
    def device(self) -> Device: ...


class Domains(dict[str, _Held], Generic[_Held]):
    """Domain → identifiers. A domain that nobody has is looked up as an empty one, but is not a member."""

    def __missing__(self, _name: object) -> Mapping[str, Any]:
        return _NOTHING


_NOTHING: Final[Mapping[str, Any]] = {}


class _Variable(dict[str, Value]):
    """`device`."""

    cel_type: Final = _OBJECT


class DeviceSelectors:
    """Compiles and evaluates selectors. `list_attributes` is upstream's gate DRAListTypeAttributes."""

    def __init__(self, *, list_attributes: bool) -> None:
        self._list_attributes = list_attributes
        self._env = environment(list_attributes=list_attributes)
        self._compiled = lru_cache(maxsize=_EXPRESSIONS)(self._compile)
        self._bindings: dict[int, tuple[Device, str, Mapping[str, Value] | str]] = {}

    def holds(self, expression: str, kind: Kind) -> bool | str:
        """Whether the device is selected, or `CEL compile error: …` or `CEL runtime error: …`."""
        compiled = self.compile(expression)
        if isinstance(compiled, str):
            return f"CEL compile error: {compiled}"
        held = self.evaluate(compiled, kind)
        return f"CEL runtime error: {held}" if isinstance(held, str) else held

    def compile(self, expression: str) -> Compiled | str:
        """The expression, or upstream's text of what is wrong with it."""
        return self._compiled(expression)

    def evaluate(self, compiled: Compiled, kind: Kind, *, check: Callable[[], None] | None = None) -> bool | str:
        """Whether the device is selected, or upstream's text of the error. Raises what `check` raises, see Program."""
        bindings = self._bound(kind)
        if isinstance(bindings, str):
            return bindings
        try:
            value = compiled.program.evaluate(bindings, check=check)
        except CelError as error:
            return str(error)
        return _truth(value)

    def measure(self, compiled: Compiled, kind: Kind) -> Outcome:
        """As `evaluate`, with upstream's cost. Raises CelError, and ValueError for a device that cannot be looked at."""
        bindings = self._bound(kind)
        if isinstance(bindings, str):
            raise ValueError(bindings)  # noqa: TRY004  the device is wrong, no type is
        return compiled.program.measure(bindings)

    def _compile(self, expression: str) -> Compiled | str:
        try:
            program = compile_expression(expression, self._env)
        except NotInstantiable as error:
            return self._unacceptable(error.result) or f"program instantiation failed: {error}"
        except CompileError as error:
            return f"compilation failed: {error}"
        return self._unacceptable(program.result) or Compiled(program)

    def _unacceptable(self, result: Type) -> str | None:
        if result in {BOOL, ANY} or (self._list_attributes and result == DYN):
            return None
        return f"must evaluate to bool or the unknown type, not {declared(result)}"

    def _bound(self, kind: Kind) -> Mapping[str, Value] | str:
        """The variable for a device, or why it has none. The entry keeps the device, so that its id stays its own."""
        known = self._bindings.get(id(kind.device))
        if known is not None and known[1] == kind.driver:
            return known[2]
        bindings = bindings_of(kind.driver, kind.device, lists=self._list_attributes)
        if len(self._bindings) >= _DEVICES:
            self._bindings.clear()
        self._bindings[id(kind.device)] = (kind.device, kind.driver, bindings)
        return bindings


def environment(*, list_attributes: bool) -> Env:
    """What a selector may name. `list_attributes` as in DeviceSelectors."""
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


# --- what a device looks like ---------------------------------------------------------------------------------------


def bindings_of(driver: str, device: Device, *, lists: bool) -> Mapping[str, Value] | str:
    """`device`, or why there is none."""
    attributes: Domains[dict[str, Value]] = Domains()
    for name, attribute in device.attributes.items():
        try:
            value = _value(attribute, lists=lists)
        except ValueError as error:
            return f"attribute {name}: {error}"
        domain, identifier = _qualified(name, driver)
        attributes.setdefault(domain, {})[identifier] = value
    capacity: Domains[dict[str, Value]] = Domains()
    for name, amount in device.capacity.items():
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
    """Raises ValueError. Where there are several, upstream takes the first of these."""
    if lists:
        for several in (attribute.ints, attribute.bools, attribute.strings):
            if several is not None:
                return several
        if attribute.versions is not None:
            return tuple(map(_version, attribute.versions))
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


# --- what comes of it -----------------------------------------------------------------------------------------------


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
