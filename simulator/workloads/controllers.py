"""Actor: the workload controllers of kube-controller-manager on one in-process API server.

One actor serves all kinds, because they share the index of pods by owner. Deployments, ReplicaSets, StatefulSets,
DaemonSets and Jobs get the pods that their controllers would create, and lose those that they would delete.
`minReadySeconds`, back-off and the start times of CronJobs are not waited for.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector
from scheduler.core.clock import Clock
from scheduler.manifests.pods import reference_to
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Actor, Key, is_deleting, key_of
from simulator.workloads import replica_set, stateful_set
from simulator.workloads.daemon_set import DaemonPods
from simulator.workloads.deployment import OwnedReplicaSet, Rollout, RolloutPlan, template_hash
from simulator.workloads.job import JobSync
from simulator.workloads.pods import (
    REVISION,
    Object,
    Plan,
    controller_of,
    is_active,
    is_ready,
    labels_of,
    oldest_first,
)
from simulator.workloads.specs import (
    ControllerRevision,
    CronJobObject,
    DaemonSetObject,
    DeploymentObject,
    JobObject,
    ReplicaSetObject,
    ReplicationControllerObject,
    StatefulSetObject,
)
from simulator.workloads.stateful_set import Revisions
from simulator.workloads.templates import is_same_template

TYPES: Final[Mapping[str, type]] = {
    "deployments": DeploymentObject,
    "replicasets": ReplicaSetObject,
    "replicationcontrollers": ReplicationControllerObject,
    "statefulsets": StatefulSetObject,
    "daemonsets": DaemonSetObject,
    "jobs": JobObject,
    "cronjobs": CronJobObject,
}
"""Resources of workloads, and how their objects are decoded."""
RESOURCES: Final = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "ReplicationController": "replicationcontrollers",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
}
"""Kinds of workloads, and their resources."""
_NAMESPACE: Final = "namespaces"
Prepare: TypeAlias = Callable[[Object], Object]


@dataclass(slots=True)
class WorkloadTally:
    """What became of one workload."""

    created: int = 0
    adopted: int = 0
    reason: str = ""
    refused: str = ""
    """Why the API server refused the last pod that it was to create."""
    deleted: list[str] = field(default_factory=list)
    """Names of the pods that were deleted, in this order."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What a dump says about objects that the server has under other uids, or not at all."""

    former: Mapping[str, Object] = field(default_factory=dict)
    """Objects as the dump has them, by the uid that they have on the server."""
    finished: Mapping[Key, Sequence[Object]] = field(default_factory=dict)
    """Pods that have succeeded or failed, by the Job that they belong to."""

    def before(self, obj: Object) -> Object:
        """Return the object as the dump has it, or the object itself if it was made since."""
        return self.former.get(obj["metadata"]["uid"], obj)


class OwnedPods:
    """The pods of one server by the uid of their controller, and those without a controller by namespace and labels."""

    def __init__(self) -> None:
        self._owned: dict[str, dict[str, Object]] = defaultdict(dict)
        self._orphans: dict[str, dict[frozenset[tuple[str, str]], dict[str, Object]]] = defaultdict(dict)
        self._where: dict[str, tuple[str, frozenset[tuple[str, str]], bool, bool]] = {}

    def put(self, type_: str, pod: Object) -> tuple[bool, bool]:
        """Take over a written pod. Return whether its owner, labels or activity changed, and whether its readiness did."""
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        owner = controller_of(pod)
        labels = frozenset(labels_of(pod).items())
        now = (owner["uid"] if owner else "", labels, is_active(pod), is_ready(pod))
        before = self._where.pop(uid, None)
        if before is not None:
            self._bucket(namespace, before[0], before[1]).pop(uid, None)
        if type_ == "DELETED":
            return True, True
        self._where[uid] = now
        self._bucket(namespace, now[0], labels)[uid] = pod
        return before is None or before[:3] != now[:3], before is None or before[3] != now[3]

    def _bucket(self, namespace: str, owner: str, labels: frozenset[tuple[str, str]]) -> dict[str, Object]:
        return self._owned[owner] if owner else self._orphans[namespace].setdefault(labels, {})

    def of(self, owner_uid: str) -> list[Object]:
        """Return the pods of a controller that are not being deleted."""
        return [pod for pod in self._owned.get(owner_uid, {}).values() if not is_deleting(pod)]

    def orphans(self, namespace: str, selector: LabelSelector) -> list[Object]:
        """Return the active pods without a controller that the selector matches. Cost: one match per set of labels."""
        groups = [pods for labels, pods in self._orphans[namespace].items() if pods and selector.matches(dict(labels))]
        return [pod for pods in groups for pod in pods.values() if is_active(pod)]


