"""JSON as deep as the API server stores it is read, and what cannot be read costs only its own object."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder, PartlyReadPod
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core import api_json as apijson
from scheduler.kube.wire import page_of

LEVELS = 9_990


class Read(msgspec.Struct):
    kept: str = ""


DECODER = msgspec.json.Decoder(Read)


def objects(levels: int) -> bytes:
    return b'{"a":' * levels + b"{}" + b"}" * levels


def lists(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "nested", [pytest.param(objects(LEVELS), id="objects"), pytest.param(lists(LEVELS), id="lists")]
)
def test_what_is_skipped_may_be_as_deep_as_the_server_stores_it(nested):
    assert Read("yes") == apijson.decode(DECODER, b'{"skipped":' + nested + b',"kept":"yes"}')


def test_the_recursion_limit_is_as_before():
    before = sys.getrecursionlimit()

    apijson.decode(DECODER, b'{"skipped":' + objects(LEVELS) + b"}")

    assert before == sys.getrecursionlimit()


def test_a_wrong_type_deep_down_is_an_ordinary_error():
    with pytest.raises(msgspec.ValidationError):
        apijson.decode(DECODER, b'{"kept":' + objects(LEVELS) + b"}")


def test_deeper_than_any_server_stores_is_cut_and_the_rest_is_read():
    assert Read("yes") == apijson.decode(DECODER, b'{"skipped":' + objects(200_000) + b',"kept":"yes"}')


@pytest.mark.parametrize(("raw", "cut"), [
    pytest.param("{}", "{}", id="nothing to cut"),
    pytest.param('{"a":{"b":1}}', '{"a":{"b":1}}', id="exactly as deep as is kept"),
    pytest.param('{"a":{"b":{"c":1}},"d":2}', '{"a":{"b":CUT},"d":2}', id="one level too many"),
    pytest.param('{"a":{"b":[[],[[]]]},"d":[3]}', '{"a":{"b":CUT},"d":[3]}', id="lists count as levels"),
    pytest.param('{"a":[[1],[2],{}]}', '{"a":[CUT,CUT,CUT]}', id="several side by side"),
    pytest.param('{"a":{"b":"{[{["}}', '{"a":{"b":"{[{["}}', id="brackets in a string do not count"),
    pytest.param(r'{"a":{"b":"\"{[","c":[1]}}', r'{"a":{"b":"\"{[","c":CUT}}', id="an escaped quote ends no string"),
    pytest.param(r'{"a":{"b":"\\","c":[1]}}', r'{"a":{"b":"\\","c":CUT}}', id="an escaped backslash before the end"),
    pytest.param('{"é":{"ü":["ö"]}}', '{"é":{"ü":CUT}}', id="letters of several bytes"),
])  # fmt: skip
def test_what_is_deeper_than_two_levels_is_cut(raw, cut):
    shown = json.dumps(apijson.CUT.decode())

    assert cut.replace("CUT", shown) == apijson.cut_below(raw.encode(), 2).decode()


def pod(**parts: bytes) -> bytes:
    given = {"name": b'"p"', "fields": b"{}", "labels": b"{}"} | parts
    return (
        b'{"metadata":{"name":%(name)b,"namespace":"d","uid":"u","labels":%(labels)b,"managedFields":[%(fields)b]},"spec":{"nodeName":"n"}}'
        % {key.encode(): value for key, value in given.items()}
    )


def test_a_pod_with_deep_managed_fields_is_read():
    read = ObjectDecoder("Pod", Pod).decode(pod(fields=objects(LEVELS - 3)))

    assert isinstance(read, Pod)
    assert "p" == read.metadata.name


def test_a_bound_pod_with_deep_labels_is_read_without_them_and_the_field_is_named():
    read = ObjectDecoder("Pod", Pod).decode(pod(labels=objects(LEVELS - 3)))

    assert isinstance(read, PartlyReadPod)
    assert ("d/p", "n") == (read.key, read.spec.node_name)
    assert "$.metadata.labels" in read.why


def test_a_claim_with_deep_parameters_is_read():
    raw = (
        b'{"metadata":{"name":"c","namespace":"d","uid":"u"},"spec":{"devices":{"config":[{"opaque":{"driver":"x","parameters":'
        + objects(LEVELS - 7)
        + b"}}]}}}"
    )

    assert isinstance(ObjectDecoder("ResourceClaim", ResourceClaim).decode(raw), ResourceClaim)


def test_whatever_fails_in_a_decoder_costs_only_its_object(monkeypatch):
    decoder = ObjectDecoder("Pod", Pod)
    monkeypatch.setattr("scheduler.api.decode.share", lambda _: 1 / 0)

    read = decoder.decode(pod())

    assert isinstance(read, Broken)
    assert ("d/p", "ZeroDivisionError('division by zero')") == (read.key, read.why)


@pytest.mark.parametrize(
    ("raw", "mended"),
    [
        pytest.param(r'"a"', r'"a"', id="nothing to mend"),
        pytest.param(r'"\ud800"', r'"\ufffd"', id="a high one alone"),
        pytest.param(r'"\uDFFF"', r'"\ufffd"', id="a low one alone"),
        pytest.param(r'"\ud83d\ude00"', r'"\ud83d\ude00"', id="a pair"),
        pytest.param(r'"\ude00\ud83d"', r'"\ufffd\ufffd"', id="a pair in the wrong order"),
        pytest.param(r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"', id="one before a pair"),
        pytest.param(r'"\ud83d\ude00\ude00"', r'"\ud83d\ude00\ufffd"', id="one behind a pair"),
        pytest.param(r'"\ud800\u0041"', r'"\ufffd\u0041"', id="one before another escape"),
        pytest.param(r'"\n\ud800"', r'"\n\ufffd"', id="one behind another escape"),
        pytest.param(r'"\\ud800"', r'"\\ud800"', id="an escaped backslash and letters"),
        pytest.param(r'"\\\ud800"', r'"\\\ufffd"', id="one behind an escaped backslash"),
        pytest.param(r'"\ud7ff\ue000"', r'"\ud7ff\ue000"', id="neighbours that are no surrogates"),
    ],
)
def test_lone_surrogates_are_read_as_go_reads_them(raw, mended):
    assert mended == apijson.without_lone_surrogates(raw.encode()).decode()
    assert isinstance(apijson.decode(msgspec.json.Decoder(), raw.encode()), str)


def test_one_item_with_a_lone_surrogate_does_not_make_its_list_unreadable():
    """The API server passes the opaque parameters of a claim on as they were written."""
    page = page_of(rb'{"metadata":{"resourceVersion":"5"},"items":[{"a":"\ud800"},{"a":"fine"}]}')

    assert [rb'{"a":"\ufffd"}', b'{"a":"fine"}'] == [bytes(item) for item in page.items or ()]


def test_deep_and_with_a_lone_surrogate():
    raw = b'{"skipped":' + objects(LEVELS - 1).replace(b"{}", rb'"\ud800"') + b',"kept":"yes"}'

    assert Read("yes") == apijson.decode(DECODER, raw)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"kept":"', rb'{"kept":"\ud80"}', rb'{"kept":"\ud800'])
def test_what_is_no_json_is_an_ordinary_error(raw):
    with pytest.raises(msgspec.DecodeError):
        apijson.decode(DECODER, raw)
