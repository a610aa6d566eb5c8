"""A sandbox whose pods wait for a scheduler of their own, behind a proxy that makes faults."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from tests.e2e.controlplane.harness import scheduler_config
from tests.e2e.faultproxy import FaultProxy
from tests.e2e.sandbox import Sandbox
from tests.e2e.stage import Stage


@contextlib.asynccontextmanager
async def staged(world: Sandbox) -> AsyncIterator[Stage]:
    """A proxy; the world's pods are for a scheduler of this name behind it."""
    world.scheduler = f"kubestow-{world.name}"
    async with world.plane.client() as admin, aiohttp.ClientSession() as http, FaultProxy(world.plane) as proxy:
        yield Stage(world.plane, proxy, admin, http)


@contextlib.asynccontextmanager
async def running(world: Sandbox, stage: Stage, *, token: str = "") -> AsyncIterator[None]:
    """The daemon for the world's pods."""
    with stage.daemon(token, config=scheduler_config(world.scheduler), name=world.scheduler) as server:
        world.server = server
        yield
