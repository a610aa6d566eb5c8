"""Whether two pod templates say the same, although one was written by a user and the other came from an API server.

An API server fills in defaults, so templates are compared with the defaults that servers give to pod templates.

Upstream: pkg/apis/core/v1/defaults.go SetDefaults_PodSpec, SetDefaults_Container, SetDefaults_Probe
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.quantity import parse
from simulator.workloads.specs import PodTemplate

_HASH: Final = "pod-template-hash"
_POD: Final = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HTTP: Final = {"path": "/", "scheme": "HTTP"}
_WITH_MODE: Final = ("secret", "configMap", "downwardAPI", "projected")
_MODE: Final = 420
_AMOUNTS: Final = ("requests", "limits")


def is_same_template(one: PodTemplate, other: PodTemplate) -> bool:
    """Compare two templates; `pod-template-hash` and defaults make no difference.

    Upstream: pkg/controller/deployment/util/deployment_util.go EqualIgnoreHash
    """
    return _normal(one) == _normal(other)


def _normal(template: PodTemplate) -> dict[str, Any]:
    labels = {key: value for key, value in (template.metadata.get("labels") or {}).items() if key != _HASH}
    metadata = {"labels": labels, "annotations": template.metadata.get("annotations")}
    normal: dict[str, Any] = _without_empty({"metadata": metadata, "spec": _pod(template.spec)})
    return normal


def _pod(spec: dict[str, Any]) -> dict[str, Any]:
    filled = _POD | spec
    filled.pop("serviceAccount", None)  # the deprecated copy of serviceAccountName
    if spec.get("serviceAccount"):
        filled["serviceAccountName"] = spec["serviceAccount"]
    for field in ("containers", "initContainers"):
        filled[field] = [_container(each) for each in spec.get(field) or ()]
    filled["volumes"] = [_volume(each) for each in spec.get("volumes") or ()]
    filled["overhead"] = _amounts(spec.get("overhead") or {})
    return filled


def _container(container: dict[str, Any]) -> dict[str, Any]:
    image = str(container.get("image", ""))
    is_latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    filled = (
        _CONTAINER | {"imagePullPolicy": "Always" if is_latest and "@" not in image else "IfNotPresent"} | container
    )
    filled["ports"] = [{"protocol": "TCP"} | port for port in container.get("ports") or ()]
    resources = container.get("resources") or {}
    filled["resources"] = resources | {name: _amounts(resources.get(name) or {}) for name in _AMOUNTS}
    filled["env"] = [_variable(each) for each in container.get("env") or ()]
    for name in _PROBES:
        if name in container:
            filled[name] = _PROBE | _handler(container[name])
    if lifecycle := container.get("lifecycle"):
        filled["lifecycle"] = {
            when: _handler(handler) if isinstance(handler, dict) else handler for when, handler in lifecycle.items()
        }
    return filled


def _amounts(amounts: dict[str, Any]) -> dict[str, Any]:
    return {name: parse(amount).nano for name, amount in amounts.items()}


def _handler(handler: dict[str, Any]) -> dict[str, Any]:
    filled = dict(handler)
    if "httpGet" in handler:
        filled["httpGet"] = _HTTP | handler["httpGet"]
    if "grpc" in handler:
        filled["grpc"] = {"service": ""} | handler["grpc"]
    return filled


def _variable(variable: dict[str, Any]) -> dict[str, Any]:
    field = (variable.get("valueFrom") or {}).get("fieldRef")
    return variable if field is None else variable | {"valueFrom": {"fieldRef": {"apiVersion": "v1"} | field}}


def _volume(volume: dict[str, Any]) -> dict[str, Any]:
    filled = dict(volume)
    for name in _WITH_MODE:
        if name in volume:
            source = {"defaultMode": _MODE} | (volume[name] or {})
            if name == "downwardAPI":
                source["items"] = [_item(each) for each in source.get("items") or ()]
            if name == "projected":
                source["sources"] = [_projection(each) for each in source.get("sources") or ()]
            filled[name] = source
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template:
        claim = template | {"spec": {"volumeMode": "Filesystem"} | (template.get("spec") or {})}
        filled["ephemeral"] = {"volumeClaimTemplate": claim}
    if len(volume) == 1:  # only a name: an emptyDir
        filled["emptyDir"] = {}
    return filled


def _item(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"fieldRef": {"apiVersion": "v1"} | item["fieldRef"]} if item.get("fieldRef") else item


def _projection(source: dict[str, Any]) -> dict[str, Any]:
    if "serviceAccountToken" in source:
        return source | {"serviceAccountToken": {"expirationSeconds": 3600} | source["serviceAccountToken"]}
    if "downwardAPI" in source:
        items = [_item(each) for each in (source["downwardAPI"] or {}).get("items") or ()]
        return source | {"downwardAPI": {"items": items}}
    return source


def _without_empty(value: Any) -> Any:
    """Empty maps, lists and texts are nothing to an API server; an emptyDir and its like stay by their key."""
    if isinstance(value, dict):
        kept = {key: _without_empty(part) for key, part in value.items() if part is not None}
        return {key: part for key, part in kept.items() if part not in ("", [], {}) or key in {"emptyDir", "hostPath"}}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value
