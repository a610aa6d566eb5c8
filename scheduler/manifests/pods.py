"""Pods and claims as the controllers of kube-controller-manager create them from templates.

A StatefulSet `db` with the claim template `data` gets the pod `db-0`, which has the volume `data` of the claim
`data-db-0`. A pod `db-0` with an ephemeral volume `tmp` owns the claim `db-0-tmp`. New objects share the parts that
they do not change with their template, because a thousand replicas need no thousand copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Object = dict[str, Any]
INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a ResourceClaim: the entry of `resourceClaims` that it was made for."""
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def reference_to(owner: Object) -> Object:
    """Return the owner reference of an object that `owner` controls."""
    metadata = owner["metadata"]
    names = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return names | {"controller": True, "blockOwnerDeletion": True}


def new_pod(owner: Object, template: Mapping[str, Any], *, name: str = "") -> Object:
    """Return a pod of the template that `owner` controls. Without a name, `generateName` is the owner's name.

    Upstream: pkg/controller/controller_utils.go GetPodFromTemplate
    """
    metadata = owner["metadata"]
    own = {"name": name} if name else {"generateName": f"{metadata['name']}-"}
    kept = _kept(template, "labels", "annotations", "finalizers")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": own | kept | {"namespace": metadata["namespace"], "ownerReferences": [reference_to(owner)]},
        "spec": dict(template["spec"]),
    }


def _kept(template: Mapping[str, Any], *fields: str) -> Object:
    given = template.get("metadata") or {}
    return {field: type(given[field])(given[field]) for field in fields if given.get(field)}


# -- StatefulSets ----------------------------------------------------------------------------------------------------


def stateful_pod(owner: Object, template: Mapping[str, Any], ordinal: int) -> Object:
    """Return the pod of an ordinal, with the volumes of its claims.

    Upstream: pkg/controller/statefulset/stateful_set_utils.go newStatefulSetPod
    """
    name, spec = f"{owner['metadata']['name']}-{ordinal}", owner["spec"]
    pod = new_pod(owner, template, name=name)
    labels = pod["metadata"].setdefault("labels", {})
    labels |= {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal)}
    if volumes := with_claims(pod["spec"].get("volumes"), spec.get("volumeClaimTemplates"), name):
        pod["spec"]["volumes"] = volumes
    pod["spec"]["hostname"] = name
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    return pod


def with_claims(
    volumes: Sequence[Object] | None, templates: Sequence[Mapping[str, Any]] | None, pod: str
) -> list[Object]:
    """Return the volumes of a pod of a StatefulSet. Those of claim templates replace volumes of the same name."""
    names = [(template.get("metadata") or {}).get("name") for template in templates or ()]
    kept = [volume for volume in volumes or () if volume.get("name") not in names]
    return kept + [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names]


def stateful_claims(owner: Object, ordinal: int) -> list[Object]:
    """Return the claims of an ordinal, which have the labels of the selector as well."""
    spec, metadata = owner["spec"], owner["metadata"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    made = []
    for template in spec.get("volumeClaimTemplates") or ():
        name = f"{(template.get('metadata') or {}).get('name', '')}-{metadata['name']}-{ordinal}"
        claim = claim_of("PersistentVolumeClaim", template, name, metadata.get("namespace", ""))
        labels = claim["metadata"].get("labels", {}) | selected
        claim["metadata"] |= {"labels": labels} if labels else {}
        made.append(claim)
    return made


# -- Jobs, DaemonSets and Deployments --------------------------------------------------------------------------------


def job_pod(owner: Object, template: Mapping[str, Any], index: int | None) -> Object:
    """Return a pod of a Job; `index` is the completion index of an Indexed one.

    Upstream: pkg/controller/job/indexed_job_utils.go addCompletionIndexAnnotation
    """
    pod = new_pod(owner, template)
    metadata, name = pod["metadata"], owner["metadata"]["name"]
    labels = metadata.setdefault("labels", {})
    labels |= {"batch.kubernetes.io/job-name": name, "job-name": name}
    if index is not None:
        metadata["generateName"] = f"{name}-{index}-"
        metadata.setdefault("annotations", {})[INDEX] = str(index)
        labels[INDEX] = str(index)
        pod["spec"]["hostname"] = f"{name}-{index}"
    return pod


def with_daemon_tolerations(spec: Object) -> Object:
    """Return the spec of a pod template with the tolerations that every daemon pod has.

    Upstream: pkg/controller/daemon/util/daemonset_util.go AddOrUpdateDaemonPodTolerations
    """
    keys = (*_TOLERATED, _NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in keys]
    given = [each for each in spec.get("tolerations") or () if each not in added]
    return spec | {"tolerations": [*given, *added]}


def daemon_pod(owner: Object, template: Mapping[str, Any], node: str) -> Object:
    """Return the pod of a DaemonSet for one node, by an affinity that only this node meets.

    Upstream: pkg/controller/daemon/util/daemonset_util.go ReplaceDaemonSetPodNodeNameNodeAffinity
    """
    pod = new_pod(owner, template)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    affinity = pod["spec"].get("affinity") or {}
    pod["spec"]["affinity"] = affinity | {"nodeAffinity": (affinity.get("nodeAffinity") or {}) | required}
    return pod


# -- claims of pods --------------------------------------------------------------------------------------------------


def claim_of(kind: str, template: Mapping[str, Any], name: str, namespace: str, owner: Object | None = None) -> Object:
    """Return a claim with labels, annotations and spec of its template. `owner` is the pod that it belongs to alone."""
    metadata: Object = {"name": name, "namespace": namespace} | _kept(template, "labels", "annotations")
    if owner is not None:
        metadata["ownerReferences"] = [reference_to({"apiVersion": "v1", "kind": "Pod"} | owner)]
    version = "v1" if kind == "PersistentVolumeClaim" else "resource.k8s.io/v1"
    spec = dict(template.get("spec") or {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def ephemeral_claims(pod: Object) -> list[Object]:
    """Return the claims of the pod's ephemeral volumes: `<pod>-<volume>`, owned by the pod.

    Upstream: pkg/controller/volume/ephemeral/controller.go handleVolume
    """
    metadata = pod["metadata"]
    return [
        claim_of(
            "PersistentVolumeClaim",
            volume["ephemeral"].get("volumeClaimTemplate") or {},
            f"{metadata['name']}-{volume['name']}",
            metadata["namespace"],
            pod,
        )
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("ephemeral") is not None
    ]


def device_claim(pod: Object, entry: str, template: Mapping[str, Any]) -> Object:
    """Return the claim of an entry of `resourceClaims`, from the `spec` of its ResourceClaimTemplate.

    Upstream: pkg/controller/resourceclaim/controller.go handleClaim
    """
    metadata = pod["metadata"]
    claim = claim_of("ResourceClaim", template, f"{metadata['name']}-{entry}", metadata["namespace"], pod)
    del claim["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]  # this controller does not set it
    claim["metadata"]["annotations"] = claim["metadata"].get("annotations", {}) | {POD_ENTRY: entry}
    return claim
