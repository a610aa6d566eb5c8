"""Profiles may change as often as anybody likes: plugins that decide no more, and have nothing under way, are freed."""

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
from tests.unit.brain import Brain
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_devices import uses
from tests.unit.hints.hint_rows_limits import claims, stored

OURS = "kubestow"


def parts_of(profile: Profile) -> list[object]:
    """Its plugins, of whatever point."""
    listed = [getattr(profile, field.name) for field in dataclasses.fields(profile)]
    flat = [part for parts in listed if isinstance(parts, tuple) for part in parts]
    return [part for part in flat if type(part).__module__.startswith("scheduler.plugins.")]


async def changed(brain: Brain, generation: int) -> None:
    wish = RequestedProfile("u", generation, {"percentageOfNodesToScore": generation})
    brain.parts.inbox.put(partial(brain.parts.reloading.reconcile, {OURS: wish}))
    await brain.settle()
    assert brain.parts.reloading.verdicts[OURS].in_force == generation


async def test_old_plugins_are_freed() -> None:
    """After they have looked at pods, volumes and devices, refused some, nominated one, and bound others."""
    brain = Brain()
    asks = a_device_claim("d").uid("d").resource_version("1").request("r", "gpu", count=2)
    given = stored(a_device_class("gpu"), a_slice("n1", "drv", a_device("g0")), asks)
    for thing in (node("n1"), *given, *stored(a_class("local"), a_claim("v", "1Gi", "local"))):
        thing(brain)
    pod("d", **uses("d"))(brain)
    pod("v", **claims("v"))(brain)
    brain.pod("low", cpu="3", on="n1", priority=1)
    brain.pod("high", cpu="3", priority=10)
    await brain.settle()
    assert brain.parts.queue.nominator.node_of("uid-high") == "n1"
    seen: dict[int, list[weakref.ref[object]]] = {}
    for generation in range(1, 6):
        await changed(brain, generation)
        brain.pod(f"plain{generation}", cpu="10m")
        await brain.later(15)
        seen[generation] = [weakref.ref(part) for part in parts_of(brain.parts.profiles[OURS])]
        assert len({type(ref()) for ref in seen[generation]}) > 10
    assert f"default/plain{generation}" in {key for key, _ in brain.writer.binds}
    assert len(brain.parts.binder) == 0

    gc.collect()

    alive = {generation: [ref() for ref in refs if ref() is not None] for generation, refs in seen.items()}
    newest = alive.pop(generation)
    assert (len(newest), {at: left for at, left in alive.items() if left}) == (len(seen[generation]), {})
