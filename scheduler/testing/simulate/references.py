"""References of the input to objects that the input does not have.

A pod whose claim does not exist stays pending in a real cluster, and often without a word. The simulation names every
missing object before anything is scheduled, with the objects that refer to it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from scheduler.testing.simulate.manifests import Found, Manifest

_CLUSTER_SCOPED: Final = frozenset({"StorageClass", "DeviceClass", "PersistentVolume", "Node"})
_NO_CLASS: Final = ""
_HINTS: Final = {
    "PersistentVolumeClaim": "add the claim",
    "ResourceClaim": "add the claim",
    "ResourceClaimTemplate": "add the template",
    "StorageClass": "add it: kubectl get storageclasses -o yaml",
    "DeviceClass": "add it: kubectl get deviceclasses -o yaml",
    "PersistentVolume": "add it: kubectl get persistentvolumes -o yaml",
    "Node": "add it: kubectl get nodes -o yaml",
}


@dataclass(frozen=True, slots=True)
class MissingReference:
    """One object that is missing. `name` is `namespace/name`, or the name of a cluster-scoped object."""

    kind: str
    name: str
    referrer: str
    """The first object that refers to it, with its place in the input."""
    field: str
    referrers: int
    """How many objects refer to it."""
    hint: str

    def __str__(self) -> str:
        more = f" and {self.referrers - 1} more" if self.referrers > 1 else ""
        return f"{self.kind} {self.name}: named by {self.referrer}{more}, {self.field}; {self.hint}"

    def to_dict(self) -> dict[str, Any]:
        """For `-o json`."""
        return asdict(self)


def missing_references(found: Sequence[Found]) -> tuple[MissingReference, ...]:
    """Return what is missing, in the order of the first reference. Cost: linear in the input."""
    there: dict[str, set[str]] = {}
    for each in found:
        there.setdefault(each.kind, set()).add(f"{each.namespace}/{each.name}" if each.namespace else each.name)
    missing: dict[tuple[str, str], list[tuple[Found, str]]] = {}
    for each in found:
        for kind, name, field in _references(each):
            key = name if kind in _CLUSTER_SCOPED else f"{each.namespace}/{name}"
            if key not in there.get(kind, ()) and not _is_made(kind, key, found, there):
                missing.setdefault((kind, key), []).append((each, field))
    return tuple(
        MissingReference(kind, key, users[0][0].where, users[0][1], len(users), _hint(kind, key, there.get(kind, ())))
        for (kind, key), users in missing.items()
    )


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
    near = difflib.get_close_matches(key, list(known)[:10_000], n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else _HINTS[kind]


def _references(found: Found) -> Iterator[tuple[str, str, str]]:
    """Kind, name and field of each object that this one needs."""
    spec = found.value.get("spec") or {}
    match found.kind:
        case "Pod":
            if spec.get("nodeName"):
                yield "Node", str(spec["nodeName"]), "spec.nodeName"
            else:
                yield from _of_pod(spec, "spec")
        case "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "Job":
            if spec.get("replicas", 1) and not found.value["metadata"].get("ownerReferences"):
                made = {(each.get("metadata") or {}).get("name") for each in spec.get("volumeClaimTemplates") or ()}
                template = (spec.get("template") or {}).get("spec") or {}
                yield from _of_pod(template, "spec.template.spec", made)
                for at, each in enumerate(spec.get("volumeClaimTemplates") or ()):
                    yield from _of_claim(each.get("spec") or {}, f"spec.volumeClaimTemplates[{at}].spec")
        case "PersistentVolumeClaim":
            if spec.get("volumeName"):
                yield "PersistentVolume", str(spec["volumeName"]), "spec.volumeName"
            else:
                yield from _of_claim(spec, "spec")
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
            yield from _of_claim(template.get("spec") or {}, f"{path}.volumes[{at}].ephemeral.volumeClaimTemplate.spec")
    for at, entry in enumerate(spec.get("resourceClaims") or ()):
        if entry.get("resourceClaimName"):
            yield "ResourceClaim", str(entry["resourceClaimName"]), f"{path}.resourceClaims[{at}].resourceClaimName"
        if entry.get("resourceClaimTemplateName"):
            name = str(entry["resourceClaimTemplateName"])
            yield "ResourceClaimTemplate", name, f"{path}.resourceClaims[{at}].resourceClaimTemplateName"


def _of_claim(spec: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    if spec.get("storageClassName", _NO_CLASS) != _NO_CLASS:
        yield "StorageClass", str(spec["storageClassName"]), f"{path}.storageClassName"


def _of_devices(spec: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    for at, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        place = f"{path}.devices.requests[{at}]"
        for exact, field in _exact_requests(request, place):
            if exact.get("deviceClassName"):
                yield "DeviceClass", str(exact["deviceClassName"]), f"{field}.deviceClassName"


def _exact_requests(request: Manifest, place: str) -> Iterator[tuple[Manifest, str]]:
    """The requests for one class: `exactly`, the alternatives, and the flat form of v1beta1."""
    if isinstance(request.get("exactly"), dict):
        yield request["exactly"], f"{place}.exactly"
    for at, each in enumerate(request.get("firstAvailable") or ()):
        yield each, f"{place}.firstAvailable[{at}]"
    yield request, place
