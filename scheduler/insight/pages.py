"""JSON in pieces: a page about five thousand nodes must not hold the event loop up until it is complete.

A page is a mapping of sections, each made when its turn comes; a section that is an iterator is written row by row. What
is shown may change between two pieces: each row is of one moment, the page is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

Page: TypeAlias = Mapping[str, Callable[[], object]]

ROWS: Final = 25
"""In one piece: 2 ms of the loop for nodes with twenty pods each."""


def indented(value: object) -> bytes:
    """One value. What JSON cannot hold is printed as its text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)


def pieces(page: Page) -> Iterator[bytes]:
    """The same bytes as `indented` would give of it all, and a line's end."""
    head = b"{\n"
    for name, section in page.items():
        yield head + b"  " + msgspec.json.encode(name) + b": "
        value = section()
        if isinstance(value, Iterator):
            yield from _rows(value)
        else:
            yield _deeper(indented(value), b"  ")
        head = b",\n"
    yield b"\n}\n"


def _rows(rows: Iterator[object]) -> Iterator[bytes]:
    head = b"[\n"
    while some := tuple(itertools.islice(rows, ROWS)):
        yield head + b",\n".join(b"    " + _deeper(indented(row), b"    ") for row in some)
        head = b",\n"
    yield b"[]" if head == b"[\n" else b"\n  ]"


def _deeper(text: bytes, margin: bytes) -> bytes:
    """All lines but the first; within texts there are no line ends."""
    return text.replace(b"\n", b"\n" + margin)
