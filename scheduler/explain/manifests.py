"""Pods and claims of the manifests of a what-if question, as the API server and its controllers would create them.

A manifest is a pod, a workload with a pod template, or an object that these need. Only defaults that change a decision
are filled in: requests, priority, storage class and allocation mode. Quotas and admission webhooks have no effect here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.pod_group import API_GROUPS
from scheduler.core.terminal import counted
from scheduler.explain.controllers import CREATED_UID
from scheduler.explain.edits import Edit, Manifest
from scheduler.explain.questions import Refused
from scheduler.manifests.defaults import SYSTEM_PRIORITIES, with_claim_defaults, with_device_defaults, with_requests
from scheduler.manifests.pods import claim_of, device_claim, ephemeral_claims, with_claims

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
_NEEDED: Final = ("PersistentVolumeClaim", "PodGroup", "PriorityClass", "ResourceClaim", "ResourceClaimTemplate")

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
    """Claims and groups to be created once, before all pods."""
    _pods: list[tuple[str, Manifest]] = field(default_factory=list, init=False)
    """Where each manifest with pods is in the question, and the manifest."""
    _priorities: dict[str, int] = field(default_factory=lambda: dict(SYSTEM_PRIORITIES), init=False)
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
            what = f"{counted(count, 'pod')} of {size} bytes each, with the templates of their claims"
            raise WrongRequest(
                f"{where}: {what}, {'is' if count == 1 else 'are'} too large: at most {PODS_BYTES_MAX} bytes in all"
            )

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
            self.shared.append(self._creation(claim_of(kind, manifest, name, namespace)))
        elif kind == "ResourceClaim":
            _check(manifest, _DeviceClaim, where)
            name, namespace = self._named(where, kind, manifest)
            self.shared.append(self._creation(claim_of(kind, manifest, name, namespace)))
        elif kind == "ResourceClaimTemplate":
            _check(manifest, _DeviceClaimTemplate, where)
            name, namespace = self._named(where, kind, manifest)
            self._claim_templates[f"{namespace}/{name}"] = dict(manifest["spec"])
            self._sizes[f"{namespace}/{name}"] = _size(manifest)
        elif kind == "PodGroup":
            self._add_group(where, manifest)
        elif kind == "PriorityClass":
            _check(manifest, _ClassManifest, where)
            name, _ = self._named(where, kind, manifest)
            self._priorities[name] = manifest["value"]
        else:
            kinds = ", ".join(sorted(("Pod", *_WORKLOADS, *_NEEDED)))
            raise WrongRequest(f"{where}: kind {kind!r} cannot be placed; expected one of {kinds}")

    def _add_group(self, where: str, manifest: Mapping[str, Any]) -> None:
        api_group = str(manifest.get("apiVersion", "")).partition("/")[0]
        kind = next((each for each, served in API_GROUPS.items() if served == api_group), None)
        if kind is None:
            raise WrongRequest(
                f"{where}.apiVersion: no kind of PodGroups; expected one of {', '.join(API_GROUPS.values())}"
            )
        _check(manifest, _NeededClaim, where)
        name, namespace = self._named(where, kind, manifest)
        kept = {key: value for key, value in manifest["metadata"].items() if key in {"labels", "annotations"} and value}
        made = {"metadata": kept, "spec": manifest.get("spec") or {}}
        self.shared.append(Edit("create", kind, name, namespace, manifest=made))

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
        with contextlib.suppress(ValueError, msgspec.ValidationError):  # reported when the pod is decoded
            pod["spec"] = with_requests(pod["spec"])
        spec = pod["spec"]
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
        spec = {**pod["spec"], "volumes": with_claims(pod["spec"].get("volumes"), of_pods.claim_templates, name)}
        made = {"metadata": metadata, "spec": spec}
        claims = [
            claim_of("PersistentVolumeClaim", each, f"{(each.get('metadata') or {}).get('name', '')}-{name}", namespace)
            for each in of_pods.claim_templates
        ]
        claims += ephemeral_claims(made)
        statuses = []
        for each in spec.get("resourceClaims") or ():
            used = each.get("resourceClaimTemplateName")
            if not used:
                continue
            template = self._claim_templates.get(f"{namespace}/{used}")
            if template is None:
                what = f"the ResourceClaimTemplate {namespace}/{used} is not among the manifests"
                raise WrongRequest(f"{of_pods.where}: resourceClaims[{each['name']}]: {what}")
            claims.append(device_claim(made, each["name"], template))
            statuses.append({"name": each["name"], "resourceClaimName": claims[-1]["metadata"]["name"]})
        status = {"resourceClaimStatuses": statuses} if statuses else {}
        return PodPlan({**made, "status": status}, tuple(map(self._creation, claims)))

    def _creation(self, claim: Manifest) -> Edit:
        """Return the creation of a claim, with the defaults of its kind."""
        metadata, spec = claim["metadata"], claim["spec"]
        if claim["kind"] == "PersistentVolumeClaim":
            spec = with_claim_defaults(spec, metadata.get("annotations") or {}, self.default_class)
        else:
            spec = with_device_defaults(spec)
        name, namespace = metadata["name"], metadata["namespace"]
        return Edit("create", claim["kind"], name, namespace, manifest={"metadata": metadata, "spec": spec})


def each_manifest(manifests: Sequence[Any], where: str, lists: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all manifests with their places; a List is taken apart. Raises WrongRequest."""
    if lists > LISTS_MAX:
        raise WrongRequest(f"{where}: at most {LISTS_MAX} Lists may contain each other")
    for at, manifest in enumerate(manifests):
        path = f"{where}[{at}]"
        if not isinstance(manifest, Mapping):
            raise WrongRequest(f"{path}: expected an object")
        items, kind = manifest.get("items"), manifest.get("kind")
        if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List"):
            yield from each_manifest(items, f"{path}.items", lists + 1)
        else:
            yield path, manifest


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
