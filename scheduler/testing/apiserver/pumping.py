"""Send the lines of a `Stream` as the body of a response: to the proper end, or until a fault cuts the watch."""

from __future__ import annotations

import random

from aiohttp import web

from scheduler.core.clock import Clock, done_within
from scheduler.testing.apiserver.faults import WatchFault
from scheduler.testing.apiserver.status import expired
from scheduler.testing.apiserver.watching import Stream


async def pump(stream: Stream, response: web.StreamResponse) -> None:
    """Send everything queued as one chunk, again and again, until the stream has ended."""
    while True:
        await stream.ready.wait()
        await stream.flowing.wait()
        is_ended = stream.is_ended
        if chunk := stream.take():
            await response.write(chunk)
        if is_ended:
            break
    await response.write_eof()


async def pump_and_cut(
    stream: Stream, response: web.StreamResponse, fault: WatchFault, rng: random.Random, clock: Clock
) -> bool:
    """Send line by line, some of them late, and cut the watch when its time is over. True: by a reset, left to the caller."""
    lives_s, end = rng.uniform(*fault.lives_s), rng.choice(fault.ends)
    if await done_within(clock, _pump_lines(stream, response, fault, rng, clock), lives_s):
        return False
    if end == "reset":
        return True
    if end == "gone":
        stream.take()
        stream.fail(expired("too old resource version: injected fault"))
        await response.write(stream.take())
    await response.write_eof()
    return False


async def _pump_lines(
    stream: Stream, response: web.StreamResponse, fault: WatchFault, rng: random.Random, clock: Clock
) -> None:
    while True:
        await stream.ready.wait()
        await stream.flowing.wait()
        is_ended = stream.is_ended
        for line in stream.take().splitlines(keepends=True):
            if rng.random() < fault.late:
                await clock.sleep(rng.uniform(*fault.late_s))
            await response.write(line)
        if is_ended:
            break
    await response.write_eof()
