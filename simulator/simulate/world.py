"""The simulated cluster: the objects of the input on an in-process API server, as their cluster had them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Key
from simulator.simulate.input.admission import MissingClass
from simulator.simulate.input.complete import MOST_SHOWN, Completed, retie, retie_claims, time_of
from simulator.simulate.input.manifests import Found, InputError, Manifest
from simulator.workloads.controllers import RESOURCES
from simulator.workloads.pods import controller_of

DEFAULT_SCHEDULER: Final = "default-scheduler"
_NEVER: Final = ("Event", "Lease")
"""Kinds of a dump without a meaning here."""
_ORDER: Final = ("Namespace", "PriorityClass", "StorageClass", "Node", "CronJob", *RESOURCES)
"""Kinds that are created first: owners come before the objects that they own."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the input is read.

    Pods without a scheduler name, or with the default one, get the first of `scheduler_names`.
    """

    scheduler_names: tuple[str, ...]
    keeps_scheduler_names: bool = False
    expect_pending: tuple[str, ...] = ()
    timeout_s: float = 120.0


class World:
    """The simulated cluster, filled from manifests. Raises InputError for objects that the API server refuses."""

    def __init__(self, server: ApiServer, cluster: Completed, rules: ReadOptions) -> None:
        self._server = server
        self._rules = rules
        self._admit = cluster.admit
        self.missing = cluster.missing
        self._served = dict.fromkeys(_NEVER, False)
        self._owners: dict[tuple[str, str, str], tuple[str, str]] = {}
        """Kind, namespace and name of each object → its uid here, and its uid in the input."""
        self._stated: set[str] = set()
        """Uids of the input. A uid that a second object repeats was copied by hand, and counts for the first one."""
        self.former: dict[str, Manifest] = {}
        self.has_nodes = any(each.kind == "Node" for each in cluster.objects)
        self.positions: dict[tuple[str, str, str], int] = {}
        """Kind, namespace and name of each object → its position in the input."""
        self.left_out: Counter[str] = Counter()
        """Objects by kind that scheduling does not use."""
        for at, each in enumerate(cluster.objects):
            self.positions[each.kind, each.namespace, each.name] = at
        pods = [each for each in cluster.objects if each.kind == "Pod"]
        self.bound_before = sum(1 for each in pods if each.value["spec"].get("nodeName"))
        self._fill(cluster.objects)
        retie(server, self._stated)
        retie_claims(server, {(each.namespace, each.name) for each in cluster.left_out}, self._stated)
        for each in cluster.objects:  # last, because a namespace that ends takes no more objects
            self._terminate(each)
        self.given = {
            f"{each.namespace}/{each.name}"
            for each in cluster.objects
            if each.kind == "PodDisruptionBudget" and each.value.get("status")
        }
        """Budgets with a status, by namespace/name."""
        self.finished: dict[Key, list[Manifest]] = defaultdict(list)
        self.leaving: Counter[tuple[str, str, str]] = Counter()
        """Ignored pods, by kind, namespace and name of their controller."""
        self.existing: Counter[tuple[str, str, str]] = Counter()
        """Existing pods, by kind, namespace and name of their controller."""
        for each in pods:
            if (owner := controller_of(each.value)) is not None:
                self.existing[owner["kind"], each.namespace, owner["name"]] += 1
        for each in cluster.left_out:
            owner = controller_of(each.former)
            if owner is not None:
                self.leaving[owner["kind"], each.namespace, owner["name"]] += 1
                if owner["kind"] == "Job":
                    self.finished["jobs", each.namespace, owner["name"]].append(each.former)

    def is_ours(self, pod: Manifest) -> bool:
        """Return whether the simulated scheduler should place the pod."""
        return not pod["spec"].get("nodeName") and pod["spec"].get("schedulerName") in self._rules.scheduler_names

    def missing_of(self, pod: Manifest) -> str:
        """Return the missing objects of resource.k8s.io that a pod waits for; "" if none."""
        namespace = pod["metadata"]["namespace"]
        named = {
            (kind, f"{namespace}/{entry[field]}")
            for entry in pod["spec"].get("resourceClaims") or ()
            for field, kind in (
                ("resourceClaimName", "ResourceClaim"),
                ("resourceClaimTemplateName", "ResourceClaimTemplate"),
            )
            if entry.get(field)
        }
        missing = [f"{each.kind} {each.name}" for each in self.missing if (each.kind, each.name) in named]
        return f"{', '.join(missing)}, which the input does not have" if missing else ""

    @property
    def expect_pending(self) -> tuple[str, ...]:
        """Return globs over `namespace/name` of pods that may stay pending."""
        return self._rules.expect_pending

    def admit(self, pod: Manifest) -> Manifest:
        """Return a pod that a controller creates, after admission. Raises InputError, and Refused as an API server does."""
        metadata = pod["metadata"]
        where = f"Pod {metadata['namespace']}/{metadata['name']}, made by its controller"
        try:
            admitted = self._admit(Found(pod, where))
        except MissingClass as missing:
            raise Refused(403, "Forbidden", missing.refusal, details={}) from missing
        return self._named(admitted.value)

    def _named(self, pod: Manifest) -> Manifest:
        """Return the pod with our scheduler's name instead of the default one."""
        spec, rules = dict(pod["spec"]), self._rules
        name = spec.get("schedulerName") or DEFAULT_SCHEDULER
        if name == DEFAULT_SCHEDULER and name not in rules.scheduler_names and not rules.keeps_scheduler_names:
            spec["schedulerName"] = rules.scheduler_names[0]
        return {**pod, "spec": spec}

    def _fill(self, objects: Sequence[Found]) -> None:
        """Create all objects: owners first, then other objects, bound pods and pending pods. Raises all mistakes at once."""
        rank = {kind: at for at, kind in enumerate(_ORDER)}
        mistakes: list[str] = []

        def order(each: Found) -> tuple[bool, int, bool]:
            is_pod = each.kind == "Pod"
            return is_pod, rank.get(each.kind, len(rank)), is_pod and not each.value["spec"].get("nodeName")

        for each in sorted(objects, key=order):
            try:
                self._create(each, self._named(each.value) if each.kind == "Pod" else each.value)
            except InputError as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            more = [f"and {len(mistakes) - MOST_SHOWN} more"] if len(mistakes) > MOST_SHOWN else []
            raise InputError("\n".join([*mistakes[:MOST_SHOWN], *more]))

    def _create(self, found: Found, value: Manifest) -> None:
        if found.kind == "ConfigMap" or not self._serves(
            found.kind
        ):  # served only for the authority of client certificates
            self.left_out[found.kind] += 1
            return
        value = self._owned(found, self._aged(found, value))
        try:
            if found.namespace:
                self._server.ensure_namespace(found.namespace)
            created = self._server.load(value)
        except Refused as refused:
            raise InputError(f"{found.where}: {refused.message}") from refused
        uid = created["metadata"]["uid"]
        former_uid = _uid(found)
        self._owners[found.kind, found.namespace, found.name] = uid, former_uid
        if former_uid:
            self.former[uid] = found.former

    def _aged(self, found: Found, value: Manifest) -> Manifest:
        """Return the object with uid, creation time and generation of its cluster. Raises InputError."""
        former, metadata = found.former.get("metadata") or {}, dict(value["metadata"])
        metadata.pop("deletionTimestamp", None)
        metadata.pop("deletionGracePeriodSeconds", None)
        if (uid := _uid(found)) and uid not in self._stated:
            self._stated.add(uid)
            metadata["uid"] = uid
        if created := former.get("creationTimestamp"):
            metadata["creationTimestamp"] = time_of(found, "metadata.creationTimestamp", created)
        if isinstance(generation := former.get("generation"), int):
            metadata["generation"] = generation
        return {**value, "metadata": metadata}

    def _terminate(self, found: Found) -> None:
        metadata = found.former.get("metadata") or {}
        is_loaded = (found.kind, found.namespace, found.name) in self._owners
        if found.kind == "Pod":
            return  # a manifest of the user replaced the pod that ends; other pods that end are not loaded
        if not metadata.get("deletionTimestamp") or not is_loaded:
            return
        deletion: Manifest = {
            "deletionTimestamp": time_of(found, "metadata.deletionTimestamp", metadata["deletionTimestamp"])
        }
        if isinstance(grace := metadata.get("deletionGracePeriodSeconds"), int):
            deletion["deletionGracePeriodSeconds"] = grace
        self._server.terminate(found.kind, found.name, found.namespace, deletion)

    def _owned(self, found: Found, value: Manifest) -> Manifest:
        """Return the object with owner references to the loaded objects, unless the owner was another object."""
        references = []
        for each in value["metadata"].get("ownerReferences") or ():
            uid, former = self._owners.get((each.get("kind"), found.namespace, each.get("name")), ("", ""))
            is_same = uid and (not each.get("uid") or not former or each["uid"] == former)
            references.append({**each, "uid": uid} if is_same else each)
        if not references:
            return value
        return {**value, "metadata": {**value["metadata"], "ownerReferences": references}}

    def _serves(self, kind: str) -> bool:
        if kind not in self._served:
            try:
                self._server.objects(kind)
            except KeyError:
                self._served[kind] = False
            else:
                self._served[kind] = True
        return self._served[kind]


def _uid(found: Found) -> str:
    """Return the uid in the input; "" if there is none."""
    uid = (found.former.get("metadata") or {}).get("uid")
    return uid if isinstance(uid, str) else ""
