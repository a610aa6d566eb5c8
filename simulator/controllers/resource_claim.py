"""Actor: the resource-claim controller.

What the claim controller keeps in mind: which pods name a claim or a template, and which claims a pod owns.

Actor: the resource-claim controller. It makes claims from templates, and takes back what pods no longer use.

As pkg/controller/resourceclaim of Kubernetes 1.36, seen from the API, without its pod groups: docs/spec/dra.md §2. The
garbage collector's part is here too: a claim whose owner is gone is deleted. It makes and reserves nothing for pods that
have ended, as the real one from 1.38 on; before, the real one did, only to take it back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.resource_v1 import FINALIZER, ResourceClaim
from scheduler.core.clock import Clock
from scheduler.manifests.pods import POD_ENTRY, device_claim
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Actor, Key, Object, annotations_of, is_deleting, is_finished, key_of, read

PODS: Final = "pods"
CLAIMS: Final = "resourceclaims"
TEMPLATES: Final = "resourceclaimtemplates"


class Users:
    """Called for every write, in order."""

    def __init__(self) -> None:
        self._named: dict[Key, frozenset[Key]] = {}
        """Pod → claims and templates."""
        self._naming: dict[Key, set[Key]] = defaultdict(set)
        self._owners: dict[Key, frozenset[str]] = {}
        """Claim → uids of pods."""
        self._owning: dict[str, set[Key]] = defaultdict(set)

    def pod_written(self, type_: str, pod: Object) -> frozenset[Key]:
        """Record that a pod was added, changed or deleted. Returns the claims that it names."""
        key, claims = key_of(PODS, pod), frozenset(_claims(pod))
        now = frozenset() if type_ == "DELETED" else claims | frozenset(_templates(pod))
        before = self._named.pop(key, frozenset())
        for each in before - now:
            self._naming[each].discard(key)
        for each in now - before:
            self._naming[each].add(key)
        if now:
            self._named[key] = now
        return claims

    def claim_written(self, type_: str, claim: Object) -> None:
        """Record that a claim was added, changed or deleted."""
        key = key_of(CLAIMS, claim)
        owners = claim["metadata"].get("ownerReferences") or ()
        now = frozenset() if type_ == "DELETED" else frozenset(each["uid"] for each in owners if each["kind"] == "Pod")
        before = self._owners.pop(key, frozenset())
        for uid in before - now:
            self._owning[uid].discard(key)
        for uid in now - before:
            self._owning[uid].add(key)
        if now:
            self._owners[key] = now

    def of(self, claim_or_template: Key) -> tuple[Key, ...]:
        """Return the pods that name it."""
        return tuple(sorted(self._naming.get(claim_or_template, ())))

    def owned(self, pod_uid: str) -> tuple[Key, ...]:
        return tuple(sorted(self._owning.get(pod_uid, ())))


def name_of(pod: Object, entry: Object) -> str | None:
    """Return the claim of an entry: "" if it is not made yet, None if none is needed (docs/spec/dra.md §2.1)."""
    if entry.get("resourceClaimName"):
        return str(entry["resourceClaimName"])
    for told in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if told["name"] == entry["name"]:
            name: str | None = told.get("resourceClaimName")
            return name
    return ""


def is_controlled_by(claim: Object, pod: Object) -> bool:
    """Made for this very pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == pod["metadata"]["uid"] for each in owners)


def is_done(pod: Object) -> bool:
    """None of its containers runs, or ever will."""
    return is_finished(pod) or (is_deleting(pod) and not pod["spec"].get("nodeName"))


def extended_claim(pod: Object) -> str:
    """Return the claim behind its extended resources; "" if it has none."""
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return str(told.get("resourceClaimName", ""))


def _claims(pod: Object) -> Iterator[Key]:
    namespace = pod["metadata"]["namespace"]
    for entry in pod["spec"].get("resourceClaims") or ():
        name = name_of(pod, entry)
        if name:
            yield CLAIMS, namespace, name
    if extended_claim(pod):
        yield CLAIMS, namespace, extended_claim(pod)


def _templates(pod: Object) -> Iterator[Key]:
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimTemplateName"):
            yield TEMPLATES, pod["metadata"]["namespace"], entry["resourceClaimTemplateName"]


_FAILED: Final = "FailedResourceClaimCreation"
_PREFIX_MAX: Final = 57


