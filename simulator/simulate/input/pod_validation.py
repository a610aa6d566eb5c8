"""Rules for pods that a server applies and its schema does not have, with upstream's texts.

Only rules that a mistyped manifest breaks and that can change the node of a pod. A container without an image and a
Job without `restartPolicy` pass, although no server accepts them, because neither matters here.

Upstream: pkg/apis/core/validation/validation.go ValidatePodSpec
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from scheduler.api import meta, quantity
from scheduler.config.fields import shown
from simulator.simulate.input.schema import Mistake

Object: TypeAlias = Mapping[str, Any]
NEGATIVE: Final = "must be greater than or equal to 0"
NOT_POSITIVE: Final = "must be greater than zero"
_COUNTED: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
"""Native resources that only have whole numbers."""
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def invalid(path: str, value: object, why: str) -> Mistake:
    """Return the mistake of a refused value."""
    return Mistake(path, f"Invalid value: {shown(value)}: {why}")


def duplicate(path: str, value: object) -> Mistake:
    """Return the mistake of a duplicate value."""
    return Mistake(path, f"Duplicate value: {shown(value)}")


def objects(holder: Object, field: str) -> list[Object]:
    """Return the objects of a list; null means an empty one."""
    return [each or {} for each in holder.get(field) or ()]


def nested(holder: Object, *fields: str) -> Object:
    """Return the object below these fields, an empty one if absent."""
    for field in fields:
        holder = holder.get(field) or {}
    return holder


def pod_spec(spec: Object, path: str, claim_templates: Iterable[str] = ()) -> Iterator[Mistake]:
    """Yield the mistakes of a pod's spec. `claim_templates` names volumes that a StatefulSet adds."""
    volumes = [str(each.get("name", "")) for each in objects(spec, "volumes")]
    claims = [str(each.get("name", "")) for each in objects(spec, "resourceClaims")]
    yield from unique(volumes, f"{path}.volumes")
    yield from unique(claims, f"{path}.resourceClaims")
    yield from _claim_sources(spec, f"{path}.resourceClaims")
    mountable = {*volumes, *claim_templates}
    names: set[str] = set()
    for field in _CONTAINERS:
        for at, container in enumerate(objects(spec, field)):
            place = f"{path}.{field}[{at}]"
            yield from _container_name(container, place, names)
            yield from resources(nested(container, "resources"), f"{place}.resources")
            yield from _references(container, place, mountable, claims)
    yield from resources(nested(spec, "resources"), f"{path}.resources")
    yield from _amounts(nested(spec, "overhead"), f"{path}.overhead")
    yield from _spreading(spec, f"{path}.topologySpreadConstraints")
    yield from _weights(nested(spec, "affinity"), f"{path}.affinity")


def unique(names: Sequence[str], path: str) -> Iterator[Mistake]:
    """Yield duplicate names, and names that are no DNS labels. The schema requires a name."""
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name and name in seen:
            yield duplicate(f"{path}[{at}].name", name)
        elif name:
            seen.add(name)
            yield from (invalid(f"{path}[{at}].name", name, why) for why in meta.dns_label(name))


def _container_name(container: Object, place: str, names: set[str]) -> Iterator[Mistake]:
    name = container.get("name")
    if not name:
        return  # the schema requires it
    if name in names:
        yield duplicate(f"{place}.name", name)
    else:
        yield from (invalid(f"{place}.name", name, why) for why in meta.dns_label(name))
    names.add(name)


def _claim_sources(spec: Object, path: str) -> Iterator[Mistake]:
    for at, claim in enumerate(objects(spec, "resourceClaims")):
        given = sum(claim.get(each) is not None for each in ("resourceClaimName", "resourceClaimTemplateName"))
        if given == 0:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(f"{path}[{at}]", claim.get("name"), why)
        elif given > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(f"{path}[{at}]", claim.get("name"), why)


