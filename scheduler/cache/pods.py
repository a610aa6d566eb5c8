"""Counts of the pods on nodes, by selector and by (anti-)affinity term (docs/spec/core.md §5.8, §5.9, §A.3).

`SelectorCounts` counts per node the pods that a selection of namespaces and labels finds. Pods with equal namespace and
labels are one class. So a new selection is compared with classes and not with pods. Each added or removed pod then
changes the counts of the selections that find its class.

`PodTerms` has the terms of the pods on nodes, by kind. Equal terms of any number of pods are one group, so a Deployment
of a thousand replicas costs as much as one pod. Groups are indexed by their selectors, so a pod finds the groups that
may concern it. `Nodes` updates both, also for assumed pods and in trials.

`SelectorIndex` indexes items with a selector, so that a pod finds those that may select it (`selectors.anchors`).
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from scheduler.api.core_v1 import Affinity, PodAffinityTerm
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, LabelSelector, anchors, probes
from scheduler.cache.nodes.topology import SlotCounts
from scheduler.core.caching import Interner
from scheduler.core.cooperative import Work

T = TypeVar("T")


class SelectorIndex(dict[Anchor, dict[T, None]], Generic[T]):
    """A map of anchor → items, in the order of arrival. No anchor is without items."""

    def add(self, item: T, anchors: Iterable[Anchor]) -> None:
        """Add an item that may select pods with these anchors."""
        for anchor in anchors:
            self.setdefault(anchor, {})[item] = None

    def remove(self, item: T, anchors: Iterable[Anchor]) -> None:
        """Undo `add` with the same anchors; KeyError if the item is missing."""
        for anchor in anchors:
            entries = self[anchor]
            del entries[item]
            if not entries:
                del self[anchor]

    def under(self, namespace: str, labels: Mapping[str, str]) -> list[T]:
        """Return the items that may select such a pod, each once.

        O(labels + found items), or O(1) if the index is empty.
        """
        return [item for anchor in probes(namespace, labels) for item in self.get(anchor, ())] if self else []


Term: TypeAlias = tuple[frozenset[str] | None, LabelSelector | None]
"""Namespaces (None means all) and a selector (None selects nothing)."""

_TALLIES_MAX: Final = 4096
_ENTRIES_MAX: Final = 1_000_000
"""The entries of all tallies, their sums and classes: about 150 MB. A dropped tally is computed again at its next use."""
_WITHOUT_ANCHOR: Final = _ENTRIES_MAX // 256
"""The entries for which a tally without an anchor counts: it is compared with each new class of its namespaces."""
FEW_SELECTIONS: Final = 8
"""The pods of more selections are counted in steps (`SelectorCounts.counting`)."""
_TALLIES_MIN: Final = 64
"""The number of tallies that are kept whatever their size, because one decision uses several."""
_encode = msgspec.json.Encoder(order="sorted").encode


class Selection(msgspec.Struct, frozen=True, eq=False):
    """The pods that every term finds. `selection` creates it; equal selections have equal keys."""

    terms: tuple[Term, ...]
    counts_terminating: bool
    key: bytes

    def finds(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the selection contains a pod with these labels. Without terms it contains no pods."""
        return bool(self.terms) and all(
            (namespaces is None or namespace in namespaces) and selector is not None and selector.matches(labels)
            for namespaces, selector in self.terms
        )


def selection(terms: Iterable[Term], *, counts_terminating: bool) -> Selection:
    """Return a selection with its key. It takes about 2 µs, so store it per shape."""
    terms = tuple(terms)
    written = [(None if names is None else sorted(names), selector) for names, selector in terms]
    return Selection(terms, counts_terminating, _encode((counts_terminating, written)))


ClassKey: TypeAlias = tuple[str, frozenset[tuple[str, str]], bool]