class WorkloadControllers(Actor):
    """Follows one server. `prepare` is the admission of a new pod; it may raise what the caller wants to see."""

    component = "workloads"
    resources = ("nodes", "controllerrevisions", *TYPES, "pods")

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock | None = None,
        dump: Dump | None = None,
        prepare: Prepare = lambda pod: pod,
    ) -> None:
        self._dump = dump or Dump()
        self._prepare = prepare
        self._pods = OwnedPods()
        self._needs_readiness: set[str] = set()
        """Uids of workloads that are synced when a pod becomes ready or unready."""
        self._rolling: set[str] = set()
        """Uids of the ReplicaSets of Deployments whose rollout is not complete."""
        self._revisions: dict[str, list[Object]] = defaultdict(list)
        self._used: Counter[str] = Counter()
        self.tallies: dict[Key, WorkloadTally] = defaultdict(WorkloadTally)
        """By the key of the workload that creates the pods; those of a Deployment are under its ReplicaSets."""
        super().__init__(server, clock=clock)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        match resource:
            case "pods":
                self._heard_pod(type_, obj)
            case "nodes":
                self._note_all("daemonsets")
            case "controllerrevisions" if type_ == "ADDED" and (owner := controller_of(obj)):
                self._revisions[owner["uid"]].append(obj)
            case _ if resource in TYPES and type_ != "DELETED":
                self._note(key_of(resource, obj))
                self._note_owner(obj)

    def _heard_pod(self, type_: str, pod: Object) -> None:
        is_other, is_ready_other = self._pods.put(type_, pod)
        owner = controller_of(pod)
        if owner is None:
            if is_other:
                self._note((_NAMESPACE, "", pod["metadata"]["namespace"]))
        elif is_other or (is_ready_other and self._waits_for_readiness(owner["uid"])):
            self._note_owner(pod)

    def _waits_for_readiness(self, uid: str) -> bool:
        return uid in self._needs_readiness or uid in self._rolling

    def _note_owner(self, obj: Object) -> None:
        owner = controller_of(obj)
        resource = RESOURCES.get(owner["kind"]) if owner else None
        if owner is None or resource is None:
            return
        key = (resource, obj["metadata"]["namespace"], owner["name"])
        self._note(key)
        if resource == "replicasets" and owner["uid"] in self._rolling:
            replica_set = self._server.find(*_args(key))
            if replica_set is not None:
                self._note_owner(replica_set)

    def _note_all(self, *resources: str, namespace: str = "") -> None:
        for resource in resources:
            for obj in self._server.objects(resource):
                if namespace in {"", obj["metadata"]["namespace"]}:
                    self._note(key_of(resource, obj))

    # -- syncs --------------------------------------------------------------------------------------------------------

    def _handle(self, key: Key) -> None:
        if key[0] == _NAMESPACE:
            self._note_all(*(each for each in TYPES if each != "cronjobs"), namespace=key[2])
            return
        obj = self._server.find(*_args(key))
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        if key[0] == "deployments":
            self._sync_deployment(key, obj)
        elif key[0] == "cronjobs":
            self.tallies[key].reason = _cron_reason(from_manifest(CronJobObject, obj))
        else:
            self._apply(key, obj, self._plan(key, obj))

    def _plan(self, key: Key, obj: Object) -> Plan:
        now_s = self._clock.wall()
        spec: object = from_manifest(TYPES[key[0]], obj)
        self._adopt(key, obj, spec)
        pods = self._pods.of(obj["metadata"]["uid"])
        match spec:
            case ReplicaSetObject() | ReplicationControllerObject():
                related = self._related(obj)
                return replica_set.plan(spec, obj, pods, related=related, before=self._dump.before, now_s=now_s)
            case StatefulSetObject():
                return stateful_set.plan(spec, obj, pods, self._revisions_of(obj, spec))
            case DaemonSetObject():
                revisions = self._revisions_of(obj, spec)
                sync = DaemonPods(spec, obj, pods, revisions=revisions, before=self._dump.before)
                return sync.plan([from_manifest(Node, node) for node in self._server.objects("nodes")])
            case JobObject():
                job = JobSync(spec, obj, pods, self._dump.finished.get(key, ()))
                return job.plan(self._dump.before)
        raise AssertionError(key)

    def _related(self, replica_set: Object) -> list[Object]:
        owner = controller_of(replica_set)
        if owner is None:
            return self._pods.of(replica_set["metadata"]["uid"])
        return [
            pod for each in self._owned_replica_sets(owner["uid"]) for pod in self._pods.of(each["metadata"]["uid"])
        ]

    def _adopt(self, key: Key, obj: Object, spec: object) -> None:
        """Take over pods without a controller that the selector matches, and let go those that it does not match.

        Upstream: pkg/controller/controller_ref_manager.go ClaimPods
        """
        selector = _selector(spec)
        if selector is None:
            return
        for pod in self._pods.of(obj["metadata"]["uid"]):
            if not selector.matches(labels_of(pod)):
                self._own(pod, [each for each in pod["metadata"]["ownerReferences"] if not each.get("controller")])
                self.tallies[key].adopted -= 1
        for pod in self._pods.orphans(obj["metadata"]["namespace"], selector):
            self._own(pod, [*(pod["metadata"].get("ownerReferences") or ()), reference_to(obj)])
            self.tallies[key].adopted += 1

    def _own(self, obj: Object, references: list[Object]) -> None:
        self._server.update(obj["kind"], obj | {"metadata": obj["metadata"] | {"ownerReferences": references}})

    def _apply(self, key: Key, owner: Object, plan: Plan) -> None:
        uid, tally = owner["metadata"]["uid"], self.tallies[key]
        (self._needs_readiness.add if plan.needs_readiness else self._needs_readiness.discard)(uid)
        tally.reason = plan.reason
        for pod in plan.delete:
            self._delete("pods", pod)
            tally.deleted.append(pod["metadata"]["name"])
        for name in plan.delete_claims:
            with contextlib.suppress(Refused):
                self._server.delete("persistentvolumeclaims", name, owner["metadata"]["namespace"])
        for claim in plan.claims:
            if (
                self._server.find("persistentvolumeclaims", claim["metadata"]["name"], claim["metadata"]["namespace"])
                is None
            ):
                self._server.create("persistentvolumeclaims", claim)
        tally.refused = ""
        for pod in plan.create:
            try:
                self._server.create("pods", self._prepare(self._named(pod)))
            except Refused as refused:
                tally.refused = refused.message
                return
            tally.created += 1

    def _delete(self, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        with contextlib.suppress(Refused):
            self._server.delete(resource, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _named(self, pod: Object) -> Object:
        """With the first free number instead of a random suffix, so that a simulation can be repeated and read."""
        metadata = pod["metadata"]
        prefix = metadata.pop("generateName", "")
        if prefix:
            place = f"{metadata['namespace']}/{prefix}"
            while self._server.find("pods", f"{prefix}{self._used[place]}", metadata["namespace"]) is not None:
                self._used[place] += 1
            metadata["name"] = f"{prefix}{self._used[place]}"
        return pod

    # -- revisions ----------------------------------------------------------------------------------------------------

    def _revisions_of(self, obj: Object, spec: StatefulSetObject | DaemonSetObject) -> Revisions:
        """Without ControllerRevisions in the dump nothing says which template a pod came from: all are up to date."""
        stored = [from_manifest(ControllerRevision, each) for each in self._revisions.get(obj["metadata"]["uid"], ())]
        if not stored:
            return Revisions()
        newest_first = sorted(stored, key=lambda each: -each.revision)
        same = [each for each in newest_first if is_same_template(each.data.spec.template, spec.spec.template)]
        hashes = {each.metadata.name: each.metadata.labels.get(REVISION, each.metadata.name) for each in stored}
        update = hashes[same[0].metadata.name] if same else template_hash(obj)
        current = spec.status.current_revision if isinstance(spec, StatefulSetObject) else ""
        templates = {hashes[each.metadata.name]: each.data.spec.template for each in stored}
        return Revisions(update, hashes.get(current, current), templates)

    # -- Deployments --------------------------------------------------------------------------------------------------

    def _owned_replica_sets(self, uid: str) -> list[Object]:
        owned = [each for each in self._server.objects("replicasets") if (controller_of(each) or {}).get("uid") == uid]
        return oldest_first(owned, self._dump.before)

    def _sync_deployment(self, key: Key, obj: Object) -> None:
        spec = from_manifest(DeploymentObject, obj)
        if spec.spec.selector is not None:
            for free in self._adoptable(obj, spec.spec.selector):
                self._own(free, [*(free["metadata"].get("ownerReferences") or ()), reference_to(obj)])
        owned = [self._owned(each) for each in self._owned_replica_sets(obj["metadata"]["uid"])]
        plan = Rollout(spec, obj, owned).plan(self._free_name(obj))
        is_rolling = plan.create is not None or bool(plan.reason) or bool(plan.scale)
        for each in owned:
            uid = each.obj["metadata"]["uid"]
            (self._rolling.add if is_rolling else self._rolling.discard)(uid)
        tally = self.tallies[key]
        tally.reason, tally.refused = plan.reason, ""
        try:
            self._apply_rollout(plan, owned)
        except Refused as refused:
            tally.refused = refused.message

    def _owned(self, obj: Object) -> OwnedReplicaSet:
        active = [pod for pod in self._pods.of(obj["metadata"]["uid"]) if is_active(pod)]
        ready = sum(1 for pod in active if is_ready(pod))
        return OwnedReplicaSet(obj, from_manifest(ReplicaSetObject, obj), ready, len(active))

    def _adoptable(self, deployment: Object, selector: LabelSelector) -> Iterator[Object]:
        namespace = deployment["metadata"]["namespace"]
        for each in list(self._server.objects("replicasets")):
            is_free = each["metadata"]["namespace"] == namespace and controller_of(each) is None
            if is_free and selector.matches(labels_of(each)):
                yield each

    def _free_name(self, deployment: Object) -> str:
        """Return the Deployment's own name, which is read most easily; with the hash of the template if it is taken."""
        metadata = deployment["metadata"]
        if self._server.find("replicasets", metadata["name"], metadata["namespace"]) is None:
            return str(metadata["name"])
        return f"{metadata['name']}-{template_hash(deployment)}"

    def _apply_rollout(self, plan: RolloutPlan, owned: Sequence[OwnedReplicaSet]) -> None:
        for each in owned:
            if each.name in plan.scale:
                metadata = each.obj["metadata"]
                annotations = {**(metadata.get("annotations") or {}), **plan.annotations}
                scaled = {**each.obj["spec"], "replicas": plan.scale[each.name]}
                changed = each.obj | {"metadata": metadata | {"annotations": annotations}, "spec": scaled}
                self._server.update("replicasets", changed)
        if plan.create is not None:
            self._server.create("replicasets", plan.create)


def _args(key: Key) -> tuple[str, str, str]:
    return key[0], key[2], key[1]


def _selector(spec: object) -> LabelSelector | None:
    """Return the selector of a workload; None, or one that is empty, selects no pod."""
    selector = getattr(getattr(spec, "spec", None), "selector", None)
    if isinstance(selector, dict):
        selector = LabelSelector(match_labels=selector)
    is_empty = selector is None or selector.is_empty
    return None if is_empty else selector


def _cron_reason(spec: CronJobObject) -> str:
    if spec.spec.suspend:
        return "the CronJob is suspended"
    return f"its Jobs are made when they are due: {spec.spec.schedule}"
