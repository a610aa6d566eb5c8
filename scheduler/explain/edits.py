"""Edits of API objects as JSON patches, and their temporary application to the cache.

A fix is printed as edits, and tried as the same edits: the patched JSON is decoded like JSON of a watch. Objects that do
not exist yet, such as a claim under a new name, are added to the cache and removed again. No assumption about an existing
claim is touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.pod_group import (
    COSCHEDULING_POD_GROUP,
    KINDS,
    POD_GROUP,
    VOLCANO_POD_GROUP,
    CoschedulingPodGroup,
    GroupKey,
    PodGroup,
    VolcanoPodGroup,
)
from scheduler.api.podinfo import PodInfo
from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import ResourceClaim, ResourceSlice, claim_keys
from scheduler.api.storage_v1 import CSINode, PersistentVolumeClaim
from scheduler.cache.cluster import Cluster
from scheduler.explain.controllers import CREATED_UID, node_copy_of, stays
from scheduler.plan import Departure, NotApplicable, Plan, Undo

Manifest: TypeAlias = dict[str, Any]
_TYPES: Final[Mapping[str, type[Any]]] = {
    "Pod": Pod,
    "Node": Node,
    "CSINode": CSINode,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    POD_GROUP: PodGroup,
    COSCHEDULING_POD_GROUP: CoschedulingPodGroup,
    VOLCANO_POD_GROUP: VolcanoPodGroup,
}

_API_VERSIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Node", "PersistentVolumeClaim"), "v1"),
    "CSINode": "storage.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
}
"""Kinds that a fix creates."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = None


class Edit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One change of one object. A patch of a pod means its manifest or template: most of a pod's fields never change.

    `like` of a new node names the node whose DaemonSet pods and static pods it gets as well.
    """

    verb: Literal["patch", "create", "delete"]
    kind: str
    name: str
    namespace: str = ""
    patch: tuple[Step, ...] = ()
    manifest: Manifest = {}
    like: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def complete(edit: Edit) -> Edit:
    """Return the edit with a manifest that can be applied as it is: with apiVersion, kind, name and namespace."""
    if edit.verb != "create":
        return edit
    place = {"name": edit.name} | ({"namespace": edit.namespace} if edit.namespace else {})
    head: Manifest = {"apiVersion": _API_VERSIONS[edit.kind], "kind": edit.kind}
    body = head | edit.manifest | {"metadata": edit.manifest.get("metadata", {}) | place}
    return msgspec.structs.replace(edit, manifest=body)


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer of these keys and indexes."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def plain(obj: object) -> Any:
    """Return an object of the cache as JSON data, with the fields that Kubestow reads."""
    return msgspec.json.decode(_encoder.encode(obj))


def _spelled(value: object) -> str:
    if isinstance(value, Quantity):
        return text(value)
    raise NotImplementedError(type(value).__name__)


_encoder: Final = msgspec.json.Encoder(enc_hook=_spelled)


def patched(value: Any, steps: Iterable[Step]) -> Any:
    """Return JSON data with the steps applied; the given data does not change. Raises NotApplicable."""
    for step in steps:
        way = [part.replace("~1", "/").replace("~0", "~") for part in step.path.split("/")[1:]]
        try:
            value = _changed(value, way, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise NotApplicable(f"{step.op} {step.path}: {error}") from error
    return value


def strict(value: Any, steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps as RFC 6902 allows them: parents that the data lacks are added first. Raises NotApplicable."""
    ordered: list[Step] = []
    for step in steps:
        parts = step.path.split("/")
        needed = []
        for end in range(2, len(parts)):
            path = "/".join(parts[:end])
            if not _has(value, path):
                needed.append(Step("add", path, [] if parts[end] == "-" else {}))
                value = patched(value, needed[-1:])
        own = Step("add", step.path, step.value) if step.op == "replace" and not _has(value, step.path) else step
        value = patched(value, (own,))
        ordered += [*needed, own]
    return tuple(ordered)


def _has(value: Any, path: str) -> bool:
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return True


