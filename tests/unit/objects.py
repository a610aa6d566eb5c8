"""Builders of nodes and pods for table rows. Objects are decoded like those of a server."""

from __future__ import annotations

from typing import Any, cast

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import SystemClock
from scheduler.framework.handle import Handle, Unplugged, Writer


def node(name: str = "n1", *, labels: Any = None, taints: Any = (), cordoned: Any = False, **allocatable: str) -> Node:
    """Return a node. `taints` are `key=value:Effect`, resources are keywords (`cpu="4"`) or `**{"example.com/x": "1"}`.

    `labels` (a dict), `taints` and `cordoned` (a bool) are Any so that a dict of resources can be unpacked as well.
    """
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", **allocatable}
    return from_manifest(
        Node,
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"unschedulable": cordoned, "taints": [_taint(text) for text in taints]},
            "status": {"allocatable": amounts},
        },
    )


def _taint(text: str) -> dict[str, str]:
    pair, effect = text.rsplit(":", 1)
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    """Return a container that requests these resources."""
    return {"name": name, "resources": {"requests": requests}}


def pod(name: str = "p", *, on: str = "", status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """Return a pod with these spec fields, in the API's spelling; the uid is the name."""
    return from_manifest(
        Pod,
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": on, "containers": [container()], **spec},
            "status": status or {},
        },
    )


def info(name: str = "p", **more: Any) -> PodInfo:
    """Return the pod of `pod` with the values that scheduling derives from it."""
    return pod_info(pod(name, **more))


def pod_requesting(name: str = "p", *, on: str = "", **requests: str) -> PodInfo:
    return info(name, on=on, containers=[container(**requests)])


def ports(*wanted: str) -> list[dict[str, Any]]:
    """Return containers for host ports given as `TCP/80` or `UDP/53/127.0.0.1`."""
    out = []
    for text in wanted:
        protocol, port, *ip = text.split("/")
        out.append({"protocol": protocol, "hostPort": int(port), "hostIP": ip[0] if ip else ""})
    return [{"name": "c", "ports": out}]


def cluster(*things: Node | PodInfo) -> Cluster:
    """Return a cluster of these nodes and the pods on them."""
    out = Cluster()
    for thing in things:
        if isinstance(thing, Node):
            out.set_node(thing)
        else:
            out.add_pod(thing)
    return out


def handle(on: Cluster, *, writer: object = None, feature_gates: frozenset[str] = frozenset()) -> Handle:
    """Return the handle of a plugin that writes only with `writer` and records no events."""
    ports = cast("Writer", writer or Unplugged()), Unplugged(), SystemClock()
    return Handle(on, *ports, "kubestow", feature_gates=feature_gates)