class ResourceClaimController(Actor):
    """Looks at a pod `delay_s` after it or its claims changed, and at a claim `releases_after_s` after.

    Upstream: pkg/controller/resourceclaim/controller.go Controller
    """

    component = "resource_claim"
    resources = (TEMPLATES, CLAIMS, PODS)

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        releases_after_s: float = 0,
    ) -> None:
        self.created = 0
        self.deallocated = 0
        self._delay_s = delay_s
        self._releases_after_s = releases_after_s
        self._users = Users()
        super().__init__(server, clock=clock)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        match resource:
            case "pods" if (type_ == "DELETED" or _has_claims(obj)) and read(Pod, obj) is not None:
                self._heard_pod(type_, obj)
            case "resourceclaims" if read(ResourceClaim, obj) is not None:
                self._users.claim_written(type_, obj)
                if type_ != "DELETED":
                    self._note_claim(key_of(CLAIMS, obj))
                self._note_users(key_of(CLAIMS, obj))
            case "resourceclaimtemplates" if type_ != "DELETED":
                self._note_users(key_of(TEMPLATES, obj))

    def _heard_pod(self, type_: str, pod: Object) -> None:
        key = key_of(PODS, pod)
        claims = self._users.pod_written(type_, pod)
        if type_ == "DELETED" or is_done(pod):
            for each in {*claims, *self._users.owned(pod["metadata"]["uid"])}:
                self._note_claim(each)
        if type_ != "DELETED" and pod["spec"].get("resourceClaims"):
            self._note_pod(key)

    def _note_users(self, key: Key) -> None:
        for each in self._users.of(key):
            self._note_pod(each)

    def _note_pod(self, key: Key) -> None:
        self._note(key, self._delay_s)

    def _note_claim(self, key: Key) -> None:
        self._note(key, self._releases_after_s)

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        obj = self._server.find(resource, name, namespace)
        if obj is None:
            return
        if resource == CLAIMS:
            self._sync_claim(obj)
        elif not obj["metadata"].get("deletionTimestamp") and not is_done(obj):
            self._sync_pod(obj)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _sync_pod(self, pod: Object) -> None:
        """Claims for all entries, then their names into the status; a failure keeps the names for the next time."""
        made: list[Object] = []
        for entry in pod["spec"].get("resourceClaims") or ():
            name = self._made_for(pod, entry)
            if name is None:
                return
            if name:
                made.append({"name": entry["name"], "resourceClaimName": name})
        if made:
            pod = self._with_names(pod, made)
        if pod["spec"].get("nodeName"):
            self._reserve_all(pod)

    def _with_names(self, pod: Object, made: list[Object]) -> Object:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"resourceClaimStatuses": made}}
        namespace = metadata["namespace"]
        return self._server.patch(PODS, metadata["name"], patch, namespace=namespace, subresource="status")

    def _made_for(self, pod: Object, entry: Object) -> str | None:
        """Return the name of the claim for the pod's status. "" if the entry needs none, None without a template."""
        template = entry.get("resourceClaimTemplateName")
        if not template:
            return ""
        name = name_of(pod, entry)
        if name is None:
            return ""
        namespace = pod["metadata"]["namespace"]
        if name:
            found = self._server.find(CLAIMS, name, namespace)
            if found is not None and is_controlled_by(found, pod):
                return ""
        orphan = self._orphan(pod, entry["name"])
        if orphan:
            return orphan
        stored = self._server.find(TEMPLATES, template, namespace)
        if stored is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{template}" not found'
            self._record_failed(pod, entry["name"], f'resource claim template "{template}": {missing}')
            return None
        return self._create(pod, entry["name"], stored)

    def _orphan(self, pod: Object, entry: str) -> str:
        """Return the claim that was made for this entry before, and not written into the status."""
        for _, namespace, name in self._users.owned(pod["metadata"]["uid"]):
            claim = self._server.find(CLAIMS, name, namespace)
            if claim is not None and is_controlled_by(claim, pod) and annotations_of(claim).get(POD_ENTRY) == entry:
                return name
        return ""

    def _create(self, pod: Object, entry: str, template: Object) -> str:
        claim = device_claim(pod, entry, template["spec"])
        del claim["metadata"]["name"]
        claim["metadata"] |= {"generateName": _prefix(pod["metadata"]["name"], entry)}
        try:
            created = self._server.create(CLAIMS, claim)
        except Refused as refusal:
            self._record_failed(pod, entry, f"create ResourceClaim : {refusal.message}")
            raise
        self.created += 1
        name: str = created["metadata"]["name"]
        return name

    def _record_failed(self, pod: Object, entry: str, why: str) -> None:
        self._record(pod, "Warning", _FAILED, f"PodResourceClaim {entry}: {why}")

    def _reserve_all(self, pod: Object) -> None:
        """For a pod that was bound without a scheduler: its allocated claims are reserved for it."""
        metadata = pod["metadata"]
        user = {"resource": PODS, "name": metadata["name"], "uid": metadata["uid"]}
        for entry in pod["spec"].get("resourceClaims") or ():
            name = name_of(pod, entry)
            claim = self._server.find(CLAIMS, name, metadata["namespace"]) if name else None
            if claim is None:
                continue
            status = claim.get("status") or {}
            users = status.get("reservedFor") or []
            if status.get("allocation") is not None and not any(each["uid"] == metadata["uid"] for each in users):
                claim["status"] = status | {"reservedFor": [*users, user]}
                self._server.update(CLAIMS, claim, subresource="status")

    # -- claims -------------------------------------------------------------------------------------------------------

    def _sync_claim(self, claim: Object) -> None:
        metadata, users = claim["metadata"], (claim.get("status") or {}).get("reservedFor") or []
        remaining = [each for each in users if self._is_used_by(metadata["namespace"], each)]
        if len(remaining) < len(users):
            claim = self._released(claim, remaining)
        elif not remaining and metadata.get("deletionTimestamp") and FINALIZER in _finalizers(claim):
            self._let_go(self._without_allocation(claim))
        if self._is_unwanted(claim, is_reserved=bool(remaining)):
            found = self._server.find(CLAIMS, metadata["name"], metadata["namespace"])
            if found is not None and not found["metadata"].get("deletionTimestamp"):
                self._server.delete(CLAIMS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _is_used_by(self, namespace: str, user: Object) -> bool:
        """Return whether the user still exists. Users that are not pods are kept."""
        if user.get("apiGroup") or user["resource"] != PODS:
            return True
        pod = self._server.find(PODS, user["name"], namespace)
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not is_done(pod)

    def _released(self, claim: Object, remaining: list[Object]) -> Object:
        """Without those users; with the last of them go the allocation and then the finalizer."""
        status = {key: value for key, value in claim["status"].items() if key != "reservedFor"}
        if remaining:
            status["reservedFor"] = remaining
        elif FINALIZER in _finalizers(claim) and status.pop("allocation", None) is not None:
            self.deallocated += 1
        claim = self._server.update(CLAIMS, claim | {"status": status}, subresource="status")
        is_free = claim.get("status", {}).get("allocation") is None
        return self._let_go(claim) if is_free and FINALIZER in _finalizers(claim) else claim

    def _without_allocation(self, claim: Object) -> Object:
        status = claim.get("status") or {}
        if status.get("allocation") is None:
            return claim
        self.deallocated += 1
        kept = {key: value for key, value in status.items() if key != "allocation"}
        return self._server.update(CLAIMS, claim | {"status": kept}, subresource="status")

    def _let_go(self, claim: Object) -> Object:
        kept = [each for each in _finalizers(claim) if each != FINALIZER]
        return self._server.update(CLAIMS, claim | {"metadata": claim["metadata"] | {"finalizers": kept}})

    def _is_unwanted(self, claim: Object, *, is_reserved: bool) -> bool:
        """Return whether the claim has no owner left, or a pod that will not run and has not reserved it."""
        owners = claim["metadata"].get("ownerReferences") or []
        pods = {each["uid"]: self._server.find(PODS, each["name"], claim["metadata"]["namespace"]) for each in owners}
        if not owners or any(each["kind"] != "Pod" for each in owners):
            return False
        if all(pod is None or pod["metadata"]["uid"] != uid for uid, pod in pods.items()):
            return True
        maker = next((pods[each["uid"]] for each in owners if each.get("controller")), None)
        return not is_reserved and maker is not None and is_done(maker)


def _prefix(pod: str, entry: str) -> str:
    """`<pod>-<entry>-`; of one that is too long, as much of either as it is long."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _PREFIX_MAX:
        return whole
    return f"{pod[: len(pod) * _PREFIX_MAX // len(whole)]}-{entry[: len(entry) * _PREFIX_MAX // len(whole)]}"


def _has_claims(pod: Object) -> bool:
    return bool(pod["spec"].get("resourceClaims") or extended_claim(pod))


def _finalizers(obj: Object) -> list[str]:
    return obj["metadata"].get("finalizers") or []
