"""Storage objects, pods and nodes whose histories are drawn, and attach limits worked out the long way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from scheduler.api import csi_translation as intree
from scheduler.api.core_v1 import Node, Volume
from scheduler.api.decode import Broken, Delta
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    claim_uses,
    not_owned,
)
from scheduler.cache.cluster import Cluster
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.framework.status import Code
from simulator.builders.core import Builder
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.objects import info, node

EBS = "ebs.csi.aws.com"
GCE = "pd.csi.storage.gke.io"
FULL = (Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))

Refusal = tuple[Code, tuple[str, ...]]
Stored = PersistentVolume | PersistentVolumeClaim | StorageClass | CSINode | CSIDriver | VolumeAttachment


class AttachWorld:
    """Nodes and pods go to the cluster, everything else through `StorageHandlers`."""

    def __init__(self, *things: Any, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self._handlers = StorageHandlers(self.cluster, lambda *_: None).handlers()
        self.objects: dict[tuple[str, str], Stored] = {}
        for thing in things:
            self.put(thing)

    def put(self, thing: Any) -> None:
        """It came or changed. Builders are welcome."""
        if isinstance(thing, Builder):
            thing = thing.typed()
        if isinstance(thing, Node):
            self.cluster.set_node(thing)
        elif isinstance(thing, PodInfo):
            self.cluster.add_pod(thing)
        elif isinstance(thing, Broken):
            self._handlers[thing.kind](Delta(self.objects.pop((thing.kind, thing.key), None), thing))
        else:
            key = type(thing).__name__, thing.key
            self._handlers[key[0]](Delta(self.objects.get(key), thing))
            self.objects[key] = thing

    def drop(self, typ: type[Stored], key: str) -> None:
        """It is gone, if it ever was there."""
        gone = self.objects.pop((typ.__name__, key), None)
        if gone is not None:
            self._handlers[typ.__name__](Delta(gone, None))

    def get(self, typ: type[Any], key: str) -> Any:
        """As the API server has it; None if it has not."""
        return self.objects.get((typ.__name__, key))


class LongWay:
    """docs/spec/volumes.md §9.1 for one node, step by step, from the objects alone."""

    def __init__(
        self, world: AttachWorld, *, twice: bool = False, scaling: bool = False, required: tuple[str, ...] = ()
    ) -> None:
        self._world = world
        self._twice = twice
        self._scaling = scaling
        self._required = required

    def refusal(self, pod: PodInfo, node_name: str, others: list[PodInfo]) -> Refusal | None:
        csi_node = self._world.get(CSINode, node_name)
        new, problem = self._volumes(pod, has_csi_node=csi_node is not None, is_new=True)
        if problem is not None:
            return problem
        registered = [driver.name for driver in csi_node.spec.drivers] if csi_node is not None else []
        everything, _ = self._volumes(pod, has_csi_node=True, is_new=False)
        for driver in dict.fromkeys(driver for driver, _ in everything):
            known = self._world.get(CSIDriver, driver)
            opted_in = self._scaling and known is not None and known.spec.prevent_pod_scheduling_if_missing
            is_new = driver in {name[0] for name in new}
            if driver not in registered and (driver in self._required or (opted_in and is_new)):
                return Code.UNSCHEDULABLE, (f"{driver} CSI driver is not installed on the node",)
        limits = csi_node.limits if csi_node is not None else {}
        used: set[tuple[str, str]] = set()
        for other in others:
            used |= set(self._volumes(other, has_csi_node=csi_node is not None, is_new=False)[0])
        attached = self._attached(node_name)
        count = Counter(driver for driver, _ in used | attached)
        left = [name for name in new if name not in (used if self._twice else used | attached)]
        for driver, more in Counter(driver for driver, _ in left).items():
            if driver in limits and count[driver] + more > limits[driver]:
                return FULL
        return None

    def used(self, node_name: str, others: list[PodInfo]) -> Counter[str]:
        """Driver → what is attached to a node with a CSINode."""
        used = self._attached(node_name)
        for other in others:
            used |= self.names(other)
        return Counter(driver for driver, _ in used)

    def names(self, pod: PodInfo) -> set[tuple[str, str]]:
        """Driver and handle of what a pod that is on a node has attached."""
        return set(self._volumes(pod, has_csi_node=True, is_new=False)[0])

    def _attached(self, node_name: str) -> set[tuple[str, str]]:
        out = set()
        for (kind, _), attachment in self._world.objects.items():
            if kind != "VolumeAttachment" or not isinstance(attachment, VolumeAttachment):
                continue
            spec = attachment.spec
            volume = self._world.get(PersistentVolume, spec.source.persistent_volume_name or "")
            if spec.node_name == node_name and spec.attacher and volume is not None and volume.spec.csi is not None:
                out.add((spec.attacher, volume.spec.csi.volume_handle))
        return out

    def _volumes(
        self, pod: PodInfo, *, has_csi_node: bool, is_new: bool
    ) -> tuple[list[tuple[str, str]], Refusal | None]:
        out: dict[tuple[str, str], None] = {}
        for volume in pod.pod.spec.volumes:
            use = next((use for use in claim_uses(pod.pod) if use.volume == volume.name), None)
            if use is None:
                try:
                    found = self._inline(volume, pod) if has_csi_node else None
                except intree.TranslationError as error:
                    if is_new:
                        return [], (Code.ERROR, (f"converting volume({volume.name}) from inline to csi: {error}",))
                    continue
            else:
                claim = self._world.get(PersistentVolumeClaim, use.key)
                wrong = not_owned(pod.pod, claim) if claim is not None and use.is_ephemeral else ""
                if claim is None or wrong:
                    missing = f'looking up PVC {use.key}: persistentvolumeclaim "{use.name}" not found'
                    answer = (Code.ERROR, (wrong,)) if wrong else (Code.UNRESOLVABLE, (missing,))
                    if is_new:
                        return [], answer
                    continue
                found = self._of_claim(claim, has_csi_node=has_csi_node)
            if found is not None:
                out[found] = None
        return list(out), None

    def _inline(self, volume: Volume, pod: PodInfo) -> tuple[str, str] | None:
        kind = intree.kind_of(volume)
        if kind is None or kind.plugin not in intree.MIGRATABLE:
            return None
        source = intree.translate_inline(volume)
        return source.driver, source.volume_handle

    def _of_claim(self, claim: PersistentVolumeClaim, *, has_csi_node: bool) -> tuple[str, str] | None:
        volume = self._world.get(PersistentVolume, claim.spec.volume_name)
        if volume is not None:
            csi, kind = volume.spec.csi, intree.kind_of(volume.spec)
            if csi is None and kind is not None and kind.plugin in intree.MIGRATABLE and has_csi_node:
                try:
                    csi = intree.translate_volume(volume).spec.csi
                except intree.TranslationError:
                    return None
            return (csi.driver, csi.volume_handle) if csi is not None and csi.driver and csi.volume_handle else None
        storage_class = self._world.get(StorageClass, claim.storage_class)
        provisioner = storage_class.provisioner if storage_class is not None else ""
        if provisioner in intree.TRANSLATABLE:
            is_counted = provisioner in intree.MIGRATABLE and has_csi_node
            provisioner = intree.driver_of(provisioner) if is_counted else ""
        return (provisioner, f"pending {claim.key}") if provisioner else None


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

Step = Callable[[AttachWorld], None]


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


def begun() -> AttachWorld:
    """Where histories begin: some of everything is there already."""
    bound = [a_claim("c0").bound_to("v0"), a_claim("c1").bound_to("v1")]
    pending = [a_claim(f"{uid}-x", storage_class="s").owned_by(uid, uid) for uid in "ab"]
    return AttachWorld(
        *(node(name) for name in NAMES),
        *(a_csi_node("n1").driver(EBS, 2).driver(OTHER, 1), a_csi_node("n2").driver(EBS, 1)),
        *(a_class("s", EBS), a_class("t", "kubernetes.io/aws-ebs")),
        *(a_pv("v0").source(**SOURCES[0]), a_pv("v1").source(**SOURCES[4])),
        *(*bound, *pending),
    )
