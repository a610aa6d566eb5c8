"""Calls over HTTP: addresses, TLS, limits, messages, errors in the words of kube-scheduler, and what an untrusted answer may do."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.config.errors import ConfigErrors
from scheduler.config.types import Configuration, ExtenderConfig, ExtenderTls, ManagedResource
from scheduler.core.errors import Fenced
from scheduler.extenders import http_extender
from scheduler.extenders.http_extender import HTTPExtender, build_extenders
from scheduler.extenders.messages import (
    Answer,
    WholeObjects,
    meta_victims,
    of_binding,
    of_nodes,
    of_victims,
    without_managed_fields,
)
from scheduler.framework.extender import ExtenderError, FilterResult, MetaVictims, Victims
from tests.support.extender import Behaviour, TestExtender, extender, filtering
from tests.unit.objects import info, pod
from tests.unit.server.authorities import Authority, Issued

POD = b'{"metadata":{"name":"p","namespace":"default","uid":"p"},"spec":{"schedulerName":"kubestow","containers":[]}}'


@contextlib.asynccontextmanager
async def calling(config: ExtenderConfig, *, may_write: bool = True) -> AsyncIterator[HTTPExtender]:
    """Build the extender, and show its informer the pod `p`."""
    [made], whole = await build_extenders(Configuration(extenders=(config,)), may_write=lambda: may_write)
    assert whole is not None
    whole.keeping(Pod, ObjectDecoder("Pod", Pod)).decode(POD)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def answering(behaviour: Behaviour, **fields: Any) -> AsyncIterator[tuple[HTTPExtender, TestExtender]]:
    """Serve one filter verb, and call it by names of nodes."""
    async with extender({"filter": behaviour}) as server:
        config = ExtenderConfig(server.url, filter_verb="filter", node_cache_capable=True, **fields)
        async with calling(config) as made:
            yield made, server


async def message(made: HTTPExtender) -> str:
    """Return the text of the error of a filter call."""
    with pytest.raises(ExtenderError) as error:
        await made.filter(info("p"), ["n1"])
    return error.value.message


async def test_a_call() -> None:
    async with answering(filtering("n1")) as (made, server):
        assert (await made.filter(info("p"), ["n1", "n2"])).passed == {"n1"}
        assert server.called("filter") == [("p", ["n1", "n2"])]


@pytest.mark.parametrize("end", ["", "/", "//"])
async def test_one_slash_is_between_prefix_and_verb(end: str) -> None:
    async with extender({"filter": filtering("n1")}) as server:
        config = ExtenderConfig(server.url + end, filter_verb="filter", node_cache_capable=True)
        async with calling(config) as made:
            assert (await made.filter(info("p"), ["n1"])).passed == {"n1"}


@pytest.mark.parametrize("status", [201, 204, 301, 307, 404, 500, 503])
async def test_every_status_but_200_is_an_error(status: int) -> None:
    """A redirect is not followed: it could lead anywhere."""
    headers = {"Location": "/prefix/other"}
    async with answering(lambda _: web.Response(status=status, headers=headers)) as (made, server):
        wanted = f"failed filter with extender at URL {server.url}/filter, code {status}"
        assert await message(made) == wanted
        assert len(server.calls) == 1


async def test_an_answer_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_extender, "_ANSWER_BYTES", 1000)
    async with answering(lambda _: web.Response(body=b" " * 100_000)) as (made, server):
        said = await message(made)
        assert said.startswith(f'the answer of extender "{server.url}" to filter exceeds 1')


@pytest.mark.parametrize(("nodes", "is_read"), [(1, False), (10, True)])
async def test_the_length_of_an_answer_follows_the_nodes_of_the_question(nodes: int, is_read: bool) -> None:
    """Each node may have 16 KiB, so that an answer about one node cannot occupy the event loop for long."""
    body = json.dumps({"NodeNames": ["n0"], "FailedNodes": {"n1": "x" * 90_000}}).encode()
    async with answering(lambda _: web.Response(body=body)) as (made, _):
        calling_it = made.filter(info("p"), [f"n{at}" for at in range(nodes)])
        if is_read:
            assert (await calling_it).passed == {"n0"}
        else:
            with pytest.raises(ExtenderError, match=r"to filter exceeds 8\d{4} bytes"):
                await calling_it


async def test_an_answer_that_never_ends_is_cut() -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.Event().wait()

    async with answering(lambda _: web.Response(body=drip()), http_timeout_s=0.05) as (made, _):
        assert await message(made) == (
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        )


async def test_a_compressed_answer_is_not_expanded() -> None:
    """A small one could become gigabytes."""
    body, headers = gzip.compress(b" " * 10_000_000), {"Content-Encoding": "gzip"}
    async with answering(lambda _: web.Response(body=body, headers=headers)) as (made, _):
        assert "is unreadable" in await message(made)


async def test_only_a_leader_binds() -> None:
    async with extender({"bind": lambda _: {}}) as server:
        config = ExtenderConfig(server.url, bind_verb="bind")
        async with calling(config, may_write=False) as made:
            with pytest.raises(Fenced):
                await made.bind(info("p"), "n1")
        assert server.calls == []


async def test_a_pod_that_is_gone_is_not_sent() -> None:
    async with answering(filtering("n1")) as (made, server):
        with pytest.raises(ExtenderError, match="pod default/q is gone"):
            await made.filter(info("q"), ["n1"])
        assert server.calls == []


# -- interest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("managed", "spec", "is_interested"),
    [
        pytest.param((), {}, True, id="no resources are named"),
        pytest.param(("a.b/c",), {}, False, id="the pod requests none"),
        pytest.param(("a.b/c",), {"containers": [{"resources": {"requests": {"a.b/c": "1"}}}]}, True, id="a request"),
        pytest.param(("a.b/c",), {"initContainers": [{"resources": {"requests": {"a.b/c": "1"}}}]}, True, id="an init"),
        pytest.param(("a.b/c",), {"overhead": {"a.b/c": "1"}}, False, id="overhead only"),
        pytest.param(("a.b/c",), {"containers": [{"resources": {"requests": {"a.b/d": "1"}}}]}, False, id="another"),
    ],
)
async def test_interest(managed: tuple[str, ...], spec: dict[str, Any], is_interested: bool) -> None:
    config = ExtenderConfig("http://127.0.0.1:9", managed_resources=tuple(map(ManagedResource, managed)))
    async with calling(config) as made:
        assert made.is_interested(info("p", **spec)) is is_interested


# -- TLS -------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def https(tmp_path: Path, *, wants_client: bool = False) -> AsyncIterator[tuple[str, bytes, Issued]]:
    """Serve HTTPS for the name `extender`; yield the address, the authority, and a certificate with its key."""
    authority = Authority("ca")
    pair = authority.issues("extender")
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.key + b"\n" + pair.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.pem.decode())
    async with extender({"filter": filtering("n1")}, tls=context) as server:
        yield server.url, authority.pem, pair


@pytest.mark.parametrize(
    ("more", "is_trusted"),
    [
        pytest.param({"enable_https": True}, True, id="no authority"),
        pytest.param({"tls": ExtenderTls(insecure=True)}, True, id="insecure"),
        pytest.param({}, False, id="the authorities of the machine"),
        pytest.param({"tls": "ca", "enable_https": True}, True, id="an authority and the server's name"),
        pytest.param({"tls": "ca without name", "enable_https": True}, False, id="an authority and another name"),
    ],
)
async def test_trust(tmp_path: Path, more: dict[str, Any], is_trusted: bool) -> None:
    async with https(tmp_path) as (url, authority, _):
        if isinstance(more.get("tls"), str):
            name = "" if "without" in more["tls"] else "extender"
            more = more | {"tls": ExtenderTls(ca_data=authority, server_name=name)}
        async with calling(ExtenderConfig(url, filter_verb="filter", node_cache_capable=True, **more)) as made:
            if is_trusted:
                assert (await made.filter(info("p"), ["n1"])).passed == {"n1"}
            else:
                assert "tls: failed to verify certificate: " in await message(made)


@pytest.mark.parametrize("is_in_files", [True, False], ids=["files", "data"])
async def test_a_client_certificate(tmp_path: Path, is_in_files: bool) -> None:
    async with https(tmp_path, wants_client=True) as (url, _, pair):
        tls = ExtenderTls(insecure=True, cert_data=pair.certificate, key_data=pair.key)
        if is_in_files:
            (tmp_path / "crt").write_bytes(pair.certificate)
            (tmp_path / "key").write_bytes(pair.key)
            tls = ExtenderTls(insecure=True, cert_file=str(tmp_path / "crt"), key_file=str(tmp_path / "key"))
        async with calling(ExtenderConfig(url, filter_verb="filter", node_cache_capable=True, tls=tls)) as made:
            assert (await made.filter(info("p"), ["n1"])).passed == {"n1"}


@pytest.mark.parametrize("tls", [
    ExtenderTls(ca_file="/nowhere"),
    ExtenderTls(ca_data=b"garbage"),
    ExtenderTls(cert_data=b"garbage", key_data=b"garbage"),
], ids=["no file", "no authority", "no key"])  # fmt: skip
async def test_files_that_cannot_be_used_are_mistakes(tls: ExtenderTls) -> None:
    config = Configuration(extenders=(ExtenderConfig("http://a"), ExtenderConfig("https://b", tls=tls)))
    with pytest.raises(ConfigErrors) as wrong:
        await build_extenders(config, may_write=lambda: True)

    assert wrong.value.path == "extenders[1]"


# -- whole objects ---------------------------------------------------------------------------------------------------


def whole(**more: Any) -> WholeObjects:
    return WholeObjects(lambda each: not each.spec.node_name, **{"keeps_nodes": True, **more})


def test_pods_are_kept_until_they_are_bound_or_deleted() -> None:
    objects = whole()
    decoder = objects.keeping(Pod, ObjectDecoder("Pod", Pod))
    decoder.decode(POD)
    assert objects.get("p") == POD
    decoder.decode(POD.replace(b'"spec":{', b'"spec":{"nodeName":"n1",'))
    assert objects.get("p") is None
    decoder.decode(POD)
    objects.forget_deleted([Delta(pod("p"), None)])
    assert objects.get("p") is None


def test_nodes_are_kept_if_an_extender_needs_them() -> None:
    raw = b'{"metadata":{"name":"n1","uid":"u1"},"status":{"x":[1,2]}}'
    objects, others = whole(), whole(keeps_nodes=False)
    for each in (objects, others):
        each.keeping(Node, ObjectDecoder("Node", Node)).decode(raw)

    assert (objects.get("n1"), others.get("n1")) == (raw, None)


def test_a_node_that_returns_is_kept() -> None:
    """The deletion of the old one is delivered after the new one was read."""
    objects = whole()
    decoder = objects.keeping(Node, ObjectDecoder("Node", Node))
    old = decoder.decode(b'{"metadata":{"name":"n1","uid":"u1"}}')
    new = decoder.decode(b'{"metadata":{"name":"n1","uid":"u2"}}')
    objects.forget_deleted([Delta(old, None), Delta(None, new)])

    assert objects.get("n1") == b'{"metadata":{"name":"n1","uid":"u2"}}'


def test_an_object_that_cannot_be_read_is_not_kept() -> None:
    objects = whole()
    objects.keeping(Pod, ObjectDecoder("Pod", Pod)).decode(POD.replace(b'"containers":[]', b'"containers":7'))
    assert objects.get("p") is None


def test_managed_fields_are_removed() -> None:
    raw = b'{"kind":"Pod","metadata":{"name":"p","managedFields":[{"x":1}],"labels":{"a":"b"}},"spec":{"n":1.50}}'
    wanted = b'{"kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"n":1.50}}'
    assert without_managed_fields(raw) == wanted


ABOUT = 'extender "http://x" to filter'


def answer(body: Any) -> Answer:
    return Answer(body if isinstance(body, bytes) else json.dumps(body).encode(), ABOUT)


def filtered(body: Any) -> FilterResult:
    return answer(body).filter_result(["n1", "n2"], "http://x")


# -- requests --------------------------------------------------------------------------------------------------------


def test_whole_nodes_are_sent_as_they_are() -> None:
    body = json.loads(of_nodes(b'{"p":1}', nodes=[b'{"n":1}', b'{"n":2}'], names=None))
    assert body == {"Pod": {"p": 1}, "Nodes": {"metadata": {}, "items": [{"n": 1}, {"n": 2}]}, "NodeNames": None}


def test_names_of_nodes() -> None:
    assert json.loads(of_nodes(b"{}", nodes=None, names=["n1"])) == {"Pod": {}, "Nodes": None, "NodeNames": ["n1"]}


def test_victims_by_uid() -> None:
    meta = meta_victims({"n1": Victims((info("a"),), 2)})
    assert json.loads(of_victims(b"{}", whole=None, meta=meta)) == {
        "Pod": {},
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}},
    }


def test_whole_victims() -> None:
    body = of_victims(b"{}", whole={'n"1': ([b'{"a":1}', b'{"b":1}'], 0), "n2": ([], 1)}, meta=None)
    assert json.loads(body) == {
        "Pod": {},
        "NodeNameToVictims": {
            'n"1': {"Pods": [{"a": 1}, {"b": 1}], "NumPDBViolations": 0},
            "n2": {"Pods": [], "NumPDBViolations": 1},
        },
        "NodeNameToMetaVictims": None,
    }


def test_a_binding() -> None:
    wanted = {"PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "n1"}
    assert json.loads(of_binding(info("p"), "n1")) == wanted


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        pytest.param({"NodeNames": ["n2"]}, {"n2"}, id="names"),
        pytest.param({"NodeNames": ["n2", "n2"]}, {"n2"}, id="a name twice"),
        pytest.param({"nodenames": ["n1"]}, {"n1"}, id="another spelling"),
        pytest.param({"NODENAMES": ["n1"]}, {"n1"}, id="upper case"),
        pytest.param({"NodeNames": [], "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}, set(), id="names win"),
        pytest.param({"Nodes": {"items": [{"metadata": {"name": "n1", "x": [1]}, "spec": 7}]}}, {"n1"}, id="nodes"),
        pytest.param({"nodes": {"Items": [{"metadata": {"name": "n1"}}]}}, {"n1"}, id="nodes, another spelling"),
        pytest.param({"NodeNames": None, "Nodes": None, "FailedNodes": None, "Error": None}, set(), id="nulls"),
        pytest.param(None, set(), id="null"),
        pytest.param({}, set(), id="nothing"),
    ],
)
def test_passing_nodes(body: Any, passed: set[str]) -> None:
    assert filtered(body).passed == passed


def test_reasons() -> None:
    """Also of nodes that were not in the question: upstream counts them, too."""
    body = {"FailedNodes": {"n1": "a", "n7": None}, "failedAndUnresolvableNodes": {"n2": "b"}}
    assert filtered(body) == FilterResult(frozenset(), {"n1": "a", "n7": ""}, {"n2": "b"})


@pytest.mark.parametrize(("body", "said"), [
    pytest.param(b"<html>", "the answer of {about} is unreadable: JSON is malformed", id="no JSON"),
    pytest.param(b"", "the answer of {about} is unreadable: Input data was truncated", id="nothing"),
    pytest.param(b"[]", "the answer of {about} is unreadable: Expected `object | null`, got `array`", id="a list"),
    pytest.param({"NodeNames": "n1"}, "NodeNames in the answer of {about} is unreadable: Expected", id="a text"),
    pytest.param({"NodeNames": [1]}, "NodeNames in the answer of {about} is unreadable: Expected", id="numbers"),
    pytest.param({"Nodes": []}, "Nodes in the answer of {about} is unreadable: Expected", id="a list of nodes"),
    pytest.param({"Nodes": {"items": [1]}}, "Nodes.items in the answer of {about} is unreadable: Expected",
        id="no nodes"),
    pytest.param({"FailedNodes": ["n1"]}, "FailedNodes in the answer of {about} is unreadable", id="no map"),
    pytest.param({"FailedNodes": {"n1": 1}}, "FailedNodes in the answer of {about} is unreadable", id="no reason"),
    pytest.param({"Error": {"a": 1}}, "Error in the answer of {about} is unreadable", id="no error"),
    pytest.param({"NodeNames": ["n3"]},
        'extender "http://x" claims a filtered node "n3" which is not found in the input node list',
        id="an unknown name"),
    pytest.param({"Nodes": {"items": [{"metadata": {}}]}},
        'extender "http://x" claims a filtered node "" which is not found in the input node list',
        id="a node without a name"),
])  # fmt: skip
def test_a_filter_answer_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        filtered(body)

    assert error.value.message.startswith(said.format(about=ABOUT))
    assert not error.value.is_answer


MOST: Final = 20_000
NAMES: Final = [f"n{at}" for at in range(MOST + 1)]


@pytest.mark.parametrize(("read", "body", "path"), [
    pytest.param("filter", {"NodeNames": NAMES}, "NodeNames", id="names"),
    pytest.param("filter", {"Nodes": {"items": [{}] * len(NAMES)}}, "Nodes.items", id="nodes"),
    pytest.param("filter", {"FailedNodes": dict.fromkeys(NAMES, "why")}, "FailedNodes", id="reasons"),
    pytest.param("filter", {"FailedAndUnresolvableNodes": dict.fromkeys(NAMES)}, "FailedAndUnresolvableNodes",
        id="final reasons"),
    pytest.param("filter", dict.fromkeys(NAMES), "", id="fields"),
    pytest.param("prioritize", [{}] * len(NAMES), "HostPriorityList", id="scores"),
    pytest.param("preempt", {"NodeNameToMetaVictims": dict.fromkeys(NAMES)}, "NodeNameToMetaVictims", id="candidates"),
    pytest.param("preempt", {"NodeNameToMetaVictims": {"a": {"Pods": [{}] * 9_000}, "b": {"Pods": [{}] * 9_000},
        "c": {"Pods": [{}] * 9_000}}}, "NodeNameToMetaVictims", id="victims of all candidates"),
])  # fmt: skip
def test_an_answer_has_a_greatest_number_of_entries(read: str, body: Any, path: str) -> None:
    """Each entry costs a conversion on the event loop, in which no pod is tried."""
    given = answer(body)
    reads: dict[str, Callable[[], object]] = {
        "filter": lambda: given.filter_result(NAMES, "http://x"),
        "prioritize": given.host_priorities,
        "preempt": given.preemption_result,
    }
    with pytest.raises(ExtenderError) as error:
        reads[read]()

    where = f"{path} in " if path else ""
    assert error.value.message == f"{where}the answer of {ABOUT} has more than 20000 entries"


def test_an_answer_may_name_all_nodes_of_the_question() -> None:
    body = json.dumps({"NodeNames": NAMES}).encode()
    assert Answer(body, ABOUT, len(NAMES)).filter_result(NAMES, "http://x").passed == frozenset(NAMES)


def test_an_error_of_the_extender_is_shortened() -> None:
    with pytest.raises(ExtenderError) as error:
        filtered({"Error": "x" * 10_000})

    assert error.value.is_answer
    assert len(error.value.message) == 1024


def test_scores() -> None:
    body = [{"Host": "n1", "Score": 3}, {"host": "n2", "SCORE": -1}, {"Host": "n1", "Score": 2}, {}, None]
    wanted = [("n1", 3), ("n2", -1), ("n1", 2), ("", 0), ("", 0)]
    assert answer(body).host_priorities() == wanted
    assert answer(None).host_priorities() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param([{"Host": "n1", "Score": 2**63}], "[0].Score in the answer", id="too large"),
        pytest.param([{"Host": "n1", "Score": 1.5}], "[0].Score in the answer", id="no integer"),
        pytest.param([{}, {"Host": "n1", "Score": "7"}], "[1].Score in the answer", id="a text"),
        pytest.param([{"Host": 1}], "[0].Host in the answer", id="no name"),
        pytest.param({"Host": "n1"}, "HostPriorityList in the answer", id="no list"),
    ],
)
def test_scores_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        answer(body).host_priorities()

    assert error.value.message.startswith(said)


def test_victims() -> None:
    body = {
        "nodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}, {"uid": "b"}, None], "NumPDBViolations": 2}, "n2": None}
    }
    wanted = {"n1": MetaVictims(("a", "b", ""), 2), "n2": MetaVictims((), 0)}
    assert answer(body).preemption_result() == wanted
    assert answer({}).preemption_result() == {}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"n1": []}, "NodeNameToMetaVictims[n1] in the answer", id="a list"),
        pytest.param({"n1": {"Pods": ["a"]}}, "NodeNameToMetaVictims[n1].Pods in the answer", id="texts"),
        pytest.param({"n1": {"Pods": [{"UID": 1}]}}, "NodeNameToMetaVictims[n1].Pods[0].UID in", id="a number"),
        pytest.param({"n1": {"NumPDBViolations": "2"}}, "NodeNameToMetaVictims[n1].NumPDBViolations in", id="no count"),
    ],
)
def test_victims_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        answer({"NodeNameToMetaVictims": body}).preemption_result()

    assert error.value.message.startswith(said)


@pytest.mark.parametrize(
    "read", [Answer.binding_result, Answer.host_priorities, Answer.preemption_result], ids=lambda read: read.__name__
)
def test_no_answer_is_read_from_garbage(read: Callable[[Answer], Any]) -> None:
    for body in (b"", b"{", b"nothing", b'"text"', b"\xff\xfe", b"1"):
        with pytest.raises(ExtenderError):
            read(Answer(body, ABOUT))


def test_a_binding_that_was_carried_out() -> None:
    answer({}).binding_result()
    answer({"Error": ""}).binding_result()
    with pytest.raises(ExtenderError, match=r"^no$"):
        answer({"Error": "no"}).binding_result()
