"""JSON in pieces: a page about five thousand nodes must not hold the event loop up until it is complete.

A page is a mapping of sections, each made when its turn comes; a section that is an iterator is written row by row, one
that is `Parts` part by part. What is shown may change between two pieces: each row is of one moment, the page is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

Page: TypeAlias = Mapping[str, Callable[[], object]]


class Parts(dict[str, Callable[[], object]]):
    """A section that is made of sections."""


PAUSE: Final = object()
"""Instead of a row: none was found for a while, and others want their turn."""

ROWS: Final = 25
"""In one piece: 2 ms of the loop for nodes with twenty pods each."""


def indented(value: object) -> bytes:
    """One value. What JSON cannot hold is printed as its text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)


def pieces(page: Page) -> Iterator[bytes]:
    """The same bytes as `indented` would give of it all, and a line's end. A piece may be empty."""
    yield from _members(page, b"")
    yield b"\n"


def _members(page: Page, margin: bytes) -> Iterator[bytes]:
    inner = margin + b"  "
    head = b"{\n"
    for name, section in page.items():
        yield head + inner + msgspec.json.encode(name) + b": "
        value = section()
        if isinstance(value, Parts):
            yield from _members(value, inner)
        elif isinstance(value, Iterator):
            yield from _rows(value, inner)
        else:
            yield _deeper(indented(value), inner)
        head = b",\n"
    yield b"\n" + margin + b"}"


def _rows(rows: Iterator[object], margin: bytes) -> Iterator[bytes]:
    inner = margin + b"  "
    head = b"[\n"
    for some in _batches(rows):
        yield head + b",\n".join(inner + _deeper(indented(row), inner) for row in some) if some else b""
        head = b",\n" if some else head
    yield b"[]" if head == b"[\n" else b"\n" + margin + b"]"


def _batches(rows: Iterator[object]) -> Iterator[list[object]]:
    """What goes into one piece each; after a pause that may be nothing."""
    some: list[object] = []
    for row in rows:
        if row is not PAUSE:
            some.append(row)
        if row is PAUSE or len(some) == ROWS:
            yield some
            some = []
    if some:
        yield some


def _deeper(text: bytes, margin: bytes) -> bytes:
    """All lines but the first; within texts there are no line ends."""
    return text.replace(b"\n", b"\n" + margin)
