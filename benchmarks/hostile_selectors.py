"""The cost of selectors that are made to be expensive: `python -m benchmarks.hostile_selectors`.

Each is as long as the API server accepts (10 KiB). The columns: milliseconds to compile, and kilobytes of the compiled selector by
`kubestow_device_cel_compiled_bytes` and by Python's memory tracer. Then milliseconds of the first evaluation, which the
event loop does up to a small cost and the worker thread beyond it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from rich.console import Console
from rich.table import Table

from scheduler.cache.devices.selectors import environment
from scheduler.cel.check.types import Env
from scheduler.cel.errors import CelError
from scheduler.cel.eval.program import Program, compile_expression

T = TypeVar("T")

LONGEST: Final = 10 * 1024
"""Characters of a selector that the API server accepts."""
_DEPTH: Final = 240


def _joined(separator: str, term: str) -> Callable[[int], str]:
    return lambda length: separator.join([term] * ((length + len(separator)) // (len(term) + len(separator))))


def _wrapped(before: str, separator: str, term: str, after: str) -> Callable[[int], str]:
    inner = _joined(separator, term)
    return lambda length: before + inner(length - len(before) - len(after)) + after


def _nested(before: str, innermost: str, after: str) -> Callable[[int], str]:
    def made(length: int) -> str:
        levels = min(_DEPTH, (length - len(innermost)) // (len(before) + len(after)))
        return before * levels + innermost + after * levels

    return made


_A: Final = 'device.attributes["gpu.example.com"]'
HOSTILE: Final[dict[str, Callable[[int], str]]] = {
    "comparisons of an attribute": _joined(" || ", f'{_A}.model == "a"'),
    "comparisons of the driver": _joined(" && ", 'device.driver == "a"'),
    "comparisons of literals": _joined("&&", "1==1"),
    "sums of a hundred": _joined(" && ", f"({'+'.join(['1'] * 100)}>0)"),
    "sums of unknown types": _joined("&&", "dyn(1)+1>0"),
    "orders of unknown types": _joined("&&", "dyn(1)<1"),
    "calls": _joined("&&", "size(device.driver)>1"),
    "calls of members": _joined("&&", '"a".contains("")'),
    "a list of empty lists": _wrapped("[", ",", "[]", "].size()>0"),
    "a list of empty maps": _wrapped("[", ",", "{}", "].size()>0"),
    "a list of the driver": _wrapped("[", ",", "device.driver", "].size()>0"),
    "comprehensions": _joined("&&", "[1].all(a,a>0)"),
    "comprehensions in comprehensions": _joined("&&", f"{'[1].all(a,' * 7}a>0{')' * 7}"),
    "maps with filters": _joined("&&", "[1].map(a,a>0,a)==[1]"),
    "indexes of indexes": _joined("&&", "[[1]][0][0]>0"),
    "optionals": _joined("&&", f"{_A}.?a.orValue(true)"),
    "memberships": _joined("&&", "1 in[1,2]"),
    "formats": _joined("&&", '"%s".format([1])==""'),
    "patterns": _joined("&&", '"".matches("[a-z]+")'),
    "a sum of texts": _joined(" + ", "device.driver"),
    "parentheses in parentheses": _nested("(", "true", ")"),
    "negations": _wrapped("", "", "!", "true"),
    "deep comprehensions": _nested("[1].all(a,true&&true&&true&&", "true", ")"),
    "deep maps": _nested("[1].map(a,true&&true,", "1", ")"),
    "a long text": _wrapped('"', "", "a", '"==device.driver'),
}
"""Name → a source of at most this number of characters. Two of them do not compile: deeper than cel-go, or no bool."""


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.hostile_selectors", description=__doc__).parse_args(argv)
    env = environment(list_attributes=False)
    table = Table(title=f"selectors of {LONGEST} characters")
    for column in ("selector", "ms to compile", "KB counted", "KB traced", "ms to evaluate"):
        table.add_column(column, justify="left" if column == "selector" else "right")
    for name, made in HOSTILE.items():
        table.add_row(name, *_figures(made(LONGEST), env))
    Console().print(table)
    return 0


def _figures(source: str, env: Env) -> tuple[str, str, str, str]:
    compile_ms, program = _timed(lambda: _compiled(source, env))
    if program is None:
        return f"{compile_ms:.1f}", "-", "-", "-"
    gc.collect()
    tracemalloc.start()
    again = _compiled(source, env)
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del again
    evaluate_ms, _ = _timed(lambda: _evaluated(program))
    return f"{compile_ms:.1f}", f"{program.size_bytes / 1000:.0f}", f"{traced / 1000:.0f}", f"{evaluate_ms:.2f}"


def _compiled(source: str, env: Env) -> Program | None:
    with suppress(CelError):
        return compile_expression(source, env)
    return None


def _evaluated(program: Program) -> None:
    device = {"driver": "gpu.example.com", "attributes": {"gpu.example.com": {"model": "b"}}, "capacity": {}}
    with suppress(CelError):
        program.evaluate({"device": device})


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    found = work()
    return 1000 * (time.process_time() - began), found


if __name__ == "__main__":
    sys.exit(main())
