"""Find references of the input to objects that the input does not have.

A pod whose claim does not exist stays pending in a real cluster, often without a message. The simulation names every
missing object before anything is scheduled, with the objects that refer to it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from msgspec import Meta

from scheduler.api.csi_translation import driver_of
from scheduler.api.storage_v1 import CLASS_ANNOTATION, DEFAULT_CLASS_ANNOTATIONS, NO_PROVISIONER
from scheduler.manifests.defaults import SYSTEM_PRIORITIES
from simulator.simulate.detail import Count, Named, Part
from simulator.simulate.input import schema
from simulator.simulate.input.manifests import Found, Manifest
from simulator.simulate.input.provisioners import LOCAL_PROVISIONERS

_DEFAULT_CLASS: Final = "(default)"
_ENDED: Final = ("Complete", "Failed")
_HINTS: Final = {
    "PersistentVolumeClaim": "add the claim",
    "ResourceClaim": "add the claim",
    "ResourceClaimTemplate": "add the template",
    "StorageClass": "add it: kubectl get storageclasses -o yaml",
    "DeviceClass": "add it: kubectl get deviceclasses -o yaml",
    "PersistentVolume": "add it: kubectl get persistentvolumes -o yaml",
    "Node": "add it: kubectl get nodes -o yaml",
    "PriorityClass": "add it: kubectl get priorityclasses -o yaml",
    "RuntimeClass": "add it: kubectl get runtimeclasses -o yaml",
}


class MissingObject(Part, frozen=True):
    """One object that is missing in the input."""

    kind: Named
    name: Annotated[Named, Meta(description="`namespace/name`, or the name of a cluster-scoped object.")]
    referrer: Annotated[str, Meta(description="The first object that refers to it, with its place in the input.")]
    field: str
    referrers: Annotated[Count, Meta(description="How many objects refer to it.")]
    hint: str

    def __str__(self) -> str:
        more = f" and {self.referrers - 1} more" if self.referrers > 1 else ""
        return f"{self.kind} {self.name}: named by {self.referrer}{more}, {self.field}; {self.hint}"


def missing_references(found: Sequence[Found], known: Iterable[Found] = ()) -> tuple[MissingObject, ...]:
    """Return the missing objects, in the order of the first reference.

    `known` objects exist, too. Cost: linear in the input.
    """
    there = _there(found, known)
    missing: dict[tuple[str, str], list[tuple[Found, str]]] = {}
    for each in found:
        for kind, name, field in _references(each):
            key = name if kind in schema.cluster_scoped() else f"{each.namespace}/{name}"
            if key not in there.get(kind, ()) and not _is_made(kind, key, found, there):
                missing.setdefault((kind, key), []).append((each, field))
    return tuple(
        MissingObject(kind, key, users[0][0].where, users[0][1], len(users), _hint(kind, key, there.get(kind, ())))
        for (kind, key), users in missing.items()
    )


def _there(found: Sequence[Found], known: Iterable[Found]) -> dict[str, set[str]]:
    """Kind → the names that references may have.

    A storage class without an object is only a name, by which claims find volumes that name it, too.
    """
    there: dict[str, set[str]] = {"PriorityClass": set(SYSTEM_PRIORITIES)}
    for each in itertools.chain(found, known):
        there.setdefault(each.kind, set()).add(f"{each.namespace}/{each.name}" if each.namespace else each.name)
        spec, annotations = each.value.get("spec") or {}, each.value["metadata"].get("annotations") or {}
        if each.kind == "PersistentVolume":
            there.setdefault("StorageClass", set()).add(str(spec.get("storageClassName") or _DEFAULT_CLASS))
        elif each.kind == "StorageClass" and any(annotations.get(name) == "true" for name in DEFAULT_CLASS_ANNOTATIONS):
            there["StorageClass"].add(_DEFAULT_CLASS)
    return there


def driver_notes(found: Sequence[Found]) -> list[str]:
    """Return effects of missing CSI objects.

    No pod waits for them: without a CSINode there is no attach limit, and without a CSIDriver its capacity is
    ignored.
    """
    classes = {each.name: str(each.value.get("provisioner", "")) for each in found if each.kind == "StorageClass"}
    named = {name for each in found for kind, name, _ in _references(each) if kind == "StorageClass"}
    used = {classes[name] for name in sorted(named & classes.keys())}
    for each in found:
        if each.kind == "PersistentVolume":
            used.add(str(((each.value.get("spec") or {}).get("csi") or {}).get("driver", "")))
    nodes = [(each.value.get("spec") or {}).get("drivers") or () for each in found if each.kind == "CSINode"]
    listed = {str(driver.get("name")) for drivers in nodes for driver in drivers}
    drivers = {driver_of(name) or name for name in used - {"", NO_PROVISIONER} - LOCAL_PROVISIONERS}
    notes = [
        f"no CSINode lists the driver {each}: its volumes have no attach limit" for each in sorted(drivers - listed)
    ]
    known = {each.name for each in found if each.kind == "CSIDriver"}
    limited = {str(each.value.get("storageClassName")) for each in found if each.kind == "CSIStorageCapacity"}
    return notes + [
        f"there is no CSIDriver {classes[name]}: the CSIStorageCapacity objects of StorageClass {name} are ignored"
        for name in sorted(limited & classes.keys())
        if classes[name] not in known
    ]


def _is_made(kind: str, key: str, found: Sequence[Found], there: dict[str, set[str]]) -> bool:
    """Whether a StatefulSet creates this claim."""
    if kind != "PersistentVolumeClaim" or not there.get("StatefulSet"):
        return False
    namespace, _, name = key.partition("/")
    for each in found:
        if each.kind == "StatefulSet" and each.namespace == namespace:
            templates = (each.value.get("spec") or {}).get("volumeClaimTemplates") or ()
            prefixes = (f"{(one.get('metadata') or {}).get('name')}-{each.name}-" for one in templates)
            if any(name.startswith(prefix) and name.removeprefix(prefix).isdecimal() for prefix in prefixes):
                return True
    return False


def _hint(kind: str, key: str, known: Iterable[str]) -> str:
    if key == _DEFAULT_CLASS:
        return "name a class, or give one the annotation storageclass.kubernetes.io/is-default-class"
    names = list(known)
    near = difflib.get_close_matches(key, names[:10_000], n=1, cutoff=0.8)
    _, _, name = key.rpartition("/")
    elsewhere = [each for each in names if "/" in key and each.endswith(f"/{name}")]
    if elsewhere:
        return f"{elsewhere[0]} is in another namespace"
    return f"did you mean {near[0]}?" if near else _HINTS[kind]


def _references(found: Found) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and field of each object that this one needs."""
    spec = found.value.get("spec") or {}
    match found.kind:
        case "Pod":
            if spec.get("nodeName"):
                yield "Node", str(spec["nodeName"]), "spec.nodeName"
            else:
                yield from _of_pod(spec, "spec")
        case "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "Job":
            if _creates_pods(found):
                made = {(each.get("metadata") or {}).get("name") for each in spec.get("volumeClaimTemplates") or ()}
                template = (spec.get("template") or {}).get("spec") or {}
                yield from _of_pod(template, "spec.template.spec", made)
                yield from _of_template(template, "spec.template.spec")
                for at, each in enumerate(spec.get("volumeClaimTemplates") or ()):
                    yield from _of_claim(each, f"spec.volumeClaimTemplates[{at}].spec")
        case "PersistentVolumeClaim":
            if spec.get("volumeName"):
                yield "PersistentVolume", str(spec["volumeName"]), "spec.volumeName"
            else:
                yield from _of_claim(found.value, "spec")
        case "ResourceClaim":
            if (found.value.get("status") or {}).get("allocation") is None:
                yield from _of_devices(spec, "spec")
        case "ResourceClaimTemplate":
            yield from _of_devices(spec.get("spec") or {}, "spec.spec")


