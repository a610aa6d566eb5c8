"""What only pods have: graceful deletion, the binding subresource, and volumes with defaults of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.status import Refused, bad_request, conflict, precondition_failed

Object = dict[str, Any]
_FILE_SOURCES: Final = ("configMap", "downwardAPI", "projected", "secret")
_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def grace_s(pod: Object, asked: int | None) -> int:
    """How long the kubelet gets: nothing for a pod without a node or one that has finished.

    A pod that is already on its way out keeps its grace unless somebody asks for less.
    """
    spec, phase, current = pod["spec"], pod["status"].get("phase"), pod["metadata"].get("deletionGracePeriodSeconds")
    if current is not None:
        return int(current) if asked is None else min(asked, int(current))
    if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    wanted = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return int(wanted) if wanted >= 0 else 1


def check_binding(name: str, binding: Object) -> None:
    """What can be refused without looking at the pod: 400 and, as a real server does, 500."""
    if binding.get("metadata", {}).get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "") not in {"", "Node"}:
        supported = 'supported values: "Node", "<empty>"'
        raise Refused(500, "", f'target.kind: Unsupported value: "{target["kind"]}": {supported}')
    if not target.get("name"):
        raise Refused(500, "", "target.name: Required value")


def bound(resource: Resource, pod: Object, binding: Object, *, node: Object | None, now: str) -> Object:
    """The pod on its node. Raises 409 when it is another pod, already bound, on its way out, or gated."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    wanted = binding["metadata"]
    for field, named in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) and wanted[field] != metadata[field]:
            key = f"{metadata['namespace']}/{name}"
            raise precondition_failed(resource, key, named, wanted[field], metadata[field])
    why = _why_not(pod)
    if why:
        raise conflict(resource, name, why, subresource="binding")
    metadata = dict(metadata)
    for field in ("annotations", "labels"):
        added = dict(wanted.get(field) or {})
        if field == "labels" and node is not None:
            labels = node["metadata"].get("labels") or {}
            added |= {key: labels[key] for key in _TOPOLOGY if key in labels}
        if added:
            metadata[field] = (metadata.get(field) or {}) | added
    status = {k: v for k, v in pod["status"].items() if k != "nominatedNodeName"}
    status["conditions"] = _scheduled(status.get("conditions") or [], now)
    spec = pod["spec"] | {"nodeName": binding["target"]["name"]}
    return pod | {"metadata": metadata, "spec": spec, "status": status}


def _why_not(pod: Object) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _scheduled(conditions: list[Object], now: str) -> list[Object]:
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    result = []
    is_placed = False
    for condition in conditions:
        if condition.get("type") == "PodScheduled":
            if condition.get("status") == "True":
                scheduled["lastTransitionTime"] = condition.get("lastTransitionTime")
            result.append(scheduled)
            is_placed = True
        else:
            result.append(condition)
    return result if is_placed else [*result, scheduled]


def with_volume_defaults(volumes: Sequence[Object]) -> list[Object]:
    """The volumes of a pod with their defaults; those that are given stay as they are."""
    return [_pod_volume(volume) for volume in volumes]


def _pod_volume(volume: Object) -> Object:
    result = dict(volume)
    if isinstance(volume.get("hostPath"), dict):
        result["hostPath"] = {"type": ""} | volume["hostPath"]
    for source in _FILE_SOURCES:
        if isinstance(volume.get(source), dict):
            result[source] = {"defaultMode": 420} | volume[source]
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        spec = {"volumeMode": "Filesystem"} | (template.get("spec") or {})
        result["ephemeral"] = volume["ephemeral"] | {"volumeClaimTemplate": template | {"spec": spec}}
    return result
