"""A sandbox with a separate scheduler, behind a proxy that makes faults."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from tests.e2e.controlplane.harness import scheduler_config
from tests.e2e.faultproxy import FaultProxy
from tests.e2e.sandbox import Sandbox
from tests.e2e.stage import Stage


@contextlib.asynccontextmanager
async def staged(sandbox: Sandbox) -> AsyncIterator[Stage]:
    """A proxy; the sandbox's pods are for the scheduler behind it."""
    sandbox.scheduler = f"kubestow-{sandbox.name}"
    async with sandbox.plane.client() as admin, aiohttp.ClientSession() as http, FaultProxy(sandbox.plane) as proxy:
        yield Stage(sandbox.plane, proxy, admin, http)


@contextlib.asynccontextmanager
async def running(sandbox: Sandbox, stage: Stage, *, token: str = "") -> AsyncIterator[None]:
    """The daemon for the sandbox's pods."""
    with stage.daemon(token, config=scheduler_config(sandbox.scheduler), name=sandbox.scheduler) as server:
        sandbox.server = server
        yield
