"""What the claim controller keeps in mind: which pods name a claim or a template, and which claims a pod owns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from scheduler.testing.actors.acting import Key, Object, key_of

PODS: Final = "pods"
CLAIMS: Final = "resourceclaims"
TEMPLATES: Final = "resourceclaimtemplates"


class Users:
    """Told of every write, in order."""

    def __init__(self) -> None:
        self._named: dict[Key, frozenset[Key]] = {}
        """Pod → claims and templates."""
        self._naming: dict[Key, set[Key]] = defaultdict(set)
        self._owners: dict[Key, frozenset[str]] = {}
        """Claim → uids of pods."""
        self._owning: dict[str, set[Key]] = defaultdict(set)

    def pod_written(self, type_: str, pod: Object) -> frozenset[Key]:
        """A pod came, changed or went. Returns the claims that it names, one for extended resources included."""
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
        """A claim came, changed or went."""
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
        """The pods that name it."""
        return tuple(sorted(self._naming.get(claim_or_template, ())))

    def owned(self, pod_uid: str) -> tuple[Key, ...]:
        """The claims of this pod."""
        return tuple(sorted(self._owning.get(pod_uid, ())))


def name_of(pod: Object, entry: Object) -> str | None:
    """The claim of an entry: "" if it is not made yet, None if none is needed (docs/spec/dra.md §2.1)."""
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
    is_going = bool(pod["metadata"].get("deletionTimestamp"))
    ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return ended or (is_going and not pod["spec"].get("nodeName"))


def extended_claim(pod: Object) -> str:
    """The claim behind its extended resources; "" if it has none."""
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
