"""`kubestow simulate --from-cluster` with a real API server: every kind, and a saved dump."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scheduler.cli import main as cli
from simulator.simulate.input.dump import dump_command
from simulator.simulate.input.from_cluster import KINDS_READ
from tests.e2e.cluster import node
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import ControlPlane, started

pytestmark = pytest.mark.e2e

Object = dict[str, Any]
GROUPS = {kind.spec.name: kind.spec for kind in KINDS_READ}
DRIVER = "disk.example.com"
TEMPLATE: Object = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "args": ["--password=s3cret"],
                "env": [{"name": "TOKEN", "value": "s3cret"}],
                "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "X", "value": "s3cret"}]}},
                "resources": {"requests": {"cpu": "1"}},
            }
        ]
    },
}
SELECTED: Object = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
JOB: Object = {"template": {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}}


def thing(kind: str, name: str, **fields: Any) -> Object:
    """The version that a server of 1.36 serves by default."""
    spec = GROUPS[kind]
    metadata = {"name": name, **({"namespace": "default"} if spec.namespaced else {})}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "s3cret", "example.com/token": "s3cret"}
    head = {"apiVersion": spec.group_versions[0], "kind": kind, "metadata": metadata | {"annotations": annotations}}
    return head | fields


def pod(name: str, *, namespace: str = "default", **spec: Any) -> Object:
    made = thing("Pod", name, spec={**TEMPLATE["spec"], **spec})
    made["metadata"]["namespace"] = namespace
    return made


def claimed(name: str) -> Object:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
ENTRY = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "disk",
    "csi": {"driver": DRIVER, "volumeHandle": "h", "volumeAttributes": {"key": "s3cret"}},
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "resources": {"requests": {"storage": "1Gi"}}}
SEGMENT = {"matchLabels": {"kubernetes.io/hostname": "n1"}}
SLICE = {
    "driver": "gpu.example.com",
    "nodeName": "n2",
    "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
    "devices": [{"name": "d"}],
}
OWNER = (
    *(node(name, cpu="32") for name in ("n1", "n2")),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
    thing("PriorityClass", "high", value=1000),
    thing("RuntimeClass", "kata", handler="kata", overhead={"podFixed": {"cpu": "500m"}}),
    thing("LimitRange", "limits", spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}),
    thing("StorageClass", "disk", provisioner=DRIVER, volumeBindingMode="WaitForFirstConsumer"),
    thing("CSIDriver", DRIVER, spec={"storageCapacity": True}),
    thing("CSINode", "n1", spec={"drivers": [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 2}}]}),
    thing("CSIStorageCapacity", "n1", storageClassName="disk", capacity="5Gi", nodeTopology=SEGMENT),
    thing("PersistentVolume", "pv", spec=VOLUME),
    thing("PersistentVolumeClaim", "data", spec=CLAIM),
    thing(
        "VolumeAttachment", "va", spec={"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}
    ),
    thing("PodDisruptionBudget", "pdb", spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}),
    thing("Service", "s", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    thing("ReplicationController", "rc", spec={"replicas": 1, "selector": {"app": "a"}, "template": TEMPLATE}),
    thing("ReplicaSet", "rs", spec={"replicas": 1, **SELECTED}),
    thing("StatefulSet", "sts", spec={"replicas": 1, "serviceName": "s", **SELECTED}),
    thing("DaemonSet", "ds", spec=SELECTED),
    thing("Deployment", "web", spec={"replicas": 2, **SELECTED}),
    thing("Job", "job", spec=JOB),
    thing("CronJob", "cron", spec={"schedule": "@daily", "jobTemplate": {"spec": JOB}}),
    thing("ControllerRevision", "rev", revision=1, data={"spec": {"template": TEMPLATE}}),
    thing("DeviceClass", "gpu", spec={}),
    thing("ResourceSlice", "slice", spec=SLICE),
    thing("ResourceClaimTemplate", "gpu", spec={"spec": DEVICES}),
    thing("ResourceClaim", "one", spec=DEVICES),
    pod("bound", nodeName="n2"),
    pod("bound-elsewhere", namespace="other", nodeName="n1"),
    pod("with-claim", **claimed("data")),
    pod("lost-claim", **claimed("dat")),
    pod("for-another-node", nodeSelector={"disk": "ssd"}),
    pod("with-device", resourceClaims=ENTRY),
    pod("important", priorityClassName="high", runtimeClassName="kata"),
    pod("pending-elsewhere", namespace="other"),
)


def collection(obj: Object) -> str:
    version, namespace = obj["apiVersion"], obj["metadata"].get("namespace", "")
    root = f"/{'apis' if '/' in version else 'api'}/{version}"
    plural = GROUPS[obj["kind"]].plural
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """Without controllers: objects stay as the tests write them."""
    with started(ControlPlane(), fill) as plane:
        yield plane


async def fill(plane: ControlPlane) -> None:
    async with plane.client() as http:
        for obj in OWNER:
            async with http.post(collection(obj), json=obj) as answer:
                assert answer.status == 201, f"{obj}: {await answer.text()}"


@pytest.fixture
async def http(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    async with plane.client() as http:
        yield http


async def simulate(
    capsys: pytest.CaptureFixture[str], *flags: str, config: Path | None = None
) -> tuple[int, Object, str]:
    cluster = ["--from-cluster", "--kubeconfig", str(config)] if config else []
    code = await asyncio.to_thread(cli.main, ["simulate", "-o", "json", "--timeout", "120s", *cluster, *flags])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else {}, out.err


def placed(shown: Object) -> dict[str, str]:
    return {each["pod"]: each["node"] or each["message"] for each in shown["pods"]}


async def test_a_filled_cluster_and_its_dump(
    plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.json.gz"
    code, shown, said = await simulate(capsys, "--save", str(dump), config=plane.kubeconfig)
    again = await simulate(capsys, str(dump), "--emulated-version", MINOR)

    text = gzip.decompress(dump.read_bytes())
    kinds = {each["kind"] for each in json.loads(text)["items"]}
    assert {kind.spec.name for kind in KINDS_READ if not kind.is_group} - kinds == {"DeviceTaintRule"}, said
    assert again[0] == code == 1, again[2]
    assert b"s3cret" not in text
    filtered = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    freed = " no new claims to deallocate," if MINOR == "1.36" else ""
    message = placed(shown)["default/for-another-node"]
    assert message.startswith(f"{filtered}{freed} preemption: "), "the texts are those of the cluster's version"
    assert placed(again[1]).keys() == placed(shown).keys()
    assert again[1]["problems"] == shown["problems"]
    assert [each["name"] for each in shown["missingReferences"]] == ["default/dat"]
    assert again[1]["missingReferences"][0]["name"] == "default/dat"
    assert (again[1]["workloads"], again[1]["summary"]) == (shown["workloads"], shown["summary"])

    where = placed(shown)
    assert where["default/with-device"] == "n2"
    assert where["default/with-claim"] in {"n1", "n2"}
    assert "default/important" in where
    assert 'persistentvolumeclaim "dat" not found' in where["default/lost-claim"]


async def test_the_printed_command_names_resources_of_the_server(http: aiohttp.ClientSession) -> None:
    wanted = dump_command().splitlines()[-1].split()[2].split(",")
    async with http.get("/apis") as answer:
        listed = (await answer.json())["groups"]
    groups = [
        ("", "/api/v1"),
        *((each["name"], f"/apis/{each['preferredVersion']['groupVersion']}") for each in listed),
    ]
    served: set[str] = set()
    for group, path in groups:
        async with http.get(path) as answer:
            resources = (await answer.json())["resources"]
            served |= {f"{each['name']}.{group}".rstrip(".") for each in resources if "list" in each["verbs"]}

    assert set(wanted) <= served
