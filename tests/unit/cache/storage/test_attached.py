"""`AttachedVolumes`: after any history the columns are what the objects say, trials included (docs/spec/volumes.md §9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSINode, CSISource
from scheduler.cache.storage.attach_limits import AttachedVolumes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from tests.examples import SLOW_SHARE, examples
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv, an_attachment
from tests.unit.objects import info, node
from tests.unit.wakeups.attaching import EBS, LongWay, World
from tests.unit.wakeups.attaching_histories import DRIVERS, GONE, NAMES, OTHER, UIDS, Step, begun, pods, steps

# -- what must hold ----------------------------------------------------------------------------------------------------


def on_nodes(world: World) -> Iterator[tuple[str, int, list[PodInfo]]]:
    seen = world.cluster.nodes
    for slot in nodeset.each(seen.present):
        yield seen.name(slot), slot, list(seen.pods(slot).values())


def check(world: World) -> None:
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
    """After every step that is looked at, within a trial and after it; the steps between are taken in together."""
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
        noted(f"something attached: {len(world.cluster.volumes.attached._by_pods) > 0}")
    check(world)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=40))
def test_nothing_is_left_behind(history: list[Step]) -> None:
    """When everything is gone, the indexes are empty."""
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

    indexes = (attached._uses, attached._uses_of_volume, attached._uses_of_class, attached._disks, attached._csi_nodes)
    told = (attached._attachments, attached._attachments_of_node, attached._attachments_of_volume, attached._counted)
    places = (attached._shown, list(attached._by_pods), list(attached._by_attachments))
    assert not any((*indexes, *told, *places, attached._drivers, world.cluster.nodes.claim_users._ephemeral))


# -- examples ----------------------------------------------------------------------------------------------------------


def claiming(name: str, *claim_names: str, on: str) -> PodInfo:
    return info(name, on=on, volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claim_names])


def bound(at: int) -> list[Any]:
    return [a_pv(f"v{at}").csi(EBS), a_claim(f"c{at}").bound_to(f"v{at}")]


def read(world: World) -> AttachedVolumes:
    world.cluster.volumes.attached.catch_up()
    return world.cluster.volumes.attached


def test_a_binding_claim_changes_its_name_wherever_it_is_used() -> None:
    """Its node may have the volume already, by an attachment; another does not."""
    world = World(
        *(node("n1"), node("n2"), a_class("ebs", EBS), a_claim("c", storage_class="ebs")),
        *(claiming("a", "c", on="n1"), claiming("b", "c", on="n2")),
        *(a_pv("v").csi(EBS), an_attachment("v", "n1", EBS)),
    )
    one, two = (world.cluster.nodes.slot(name) or 0 for name in ("n1", "n2"))
    before = [read(world).used(EBS, slot) for slot in (one, two)]
    world.put(a_claim("c", storage_class="ebs").bound_to("v"))

    assert ([2, 1], [1, 1]) == (before, [read(world).used(EBS, slot) for slot in (one, two)])
    assert read(world).users(CSISource(EBS, "v")) == 1 << one | 1 << two


def test_more_nodes_than_there_were_slots() -> None:
    """Columns grow with the cluster, also for attachments and CSINodes that are told of before anybody reads."""
    world = World(*bound(0), node("n0"), claiming("a", "c0", on="n0"))
    read(world)
    for at in range(1, 200):
        world.put(node(f"n{at}"))
        world.put(a_csi_node(f"n{at}").driver(EBS, 1))
        world.put(an_attachment("v0", f"n{at}", EBS))
        world.put(claiming(f"p{at}", "c0", on=f"n{at}"))
    full = read(world).over(EBS, 1) & world.cluster.nodes.present

    assert len(world.cluster.nodes) - 1 == full.bit_count()
    assert world.cluster.nodes.present == read(world).users(CSISource(EBS, "v0"))


def test_a_follower_that_is_far_behind_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are cut; then everything is looked at again."""
    monkeypatch.setattr(ChangeLog, "log_max", 8)
    world = World(*bound(0), *bound(1), node("n1"), a_csi_node("n1").driver(EBS, 9), claiming("a", "c0", on="n1"))
    inline = [{"name": "i", "awsElasticBlockStore": {"volumeID": "vol-9"}}]
    check(world)
    for at in range(30):
        world.put(node("n1", labels={"l": str(at)}))
        world.put(claiming("b", "c1", on="n1"))
        world.put(info("d", on="n1", volumes=inline))
        world.cluster.remove_pod("b")
        world.cluster.remove_pod("d")
    world.cluster.remove_pod("a")
    world.put(claiming("b", "c1", on="n1"))
    world.put(info("d", on="n2", volumes=inline))
    world.put(node("n2"))

    check(world)


def test_what_is_remembered_of_a_node_is_asked_anew() -> None:
    """A change that moves a node's count or limit touches its columns' log; one that does not leaves it alone."""
    world = World(*bound(0), node("n1"), node("n2"), claiming("a", "c0", on="n1"))
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
