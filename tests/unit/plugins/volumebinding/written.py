"""Plans, and servers that do something else with what is written first: for the tests of writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.core.errors import ApiError
from scheduler.plugins.volumebinding.api_updates import WriteDeadline
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan
from tests.unit.plugins.volumebinding.world import D1, U1, A, World, using

CHANGED = "Operation cannot be fulfilled on {}: the object has been modified"
Step: TypeAlias = Callable[[World], None]
"""What the server does with one write; nothing: it carries it out."""

VOLUME, CLAIM = "volume", "claim"
KINDS = pytest.mark.parametrize("kind", [VOLUME, CLAIM], ids=["a volume", "a claim"])


def written(world: World, *claims: str, steps: dict[str, list[Step]] | None = None) -> BindingPlan:
    """A plan for n1, and a server that does these things first with writes of each kind."""
    plan = world.plan(using("p", *claims))
    left = steps or {}

    def next_of(kind: str) -> None:
        if left.get(kind):
            left[kind].pop(0)(world)

    world.writer.on_prebind = lambda volume, claim: next_of(VOLUME)
    world.writer.on_select = lambda claim, node_name: next_of(CLAIM)
    return plan


def write(world: World, plan: BindingPlan, *, within_s: float = 600.0) -> Any:
    world.binder._assumptions.begin(plan)
    return world.binder._writer.write(plan, WriteDeadline(world.clock.now() + within_s, lambda: None))


def case(kind: str, *steps: Step, ours: KubestowArgs | None = None) -> tuple[World, BindingPlan]:
    """One object of this kind to be written."""
    things, claim = ((U1, A), "u1") if kind == VOLUME else ((D1,), "d1")
    world = World(*things, ours=ours)
    return world, written(world, claim, steps={kind: list(steps)})


def writes(world: World) -> int:
    return len(world.writer.prebinds) + len(world.writer.selections)


def fails(error: ApiError) -> Step:
    def step(world: World) -> None:
        raise error

    return step
