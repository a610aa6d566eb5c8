"""Pods and claims of the manifests of a what-if question, as the API server and its controllers would create them.

A manifest is a pod, a workload with a pod template, or an object that these need. Only defaults that change a decision
are filled in: requests, priority, storage class and allocation mode. Quotas and admission webhooks have no effect here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import CLASS_ANNOTATION
from scheduler.explain.controllers import CREATED_UID
from scheduler.explain.edits import Edit, Manifest
from scheduler.explain.questions import Refused

REPLICAS_MAX: Final = 1000
PODS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of the manifests of all pods together, as JSON: each pod counts with the templates of its claims."""
LISTS_MAX: Final = 8
"""Lists that contain each other."""
_WORKLOADS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
}
"""Kind → the field with the number of its pods."""
_NEEDED: Final = ("PersistentVolumeClaim", "PriorityClass", "ResourceClaim", "ResourceClaimTemplate")
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_EXACT_COUNT: Final = "ExactCount"

T = TypeVar("T")


class WrongRequest(Refused):
    """The question cannot be answered as it is; the text names the field."""


class _Shape(msgspec.Struct, rename="camel"):
    """The types of the fields that are read here. Other fields are checked when the object is decoded."""


class _Metadata(_Shape):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(_Shape):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(_Shape):
    resources: _Resources | None = None


class _ClaimTemplate(_Shape):
    metadata: _Metadata | None = None
    spec: dict[str, Any] = {}


class _Ephemeral(_Shape):
    volume_claim_template: _ClaimTemplate = msgspec.field(default_factory=_ClaimTemplate)


class _Volume(_Shape):
    name: str
    ephemeral: _Ephemeral | None = None


class _PodClaim(_Shape):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _PodSpec(_Shape):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    volumes: list[_Volume] | None = None
    resource_claims: list[_PodClaim] | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None


class _Template(_Shape):
    metadata: _Metadata | None = None
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _WorkloadSpec(_Shape):
    template: _Template
    replicas: _Count | None = None
    parallelism: _Count | None = None
    volume_claim_templates: list[_ClaimTemplate] | None = None


class _Workload(_Shape):
    metadata: _Metadata
    spec: _WorkloadSpec


class _PodManifest(_Shape):
    metadata: _Metadata
    spec: _PodSpec


class _ClassManifest(_Shape):
    metadata: _Metadata
    value: int


class _Request(_Shape):
    allocation_mode: str | None = None
    count: int | None = None


class _DeviceRequest(_Request):
    exactly: _Request | None = None
    first_available: list[_Request] | None = None


class _Devices(_Shape):
    requests: list[_DeviceRequest] | None = None


class _DeviceClaimSpec(_Shape):
    devices: _Devices | None = None


class _DeviceClaim(_Shape):
    metadata: _Metadata
    spec: _DeviceClaimSpec = msgspec.field(default_factory=_DeviceClaimSpec)


class _DeviceClaimTemplateSpec(_Shape):
    metadata: _Metadata | None = None
    spec: _DeviceClaimSpec = msgspec.field(default_factory=_DeviceClaimSpec)


class _DeviceClaimTemplate(_Shape):
    metadata: _Metadata
    spec: _DeviceClaimTemplateSpec


class _NeededClaim(_Shape):
    metadata: _Metadata
    spec: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod to place, and the claims that its controllers create for it."""

    manifest: Manifest
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The pods of one manifest, which differ in names only. They share the template: a plan is made for one pod at a time."""

    where: str
    namespace: str
    names: tuple[str, ...]
    pod: Manifest
    """The template with defaults. It is never changed."""
    claim_templates: Sequence[Manifest]
    _plan: Callable[[PodTemplate, str], PodPlan]

    @property
    def priority(self) -> int:
        return self.pod["spec"].get("priority") or 0

    def plan(self, name: str) -> PodPlan:
        """Return the plan of one pod. Raises WrongRequest."""
        return self._plan(self, name)


