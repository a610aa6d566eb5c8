"""Pods that keep others away: the required anti-affinity terms of the pods on nodes (docs/spec/core.md §5.9, §A.3).

Equal terms of any number of pods are one group, so a Deployment of a thousand replicas costs as much as one pod.
Kept up to date by `Nodes`, so assumed pods and trials count. Namespaces' labels are not known here: see `may_match`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from scheduler.cache.labels import LabelIndex
from scheduler.core.labels import LabelSelector
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.pod import PodAffinityTerm
from scheduler.core.podinfo import PodInfo

_encode = msgspec.json.Encoder(order="sorted").encode
_GroupKey: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class AntiAffinityTerm:
    """A required term with its namespaces worked out: a pod that it matches must not come into the same topology."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def may_match(self, pod: PodInfo) -> bool:
        """False only if the term certainly does not concern the pod.

        Without the labels of namespaces any namespaceSelector counts as matching; an empty one really does.
        """
        if self.selector is None:
            return False
        metadata = pod.pod.metadata
        if self.namespace_selector is None and metadata.namespace not in self.namespaces:
            return False
        return self.selector.matches(metadata.labels)


def required_anti_affinity(pod: PodInfo) -> tuple[PodAffinityTerm, ...]:
    """The terms as they are written; empty for nearly every pod, at the cost of an attribute."""
    affinity = pod.pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required


def anti_affinity_terms(pod: PodInfo) -> tuple[AntiAffinityTerm, ...]:
    """The required terms of a pod, with its own namespace where a term names none."""
    namespace = pod.pod.metadata.namespace
    return tuple(_term(namespace, written) for written in required_anti_affinity(pod))


class Group:
    """Where the pods are that carry one term."""

    __slots__ = ("_counts", "slots", "term")

    def __init__(self, term: AntiAffinityTerm) -> None:
        self.term = term
        self.slots: NodeSet = EMPTY
        """Slots with at least one such pod, also those whose Node object is gone."""
        self._counts: dict[int, int] = {}

    def near(self, labels: LabelIndex) -> NodeSet:
        """Present nodes in the same topology as any of the pods. O(values of the topology key); O(1) if each has one.

        Nodes without the key are in no topology: they neither keep away nor are kept away from.
        """
        key = self.term.topology_key
        values, having = labels.values(key), labels.having(key)
        if len(values) == having.bit_count():
            return having & self.slots
        out = EMPTY
        for nodes in values.values():
            if nodes & self.slots:
                out |= nodes
        return out

    def add(self, slot: int) -> bool:
        """One more pod on the slot; True if it is the first there."""
        count = self._counts[slot] = self._counts.get(slot, 0) + 1
        self.slots |= 1 << slot
        return count == 1

    def remove(self, slot: int) -> bool:
        """One pod fewer on the slot; True if it was the last there."""
        count = self._counts.pop(slot) - 1
        if count:
            self._counts[slot] = count
            return False
        self.slots &= ~(1 << slot)
        return True


class AntiAffinityIndex:
    """All groups. Falsy while no pod on any node has a required anti-affinity term."""

    def __init__(self) -> None:
        self.generation = 0
        """Changes when a group appears or vanishes, or a slot enters or leaves one."""
        self._groups: dict[_GroupKey, Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def groups(self) -> Iterable[Group]:
        """A live view: do not keep it."""
        return self._groups.values()

    def refusing(self, pod: PodInfo, labels: LabelIndex) -> NodeSet:
        """Present nodes that pods already there keep this one away from. O(groups × topology values)."""
        out = EMPTY
        for group in self._groups.values():
            if group.term.may_match(pod):
                out |= group.near(labels)
        return out

    def add(self, slot: int, pod: PodInfo) -> None:
        """A pod with required terms (others change nothing) came to the slot."""
        namespace = pod.pod.metadata.namespace
        for written in required_anti_affinity(pod):
            key = _group_key(namespace, written)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Group(_term(namespace, written))
            self.generation += group.add(slot)

    def remove(self, slot: int, pod: PodInfo) -> None:
        """The inverse of `add`; KeyError for a pod that was not added."""
        namespace = pod.pod.metadata.namespace
        for written in required_anti_affinity(pod):
            key = _group_key(namespace, written)
            group = self._groups[key]
            self.generation += group.remove(slot)
            if not group.slots:
                del self._groups[key]


def _means_own_namespace(written: PodAffinityTerm) -> bool:
    return not written.namespaces and written.namespace_selector is None


def _term(namespace: str, written: PodAffinityTerm) -> AntiAffinityTerm:
    namespaces = (namespace,) if _means_own_namespace(written) else written.namespaces
    return AntiAffinityTerm(
        written.topology_key, written.label_selector, frozenset(namespaces), written.namespace_selector
    )


def _group_key(namespace: str, written: PodAffinityTerm) -> _GroupKey:
    return namespace if _means_own_namespace(written) else "", _encode(written)
