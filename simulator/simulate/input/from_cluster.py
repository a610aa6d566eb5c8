"""Read the objects of a simulation from a cluster with LIST requests and the user's kubeconfig.

Secrets and ConfigMaps are never read. Pods are listed first, so that the objects that a pod names are at least as new
as the pod.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.core import api_json
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Forbidden, Gone, TooManyRequests, Unauthorized, Unavailable
from scheduler.kube.client_config import Settings, SettingsError, load_settings
from scheduler.kube.resources import (
    CAPACITY,
    KINDS,
    POD_GROUPS,
    DiscoveryFailed,
    KindSpec as Spec,
    ServedKind,
    discover,
)
from scheduler.kube.server_version import server_version
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Transport, page_of
from simulator.simulate.input.manifests import Found, InputError, Manifest, cleaned

_PAGE: Final = 500
_AT_ONCE: Final = 4
_ATTEMPTS: Final = 5
_RETRY_S: Final = 1.0
_DEVICE_GROUP: Final = "resource.k8s.io"
_USER: Final = re.compile(r'User "([^"]+)" cannot')
_ANY: Final = msgspec.json.Decoder(dict[str, Any])
_ROLE: Final = "kubestow-simulate"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_WRITTEN_LATER: Final = {"Pod": "nodeName", "PersistentVolumeClaim": "volumeName", "PersistentVolume": "claimRef"}
"""Fields that binding writes. A manifest does not have them, and `kubectl apply` keeps them."""


def rbac_name(spec: Spec) -> str:
    """Return the name for kubectl and for RBAC's command line: `pods`, `jobs.batch`."""
    return f"{spec.plural}.{spec.group}" if spec.group else spec.plural


