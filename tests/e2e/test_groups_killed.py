"""SIGKILL of the daemon in each phase of a group, on real controllers: what it leaves in part, the next daemon completes (docs/spec/groups.md §4, §6, §7).

A group has devices, volumes or both. A failed history prints its plan and its seed; `KUBESTOW_SEED=<number>` draws the same again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.controlplane.harness import ControlPlane, started
from tests.e2e.faultproxy import FaultProxy, ProxyStage
from tests.e2e.killed import ANY_WRITE, BINDING, DrawnGroup, Killed, Stop, patch, shared_objects
from tests.e2e.storage import CONTROLLERS
from tests.e2e.test_groups import COSCHEDULING, CRDS, HAS_NATIVE, NATIVE, create, is_served

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

_numbers = itertools.count()
SERVED: Final = tuple("/".join(path.split("/")[2:4]) for path in (NATIVE, *CRDS))
PROTECTIONS: Final = patch("resourceclaims")
ALLOCATIONS: Final = ({"resource": "resourceclaims", "subresource": "status"},)
"""Updates after our own finalizer, and patches: of further users, and after a kill."""
SELECTIONS: Final = patch("persistentvolumeclaims")
PREBINDS: Final = patch("persistentvolumes")
DELETIONS: Final = ({"verb": "delete", "resource": "pods", "subresource": ""},)
NOMINATIONS: Final = patch("pods", "status")
BINDINGS: Final = (BINDING,)
AGAIN: Final = (ALLOCATIONS, SELECTIONS, PREBINDS, BINDINGS)


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """A server with groups and the controllers of volumes and claims."""
    gates = ["--feature-gates=GenericWorkload=true"] if HAS_NATIVE else []
    served = ["--runtime-config=scheduling.k8s.io/v1beta1=true"] if HAS_NATIVE else []

    async def prepare(plane: ControlPlane) -> None:
        async with plane.client() as http:
            await create(http, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRDS[COSCHEDULING])
            await until(partial(is_served, http, COSCHEDULING), "the CRD")
            await Cluster(http).create(*shared_objects())
        await plane.start_controllers((*CONTROLLERS, "resourceclaim-controller"), *gates)

    plane = ControlPlane(apiserver_flags=[*gates, *served], volume_resync_s=1)
    with started(plane, prepare) as ready:
        yield ready


# -- what is drawn -----------------------------------------------------------------------------------------------------


def a_group(rng: random.Random, *, devices: str = "", volumes: tuple[str, ...] = ()) -> DrawnGroup:
    """Three to six pods on two nodes. Sometimes one pod is not needed for the minimum, and sometimes it has no place."""
    if devices == "shared":  # two pods with a claim need two places of one node
        size = rng.choice((4, 6))
        return DrawnGroup((2, size - 2 + rng.choice((0, 2))), size, size, devices, volumes)
    size = rng.randint(3, 6)
    least = size - rng.choice((0, 0, 1)) if size > 3 else size
    places = rng.choice((least, size, size + 1))
    first = rng.randint(1, places - 1)
    return DrawnGroup((first, places - first), size, least, devices, volumes)


def of_devices(rng: random.Random) -> str:
    return rng.choice(("claim", "claim", "template", "shared"))


def with_anything(rng: random.Random) -> DrawnGroup:
    devices, volumes = rng.choice(((of_devices(rng), ()), ("", ("made",)), (of_devices(rng), ("made", "local"))))
    return a_group(rng, devices=devices, volumes=volumes)


def to_be_moved(rng: random.Random) -> DrawnGroup:
    """On nodes of one size: one of them is replaced."""
    size = rng.choice((4, 6))
    return DrawnGroup((size // 2, size // 2), size, size, rng.choice(("claim", "template")), is_moved=True)


def with_victims(rng: random.Random) -> DrawnGroup:
    """All places are taken, and there is one more than the group needs, or not. All pods are needed: one more pod would preempt alone."""
    least = rng.randint(2, 4)
    first = rng.randint(1, least - 1)
    return DrawnGroup(
        (first, least - first + rng.choice((0, 1))),
        least,
        least,
        devices=rng.choice(("", "claim", "template")),
        volumes=rng.choice(((), ("local",), ("made",))),
        grace_s=rng.choice((0, 3600)),
    )


# -- the phases --------------------------------------------------------------------------------------------------------


async def when_it_is_planned(history: Killed) -> None:
    """The first write of any kind is held back: nothing has changed."""
    before = await history.versions()
    await history.kill(ANY_WRITE)
    assert await history.versions() == before


async def when_some_claims_are_allocated(history: Killed) -> None:
    after = history.rng.randint(1, history.plan.least - 1)
    await history.kill(Stop(ALLOCATIONS, after))
    assert len(await history.reserved()) == after
    if history.plan.is_moved:
        await history.move()


async def when_some_claims_are_protected(history: Killed) -> None:
    """Of the claims with the finalizer, some are allocated and the rest is not."""
    count = len({history.plan.claim_of(at) for at in range(history.plan.least)})
    await history.kill(Stop(PROTECTIONS, history.rng.randint(0, count - 1)))
    assert len(await history.reserved()) < history.plan.least


async def when_some_nodes_are_selected(history: Killed) -> None:
    after = history.rng.randint(1, history.plan.least - 1)
    await history.kill(Stop(SELECTIONS, after))
    assert len(await history.selected()) == after


async def when_some_volumes_are_claimed(history: Killed) -> None:
    after = history.rng.randint(1, history.plan.least - 1)
    await history.kill(Stop(PREBINDS, after))
    assert len(await history.claimed()) == after


async def when_all_are_prepared(history: Killed) -> None:
    await history.kill(Stop(BINDINGS))
    assert len(await history.ready()) >= history.plan.least


async def when_some_are_bound(history: Killed) -> None:
    """The only phase with fewer than the minimum."""
    after = history.rng.randint(1, history.plan.least - 1)
    await history.kill(Stop(BINDINGS, after))
    assert len(await history.bound()) == after


async def when_some_victims_leave(history: Killed) -> None:
    after = history.rng.randint(1, history.plan.least - 1)
    await history.kill(Stop(DELETIONS, after))
    assert await history.leaving_count() == after


async def when_it_is_nominated(history: Killed) -> None:
    """The first nominations and conditions of victims are written, and no victim leaves, or some do."""
    await history.kill(Stop(NOMINATIONS, history.rng.randint(0, 2)))


Phase = Callable[[Killed], Awaitable[None]]
Drawn = Callable[[random.Random], DrawnGroup]


def row(phase: Phase, drawn: Drawn, *, at: int = 0) -> object:
    return pytest.param(phase, drawn, id=f"{phase.__name__}-{at}")


HISTORIES: Final = (
    *(row(when_it_is_planned, with_anything, at=at) for at in range(2)),
    *(row(when_some_claims_are_allocated, lambda rng: a_group(rng, devices=of_devices(rng)), at=at) for at in range(2)),
    row(when_some_claims_are_allocated, to_be_moved, at=2),
    row(when_some_claims_are_allocated, lambda rng: a_group(rng, devices="claim", volumes=("made",)), at=3),
    row(when_some_claims_are_protected, lambda rng: a_group(rng, devices="claim")),
    *(row(when_some_nodes_are_selected, lambda rng: a_group(rng, volumes=("made",)), at=at) for at in range(2)),
    row(when_some_volumes_are_claimed, lambda rng: a_group(rng, volumes=("local",))),
    row(when_some_volumes_are_claimed, lambda rng: a_group(rng, devices="template", volumes=("local", "made")), at=1),
    *(row(when_all_are_prepared, with_anything, at=at) for at in range(2)),
    *(row(when_some_are_bound, with_anything, at=at) for at in range(3)),
    *(row(when_some_victims_leave, with_victims, at=at) for at in range(3)),
    row(when_it_is_nominated, with_victims),
)
assert len(HISTORIES) == 20


@pytest.mark.parametrize(("phase", "drawn"), HISTORIES)
async def test_the_group_starts_whole_after_a_kill(
    plane: ControlPlane, request: pytest.FixtureRequest, seed: int, phase: Phase, drawn: Drawn
) -> None:
    rng = random.Random(f"{seed} {request.node.callspec.id}")
    plan = drawn(rng)
    async with plane.client() as admin, FaultProxy(plane, *SERVED) as proxy:
        history = Killed(
            ProxyStage(plane, proxy, admin), f"h{next(_numbers)}", NATIVE if HAS_NATIVE else COSCHEDULING, plan, rng
        )
        try:
            async with history.followed():
                await phase(history)
                if phase is not when_some_are_bound:
                    assert await history.bound() == set()
                await killed_again(history, is_started=phase is when_some_are_bound)
                await history.finish()
        except Exception as failed:
            raise AssertionError(f"seed {seed}, {plan}, {history.stops}: {failed}") from failed
        finally:
            await history.wipe()


async def killed_again(history: Killed, *, is_started: bool) -> None:
    """In every third history, the second daemon is killed, too. What it does depends on what the first one has left."""
    if history.rng.random() > 1 / 3:
        return
    kinds = history.rng.choice(AGAIN)
    after = 0 if kinds is BINDINGS else history.rng.randint(0, 2)
    is_killed = await history.kill(Stop(kinds, after), may_end=True)
    if is_killed and not is_started and history.plan.least == history.plan.bound_count:
        assert await history.bound() == set()
