"""Storage objects, pods and nodes drawn from few enough values that they meet: histories for laws of attach limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.objects import info, node
from tests.unit.wakeups.attaching import EBS, GCE, World

OTHER = "other.csi"
DRIVERS = (EBS, GCE, OTHER)
NAMES = ("n1", "n2", "n3")
VOLUMES = ("v0", "v1", "v2")
CLAIMS = ("c0", "c1", "a-x", "b-x")
UIDS = "abcd"

SOURCES: list[dict[str, Any]] = [
    {"csi": {"driver": EBS, "volumeHandle": "vol-0"}},
    {"csi": {"driver": EBS, "volumeHandle": "vol-1"}},
    {"csi": {"driver": OTHER, "volumeHandle": "vol-0"}},
    {"csi": {"driver": OTHER, "volumeHandle": ""}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}},
    {"gcePersistentDisk": {"pdName": "disk"}},
    {"azureFile": {"secretName": "s", "shareName": "t"}},
    {"hostPath": {"path": "/"}},
]
PROVISIONERS = [EBS, OTHER, "kubernetes.io/aws-ebs", "kubernetes.io/azure-file", ""]
INLINE: list[dict[str, Any]] = [
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}},
    {"gcePersistentDisk": {"pdName": "disk"}},
    {"azureFile": {"secretName": "s", "shareName": "t"}},
    {"emptyDir": {}},
]

volumes: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.one_of(
        st.sampled_from(CLAIMS).map(lambda name: {"persistentVolumeClaim": {"claimName": name}}),
        st.just({"ephemeral": {}}),
        st.sampled_from(INLINE),
    ),
    max_size=3,
)


@st.composite
def pods(draw: st.DrawFn) -> PodInfo:
    """Named by its uid, so that `a-x` and `b-x` are ephemeral claims of pods a and b."""
    uid = draw(st.sampled_from(UIDS))
    listed: list[dict[str, Any]] = []
    for at, source in enumerate(draw(volumes)):
        is_ephemeral = "ephemeral" in source
        if is_ephemeral and any(v["name"] == "x" for v in listed):
            continue
        listed.append({"name": "x" if is_ephemeral else f"v{at}", **source})
    return info(uid, on=draw(st.sampled_from(NAMES)), volumes=listed)


@st.composite
def claims(draw: st.DrawFn) -> PersistentVolumeClaim:
    claim = a_claim(draw(st.sampled_from(CLAIMS)), storage_class=draw(st.sampled_from(["", "s", "t", "gone"])))
    if draw(st.booleans()):
        claim = claim.bound_to(draw(st.sampled_from([*VOLUMES, "gone"])))
    if draw(st.booleans()):
        uid = draw(st.sampled_from(UIDS))
        claim = claim.owned_by(uid, uid, controller=draw(st.sampled_from([True, True, False])))
    return claim.modes(*draw(st.sampled_from([("ReadWriteOnce",), ("ReadWriteMany",)]))).typed()


def _csi_node(name: str, limits: dict[str, int | None]) -> CSINode:
    built = a_csi_node(name)
    for driver, limit in limits.items():
        built = built.driver(driver, limit)
    return built.typed()


csi_nodes = st.builds(
    _csi_node, st.sampled_from(NAMES), st.dictionaries(st.sampled_from(DRIVERS), st.none() | st.integers(0, 3))
)
attachments = st.builds(
    lambda volume, on, driver: an_attachment(volume, on, driver).typed(),
    st.sampled_from(VOLUMES),
    st.sampled_from(NAMES),
    st.sampled_from([EBS, EBS, OTHER, ""]),
)
persistent_volumes = st.builds(
    lambda name, source: a_pv(name).source(**source).typed(), st.sampled_from(VOLUMES), st.sampled_from(SOURCES)
)
classes = st.builds(
    lambda name, provisioner: a_class(name, provisioner).typed(), st.sampled_from("st"), st.sampled_from(PROVISIONERS)
)
drivers = st.builds(
    lambda name, must: (a_csi_driver(name).must_be_registered() if must else a_csi_driver(name)).typed(),
    st.sampled_from(DRIVERS),
    st.booleans(),
)
nodes = st.builds(lambda name, label: node(name, labels={"l": label}), st.sampled_from(NAMES), st.sampled_from("xy"))

GONE: list[tuple[type[Any], str]] = [
    *((PersistentVolume, name) for name in VOLUMES),
    *((PersistentVolumeClaim, f"default/{name}") for name in CLAIMS),
    *((StorageClass, name) for name in "st"),
    *((CSINode, name) for name in NAMES),
    *((CSIDriver, name) for name in DRIVERS),
    *((VolumeAttachment, f"{volume}-{name}") for volume in VOLUMES for name in NAMES),
]

Step = Callable[[World], None]


def put(thing: Any) -> Step:
    return lambda world: world.put(thing)


def drop(what: tuple[type[Any], str]) -> Step:
    return lambda world: world.drop(*what)


things = st.one_of(
    persistent_volumes.map(put),
    claims().map(put),
    classes.map(put),
    csi_nodes.map(put),
    attachments.map(put),
    nodes.map(put),
    pods().map(put),
    drivers.map(put),
)
ends = st.one_of(
    st.sampled_from(GONE).map(drop),
    st.sampled_from(NAMES).map(lambda name: lambda world: world.cluster.remove_node(name)),
    st.sampled_from(UIDS).map(lambda uid: lambda world: world.cluster.remove_pod(uid) and None),
)
steps = st.one_of(things, things, things, ends)


def begun() -> World:
    """Where histories begin: some of everything is there already."""
    bound = [a_claim("c0").bound_to("v0"), a_claim("c1").bound_to("v1")]
    pending = [a_claim(f"{uid}-x", storage_class="s").owned_by(uid, uid) for uid in "ab"]
    return World(
        *(node(name) for name in NAMES),
        *(a_csi_node("n1").driver(EBS, 2).driver(OTHER, 1), a_csi_node("n2").driver(EBS, 1)),
        *(a_class("s", EBS), a_class("t", "kubernetes.io/aws-ebs")),
        *(a_pv("v0").source(**SOURCES[0]), a_pv("v1").source(**SOURCES[4])),
        *(*bound, *pending),
    )