def _references(container: Object, place: str, volumes: set[str], claims: Sequence[str]) -> Iterator[Mistake]:
    """Yield volumes and claims that a container names and its pod does not have."""
    for field in ("volumeMounts", "volumeDevices"):
        for at, mount in enumerate(objects(container, field)):
            if (name := mount.get("name")) and name not in volumes:
                yield Mistake(f"{place}.{field}[{at}].name", f"Not found: {shown(name)}")
    for at, claim in enumerate(objects(nested(container, "resources"), "claims")):
        if (name := claim.get("name")) and name not in claims:
            known = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            why = f"Not found: {shown(name)}: must be one of the names in pod.spec.resourceClaims{known}"
            yield Mistake(f"{place}.resources.claims[{at}]", why)


def resources(given: Object, path: str) -> Iterator[Mistake]:
    """Yield mistakes in requests and limits of a container or a pod.

    Upstream: pkg/apis/core/validation/validation.go validateResourceRequirements
    """
    limits, requests = nested(given, "limits"), nested(given, "requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        yield from _amounts(amounts, f"{path}.{field}", of_container=True)
    for name, request in requests.items():
        overcommits = not quantity.is_extended(name) and not name.startswith("hugepages-")
        limit = limits.get(name)
        if limit is None:
            if not overcommits:
                yield Mistake(f"{path}.limits", "Required value: Limit must be set for non overcommitable resources")
            continue
        more = _nano(request) - _nano(limit)
        if more and not overcommits:
            yield invalid(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
        elif more > 0:
            yield invalid(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limit}")


def _amounts(amounts: Object, path: str, *, of_container: bool = False) -> Iterator[Mistake]:
    for name, amount in amounts.items():
        if of_container:
            yield from (invalid(f"{path}[{name}]", name, why) for why in _resource_name(name))
        yield from amount_of(name, amount, f"{path}[{name}]")


def _resource_name(name: str) -> list[str]:
    if wrong := meta.label_key(name):
        return wrong
    if "/" not in name:
        known = name in quantity.NATIVE or name.startswith("hugepages-")
        return [] if known else ["must be a standard resource for containers"]
    is_named = "kubernetes.io/" in name or quantity.is_extended(name)
    return [] if is_named else ["doesn't follow extended resource name standard"]


def amount_of(name: str, amount: Any, path: str) -> Iterator[Mistake]:
    """Yield mistakes of an amount: negative, or a fraction of an extended resource or object.

    Upstream: pkg/apis/core/validation/validation.go ValidateResourceQuantityValue
    """
    nano = _nano(amount)
    if nano < 0:
        yield invalid(path, str(amount), NEGATIVE)
    if (quantity.is_extended(name) or name in _COUNTED) and nano % 1_000_000_000:
        yield invalid(path, str(amount), "must be an integer")


def _nano(amount: Any) -> int:
    return 0 if amount is None else quantity.parse(amount.strip() if isinstance(amount, str) else amount).nano


def _spreading(spec: Object, path: str) -> Iterator[Mistake]:
    """Yield mistakes of spread constraints. As upstream, of two equal constraints the first is named."""
    constraints = objects(spec, "topologySpreadConstraints")
    keys = [(each.get("topologyKey"), each.get("whenUnsatisfiable")) for each in constraints]
    for at, (constraint, key) in enumerate(zip(constraints, keys)):
        for field in ("maxSkew", "minDomains"):
            if (count := constraint.get(field, 1)) <= 0:
                yield invalid(f"{path}[{at}].{field}", count, NOT_POSITIVE)
        if (least := constraint.get("minDomains")) is not None and key[1] != "DoNotSchedule":
            why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {key[1]}"
            yield invalid(f"{path}[{at}].minDomains", least, why)
        if key in keys[at + 1 :]:
            yield duplicate(f"{path}[{at}].{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")


def _weights(affinity: Object, path: str) -> Iterator[Mistake]:
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        for at, term in enumerate(objects(nested(affinity, kind), field)):
            weight = term.get("weight")
            if weight is not None and not 1 <= weight <= 100:
                yield invalid(f"{path}.{kind}.{field}[{at}].weight", weight, "must be in the range 1-100")
