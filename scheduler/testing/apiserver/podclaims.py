"""What a server finds wrong with the claims that a pod names, and with what its status says of them."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.names import dns_label, subdomain
from scheduler.testing.apiserver.problems import (
    Problems,
    in_each,
    not_there,
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
    """A container names a claim once, whole, or several requests of it."""
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