@dataclass(slots=True, eq=False)
class _Class:
    """Pods with equal namespace and labels, which every selection treats alike."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    counts: dict[int, int] = field(default_factory=dict)
    tallies: list[_Tally] = field(default_factory=list)


class _Tally(SlotCounts):
    """The counts of the pods that one selection finds."""

    __slots__ = ("anchors", "classes", "entries", "selection")

    def __init__(self, found: Selection) -> None:
        super().__init__()
        self.selection = found
        self.anchors: tuple[Anchor, ...] = anchors(*found.terms[0]) if found.terms else ()
        self.classes: set[_Class] = set()
        self.entries = 0
        """`size` at the last use of the tally."""

    @property
    def size(self) -> int:
        """The entries of the counts, of their sums and of the classes. The first sum is counted before it exists."""
        sums = sum(each.size for each in self.domains.values())
        size = len(self.counts) + max(len(self.counts), sums) + len(self.classes)
        return size if all(pair is not None for _, pair in self.anchors) else size + _WITHOUT_ANCHOR

    def wants(self, pods: _Class) -> bool:
        return (self.selection.counts_terminating or not pods.terminating) and self.selection.finds(
            pods.namespace, pods.labels
        )


class SelectorCounts:
    """All pods on nodes by class, and the tallies in use. Only `Nodes` changes it."""

    def __init__(self) -> None:
        self.classes: dict[ClassKey, _Class] = {}
        self._by_namespace: dict[str, dict[_Class, None]] = {}
        self.tallies: OrderedDict[bytes, _Tally] = OrderedDict()
        self._index: SelectorIndex[_Tally] = SelectorIndex()
        self._entries = 0
        """The entries of all tallies, each at its last use."""

    def tally(self, wanted: Selection) -> SlotCounts:
        """Return the count of these pods on each slot. O(classes of its namespaces) the first time, then a look-up.

        Call it for each use, because tallies that are not used for a long time are no longer updated.
        """
        tally = self.tallies.get(wanted.key)
        if tally is None:
            tally = self._begin(wanted)
        else:
            self.tallies.move_to_end(wanted.key)
        size = tally.size
        self._entries += size - tally.entries
        tally.entries = size
        while self._entries > _ENTRIES_MAX and len(self.tallies) > _TALLIES_MIN:
            self._end(self.tallies.popitem(last=False)[1])
        return tally

    def clear(self) -> None:
        """Remove all pods and selections. Each selection is counted again at its next use."""
        self.classes.clear()
        self._by_namespace.clear()
        self.tallies.clear()
        self._index.clear()
        self._entries = 0

    def faults(self) -> Iterator[list[str]]:
        """Yield what is wrong between selections, classes and namespaces: empty lists, unless there is a bug.

        Pods may be added and removed between two steps. A step costs as much as the counts of a selection.
        """
        for tally in tuple(self.tallies.values()):
            counts = Counter[int]()
            for pods in tally.classes:
                counts.update(pods.counts)
            is_right = counts == tally.counts and all(tally in self._index.get(at, ()) for at in tally.anchors)
            yield ["counts or anchors"] if not is_right and self.tallies.get(tally.selection.key) is tally else []
        for pods in tuple(self.classes.values()):
            wanted = [tally for tally in self._index.under(pods.namespace, pods.labels) if tally.wants(pods)]
            is_right = set(wanted) == set(pods.tallies) and all(pods in tally.classes for tally in wanted)
            is_right = is_right and pods in self._by_namespace.get(pods.namespace, ())
            yield [f"selections or namespace of pods like {dict(pods.labels)}"] if not is_right and pods.counts else []
        yield ["classes by namespace"] if sum(map(len, self._by_namespace.values())) != len(self.classes) else []

    def counting(self, wanted: Iterable[Selection]) -> Work[None]:
        """Count the pods of several selections; yields after each, because one may take 100 ms in a large cluster."""
        for each in wanted:
            self.tally(each)
            yield

    def add(self, slot: int, pod: PodInfo) -> None:
        """Add a pod on the slot. O(selections that find it)."""
        key = class_key(pod)
        pods = self.classes.get(key)
        if pods is None:
            pods = self._appear(key, pod)
        pods.counts[slot] = pods.counts.get(slot, 0) + 1
        for tally in pods.tallies:
            tally.add(slot)

    def remove(self, slot: int, pod: PodInfo) -> None:
        """Undo `add`; KeyError for a pod that was not added."""
        key = class_key(pod)
        pods = self.classes[key]
        remaining = pods.counts.pop(slot) - 1
        if remaining:
            pods.counts[slot] = remaining
        for tally in pods.tallies:
            tally.remove(slot)
        if not pods.counts:
            self._vanish(key, pods)

    def _begin(self, wanted: Selection) -> _Tally:
        tally = self.tallies[wanted.key] = _Tally(wanted)
        if len(self.tallies) > _TALLIES_MAX:
            self._end(self.tallies.popitem(last=False)[1])
        self._index.add(tally, tally.anchors)
        for pods in self._candidates(tally):
            if tally.wants(pods):
                self._join(tally, pods)
                for slot, count in pods.counts.items():
                    tally.put(slot, count)
        return tally

    def _end(self, tally: _Tally) -> None:
        self._entries -= tally.entries
        self._index.remove(tally, tally.anchors)
        for pods in tally.classes:
            pods.tallies.remove(tally)

    def _appear(self, key: ClassKey, pod: PodInfo) -> _Class:
        metadata = pod.pod.metadata
        pods = self.classes[key] = _Class(metadata.namespace, metadata.labels, terminating=key[2])
        self._by_namespace.setdefault(metadata.namespace, {})[pods] = None
        for tally in self._index.under(metadata.namespace, metadata.labels):
            if tally.wants(pods):
                self._join(tally, pods)
        return pods

    def _vanish(self, key: ClassKey, pods: _Class) -> None:
        del self.classes[key]
        neighbours = self._by_namespace[pods.namespace]
        del neighbours[pods]
        if not neighbours:
            del self._by_namespace[pods.namespace]
        for tally in pods.tallies:
            tally.classes.discard(pods)

    def _candidates(self, tally: _Tally) -> Iterator[_Class]:
        """Yield the classes with an anchor of the selection.

        Other classes of its namespaces cost a look-up of one label.
        """
        for place, pair in tally.anchors:
            classes: Iterable[_Class] = self.classes.values() if place is None else self._by_namespace.get(place, ())
            if pair is None:
                yield from classes
                continue
            key, value = pair
            yield from [pods for pods in classes if pods.labels.get(key) == value]

    @staticmethod
    def _join(tally: _Tally, pods: _Class) -> None:
        if pods not in tally.classes:  # it may be found under a second anchor
            tally.classes.add(pods)
            pods.tallies.append(tally)


def class_key(pod: PodInfo) -> ClassKey:
    """Return the key of the pod's class: namespace, labels, and whether the pod is being deleted."""
    metadata = pod.pod.metadata
    return metadata.namespace, frozenset(metadata.labels.items()), metadata.deletion_timestamp is not None


