"""The ways of a pod, a PersistentVolume event and a ResourceClaim through scheduler/, as docs/architecture.md lists them.

A file is on the way if one of its functions gets the object, its bytes or its name as an argument, directly or in a field.
Values (`api/`, `core/`), measurement (`metrics/`) and the plugins of an extension point are not listed. Of a ResourceClaim the plugin is listed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from simulator.apiserver import Fault
from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.integration.daemon import Rig, rig

ROOT: Final = Path(__file__).parents[2]
SCHEDULER: Final = ROOT / "scheduler"
NAME: Final = "the-traced-object"
VALUES: Final = ("api/", "core/", "metrics/")
NOT_LISTED: Final = (*VALUES, "plugins/")
FIELDS: Final = ("key", "name", "pod", "info", "old", "new", "entity", "queued", "attempt", "claims")
POD_MAX: Final = 28
VOLUME_MAX: Final = 20
CLAIM_MAX: Final = 32


def refers(value: Any, depth: int = 3) -> bool:
    """Return whether the value is the traced object, its bytes or its name, or has it in one of FIELDS."""
    if isinstance(value, str):
        return (
            NAME in value and " " not in value
        )  # a sentence that mentions it may be an error, which not every run has
    if isinstance(value, (bytes, bytearray)):
        return NAME.encode() in value
    if depth == 0 or value is None or isinstance(value, (int, float)):
        return False
    if isinstance(value, (tuple, list, set, frozenset)):
        return any(refers(each, depth - 1) for each in value)
    if getattr(getattr(value, "metadata", None), "name", None) == NAME:
        return True
    return any(refers(getattr(value, field, None), depth - 1) for field in FIELDS)


@contextmanager
def traced(last: str = "", *, not_listed: tuple[str, ...] = NOT_LISTED) -> Iterator[set[str]]:
    """Collect the files of scheduler/ that get the object, until the file `last` is entered or the block ends."""
    found: set[str] = set()

    def on_call(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(f"{SCHEDULER}/"):
            return
        file = path.removeprefix(f"{SCHEDULER}/")
        if file == last:
            sys.setprofile(None)
        elif file not in found and not file.startswith(not_listed):
            count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
            names = (name for name in frame.f_code.co_varnames[:count] if name not in {"self", "cls"})
            if any(refers(frame.f_locals[name]) for name in names if name in frame.f_locals):
                found.add(file)

    sys.setprofile(on_call)
    try:
        yield found
    finally:
        sys.setprofile(None)


def documented(heading: str) -> list[str]:
    """Return the files that the section of docs/architecture.md lists."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
    return re.findall(r"`([\w/]+\.py)`", section)


async def test_the_way_of_a_pod() -> None:
    """From the bytes of the watch to the Binding."""
    async with rig() as world:
        world.node("n1")
        world.pod("first")
        await world.bound("first")

        world.server.subscribe(lambda *_: sys.setprofile(None) if world.pods().get(NAME) else None)
        with traced() as found:
            world.pod(NAME)
            await world.bound(NAME)

    assert sorted(found) == sorted(documented("Of a pod"))
    assert len(found) <= POD_MAX


async def test_the_way_of_a_persistent_volume() -> None:
    """From the bytes of the watch to the attempt of the pod that it wakes."""
    async with rig() as world:
        world.node("n1")
        late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        size = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
        world.server.create("storageclasses", {"metadata": {"name": "local"}, **late})
        wanted = {**size, "resources": {"requests": {"storage": "1Gi"}}}
        world.server.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": wanted})
        world.pod("waits", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
        await world.until(lambda: world.condition("waits").get("status") == "False", "never refused")

        with traced(last="cycle.py") as found:
            volume = {**size, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
            world.server.create("persistentvolumes", {"metadata": {"name": NAME}, "spec": volume})
            free = {"status": {"phase": "Available"}}
            world.server.patch("persistentvolumes", NAME, free, subresource="status")
            await world.until(lambda: sys.getprofile() is None, "no pod was woken")

    assert sorted(found) == sorted(documented("Of a PersistentVolume event"))
    assert len(found) <= VOLUME_MAX


def _refuses_the_first_node(world: Rig) -> None:
    """Refuse Bindings, and cordon the node of the claim once its pod has released it. Once it is deallocated all is well."""
    refused = world.server.faults.add(
        Fault(verb="create", resource="pods", subresource="binding", status=403, times=None)
    )
    states: list[tuple[bool, bool]] = []

    def on_write(*_: object) -> None:
        if world.pods().get("p"):
            sys.setprofile(None)
        for claim in world.server.list("resourceclaims"):
            status = claim.get("status", {})
            state = ("allocation" in status, bool(status.get("reservedFor")))
            if state in states[-1:]:
                continue
            states.append(state)
            if state == (True, False):
                pool = status["allocation"]["devices"]["results"][0]["pool"]
                world.server.patch("nodes", pool, {"spec": {"unschedulable": True}})
            elif state == (False, False) and len(states) > 1:
                refused.times = 0

    world.server.subscribe(on_write)


async def test_the_way_of_a_resource_claim() -> None:
    """From the bytes of the watch to the devices of a pod, back to a claim without devices, and to those of another node."""
    async with rig(pod_max_backoff_s=1.0) as world:
        world.server.create("deviceclasses", a_device_class("gpu", "device.driver == 'gpu.example'").obj())
        for name in ("n1", "n2"):
            world.node(name, labels={"kubernetes.io/hostname": name})
            world.server.create("resourceslices", a_slice(name, "gpu.example", a_device("d0")).obj())
        world.pod("p", resourceClaims=[{"name": "e", "resourceClaimName": NAME}])
        pending = world.daemon.scheduler.queue
        await world.until(lambda: [entry.place for entry in pending.entries()] == ["gated"], "the pod is not gated")

        _refuses_the_first_node(world)
        with traced(not_listed=VALUES) as found:
            world.server.create("resourceclaims", a_claim(NAME).request("r", "gpu").obj())
            await world.bound("p")

    assert sorted(found) == sorted(documented("Of a ResourceClaim"))
    assert len(found) <= CLAIM_MAX
