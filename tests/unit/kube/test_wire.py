"""Answers of the API server as errors, and protobuf messages as lists of fields."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from scheduler.kube.wire import failure
from scheduler.kube.writes import claim_protobuf as protobuf
from scheduler.kube.writes.claim_protobuf import Field

STATUS = b'{"kind":"Status","code":409,"reason":"AlreadyExists","message":"it exists","details":{"name":"p"}}'


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Invalid), (401, Unauthorized), (403, Forbidden), (404, NotFound), (409, Conflict), (410, Gone),
        (415, Invalid), (422, Invalid), (429, TooManyRequests), (500, Unavailable), (502, Unavailable),
        (503, Unavailable), (504, Unavailable), (302, ApiError), (418, ApiError),
    ],
)  # fmt: skip
def test_a_status_becomes_the_type_that_says_what_to_do(status, expected):
    assert expected is type(failure(status, b"{}"))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(502, b"bad gateway", Ambiguous, id="a proxy lost the server"),
        pytest.param(504, b"{}", Ambiguous, id="the server gave up waiting"),
        pytest.param(500, b'{"message":"etcdserver: request timed out"}', Ambiguous, id="the store timed out"),
        pytest.param(500, b'{"message":"context canceled"}', Ambiguous, id="the request to the store was given up"),
        *(
            pytest.param(
                500, b'{"message":"rpc error: code = %s desc = x"}' % code, Ambiguous, id=f"{code!r} of the store"
            )
            for code in (b"Unavailable", b"DeadlineExceeded", b"Canceled", b"Unknown")
        ),
        pytest.param(500, b'{"message":"admission webhook failed"}', Unavailable, id="refused before it was stored"),
        pytest.param(503, b"{}", Unavailable, id="no server"),
    ],
)
def test_a_write_may_have_been_carried_out(status, body, expected):
    assert expected is type(failure(status, body, is_write=True))


def test_the_status_object_is_read():
    error = failure(409, STATUS)

    assert ("it exists", 409, "AlreadyExists") == (error.message, error.status, error.reason)


@pytest.mark.parametrize(
    ("status", "body", "header", "expected"),
    [
        pytest.param(429, b"{}", "3", 3.0, id="header"),
        pytest.param(429, b'{"details":{"retryAfterSeconds":4}}', None, 4.0, id="Status"),
        pytest.param(429, b"{}", None, None, id="neither"),
        pytest.param(429, b"{}", "Fri, 31 Dec 1999 23:59:59 GMT", None, id="a date is not understood"),
        pytest.param(503, b"{}", "1", 1.0, id="503 with a wish is as a 429"),
        pytest.param(429, b"{}", "60", 60.0, id="a minute"),
        pytest.param(429, b"{}", "3600", 60.0, id="an hour is shortened to a minute"),
        pytest.param(503, b"{}", "9" * 5000, 60.0, id="5000 digits"),
        pytest.param(429, b'{"details":{"retryAfterSeconds":3600}}', None, 60.0, id="an hour in the Status"),
        pytest.param(429, b'{"details":{"retryAfterSeconds":1' + b"0" * 400 + b"}}", None, 60.0, id="400 digits in it"),
        pytest.param(429, b'{"details":{"retryAfterSeconds":-5}}', None, 0.0, id="a negative number in the Status"),
    ],
)
def test_the_wish_to_wait_is_kept(status, body, header, expected):
    """From the header or the Status."""
    error = failure(status, body, retry_after=header)

    assert isinstance(error, TooManyRequests)
    assert expected == error.retry_after_s


@pytest.mark.parametrize(("header", "said"), [("60", []), ("3600", [(3600, 60.0)])], ids=["a minute", "an hour"])
def test_a_wait_that_is_shortened_is_logged(header, said):
    """The operator sees the wait that the server or the proxy requested."""
    with structlog.testing.capture_logs() as log:
        failure(429, b"{}", retry_after=header)

    assert said == [(line["asked_s"], line["waits_s"]) for line in log if line["event"] == "Retry-After is shortened"]


def test_a_body_that_is_no_status_is_the_message():
    assert "<html>nope" == failure(503, b"<html>nope").message
    assert "HTTP status 503" == failure(503, b"").message


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
