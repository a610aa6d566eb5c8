"""Rules of pods only: the claims that spec and status name, graceful deletion and the binding subresource."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.meta import dns_label, label_key, subdomain
from simulator.apiserver.kinds.fields import label_names
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import Refused, bad_request, conflict, invalid_binding, listed, precondition_failed
from simulator.apiserver.validation import (
    Problems,
    Table,
    accepting,
    duplicate,
    missing,
    name_of,
    names,
    not_allowed,
    not_found,
    not_supported,
    required,
    too_long,
    unique,
    wrong,
)

Object = dict[str, Any]
_CHECKS_NODE_NAMES: Final = 37
"""From this minor version on a Binding must have a valid name of a node."""
_CHECKS_METADATA: Final = 38
"""From this minor version on labels and annotations of a Binding are checked."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_LONGEST_ANNOTATIONS: Final = 256 * 1024
_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_NO_RESOURCE: Final = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
_NO_CONTAINER: Final = "must match the name of an entry in spec.initContainers.name or spec.containers.name"


def _one_source(claim: Any, _: Any) -> Problems:
    sources = [claim.get(source) for source in _SOURCES]
    given = sum(source is not None for source in sources)
    if given == 1:
        return []
    named = "`resourceClaimName` or `resourceClaimTemplateName`"
    why = f"at most one of {named} may be specified" if given else f"must specify one of: {named.replace(' or', ',')}"
    shown = dict(zip(("Name", "ResourceClaimName", "ResourceClaimTemplateName"), (name_of(claim), *sources)))
    return [wrong(shown, why)]


@accepting
def _uses(used: Any, spec: Object) -> Problems:
    """Check that a container names a claim once as a whole, or several requests of it."""
    claims = sorted(filter(None, map(name_of, spec.get("resourceClaims") or ())))
    found: Problems = []
    seen: set[str] = set()
    for at, claim in enumerate(used or ()):
        name, request, here = name_of(claim), (claim or {}).get("request", ""), f"[{at}]"
        if not name:
            found.append(missing(at=here))
            continue
        key = f"{name}/{request}" if request else name
        if name not in seen and request:
            found += [wrong(request, why, at=f"{here}.request") for why in dns_label(request)]
        if name in seen or key in seen:
            found.append(duplicate(name if name in seen else key, at=here))
        elif not request:
            found += [duplicate(name, at=here) for other in seen if other.startswith(f"{name}/")]
        seen.add(key)
        if name not in claims:
            known = f": {', '.join(claims)}" if claims else " which is empty"
            found.append(not_found(name, f"must be one of the names in pod.spec.resourceClaims{known}", at=here))
    return found


_SUBDOMAIN: Final = names(subdomain)
_SPEC: Final = Table(
    ("schedulingGates[*]", lambda gate, _: names(label_key)(name_of(gate), None)),
    ("schedulingGates", unique(name_of)),
    ("resourceClaims[*].name", required(), names(dns_label)),
    ("resourceClaims[*]", _one_source),
    *((f"resourceClaims[*].{source}?", _SUBDOMAIN) for source in _SOURCES),
    ("resourceClaims", unique(lambda claim: name_of(claim) or id(claim), at="name")),
    ("initContainers[*].resources.claims", _uses),
    ("containers[*].resources.claims", _uses),
)
"""Gates, the claims that the pod names, and those of them that its containers name. The context is the spec."""


def pod_spec(spec: Any, _: Any = None) -> Problems:
    """Check scheduling gates and claims of a pod's spec."""
    return _SPEC(spec or {}, spec or {})


def _has_entry(name: Any, spec: Object) -> Problems:
    known = name in map(name_of, spec.get("resourceClaims") or ())
    return [] if known else [wrong(name or "", "must match the name of an entry in `spec.resourceClaims`")]


def _mappings(extended: Any, spec: Object) -> Problems:
    at, mappings = "requestMappings", extended.get("requestMappings") or []
    found = [] if mappings else [missing("at least one request mapping is required", at=at)]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    resources = {each["name"]: (each.get("resources") or {}).get("requests") or {} for each in containers}
    fields = ("containerName", "resourceName", "requestName")
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        container, resource, request = key = tuple(mapping.get(name, "") for name in fields)
        if container not in resources:
            found.append(wrong(container, _NO_CONTAINER, at=f"{at}[{i}].containerName"))
        elif resource not in resources[container]:
            found.append(wrong(resource, _NO_RESOURCE, at=f"{at}[{i}].resourceName"))
        found += [wrong(request, why, at="requestName") for why in dns_label(request)]  # upstream names this field
        if key in seen:
            found += [duplicate(mapping.get(name, ""), at=f"{at}[{i}].{name}") for name in fields]
        seen.add(key)
    return found


STATUS: Final = Table(
    ("status.resourceClaimStatuses[*].name", _has_entry),
    ("status.resourceClaimStatuses[*].resourceClaimName?", _SUBDOMAIN),
    ("status.resourceClaimStatuses", unique(name_of, at="name")),
    ("status.extendedResourceClaimStatus?", _mappings),
    ("status.extendedResourceClaimStatus?.resourceClaimName", required(), _SUBDOMAIN),
)
"""Of a pod's status: names of generated claims, and the claim for extended resources. The context is the spec."""


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


def check_binding(name: str, binding: Object, minor: int) -> None:
    """Raise what can be refused without looking at the pod: 400 and, as a real server does, 500.

    Upstream: pkg/apis/core/validation/validation.go ValidatePodBinding
    """
    if binding.get("metadata", {}).get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    found: Problems = []
    if target.get("kind", "") not in {"", "Node"}:
        found.append(not_supported(target["kind"], ("Node", "<empty>"), at="target.kind"))
    if not target.get("name"):
        found.append(missing(at="target.name"))
    elif minor >= _CHECKS_NODE_NAMES and not found:
        found += [wrong(target["name"], why, at="target.name") for why in subdomain(target["name"])]
    if minor >= _CHECKS_METADATA:
        found += _METADATA(binding)
    if found:
        raise Refused(500, "", listed(found))


def _annotation_names(annotations: Any, _: Any) -> Problems:
    return [wrong(key, why) for key in annotations or () for why in label_key(key.lower())]


def _annotation_sizes(annotations: Any, _: Any) -> Problems:
    size = sum(len(text.encode()) for pair in (annotations or {}).items() for text in pair)
    return [too_long(_LONGEST_ANNOTATIONS)] if size > _LONGEST_ANNOTATIONS else []


_METADATA: Final = Table(
    ("metadata.annotations", _annotation_names, _annotation_sizes),
    ("metadata.labels", label_names),
)


def _check_annotations(before: Object, after: Object) -> None:
    """Raise 422 for annotations that a Binding may not add. Annotations of security profiles are taken as they are.

    Upstream: pkg/registry/core/pod/storage/storage.go setPodNodeAndMetadata
    """
    found: Problems = []
    if _MIRROR in after and _MIRROR not in before:
        found.append(not_allowed("may not add mirror pod annotation", at=f"metadata.annotations[{_MIRROR}]"))
    found += [each.below("metadata.annotations") for each in _annotation_sizes(after, None)]
    if found:
        raise invalid_binding(found)


def bound(resource: ApiResource, pod: Object, binding: Object, *, node: Object | None, now: str, minor: int) -> Object:
    """Return the pod on its node.

    Raises 409 when it is another pod, already bound, on its way out, or gated, and 422 for annotations.
    """
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
    if minor >= _CHECKS_METADATA and wanted.get("annotations"):
        _check_annotations(pod["metadata"].get("annotations") or {}, metadata["annotations"])
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
