"""NodeVolumeLimits: docs/spec/volumes.md §7.2, §9.1, §11.12, §11.13, §12 (B-11, B-12, B-27, Q-13)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.api.csi_translation import TranslationError
from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSIDriver, CSINode, VolumeAttachment
from scheduler.config.args import KubestowArgs
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from simulator.builders.core import Builder
from tests.support.volumebuilders import (
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_pv,
    an_attachment,
)
from tests.unit.objects import handle, info, node
from tests.unit.plugins.ask import hinted, refused, using
from tests.unit.wakeups.attaching import EBS, FULL, GCE, AttachWorld

PARITY = KubestowArgs(parity=True)
MISSING = (Code.UNSCHEDULABLE, (f"{EBS} CSI driver is not installed on the node",))

DISK: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "vol-9"}}
BAD_ID = "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://zone/disk)"


def limits_of(world: AttachWorld, *gates: str, ours: KubestowArgs | None = None) -> NodeVolumeLimits:
    plain = handle(world.cluster)
    return NodeVolumeLimits(
        None, dataclasses.replace(plain, ours=ours or KubestowArgs(), feature_gates=frozenset(gates))
    )


def fixtures() -> list[Builder[Any]]:
    """Claims c0…c3 bound to v0…v3 of the EBS driver, and `disk1` bound to an in-tree disk."""
    bound: list[Builder[Any]] = [a_pv(f"v{at}").csi(EBS) for at in range(4)]
    bound += [a_claim(f"c{at}", storage_class="ebs").bound_to(f"v{at}") for at in range(4)]
    disk = a_pv("disk1").source(gcePersistentDisk={"pdName": "disk1"})
    return [*bound, a_class("ebs", EBS), a_claim("disk1").bound_to("disk1"), disk]


def a_world(*things: Any, limit: int = 2) -> AttachWorld:
    """Node n1, whose EBS driver has this limit."""
    return AttachWorld(node("n1"), *fixtures(), a_csi_node("n1").driver(EBS, limit), *things)


P3 = using("p3", "c3", on="n1")
VA0 = an_attachment("v0", "n1", EBS)
VA1 = an_attachment("v1", "n1", EBS)


@pytest.mark.parametrize(("world", "pod", "out"), [
    pytest.param(a_world(), using("p", awsElasticBlockStore={"volumeID": "aws://zone/disk"}),
        (Code.ERROR, (f"converting volume(awselasticblockstore) from inline to csi: {BAD_ID}",)),
        id="one written out in the pod that cannot be translated"),
    pytest.param(AttachWorld(node("n1")), using("p", "", awsElasticBlockStore={"volumeID": "aws://zone/disk"}),
        (Code.ERROR, ("PersistentVolumeClaim had no name",)), id="a claim without a name"),
    pytest.param(a_world(using("q", on="n1", ephemeral=("x",)), a_claim("q-x", storage_class="ebs"), P3),
        using("p", "c0"), None, id="Q-13 a pod there whose ephemeral claim is not its own"),
])  # fmt: skip
def test_limits(world: AttachWorld, pod: PodInfo, out: Any) -> None:
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
        pytest.param(using("p", configMap={}, secret={}), True, id="L21 nothing to attach"),
        pytest.param(using("p", ephemeral=("x",)), False, id="L21 an ephemeral volume"),
        pytest.param(using("p", **DISK), False, id="L21 one written out in the pod"),
        pytest.param(using("p", csi={"driver": EBS}), True, id="a driver's own ephemeral kind"),
        pytest.param(using("p", azureFile={}), False, id="one of a kind that is never migrated"),
    ],
)
def test_skip(pod: PodInfo, skips: bool) -> None:
    """Pods that have nothing attached are not looked at."""
    plugin = limits_of(a_world())

    assert (SKIP if skips else None) == plugin.pre_filter(CycleState(), pod, 1)


SCALING = "VolumeLimitScaling"


@pytest.mark.parametrize(("world", "gates", "pod", "out"), [
    pytest.param(AttachWorld(a_csi_driver(EBS)), (SCALING,), using("p", "c0"), {}, id="L27 the driver does not require it"),
    pytest.param(AttachWorld(a_csi_driver(EBS).must_be_registered()), (SCALING,), using("p", "c0"),
        {"bare": MISSING, "other": MISSING}, id="L27 L28 the driver requires it, and is on one node"),
    pytest.param(AttachWorld(a_csi_driver(EBS).must_be_registered()), (), using("p", "c0"), {}, id="L28 the gate is off"),
    pytest.param(AttachWorld(a_csi_driver(EBS).must_be_registered()), (SCALING,), using("p", **DISK), {"other": MISSING},
        id="L27 in-tree volumes count only where a CSINode is"),
])  # fmt: skip
def test_driver_must_be_there(world: AttachWorld, gates: tuple[str, ...], pod: PodInfo, out: Any) -> None:
    """With VolumeLimitScaling a driver may keep its pods off nodes without it."""
    others = [node("bare"), node("other"), node("n1"), a_csi_node("n1").driver(EBS), a_csi_node("other").driver(GCE)]
    for thing in (*fixtures(), *others):
        world.put(thing)

    assert out == refused(limits_of(world, *gates), world.cluster, pod)


@pytest.mark.parametrize(
    ("pod", "out"),
    [
        pytest.param(using("p", "c0"), {"bare": MISSING}, id="B-27 not where it has not registered"),
        pytest.param(using("p", **DISK), {"bare": MISSING}, id="B-27 nor an in-tree volume of its"),
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


# -- hints -------------------------------------------------------------------------------------------------------------

CLAIM_UPDATE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
DETACHED = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
CSI_NODE_ADD = ClusterEvent(Resource.CSI_NODE, Action.ADD)
CSI_NODE_UPDATE = ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER)
DRIVER_UPDATE = ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE_OTHER)
DRIVER_DELETE = ClusterEvent(Resource.CSI_DRIVER, Action.DELETE)

CLAIM = using("p", "c")
OWN = using("p", ephemeral=("x",))
NOTHING = using("p", emptyDir={})
POLICY = using("p", vsphereVolume={"volumePath": "[d] p", "storagePolicyName": "gold"})


def plugin(*gates: str, parity: bool = False) -> NodeVolumeLimits:
    return limits_of(AttachWorld(), *gates, ours=KubestowArgs(parity=parity))


@pytest.mark.parametrize(("gone", "hint"), [
    pytest.param(using("q", on="n1", **DISK), Hint.QUEUE, id="H10 a pod with a disk written out"),
    pytest.param(using("q", on="n1", emptyDir={}), Hint.SKIP, id="a pod with nothing attached"),
    pytest.param(info("q", volumes=[{"name": "d", **DISK}], status={"nominatedNodeName": "n1"}), Hint.QUEUE,
        id="a nominated pod"),
    pytest.param(CLAIM, Hint.SKIP, id="H10 a pod that was nowhere"),
])  # fmt: skip
def test_pod_gone(gone: PodInfo, hint: Hint) -> None:
    """A pod that goes with an attached volume may have freed a slot."""
    assert hint is hinted(plugin(), ASSIGNED_POD_DELETE, CLAIM, old=gone)


def test_h11_claim_changed() -> None:
    """Neither a namesake of its claim nor, with parity, its claim wakes a pod."""
    pod, namesake, own = CLAIM, a_claim("c", ns="other").typed(), a_claim("c").typed()

    assert hinted(plugin(), CLAIM_UPDATE, pod, old=namesake, new=namesake) is Hint.SKIP
    assert hinted(plugin(parity=True), CLAIM_UPDATE, pod, old=own, new=own) is None


@pytest.mark.parametrize(("pod", "attacher", "as_upstream", "ours"), [
    pytest.param(using("p", gcePersistentDisk={"pdName": "d"}), GCE, Hint.QUEUE, Hint.QUEUE,
        id="a disk of that other driver"),
    pytest.param(NOTHING, EBS, Hint.SKIP, Hint.SKIP, id="nothing to attach"),
    pytest.param(OWN, EBS, Hint.SKIP, Hint.QUEUE, id="H15 B-11 an ephemeral volume only"),
    pytest.param(POLICY, "csi.vsphere.vmware.com", Hint.QUEUE, Hint.QUEUE, id="Q-15 a storage policy"),
])  # fmt: skip
def test_detached(pod: PodInfo, attacher: str, as_upstream: Hint, ours: Hint) -> None:
    """A detached volume frees a slot of its driver; the drivers of claims are not looked up."""
    gone: VolumeAttachment = an_attachment("v", "n1", attacher).typed()

    assert as_upstream is hinted(plugin(parity=True), DETACHED, pod, old=gone)
    assert ours is hinted(plugin(), DETACHED, pod, old=gone)


def test_detached_and_a_disk_that_cannot_be_translated() -> None:
    """Raises, which counts as QUEUE; topics do not keep the question away."""
    bad = using("p", awsElasticBlockStore={"volumeID": "aws://zone/disk"})
    gone: VolumeAttachment = an_attachment("v", "n1", GCE).typed()
    registration = next(r for r in plugin().events_to_register() if r.event == DETACHED)
    assert registration.topics is not None
    assert registration.topics.of_pod(bad) is None

    with pytest.raises(
        TranslationError, match=r"^converting volume\(awselasticblockstore\) from inline to csi: failed to translate"
    ):
        hinted(plugin(), DETACHED, bad, old=gone)


def limits(*drivers: tuple[str, int | None]) -> CSINode:
    out = a_csi_node("n1")
    for driver, count in drivers:
        out = out.driver(driver, count)
    return out.typed()


@pytest.mark.parametrize(
    ("old", "new", "as_upstream", "ours"),
    [
        pytest.param(limits((EBS, 2)), limits((EBS, None)), Hint.SKIP, Hint.QUEUE, id="H14 B-11 a limit was lifted"),
        pytest.param(limits(), limits((EBS, 2)), Hint.QUEUE, Hint.QUEUE, id="a driver with a limit came"),
        pytest.param(limits(), limits((EBS, 0)), Hint.SKIP, Hint.QUEUE, id="B-11 a driver came that attaches nothing"),
        pytest.param(limits((EBS, None)), limits(), Hint.SKIP, Hint.SKIP, id="a driver without a limit went"),
        pytest.param(limits((EBS, None)), limits((EBS, 2)), Hint.QUEUE, Hint.QUEUE, id="no limit is 0 for upstream"),
        pytest.param(limits(), limits((EBS, None)), Hint.SKIP, Hint.QUEUE, id="H14 B-11 a driver without a limit came"),
        pytest.param(limits((EBS, 2)), limits(), Hint.SKIP, Hint.QUEUE, id="B-11 a driver went, and its limit with it"),
    ],
)
def test_csi_node_changed(old: CSINode, new: CSINode, as_upstream: Hint, ours: Hint) -> None:
    """More volumes can be attached, or of other drivers."""
    pod = CLAIM

    assert as_upstream is hinted(plugin(parity=True), CSI_NODE_UPDATE, pod, old=old, new=new)
    assert ours is hinted(plugin(), CSI_NODE_UPDATE, pod, old=old, new=new)


def test_csi_node_came() -> None:
    """Always worth a try."""
    assert hinted(plugin(parity=True), CSI_NODE_ADD, CLAIM, new=limits()) is Hint.QUEUE


MUST: CSIDriver = a_csi_driver(EBS).must_be_registered().typed()
NEED_NOT: CSIDriver = a_csi_driver(EBS).typed()


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(DRIVER_DELETE, MUST, None, Hint.QUEUE, id="it is gone"),
        pytest.param(DRIVER_UPDATE, MUST, MUST, Hint.SKIP, id="it still must"),
        pytest.param(DRIVER_DELETE, NEED_NOT, None, Hint.SKIP, id="it never had to be there"),
    ],
)
def test_driver_changed(event: ClusterEvent, old: CSIDriver, new: CSIDriver | None, hint: Hint) -> None:
    """B-11 with VolumeLimitScaling: what kept a pod away may be withdrawn. Upstream does not look."""
    pod, gate = CLAIM, "VolumeLimitScaling"

    assert hint is hinted(plugin(gate), event, pod, old=old, new=new)
    assert hinted(plugin(), event, pod, old=old, new=new) is None
    assert hinted(plugin(gate, parity=True), event, pod, old=old, new=new) is None
