"""Claims that waiting pods use, alone or together, and the nodes to which such claims tie each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.cache.assume_cache import AssumeCache
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from scheduler.core.nodeset import NodeSet


@dataclass(slots=True, eq=False)
class ClaimSet:
    """The claims that pods use together, each once; `pods` counts these pods.

    There is one object per set, compared by identity: the hash of a tuple takes time for each claim in it.
    """

    keys: tuple[str, ...]
    pods: int = 0


class ClaimsTogether:
    """The sets of claims that pods use together, with the number of pods for each set."""

    def __init__(self) -> None:
        self.by_keys: dict[tuple[str, ...], ClaimSet] = {}
        self.by_claim: dict[str, dict[ClaimSet, None]] = {}

    def add(self, claim_keys: Iterable[str]) -> tuple[str, ...]:
        """Count one more pod with these claims; return each claim once. O(claims)."""
        keys = tuple(dict.fromkeys(claim_keys))
        # The pods of a StatefulSet have different claims, those of a Deployment share one set. Counting pods per set
        # keeps the second case as cheap as one pod.
        together = self.by_keys.get(keys)
        if together is None:
            together = self.by_keys[keys] = ClaimSet(keys)
            for key in keys:
                self.by_claim.setdefault(key, {})[together] = None
        together.pods += 1
        return keys

    def remove(self, claim_keys: Iterable[str]) -> tuple[str, ...]:
        """Undo `add`."""
        keys = tuple(dict.fromkeys(claim_keys))
        together = self.by_keys.get(keys)
        if together is None:
            return keys
        together.pods -= 1
        # The set ends with its last pod. Its claims then tie each other no longer, and their reservations can be
        # dropped.
        if not together.pods:
            del self.by_keys[keys]
            for key in keys:
                del self.by_claim[key][together]
                if not self.by_claim[key]:
                    del self.by_claim[key]
        return keys

    def recount(self, keys: tuple[str, ...], pods: int) -> None:
        """Set the number of pods of a set, whatever is wrong with it."""
        # The set is removed from both indexes, then its pods are added as when they came.
        for key in keys:
            remaining = {each: None for each in self.by_claim.pop(key, ()) if each.keys != keys}
            self.by_claim |= {key: remaining} if remaining else {}
        self.by_keys.pop(keys, None)
        for _ in range(pods):
            self.add(keys)

    def entries(self, keys: tuple[str, ...]) -> dict[str, object]:
        """Return the number of pods of a set, and the claims that lead to it or to another set with the same claims."""
        each = self.by_keys.get(keys)
        # Two sets with the same claims are one set twice: the index of claims still has the older one.
        claims = [key for key in keys if each in self.by_claim.get(key, ())]
        others = [key for key in keys for other in self.sets(key) if other.keys == keys and other is not each]
        return {"waiting pods": each.pods if each is not None else 0, "claims": claims, "outdated at": others}

    def snapshot(self) -> dict[str, dict[tuple[str, ...], int]]:
        """Return claim → the sets that have it, and the number of pods for each."""
        return {key: {each.keys: each.pods for each in sets} for key, sets in self.by_claim.items()}

    def has(self, key: str) -> bool:
        """Return whether a pod uses the claim."""
        return key in self.by_claim

    def sets(self, key: str) -> Iterable[ClaimSet]:
        return self.by_claim.get(key, ())


class PendingUsers:
    """The pods without a node, of any scheduler, that use each claim. Idempotent."""

    def __init__(self) -> None:
        self.by_claim: dict[str, dict[str, None]] = {}

    def add(self, pod_key: str, claim_keys: Iterable[str]) -> None:
        for key in claim_keys:
            self.by_claim.setdefault(key, {})[pod_key] = None

    def remove(self, pod_key: str, claim_keys: Iterable[str]) -> None:
        """Undo `add`. Reservations stay: the provisioner may have the requests."""
        for key in claim_keys:
            users = self.by_claim.get(key, {})
            users.pop(pod_key, None)
            if not users:
                self.by_claim.pop(key, None)

    def has(self, key: str, pod_key: str = "") -> bool:
        """Return whether this pod uses the claim; without `pod_key` whether any pod does."""
        return pod_key in self.by_claim.get(key, {}) if pod_key else key in self.by_claim


class ClaimTies:
    """The nodes to which sets of claims are tied, for one batch: each set and each claim is computed once."""

    def __init__(self, nodes: Nodes, claims: AssumeCache[PersistentVolumeClaim], volumes: PersistentVolumes) -> None:
        self._nodes = nodes
        self._claims = claims
        self._volumes = volumes
        self._of_sets: dict[ClaimSet, NodeSet | None] = {}
        self._of_claims: dict[str, NodeSet | None] = {}

    def of(self, sets: Iterable[ClaimSet]) -> NodeSet | None:
        """Return the nodes to which all claims of these sets are tied; None if no claim is."""
        # None and the empty set differ: no claim ties the pod, or the ties exclude each other and no node remains.
        tied: NodeSet | None = None
        for each in sets:
            tied = _both(tied, self._of_set(each))
        return tied

    def _of_set(self, together: ClaimSet) -> NodeSet | None:
        # Many lost claims belong to the same sets. Without the two memos a batch would cost the product of sets and
        # claims.
        if together not in self._of_sets:
            tied: NodeSet | None = None
            for key in together.keys:
                if key not in self._of_claims:
                    self._of_claims[key] = self._of_claim(self._claims.get(key))
                tied = _both(tied, self._of_claims[key])
            self._of_sets[together] = tied
        return self._of_sets[together]

    def _of_claim(self, claim: PersistentVolumeClaim | None) -> NodeSet | None:
        if claim is None:
            return None
        # A volume decides over the selected node: it exists, while the node is only a request to the provisioner. A
        # volume that is not known yet ties to nothing, because nothing is known of its nodes.
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            return self._volumes.where(volume.key).nodes if volume is not None else None
        slot = self._nodes.slot(claim.selected_node) if claim.selected_node else None
        return 1 << slot if slot is not None else None


def _both(left: NodeSet | None, right: NodeSet | None) -> NodeSet | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def place_of(claim: PersistentVolumeClaim | None) -> tuple[str, str]:
    """Return volume and selected node: they decide to which nodes a claim ties its pod."""
    return (claim.spec.volume_name, claim.selected_node or "") if claim is not None else ("", "")
