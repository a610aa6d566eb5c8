"""NodeVolumeLimits: docs/spec/volumes.md §9.1, §11.13, §12 (B-12, B-27, Q-13)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from simulator.builders.core import Builder
from tests.support.volumebuilders import (
    PersistentVolumeBuilder,
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_pv,
    an_attachment,
)
from tests.unit.objects import handle, info, node
from tests.unit.plugins.ask import refused
from tests.unit.wakeups.attaching import EBS, FULL, GCE, World

PARITY = KubestowArgs(parity=True)
MISSING = (Code.UNSCHEDULABLE, (f"{EBS} CSI driver is not installed on the node",))

INLINE = {"awsElasticBlockStore": {"volumeID": "vol-9"}}
BAD_ID = "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://zone/disk)"


def limits_of(world: World, *gates: str, ours: KubestowArgs | None = None) -> NodeVolumeLimits:
    plain = handle(world.cluster)
    return NodeVolumeLimits(
        None, dataclasses.replace(plain, ours=ours or KubestowArgs(), feature_gates=frozenset(gates))
    )


def using(name: str, *claims: str, on: str = "", volumes: tuple[dict[str, Any], ...] = ()) -> PodInfo:
    """A pod with these claims, and with volumes written out."""
    listed = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)]
    return info(name, on=on, volumes=[*listed, *({"name": f"i{at}", **volume} for at, volume in enumerate(volumes))])


def ephemeral(name: str, *volumes: str, on: str = "") -> PodInfo:
    """A pod with these ephemeral volumes; its uid is its name."""
    return info(name, on=on, volumes=[{"name": volume, "ephemeral": {}} for volume in volumes])


def in_tree(name: str, source: dict[str, Any]) -> PersistentVolumeBuilder:
    return a_pv(name).source(**source)


def fixtures(driver: str = EBS) -> list[Builder[Any]]:
    """Claims c0…c3 bound to v0…v3 of the driver; `pending` of a class of it, `classless`, `lost` and `disk`."""
    bound: list[Builder[Any]] = [a_pv(f"v{at}").csi(driver) for at in range(4)]
    bound += [a_claim(f"c{at}", storage_class="ebs").bound_to(f"v{at}") for at in range(4)]
    return [
        *bound,
        a_class("ebs", EBS),
        a_class("old", "kubernetes.io/aws-ebs"),
        a_class("files", "kubernetes.io/azure-file"),
        a_claim("pending", storage_class="ebs"),
        a_claim("pending-old", storage_class="old"),
        a_claim("pending-files", storage_class="files"),
        a_claim("classless"),
        a_claim("lost", storage_class="ebs").bound_to("gone"),
        a_claim("path").bound_to("path"),
        a_pv("path"),
        a_claim("old1").bound_to("old1"),
        in_tree("old1", {"awsElasticBlockStore": {"volumeID": "vol-1"}}),
        a_claim("old2").bound_to("old2"),
        in_tree("old2", {"awsElasticBlockStore": {"volumeID": "aws:///vol-2"}}),
        a_claim("broken").bound_to("broken"),
        in_tree("broken", {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}),
        a_claim("disk1").bound_to("disk1"),
        in_tree("disk1", {"gcePersistentDisk": {"pdName": "disk1"}}),
        a_claim("disk2").bound_to("disk2"),
        in_tree("disk2", {"gcePersistentDisk": {"pdName": "disk2"}}),
    ]


def a_world(*things: Any, limit: int | None = 2, **more: int) -> World:
    """Node n1, whose EBS driver has this limit; further drivers by name with `_` for `.`."""
    csi_node = a_csi_node("n1").driver(EBS, limit)
    for driver, count in more.items():
        csi_node = csi_node.driver(driver.replace("_", "."), count)
    return World(node("n1"), *fixtures(), csi_node, *things)


P3 = using("p3", "c3", on="n1")
VA0 = an_attachment("v0", "n1", EBS)
VA1 = an_attachment("v1", "n1", EBS)


@pytest.mark.parametrize(
    ("world", "pod", "out"),
    [
        pytest.param(
            a_world(),
            using("p", volumes=({"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}},)),
            (
                Code.ERROR,
                (f"converting volume(i0) from inline to csi: {BAD_ID}",),
            ),
            id="one written out in the pod that cannot be translated",
        ),
        pytest.param(
            World(node("n1")),
            using("p", "", volumes=({"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}},)),
            (Code.ERROR, ("PersistentVolumeClaim had no name",)),
            id="a claim without a name",
        ),
        pytest.param(
            a_world(ephemeral("q", "x", on="n1"), a_claim("q-x", storage_class="ebs"), P3),
            using("p", "c0"),
            None,
            id="Q-13 a pod there whose ephemeral claim is not its own",
        ),
    ],
)  # fmt: skip
def test_limits(world: World, pod: PodInfo, out: Any) -> None:
    """A node is refused iff some driver has more to attach than it can."""
    assert ({"n1": out} if out else {}) == refused(limits_of(world), world.cluster, pod)


@pytest.mark.parametrize(
    ("ours", "out"),
    [pytest.param(PARITY, {"n1": FULL}, id="L1 as upstream"), pytest.param(KubestowArgs(), {}, id="B-12")],
)
def test_attached_already(ours: KubestowArgs, out: Any) -> None:
    """Upstream charges a volume that is still attached once more, and keeps a pod from coming back."""
    world = a_world(VA0, VA1)

    assert out == refused(limits_of(world, ours=ours), world.cluster, using("p", "c0"))


@pytest.mark.parametrize(
    ("pod", "skips"),
    [
        pytest.param(using("p", volumes=({"configMap": {}}, {"secret": {}})), True, id="L21 nothing to attach"),
        pytest.param(ephemeral("p", "x"), False, id="L21 an ephemeral volume"),
        pytest.param(using("p", volumes=(INLINE,)), False, id="L21 one written out in the pod"),
        pytest.param(using("p", volumes=({"csi": {"driver": EBS}},)), True, id="a driver's own ephemeral kind"),
        pytest.param(using("p", volumes=({"azureFile": {}},)), False, id="one of a kind that is never migrated"),
    ],
)
def test_skip(pod: PodInfo, skips: bool) -> None:
    """Pods that have nothing attached are not looked at."""
    plugin = limits_of(a_world())

    assert (SKIP if skips else None) == plugin.pre_filter(CycleState(), pod, 1)


SCALING = "VolumeLimitScaling"


@pytest.mark.parametrize(
    ("world", "gates", "pod", "out"),
    [
        pytest.param(
            World(a_csi_driver(EBS)), (SCALING,), using("p", "c0"), {}, id="L27 the driver does not require it"
        ),
        pytest.param(
            World(a_csi_driver(EBS).must_be_registered()),
            (SCALING,),
            using("p", "c0"),
            {"bare": MISSING, "other": MISSING},
            id="L27 L28 the driver requires it, and is on one node",
        ),
        pytest.param(World(a_csi_driver(EBS).must_be_registered()), (), using("p", "c0"), {}, id="L28 the gate is off"),
        pytest.param(
            World(a_csi_driver(EBS).must_be_registered()),
            (SCALING,),
            using("p", volumes=(INLINE,)),
            {"other": MISSING},
            id="L27 in-tree volumes count only where a CSINode is",
        ),
    ],
)
def test_driver_must_be_there(world: World, gates: tuple[str, ...], pod: PodInfo, out: Any) -> None:
    """With VolumeLimitScaling a driver may keep its pods off nodes without it."""
    others = [node("bare"), node("other"), node("n1"), a_csi_node("n1").driver(EBS), a_csi_node("other").driver(GCE)]
    for thing in (*fixtures(), *others):
        world.put(thing)

    assert out == refused(limits_of(world, *gates), world.cluster, pod)


@pytest.mark.parametrize(
    ("pod", "out"),
    [
        pytest.param(using("p", "c0"), {"bare": MISSING}, id="B-27 not where it has not registered"),
        pytest.param(using("p", volumes=(INLINE,)), {"bare": MISSING}, id="B-27 nor an in-tree volume of its"),
    ],
)
def test_required_drivers(pod: PodInfo, out: Any) -> None:
    """A list in the configuration does the same without the cluster's help."""
    world = a_world(node("bare"))
    plugin = limits_of(world, ours=KubestowArgs(require_csi_node_drivers=(EBS,)))

    assert out == refused(plugin, world.cluster, pod)


def test_missing_before_full() -> None:
    """As upstream: the driver is looked for first."""
    world = a_world(a_csi_driver(EBS).must_be_registered(), node("n2"), a_csi_node("n2").driver(GCE, 0), limit=0)
    found = refused(limits_of(world, SCALING), world.cluster, using("p", "c0", "disk1"))

    assert found == {"n1": FULL, "n2": MISSING}


def test_what_cannot_be_read_is_named() -> None:
    """A claim that the watch brought broken counts as absent, and the refusal says what is wrong with it."""
    world = a_world(Broken("PersistentVolumeClaim", Metadata(name="c0", namespace="default"), "$.spec: no"))
    text = 'looking up PVC default/c0: persistentvolumeclaim "c0" cannot be read: $.spec: no'

    assert {"n1": (Code.UNRESOLVABLE, (text,))} == refused(limits_of(world), world.cluster, using("p", "c0"))
