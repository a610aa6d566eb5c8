"""The law of the self-audit: after any history it finds no difference. The histories are those of the laws of each part.

Histories of whole daemons under faults end with a pass as well (`tests/integration/daemon_laws.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, example, given, settings, strategies as st

from scheduler.audit.capacity import CapacityChecks
from scheduler.audit.checks import cache_checks
from scheduler.audit.devices import DeviceChecks
from scheduler.audit.findings import Check, Difference
from scheduler.audit.queue import QueueChecks
from scheduler.audit.storage import StorageChecks
from scheduler.cache.cluster import Cluster
from scheduler.context import UnboundPods
from tests.examples import examples
from tests.unit.cache.devices.test_node_kinds_laws import History as DeviceHistory
from tests.unit.cache.pods.test_recount import apply, steps as pod_steps
from tests.unit.cache.storage.test_ledger_law import World, _history, _start
from tests.unit.objects import info
from tests.unit.queueing.test_queue_laws import History as QueueHistory, steps as queue_steps
from tests.unit.wakeups.attaching import INLINE, Step, begun, put, steps as volume_steps

FEW = 25


def found(checks: Mapping[str, Check]) -> list[tuple[str, Difference]]:
    """Return what one pass finds. Each check ends, whatever it finds."""
    return [(index, each) for index, check in checks.items() for step in check() for each in step]


def differences(cluster: Cluster) -> list[tuple[str, Difference]]:
    return found(cache_checks(cluster, lambda _: False))


def pending(infos: Iterable[Any]) -> UnboundPods:
    pods = UnboundPods()
    for each in infos:
        pods.set(each)
    return pods


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(pod_steps, max_size=FEW))
def test_no_difference_after_nodes_and_pods(history: list[tuple[str, str, str, int, int]]) -> None:
    seen = Cluster()
    for step in history:
        apply(seen, step)
        assert [] == differences(seen)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(volume_steps, max_size=FEW))
@example([put(info("a", on="n1", volumes=[{"name": f"v{at}", **each} for at, each in enumerate(INLINE)]))])
def test_no_difference_after_claims_volumes_and_attachments(history: list[Step]) -> None:
    world = begun()
    for step in history:
        step(world)
        assert [] == differences(world.cluster)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(volume_steps, max_size=FEW))
def test_no_difference_after_changes_that_nothing_has_read(history: list[Step]) -> None:
    """A check reads, and so processes the changes of nodes and pods: here only the last step is followed by one."""
    world = begun()
    for step in history:
        step(world)
    assert [] == differences(world.cluster)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_history)
def test_no_difference_after_capacity_and_reservations(history: list[tuple[str, Any]]) -> None:
    world = World()
    storage = StorageChecks(SimpleNamespace(nodes=world.nodes, volumes=world.volumes), lambda _: False)  # type: ignore[arg-type]
    of_storage = {name: check for name, check in storage.checks().items() if name != "assumed-volumes"}
    for what, more in _start + history:
        world.take(what, more)
        planned = (info(f"p{at}", volumes=[_volume(key) for key in plan]) for at, plan in enumerate(world.plans))
        capacity = CapacityChecks(world.nodes, world.volumes, pending(planned))
        assert [] == found({**of_storage, **capacity.checks()})


def _volume(key: str) -> dict[str, Any]:
    name = key.removeprefix("default/")
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**64), st.integers(1, 40))
def test_no_difference_after_claims_and_slices_of_devices(seed: int, length: int) -> None:
    history = DeviceHistory(random.Random(seed))
    caches = history.caches
    devices: Any = SimpleNamespace(
        claims=caches.claims,
        use=caches.use,
        on_nodes=caches.on_nodes,
        slices=history.slices.values,
        slice=history.slices.get,
    )
    checks = DeviceChecks(caches.nodes, devices, lambda: iter(())).checks()
    for unused in ("device-classes", "device-slices"):
        del checks[unused]
    for _ in range(length):
        history.step()
        assert [] == found(checks)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(queue_steps, min_size=10, max_size=40))
def test_no_difference_after_attempts_and_events(history: list[Callable[[QueueHistory], None]]) -> None:
    harness = QueueHistory()
    for step in history:
        step(harness)
        checks = QueueChecks(Cluster(), harness.queue, pending(harness.store.values()), lambda _: False)
        assert [] == found(checks.checks())
