"""Texts that quote tenants' objects are cut."""

from __future__ import annotations

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.core.errors import shortened


@pytest.mark.parametrize(
    ("text", "limit_bytes", "expected"),
    [
        pytest.param("abc", 8, "abc", id="a short text stays as it is"),
        pytest.param("a" * 9, 8, "aaaa ...", id="a long text ends in an ellipsis"),
        pytest.param("äöüß", 8, "äöüß", id="the limit counts bytes"),
        pytest.param("xäöüß", 8, "xä ...", id="a character is never cut in half"),
        pytest.param("\U0001f600" * 3, 8, "\U0001f600 ...", id="nor one of four bytes"),
        pytest.param("a\ud800", 8, "a?", id="a lone surrogate becomes a question mark"),
    ],
)
def test_a_text_is_cut_to_so_many_bytes(text: str, limit_bytes: int, expected: str) -> None:
    assert expected == shortened(text, limit_bytes)
    assert len(shortened(text, limit_bytes).encode()) <= limit_bytes


def test_a_text_of_megabytes_is_not_encoded_as_a_whole() -> None:
    class Counted(str):
        __slots__ = ()

        def encode(self, *_: str, **__: str) -> bytes:
            raise AssertionError("encoded as a whole")

    assert len(shortened(Counted("ä" * 1_000_000)).encode()) <= 1024


def test_why_an_object_could_not_be_read_is_cut() -> None:
    """A field's name may be as long as the object."""
    raw = b'{"metadata":{"name":"p"},"spec":{"nodeSelector":{"' + b"x" * 5000 + b'":1}}}'

    broken = ObjectDecoder("Pod", Pod).decode(raw)

    assert isinstance(broken, Broken)
    assert len(broken.why.encode()) <= 1024
    assert len(Broken("Pod", broken.metadata, "y" * 5000).why) == 1024
