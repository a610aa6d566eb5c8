"""Laws about where a pod may be: resources, host ports, taints, node selectors, (anti-)affinity and topology spread.

The rules are written again here, on decoded objects, so that they share no mistake with the plugins. They are applied to two states: that of
the server, and that of a daemon's cache when it sends a Binding. All pods are in one namespace; affinity and spread select pods by labels
alone. Rules: docs/spec/core.md §5, §A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.api.core_v1 import Node, Pod, PodAffinityTerm, Toleration, TopologySpreadConstraint
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import allocatable, host_ports, requests_of
from scheduler.cache.cluster import Cluster
from simulator.apiserver import ApiServer
from tests.integration.daemon_laws import OURS, Object

_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDONED: Final = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True)
class PlacementView:
    """The nodes and the pods on them at one moment, by node name."""

    nodes: dict[str, Node]
    pods: dict[str, list[Pod]]

    def on(self, name: str) -> list[Pod]:
        return self.pods.get(name, [])

    def without(self, uids: Iterable[str]) -> PlacementView:
        gone = frozenset(uids)
        pods = {name: [p for p in there if p.metadata.uid not in gone] for name, there in self.pods.items()}
        return PlacementView(self.nodes, pods)

    def with_pods(self, name: str, more: Iterable[Pod]) -> PlacementView:
        """Return the view with more pods on a node."""
        return PlacementView(self.nodes, self.pods | {name: [*self.on(name), *more]})


def stored(server: ApiServer) -> PlacementView:
    """Return what the server has, without finished pods."""
    nodes = {obj["metadata"]["name"]: from_manifest(Node, obj) for obj in server.objects("nodes")}
    pods: dict[str, list[Pod]] = {}
    for obj in server.objects("pods"):
        name = obj["spec"].get("nodeName", "")
        if name and obj["status"].get("phase") not in {"Succeeded", "Failed"}:
            pods.setdefault(name, []).append(from_manifest(Pod, obj))
    return PlacementView(nodes, pods)


def cached(cluster: Cluster) -> PlacementView:
    """Return what a daemon knows, including assumed pods."""
    nodes, pods = {}, {}
    for name in cluster.nodes.known_names():
        slot = cluster.nodes.slot(name)
        assert slot is not None
        shown = cluster.nodes.node(slot)
        if shown is not None:
            nodes[name] = shown
        pods[name] = [info.pod for info in cluster.nodes.pods(slot).values()]
    return PlacementView(nodes, pods)


# -- rules ----------------------------------------------------------------------------------------------------------------


def obstacles(view: PlacementView, pod: Pod, name: str) -> list[str]:
    """Return why the pod must not be on this node now. The view must not have the pod itself."""
    found, node = lasting(view, pod, name), view.nodes.get(name)
    return found if node is None else [*found, *_together(view, pod, node), *_skewed(view, pod, node)]


def lasting(view: PlacementView, pod: Pod, name: str) -> list[str]:
    """Return the obstacles that the deletion of another pod cannot cause: before a Binding, a scheduler can exclude them."""
    node = view.nodes.get(name)
    if node is None:
        return [f"node {name} is not there"]
    return [
        *_short(view, pod, node),
        *_ports(view, pod, node),
        *_taints(pod, node),
        *_labels(pod, node),
        *_apart(view, pod, node),
    ]


def _short(view: PlacementView, pod: Pod, node: Node) -> Iterator[str]:
    total = allocatable(node.status.allocatable)
    there = view.on(node.key)
    if len(there) + 1 > total.get("pods", 0):
        yield f"{len(there)} pods are on node {node.key}, and no more may be"
    for resource, amount in requests_of(pod).items():
        used = sum(requests_of(other).get(resource, 0) for other in there)
        if amount and used + amount > total.get(resource, 0):
            yield f"node {node.key} has {total.get(resource, 0)} {resource}, {used} are in use, {amount} are requested"


def _ports(view: PlacementView, pod: Pod, node: Node) -> Iterator[str]:
    wanted = {(port.protocol, port.port) for port in host_ports(pod)}
    for other in view.on(node.key):
        if wanted & {(port.protocol, port.port) for port in host_ports(other)}:
            yield f"a host port of the pod is held by {other.key}"


def _taints(pod: Pod, node: Node) -> Iterator[str]:
    taints = [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]
    if node.spec.unschedulable:
        taints.append((_CORDONED, "", "NoSchedule"))
    for key, value, effect in taints:
        if effect in _HARD and not any(_accepts(each, key, value, effect) for each in pod.spec.tolerations):
            yield f"node {node.key} has taint {key}={value}:{effect}"


def _accepts(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    is_meant = toleration.key in {"", key} and toleration.effect in {"", effect}
    return is_meant and (toleration.operator == "Exists" or toleration.value == value)


def _labels(pod: Pod, node: Node) -> Iterator[str]:
    for key, value in pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            yield f"node {node.key} has no label {key}={value}"


def _required(pod: Pod, *, anti: bool) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    rules = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if rules is None else rules.required


def _means(term: PodAffinityTerm, pod: Pod) -> bool:
    return term.label_selector is not None and term.label_selector.matches(pod.metadata.labels)


def _domain(view: PlacementView, node: Node, key: str) -> Iterator[Pod]:
    """Yield the pods on nodes with this node's value of a label; none if it has no such label."""
    if (value := node.metadata.labels.get(key)) is not None:
        for other in view.nodes.values():
            if other.metadata.labels.get(key) == value:
                yield from view.on(other.key)


