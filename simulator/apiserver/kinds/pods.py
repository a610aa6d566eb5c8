"""Defaults, validation and subresources of pods.

What a server finds wrong with the claims that a pod names, and with what its status says of them.

Pod-level resources: defaults from the limits of the pod and from the requests of its containers.

Rules of pods only: graceful deletion, the binding subresource, and defaults of volumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.meta import dns_label, subdomain
from scheduler.api.podinfo import CPU, MEMORY, requests_of
from scheduler.api.quantity import Quantity, text
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import (
    Problems,
    Refused,
    bad_request,
    conflict,
    in_each,
    not_there,
    precondition_failed,
    required,
    said_twice,
    twice,
    wrong,
    wrong_each,
)

Object = dict[str, Any]
_AT_MOST_ONE: Final = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
_ONE: Final = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_NO_ENTRY: Final = "must match the name of an entry in `spec.resourceClaims`"
_NO_RESOURCE: Final = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
_NO_CONTAINER: Final = "must match the name of an entry in spec.initContainers.name or spec.containers.name"


def pod_claims(spec: Object) -> Problems:
    """Of a pod's spec: the claims it names, and those of them that its containers name."""
    claims = spec.get("resourceClaims") or []
    found = in_each("spec.resourceClaims", claims, _claim)
    given = [claim.get("name") or at for at, claim in enumerate(claims)]
    found += [problem._replace(field=f"{problem.field}.name") for problem in twice("spec.resourceClaims", given)]
    names = sorted({claim["name"] for claim in claims if claim.get("name")})
    for kind in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(kind) or ()):
            used = (container.get("resources") or {}).get("claims") or []
            found += _used(f"spec.{kind}[{at}].resources.claims", used, names)
    return found


def pod_status(spec: Object, status: Object) -> Problems:
    """Of a pod's status: names of generated claims, and the claim for extended resources."""
    names = {claim["name"] for claim in spec.get("resourceClaims") or ()}
    at, given = "status.resourceClaimStatuses", status.get("resourceClaimStatuses") or []
    found = in_each(at, given, lambda field, entry: _generated(field, entry, names))
    found += [
        problem._replace(field=f"{problem.field}.name") for problem in twice(at, [e.get("name", "") for e in given])
    ]
    extended = status.get("extendedResourceClaimStatus")
    return found if extended is None else found + _extended("status.extendedResourceClaimStatus", extended, spec)


def _claim(field: str, claim: Object) -> Problems:
    name, sources = claim.get("name", ""), [claim.get(source) for source in _SOURCES]
    found = wrong_each(f"{field}.name", name, dns_label(name)) if name else [required(f"{field}.name")]
    given = [source for source in sources if source is not None]
    if len(given) != 1:
        shown = dict(zip(("Name", "ResourceClaimName", "ResourceClaimTemplateName"), (name, *sources), strict=True))
        found.append(wrong(field, shown, _AT_MOST_ONE if given else _ONE))
    for source, value in zip(_SOURCES, sources, strict=True):
        found += wrong_each(f"{field}.{source}", value, subdomain(value)) if value is not None else []
    return found


def _used(field: str, used: list[Object], names: list[str]) -> Problems:
    """Check that a container names a claim once as a whole, or several requests of it."""
    found: Problems = []
    seen: set[str] = set()
    for at, claim in enumerate(used):
        name, request, here = claim.get("name", ""), claim.get("request", ""), f"{field}[{at}]"
        if not name:
            found.append(required(here))
            continue
        key = f"{name}/{request}" if request else name
        if name not in seen and request:
            found += wrong_each(f"{here}.request", request, dns_label(request))
        if name in seen or key in seen:
            found.append(said_twice(here, name if name in seen else key))
        elif not request:
            found += [said_twice(here, name) for other in seen if other.startswith(f"{name}/")]
        seen.add(key)
        if name not in names:
            known = f": {', '.join(names)}" if names else " which is empty"
            found.append(not_there(here, name, f"must be one of the names in pod.spec.resourceClaims{known}"))
    return found


def _generated(field: str, entry: Object, names: set[str]) -> Problems:
    name, claim = entry.get("name", ""), entry.get("resourceClaimName")
    found = [] if name in names else [wrong(f"{field}.name", name, _NO_ENTRY)]
    return found + (wrong_each(f"{field}.resourceClaimName", claim, subdomain(claim)) if claim is not None else [])


def _extended(field: str, extended: Object, spec: Object) -> Problems:
    at, mappings = f"{field}.requestMappings", extended.get("requestMappings") or []
    found = [] if mappings else [required(at, "at least one request mapping is required")]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    resources = {each["name"]: (each.get("resources") or {}).get("requests") or {} for each in containers}
    names = ("containerName", "resourceName", "requestName")
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        container, resource, request = key = tuple(mapping.get(name, "") for name in names)
        if container not in resources:
            found.append(wrong(f"{at}[{i}].containerName", container, _NO_CONTAINER))
        elif resource not in resources[container]:
            found.append(wrong(f"{at}[{i}].resourceName", resource, _NO_RESOURCE))
        found += wrong_each(f"{field}.requestName", request, dns_label(request))
        if key in seen:
            found += [said_twice(f"{at}[{i}].{name}", mapping.get(name, "")) for name in names]
        seen.add(key)
    claim = extended.get("resourceClaimName", "")
    named = f"{field}.resourceClaimName"
    return found + (wrong_each(named, claim, subdomain(claim)) if claim else [required(named)])


_HUGE: Final = "hugepages-"
_NANO: Final = 10**9
_NANO_PER_MILLI: Final = 10**6


def with_pod_level(spec: Mapping[str, Any], *, without_limits: bool = False) -> dict[str, Any]:
    """Set defaults of the pod's `resources`: limits of huge pages, and requests wherever there is a limit.

    The sum of the containers precedes the limit. The defaults of the containers must be set before.
    `without_limits`: requests are completed without limits as well, as from 1.37 on (PodLevelResourcesFixDefaulting).
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
        for name in ("containers", "initContainers")
    }
    amounts = requests_of(from_manifest(Pod, {"metadata": {}, "spec": alone}))
    return {n: text(Quantity(a * (_NANO_PER_MILLI if n == CPU else _NANO))) for n, a in amounts.items()}


_FILE_SOURCES: Final = ("configMap", "downwardAPI", "projected", "secret")
_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def grace_s(pod: Object, asked: int | None) -> int:
    """How long the kubelet gets: nothing for a pod without a node or one that has finished.

    A terminating pod keeps its grace period unless the request has a shorter one.
    """
    spec, phase, current = pod["spec"], pod["status"].get("phase"), pod["metadata"].get("deletionGracePeriodSeconds")
    if current is not None:
        return int(current) if asked is None else min(asked, int(current))
    if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    wanted = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return int(wanted) if wanted >= 0 else 1


def check_binding(name: str, binding: Object) -> None:
    """Return what can be refused without looking at the pod: 400 and, as a real server does, 500."""
    if binding.get("metadata", {}).get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "") not in {"", "Node"}:
        supported = 'supported values: "Node", "<empty>"'
        raise Refused(500, "", f'target.kind: Unsupported value: "{target["kind"]}": {supported}')
    if not target.get("name"):
        raise Refused(500, "", "target.name: Required value")


def bound(resource: ApiResource, pod: Object, binding: Object, *, node: Object | None, now: str) -> Object:
    """Return the pod on its node. Raises 409 when it is another pod, already bound, on its way out, or gated."""
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
    """Return the volumes of a pod with their defaults; those that are given stay as they are."""
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
