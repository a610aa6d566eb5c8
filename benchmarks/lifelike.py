"""Objects as a busy cluster has them: nodes with images and labels, bound pods of 5 KB with all their unused fields.

Deterministic. Sizes count as the server stores them, with the managed fields that it adds.
"""

from typing import Any

import msgspec

from benchmarks.workload import node_name, zone_of_node

NAMESPACES = 10
PODS_PER_APP = 100
IMAGES_PER_NODE = 30
_IMAGES = 400
"""Different ones in the cluster."""
_STARTED = "2026-01-05T10:00:00Z"
_SECRET = "/var/run/secrets/kubernetes.io/serviceaccount"


def namespace_of_app(app: int) -> str:
    return f"team-{app % NAMESPACES}"


def namespace_body(index: int) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace_of_app(index), "labels": {"kind": "team"}},
        }
    )


def node_body(index: int) -> bytes:
    """A ready node of 16 CPU and 64 GiB as a cloud's kubelet would report it."""
    name, zone = node_name(index), zone_of_node(index)
    room = {
        "cpu": "15890m",
        "memory": "61204Mi",
        "pods": "110",
        "ephemeral-storage": "94477937300",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": f"m6i.{4 * (1 + index % 3)}xlarge",
                "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": zone,
                "failure-domain.beta.kubernetes.io/zone": zone,
                "node-pool": f"pool-{index % 8}",
                "cluster": "production",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{index:017x}"}}',
            },
        },
        "spec": {
            "podCIDR": _cidr(index),
            "podCIDRs": [_cidr(index)],
            "providerID": f"aws:///eu-central-1/i-{index:017x}",
        },
        "status": {
            "capacity": room | {"cpu": "16"},
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": _address(index)}, {"type": "Hostname", "address": name}],
            "conditions": [_pressure(kind) for kind in ("Memory", "Disk", "PID")]
            + [_condition("Ready", "KubeletReady", "kubelet is posting ready status")],
            "images": [_image((index * 7 + at * 13) % _IMAGES) for at in range(IMAGES_PER_NODE)],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": f"00000000-0000-4000-8000-{index:012x}",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3",
                "machineID": f"{index:032x}",
                "operatingSystem": "linux",
                "osImage": "Linux",
                "systemUUID": f"00000000-0000-4000-9000-{index:012x}",
            },
        },
    }
    return msgspec.json.encode(node)


def _cidr(index: int) -> str:
    return f"10.{index // 256 % 256}.{index % 256}.0/24"


def _address(index: int) -> str:
    return f"10.250.{index // 256 % 256}.{index % 256}"


def _image(number: int) -> dict[str, Any]:
    repository = f"registry.example.com/team-{number % 40}/service-{number}"
    names = [f"{repository}@sha256:{number:064x}", f"{repository}:v1.{number}.0"]
    return {"names": names, "sizeBytes": 20_000_000 + 1_000_003 * number}


def _pressure(kind: str) -> dict[str, str]:
    told = _condition(f"{kind}Pressure", f"KubeletHasNo{kind}Pressure", f"kubelet has no {kind.lower()} pressure")
    return told | {"status": "False"}


def _condition(kind: str, reason: str = "", message: str = "") -> dict[str, str]:
    told = {"type": kind, "status": "True", "lastTransitionTime": _STARTED}
    return told | ({"reason": reason, "message": message} if reason else {})


def pod_path(index: int) -> str:
    """Where the pod is created; with its name, where it is."""
    return f"/api/v1/namespaces/{namespace_of_app(index // PODS_PER_APP)}/pods"


def pod_name(index: int) -> str:
    app = index // PODS_PER_APP
    return f"app-{app}-{_hash(app)}-{index % PODS_PER_APP:05d}"


def _hash(app: int) -> str:
    return f"{app * 2_654_435_761 % 2**32:08x}"


def pod_body(index: int, node: str) -> bytes:
    """A bound pod of a Deployment with a hundred like it."""
    app = index // PODS_PER_APP
    labels = {"app": f"app-{app}", "pod-template-hash": _hash(app), "team": namespace_of_app(app), "tier": "backend"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(index),
            "generateName": f"app-{app}-{_hash(app)}-",
            "labels": labels,
            "annotations": {"checksum/config": f"{app:064x}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"app-{app}-{_hash(app)}",
                    "uid": f"00000000-0000-4000-a000-{app:012x}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "containers": [_container(app)],
            "volumes": [
                {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            ],
        },
    }
    return msgspec.json.encode(pod)


def _container(app: int) -> dict[str, Any]:
    requests = {"cpu": f"{50 + 10 * (app % 20)}m", "memory": f"{64 + 16 * (app % 30)}Mi"}
    return {
        "name": "main",
        "image": _image(app % _IMAGES)["names"][1],
        "env": [{"name": "APP", "value": f"app-{app}"}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": requests, "limits": {"memory": requests["memory"]}},
        "volumeMounts": [{"name": "kube-api-access", "mountPath": _SECRET, "readOnly": True}],
    }


def pod_status(index: int) -> bytes:
    """A merge patch of the status that the kubelet writes once it runs."""
    app = index // PODS_PER_APP
    status = {
        "phase": "Running",
        "startTime": _STARTED,
        "podIP": f"10.{index // 65536}.{index // 256 % 256}.{index % 256}",
        "podIPs": [{"ip": f"10.{index // 65536}.{index // 256 % 256}.{index % 256}"}],
        "hostIP": "10.250.0.1",
        "conditions": [
            _condition(kind)
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [_container_status(app, index)],
    }
    return msgspec.json.encode({"status": status})


def _container_status(app: int, index: int) -> dict[str, Any]:
    image = _image(app % _IMAGES)["names"]
    return {
        "name": "main",
        "image": image[1],
        "imageID": image[0],
        "containerID": f"containerd://{index:064x}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": _STARTED}},
    }