class TermKind(enum.Enum):
    """The four lists of a pod's affinity terms."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


class PodTerm(msgspec.Struct, frozen=True, eq=False):
    """One term with its namespaces: the named ones, else the pod's own if there is no namespaceSelector.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go AffinityTerm
    """

    kind: TermKind
    weight: int
    """1–100 for preferred terms, 0 for required ones."""
    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    key: bytes
    """Equal for equal terms."""

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term selects a pod; `namespace_labels` are those of the pod's namespace, as in upstream."""
        if self.selector is None:
            return False
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(labels)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The keys in the index: those of all namespaces if the term has a namespaceSelector."""
        return anchors(self.namespaces if self.namespace_selector is None else None, self.selector)


def has_pod_affinity(affinity: Affinity | None) -> bool:
    """Return whether there may be a term. For nearly every pod, the cost is one attribute."""
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def pod_terms(pod: PodInfo) -> tuple[PodTerm, ...]:
    """Return all terms of a pod in its order: required before preferred, affinity before anti-affinity.

    For the second pod of a Deployment, the cost is a look-up.
    """
    affinity = pod.pod.spec.affinity
    if affinity is None or not has_pod_affinity(affinity):
        return ()
    shape = (pod.pod.metadata.namespace, pod.placement_shape)
    cached = _read.get(shape)
    if cached is None:
        cached = _read.share(shape, tuple(_terms(pod.pod.metadata.namespace, affinity)))
    return cached


_read: Final[Interner[tuple[str, bytes], tuple[PodTerm, ...]]] = Interner(4096)


class TermGroup(SlotCounts):
    __slots__ = ("term",)

    def __init__(self, term: PodTerm) -> None:
        super().__init__()
        self.term = term


class PodTerms:
    """The groups of all pods on nodes."""

    def __init__(self) -> None:
        self.generation = 0
        """A number that changes when a group is added or removed, not when its counts change."""
        self.groups: dict[bytes, TermGroup] = {}
        self.indexes: dict[TermKind, SelectorIndex[TermGroup]] = {kind: SelectorIndex() for kind in TermKind}

    def any(self, kind: TermKind) -> bool:
        """Return whether a pod on a node has a term of this kind."""
        return bool(self.indexes[kind])

    def concerning(
        self, kind: TermKind, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[TermGroup]:
        """Return the groups whose term selects such a pod, each once. O(labels + groups indexed under them)."""
        candidates = self.indexes[kind].under(namespace, labels)
        return [group for group in candidates if group.term.matches(namespace, labels, namespace_labels)]

    def add(self, slot: int, pod: PodInfo) -> None:
        """Add a pod on the slot; a pod without terms changes nothing."""
        for term in pod_terms(pod):
            group = self.groups.get(term.key)
            if group is None:
                group = self.groups[term.key] = TermGroup(term)
                self.indexes[term.kind].add(group, term.anchors)
                self.generation += 1
            group.add(slot)

    def remove(self, slot: int, pod: PodInfo) -> None:
        """Undo `add`; KeyError for a pod that was not added."""
        for term in pod_terms(pod):
            group = self.groups[term.key]
            group.remove(slot)
            if not group.counts:
                self._drop(group)

    def clear(self) -> None:
        self.groups.clear()
        for index in self.indexes.values():
            index.clear()
        self.generation += 1

    def _drop(self, group: TermGroup) -> None:
        term = group.term
        del self.groups[term.key]
        self.indexes[term.kind].remove(group, term.anchors)
        self.generation += 1


def _terms(namespace: str, affinity: Affinity) -> Iterator[PodTerm]:
    rules = (
        (affinity.pod_affinity, TermKind.REQUIRED, TermKind.PREFERRED),
        (affinity.pod_anti_affinity, TermKind.REQUIRED_ANTI, TermKind.PREFERRED_ANTI),
    )
    for side, required, _ in rules:
        for written in side.required if side is not None else ():
            yield _term(namespace, written, required, 0)
    for side, _, preferred in rules:
        for weighted in side.preferred if side is not None else ():
            yield _term(namespace, weighted.pod_affinity_term, preferred, weighted.weight)


def _term(namespace: str, written: PodAffinityTerm, kind: TermKind, weight: int) -> PodTerm:
    named = written.namespaces
    if not named and written.namespace_selector is None:
        named = (namespace,)
    key = _encode(
        (kind.value, weight, written.topology_key, written.label_selector, sorted(named), written.namespace_selector)
    )
    return PodTerm(
        kind, weight, written.topology_key, written.label_selector, frozenset(named), written.namespace_selector, key
    )