def _changed(value: Any, way: list[str], step: Step) -> Any:
    part, *rest = way
    copied: Any = list(value) if isinstance(value, list) else dict(value)
    at: Any = part
    if isinstance(copied, list):
        at = len(copied) if part == "-" else int(part)
    if rest:
        below = copied[at] if isinstance(copied, list) else copied.get(at, [] if rest[0] == "-" else {})
        copied[at] = _changed(below, rest, step)
    elif step.op == "remove":
        del copied[at]
    elif step.op == "add" and isinstance(copied, list):
        copied.insert(at, step.value)
    else:
        copied[at] = step.value
    return copied


def renamed(claim_name: str) -> str:
    """Return the name under which a changed copy of a claim is tried."""
    return f"{claim_name}-what-if"


def merged(edits: Iterable[Edit]) -> list[Edit]:
    """Return one edit per object. Of its steps equal ones count once, and removals come last, from behind."""
    found: dict[tuple[str, str, str], Edit] = {}
    for edit in edits:
        at = (edit.verb, edit.kind, edit.key)
        held = found.get(at)
        found[at] = edit if held is None else msgspec.structs.replace(edit, patch=(*held.patch, *edit.patch))
    return [
        msgspec.structs.replace(edit, patch=_ordered(edit.patch)) if len(edit.patch) > 1 else edit
        for edit in found.values()
    ]


