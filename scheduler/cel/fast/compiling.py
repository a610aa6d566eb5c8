"""A checked expression to a Python function that does the same as its closures, or says that it cannot tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import CodeType
from typing import NamedTuple, TypeAlias

from scheduler.cel.ast import Node
from scheduler.cel.checker import Checked
from scheduler.cel.fast.nodes import Nodes
from scheduler.cel.fast.support import NAMES
from scheduler.cel.fast.writer import Unsupported, Writer
from scheduler.cel.plan import Plan
from scheduler.cel.running import Run
from scheduler.cel.types import Env
from scheduler.cel.values import Value

Function: TypeAlias = Callable[[Mapping[str, Value], int, Callable[[int], int]], tuple[Value, int]]
"""With the variables, the cost at which to call what follows, and that. Gives the value and the cost.

Raises CostExceeded if the closures would, EvalError too if it tells errors, Stopped, or anything: then the closures decide.
"""


class Fast(NamedTuple):
    """Generated code."""

    function: Function
    source: str
    counts: bool
    """If not, nothing is called and nothing is limited."""
    tells: bool
    """Whether an EvalError is the answer."""


def generate(
    checked: Checked, env: Env, plans: Mapping[Node, Plan], *, limit: int, counts: bool = False
) -> Fast | None:
    """None if this expression is not for it.

    Without `counts`, an expression that cannot cost more than the limit does not count, and says that it cost nothing.
    """
    for tells in (True, False):
        try:
            writer, text = _written(checked, env, plans, counts=True, tells=tells)
            if not counts and writer.at_most is not None and writer.at_most <= limit:
                writer, text = _written(checked, env, plans, counts=False)
            names = {**NAMES, **writer.constants, "limit": limit}
            if writer.counts:
                names["run"] = Run({}, 0, limit=limit)
            exec(_compiled(text), names)  # noqa: S102  every word of it was written here
        except (Unsupported, SyntaxError, RecursionError, MemoryError):  # too deep for Python, not for us
            continue
        return Fast(names["evaluate"], text, writer.counts, writer.tells)
    return None


def _compiled(text: str) -> CodeType:
    """Without Python's warnings of what can only fail: it fails as it should, and nobody could change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(text, "<cel>", "exec")


def _written(
    checked: Checked, env: Env, plans: Mapping[Node, Plan], *, counts: bool, tells: bool = False
) -> tuple[Writer, str]:
    writer = Writer(counts=counts, tells=tells)
    nodes = Nodes(checked, env, plans, writer)
    value = nodes.term(checked.root)
    writer.settle()
    head = ["def evaluate(bindings, bound, tick):"]
    head += [f" {name} = bindings[{variable!r}]" for variable, name in nodes.globals.items()]
    head.append(" c = run.strained_nanos = 0" if counts else " run = FREE")
    if writer.strains:
        head.append(" s = 0")
    if writer.reads:
        head.append(" run.patterns.clear()")
    return writer, "\n".join([*head, *writer.lines(), f" return {value.text}, {'c' if counts else 0}", ""])
