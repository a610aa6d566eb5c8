"""The page /ui: one HTML document with its style and script inside, and the headers that confine it (docs/ui.md).

The document is put together from the files of `static/`, so that a browser needs one request and a file none.
The headers allow this style and this script by their hashes, and requests to the server of the page. The browser then
runs nothing that a text of the cluster could bring in. `as_file` writes the same page with its data inside, where
`<`, `>`, `&` and line separators are escaped, so that no text can end the element.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from scheduler.explain.answer import Explanation
from scheduler.server.ui.answers import (
    DevicesPage,
    GroupPage,
    NodePage,
    Overview,
    PodPage,
    PodUses,
    StoragePage,
)
from scheduler.server.ui.data import UiData
from scheduler.server.ui.nodes import MEASURES, NodeSearch
from scheduler.server.ui.shortened import PAGE_ROWS

_Rows = TypeVar("_Rows", PodPage, GroupPage)
_Uses = TypeVar("_Uses", DevicesPage, StoragePage)

PODS_MAX: Final = 500
"""Pods of one cause or group in a file."""
NODES_MAX: Final = 5000
"""Nodes in a file, and pools of devices, and capacity objects."""
_STATIC: Final = "static"
_SCRIPTS: Final = ("base.js", "overview.js", "nodes.js", "resources.js", "questions.js", "placed.js", "main.js")
_SEARCH_MAX: Final = 200
_TERMS_MAX: Final = 8
_PLACE: Final = b'<script type="application/json" id="data">null</script>'
_TITLE: Final = b"<title>"
_NUMBER: Final = re.compile(r"[0-9]{1,6}")
_CAUSE: Final = re.compile(r"[0-9a-f]{12}")
_POD: Final = re.compile(r"[^/]{1,100}/[^/]{1,300}")
_GROUP: Final = re.compile(r"[^/]{1,100}/[^/]{1,100}/[^/]{1,300}")
_ESCAPED: Final = {
    b"<": rb"\u003c",
    b">": rb"\u003e",
    b"&": rb"\u0026",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}


class MalformedQuery(ValueError):
    """The query of /ui/data is malformed. The message names the parameter."""


class UiPages(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """All answers that the page can need, for a file."""

    overview: Overview
    pods: dict[str, list[PodPage]]
    """By cause."""
    nodes: list[list[NodePage]]
    """By cell. Cells behind the limit have no pages."""
    groups: dict[str, list[GroupPage]]
    """By id of the group."""
    devices: DevicesPage
    """With all pools up to the limit."""
    storage: StoragePage
    """With all capacity objects up to the limit."""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a simulation that the file shows next to its pages."""

    text: str
    problems: list[str]
    placed: int
    placements: Sequence[object]
    """The first placed pods, as `simulate -o json` has them."""


UiAnswer: TypeAlias = Overview | PodPage | NodePage | GroupPage | DevicesPage | StoragePage | PodUses


async def answer(data: UiData, query: Mapping[str, str]) -> UiAnswer | None:
    """Return the sums, or a page of rows; None if there is no such thing now.

    `cause=`, `group=`, `cell=` and `pod=` have an id; `nodes=`, `devices=` and `storage=` words to search for. Raises
    MalformedQuery, and what `UiData` raises.
    """
    page = _number(query, "page") or 0
    if (words := query.get("nodes")) is not None:
        measure = query.get("measure", "")
        if measure not in {"", *MEASURES}:
            raise MalformedQuery(f"measure must be one of {', '.join(MEASURES)}")
        search = NodeSearch(_terms("nodes", words), measure, _number(query, "least") or 0)
        return await data.nodes_found(search, page)
    if (words := query.get("devices")) is not None:
        return await data.devices(_terms("devices", words), page)
    if (words := query.get("storage")) is not None:
        return await data.storage(_terms("storage", words), page)
    if (cause := query.get("cause")) is not None:
        if not _CAUSE.fullmatch(cause):
            raise MalformedQuery("cause must be the id of a cause")
        return await data.pods_of(cause, page)
    if (group := query.get("group")) is not None:
        if not _GROUP.fullmatch(group):
            raise MalformedQuery("group must be the id of a group")
        return await data.members_of(group, page)
    if (pod := query.get("pod")) is not None:
        if not _POD.fullmatch(pod):
            raise MalformedQuery("pod must be NAMESPACE/NAME")
        return await data.placed(pod)
    cell = _number(query, "cell")
    return await data.overview() if cell is None else await data.nodes_of(cell, page)


