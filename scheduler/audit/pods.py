"""Check pods by node, and all sums, counts and indexes of the pods on nodes.

The pods of the cache are compared with the pods of each node. All other values are compared with the pods of their node.
An index with a wrong entry is filled again from the pods.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from scheduler.api.podinfo import PodInfo
from scheduler.api.quantity import INT64_MAX
from scheduler.api.selectors import Anchor
from scheduler.audit.findings import Check, Comparison, Difference, Steps, TwoWay, by_key, faultless, grouped
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.topology import DomainCounts, SlotCounts
from scheduler.cache.nodes.volume_users import ClaimUsers, disks_of, uses_of
from scheduler.cache.pods import TermGroup, TermKind, class_key, pod_terms

T = TypeVar("T", bound=Hashable)


class PodChecks:
    """The checks of one cluster's pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes

    def checks(self) -> dict[str, Check]:
        """Return index → check. Pods by node come first, because the other checks read them."""
        nodes, multiset = self._nodes, self._multiset
        held, of_any_ip, population, terms = nodes.ports.held, nodes.ports.of_any_ip, nodes.population, nodes.pod_terms
        fill_classes, fill_terms = self._filled(population.clear, population.add), self._filled(terms.clear, terms.add)
        fill_disks = self._filled(nodes.disk_users.clear, nodes.disk_users.add)
        fill_claims = self._filled(nodes.claim_users.clear, nodes.claim_users.add)
        return {
            "pods-by-node": self._pods,
            "requests": lambda: by_key(
                range(nodes.capacity), self._about, nodes.requests, self._requests, nodes.apply_again
            ),
            "host-ports": multiset("port", held, lambda pod: ((p.protocol, p.port, p.ip) for p in pod.host_ports)),
            "host-ports-of-any-ip": multiset(
                "port", of_any_ip, lambda pod: ((p.protocol, p.port) for p in pod.host_ports)
            ),
            "priorities": multiset("priority", nodes.priorities, lambda pod: (pod.priority,)),
            "disks": multiset("disk", nodes.disk_users.users, disks_of, fill_disks),
            "disk-conflicts": multiset("disk", nodes.disk_conflicts, lambda pod: pod.exclusive_disks),
            "claim-users": multiset("claim", nodes.claim_users.users, uses_of, fill_claims),
            "spread-counts": self._values(population.classes, lambda pod: (class_key(pod),), fill_classes),
            "affinity-terms": self._values(terms.groups, lambda pod: (term.key for term in pod_terms(pod)), fill_terms),
            "claims-by-node": partial(self._claims_by_node, fill_claims),
            "spread-selections": lambda: faultless("selections of pods", population.faults(), fill_classes),
            "affinity-index": self._affinity_index,
            "domain-sums": self._domain_sums,
        }

    def _about(self, slot: int) -> str:
        return f"node {self._nodes.name(slot)}"

    # -- pods by node ------------------------------------------------------------------------------------------------

    def _pods(self) -> Steps:
        for info in tuple(self._cluster.pods()):
            yield self._pod(info.uid)
        for slot in range(self._nodes.capacity):
            yield self._strangers(slot)
        found = Comparison("pods")
        for field, uids in self._cluster.drop_unexplained().items():
            found.differs(field, uids, [])
        yield found

    def _pod(self, uid: str) -> Comparison:
        info, nodes = self._cluster.get(uid), self._nodes
        if info is None:
            return Comparison("")
        slot = nodes.slot(info.node_name)
        held = nodes.pods(slot).get(uid) if slot is not None else None
        found = Comparison(f"pod {info.key}")
        if held is not info:
            cached = held.pod if held is not None else "no such pod"
            found.append(Difference(found.about, f"pod on node {info.node_name}", cached, info.pod))
            nodes.remove_pod(info.node_name, uid)
            nodes.add_pod(info.node_name, info)
        return found

    def _strangers(self, slot: int) -> Comparison:
        """Compare the pods of one node with the pods of the cache."""
        nodes, name = self._nodes, self._nodes.name(slot)
        found = Comparison(f"node {name}")
        for uid, info in tuple(nodes.pods(slot).items()):
            cached = self._cluster.get(uid)
            where = cached.node_name if cached is not None else ""
            if where != name:
                found.differs(f"pod {info.key}", name, where or "no such pod")
                with contextlib.suppress(KeyError):  # it was not counted; the next checks compare all counts
                    nodes.remove_pod(name, uid)
        return found

    def _requests(self, slot: int) -> dict[str, object]:
        sums: Counter[str] = Counter()
        for info in self._nodes.pods(slot).values():
            sums["cpu for scores"] += info.non_zero_milli_cpu
            sums["memory for scores"] += info.non_zero_memory_bytes
            sums["number of pods"] += 1
            for resource, amount in info.requests.items():
                sums[f"requested {resource}"] += amount
        for field in ("cpu for scores", "memory for scores"):
            sums[field] = min(sums[field], INT64_MAX)
        return {field: amount for field, amount in sums.items() if amount}

    # -- counts by item ----------------------------------------------------------------------------------------------

    def _counts(
        self,
        name: str,
        index: Iterable[T],
        slots: Callable[[T], Mapping[int, int]],
        items: Callable[[PodInfo], Iterable[T]],
        heal: Callable[[], None],
    ) -> Steps:
        """Compare an index item → slot → number of pods with the items of the pods."""

        def stored(slot: int) -> Mapping[T, object]:
            return Counter(item for info in self._nodes.pods(slot).values() for item in items(info))

        return TwoWay(
            lambda slot: f"{name} on node {self._nodes.name(slot)}",
            range(self._nodes.capacity),
            stored,
            index,
            slots,
            lambda item, slot: slots(item).get(slot),
            lambda *_: heal(),
        ).steps()

    def _values(
        self,
        index: Mapping[T, Any],
        items: Callable[[PodInfo], Iterable[T]],
        heal: Callable[[], None],
    ) -> Check:
        return lambda: self._counts("pods", index, lambda key: index[key].counts if key in index else {}, items, heal)

    def _multiset(
        self,
        name: str,
        index: NodeMultiset[T],
        items: Callable[[PodInfo], Iterable[T]],
        heal: Callable[[], None] | None = None,
    ) -> Check:
        """Compare a multiset, and the node sets that it has cached."""

        def fill(slot: int, info: PodInfo) -> None:
            for item in items(info):
                index.add(slot, item)

        filled = heal or self._filled(index.clear, fill)

        def check() -> Steps:
            yield from self._counts(name, index, index.slots, items, filled)
            yield from faultless(name, ([] if index.is_current(item) else [f"{item}"] for item in tuple(index)), filled)

        return check

    def _filled(self, clear: Callable[[], None], fill: Callable[[int, PodInfo], object]) -> Callable[[], None]:
        """Return the function that fills an index again. O(pods)."""

        def heal() -> None:
            clear()
            for slot in range(self._nodes.capacity):
                for info in self._nodes.pods(slot).values():
                    fill(slot, info)
                self._nodes.touch(slot)

        return heal

    def _claims_by_node(self, heal: Callable[[], None]) -> Steps:
        """Compare the pods of each node that have a claim only as an ephemeral volume. O(pods)."""
        nodes, users = self._nodes, self._nodes.claim_users

        def cached(slot: int) -> dict[str, object]:
            keys = {use.key for info in nodes.pods(slot).values() for use in info.claims}
            return {key: users.ephemeral[slot, key] for key in keys if (slot, key) in users.ephemeral}

        def stored(slot: int) -> dict[str, object]:
            alone = ClaimUsers()
            for info in nodes.pods(slot).values():
                if info.claims:
                    alone.add(slot, info)
            return {key: uids for (_, key), uids in alone.ephemeral.items()}

        yield from by_key(range(nodes.capacity), self._about, cached, stored, lambda _: heal())
        unused = ([f"{use}" for use in users.ephemeral if not users.users.count(*use)] for _ in "1")
        yield from faultless("claims", unused, heal)

    def _affinity_index(self) -> Steps:
        """Compare the index of terms by label with the terms."""
        terms = self._nodes.pod_terms
        for kind, index in terms.indexes.items():

            def anchors(group: TermGroup, kind: TermKind = kind) -> Collection[Anchor]:
                return (
                    group.term.anchors if terms.groups.get(group.term.key) is group and group.term.kind is kind else ()
                )

            yield from grouped(kind.value, terms.groups.values(), anchors, index, healed=self._recounted)

    def _recounted(self, _: TermGroup) -> None:
        self._nodes.pod_terms.generation += 1

    # -- sums over domains -------------------------------------------------------------------------------------------

    def _domain_sums(self) -> Steps:
        for counts in (*self._nodes.population.tallies.values(), *self._nodes.pod_terms.groups.values()):
            for key in tuple(counts.domains):
                yield self._sums(counts, key)

    def _sums(self, counts: SlotCounts, key: tuple[str, int | None]) -> Comparison:
        found, sums = Comparison(f"sums of pods by {key[0]}"), counts.domains.get(key)
        if sums is None or sums.topology not in self._nodes.topologies.in_use.values():
            return found  # computed again at the next use
        sums.refresh()
        fresh = DomainCounts(counts, sums.topology, sums.eligible)
        if found.compare(sums.entries(sums), fresh.entries(sums)):
            del counts.domains[key]
        return found
