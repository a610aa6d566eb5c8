"""`AttachedVolumes`: after any history the columns are what the objects say, trials included (docs/spec/volumes.md §9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSINode, CSISource
from scheduler.cache.storage.attach_limits import AttachedVolumes
from scheduler.core import nodeset
from tests.examples import SLOW_SHARE, examples
from tests.support.volumebuilders import a_claim, a_csi_node, a_pv, an_attachment
from tests.unit.cache.picture import leftovers
from tests.unit.objects import info, node
from tests.unit.wakeups.attaching import (
    DRIVERS,
    EBS,
    GONE,
    NAMES,
    OTHER,
    UIDS,
    AttachWorld,
    LongWay,
    Step,
    begun,
    pods,
    steps,
)

# -- what must hold ----------------------------------------------------------------------------------------------------


def on_nodes(world: AttachWorld) -> Iterator[tuple[str, int, list[PodInfo]]]:
    seen = world.cluster.nodes
    for slot in nodeset.each(seen.present):
        yield seen.name(slot), slot, list(seen.pods(slot).values())


def check(world: AttachWorld) -> None:
    """Every column of every node, recounted."""
    attached, way = world.cluster.volumes.attached, LongWay(world)
    attached.catch_up()
    for name, slot, others in on_nodes(world):
        csi_node = world.get(CSINode, name)
        limits = csi_node.limits if csi_node is not None else {}
        used = way.used(name, others)
        assert bool(attached.with_csi_node >> slot & 1) == (csi_node is not None)
        for driver in DRIVERS:
            left = limits[driver] - used[driver] if driver in limits else None
            assert (used[driver], left) == (attached.used(driver, slot), attached.free(driver, slot))
            registered = csi_node is not None and any(d.name == driver for d in csi_node.spec.drivers)
            assert registered == bool(attached.installed(driver) >> slot & 1)


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(steps, st.booleans(), st.lists(pods(), max_size=2), st.sampled_from(NAMES)), max_size=25))
def test_columns_are_what_the_objects_say(history: list[tuple[Step, bool, list[PodInfo], str]]) -> None:
    world = begun()
    for step, is_looked_at, drawn, emptied in history:
        step(world)
        if not is_looked_at:
            continue
        leave = [pod for pod in world.cluster.pods() if pod.node_name == emptied]
        come = [pod for pod in drawn if world.cluster.get(pod.uid) is None]
        with world.cluster.trial(add=[(pod, pod.node_name) for pod in come], remove=leave):
            check(world)
        check(world)
        noted(f"something attached: {len(world.cluster.volumes.attached.by_pods) > 0}")
    check(world)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=40))
def test_nothing_is_left_behind(history: list[Step]) -> None:
    world = begun()
    for step in history:
        step(world)
    attached = world.cluster.volumes.attached
    for what in GONE:
        world.drop(*what)
    for uid in UIDS:
        world.cluster.remove_pod(uid)
    for name in NAMES:
        world.cluster.remove_node(name)
    attached.catch_up()

    assert leftovers(attached) == leftovers(world.cluster.nodes.claim_users) == {}


# -- examples ----------------------------------------------------------------------------------------------------------


def claiming(name: str, *claim_names: str, on: str) -> PodInfo:
    return info(name, on=on, volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claim_names])


def bound(at: int) -> list[Any]:
    return [a_pv(f"v{at}").csi(EBS), a_claim(f"c{at}").bound_to(f"v{at}")]


def read(world: AttachWorld) -> AttachedVolumes:
    world.cluster.volumes.attached.catch_up()
    return world.cluster.volumes.attached


def test_more_nodes_than_there_were_slots() -> None:
    world = AttachWorld(*bound(0), node("n0"), claiming("a", "c0", on="n0"))
    read(world)
    for at in range(1, 200):
        world.put(node(f"n{at}"))
        world.put(a_csi_node(f"n{at}").driver(EBS, 1))
        world.put(an_attachment("v0", f"n{at}", EBS))
        world.put(claiming(f"p{at}", "c0", on=f"n{at}"))
    full = read(world).over(EBS, 1) & world.cluster.nodes.present

    assert len(world.cluster.nodes) - 1 == full.bit_count()
    assert world.cluster.nodes.present == read(world).by_pods.nodes(CSISource(EBS, "v0"))


def test_changed_counts_and_limits_are_in_the_change_log() -> None:
    world = AttachWorld(*bound(0), node("n1"), node("n2"), claiming("a", "c0", on="n1"))
    read(world)
    nodes = world.cluster.nodes
    slot = nodes.slot("n1")

    def touched(change: Any) -> list[int] | None:
        position = nodes.position
        world.put(change)
        return nodes.changed_since(position)

    assert [touched(change) for change in (a_csi_node("n1").driver(EBS, 2), an_attachment("v0", "n1", EBS))] == [
        [slot],
        [slot],
    ]
    assert touched(a_pv("v0").csi(OTHER)) == [slot]
    assert touched(a_pv("v0").csi(OTHER).label("a", "b")) == []
    assert touched(a_claim("c1").bound_to("v0")) == []