def _apart(view: PlacementView, pod: Pod, node: Node) -> Iterator[str]:
    for term in _required(pod, anti=True):
        for other in _domain(view, node, term.topology_key):
            if _means(term, other):
                yield f"the pod must not share a {term.topology_key} with {other.key}"
    for elsewhere in view.nodes.values():
        for other in view.on(elsewhere.key):
            for term in _required(other, anti=True):
                value = elsewhere.metadata.labels.get(term.topology_key)
                if value is not None and value == node.metadata.labels.get(term.topology_key) and _means(term, pod):
                    yield f"{other.key} must not share a {term.topology_key} with the pod"


def _together(view: PlacementView, pod: Pod, node: Node) -> Iterator[str]:
    """Check required affinity. The first pod that its terms match needs only the labels."""
    terms = _required(pod, anti=False)
    if not terms:
        return

    def is_meant(other: Pod) -> bool:
        return all(_means(term, other) for term in terms)

    has_labels = all(term.topology_key in node.metadata.labels for term in terms)
    is_first = is_meant(pod) and not any(
        is_meant(other) and term.topology_key in placed.metadata.labels
        for placed in view.nodes.values()
        for other in view.on(placed.key)
        for term in terms
    )
    for term in terms:
        met = any(is_meant(other) for other in _domain(view, node, term.topology_key))
        if not met and not (is_first and has_labels):
            yield f"the pod must share a {term.topology_key} with pods that are not there"


def _skewed(view: PlacementView, pod: Pod, node: Node) -> Iterator[str]:
    hard = [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"]
    eligible = [
        other
        for other in view.nodes.values()
        if all(each.topology_key in other.metadata.labels for each in hard)
        and all(other.metadata.labels.get(key) == value for key, value in pod.spec.node_selector.items())
    ]
    for constraint in hard:
        yield from _too_many(constraint, view, pod, node=node, eligible=eligible)


def _too_many(
    constraint: TopologySpreadConstraint, view: PlacementView, pod: Pod, *, node: Node, eligible: Iterable[Node]
) -> Iterator[str]:
    """Check one constraint. Pods that are being deleted do not count."""
    selector, key = constraint.label_selector, constraint.topology_key
    counts = Counter[str]()
    for other in eligible:
        here = [each for each in view.on(other.key) if each.metadata.deletion_timestamp is None]
        counts[other.metadata.labels[key]] += sum(
            selector is not None and selector.matches(each.metadata.labels) for each in here
        )
    mine = node.metadata.labels.get(key)
    if mine is None:
        yield f"node {node.key} has no label {key}"
        return
    is_counted = selector is not None and selector.matches(pod.metadata.labels)
    skew = counts[mine] + is_counted - min(counts.values(), default=0)
    if skew > constraint.max_skew:
        yield f"{key} {mine} would have a skew of {skew}: {dict(counts)}"


# -- which nodes fit -----------------------------------------------------------------------------------------------------


def fitting_nodes(server: ApiServer, waiting: Object, *, evicting: bool = False) -> list[str]:
    """Return the nodes that fit the pod without regard to volumes and devices; with `evicting`, without pods of lower priority.

    Pods of other schedulers that are nominated to a node, and have the same priority or a higher one, count as if they were bound.
    """
    if waiting["spec"].get("schedulingGates"):
        return []
    pod, view = from_manifest(Pod, waiting), stored(server)
    nominated: dict[str, list[Pod]] = {}
    for obj in server.objects("pods"):
        name = obj["status"].get("nominatedNodeName", "")
        is_theirs = obj["spec"]["schedulerName"] != OURS and not obj["spec"].get("nodeName")
        if name and is_theirs and obj["spec"]["priority"] >= pod.priority:
            nominated.setdefault(name, []).append(from_manifest(Pod, obj))
    if not evicting:
        return [name for name in view.nodes if _fits(view, pod, name, nominated)]
    return [name for name in view.nodes if _fits(_without_lower(view, pod, name), pod, name, nominated)]


def _fits(view: PlacementView, pod: Pod, name: str, nominated: dict[str, list[Pod]]) -> bool:
    """Return whether the pod fits with the nominated pods and without them, which its affinity may need."""
    more = nominated.get(name, [])
    return not obstacles(view, pod, name) and (not more or not obstacles(view.with_pods(name, more), pod, name))


def _without_lower(view: PlacementView, pod: Pod, name: str) -> PlacementView:
    return view.without(other.metadata.uid for other in view.on(name) if other.priority < pod.priority)


# -- what a cache holds ---------------------------------------------------------------------------------------------------


def cache_differences(server: ApiServer, cluster: Cluster) -> list[str]:
    """Return differences of cache and server: nodes, their pods, and the pods' requests."""
    have, want = _shown(cached(cluster)), _shown(stored(server))
    wrong = [
        f"node {name}: the cache has {have.get(name)}, the server {want.get(name)}"
        for name in sorted(have.keys() | want.keys())
        if have.get(name) != want.get(name)
    ]
    return [*wrong, *_miscounted(cluster)]


def _shown(view: PlacementView) -> dict[str, Any]:
    return {
        name: (
            (node := view.nodes.get(name)) and (node.metadata.labels, node.spec, allocatable(node.status.allocatable)),
            {pod.metadata.uid: (requests_of(pod), pod.metadata.labels, pod.priority) for pod in view.on(name)},
        )
        for name in view.nodes.keys() | {name for name, there in view.pods.items() if there}
    }


def _miscounted(cluster: Cluster) -> Iterator[str]:
    for name, there in cached(cluster).pods.items():
        slot = cluster.nodes.slot(name)
        assert slot is not None
        requests = [requests_of(pod) for pod in there]
        for resource in {*cluster.nodes.resources(), *(name for each in requests for name in each)}:
            counted, total = cluster.nodes.requested_at(slot, resource), sum(each.get(resource, 0) for each in requests)
            if counted != total:
                yield f"node {name}: {counted} {resource} are counted, its pods request {total}"
