"""Hints of NodeVolumeLimits: docs/spec/volumes.md §7.2, §11.12, §12.4 (B-11)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.api.csi_translation import TranslationError
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSIDriver, CSINode, VolumeAttachment
from scheduler.config.args import KubestowArgs
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler.framework.interface import Hint
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from tests.support.volumebuilders import a_claim, a_csi_driver, a_csi_node, an_attachment
from tests.unit.objects import cluster, handle, info
from tests.unit.plugins.ask import hinted
from tests.unit.wakeups.attaching import EBS, GCE

CLAIM_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
CLAIM_UPDATE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
DETACHED = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
CSI_NODE_ADD = ClusterEvent(Resource.CSI_NODE, Action.ADD)
CSI_NODE_UPDATE = ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER)
DRIVER_UPDATE = ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE_OTHER)
DRIVER_DELETE = ClusterEvent(Resource.CSI_DRIVER, Action.DELETE)

CLAIM = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
OWN = {"name": "x", "ephemeral": {}}
DISK = {"name": "e", "awsElasticBlockStore": {"volumeID": "vol-1"}}
GCE_DISK = {"name": "g", "gcePersistentDisk": {"pdName": "d"}}
POLICY = {"name": "v", "vsphereVolume": {"volumePath": "[d] p", "storagePolicyName": "gold"}}
NOTHING = {"name": "n", "emptyDir": {}}


def with_volumes(*volumes: dict[str, Any], **more: Any) -> PodInfo:
    return info("p", volumes=list(volumes), **more)


def plugin(*gates: str, parity: bool = False) -> NodeVolumeLimits:
    plain = handle(cluster())
    return NodeVolumeLimits(
        None, dataclasses.replace(plain, ours=KubestowArgs(parity=parity), feature_gates=frozenset(gates))
    )


@pytest.mark.parametrize(
    ("gone", "hint"),
    [
        pytest.param(with_volumes(DISK, on="n1"), Hint.QUEUE, id="H10 a pod with a disk written out"),
        pytest.param(with_volumes(NOTHING, on="n1"), Hint.SKIP, id="a pod with nothing attached"),
        pytest.param(
            with_volumes(CLAIM, status={"nominatedNodeName": "n1"}), Hint.QUEUE, id="a pod that was to come to a node"
        ),
        pytest.param(with_volumes(on="n1"), Hint.SKIP, id="H10 a pod without volumes"),
        pytest.param(with_volumes(CLAIM), Hint.SKIP, id="H10 a pod that was nowhere"),
    ],
)
@pytest.mark.parametrize("event", [ASSIGNED_POD_DELETE])
def test_pod_gone(event: ClusterEvent, gone: PodInfo, hint: Hint) -> None:
    """A pod that goes with an attached volume may have freed a slot."""
    assert hint is hinted(plugin(), event, with_volumes(CLAIM), old=gone)


@pytest.mark.parametrize(
    ("pod", "claim", "hint"),
    [
        pytest.param(with_volumes(CLAIM), a_claim("c"), Hint.QUEUE, id="H11 the pod's own"),
        pytest.param(with_volumes(CLAIM, OWN), a_claim("d"), Hint.SKIP, id="H11 another"),
        pytest.param(with_volumes(CLAIM), a_claim("c", ns="other"), Hint.SKIP, id="H11 of another namespace"),
        pytest.param(with_volumes(NOTHING), a_claim("c"), Hint.SKIP, id="H11 a pod without claims"),
    ],
)
def test_claim_came(pod: PodInfo, claim: Any, hint: Hint) -> None:
    """A pod waits for its own claims."""
    assert hint is hinted(plugin(), CLAIM_ADD, pod, new=claim.typed())
    assert hint is hinted(plugin(), CLAIM_UPDATE, pod, old=claim.typed(), new=claim.typed())
    assert hinted(plugin(parity=True), CLAIM_UPDATE, pod, old=claim.typed(), new=claim.typed()) is None


@pytest.mark.parametrize(
    ("pod", "attacher", "as_upstream", "ours"),
    [
        pytest.param(with_volumes(GCE_DISK), EBS, Hint.SKIP, Hint.SKIP, id="H12 a disk of another driver"),
        pytest.param(with_volumes(GCE_DISK), GCE, Hint.QUEUE, Hint.QUEUE, id="a disk of that other driver"),
        pytest.param(with_volumes(NOTHING), EBS, Hint.SKIP, Hint.SKIP, id="nothing to attach"),
        pytest.param(with_volumes(OWN), EBS, Hint.SKIP, Hint.QUEUE, id="H15 B-11 an ephemeral volume only"),
        pytest.param(
            with_volumes(POLICY), "csi.vsphere.vmware.com", Hint.QUEUE, Hint.QUEUE, id="Q-15 a storage policy"
        ),
        pytest.param(with_volumes(), EBS, Hint.SKIP, Hint.SKIP, id="H12 no volumes"),
    ],
)
def test_detached(pod: PodInfo, attacher: str, as_upstream: Hint, ours: Hint) -> None:
    """A detached volume frees a slot of its driver; the drivers of claims are not looked up."""
    gone: VolumeAttachment = an_attachment("v", "n1", attacher).typed()

    assert as_upstream is hinted(plugin(parity=True), DETACHED, pod, old=gone)
    assert ours is hinted(plugin(), DETACHED, pod, old=gone)


def test_detached_and_a_disk_that_cannot_be_translated() -> None:
    """Raises, which counts as QUEUE; topics do not keep the question away."""
    bad = with_volumes({"name": "bad", "awsElasticBlockStore": {"volumeID": "aws://zone/disk"}})
    gone: VolumeAttachment = an_attachment("v", "n1", GCE).typed()
    registration = next(r for r in plugin().events_to_register() if r.event == DETACHED)
    assert registration.topics is not None
    assert registration.topics.of_pod(bad) is None

    with pytest.raises(TranslationError, match=r"^converting volume\(bad\) from inline to csi: failed to translate"):
        hinted(plugin(), DETACHED, bad, old=gone)


def limits(*drivers: tuple[str, int | None]) -> CSINode:
    out = a_csi_node("n1")
    for driver, count in drivers:
        out = out.driver(driver, count)
    return out.typed()


@pytest.mark.parametrize(
    ("old", "new", "as_upstream", "ours"),
    [
        pytest.param(limits((EBS, 2)), limits((EBS, 1)), Hint.SKIP, Hint.SKIP, id="H13 a limit shrank"),
        pytest.param(limits((EBS, 2)), limits((EBS, None)), Hint.SKIP, Hint.QUEUE, id="H14 B-11 a limit was lifted"),
        pytest.param(limits(), limits((EBS, 2)), Hint.QUEUE, Hint.QUEUE, id="a driver with a limit came"),
        pytest.param(limits(), limits((EBS, 0)), Hint.SKIP, Hint.QUEUE, id="B-11 a driver came that attaches nothing"),
        pytest.param(limits((EBS, None)), limits(), Hint.SKIP, Hint.SKIP, id="a driver without a limit went"),
        pytest.param(limits((EBS, None)), limits((EBS, 2)), Hint.QUEUE, Hint.QUEUE, id="no limit is 0 for upstream"),
        pytest.param(limits((EBS, 2)), limits((EBS, 2)), Hint.SKIP, Hint.SKIP, id="H13 nothing changed"),
        pytest.param(limits(), limits((EBS, None)), Hint.SKIP, Hint.QUEUE, id="H14 B-11 a driver without a limit came"),
        pytest.param(limits((EBS, 2)), limits(), Hint.SKIP, Hint.QUEUE, id="B-11 a driver went, and its limit with it"),
    ],
)
def test_csi_node_changed(old: CSINode, new: CSINode, as_upstream: Hint, ours: Hint) -> None:
    """More volumes can be attached, or of other drivers."""
    pod = with_volumes(CLAIM)

    assert as_upstream is hinted(plugin(parity=True), CSI_NODE_UPDATE, pod, old=old, new=new)
    assert ours is hinted(plugin(), CSI_NODE_UPDATE, pod, old=old, new=new)


def test_csi_node_came() -> None:
    """Always worth a try."""
    assert hinted(plugin(parity=True), CSI_NODE_ADD, with_volumes(CLAIM), new=limits()) is Hint.QUEUE


MUST: CSIDriver = a_csi_driver(EBS).must_be_registered().typed()
NEED_NOT: CSIDriver = a_csi_driver(EBS).typed()


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(DRIVER_DELETE, MUST, None, Hint.QUEUE, id="it is gone"),
        pytest.param(DRIVER_UPDATE, NEED_NOT, MUST, Hint.SKIP, id="it must now"),
        pytest.param(DRIVER_UPDATE, MUST, MUST, Hint.SKIP, id="it still must"),
        pytest.param(DRIVER_DELETE, NEED_NOT, None, Hint.SKIP, id="it never had to be there"),
    ],
)
def test_driver_changed(event: ClusterEvent, old: CSIDriver, new: CSIDriver | None, hint: Hint) -> None:
    """B-11 with VolumeLimitScaling: what kept a pod away may be withdrawn. Upstream does not look."""
    pod, gate = with_volumes(CLAIM), "VolumeLimitScaling"

    assert hint is hinted(plugin(gate), event, pod, old=old, new=new)
    assert hinted(plugin(), event, pod, old=old, new=new) is None
    assert hinted(plugin(gate, parity=True), event, pod, old=old, new=new) is None
