"""Python source while it is being written, line by line, with the costs that it has to count.

Costs that are known beforehand are summed up and written once, before the next line where somebody may look at the sum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.cel.amounts import Amount
from scheduler.cel.running import ERROR_NANOS, MOST_NANOS
from scheduler.cel.semver import Semver
from scheduler.cel.values import Duration, Timestamp, UInt, Value

_MOST_LINES: Final = 3000
_INDENT: Final = " "
_INLINE: Final = frozenset({bool, int, str, type(None)})


class Unsupported(Exception):
    """This expression stays with its closures."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A class that a value is certain to have, and for a list what its elements have."""

    name: str
    element: Kind | None = None


BOOL: Final = Kind("bool")
INT: Final = Kind("int")
UINT: Final = Kind("uint")
DOUBLE: Final = Kind("double")
STRING: Final = Kind("string")
BYTES: Final = Kind("bytes")
NULL: Final = Kind("null_type")
MAP: Final = Kind("map")
DURATION: Final = Kind(Duration.cel_type)
TIMESTAMP: Final = Kind(Timestamp.cel_type)
_KINDS: Final[dict[type, Kind]] = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    dict: MAP,
    **{each: Kind(each.cel_type) for each in (Amount, Duration, Semver, Timestamp)},
}


def kind_of(value: Value) -> Kind | None:
    """Of a constant."""
    if isinstance(value, list | tuple):
        return list_of([kind_of(each) for each in value])
    return _KINDS.get(type(value))


def list_of(kinds: list[Kind | None]) -> Kind:
    """A list with elements of these kinds."""
    return Kind("list", kinds[0] if kinds and all(each == kinds[0] for each in kinds) else None)


@dataclass(frozen=True, slots=True)
class Term:
    """A value in the source: a text that is written once and evaluated where it stands."""

    text: str
    kind: Kind | None = None
    is_name: bool = False
    """It may be written several times."""
    is_constant: bool = False
    value: Value = None
    number: str = ""
    """Of a duration, a moment or an unsigned integer that is no value yet: the name of the number that it is made of."""
    offset: str = "0"
    """Of such a moment: its zone."""


