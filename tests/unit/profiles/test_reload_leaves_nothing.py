"""Plugins of former profiles that have no binding under way are freed."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from functools import partial

from scheduler.framework.profile import Profile
from scheduler.profiles.reconciler import RequestedProfile
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.volumebuilders import a_claim, a_class
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_devices import uses
from tests.unit.hints.hint_rows_limits import claims, stored

OURS = "kubestow"


def parts_of(profile: Profile) -> list[object]:
    """Return the plugins of all extension points."""
    listed = [getattr(profile, field.name) for field in dataclasses.fields(profile)]
    flat = [part for parts in listed if isinstance(parts, tuple) for part in parts]
    return [part for part in flat if type(part).__module__.startswith("scheduler.plugins.")]


async def changed(sched: SchedulerHarness, generation: int) -> None:
    wish = RequestedProfile("u", generation, {"percentageOfNodesToScore": generation})
    sched.parts.inbox.put(partial(sched.parts.reloading.reconcile, {OURS: wish}))
    await sched.settle()
    assert sched.parts.reloading.verdicts[OURS].in_force == generation


async def test_old_plugins_are_freed() -> None:
    """They have filtered pods with volumes and devices, nominated one pod, and bound several."""
    sched = SchedulerHarness()
    asks = a_device_claim("d").uid("d").resource_version("1").request("r", "gpu", count=2)
    given = stored(a_device_class("gpu"), a_slice("n1", "drv", a_device("g0")), asks)
    for thing in (node("n1"), *given, *stored(a_class("local"), a_claim("v", "1Gi", "local"))):
        thing(sched)
    pod("d", **uses("d"))(sched)
    pod("v", **claims("v"))(sched)
    sched.pod("low", cpu="3", on="n1", priority=1)
    sched.pod("high", cpu="3", priority=10)
    await sched.settle()
    assert sched.parts.queue.nominator.node_of("uid-high") == "n1"
    seen: dict[int, list[weakref.ref[object]]] = {}
    for generation in range(1, 6):
        await changed(sched, generation)
        sched.pod(f"plain{generation}", cpu="10m")
        await sched.later(15)
        seen[generation] = [weakref.ref(part) for part in parts_of(sched.parts.profiles[OURS])]
        assert len({type(ref()) for ref in seen[generation]}) > 10
    assert f"default/plain{generation}" in {key for key, _ in sched.writer.binds}
    assert len(sched.parts.binder) == 0

    gc.collect()

    alive = {generation: [ref() for ref in refs if ref() is not None] for generation, refs in seen.items()}
    newest = alive.pop(generation)
    assert (len(newest), {at: left for at, left in alive.items() if left}) == (len(seen[generation]), {})
