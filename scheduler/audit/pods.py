"""Check pods by node, and all sums, counts and indexes of the pods on nodes.

The pods of the cache are compared with the pods of each node. All other values are compared with the pods of their node. An
index is read twice: by node, which finds missing entries, and by item, which finds entries that no pod explains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np

from scheduler.api.podinfo import PodInfo
from scheduler.audit.findings import Check, Comparison, Steps, in_parts
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.topology import DomainCounts, SlotCounts
from scheduler.cache.nodes.volume_users import disks_of, uses_of
from scheduler.cache.pods import SelectorIndex, TermGroup, TermKind, _Class, _class_key, _Tally, pod_terms
from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet

T = TypeVar("T", bound=Hashable)

_WRAP: Final = 2**63
_NOWHERE: Final[Mapping[int, int]] = {}
_MANY: Final = 50


@dataclass(frozen=True, slots=True)
class PodIndex(Generic[T]):
    """An index item → slot → number of pods, and the items of one pod.

    `put` sets one count. It gets a pod with the item if the count is above 0.
    """

    name: str
    items: Callable[[PodInfo], Iterable[T]]
    known: Callable[[], Iterable[T]]
    slots: Callable[[T], Mapping[int, int]]
    put: Callable[[int, T, int, PodInfo | None], object]
    sets: dict[T, NodeSet] = field(default_factory=dict)
    """Item → its slots as a cached set, for some items."""


class PodChecks:
    """The checks of one cluster's pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes

    def checks(self) -> dict[str, Check]:
        """Return index → check. Pods by node come first, because the other checks read them."""
        nodes = self._nodes
        ports, population, terms = nodes.ports, nodes.population, nodes.pod_terms
        of_multisets: tuple[tuple[str, PodIndex[Any]], ...] = (
            (
                "host-ports",
                _multiset("port", ports.held, lambda info: ((p.protocol, p.port, p.ip) for p in info.host_ports)),
            ),
            (
                "host-ports-of-any-ip",
                _multiset("port", ports.of_any_ip, lambda info: ((p.protocol, p.port) for p in info.host_ports)),
            ),
            ("priorities", _multiset("priority", nodes.priorities, lambda info: (info.priority,))),
            ("disks", _multiset("disk", nodes.disk_users._users, disks_of, nodes.disk_users.note)),
            ("disk-conflicts", _multiset("disk", nodes.disk_conflicts.used, lambda info: info.exclusive_disks)),
            ("claim-users", _multiset("claim", nodes.claim_users._users, uses_of, nodes.claim_users.note)),
            (
                "spread-counts",
                PodIndex(
                    "pods like",
                    lambda info: (_class_key(info),),
                    lambda: population._classes,
                    lambda key: population._classes[key].counts if key in population._classes else _NOWHERE,
                    self._put_class,
                ),
            ),
            (
                "affinity-terms",
                PodIndex(
                    "term",
                    lambda info: (term.key for term in pod_terms(info)),
                    lambda: terms._groups,
                    lambda key: terms._groups[key].counts if key in terms._groups else _NOWHERE,
                    self._put_term,
                ),
            ),
        )
        return {
            "pods-by-node": self._pods,
            "requests": self._requests,
            **{name: self._check_of(index) for name, index in of_multisets},
            "claims-by-node": self._claims_by_node,
            "spread-selections": self._selections,
            "affinity-index": self._affinity_index,
            "domain-sums": self._domain_sums,
        }

    # -- pods by node ------------------------------------------------------------------------------------------------

    def _pods(self) -> Steps:
        for uid in tuple(self._cluster._pods):
            yield self._pod(uid)
        for slot in range(self._nodes.capacity):
            yield self._strangers(slot)
        yield self._assumed()

    def _pod(self, uid: str) -> Comparison:
        info, nodes = self._cluster.get(uid), self._nodes
        if info is None:
            return Comparison("")
        slot = nodes.slot(info.node_name)
        held = nodes.pods(slot).get(uid) if slot is not None else None
        found = Comparison(f"pod {info.key}")
        if held is info:
            return found
        if held is None:
            found.differs(f"pods of node {info.node_name}", "without the pod", "with the pod")
        else:
            version = held.pod.metadata.resource_version
            found.differs("version on its node", version or "another", info.pod.metadata.resource_version)
            if not found:
                found.differs("object on its node", "another", "the newest")
            nodes.remove_pod(info.node_name, uid)
        nodes.add_pod(info.node_name, info)
        return found

    def _strangers(self, slot: int) -> Comparison:
        """Compare the pods of one node with the pods of the cache."""
        nodes, name = self._nodes, self._nodes.name(slot)
        found = Comparison(f"node {name}")
        for uid, info in tuple(nodes.pods(slot).items()):
            known = self._cluster.get(uid)
            where = known.node_name if known is not None else ""
            if where != name:
                found.differs(f"pod {info.key}", name, where or "no such pod")
                try:
                    nodes.remove_pod(name, uid)
                except KeyError:  # it was not counted; the next checks compare all counts
                    nodes._pods[slot].pop(uid, None)
        return found

    def _assumed(self) -> Comparison:
        cluster, found = self._cluster, Comparison("assumed pods")
        unknown = [uid for uid in cluster._assumed if uid not in cluster._pods]
        if found.differs("without a pod", sorted(unknown), []):
            cluster._assumed.difference_update(unknown)
        answered = [uid for uid in cluster._answered if uid not in cluster._assumed]
        if found.differs("answered and not assumed", sorted(answered), []):
            for uid in answered:
                del cluster._answered[uid]
        return found

    # -- sums of requests --------------------------------------------------------------------------------------------

    def _requests(self) -> Steps:
        for slot in range(self._nodes.capacity):
            yield self._requests_at(slot)
        for resource in tuple(self._nodes._rows._without_row):
            for some in in_parts(self._nodes._rows._without_row.get(resource, ())):
                found = Comparison("")
                for slot in some:
                    found.about = f"node {self._nodes.name(slot)}"
                    amount = sum(info.requests.get(resource, 0) for info in self._nodes.pods(slot).values())
                    self._aside(found, slot, resource, amount)
                yield found

    def _requests_at(self, slot: int) -> Comparison:
        nodes = self._nodes
        pods, found = nodes.pods(slot).values(), Comparison(f"node {nodes.name(slot)}")
        sums: Counter[str] = Counter()
        for info in pods:
            for resource, amount in info.requests.items():
                sums[resource] += amount
        for resource, row in nodes.resources().items():
            amount = _wrapped(sums.pop(resource, 0))
            if found.differs(f"requested {resource}", nodes.requested.item(row, slot), amount):
                nodes.requested[row, slot] = amount
        for resource, total in sums.items():
            self._aside(found, slot, resource, total)
        scored = [sum(info.non_zero_milli_cpu for info in pods), sum(info.non_zero_memory_bytes for info in pods)]
        scored = [_wrapped(amount) for amount in scored]
        if found.differs("requested for scores", nodes.non_zero[:, slot].tolist(), scored):
            nodes.non_zero[:, slot] = scored
        if found.differs("number of pods", int(nodes.pod_count[slot]), len(pods)):
            nodes.pod_count[slot] = len(pods)
        if found:
            nodes.touch(slot)
        return found

    def _aside(self, found: Comparison, slot: int, resource: str, amount: int) -> None:
        """Compare a request for a resource that no node offers."""
        rows = self._nodes._rows
        known, amount = rows.aside(resource, slot), _wrapped(amount)
        if resource not in rows.numbers and found.differs(f"requested {resource}", known, amount):
            rows.set_aside(resource, slot, amount - known)
            self._nodes.touch(slot)

    # -- counts by item ----------------------------------------------------------------------------------------------

    def _check_of(self, index: PodIndex[Any]) -> Check:
        return lambda: self._index(index)

    def _index(self, index: PodIndex[T]) -> Steps:
        nodes = self._nodes
        for slot in range(nodes.capacity):
            found = Comparison(f"node {nodes.name(slot)}")
            if nodes.pods(slot):
                for item, count in Counter(_items(index, nodes.pods(slot).values())).items():
                    self._compare(found, index, slot, item, count)
            yield found
        for item in tuple(index.known()):
            for some in in_parts(index.slots(item)):
                found = Comparison("")
                for slot in some:
                    found.about = f"node {nodes.name(slot)}"
                    pods = nodes.pods(slot).values()
                    count = sum(each == item for each in _items(index, pods))
                    self._compare(found, index, slot, item, count)
                yield found
            yield self._set(index, item)

    def _set(self, index: PodIndex[T], item: T) -> Comparison:
        """Compare the cached set of an item with its slots. O(slots of the item)."""
        found, known = Comparison(f"{index.name} {item}"), index.sets.get(item)
        if known is not None and found.differs("nodes", _slots(known), sorted(index.slots(item))):
            del index.sets[item]
        return found

    def _compare(self, found: Comparison, index: PodIndex[T], slot: int, item: T, count: int) -> None:
        if found.differs(f"{index.name} {item}", index.slots(item).get(slot, 0), count):
            pods = self._nodes.pods(slot).values()
            index.put(slot, item, count, next((info for info in pods if item in set(index.items(info))), None))
            self._nodes.touch(slot)

    def _claims_by_node(self) -> Steps:
        """Compare the claims of each node, and the pods that have a claim only as an ephemeral volume."""
        nodes, users = self._nodes, self._nodes.claim_users
        for slot in range(nodes.capacity):
            found = Comparison(f"node {nodes.name(slot)}")
            uses = [(info.uid, uses_of(info)) for info in nodes.pods(slot).values() if info.claims]
            keys = {key for _, each in uses for key in each}
            if found.differs("claims", sorted(users.at(slot)), sorted(keys)):
                users._at[slot] = dict.fromkeys(keys)
                if not keys:
                    del users._at[slot]
            for key in keys:
                owners = {uid for uid, each in uses if each.get(key)}
                if found.differs(f"ephemeral users of {key}", users._ephemeral.get((slot, key), set()), owners):
                    users._ephemeral[slot, key] = owners
                    if not owners:
                        del users._ephemeral[slot, key]
            for key in keys if found else ():
                users.note((slot, key))
            yield found
        for some in in_parts(users._ephemeral, _MANY):
            found = Comparison("ephemeral volumes")
            for slot, key in some:
                if found.differs(f"{key} on {nodes.name(slot)}", "used", "used" if key in users.at(slot) else "unused"):
                    del users._ephemeral[slot, key]
            yield found

    # -- spread ------------------------------------------------------------------------------------------------------

    def _put_class(self, slot: int, key: Any, count: int, example: PodInfo | None) -> None:
        """Set the count of a class. The selections that find it are counted again at their next use."""
        population = self._nodes.population
        pods = population._classes.get(key)
        if pods is None:
            assert example is not None
            pods = population._appear(key, example)
        for tally in tuple(pods.tallies):
            self._end(tally)
        pods.counts[slot] = count
        if not count:
            del pods.counts[slot]
        if not pods.counts:
            population._vanish(key, pods)

    def _end(self, tally: _Tally) -> None:
        """Drop a selection, whatever is wrong with it."""
        population = self._nodes.population
        population._tallies.pop(tally.selection.key, None)
        population._entries -= tally.entries
        for anchor in tally.anchors:
            here = population._index.get(anchor, {})
            here.pop(tally, None)
            if not here:
                population._index.pop(anchor, None)
        for pods in (*tally.classes, *population._classes.values()):
            if tally in pods.tallies:
                pods.tallies.remove(tally)

    def _selections(self) -> Steps:
        """Compare the counts of each selection with its classes, and the classes with the selections."""
        population = self._nodes.population
        for key in tuple(population._tallies):
            tally = population._tallies.get(key)
            if tally is not None:
                yield self._tally(tally)
        for class_key in tuple(population._classes):
            pods = population._classes.get(class_key)
            if pods is not None:
                yield self._class(pods)
        for namespace in tuple(population._by_namespace):
            for some in in_parts(population._by_namespace.get(namespace, ()), _MANY):
                yield self._classes_in(namespace, some)

    def _tally(self, tally: _Tally) -> Comparison:
        counts, found = Counter[int](), Comparison("selection of a spread constraint or affinity term")
        for pods in tally.classes:
            counts.update(pods.counts)
        found.differs("pods by slot", dict(tally.counts), dict(counts))
        indexed = all(tally in self._nodes.population._index.get(anchor, ()) for anchor in tally.anchors)
        found.differs("indexed by labels", indexed, True)
        if found:
            self._end(tally)
        return found

    def _class(self, pods: _Class) -> Comparison:
        population, found = self._nodes.population, Comparison(f"pods like {dict(pods.labels)} in {pods.namespace}")
        here = population._by_namespace.get(pods.namespace, {})
        if found.differs("known by its namespace", pods in here, True):
            population._by_namespace.setdefault(pods.namespace, {})[pods] = None
        wanted = [t for t in population._index.under(pods.namespace, pods.labels) if t.wants(pods)]
        for tally in dict.fromkeys((*wanted, *pods.tallies)):
            known = (tally in pods.tallies, pods in tally.classes)
            if found.differs("counted by a selection", known, (tally in wanted,) * 2):
                self._end(tally)
        return found

    def _classes_in(self, namespace: str, classes: Iterable[_Class]) -> Comparison:
        """Compare the classes of a namespace with all classes."""
        population, found = self._nodes.population, Comparison(f"namespace {namespace}")
        here = population._by_namespace.get(namespace, {})
        for pods in classes:
            key = (pods.namespace, frozenset(pods.labels.items()), pods.terminating)
            is_known = population._classes.get(key) is pods and pods.namespace == namespace
            if pods in here and found.differs(f"pods like {dict(pods.labels)}", True, is_known):
                del here[pods]
                if not here:
                    del population._by_namespace[namespace]
        return found

    # -- affinity ----------------------------------------------------------------------------------------------------

    def _put_term(self, slot: int, key: bytes, count: int, example: PodInfo | None) -> None:
        terms = self._nodes.pod_terms
        group = terms._groups.get(key)
        if group is None:
            assert example is not None
            term = next(term for term in pod_terms(example) if term.key == key)
            group = terms._groups[key] = TermGroup(term)
            terms._index[term.kind].add(group, term.anchors)
            terms.generation += 1
        group.domains.clear()
        group.counts[slot] = count
        group.note(slot)
        if not count:
            del group.counts[slot]
        if not group.counts:
            terms._drop(group)

    def _affinity_index(self) -> Steps:
        """Compare the index of terms by label with the terms."""
        terms = self._nodes.pod_terms
        for key in tuple(terms._groups):
            group = terms._groups.get(key)
            found = Comparison("affinity term")
            if group is not None:
                index, anchors = terms._index[group.term.kind], group.term.anchors
                if found.differs("indexed by labels", all(group in index.get(a, ()) for a in anchors), True):
                    index.add(group, anchors)
                    terms.generation += 1
            yield found
        for kind, index in terms._index.items():
            for anchor in tuple(index):
                yield self._indexed(kind, index, anchor)

    def _indexed(self, kind: TermKind, index: SelectorIndex[TermGroup], anchor: Any) -> Comparison:
        found, groups = Comparison("affinity term"), self._nodes.pod_terms._groups
        for group in tuple(index.get(anchor, ())):
            term = group.term
            is_known = groups.get(term.key) is group and term.kind is kind and anchor in term.anchors
            if found.differs(f"indexed at {anchor}", True, is_known):
                index.remove(group, (anchor,))
                self._nodes.pod_terms.generation += 1
        return found

    # -- sums over domains ---------------------------------------------------------------------------------------------

    def _domain_sums(self) -> Steps:
        population, terms = self._nodes.population, self._nodes.pod_terms
        for counts in (*population._tallies.values(), *terms._groups.values()):
            for key in tuple(counts.domains):
                yield self._sums(counts, key)

    def _sums(self, counts: SlotCounts, key: tuple[str, int | None]) -> Comparison:
        found, sums = Comparison(f"sums of pods by {key[0]}"), counts.domains.get(key)
        if sums is None or self._nodes.topologies._known._entries.get(key[0]) is not sums.topology:
            return found  # computed again at the next use
        sums.refresh()
        fresh = DomainCounts(counts, sums.topology, sums.eligible)
        found.differs("pods by domain", sums.per_domain, fresh.per_domain)
        found.differs("domains", sums.existing, fresh.existing)
        found.differs("occupied", _slots(sums.occupied), _slots(fresh.occupied))
        if sums._column is not None:
            found.differs("column is that of a recount", bool(np.array_equal(sums.column(), fresh.column())), True)
        if sums._levels is not None:
            levels, stored = (
                {count: (_slots(level.nodes), level.domains) for count, level in each.levels().items()}
                for each in (sums, fresh)
            )
            found.differs("domains by count", levels, stored)
        if found:
            del counts.domains[key]
        return found


def _items(index: PodIndex[T], pods: Iterable[PodInfo]) -> Iterable[T]:
    return (item for info in pods for item in index.items(info))


def _multiset(
    name: str,
    counts: NodeMultiset[T],
    items: Callable[[PodInfo], Iterable[T]],
    note: Callable[[tuple[int, T]], object] = bool,
) -> PodIndex[T]:
    """Return the index of a multiset. `note` gets each slot and item whose count is corrected."""

    def put(slot: int, item: T, count: int, _: PodInfo | None) -> None:
        slots = counts._slots.setdefault(item, {})
        slots[slot] = count
        if not count:
            del slots[slot]
        if not slots:
            del counts._slots[item]
        counts._sets.pop(item, None)
        note((slot, item))

    return PodIndex(name, items, lambda: counts, counts.slots, put, counts._sets)


def _wrapped(amount: int) -> int:
    """Return the amount as int64 has it."""
    return (amount + _WRAP) % (2 * _WRAP) - _WRAP


def _slots(nodes: int) -> list[int]:
    return nodeset.slots(nodes, nodes.bit_length()).tolist() if nodes else []
