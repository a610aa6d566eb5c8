"""Protobuf messages as lists of fields."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scheduler.kube.writes import claim_protobuf as protobuf
from scheduler.kube.writes.claim_protobuf import Field

NUMBER, FIXED64, FIXED32 = b"\x08\x96\x01", b"\x11" + bytes(8), b"\x1d" + bytes(4)
"""Field 1 is 150; 2 and 3 have a fixed size."""
ENVELOPE = protobuf.envelope_of("v1", "Pod", b"\x0a\x01x")


def test_every_wire_type_is_passed_over() -> None:
    text = protobuf.message(4, b"abc")
    found = list(protobuf.fields(NUMBER + FIXED64 + FIXED32 + text))

    assert [Field(1, b"", NUMBER), Field(2, b"", FIXED64), Field(3, b"", FIXED32), Field(4, b"abc", text)] == found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x05abc", id="less than the length"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a huge length"),
        pytest.param(b"\x11abc", id="less than eight bytes"),
        pytest.param(b"\xff" * 11, id="a number without an end"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\x02\x00", id="field 0"),
    ],
)
def test_what_is_no_message(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|wire type"):
        list(protobuf.fields(content))


def test_an_envelope_keeps_its_type() -> None:
    assert b"\x0a\x01x" == protobuf.opened(ENVELOPE)
    assert protobuf.envelope_of("v1", "Pod", b"new") == protobuf.enclosed(ENVELOPE, b"new")
    for no_envelope in (b"", b'{"kind":"Pod"}', b"k8s"):
        with pytest.raises(ValueError, match="no object"):
            protobuf.opened(no_envelope)


CONTENTS = st.lists(st.tuples(st.integers(1, 2**20), st.binary(max_size=200)), max_size=8)


@given(CONTENTS, st.integers(1, 2**20), st.lists(st.binary(max_size=200), max_size=3))
def test_the_law_of_changes(content: list[tuple[int, bytes]], number: int, values: list[bytes]) -> None:
    whole = b"".join(protobuf.message(*each) for each in content)
    others = [each for each in content if each[0] != number]
    changed = protobuf.with_every(whole, number, values)

    assert values == protobuf.every(changed, number)
    assert others == [(each.number, each.value) for each in protobuf.fields(changed) if each.number != number]
    once = protobuf.with_message(whole, number, lambda old: old + b"!")
    assert protobuf.first(whole, number) + b"!" == protobuf.first(once, number)
    assert others == [(each.number, each.value) for each in protobuf.fields(once) if each.number != number]
    assert protobuf.every(whole, number)[1:] == protobuf.every(once, number)[1:]