@dataclass(slots=True)
class Part:
    """Lines that were put aside, and the costs due after them."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    cost: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.cost


@dataclass(slots=True)
class Exit:
    """Where errors go, when somebody around has a use for them. `lines`: how, given the expression of an error's text.

    A jump takes a tenth of the time of an exception. The last line is one, so what is inside must not be in a loop of its own.
    """

    lines: Callable[[str], Sequence[str]]
    is_used: bool = False


class Writer:
    """`counts`: whether the source counts costs; `tells`: whether it tells errors, for which it must count.

    `at_most` is the highest sum there can be, None if nobody knows.
    """

    def __init__(self, *, counts: bool, tells: bool = False) -> None:
        self.counts = counts
        self.tells = tells
        self.at_most: int | None = 0
        self.strains = False
        """Whether time is counted, too."""
        self.reads = False
        """Whether there are patterns that are not known yet."""
        self.constants: dict[str, Value] = {}
        self._names: dict[int, str] = {}
        self._part = Part()
        self._exit: Exit | None = None
        self._owed: tuple[int | str, ...] = ()
        self._depth = 1
        self._named = 0
        self._written = 0

    def lines(self) -> list[str]:
        """All of them."""
        return [_INDENT * depth + text for depth, text in self._part.lines]

    def line(self, text: str) -> None:
        """One more statement, that cannot look at the costs."""
        self._written += 1
        if self._written > _MOST_LINES:
            raise Unsupported
        self._part.lines.append((self._depth, text))

    # --- costs ---

    def charge(self, cost: int) -> None:
        """So much, sooner or later."""
        if self.at_most is not None:
            self.at_most += cost
        if self.counts:
            self._part.cost += cost

    def charge_text(self, text: str, at_most: int | None = None) -> None:
        """What the expression gives."""
        if self.at_most is not None:
            self.at_most = None if at_most is None else self.at_most + at_most
        if self.counts:
            due, self._part.cost = self._part.cost, 0
            self.line(f"c += {text} + {due}" if due else f"c += {text}")

    def charged(self, at_most: int | None) -> None:
        """The Run was charged in its own way, so much at most."""
        if self.at_most is not None:
            self.at_most = None if at_most is None else self.at_most + at_most
        if self.counts:
            self.line("c = run.cost")

    def afford(self, cost: int) -> None:
        """Nothing is charged, but so much must be left."""
        if self.at_most is not None:
            self.at_most += cost
        if self.counts:
            self.settle()
            self.line(f"if c + {cost} > limit: exceed()")

    def strain(self, nanos: int | str) -> None:
        """What follows takes so long beyond what it costs."""
        if self.counts:
            self.strains = True
            self.line(f"s += {nanos}")
            self.line(f"if s > {MOST_NANOS}: exceed()")

    def settle(self) -> None:
        """Whoever looks now sees the whole sum."""
        due, self._part.cost = self._part.cost, 0
        if due:
            self.line(f"c += {due}")

    # --- blocks ---

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """What is written inside is under this header."""
        self.settle()
        self.line(header)
        self._depth += 1
        before = len(self._part.lines)
        yield
        self.settle()
        if len(self._part.lines) == before:
            self.line("pass")
        self._depth -= 1

    @contextlib.contextmanager
    def aside(self) -> Iterator[Part]:
        """What is written inside is put aside, to be a block or part of one."""
        before, part = self._part, Part()
        self._part = part
        yield part
        self._part = before

    def insert(self, part: Part) -> None:
        """What was put aside, here."""
        if part.lines:
            self.settle()
            shift = self._depth - part.lines[0][0]
            self._part.lines += [(depth + shift, text) for depth, text in part.lines]
        self._part.cost += part.cost

    # --- values ---

    def new(self) -> str:
        """A name that nobody uses."""
        self._named += 1
        return f"v{self._named}"

    def let(self, text: str, kind: Kind | None = None) -> Term:
        """Evaluates it now."""
        name = self.new()
        self.line(f"{name} = {text}")
        return Term(name, kind, is_name=True)

    def named(self, term: Term) -> Term:
        """The value under a name."""
        return term if term.is_name else replace(term, text=self.let(term.text).text, is_name=True)

    def fallible(self, text: str, kind: Kind | None = None) -> Term:
        """What may raise is evaluated before whatever follows, unless the order could not be told."""
        if not self.counts:
            return Term(text, kind)
        made = self.new()
        self.attempt(f"{made} = {text}")
        return Term(made, kind, is_name=True)

    def held(self, value: Value) -> str:
        """The name of an object that the source refers to."""
        if id(value) not in self._names:
            name = self._names[id(value)] = f"k{len(self._names)}"
            self.constants[name] = value
        return self._names[id(value)]

    def constant(self, value: Value) -> Term:
        """The value itself."""
        text = repr(value) if type(value) in _INLINE else self.held(value)
        if text.startswith("-"):
            text = f"({text})"
        return Term(text, kind_of(value), is_name=True, is_constant=True, value=value)

    # --- errors ---

    @contextlib.contextmanager
    def leaving_by(self, exit_: Exit) -> Iterator[None]:
        """Errors in what is written inside go there."""
        before = self._exit, self._owed
        self._exit, self._owed = exit_, ()
        yield
        self._exit, self._owed = before

    @contextlib.contextmanager
    def owing(self, cost: int | str) -> Iterator[None]:
        """An error in what is written inside costs so much more."""
        before = self._owed
        self._owed = (*before, cost)
        yield
        self._owed = before

    def attempt(self, statement: str, *, due: str = "0", charges: bool = False) -> None:
        """What may raise an EvalError, which then costs what is `due`. `charges`: it charges the Run itself."""
        if not self.tells or self._exit is None:  # nobody asks what an error has cost that is the answer
            self.line(statement)
            return
        pending = self._part.cost
        self.line("try:")
        self._depth += 1
        self.line(statement)
        self._depth -= 1
        self.line("except EvalError as x:")
        self._depth += 1
        self.strain(ERROR_NANOS)
        if charges:
            self.line("c = run.cost")
        self._leave(self._exit, "x.args[0]", (pending, due, *self._owed))
        self._depth -= 1

    def fails(self, condition: str, error: str) -> None:
        """Where the condition holds, the answer is an error; `error` is the expression that gives its text."""
        if not self.tells:
            self.doubt(condition)
            return
        with self.block(f"if {condition}:"):
            if self._exit is None:
                self.line(f"raise EvalError({error})")
            else:
                self._leave(self._exit, error, self._owed)

    def _leave(self, exit_: Exit, error: str, costs: Sequence[int | str]) -> None:
        exit_.is_used = True
        known = sum(each for each in costs if isinstance(each, int))
        terms = [str(known or ""), *(each for each in costs if isinstance(each, str) and each != "0")]
        terms = [each for each in terms if each]
        if terms:
            self.line(f"c += {' + '.join(terms)}")
        for each in exit_.lines(error):
            self.line(each)

    def doubt(self, condition: str) -> None:
        """Where the condition holds, this source does not know the answer."""
        self.line(f"if {condition}: raise Unusual")