@dataclass(slots=True)
class Manifests:
    """Checked manifests. `default_class` is the storage class of claims that name none."""

    manifests: Sequence[Mapping[str, Any]]
    default_class: str = ""
    shared: list[Edit] = field(default_factory=list, init=False)
    """Claims to be created once, before all pods."""
    _pods: list[tuple[str, Manifest]] = field(default_factory=list, init=False)
    """Where each manifest with pods is in the question, and the manifest."""
    _priorities: dict[str, int] = field(default_factory=lambda: dict(_SYSTEM_CLASSES), init=False)
    _claim_templates: dict[str, Manifest] = field(default_factory=dict, init=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False)
    """Claim template → its size."""
    _names: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    """Kind and key → the place of the manifest that has this name."""
    _generated: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for where, manifest in each_manifest(self.manifests, "manifests"):
            self._add(where, manifest)

    def count(self, replicas: int | None) -> int:
        """Return the number of all pods. Raises WrongRequest above REPLICAS_MAX."""
        total = sum(_replicas(manifest, replicas) for _, manifest in self._pods)
        if total > REPLICAS_MAX:
            raise WrongRequest(f"{total} pods are too many: at most {REPLICAS_MAX} are placed")
        return total

    def templates(self, replicas: int | None) -> Iterator[PodTemplate]:
        """Yield the pods in the order of the manifests; `replicas` replaces the number of each.

        Raises WrongRequest, also for what a plan would raise.
        """
        for where, manifest in self._pods:
            is_pod = manifest["kind"] == "Pod"
            count = _replicas(manifest, replicas)
            owner, namespace = manifest["metadata"], _namespace(manifest["metadata"])
            names = [owner["name"]] if is_pod and count == 1 else [f"{owner['name']}-{at}" for at in range(count)]
            for name in names:
                self._take("pod", where, f"{namespace}/{name}")
            self._check_size(where, manifest, count)
            pod = self._with_defaults(
                f"{where}.spec" if is_pod else f"{where}.spec.template.spec",
                manifest if is_pod else manifest["spec"]["template"],
            )
            claims = () if is_pod else manifest["spec"].get("volumeClaimTemplates") or ()
            template = PodTemplate(where, namespace, tuple(names), pod, claims, self._plan)
            if names:
                template.plan(names[0])
            yield template

    def _check_size(self, where: str, manifest: Manifest, count: int) -> None:
        """Raise WrongRequest if that many pods of the manifest are too large together."""
        spec = manifest["spec"] if manifest["kind"] == "Pod" else manifest["spec"]["template"]["spec"]
        names = (each.get("resourceClaimTemplateName") for each in spec.get("resourceClaims") or ())
        size = _size(manifest)
        for name in filter(None, names):
            size += self._sizes.get(f"{_namespace(manifest['metadata'])}/{name}", 0)
        if size * count > PODS_BYTES_MAX:
            what = f"{count} pods of {size} bytes each, with the templates of their claims"
            raise WrongRequest(f"{where}: {what}, are too large: at most {PODS_BYTES_MAX} bytes in all")

    def _take(self, kind: str, where: str, key: str) -> None:
        """Raise WrongRequest if another object of the question has this name, as a server does."""
        other = self._names.setdefault((kind, key), where)
        if other != where:
            raise WrongRequest(f"{where}: {kind} {key} is also in {other}; give it another name")

    # -- reading -----------------------------------------------------------------------------------------------------

    def _add(self, where: str, manifest: Mapping[str, Any]) -> None:
        kind = str(manifest.get("kind", ""))
        if kind == "Pod" or kind in _WORKLOADS:
            _check(manifest, _PodManifest if kind == "Pod" else _Workload, where)
            self._named(where, kind, manifest)
            self._pods.append((where, dict(manifest)))
        elif kind == "PersistentVolumeClaim":
            _check(manifest, _NeededClaim, where)
            name, namespace = self._named(where, kind, manifest)
            self.shared.append(self._volume_claim(name, namespace, manifest))
        elif kind == "ResourceClaim":
            _check(manifest, _DeviceClaim, where)
            name, namespace = self._named(where, kind, manifest)
            self.shared.append(_device_claim(name, namespace, manifest))
        elif kind == "ResourceClaimTemplate":
            _check(manifest, _DeviceClaimTemplate, where)
            name, namespace = self._named(where, kind, manifest)
            self._claim_templates[f"{namespace}/{name}"] = dict(manifest["spec"])
            self._sizes[f"{namespace}/{name}"] = _size(manifest)
        elif kind == "PriorityClass":
            _check(manifest, _ClassManifest, where)
            name, _ = self._named(where, kind, manifest)
            self._priorities[name] = manifest["value"]
        else:
            known = ", ".join(sorted(("Pod", *_WORKLOADS, *_NEEDED)))
            raise WrongRequest(f"{where}: kind {kind!r} cannot be placed; expected one of {known}")

    def _named(self, where: str, kind: str, manifest: Mapping[str, Any]) -> tuple[str, str]:
        """Return name and namespace. A generated name differs from all names before. Raises WrongRequest."""
        metadata: dict[str, Any] = manifest["metadata"]
        generated = str(metadata.get("generateName") or "").rstrip("-")
        namespace = _namespace(metadata)
        if not (metadata.get("name") or generated):
            raise WrongRequest(f"{where}: metadata.name: a name is required")
        if not metadata.get("name"):
            at = self._generated[generated] = self._generated.get(generated, 0) + 1
            metadata["name"] = generated if at == 1 else f"{generated}-{at}"
        self._take(kind, where, f"{namespace}/{metadata['name']}" if kind != "PriorityClass" else metadata["name"])
        return metadata["name"], namespace

    # -- pods --------------------------------------------------------------------------------------------------------

    def _with_defaults(self, where: str, template: Mapping[str, Any]) -> Manifest:
        """Return a deep copy of the template with the defaults that change decisions."""
        pod = _copied({"metadata": template.get("metadata") or {}, "spec": template["spec"]})
        spec = pod["spec"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            _default_requests(container)
        if spec.get("resources"):
            _default_pod_requests(spec)
        name = spec.get("priorityClassName")
        if spec.get("priority") is None and name:
            if name not in self._priorities:
                what = f"the PriorityClass {name} is not among the manifests; add it, or set spec.priority"
                raise WrongRequest(f"{where}.priorityClassName: {what}")
            spec["priority"] = self._priorities[name]
        spec.pop("nodeName", None)
        return pod

    def _plan(self, of_pods: PodTemplate, name: str) -> PodPlan:
        pod, namespace = of_pods.pod, of_pods.namespace
        uid = f"{CREATED_UID}Pod-{namespace}/{name}"
        metadata = {**pod["metadata"], "name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"}
        metadata.pop("generateName", None)
        owner = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}]
        edits = []
        spec = dict(pod["spec"])
        volumes = list(spec.get("volumes") or ())
        replaced = {(each.get("metadata") or {}).get("name") for each in of_pods.claim_templates}
        if replaced:
            volumes = [volume for volume in volumes if volume["name"] not in replaced]
        for template in of_pods.claim_templates:
            of = template.get("metadata") or {}
            claim = f"{of.get('name', '')}-{name}"
            edits.append(self._volume_claim(claim, namespace, template))
            volumes.append({"name": of.get("name"), "persistentVolumeClaim": {"claimName": claim}})
        for volume in volumes:
            ephemeral = volume.get("ephemeral")
            if ephemeral is not None:
                template = ephemeral.get("volumeClaimTemplate") or {}
                edits.append(self._volume_claim(f"{name}-{volume['name']}", namespace, template, owner))
        statuses = []
        for each in spec.get("resourceClaims") or ():
            used = each.get("resourceClaimTemplateName")
            if not used:
                continue
            wanted = self._claim_templates.get(f"{namespace}/{used}")
            if wanted is None:
                what = f"the ResourceClaimTemplate {namespace}/{used} is not among the manifests"
                raise WrongRequest(f"{of_pods.where}: resourceClaims[{each['name']}]: {what}")
            claim = f"{name}-{each['name']}"
            edits.append(_device_claim(claim, namespace, wanted, owner))
            statuses.append({"name": each["name"], "resourceClaimName": claim})
        status = {"resourceClaimStatuses": statuses} if statuses else {}
        spec["volumes"] = volumes
        return PodPlan({"metadata": metadata, "spec": spec, "status": status}, tuple(edits))

    def _volume_claim(
        self, name: str, namespace: str, template: Mapping[str, Any], owner: Sequence[Manifest] = ()
    ) -> Edit:
        spec = self._with_class(template.get("spec") or {}, template.get("metadata") or {})
        return _creation("PersistentVolumeClaim", name, namespace, template, owner, spec)

    def _with_class(self, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Manifest:
        """Return the claim's spec with the default class if it names none, and without a volume."""
        named = spec.get("storageClassName")
        if named is None and CLASS_ANNOTATION not in (metadata.get("annotations") or {}) and self.default_class:
            named = self.default_class
        return {"volumeMode": "Filesystem", **spec, **({} if named is None else {"storageClassName": named})}


def _device_claim(name: str, namespace: str, template: Mapping[str, Any], owner: Sequence[Manifest] = ()) -> Edit:
    return _creation("ResourceClaim", name, namespace, template, owner, _with_modes(template.get("spec") or {}))


def _creation(  # noqa: PLR0917 (private)
    kind: str, name: str, namespace: str, template: Mapping[str, Any], owner: Sequence[Manifest], spec: Manifest
) -> Edit:
    """Return the creation of a claim with labels and annotations of the template. `owner` is the pod of an own claim."""
    metadata = template.get("metadata") or {}
    kept = {part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)}
    made = {"metadata": {**kept, "ownerReferences": list(owner)}, "spec": spec}
    return Edit("create", kind, name, namespace, manifest=made)


