"""Texts and rows of answers, bounded: one line of a limited length, and one page of a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

PAGE_ROWS: Final = 25
NAME_MAX: Final = 80
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]+")

_T = TypeVar("_T")


def shortened(text: str, limit: int = NAME_MAX) -> str:
    """Return the text on one line, with at most `limit` characters."""
    plain = _CONTROL.sub(" ", text[: limit + 1])
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def one_page(rows: Sequence[_T], page: int) -> tuple[int, int, Sequence[_T]]:
    """Return the number of the page, the number of pages, and its rows. A number beyond the end is the last page."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(page, 0), pages - 1)
    return page, pages, rows[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]
