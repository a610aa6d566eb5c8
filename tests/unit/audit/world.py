"""A small cluster in which every index of the cache has entries, and the self-audit of its scheduler."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.decode import Delta, from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector
from scheduler.audit.findings import Difference
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes import topology
from scheduler.cache.pods import selection
from scheduler.cache.storage.class_volumes import requirements_of
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from scheduler.kube.resources import KINDS
from scheduler.kube.store import Store
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler
from tests.support.ports import ListRecorder, ScriptedWriter
from tests.unit.harness import StepClock

WEB: Final = {"app": "web"}
HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
AWAY: Final = {"podAntiAffinity": {HARD: [{"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}]}}
SELECTED: Final = "volume.kubernetes.io/selected-node"
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"

Manifest = dict[str, Any]


class AuditWorld:
    """The parts of a scheduler, the stores of its informers, and a clock that stands still."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.stores: dict[str, Store[Any]] = {}
        gates = Configuration().feature_gates | DEVICE_GATES_ON | {TAINT_RULES}
        self.parts = Scheduler(
            RunOptions(config=Configuration(feature_gates=gates)),
            writer=ScriptedWriter(),
            recorder=ListRecorder(),
            clock=self.clock,
            metrics=Metrics(process=False),
            stores=lambda: self.stores,
        )
        self._versions = 0

    @property
    def cluster(self) -> Cluster:
        return self.parts.cluster

    def put(
        self, kind: str, name: str, *, namespace: str = "", labels: Any = None, meta: Any = None, **more: Any
    ) -> Any:
        """Add or replace an object, as a watch does."""
        self._versions += 1
        uid = f"uid-{name}"
        metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(self._versions)}
        manifest = {"metadata": {**metadata, "labels": labels or {}, **(meta or {})}, **more}
        typ = KINDS[kind].typ
        assert typ is not None
        obj: Any = from_manifest(typ, manifest)
        deltas: list[Delta[Any]] = []
        self.stores.setdefault(kind, Store()).set(obj, deltas)
        self.parts.event_handlers.apply(kind, deltas)
        return obj

    def pod(self, name: str, on: str = "", *, cpu: str = "1", status: Any = None, **spec: Any) -> PodInfo:
        labels, amounts = spec.pop("labels", WEB), spec.pop("amounts", {})
        container = {"name": "c", "resources": {"requests": {"cpu": cpu, **amounts}}, **spec.pop("container", {})}
        spec = {"nodeName": on, "schedulerName": "kubestow", "containers": [container], **spec}
        self.put("Pod", name, namespace="default", labels=labels, spec=spec, status=status or {})
        info = self.cluster.get(f"uid-{name}") or self.parts.shared.pending.get(f"default/{name}")
        assert info is not None
        return info

    def differences(self) -> list[tuple[str, Difference]]:
        """Run one whole pass, and return what its checks found."""
        found: list[tuple[str, Difference]] = []
        audit = self.parts.audit
        for index, check in audit.checks.items():
            for step in check():
                found += [(index, each) for each in step]
        return found

    def run_pass(self) -> None:
        """Let the driver run one pass."""
        while self.parts.audit.step():
            pass


async def world() -> AuditWorld:
    """Return a settled cluster: nodes, pods, volumes, capacity, devices, workloads and waiting pods."""
    here = AuditWorld()
    _nodes(here)
    _storage(here)
    _devices(here)
    _workloads(here)
    _pods(here)
    for _ in range(20):
        if not await here.parts.loop.step():
            break
    _memos(here)
    return here


def _nodes(here: AuditWorld) -> None:
    for at, zone in enumerate(("a", "b", "b"), start=1):
        taints = [{"key": "team", "value": "red", "effect": "NoSchedule"}] if at == 3 else []
        here.put(
            "Node",
            f"n{at}",
            labels={"zone": zone, "kubernetes.io/hostname": f"n{at}"},
            spec={"taints": taints, "unschedulable": at == 3},
            status={
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/x": "4"},
                "images": [{"names": [f"img-{at}", "img"], "sizeBytes": 1000}],
                "declaredFeatures": ["feature-a"],
            },
        )


