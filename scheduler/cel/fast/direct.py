"""Calls in generated source whose overload is certain.

A constant pattern or template is read while the source is written, and not in every turn of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from scheduler.cel.costs import size
from scheduler.cel.fast.writer import Kind, Term, Writer
from scheduler.cel.libraries.certain import CERTAIN
from scheduler.cel.libraries.declaring import matching, pattern_cost, traversal
from scheduler.cel.libraries.formatting import template_of
from scheduler.cel.libraries.regex import NANOS_PER_PART, Pattern, nanos_beyond_cost, pattern_of
from scheduler.cel.pace import LETTERS, PACE
from scheduler.cel.running import MOST_NANOS
from scheduler.cel.strain import AHEAD, PATTERNED, first_use
from scheduler.cel.types import Overload
from scheduler.cel.values import Value

PER_TEN: Final = "(({} + 9) // 10)"
"""As `characters` of a length."""
_LONG: Final = 256
_IDENTITIES: Final = frozenset(
    f"{each}_to_{each}" for each in ("int64", "uint64", "double", "string", "bytes", "bool", "timestamp", "duration")
)
"""Conversions of what needs none."""
_PATTERNS: Final[dict[str, Callable[[Pattern], tuple[Callable[..., Value], bool]]]] = {
    "matches": lambda pattern: (pattern.is_in, False),
    "matches_string": lambda pattern: (pattern.is_in, False),
    "string_find_string": lambda pattern: (pattern.first, False),
    "string_find_all_string": lambda pattern: pattern.finder,
}
"""By overload, what it is for a pattern that is known."""


class _Prepared(NamedTuple):
    """What is called with what, the source of its cost if that is a short one, and whether it can fail.

    `is_steady`: it takes so long for each part that it finds, whatever the text.
    """

    call: Callable[..., Value]
    args: Sequence[Term]
    cost: str = ""
    fails: bool = True
    is_steady: bool = False


def direct(
    write: Writer, overload: Overload, args: Sequence[Term], *, cost: int | Callable[..., int], kind: Kind | None
) -> Term:
    """The value of a call, of such a kind. The arguments have names."""
    if overload.id in _IDENTITIES:
        write.charge(1)
        return args[0]
    if overload.id in LETTERS:
        write.strain(f"{PACE[overload.id]} + {LETTERS[overload.id]} * len({args[0].text})")
    elif overload.id in PACE:
        write.strain(PACE[overload.id])
    meet = first_use(overload)
    if meet is not None and not args[1].is_constant and write.counts:
        write.reads = True
        write.line(f"{write.held(meet)}(run, {args[1].text})")
    is_strained = write.counts and overload.name in AHEAD and not is_harmless(overload.name, args)
    if is_strained:
        _strain(write, overload.name, args)
    call, given, short, fails, is_steady = _prepared(overload, args, cost)
    texts = ", ".join(each.text for each in args)
    made = write.new()
    statement = f"{made} = {_name(write, call)}({', '.join(each.text for each in given)})"
    if isinstance(cost, int):
        write.charge(cost)
        due = price = "0"
    else:
        due, price = (short or f"{write.held(cost)}({texts}, {result})" for result in ("None", made))
        if write.counts and overload.params[0].name in {"string", "list"}:
            _afford(write, args[0], due)
    if fails and overload.id not in CERTAIN:
        write.attempt(statement, due=due)
    else:
        write.line(statement)
    if not isinstance(cost, int):
        write.charge_text(price)
    if is_strained:
        nanos = f"{NANOS_PER_PART} * len({made})" if is_steady else ""
        _strain_after(write, overload.name, nanos, (made, texts))
    return Term(made, kind, is_name=True)


def is_harmless(name: str, args: Sequence[Term]) -> bool:
    """Whether this is a pattern that never takes longer than its cost lets expect."""
    if name not in {"matches", "find"}:
        return False
    pattern = args[1].value
    return isinstance(pattern, str) and not nanos_beyond_cost("." * 1000, pattern)


def _name(write: Writer, call: Callable[..., Value]) -> str:
    return "str" if call is str else write.held(call)


def _prepared(overload: Overload, args: Sequence[Term], cost: int | Callable[..., int]) -> _Prepared:
    length = f"len({args[0].text})"
    if overload.id in _PATTERNS and isinstance(args[1].value, str):
        pattern = pattern_of(args[1].value).often()
        each = pattern_cost(0, len(args[1].value))
        short = f"{PER_TEN.format(f'1 + {length}')} * {each}" if cost is matching else ""
        call, is_steady = _PATTERNS[overload.id](pattern)
        return _Prepared(call, args[:1], short, fails=False, is_steady=is_steady)
    if overload.id == "string_format" and isinstance(args[0].value, str):
        short = str(traversal(args[0].value)) if cost is traversal else ""
        return _Prepared(template_of(args[0].value).text, args[1:], short)
    if cost is matching:
        per_text, per_pattern = PER_TEN.format(f"1 + {length}"), f"((len({args[1].text}) + 3) // 4)"
        return _Prepared(overload.call, args, f"{per_text} * {per_pattern}")
    is_length = cost is traversal and overload.params[0].name == "string"
    return _Prepared(overload.call, args, PER_TEN.format(length) if is_length else "")


def _afford(write: Writer, first: Term, cost: str) -> None:
    if first.is_constant and size(first.value) <= _LONG:
        return
    with write.block(f"if len({first.text}) > {_LONG}:"):
        write.line("run.cost = c")
        write.line(f"run.afford({cost})")


def _strain(write: Writer, name: str, args: Sequence[Term]) -> None:
    """As an `Invocation` does before a call."""
    write.settle()
    if name in PATTERNED:
        with write.block(f"if len({args[0].text}) >= {_LONG}:"):
            _count_ahead(write, name, args)
    else:
        _count_ahead(write, name, args)


def _count_ahead(write: Writer, name: str, args: Sequence[Term]) -> None:
    measure, nanos, is_costly, _ = AHEAD[name]
    texts = ", ".join(each.text for each in args)
    amount = write.let(f"{write.held(measure)}({texts})").text
    conditions = [f"c + {amount} > limit"] if is_costly else []
    if nanos:
        product = f"{nanos} * {amount}" if isinstance(nanos, int) else f"{write.held(nanos)}({amount}, {texts})"
        write.line(f"run.strained_nanos += {product}")
        conditions.append(f"run.strained_nanos > {MOST_NANOS}")
    write.line(f"if {' or '.join(conditions)}: exceed()")


def _strain_after(write: Writer, name: str, nanos: str, given: tuple[str, str]) -> None:
    after = AHEAD[name].after
    if after is not None:
        made, texts = given
        write.line(f"run.strained_nanos += {nanos or f'{write.held(after)}({made}, {texts})'}")
        write.line(f"if run.strained_nanos > {MOST_NANOS}: exceed()")