async def pages(data: UiData) -> UiPages:
    """Return all answers. Raises what `UiData` raises."""
    overview = await data.overview()
    pods = {each.id: await _some(partial(data.pods_of, each.id)) for each in overview.causes}
    groups = {each.id: await _some(partial(data.members_of, each.id)) for each in overview.groups}
    nodes: list[list[NodePage]] = []
    remaining = NODES_MAX
    for cell in overview.cells:
        rows = list[NodePage]()
        while remaining > 0 and (part := await data.nodes_of(cell.id, len(rows))) is not None:
            rows.append(part)
            remaining -= len(part.nodes)
            if part.page + 1 >= part.pages:
                break
        nodes.append(rows)
    return UiPages(
        overview=overview,
        pods=pods,
        nodes=nodes,
        groups=groups,
        devices=await _all(data.devices),
        storage=await _all(data.storage),
    )


async def _all(read: Callable[[Sequence[str], int], Awaitable[_Uses]]) -> _Uses:
    """Return the sums with the pools of all pages up to the limit, as one page."""
    found = [await read((), 0)]
    found += [await read((), page) for page in range(1, min(found[0].pages, NODES_MAX // PAGE_ROWS))]
    return msgspec.structs.replace(found[0], pages=1, pools=tuple(pool for each in found for pool in each.pools))


async def _some(read: Callable[[int], Awaitable[_Rows | None]]) -> list[_Rows]:
    """Return the first pages of a list of pods."""
    found: list[_Rows] = []
    while (page := await read(len(found))) is not None:
        found.append(page)
        if page.page + 1 >= page.pages or len(found) * len(page.pods) >= PODS_MAX:
            break
    return found


@cache
def html() -> bytes:
    """Return the document."""
    static = files("scheduler.server.ui").joinpath(_STATIC)
    style = static.joinpath("page.css").read_bytes()
    script = b"\n".join(static.joinpath(name).read_bytes() for name in _SCRIPTS)
    whole = static.joinpath("page.html").read_bytes()
    for place, text in ((b"<style></style>", style), (b"<script></script>", script)):
        head, found, tail = whole.partition(place)
        assert found
        opening, _, closing = place.partition(b"><")
        whole = b"".join((head, opening, b">\n", text, b"<", closing, tail))
    return whole


@cache
def headers() -> Mapping[str, str]:
    """Return the headers of the page."""
    more = "connect-src 'self'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": f"{_policy()}; {more}",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def as_file(found: UiPages, explanations: tuple[Explanation, ...], simulation: SimulationResult) -> bytes:
    """Return the page with these data inside. It requests nothing."""
    data: dict[str, Any] = {
        **msgspec.to_builtins(found),
        "explanations": explanations,
        "simulation": simulation,
    }
    meta = f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'.encode()
    whole = html().replace(_TITLE, meta + _TITLE, 1)
    head, place, tail = whole.partition(_PLACE)
    assert place
    return b"".join((head, place.replace(b"null", embedded(data)), tail))


def embedded(data: object) -> bytes:
    """Return JSON that can stand in a script element: no markup, whatever the texts are."""
    text = msgspec.json.encode(data, enc_hook=str)
    for raw, escaped in _ESCAPED.items():
        text = text.replace(raw, escaped)
    return text


def _policy() -> str:
    """Return the part of the policy that a file can have as well."""
    style, script = (_hash(found[1]) for found in (_only(rb"<style>(.*?)</style>"), _only(rb"<script>(.*?)</script>")))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _only(pattern: bytes) -> re.Match[bytes]:
    (found,) = re.finditer(pattern, html(), re.DOTALL)
    return found


def _hash(text: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"


def _terms(name: str, words: str) -> tuple[str, ...]:
    found = tuple(words[: _SEARCH_MAX + 1].casefold().split())
    if len(words) > _SEARCH_MAX or len(found) > _TERMS_MAX:
        raise MalformedQuery(f"{name} must have at most {_TERMS_MAX} words and {_SEARCH_MAX} characters")
    return found


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise MalformedQuery(f"{name} must be a number, 0 to 999999")
    return int(text)