def _storage(here: AuditWorld) -> None:
    here.put("StorageClass", "fast", provisioner="csi.example.com", volumeBindingMode="WaitForFirstConsumer")
    here.put("CSIDriver", "csi.example.com", spec={"storageCapacity": True})
    drivers = [{"name": "csi.example.com", "nodeID": "n1", "allocatable": {"count": 5}}]
    here.put("CSINode", "n1", spec={"drivers": drivers}, meta={"annotations": {MIGRATED: "kubernetes.io/gce-pd"}})
    csi = {"driver": "csi.example.com", "volumeHandle": "vol-data"}
    amount = {"storage": "1Gi"}
    common = {"capacity": amount, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    there = {"required": {"nodeSelectorTerms": [term]}}
    free = {"volumeHandle": "vol-free", "driver": "csi.example.com"}
    here.put(
        "PersistentVolume",
        "pv-free",
        spec={**common, "csi": free, "nodeAffinity": there},
        status={"phase": "Available"},
    )
    ref = {"namespace": "default", "name": "data", "uid": "uid-data"}
    here.put("PersistentVolume", "pv-data", spec={**common, "csi": csi, "claimRef": ref}, status={"phase": "Bound"})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": amount}, "storageClassName": "fast"}
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    here.put("PersistentVolumeClaim", "data", namespace="default", spec={**claim, "volumeName": "pv-data"}, meta=done)
    zone = {"matchLabels": {"zone": "a"}}
    of = {"storageClassName": "fast", "nodeTopology": zone, "capacity": "10Gi", "maximumVolumeSize": "10Gi"}
    here.put("CSIStorageCapacity", "cap-a", namespace="default", **of)
    chosen = {"annotations": {SELECTED: "n1"}}
    here.put("PersistentVolumeClaim", "flying", namespace="default", spec=claim, meta=chosen)
    here.put("PersistentVolumeClaim", "idle", namespace="default", spec=claim)
    here.put("PersistentVolumeClaim", "idle-2", namespace="default", spec=claim)
    source = {"persistentVolumeName": "pv-data"}
    here.put("VolumeAttachment", "va", spec={"attacher": "csi.example.com", "nodeName": "n1", "source": source})


def _devices(here: AuditWorld) -> None:
    here.put("DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu"})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    shared = {"name": "d2", "allowMultipleAllocations": True, "capacity": {"mem": {"value": "8"}}}
    devices = [{"name": "d0"}, {"name": "d1"}, shared]
    here.put("ResourceSlice", "s-n1", spec={"driver": "drv", "pool": pool, "nodeName": "n1", "devices": devices})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    everywhere = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    selector = {"nodeSelectorTerms": [term]}
    here.put(
        "ResourceSlice",
        "s-net",
        spec={
            "driver": "drv",
            "pool": everywhere,
            "nodeSelector": selector,
            "devices": [{"name": "e0"}, {"name": "e1"}],
        },
    )
    here.put(
        "ResourceSlice",
        "s-all",
        spec={
            "driver": "drv",
            "pool": {**everywhere, "name": "all"},
            "allNodes": True,
            "devices": [{"name": "f0"}],
        },
    )
    taint = {"key": "broken", "effect": "NoSchedule"}
    here.put("DeviceTaintRule", "rule", spec={"deviceSelector": {"pool": "n1", "device": "d1"}, "taint": taint})
    whole = {"request": "r", "driver": "drv", "pool": "n1", "device": "d0"}
    part = {
        "request": "r",
        "driver": "drv",
        "pool": "n1",
        "device": "d2",
        "shareID": "s1",
        "consumedCapacity": {"mem": "3"},
    }
    for name, result in (("held", whole), ("shared", part)):
        allocation = {"devices": {"results": [result]}}
        here.put("ResourceClaim", name, namespace="default", spec={"devices": {}}, status={"allocation": allocation})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "uid-web-1", "controller": True}
    marked = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner]}
    here.put("ResourceClaim", "made", namespace="default", spec={"devices": {}}, meta=marked)


def _workloads(here: AuditWorld) -> None:
    here.put("Namespace", "default", labels={"kubernetes.io/metadata.name": "default"})
    here.put("Service", "web", namespace="default", spec={"selector": WEB})
    here.put("ReplicaSet", "web", namespace="default", spec={"selector": {"matchLabels": WEB}})
    here.put("PodDisruptionBudget", "web", namespace="default", spec={"selector": {"matchLabels": WEB}})
    here.parts.event_handlers.pod_groups.served("PodGroup", True)
    here.put("PodGroup", "team", namespace="default", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})


def _pods(here: AuditWorld) -> None:
    port = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
    here.pod("web-1", "n1", container=port, affinity=AWAY, priority=5)
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    disk = {"name": "disk", "gcePersistentDisk": {"pdName": "disk-1"}}
    own = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    here.pod("db-1", "n1", labels={"app": "db"}, volumes=[data, disk, own], amounts={"example.com/y": "2"})
    here.pod("web-2", "n2", amounts={"example.com/x": "1"})
    here.pod("big", cpu="100")
    here.pod("gated", schedulingGates=[{"name": "wait"}])
    both = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("idle", "idle-2")]
    here.pod("two-claims", cpu="100", volumes=both)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "flying"}}]
    spec = {"schedulerName": "default-scheduler", "volumes": volumes}
    here.put("Pod", "of-another-scheduler", namespace="default", spec=spec, status={})
    here.pod("nominated", cpu="100")
    here.pod("late", cpu="100")
    team: dict[str, Any] = {"schedulingGroup": {"podGroupName": "team"}, "labels": {}}
    here.pod("team-1", "n3", **team)
    here.pod("team-2", cpu="100", **team)


def _memos(here: AuditWorld) -> None:
    """Read what is only maintained once a decision has read it, and nominate a pod that was refused before."""
    here.pod("nominated", cpu="100", status={"nominatedNodeName": "n2"})
    nodes, volumes = here.cluster.nodes, here.cluster.volumes
    web = selection([(frozenset({"default"}), LabelSelector(WEB))], counts_terminating=False)
    for counts in (nodes.population.tally(web), *nodes.pod_terms.groups.values()):
        sums = topology.of(counts, nodes.topologies.of("zone"))
        sums.column()
        sums.levels()
    nodes.topologies.of("kubernetes.io/hostname")
    claim = volumes.claims.get("default/idle")
    assert claim is not None
    class_volumes = volumes.volumes.class_volumes("fast")
    assert class_volumes is not None
    assert claim.request is not None
    class_volumes.fits(requirements_of(claim), claim.request.nano).smallest_bytes()
    volumes.attached.catch_up()
    here.cluster.devices.on_nodes.catch_up()
