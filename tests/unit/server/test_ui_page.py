"""The page /ui: what confines it, its queries and statuses, and the file with data inside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from scheduler.explain.questions import TooManyQuestions
from scheduler.server.authorization import RequestGate
from scheduler.server.endpoints import Endpoints, EndpointSources, NotReady
from scheduler.server.ui.page import (
    MalformedQuery,
    SimulationResult,
    answer,
    as_file,
    embedded,
    headers,
    html,
    pages,
)
from tests.page.sites import HOSTILE, grouped, hostile, many, refused, ui_data
from tests.unit.harness import SchedulerHarness
from tests.unit.server.test_listening import Crowd, listening, sources


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    text = html().decode()
    style, script = (re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("style", "script"))
    hashes = [base64.b64encode(hashlib.sha256(found.encode()).digest()).decode() for (found,) in (style, script)]

    policy = dict(each.split(" ", 1) for each in headers()["Content-Security-Policy"].split("; "))

    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{hashes[0]}'",
        "script-src": f"'sha256-{hashes[1]}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "connect-src": "'self'",
        "frame-ancestors": "'none'",
    }
    assert headers()["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "refused_text",
    ["innerHTML", "outerHTML =", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", " style=", "http://", "https://", "@import", "url("],
)  # fmt: skip
def test_the_page_makes_no_markup_of_texts_and_loads_nothing(refused_text: str) -> None:
    assert refused_text not in html().decode()


def test_the_page_has_no_handlers_in_attributes() -> None:
    markup = re.sub(r"<script.*?</script>", "", html().decode(), flags=re.DOTALL)

    assert re.findall(r"\son\w+\s*=", markup) == []


@pytest.mark.parametrize(
    "text",
    ["</script>", "<!--", "<script>", "&lt;", "]]>", "\u2028\u2029", "\\u003c", HOSTILE],
    ids=["the end of a script", "a comment", "the begin of a script", "an entity", "the end of CDATA", "line separators", "an escape", "all"],
)  # fmt: skip
def test_embedded_data_has_no_markup_and_stays_the_same(text: str) -> None:
    found = embedded({text: [text]})

    assert not set(found.decode()) & set("<>&\u2028\u2029")
    assert json.loads(found) == {text: [text]}


async def test_a_file_has_all_pages_inside() -> None:
    data = ui_data(hostile())
    result = SimulationResult(
        text=HOSTILE, problems=[HOSTILE], placed=1, placements=[{"pod": HOSTILE, "node": HOSTILE}]
    )

    found = as_file(await pages(data), (), result).decode()

    assert found.count("<script") == found.count("</script>") == html().decode().count("<script")
    (meta,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', found)
    assert headers()["Content-Security-Policy"].startswith(meta)
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', found, re.DOTALL)
    inside = json.loads(text)
    assert inside["simulation"]["problems"] == [HOSTILE]
    assert sum(len(page["pods"]) for some in inside["pods"].values() for page in some) == 62
    assert [page["nodes"][0]["node"] for some in inside["nodes"] for page in some] == sorted(
        [f"node{HOSTILE}", "node-b" * 40]
    )


async def test_a_file_of_a_large_cluster_has_a_limit() -> None:
    found = await pages(ui_data(many(300, 2000)))

    assert {len(some) for some in found.pods.values()} <= {20, 12}
    assert sum(len(page.nodes) for some in found.nodes for page in some) == 300


async def test_a_file_has_the_members_of_each_group_that_it_shows() -> None:
    sched = grouped()
    await sched.settle()
    found = await pages(ui_data(sched))

    assert {name: [len(page.pods) for page in some] for name, some in found.groups.items()} == {
        "PodGroup/default/waits": [25, 25, 10],
        "PodGroup/default/lost": [1],
        "PodGroup/default/runs": [2],
    }


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"cause": ""}, "cause"),
        ({"cause": "../../x"}, "cause"),
        ({"cause": "0" * 13}, "cause"),
        ({"group": "default/g"}, "group"),
        ({"cell": "-1"}, "cell"),
        ({"cell": "x"}, "cell"),
        ({"cell": "1", "page": "9999999"}, "page"),
        ({"page": "1e3"}, "page"),
        ({"cell": "\u0661"}, "cell"),
    ],
    ids=["an empty cause", "a path", "a long cause", "a group without its kind", "a negative cell", "a cell that is no number", "a large page", "a float", "a digit of another script"],
)  # fmt: skip
async def test_a_malformed_query_names_its_parameter(query: dict[str, str], why: str) -> None:
    with pytest.raises(MalformedQuery, match=why):
        await answer(ui_data(SchedulerHarness()), query)


def pages_of(*, is_on: bool = True) -> EndpointSources:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p", conditions=refused("0/1 nodes are available: 1 Insufficient cpu."))
    data = ui_data(sched)

    async def found(query: Mapping[str, str]) -> object | None:
        if query.get("cell") == "7":
            raise TooManyQuestions
        if query.get("cell") == "8":
            raise NotReady("the cache is not filled yet")
        return await answer(data, query)

    return replace(sources(), ui_data=found if is_on else None)


async def got(crowd: Crowd, path: str, sent: dict[str, str]) -> tuple[aiohttp.ClientResponse, str]:
    """Return the answer to a request with these headers, and its text."""
    url = f"http://127.0.0.1:{crowd.listener.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=sent) as answered:
        return answered, await answered.text()


class OpenGate(RequestGate):
    """A gate that lets every caller in, as HTTPS with authorization has one."""

    def __init__(self) -> None:
        pass

    async def refuses(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("path", "sent", "status", "text"),
    [
        ("/ui", {}, 200, "<!doctype html>"),
        ("/ui/data", {}, 200, '{"time":'),
        ("/ui/data?cell=0", {}, 200, '{"cell":0'),
        ("/ui/data?cell=1", {}, 404, "404 no such pods or nodes"),
        ("/ui/data?cause=000000000000", {}, 404, "404 no such pods or nodes"),
        ("/ui/data?cell=a", {}, 400, "400 cell must be a number"),
        ("/ui/data?cell=7", {}, 429, "429 too many questions"),
        ("/ui/data?cell=8", {}, 503, "503 the cache is not filled yet"),
        ("/ui/", {}, 404, "404 page not found"),
        ("/ui/data", {"Sec-Fetch-Site": "same-origin"}, 200, '{"time":'),
        ("/ui/data", {"Sec-Fetch-Site": "cross-site"}, 403, "403 only this page"),
        ("/ui", {"Sec-Fetch-Site": "cross-site"}, 200, "<!doctype html>"),
        ("/ui/data", {"Host": "evil.example:80"}, 403, "403 the host must be localhost"),
        ("/ui", {"Host": "127.0.0.1.evil.example"}, 403, "403 the host"),
        ("/ui", {"Host": "localhost:1"}, 200, "<!doctype html>"),
        ("/ui", {"Host": "[::1]:1"}, 200, "<!doctype html>"),
        ("/ui", {"Host": "192.0.2.7:1"}, 200, "<!doctype html>"),
    ],
)
async def test_statuses(path: str, sent: dict[str, str], status: int, text: str) -> None:
    async with listening(Endpoints(pages_of())) as crowd:
        found, body = await got(crowd, path, sent)

    assert (found.status, body[: len(text)]) == (status, text)
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    if text == "<!doctype html>":
        assert {name: found.headers[name] for name in headers()} == headers()
        assert found.headers["Content-Type"] == "text/html; charset=utf-8"


async def test_behind_authorization_any_host_is_served() -> None:
    async with listening(Endpoints(pages_of(), OpenGate())) as crowd:
        found, _ = await got(crowd, "/ui/data", {"Host": "kubestow.kubestow.svc"})

    assert found.status == 200


@pytest.mark.parametrize("path", ["/ui", "/ui/data"])
async def test_the_page_is_off_unless_it_is_enabled(path: str) -> None:
    async with listening(Endpoints(pages_of(is_on=False))) as crowd:
        found, _ = await got(crowd, path, {})

    assert found.status == 404