def each_manifest(manifests: Sequence[Any], where: str, lists: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all manifests with their places; a List is taken apart. Raises WrongRequest."""
    if lists > LISTS_MAX:
        raise WrongRequest(f"{where}: at most {LISTS_MAX} Lists may contain each other")
    for at, manifest in enumerate(manifests):
        here = f"{where}[{at}]"
        if not isinstance(manifest, Mapping):
            raise WrongRequest(f"{here}: expected an object")
        items, kind = manifest.get("items"), manifest.get("kind")
        if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List"):
            yield from each_manifest(items, f"{here}.items", lists + 1)
        else:
            yield here, manifest


def _check(manifest: Mapping[str, Any], shape: type[T], where: str) -> T:
    try:
        return msgspec.convert(manifest, shape)
    except msgspec.ValidationError as error:
        raise WrongRequest(f"{where}: {error}") from None


def _size(value: Mapping[str, Any]) -> int:
    return len(msgspec.json.encode(value))


def _copied(value: Mapping[str, Any]) -> Manifest:
    """Return a copy that shares nothing. Raises WrongRequest for hundreds of levels."""
    try:
        made: Manifest = msgspec.json.decode(msgspec.json.encode(value))
    except RecursionError:
        raise WrongRequest("a manifest is nested too deeply") from None
    return made


def _namespace(metadata: Mapping[str, Any]) -> str:
    return metadata.get("namespace") or "default"


def _replicas(manifest: Mapping[str, Any], replicas: int | None) -> int:
    if replicas is not None:
        return replicas
    if manifest["kind"] == "Pod":
        return 1
    count = manifest["spec"].get(_WORKLOADS[manifest["kind"]])
    return 1 if count is None else int(count)


def _default_requests(container: dict[str, Any]) -> None:
    """Default each request to its limit, as the API server does.

    Upstream: pkg/apis/core/v1/defaults.go SetDefaults_Pod
    """
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if limits:
        container["resources"] = {**resources, "requests": {**limits, **requests}}


def _default_pod_requests(spec: dict[str, Any]) -> None:
    """Default a request of the whole pod to what its containers request, else to its limit.

    Upstream: pkg/apis/core/v1/defaults.go defaultPodRequests
    """
    limits = spec["resources"].get("limits") or {}
    requests = dict(spec["resources"].get("requests") or {})
    asked_by_containers = {
        name
        for container in spec.get("containers") or ()
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items()
        if _is_more_than_zero(amount)
    }
    for name, limit in limits.items():
        if name not in requests and name not in asked_by_containers:
            requests[name] = limit
    if requests:
        spec["resources"] = {**spec["resources"], "requests": requests}


def _is_more_than_zero(amount: object) -> bool:
    try:
        return parse(str(amount)).nano > 0
    except ValueError:
        return True  # reported when the pod is decoded


def _with_modes(spec: Mapping[str, Any]) -> Manifest:
    """Return the spec of a claim for devices with the defaults of allocationMode and count."""
    made = _copied(spec)
    for request in (made.get("devices") or {}).get("requests") or ():
        for each in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if each is not None:
                each.setdefault("allocationMode", _EXACT_COUNT)
                if each["allocationMode"] == _EXACT_COUNT:
                    each.setdefault("count", 1)
    return made