@dataclass(frozen=True, slots=True)
class KindRead:
    """A kind that a simulation reads. `without` is the effect of a missing permission.

    `is_own`: objects outside of the simulated namespaces have no effect and are not read.
    """

    spec: Spec
    without: str
    is_own: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether some supported server versions do not serve the kind."""
        return self.spec.group == _DEVICE_GROUP or self.spec == CAPACITY or self.is_group

    @property
    def is_group(self) -> bool:
        """Whether these are groups of pods: few clusters have them, and few users may list them."""
        return self.spec in POD_GROUPS

    @property
    def resource(self) -> str:
        return rbac_name(self.spec)


def _known(name: str, without: str, *, is_own: bool = False) -> KindRead:
    return KindRead(KINDS[name], without, is_own)


def _other(name: str, plural: str, version: str, without: str, *, is_namespaced: bool = True) -> KindRead:
    return KindRead(Spec(name, plural, (version,), is_namespaced), without, is_own=is_namespaced)


_NOT_GROWN: Final = "pods that its controller has not created yet are missing"
_SPREAD: Final = "pods are not spread by its selector"
_ONE_BY_ONE: Final = "pods of these groups are placed one by one"
_TEMPLATES: Final = Spec(
    "ResourceClaimTemplate", "resourceclaimtemplates", KINDS["ResourceClaim"].group_versions, namespaced=True
)

KINDS_READ: Final[tuple[KindRead, ...]] = (
    _known("Pod", "running pods use no resources of the nodes, and no pending pod is simulated"),
    _known("Node", "no pod has a node to go to"),
    _known("Namespace", "namespace selectors of pod affinity select nothing"),
    _known("PersistentVolume", "bound volumes tie no pod to a node and count against no attach limit"),
    _known("PersistentVolumeClaim", "pods with claims stay pending, and their volumes count against no attach limit"),
    _known("StorageClass", "claims whose volume does not exist yet stay pending"),
    _known("CSINode", "nodes have no attach limits"),
    _known("CSIDriver", "the capacity of storage pools is ignored"),
    _known("CSIStorageCapacity", "the capacity of storage pools is ignored"),
    _known("VolumeAttachment", "volumes that are attached without a pod count against no limit"),
    _other("PriorityClass", "priorityclasses", "scheduling.k8s.io/v1", "pods that name a class without a number are refused",
           is_namespaced=False),
    _other("RuntimeClass", "runtimeclasses", "node.k8s.io/v1", "new pods that name a runtime class are refused",
           is_namespaced=False),
    _other("LimitRange", "limitranges", "v1", "new pods get no default requests"),
    _known("PodDisruptionBudget", "preemption ignores budgets"),
    _known("Service", _SPREAD, is_own=True),
    _known("ReplicationController", _NOT_GROWN, is_own=True),
    _known("ReplicaSet", _NOT_GROWN, is_own=True),
    _known("StatefulSet", _NOT_GROWN, is_own=True),
    _other("DaemonSet", "daemonsets", "apps/v1", _NOT_GROWN),
    _other("Deployment", "deployments", "apps/v1", _NOT_GROWN),
    _other("Job", "jobs", "batch/v1", _NOT_GROWN),
    _other("CronJob", "cronjobs", "batch/v1", _NOT_GROWN),
    _other("ControllerRevision", "controllerrevisions", "apps/v1", "the revision of a pod of a DaemonSet is unknown"),
    _known("ResourceClaim", "pods with device claims stay pending, and allocated devices count as free"),
    KindRead(_TEMPLATES, "pods with claims from templates stay pending", is_own=True),
    _known("ResourceSlice", "no node has devices"),
    _known("DeviceClass", "requests for devices of a class stay pending"),
    _known("DeviceTaintRule", "devices have only the taints of their slices"),
    *(KindRead(spec, _ONE_BY_ONE) for spec in POD_GROUPS),
)  # fmt: skip
"""In the order of a saved dump."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options. Without `namespaces`, pending pods and workloads of all namespaces are simulated."""

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    allows_partial: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A missing permission to list. Without a namespace: in the whole cluster."""

    kind: KindRead
    namespace: str = ""
    user: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "at the cluster scope"
        return f"list {self.kind.resource} {where}: {self.kind.without}"


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects that were read, sorted by kind, namespace and name."""

    objects: tuple[Found, ...]
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    git_version: str = ""
    """The API server's version, such as v1.37.2; "" if it is not readable."""

    def with_files(self, files: Sequence[Found]) -> list[Found]:
        """Return the objects as input of a simulation.

        An object of the files replaces the one with its kind, namespace and name.

        As with `kubectl apply`, status, annotations, owners and the fields that binding writes stay if the file has
        none.
        """
        of_cluster = {_key(found): found for found in self.objects}
        laid = [_applied(of_cluster.pop(_key(found), None), found) for found in files]
        return [*of_cluster.values(), *laid]


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called with the kinds that were read, all kinds, and the number of objects."""


async def read_cluster(options: ClusterOptions, *, clock: Clock, progress: Progress) -> ClusterObjects:
    """Connect and read. Raises InputError with one line for an unreadable cluster."""
    name = kubectl(options.kubeconfig, options.context)
    try:
        settings = await load_settings(options.kubeconfig, context=options.context)
    except SettingsError as why:
        raise InputError(f"--from-cluster: {why}. Check --kubeconfig and --context; {name} must work, too") from why
    transport = HttpTransport(settings, clock=clock)
    try:
        await transport.get("/api")
        found = await Reader(transport, options, clock=clock, progress=progress).read()
        return dataclasses.replace(found, git_version=await server_version(transport, clock))
    except ApiError as why:
        raise InputError(f"--from-cluster: {what_to_do(why, settings, name)}") from why
    finally:
        await transport.close()


def kubectl(kubeconfig: str | None, context: str | None) -> str:
    """Return the kubectl command that uses the same credentials."""
    flags = [f"--kubeconfig {kubeconfig}"] * bool(kubeconfig)
    flags += [f"--context {context}"] * bool(context)
    return f"`{' '.join(['kubectl', *flags, 'get', 'nodes'])}`"


def what_to_do(why: ApiError, settings: Settings, command: str) -> str:
    """Return why a cluster is unreadable, in one line. `command` is that of `kubectl`."""
    if isinstance(why, Unauthorized):
        return f"{settings.server} refuses the credentials (401 {why.message}). Log in again; {command} must work, too."
    if isinstance(why, Unavailable):
        return f"{settings.server} does not answer: {why.message}. Check that {command} works from this machine."
    return f"{settings.server}: {why.message}"


@dataclass(slots=True)
class Reader:
    """Read every kind of `KINDS_READ` that the server serves."""

    transport: Transport
    options: ClusterOptions
    clock: Clock
    progress: Progress
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _kinds: int = 0
    _objects: int = 0
    _total: int = 0

    async def read(self) -> ClusterObjects:
        """Read all kinds. Raises ApiError, and InputError for gaps unless the options allow them."""
        kinds = await self._served()
        self._total = len(kinds)
        found: dict[str, list[Manifest]] = {}
        first, *others = kinds.items()
        found[first[0].spec.name] = await self._one_kind(*first)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(kind: KindRead, served: ServedKind) -> None:
            async with slots:
                found[kind.spec.name] = await self._one_kind(kind, served)

        try:
            async with asyncio.TaskGroup() as group:
                for kind, served in others:
                    group.create_task(one(kind, served))
        except* ApiError as failed:
            raise failed.exceptions[0] from None
        self.gaps.sort(key=lambda gap: (KINDS_READ.index(gap.kind), gap.namespace))
        self.notes += [f"the user may not {gap}" for gap in self.gaps if gap.kind.is_group]
        self.gaps = [gap for gap in self.gaps if not gap.kind.is_group]
        if self.gaps and not self.options.allows_partial:
            text = f"--from-cluster: {lacking(self.gaps)}"
            raise InputError(f"{text}\n--allow-partial goes on without these objects.")
        values = (each for kind in KINDS_READ for each in found.get(kind.spec.name, ()))
        objects = tuple(self._cleaned(filter(self._is_wanted, values)))
        return ClusterObjects(objects, tuple(self.gaps), tuple(self.notes))

    def _cleaned(self, values: Iterable[Manifest]) -> Iterator[Found]:
        """Yield readable objects. One unreadable object must not make the cluster unreadable."""
        for each in values:
            try:
                yield cleaned(each, "cluster")
            except InputError as why:
                metadata = each["metadata"]
                name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
                self.notes.append(f"{each['kind']} {name} is left out: {why}")

    async def _served(self) -> dict[KindRead, ServedKind]:
        """Return the place of each kind. Raises ApiError if it cannot be found out."""
        try:
            places = await discover(self.transport, (kind.spec for kind in KINDS_READ))
        except DiscoveryFailed as why:
            raise ApiError(f"API discovery failed: {why}") from why
        served = {}
        for kind in KINDS_READ:
            place = places[kind.spec.name]
            if place is not None:
                served[kind] = place
            elif not kind.is_optional:
                versions = ", ".join(kind.spec.group_versions)
                self.notes.append(f"the server does not serve {kind.spec.name} ({versions}): {kind.without}")
        return served

    async def _one_kind(self, kind: KindRead, served: ServedKind) -> list[Manifest]:
        self.progress(self._kinds, self._total, self._objects)
        own = self.options.namespaces if kind.spec.namespaced else ()
        if kind.is_own and own:
            found = await self._of_namespaces(kind, served, own)
        else:
            try:
                found = await self._whole_list(kind, served, served.path)
            except Forbidden as why:
                self.gaps.append(Gap(kind, user=_user_of(why)))
                is_partial = self.options.allows_partial or kind.is_group
                found = await self._of_namespaces(kind, served, own) if is_partial else []
        self._kinds += 1
        self.progress(self._kinds, self._total, self._objects)
        return sorted(found, key=lambda each: (each["metadata"].get("namespace", ""), each["metadata"]["name"]))

    async def _of_namespaces(self, kind: KindRead, served: ServedKind, namespaces: Iterable[str]) -> list[Manifest]:
        """Return the objects of these namespaces; each missing permission is a gap."""
        found = []
        root, _, plural = served.path.rpartition("/")
        for namespace in dict.fromkeys(namespaces):
            try:
                found += await self._whole_list(kind, served, f"{root}/namespaces/{namespace}/{plural}")
            except Forbidden as why:
                self.gaps.append(Gap(kind, namespace, _user_of(why)))
        return found

    async def _whole_list(self, kind: KindRead, served: ServedKind, path: str) -> list[Manifest]:
        """Read page by page. If a continue token expires, one list without pages replaces the pages."""
        query = {"limit": str(_PAGE)}
        found: list[Manifest] = []
        while True:
            try:
                page = page_of(await self._page(path, query))
            except Gone:
                if "continue" not in query:
                    raise
                query, found = {}, []
                continue
            found += [_typed(raw, kind, served) for raw in page.items or ()]
            self._objects += len(page.items or ())
            self.progress(self._kinds, self._total, self._objects)
            if not page.metadata.continue_:
                return found
            query = {"limit": str(_PAGE), "continue": page.metadata.continue_}

    async def _page(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return a page. Busy servers and lost connections are retried a few times."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return await self.transport.list(path, query)
            except Unavailable as why:
                asked_s = why.retry_after_s if isinstance(why, TooManyRequests) else None
                await self.clock.sleep(attempt * _RETRY_S if asked_s is None else asked_s)
        return await self.transport.list(path, query)

    def _is_wanted(self, each: Manifest) -> bool:
        """Return whether the object is simulated: all but pending pods of other namespaces."""
        namespaces = self.options.namespaces
        if each["kind"] != "Pod" or not namespaces or (each.get("spec") or {}).get("nodeName"):
            return True
        return each["metadata"].get("namespace") in namespaces


def _typed(raw: msgspec.Raw, kind: KindRead, served: ServedKind) -> Manifest:
    """Add apiVersion and kind, which items of a list do not have."""
    try:
        value = api_json.decode(_ANY, raw)
        metadata = dict(value["metadata"])
        _ = metadata["name"] + metadata.get("namespace", "")
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise ApiError(f"unreadable list of {kind.resource}: {error!r}") from error
    metadata.pop("managedFields", None)
    group_version = f"{kind.spec.group}/{served.version}" if kind.spec.group else served.version
    return {**value, "apiVersion": group_version, "kind": kind.spec.name.partition(".")[0], "metadata": metadata}


def _key(found: Found) -> tuple[str, str, str]:
    return found.kind, found.namespace, found.name


def _applied(old: Found | None, new: Found) -> Found:
    if old is None:
        return new
    metadata, before = dict(new.value["metadata"]), old.value["metadata"]
    annotations = {**(before.get("annotations") or {}), **(metadata.get("annotations") or {})}
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    if before.get("ownerReferences") and not metadata.get("ownerReferences"):
        metadata["ownerReferences"] = before["ownerReferences"]
    value = {**new.value, "metadata": metadata}
    if old.value.get("status") and not value.get("status"):
        value["status"] = old.value["status"]
    field_name = _WRITTEN_LATER.get(new.kind, "")
    if (kept := (old.value.get("spec") or {}).get(field_name)) and isinstance(value.get("spec"), dict):
        value["spec"] = {field_name: kept, **value["spec"]}
    former = {**value, "metadata": {**old.former["metadata"], **metadata}}  # the object keeps its uid and its age
    return Found(value, new.where, former)


def _user_of(why: Forbidden) -> str:
    found = _USER.search(why.message)
    return found[1] if found else ""


def lacking(gaps: Sequence[Gap]) -> str:
    """Return all missing permissions with their effects, and the commands that grant them."""
    resources = ",".join(dict.fromkeys(gap.kind.resource for gap in gaps))
    lines = ["the user lacks permissions, and without them the answer is wrong:"]
    lines += [f"  {gap}" for gap in gaps]
    lines += ["Grant them:", f"  kubectl create clusterrole {_ROLE} --verb=list --resource={resources}"]
    subject = _subject(next((gap.user for gap in gaps if gap.user), ""))
    if any(not gap.namespace for gap in gaps):
        lines.append(f"  kubectl create clusterrolebinding {_ROLE} --clusterrole={_ROLE} {subject}")
    else:
        spaces = dict.fromkeys(gap.namespace for gap in gaps)
        lines += [
            f"  kubectl create rolebinding {_ROLE} --clusterrole={_ROLE} {subject} --namespace={space}"
            for space in spaces
        ]
    return "\n".join(lines)


def _subject(user: str) -> str:
    account = user.removeprefix("system:serviceaccount:")
    return f"--serviceaccount={account}" if account != user else f"--user={user or 'NAME'}"