def _of_pod(spec: Manifest, path: str, made: Iterable[object] = ()) -> Iterator[tuple[str, str, str]]:
    for at, volume in enumerate(spec.get("volumes") or ()):
        claim = volume.get("persistentVolumeClaim") or {}
        if claim.get("claimName") and volume.get("name") not in made:
            yield (
                "PersistentVolumeClaim",
                str(claim["claimName"]),
                f"{path}.volumes[{at}].persistentVolumeClaim.claimName",
            )
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        if template:
            yield from _of_claim(template, f"{path}.volumes[{at}].ephemeral.volumeClaimTemplate.spec")
    for at, entry in enumerate(spec.get("resourceClaims") or ()):
        if entry.get("resourceClaimName"):
            yield "ResourceClaim", str(entry["resourceClaimName"]), f"{path}.resourceClaims[{at}].resourceClaimName"
        if entry.get("resourceClaimTemplateName"):
            name = str(entry["resourceClaimTemplateName"])
            yield "ResourceClaimTemplate", name, f"{path}.resourceClaims[{at}].resourceClaimTemplateName"


def _creates_pods(found: Found) -> bool:
    """Return whether a workload may create pods. A workload with an owner repeats the owner's template."""
    spec, status = found.value.get("spec") or {}, found.value.get("status") or {}
    ended = any(each.get("type") in _ENDED and each.get("status") == "True" for each in status.get("conditions") or ())
    is_over = found.kind == "Job" and (ended or spec.get("suspend"))
    return bool(spec.get("replicas", 1)) and not is_over and not found.value["metadata"].get("ownerReferences")


def _of_template(spec: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the classes of a template: an API server refuses pods of missing classes."""
    for kind, field in (("PriorityClass", "priorityClassName"), ("RuntimeClass", "runtimeClassName")):
        if spec.get(field) and (kind != "PriorityClass" or spec.get("priority") is None):
            yield kind, str(spec[field]), f"{path}.{field}"
    if spec.get("nodeName"):
        yield "Node", str(spec["nodeName"]), f"{path}.nodeName"


def _of_claim(claim: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the storage class of a claim.

    With "" it wants a volume without a class; without a class it gets the default.
    """
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    name = annotations.get(CLASS_ANNOTATION, (claim.get("spec") or {}).get("storageClassName", _DEFAULT_CLASS))
    if name:
        yield "StorageClass", str(name), f"{path}.storageClassName"


def _of_devices(spec: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    for at, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        place = f"{path}.devices.requests[{at}]"
        for exact, field in _exact_requests(request, place):
            if exact.get("deviceClassName"):
                yield "DeviceClass", str(exact["deviceClassName"]), f"{field}.deviceClassName"


def _exact_requests(request: Manifest, place: str) -> Iterator[tuple[Manifest, str]]:
    """Yield the requests for one class: `exactly`, the alternatives, and the flat form of v1beta1."""
    if isinstance(request.get("exactly"), dict):
        yield request["exactly"], f"{place}.exactly"
    for at, each in enumerate(request.get("firstAvailable") or ()):
        yield each, f"{place}.firstAvailable[{at}]"
    yield request, place
