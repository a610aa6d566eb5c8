"""Long pages in pieces: the same bytes, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, strategies as st

from scheduler.server.cache_dump import PAUSE, ROWS, DumpSections, indented, pieces

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), plain | st.lists(plain, max_size=3 * ROWS), min_size=1, max_size=4))
def test_pieces_make_the_whole(page: dict[str, object]) -> None:
    """Whether a list is given at once or row by row."""
    whole = {name: (lambda value=value: value) for name, value in page.items()}
    by_rows = {
        name: (lambda value=value: iter(value) if isinstance(value, list) else value) for name, value in page.items()
    }

    assert b"".join(pieces(whole)) == indented(page) + b"\n"
    assert b"".join(pieces(by_rows)) == indented(page) + b"\n"
    inner = {"a": lambda: DumpSections(by_rows), "b": lambda: 1}
    assert b"".join(pieces(inner)) == indented({"a": page, "b": 1}) + b"\n"


@given(st.lists(st.none() | st.integers(0, 9), max_size=3 * ROWS))
def test_pauses_are_no_rows(rows: list[int | None]) -> None:
    """Each ends a piece, and nothing else."""
    said = list(pieces({"a": lambda: (PAUSE if row is None else row for row in rows)}))

    assert b"".join(said) == indented({"a": [row for row in rows if row is not None]}) + b"\n"
    assert len(said) >= 4 + rows.count(None)


def test_rows_are_made_when_their_turn_comes() -> None:
    """No piece has more than a few, and what is behind it has not been looked at."""
    made: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(10 * ROWS):
            made.append(number)
            yield number

    looked_at = 0
    for piece in pieces({"rows": rows, "end": lambda: len(made)}):
        assert len(made) - looked_at <= ROWS, piece
        looked_at = len(made)
    assert looked_at == 10 * ROWS


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": frozenset({"x"})}])
def test_what_json_has_no_word_for(value: object) -> None:
    """Is printed as text rather than not at all."""
    assert msgspec.json.decode(b"".join(pieces({"a": lambda: value})))["a"] is not None
