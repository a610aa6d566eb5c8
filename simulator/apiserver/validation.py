"""Validation by tables: rows of a path and its rules, walked by one function.

A row names a place below the object that is checked, and the rules of the value there:

    PORTS = Table(
        ("ports", at_most(100)),
        ("ports[*].name", names(dns_label)),
        ("ports[*].containerPort", required(), positive),
    )
    PORTS({"ports": [{"name": "web"}, {"name": "A", "containerPort": -1}]})

Consecutive rows with the same beginning are walked together, so the second port is checked after everything of the
first one, as the loops of kube-apiserver do: `ports[0].containerPort: Required value`, `ports[1].name: Invalid value:
"A": …`, `ports[1].containerPort: Invalid value: -1: …`. A table is a rule itself, so the table of a part stands in the
table of the whole. A rule is any function of a value and a context that returns problems.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec


class Problem(NamedTuple):
    """One field and what a server says of it. The field is relative to the value that a rule was given."""

    field: str
    cause: str
    why: str

    def below(self, place: str) -> Problem:
        """Return the problem with a field that is relative to the parent."""
        joint = "." if place and self.field and self.field[0] != "[" else ""
        return self._replace(field=f"{place}{joint}{self.field}")


Problems: TypeAlias = list[Problem]
Rule: TypeAlias = Callable[[Any, Any], Problems]
"""Takes the value at the path, None for an absent one, and the context that the table was called with."""
Row: TypeAlias = tuple[str, *tuple[Rule, ...]]
_SEGMENT: Final = re.compile(r"\[\*\]|\{[^}]+\}|[^.\[{]+")


class Stop(Problems):
    """Problems after which the remaining rows of this place do not apply; without problems, an absent value is fine."""


class Table:
    """Rows in the order of a server. A path is `name`, `[*]` for items of a list, `{*}` or `{key}` for values of a map.

    An absent object is an empty one, as in Go. The rows of `name?` do not apply to an absent value: Go has a pointer.
    """

    def __init__(self, *rows: Row) -> None:
        self._steps: list[tuple[str, Rule, bool]] = []
        """Segment, "" for the value itself; rule; whether the rule is called for an absent value."""
        for head, group in itertools.groupby(rows, lambda row: _head(row[0])):
            if head:
                below: list[Row] = [(path[len(head) :].removeprefix("."), *rules) for path, *rules in group]
                rule = _single(Table(*below))
                self._steps.append((head.removesuffix("?"), rule, head[-1] != "?" and not _accepts_absent(rule)))
            else:
                self._steps += [("", rule, not _accepts_absent(rule)) for _, *rules in group for rule in rules]

    def __call__(self, value: Any, context: Any = None) -> Problems:
        """Return all problems. Cost without problems: the calls of the rules for values that are there."""
        found: Problems = []
        for segment, rule, for_absent in self._steps:
            if not segment:
                if problems := rule(value, context):
                    found += problems
                if problems.__class__ is Stop:
                    break
            elif segment[0] not in "[{":
                part = value.get(segment) if value else None
                if (part is not None or for_absent) and (problems := rule(part, context)):
                    found += [each.below(segment) for each in problems]
            elif value or segment[1] != "*":
                for place, part in _parts(segment, value or {}):
                    if problems := rule(part, context):
                        found += [each.below(place) for each in problems]
        return found

    @property
    def accepts_absent(self) -> bool:
        """Whether an absent object has no problems, whatever the context."""
        for segment, rule, for_absent in self._steps:
            if rule is optional:
                return True
            if for_absent and segment not in {"[*]", "{*}"}:
                return False
        return True


_ACCEPTING: Final[set[Rule]] = set()


def accepting(rule: Rule) -> Rule:
    """Mark a rule that finds no problem in an absent value: a walk does not call it for one."""
    _ACCEPTING.add(rule)
    return rule


def _accepts_absent(rule: Rule) -> bool:
    return rule.accepts_absent if isinstance(rule, Table) else rule in _ACCEPTING


def _single(table: Table) -> Rule:
    """Return the only rule of a table for one place, which needs no table around it."""
    (segment, rule, _), *more = table._steps  # noqa: SLF001 (a function of the class)
    return table if segment or more else rule


def _head(path: str) -> str:
    first = _SEGMENT.match(path)
    return first[0] if first else ""


def _parts(segment: str, value: Any) -> Iterator[tuple[str, Any]]:
    if segment == "[*]":
        return ((f"[{at}]", {} if item is None else item) for at, item in enumerate(value))
    if segment == "{*}":
        return ((f"[{key}]", item) for key, item in value.items())
    return iter([(f"[{segment[1:-1]}]", value.get(segment[1:-1]))])


# -- problems --------------------------------------------------------------------------------------------------------


def missing(why: str = "", *, at: str = "") -> Problem:
    return Problem(at, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def wrong(value: Any, why: str, *, at: str = "") -> Problem:
    return Problem(at, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def not_supported(value: Any, known: Sequence[str], *, at: str = "") -> Problem:
    choices = ", ".join(f'"{each}"' for each in known)
    return Problem(at, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {choices}")


def not_allowed(why: str, *, at: str = "") -> Problem:
    return Problem(at, "FieldValueForbidden", f"Forbidden: {why}")


def not_found(value: str, why: str = "", *, at: str = "") -> Problem:
    return Problem(at, "FieldValueNotFound", f"Not found: {_shown(value)}{f': {why}' if why else ''}")


def duplicate(value: Any, *, at: str = "") -> Problem:
    return Problem(at, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_long(most_bytes: int) -> Problem:
    return Problem("", "FieldValueTooLong", f"Too long: may not be more than {most_bytes} bytes")


def too_many(count: int, most: int) -> Problem:
    return Problem("", "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=msgspec.json.decode)


# -- rules -----------------------------------------------------------------------------------------------------------


def required(why: str = "") -> Rule:
    """Refuse an absent value and the zero value of Go, and check nothing else of them."""
    return lambda value, _: [] if value else Stop([missing(why)])


def present(why: str = "") -> Rule:
    """Refuse null and an absent value, and check nothing else of them."""
    return lambda value, _: Stop([missing(why)]) if value is None else []


def optional(value: Any, _: Any) -> Problems:
    """Check nothing else of an absent value or a zero value."""
    return [] if value else Stop()


def gate(rule: Rule) -> Rule:
    """Check nothing else of a value for which the rule finds problems: the rules that follow rely on it."""

    def check(value: Any, context: Any) -> Problems:
        found = rule(value, context)
        return Stop(found) if found else []

    return check


def when(condition: Callable[[Any], bool], *rows: Row) -> Rule:
    """Apply the rows only to objects that meet the condition."""
    table = Table(*rows)
    return lambda value, context: table(value, context) if condition(value or {}) else []


def names(check: Callable[[str], Iterable[str]]) -> Rule:
    """Apply a rule of `scheduler.api.meta` to a text, an absent one included."""
    return lambda value, _: [wrong(value or "", why) for why in check(value or "")]


def keys(rule: Rule) -> Rule:
    """Apply a rule to the keys of a map. As upstream, the problems name the map."""
    return accepting(lambda value, context: [problem for key in value or () for problem in rule(key, context)])


def one_of(*known: str) -> Rule:
    return lambda value, _: [] if value in known else [not_supported(value or "", known)]


def forbidden(why: str) -> Rule:
    return accepting(lambda value, _: [not_allowed(why)] if value else [])


def must(condition: Callable[[Any], object], why: str, *, zero: Any = 0) -> Rule:
    """Refuse a value for which the condition is false. An absent value counts, and is shown, as `zero`."""

    def check(value: Any, _: Any) -> Problems:
        value = zero if value is None else value
        return [] if condition(value) else [wrong(value, why)]

    return check


def at_most(most: int, *, stops: bool = True) -> Rule:
    """Refuse a longer list; with `stops` none of its items is checked."""
    made = Stop if stops else list
    return accepting(lambda items, _: made([too_many(len(items), most)]) if items and len(items) > most else [])


def longest(most_bytes: int) -> Rule:
    return accepting(lambda text, _: [too_long(most_bytes)] if text and len(text.encode()) > most_bytes else [])


def unique(key: Callable[[Any], Any] = lambda item: item, *, at: str = "") -> Rule:
    """Refuse the items of a list whose key an earlier item has; `at` is the field of the item that is named."""

    def check(items: Any, _: Any) -> Problems:
        seen: set[str] = set()
        found: Problems = []
        for number, item in enumerate(items or ()):
            shown = _shown(given := key(item))
            if shown in seen:
                found.append(duplicate(given, at=at).below(f"[{number}]"))
            seen.add(shown)
        return found

    return accepting(check)


def name_of(item: Any) -> str:
    return str((item or {}).get("name", ""))


AT_LEAST_0: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than zero"
not_negative: Final = must(lambda number: number >= 0, AT_LEAST_0)
positive: Final = must(lambda number: number > 0, POSITIVE)
