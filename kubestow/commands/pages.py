"""Read pages of the scheduler's leader, and say why one cannot be read."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kubestow.commands.unreachable import with_cause
from scheduler.cli.cluster_commands import access, attempt
from scheduler.cli.debug_request import Client, DebugRequest, opened, problem
from scheduler.cli.leader import Leader, NoAnswer

READYZ: Final = "/readyz"
T = TypeVar("T")
_READ_SHARE: Final = 0.9
"""Of the time limit, for the pages. The rest is for the way to the leader."""
_AN_ANSWER: Final = {READYZ: frozenset({200, 500})}
"""A failed check makes the page an error, which has the checks as well."""


@dataclass(frozen=True, slots=True)
class DaemonPages:
    """Texts of pages by path, and why the other ones cannot be read."""

    leader: Leader | None
    """None with --server."""
    texts: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


async def read_pages(client: Client, paths: Sequence[str], *, limit_s: float | None = None) -> DaemonPages:
    """Read the pages one after the other, each within its share of `limit_s`. Raises NoAnswer if none can be read."""
    async with with_cause(client):
        leader = await client.leader()
    texts: dict[str, str] = {}
    missing: dict[str, str] = {}
    limit_s = client.access.timeout_s if limit_s is None else limit_s
    until = client.clock.now() + _READ_SHARE * limit_s
    for pages, path in zip(range(len(paths), 0, -1), paths):
        share_s = max(0.0, until - client.clock.now()) / pages
        try:
            async with asyncio.timeout(share_s):
                texts[path] = await _text(client, leader, path)
        except TimeoutError:
            missing[path] = f"no answer to GET {path} within {share_s:.1f} s; --timeout gives more time"
        except NoAnswer as why:
            missing[path] = str(why)
    if not texts:
        raise NoAnswer(next(iter(missing.values())))
    return DaemonPages(leader, texts, missing)


async def _text(client: Client, leader: Leader | None, path: str) -> str:
    query = {"verbose": "1"} if path == READYZ else {}
    request = DebugRequest("GET", path, path, wants_text=False, query=query)
    answer = await client.page(request, leader)
    if answer.status not in _AN_ANSWER.get(path, {200}):
        raise NoAnswer(problem(answer, request, leader))
    return answer.text


def answered(arguments: argparse.Namespace, answer: Callable[[Client], Awaitable[T]]) -> T | int:
    """Return the answer, or the exit code after an error, which is printed."""

    async def run() -> T:
        async with opened(access(arguments)) as client:
            return await answer(client)

    return attempt(arguments, lambda: asyncio.run(run()))
