"""Code generation: a checked tree becomes one closure per step, with cel-go's errors.

Constants are computed here where upstream does so, because errors are then found at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.cel.check.checker import Checked, Variable
from scheduler.cel.check.types import DYN, Env, Type, declared_name
from scheduler.cel.errors import CompileError, EvalError
from scheduler.cel.eval import logic
from scheduler.cel.eval.attributes import Attribute, Qualifier, accumulator, global_variable, is_key, iteration_variable
from scheduler.cel.eval.calls import call
from scheduler.cel.eval.running import Code, Run, go_type
from scheduler.cel.libraries.regex import pattern_of
from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.values import TypeValue, Value, type_name

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"}
)
_TAKE_PATTERN: Final = frozenset({"find", "findAll", "matches"})


class NotInstantiable(CompileError):
    """The expression is well typed, but a constant in it cannot be computed.

    The text is the part after `program instantiation failed: `.
    """

    result: Type = DYN
    """The type of the expression."""


class CompiledNode(msgspec.Struct, frozen=True):
    """The code of a node, with information for optimizations."""

    code: Code
    attribute: Attribute | None = None
    is_constant: bool = False
    value: Value = None


def plan(checked: Checked, env: Env) -> tuple[Code, int]:
    """Return the code of the whole expression and its number of variable slots; raise NotInstantiable."""
    planner = _Planner(checked, env)
    try:
        return planner.plan(checked.root).code, len(planner.slots)
    except NotInstantiable as error:
        error.result = checked.result
        raise


def _constant(value: Value) -> CompiledNode:
    return CompiledNode(lambda _run: value, is_constant=True, value=value)


def _chain(attribute: Attribute) -> CompiledNode:
    return CompiledNode(attribute.resolved(), attribute)


@dataclass(slots=True)
class _Planner:
    checked: Checked
    env: Env
    slots: dict[Variable, Code] = field(default_factory=dict)
    """The code that reads the variables of macros, in the order of their slots."""

    def plan(self, node: Node) -> CompiledNode:
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._variable(self.checked.variables[node])
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case StructExpr():
                return CompiledNode(
                    logic.unbuildable(node.type_name, [self.plan(value).code for _, value in node.entries])
                )

    def _variable(self, variable: Variable) -> CompiledNode:
        if variable.names_type:
            return _constant(TypeValue(declared_name(variable.type.params[0])))
        if variable.is_local:
            return _chain(Attribute(self.slots[variable]))
        return _chain(Attribute(global_variable(variable.name)))

    # --- selections ---

    def _select(self, node: Select) -> CompiledNode:
        named = self.checked.variables.get(node)
        if named is not None:
            return self._variable(named)
        qualifier = Qualifier(node.field, is_optional=node.optional, is_test=node.test)
        return self._qualified(node.operand, qualifier)

    def _index(self, node: Call, *, is_optional: bool) -> CompiledNode:
        index = self.plan(node.args[1])
        if index.is_constant:
            if not is_key(index.value):
                raise NotInstantiable(f"invalid qualifier type: {go_type(type_name(index.value))}")
            return self._qualified(node.args[0], Qualifier(index.value, is_optional=is_optional))
        return self._qualified(node.args[0], Qualifier(code=index.code, is_optional=is_optional))

    def _qualified(self, operand: Node, qualifier: Qualifier) -> CompiledNode:
        holder = self.plan(operand)
        attribute = holder.attribute or Attribute(holder.code)
        return _chain(attribute.qualified(qualifier))

    # --- calls ---

    def _call(self, node: Call) -> CompiledNode:
        name = node.function
        if node.target is None and (special := self._operator(node)) is not None:
            return special
        args = list(map(self.plan, node.args))
        if node.target is not None and node not in self.checked.qualified:
            args.insert(0, self.plan(node.target))
        overloads = self.checked.calls[node]
        if name in {"or", "orValue"} and len(args) == 2 and overloads[0].id.startswith("optional_or"):
            return CompiledNode(logic.first_present(args[0].code, args[1].code, unwraps=name == "orValue"))
        if name == "@in" and [each.id for each in overloads] == ["in_list"] and args[1].is_constant:
            if not args[1].value:
                return _constant(value=False)
            if all(type(each) is str for each in args[1].value):
                return CompiledNode(logic.is_among(args[0].code, frozenset(args[1].value)))
        # As upstream, a pattern that is a constant text is compiled with the program.
        is_pattern = len(args) > 1 and overloads[0].name in _TAKE_PATTERN and isinstance(args[1].value, str)
        if is_pattern:
            try:
                pattern_of(args[1].value)
            except EvalError as error:
                raise NotInstantiable(str(error)) from None
        codes = tuple(each.code for each in args)
        planned = CompiledNode(call(self.env.functions[overloads[0].name], overloads, codes, is_nameless=is_pattern))
        if name in _CONVERSIONS and len(args) == 1 and args[0].is_constant:
            return self._folded(planned.code)
        return planned

    def _operator(self, node: Call) -> CompiledNode | None:
        """Return the code of operators that are not called like functions; None for other nodes."""
        match node.function:
            case "_&&_" | "_||_":
                terms = tuple(self.plan(each).code for each in node.args)
                return CompiledNode(logic.junction(terms, decisive=node.function == "_||_"))
            case "_?_:_":
                condition, truthy, falsy = map(self.plan, node.args)
                return CompiledNode(logic.conditional(condition.code, truthy.code, falsy.code))
            case "_==_":
                return CompiledNode(logic.equality(*(self.plan(each).code for each in node.args)))
            case "_!=_":
                return CompiledNode(logic.inequality(*(self.plan(each).code for each in node.args)))
            case "_[_]" | "_[?_]":
                return self._index(node, is_optional=node.function == "_[?_]")
            case "!_":
                return CompiledNode(logic.negation(self.plan(node.args[0]).code))
            case "@not_strictly_false":
                return CompiledNode(logic.not_strictly_false(self.plan(node.args[0]).code))
        return None

    def _folded(self, code: Code) -> CompiledNode:
        try:
            return _constant(code(Run({}, 0)))
        except EvalError as error:
            raise NotInstantiable(str(error)) from None

    # --- literals ---

    def _list(self, node: ListExpr) -> CompiledNode:
        parts = list(map(self.plan, node.elements))
        code = logic.built_list([each.code for each in parts], node.optional)
        return self._folded(code) if all(each.is_constant for each in parts) else CompiledNode(code)

    def _map(self, node: MapExpr) -> CompiledNode:
        parts = [(self.plan(key), self.plan(value)) for key, value in node.entries]
        code = logic.built_map([(key.code, value.code) for key, value in parts], node.optional)
        is_constant = all(key.is_constant and value.is_constant for key, value in parts)
        return self._folded(code) if is_constant else CompiledNode(code)

    # --- macros ---

    def _comprehension(self, node: Comprehension) -> CompiledNode:
        accu, *items = self.checked.scopes[node]
        over = self.plan(node.iter_range)
        init = self.plan(node.accu_init)
        slot = len(self.slots)
        self.slots[accu] = accumulator(slot, init.code, grows=node.macro != "bind")
        if node.macro == "bind":
            return CompiledNode(logic.binding(slot, self.plan(node.result).code))
        for number, each in enumerate(items, slot + 1):
            self.slots[each] = iteration_variable(number)
        second = slot + 2 if len(items) == 2 else None
        loop = logic.Loop(over.code, slot + 1, second)
        if node.macro in {"all", "exists"} and isinstance(node.loop_step, Call):
            test = self.plan(node.loop_step.args[1]).code
            return CompiledNode(logic.quantifier(loop, test, decisive=node.macro == "exists"))
        parts = (self.plan(each).code for each in (node.loop_condition, node.loop_step, node.result))
        return CompiledNode(logic.fold(loop, logic.LoopParts(slot, *parts)))