def _ordered(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    unique: list[Step] = []
    for step in steps:
        if step not in unique:
            unique.append(step)
    removals = sorted(
        (step for step in unique if step.op == "remove"), key=lambda step: _place(step.path), reverse=True
    )
    return (*(step for step in unique if step.op != "remove"), *removals)


def _place(path: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in path.split("/"))


def _renamed(pod: Manifest, edit: Edit) -> Manifest:
    """Return the pod with references to the changed copy of the claim."""
    spec = dict(pod["spec"])
    if edit.kind == "PersistentVolumeClaim":
        volumes = []
        for volume in spec.get("volumes", ()):
            source = volume.get("persistentVolumeClaim") or {}
            own = source.get("claimName") or f"{pod['metadata']['name']}-{volume.get('name')}" * ("ephemeral" in volume)
            reference = {**source, "claimName": renamed(edit.name)}
            volumes.append(
                {"name": volume.get("name"), "persistentVolumeClaim": reference} if own == edit.name else volume
            )
        return {**pod, "spec": spec | {"volumes": volumes}}
    made = {
        each["name"]: each.get("resourceClaimName") for each in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    claims = [
        {"name": each["name"], "resourceClaimName": renamed(edit.name)}
        if (each.get("resourceClaimName") or made.get(each["name"])) == edit.name
        else each
        for each in spec.get("resourceClaims", ())
    ]
    return {**pod, "spec": spec | {"resourceClaims": claims}}


class Overlay:
    """Edits that are in force in the cache from `apply` to `undo`. Only the scheduling loop's task uses it.

    Changes of pods, nodes and claims go straight to the columns and stores: no waiting pod is woken and no version that
    bindings compare is raised. All news that the cache has for waiting pods by `undo` is withdrawn.
    """

    def __init__(self, cluster: Cluster, derive: Callable[[Pod], PodInfo]) -> None:
        """Take the cache, and the function that makes a PodInfo, with the switches of the daemon."""
        self._cluster = cluster
        self._derive = derive
        self._decoders: dict[str, ObjectDecoder[Any]] = {kind: ObjectDecoder(kind, typ) for kind, typ in _TYPES.items()}
        self.plan = Plan(cluster)
        self._uids: dict[str, str] = {}
        """Pod → its uid."""

    def pod(self, pod: Pod, edits: Iterable[Edit]) -> PodInfo:
        """Return the pod with its own edits, and with the new names of its patched claims. Raises NotApplicable."""
        value: Any = None
        for edit in merged(edits):
            if edit.verb != "patch" or edit.kind == "Node":
                continue
            value = plain(pod) if value is None else value
            value = patched(value, edit.patch) if edit.kind == "Pod" else _renamed(value, edit)
        return self._derive(pod if value is None else self.decoded("Pod", value))

    def apply(self, edits: Iterable[Edit]) -> None:
        """Apply all edits except patches of pods. Raises NotApplicable, and then nothing is applied."""
        self.plan.begin()
        try:
            for edit in merged(edits):
                if (edit.kind, edit.verb) != ("Pod", "patch"):
                    self.plan.add(partial(self.applied_edit, edit))
        except NotApplicable:
            self.undo()
            raise

    def hold(self, placement: Callable[[], Undo]) -> None:
        """Keep the placement of a pod in force with the edits. It may be repeated, and may raise NotApplicable then."""
        self.plan.add(placement)

    def undo(self) -> None:
        """Restore the cache, last edit first. Idempotent."""
        self.plan.end()

    @contextlib.contextmanager
    def applied(self, edits: Iterable[Edit]) -> Iterator[None]:
        """Apply the edits until the block ends."""
        self.apply(edits)
        try:
            yield
        finally:
            self.undo()

    def suspended(self) -> contextlib.AbstractContextManager[None]:
        """Restore the cache until the block ends, and then apply the edits and placements again, as `Plan.suspended`."""
        return self.plan.suspended()

    def decoded(self, kind: str, manifest: Manifest) -> Any:
        """Return the object as a watch would deliver it. Raises NotApplicable if it cannot be read."""
        if kind not in _TYPES:
            raise NotApplicable(f"a {kind} cannot be tried")
        try:
            found = self._decoders[kind].decode(msgspec.json.encode(manifest))
        except RecursionError:
            raise NotApplicable(f"a {kind} is nested too deeply") from None
        if type(found) is not _TYPES[kind]:
            name = manifest.get("metadata", {}).get("name", "")
            raise NotApplicable(f"{kind} {name}: {getattr(found, 'why', 'cannot be read')}")
        return found

    def applied_edit(self, edit: Edit) -> Undo:
        """Apply one edit apart from `apply`, and return its undo. Raises NotApplicable."""
        match edit.verb, edit.kind:
            case "delete", "Pod":
                info = self._pod(edit.key)
                if info is None:
                    raise NotApplicable(f"pod {edit.key} is on no node")
                return Departure(self._cluster, info)()
            case "patch", "Node":
                return self._patched_node(edit)
            case "patch", "PersistentVolumeClaim" | "ResourceClaim":
                return self._created(self._recreated(edit))
            case "create", _:
                return self._created(edit)
            case _:
                raise NotApplicable(f"{edit.verb} {edit.kind} {edit.key} cannot be tried")

    def exists(self, edit: Edit) -> bool:
        volumes, devices = self._cluster.volumes, self._cluster.devices
        match edit.kind:
            case "Node":
                return self._cluster.nodes.present_slot(edit.name) is not None
            case "CSINode":
                return volumes.csi_nodes.get(edit.name) is not None
            case "PersistentVolumeClaim":
                return volumes.claims.get(edit.key) is not None
            case "ResourceClaim":
                return devices.claims.get(edit.key) is not None
            case kind if kind in KINDS:
                return self._cluster.pod_groups.get(GroupKey(kind, edit.key)) is not None
            case "ResourceSlice":
                return any(each.metadata.name == edit.name for each in devices.slices())
            case _:
                return False

    def leaving(self, edits: Iterable[Edit]) -> list[PodInfo]:
        """Return the pods on nodes that these edits delete."""
        keys = [edit.key for edit in edits if (edit.verb, edit.kind) == ("delete", "Pod")]
        return [info for key in keys if (info := self._pod(key)) is not None]

    def claims_created_again(self, info: PodInfo) -> Iterator[Edit]:
        """Yield the claims that are released or deleted with the pod: ephemeral ones, and those of devices in its use alone."""
        metadata, spec = info.pod.metadata, info.pod.spec
        for volume in spec.volumes:
            name = f"{metadata.name}-{volume.name}"
            claim = self._cluster.volumes.claims.get(f"{metadata.namespace}/{name}")
            if volume.ephemeral is not None and claim is not None:
                yield Edit("patch", "PersistentVolumeClaim", name, metadata.namespace)
        for key in claim_keys(info.pod):
            held = self._cluster.devices.claims.get(key)
            if held is not None and all(user.uid == info.uid for user in held.status.reserved_for):
                yield Edit("patch", "ResourceClaim", held.metadata.name, metadata.namespace)

    def _pod(self, key: str) -> PodInfo | None:
        """Return the pod on a node; O(pods) for the first pod of an overlay, and where a pod has changed."""
        info = self._cluster.get(self._uids.get(key, ""))
        if info is None:
            self._uids = {each.key: each.uid for each in self._cluster.pods()}
            info = self._cluster.get(self._uids.get(key, ""))
        return info

    def _patched_node(self, edit: Edit) -> Undo:
        node = self._node(edit.name)
        self._cluster.nodes.set_node(self.decoded("Node", patched(plain(node), edit.patch)))
        return partial(_nothing, self._cluster.nodes.set_node, node)

    def _node(self, name: str) -> Node:
        slot = self._cluster.nodes.present_slot(name)
        node = self._cluster.nodes.node(slot) if slot is not None else None
        if node is None:
            raise NotApplicable(f"node {name} does not exist")
        return node

    def _recreated(self, edit: Edit) -> Edit:
        """Return the creation of the patched claim under another name, without the state of the existing claim."""
        is_volume = edit.kind == "PersistentVolumeClaim"
        claim = (self._cluster.volumes.claims if is_volume else self._cluster.devices.claims).get_api(edit.key)
        if claim is None:
            raise NotApplicable(f"{edit.kind} {edit.key} does not exist")
        value = plain(claim)
        fresh = {"metadata": {"labels": value["metadata"].get("labels", {})}, "spec": value.get("spec", {})}
        return Edit("create", edit.kind, renamed(edit.name), edit.namespace, manifest=patched(fresh, edit.patch))

    def _created(self, edit: Edit) -> Undo:
        obj = self.decoded(edit.kind, _with_identity(edit))
        cluster, volumes, devices = self._cluster, self._cluster.volumes, self._cluster.devices
        if self.exists(edit):  # its undo would remove the existing object
            raise NotApplicable(f"{edit.kind} {edit.key} exists already")
        match obj:
            case Node():
                cluster.nodes.set_node(obj)
                return partial(self._without_node, edit.name, self._staying(edit))
            case CSINode():
                volumes.set_csi_node(edit.name, obj)
                return partial(volumes.set_csi_node, edit.name, None)
            case PersistentVolumeClaim():
                volumes.set_claim(obj.key, obj)
                return partial(volumes.set_claim, obj.key, None)
            case ResourceClaim():
                devices.claims.set(obj)
                return partial(devices.claims.remove, obj.key)
            case PodGroup() | CoschedulingPodGroup() | VolcanoPodGroup():
                cluster.pod_groups.set(obj)
                return partial(cluster.pod_groups.remove, obj.group)
            case ResourceSlice():
                devices.set_slice(obj)
                return partial(_nothing, devices.remove_slice, edit.name)
            case _:
                raise NotApplicable(f"{edit.kind} {edit.key} cannot be tried")

    def _staying(self, edit: Edit) -> list[str]:
        """Put copies of the pods that stay on the node `like` on a new node; return their uids."""
        nodes = self._cluster.nodes
        slot = nodes.present_slot(edit.like) if edit.like else None
        models = [each for each in nodes.pods(slot).values() if stays(each.pod)] if slot is not None else []
        copies = [msgspec.structs.replace(each, pod=node_copy_of(each.pod, edit.name)) for each in models]
        for each in copies:
            nodes.add_pod(edit.name, each)
        return [each.uid for each in copies]

    def _without_node(self, name: str, uids: list[str]) -> None:
        for uid in uids:
            self._cluster.nodes.remove_pod(name, uid)
        self._cluster.nodes.remove_node(name)


def _nothing(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def _with_identity(edit: Edit) -> Manifest:
    metadata = {"namespace": edit.namespace} if edit.namespace else {}
    metadata |= {"uid": f"{CREATED_UID}{edit.kind}-{edit.key}", "resourceVersion": "1", "name": edit.name}
    return {**edit.manifest, "metadata": {**edit.manifest.get("metadata", {}), **metadata}}
