"""One list and an endless watch of one collection, with as little work as can be, for the benchmark's own processes."""

from collections.abc import AsyncIterator, Callable

from aiohttp import ClientSession


async def listed(http: ClientSession, path: str) -> bytes:
    """The whole collection."""
    async with http.get(path) as answer:
        answer.raise_for_status()
        return await answer.read()


async def changes(http: ClientSession, path: str, version: Callable[[], str]) -> AsyncIterator[list[bytes]]:
    """Watch events as whole lines, as many as came at once; starts again after `version()` whenever a watch ends."""
    while True:
        rest = b""
        query = {"watch": "1", "resourceVersion": version(), "allowWatchBookmarks": "true"}
        async with http.get(path, params=query) as answer:
            answer.raise_for_status()
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines
