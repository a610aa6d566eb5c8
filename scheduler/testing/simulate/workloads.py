"""What the controllers of workloads make of them: pods, their claims, and the ReplicaSet between a Deployment and its pods.

Those that default spread constraints go by (docs/spec/core.md §5.8) stay among the objects, so that their pods spread as
they would in a cluster; the others are done with once they have their pods.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from scheduler.api.apps_and_policy import ReplicaSet, ReplicationController, StatefulSet
from scheduler.testing.simulate.manifests import Found, Manifest

SELECTING: Final[dict[str, type[object]]] = {
    "ReplicaSet": ReplicaSet,
    "ReplicationController": ReplicationController,
    "StatefulSet": StatefulSet,
}
"""Owners whose selectors say which pods belong together."""
_WORKLOADS: Final = frozenset({"Deployment", "Job", *SELECTING})
_CLAIM: Final = "PersistentVolumeClaim"
_MOST_PODS: Final = 1_000_000


def with_children(found: list[Found]) -> list[Found]:
    """All but Deployments and Jobs, with the pods and claims that are not there yet. Raises InputError."""
    owners = {_owner(each) for each in found}
    claims = {(each.namespace, each.name) for each in found if each.kind == _CLAIM}
    objects: list[Found] = []
    for each in found:
        is_parent = (each.kind, each.namespace, each.name) in owners
        owner = _replica_set(each) if each.kind == "Deployment" and not is_parent else each
        if owner.kind not in _WORKLOADS:
            objects.append(owner)
            continue
        if owner.kind in SELECTING:
            objects.append(_selecting(owner))
        if not is_parent:
            objects += _pods(owner)
            objects += [claim for claim in _claims(owner) if (claim.namespace, claim.name) not in claims]
    return objects


def _owner(found: Found) -> tuple[str, str, str] | None:
    """A dump that has a workload's children as well needs no others made."""
    for reference in found.value["metadata"].get("ownerReferences") or ():
        if isinstance(reference, dict) and reference.get("controller"):
            return str(reference.get("kind")), found.namespace, str(reference.get("name"))
    return None


def _replica_set(deployment: Found) -> Found:
    """The one that its pods belong to. It has the Deployment's name, for the number that a cluster adds says nothing here."""
    metadata = {"name": deployment.name, "namespace": deployment.namespace, "ownerReferences": [_reference(deployment)]}
    value = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}
    return Found({**value, "spec": deployment.value.get("spec") or {}}, deployment.where)


def _selecting(owner: Found) -> Found:
    """With what it selects: without a selector its pods."""
    spec = owner.value.get("spec") or {}
    if "selector" in spec:
        return owner
    template = spec.get("template")
    metadata = template.get("metadata") if isinstance(template, dict) else None
    labels = metadata.get("labels") or {} if isinstance(metadata, dict) else {}
    selector = labels if owner.kind == "ReplicationController" else {"matchLabels": labels}
    return Found({**owner.value, "spec": {**spec, "selector": selector}}, owner.where)


def _reference(owner: Found) -> Manifest:
    return {"apiVersion": owner.value["apiVersion"], "kind": owner.kind, "name": owner.name, "controller": True}


def _pods(workload: Found) -> Iterator[Found]:
    """The pods that a controller would make, `name-0` onwards."""
    spec = workload.value.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise workload.wrong("spec.template.spec", "is required")
    claims = [str(template["metadata"]["name"]) for template in _claim_templates(workload)]
    if not isinstance(template["spec"].get("volumes") or [], list):
        raise workload.wrong("spec.template.spec.volumes", "must be a list")
    for ordinal in range(_count(workload)):
        pod = copy.deepcopy(template)
        metadata = pod.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise workload.wrong("spec.template.metadata", "must be an object")
        metadata |= {"name": f"{workload.name}-{ordinal}", "namespace": workload.namespace}
        metadata["ownerReferences"] = [_reference(workload)]
        if claims:
            others = [each for each in pod["spec"].get("volumes") or () if _name_of(each) not in claims]
            pod["spec"]["volumes"] = [
                *others,
                *(_mounted(name, f"{name}-{workload.name}-{ordinal}") for name in claims),
            ]
        yield Found(
            {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}, f"{workload.where}: spec.template"
        )


def _name_of(volume: object) -> object:
    return volume.get("name") if isinstance(volume, dict) else None


def _mounted(name: str, claim: str) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def _count(workload: Found) -> int:
    field = "parallelism" if workload.kind == "Job" else "replicas"
    count = workload.value["spec"].get(field)
    count = 1 if count is None else count
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise workload.wrong(f"spec.{field}", f"must be a number >= 0, got {count!r}")
    if count > _MOST_PODS:
        raise workload.wrong(f"spec.{field}", f"is more than can be simulated ({_MOST_PODS}), got {count}")
    return count


def _claims(workload: Found) -> Iterator[Found]:
    """What the pods of a StatefulSet claim: `<template>-<pod>`, each of its own."""
    for ordinal in range(_count(workload)):
        for template in _claim_templates(workload):
            given = template["metadata"]
            metadata = {key: given[key] for key in ("labels", "annotations") if key in given}
            metadata |= {"name": f"{given['name']}-{workload.name}-{ordinal}", "namespace": workload.namespace}
            value = {"apiVersion": "v1", "kind": _CLAIM, "metadata": metadata}
            if "spec" in template:
                value["spec"] = copy.deepcopy(template["spec"])
            yield Found(value, f"{workload.where}: spec.volumeClaimTemplates")


def _claim_templates(workload: Found) -> list[Manifest]:
    templates = workload.value["spec"].get("volumeClaimTemplates") or []
    try:
        named = all(isinstance(template["metadata"]["name"], str) for template in templates)
    except (TypeError, KeyError):
        named = False
    if not isinstance(templates, list) or not named:
        raise workload.wrong("spec.volumeClaimTemplates", "must be a list of claims with names")
    return templates
