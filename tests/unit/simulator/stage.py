"""An API server with objects in it, and actors that work until nothing is left to do."""

from __future__ import annotations

from typing import Protocol

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder
from tests.support.clock import VirtualClock


class Actor(Protocol):
    """What works in steps."""

    def step(self) -> int: ...


def server_with(*objects: Builder[object], clock: VirtualClock | None = None) -> ApiServer:
    server = ApiServer(clock=clock or VirtualClock())
    add(server, *objects)
    return server


def add(server: ApiServer, *objects: Builder[object]) -> None:
    """Create the objects, with their status."""
    for each in objects:
        server.apply(each.obj())


def settle(*actors: Actor) -> None:
    """Let the actors take turns until none has anything left to do."""
    rounds = 0
    while sum(actor.step() for actor in actors):
        rounds += 1
        assert rounds < 100, "the actors never come to rest"
