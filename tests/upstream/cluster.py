"""The cluster that Kubernetes' own end-to-end tests run on: a whole control plane, one scheduler, and nodes of kwok."""

import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.e2e.controlplane.build import VERSION, binaries
from tests.e2e.controlplane.harness import ControlPlane, daemon
from tests.e2e.controlplane.process import Group
from tests.upstream import build

DEFAULT_SCHEDULER = "default-scheduler"
KUBE, KUBESTOW = "kube", "kubestow"
NODES = 4
ZONES = 2

_KUBELET = Path(__file__).parent / "kubelet.yaml"
_POD_CIDR = "10.244.0.0/16"
_RESOURCES = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}


@asynccontextmanager
async def cluster(scheduler: str, logs: Path, *, has_groups: bool = False) -> AsyncIterator[ControlPlane]:
    """Start everything, yield the control plane, and end everything; `scheduler` is `KUBESTOW` or `KUBE`.

    All default controllers run, admission is the default, and privileged pods are allowed. The log files of all servers
    are moved to `logs`, also after a failure. With `has_groups` all components have the gates for groups of pods.
    """
    binaries()
    gate = ["--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"] if has_groups else []
    served = ["--runtime-config=scheduling.k8s.io/v1beta1=true"] if has_groups else []
    plane = ControlPlane(default_admission=True, apiserver_flags=["--allow-privileged", *gate, *served])
    await plane.start()
    with ExitStack() as cleanup:
        cleanup.callback(plane.stop)
        cleanup.callback(_keep, plane, logs)
        await plane.start_controllers(["*"], *gate)
        cleanup.callback(_start_kwok(plane).stop)
        await _create_nodes(plane)
        if scheduler == KUBE:
            await plane.start_scheduler(None, *gate)
        else:
            cleanup.enter_context(daemon(plane, DEFAULT_SCHEDULER, flags=["--allow-default-scheduler"]))
        yield plane


def node(number: int) -> dict[str, object]:
    """A node as a kubelet would have registered it. kwok keeps its lease and so its Ready condition."""
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "region",
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
    }
    addresses = [{"type": "InternalIP", "address": f"10.0.0.{10 + number}"}, {"type": "Hostname", "address": name}]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "addresses": addresses,
            "conditions": [ready],
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
            "nodeInfo": _node_info(),
        },
    }


def _node_info() -> dict[str, str]:
    unknown = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")
    return dict.fromkeys(unknown, "") | {
        "containerRuntimeVersion": "kwok",
        "kubeletVersion": VERSION,
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


async def _create_nodes(plane: ControlPlane) -> None:
    async with plane.client() as http:
        for number in range(NODES):
            async with http.post("/api/v1/nodes", json=node(number)) as answer:
                answer.raise_for_status()


def _start_kwok(plane: ControlPlane) -> Group:
    group = Group(plane.logs)
    command = (
        *("/usr/bin/env", f"HOME={plane.directory}"),  # a configuration of the user must not count
        str(build.binaries() / build.KWOK),
        f"--kubeconfig={plane.kubeconfig}",
        f"--config={_KUBELET}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        f"--cidr={_POD_CIDR}",
    )
    group.start(build.KWOK, command)
    return group


def _keep(plane: ControlPlane, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in plane.logs.glob("*.log"):
        shutil.copy(log, logs / log.name)
