"""Defaults that an API server gives to pods, pod templates and claims. New objects are returned, arguments stay as they are.

Defaults of fields that no scheduler or controller reads are here only as far as they make two templates equal.

Upstream: pkg/apis/core/v1/defaults.go SetDefaults_PodSpec, SetDefaults_Container, SetDefaults_Probe
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import CPU, MEMORY, requests_of
from scheduler.api.quantity import Quantity, text
from scheduler.api.storage_v1 import CLASS_ANNOTATION

Object = dict[str, Any]
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has."""
_POD: Final[Object] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HTTP: Final = {"path": "/", "scheme": "HTTP"}
_CONTAINERS: Final = ("containers", "initContainers")
_FILE_SOURCES: Final = ("configMap", "downwardAPI", "projected", "secret")
_UNREADY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_HUGE: Final = "hugepages-"
_NANO: Final = 10**9
_NANO_PER_MILLI: Final = 10**6
_EXACT_COUNT: Final = "ExactCount"


def filled(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Object:
    """Return the object with the defaults of its missing and empty fields."""
    return dict(given) | {key: value for key, value in defaults.items() if given.get(key) in (None, "")}


def with_template_defaults(spec: Object) -> Object:
    result = filled(spec, _POD)
    for name in _CONTAINERS:
        if spec.get(name):
            result[name] = [_container(each) for each in spec[name]]
    if spec.get("volumes"):
        result["volumes"] = [_volume(each) for each in spec["volumes"]]
    return result


def with_pod_defaults(spec: Object) -> Object:
    """Return the spec of a pod with its defaults, which are those of a template, requests, and tolerations of admission."""
    return with_requests(with_template_defaults(spec)) | {"tolerations": _with_tolerations(spec)}


def with_requests(spec: Object) -> Object:
    """Return the spec of a pod with requests wherever there are limits. Raises ValueError for amounts that are none.

    Upstream: pkg/apis/core/v1/defaults.go SetDefaults_Pod
    """
    result = dict(spec)
    for name in _CONTAINERS:
        if spec.get(name):
            result[name] = [_with_requests(each) for each in spec[name]]
    if spec.get("resources"):
        result["resources"] = with_pod_level(result)
    return result


def _with_requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    return container | {"resources": resources | {"requests": resources["limits"] | (resources.get("requests") or {})}}


def with_pod_level(spec: Mapping[str, Any], *, without_limits: bool = False) -> Object:
    """Set defaults of the pod's `resources`: limits of huge pages, and requests wherever there is a limit.

    The sum of the containers precedes the limit. The defaults of the containers must be set before.
    `without_limits`: requests are completed without limits as well, as from 1.37 on (PodLevelResourcesFixDefaulting).

    Upstream: pkg/apis/core/v1/defaults.go defaultPodRequests
    """
    given = spec.get("resources") or {}
    requests, limits = dict(given.get("requests") or {}), dict(given.get("limits") or {})
    if not (requests or limits):
        return dict(given)
    for name, amount in _together(spec, "limits").items():
        if name.startswith(_HUGE) and name not in requests:
            limits.setdefault(name, amount)
    if limits or without_limits:
        asked = {name: amount for name, amount in _together(spec, "requests").items() if name in {CPU, MEMORY}}
        whole = {name: amount for name, amount in limits.items() if name in {CPU, MEMORY} or name.startswith(_HUGE)}
        requests = whole | asked | requests
    return dict(given) | {kind: have for kind, have in (("limits", limits), ("requests", requests)) if have}


def _together(spec: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the `requests` or `limits` of all containers, start-up included."""
    alone = {
        name: [
            {key: container[key] for key in ("name", "restartPolicy") if key in container}
            | {"resources": {"requests": (container.get("resources") or {}).get(kind) or {}}}
            for container in spec.get(name) or []
        ]
        for name in _CONTAINERS
    }
    amounts = requests_of(from_manifest(Pod, {"metadata": {}, "spec": alone}))
    return {n: text(Quantity(a * (_NANO_PER_MILLI if n == CPU else _NANO))) for n, a in amounts.items()}


def _with_tolerations(spec: Object) -> list[Object]:
    tolerations: list[Object] = list(spec.get("tolerations") or [])
    for key in _UNREADY:
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in {"", key} and toleration.get("effect", "") in {"", "NoExecute"}


# -- containers ------------------------------------------------------------------------------------------------------


def _container(given: Object) -> Object:
    image = str(given.get("image", ""))
    is_latest = image.rpartition("/")[2].partition(":")[2] in {"", "latest"} and "@" not in image
    policy = "Always" if is_latest else "IfNotPresent"
    container = filled(given, _CONTAINER | {"imagePullPolicy": policy}) | {"resources": given.get("resources") or {}}
    if given.get("ports"):
        container["ports"] = [filled(port, {"protocol": "TCP"}) for port in given["ports"]]
    if given.get("env"):
        container["env"] = [_variable(each) for each in given["env"]]
    container |= {name: _PROBE | _handler(given[name]) for name in _PROBES if given.get(name)}
    if lifecycle := given.get("lifecycle"):
        container["lifecycle"] = {
            when: _handler(handler) if isinstance(handler, dict) else handler for when, handler in lifecycle.items()
        }
    return container


def _handler(handler: Object) -> Object:
    added = {
        name: usual | handler[name]
        for name, usual in (("httpGet", _HTTP), ("grpc", {"service": ""}))
        if name in handler
    }
    return handler | added


def _variable(variable: Object) -> Object:
    field = (variable.get("valueFrom") or {}).get("fieldRef")
    return variable if field is None else variable | {"valueFrom": {"fieldRef": {"apiVersion": "v1"} | field}}


def _volume(volume: Object) -> Object:
    result = dict(volume)
    if isinstance(volume.get("hostPath"), dict):
        result["hostPath"] = {"type": ""} | volume["hostPath"]
    for name in _FILE_SOURCES:
        if isinstance(volume.get(name), dict):
            source = result[name] = {"defaultMode": 420} | volume[name]
            if source.get("items"):
                source["items"] = [_item(each) for each in source["items"]]
            if source.get("sources"):
                source["sources"] = [_projection(each) for each in source["sources"]]
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        claim = template | {"spec": {"volumeMode": "Filesystem"} | (template.get("spec") or {})}
        result["ephemeral"] = volume["ephemeral"] | {"volumeClaimTemplate": claim}
    if len(volume) == 1:
        result["emptyDir"] = {}
    return result


def _item(item: Object) -> Object:
    return item | {"fieldRef": {"apiVersion": "v1"} | item["fieldRef"]} if item.get("fieldRef") else item


def _projection(source: Object) -> Object:
    if "serviceAccountToken" in source:
        return source | {"serviceAccountToken": {"expirationSeconds": 3600} | source["serviceAccountToken"]}
    if "downwardAPI" in source:
        return source | {
            "downwardAPI": {"items": [_item(each) for each in (source["downwardAPI"] or {}).get("items") or ()]}
        }
    return source


# -- claims ----------------------------------------------------------------------------------------------------------


def with_claim_defaults(spec: Mapping[str, Any], annotations: Mapping[str, str], default_class: str) -> Object:
    """Return the spec of a PersistentVolumeClaim with a mode, and with the default class if it names none."""
    result = filled(spec, {"volumeMode": "Filesystem"})
    if spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations and default_class:
        result["storageClassName"] = default_class
    return result


def with_device_defaults(spec: Mapping[str, Any]) -> Object:
    """Return the spec of a ResourceClaim with the defaults of allocationMode, count and tolerations."""
    devices = spec.get("devices") or {}
    requests = [_device_request(each) for each in devices.get("requests") or ()]
    return dict(spec) | {"devices": devices | {"requests": requests or None}}


def _device_request(request: Object) -> Object:
    result = dict(request)
    if request.get("exactly") is not None:
        result["exactly"] = _counted(request["exactly"])
    if request.get("firstAvailable"):
        result["firstAvailable"] = [_counted(each) for each in request["firstAvailable"]]
    return result


def _counted(one: Object) -> Object:
    result = filled(one, {"allocationMode": _EXACT_COUNT})
    if result["allocationMode"] == _EXACT_COUNT and not result.get("count"):
        result["count"] = 1
    if one.get("tolerations"):
        result["tolerations"] = [filled(each, {"operator": "Equal"}) for each in one["tolerations"]]
    return result
