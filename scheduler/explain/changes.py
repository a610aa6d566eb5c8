"""Changes that may let a pod fit on one node: for each plugin that rejects it there, what could be different.

A change is one thing that a user or an administrator can do, as edits of API objects. Whether it helps is not decided here: it is tried
(`fixes`). Each plugin has options in order of preference; an option is a list of changes that may all be needed. Changes
of volumes and devices are in `claim_changes`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import (
    Container,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Taint,
    TopologySpreadConstraint,
)
from scheduler.api.meta import label_value
from scheduler.api.node_affinity import UNSCHEDULABLE_TAINT, required_node_affinity, term_matches
from scheduler.api.podinfo import CPU, PodInfo, Requests
from scheduler.api.quantity import NATIVE, Quantity, is_extended, text
from scheduler.api.selectors import integer, requirement_matches
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import Nodes, NodeView
from scheduler.cache.pods import TermKind, pod_terms
from scheduler.core import nodeset
from scheduler.explain.controllers import are_siblings, comes_back, departure, is_owned, obstacle, stays, untolerated
from scheduler.explain.edits import Edit, Manifest, Step, plain, pointer

ADD_NODE: Final = "AddNode"
_NANO: Final = 10**9
_NANO_PER_MILLI: Final = 10**6
_PODS_MAX: Final = 3
"""A fix that deletes more pods than this is none."""
_MUCH: Final = 1000
_COST_OF_HIGHER: Final = 20
"""The cost of the deletion of a pod with a higher priority."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Actor(enum.Enum):
    """The role that can make a change."""

    USER = "user"
    ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do. `weaker`, if given, returns the same change by amount."""

    code: str
    actor: Actor
    cost: int
    text: str
    edits: tuple[Edit, ...]
    weaker: Callable[[int], Change] | None = None
    bounds: tuple[int, int] = (0, 0)
    """The smallest and the greatest amount for `weaker`; the change itself has the greatest effect."""


Option: TypeAlias = list[Change]


@dataclass(frozen=True, slots=True)
class Site:
    """A pod on a node where it does not fit. `ahead` are the nominated pods with precedence there."""

    cluster: Cluster
    info: PodInfo
    slot: int
    ahead: tuple[PodInfo, ...] = ()

    @property
    def pod(self) -> Pod:
        return self.info.pod

    @property
    def node(self) -> Node:
        node = self.cluster.nodes.node(self.slot)
        assert node is not None
        return node

    def pods(self) -> Iterable[PodInfo]:
        return self.cluster.nodes.pods(self.slot).values()

    def free(self, resource: str) -> int:
        """Return what the node has left for the pod, in the unit of requests; it may be negative."""
        taken = sum(1 if resource == "pods" else each.requests.get(resource, 0) for each in self.ahead)
        return NodeView(self.cluster.nodes, self.slot).free(resource) - taken

    def shortages(self) -> Requests:
        """Return resource → what is missing, for resources of which the node has too little."""
        wanted = {**{name: amount for name, amount in self.info.requests.items() if amount}, "pods": 1}
        return {name: short for name, amount in wanted.items() if (short := amount - self.free(name)) > 0}

    def pod_patch(self, *steps: Step) -> Edit:
        """Return an edit of the pod's manifest."""
        metadata = self.pod.metadata
        return Edit("patch", "Pod", metadata.name, metadata.namespace, patch=steps)

    def node_patch(self, *steps: Step) -> Edit:
        return Edit("patch", "Node", self.node.metadata.name, patch=steps)


def free_on(nodes: Nodes, resource: str, slots: nodeset.Slots) -> npt.NDArray[np.float64]:
    """Return what each of the nodes has left of a resource, or of "pods"; 0 for a resource that no node has."""
    if resource == "pods":
        slots_left: npt.NDArray[np.float64] = (nodes.allowed_pods[slots] - nodes.pod_count[slots]).astype(np.float64)
        return slots_left
    row = nodes.resources().get(resource)
    if row is None:
        return np.zeros(len(slots))
    free: npt.NDArray[np.float64] = (nodes.allocatable[row][slots] - nodes.requested[row][slots]).astype(np.float64)
    return free


def removable(site: Site, pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return the pods whose deletion can be offered: none that comes back to its node, and none of the pod's own controller.

    Pods of a higher priority than the waiting pod come last, and before them those of low priority come first.
    """
    found = [each for each in pods if not stays(each.pod) and not are_siblings(each.pod, site.pod)]
    return sorted(found, key=lambda each: (each.priority > site.info.priority, each.priority))


def all_removable(site: Site, pods: Collection[PodInfo], most: int) -> list[PodInfo]:
    """Return these pods if all of them can be deleted, and are not more than this; else none."""
    found = removable(site, pods)
    return found if len(found) == len(pods) <= most else []


def deletion(site: Site, pods: Iterable[PodInfo], code: str = "DeletePod") -> list[Change]:
    return [
        Change(
            code,
            Actor.ADMINISTRATOR,
            _COST_OF_HIGHER if each.priority > site.info.priority else 5,
            f"delete pod {each.key} on node {each.node_name}",
            (Edit("delete", "Pod", each.pod.metadata.name, each.pod.metadata.namespace),),
        )
        for each in pods
    ]


# -- resources -------------------------------------------------------------------------------------------------------


def quantity(resource: str, amount: int) -> str:
    """Return an amount in the unit of requests as a quantity."""
    return text(Quantity(amount * (_NANO_PER_MILLI if resource == CPU else _NANO)))


def resources(site: Site) -> Iterator[Option]:
    """Lower the requests to what the node has; or delete pods."""
    short = site.shortages()
    lowered = [lower for name in short if name != "pods" if (lower := _lower(site, name)) is not None]
    if lowered and "pods" not in short:
        yield lowered
    yield from (deletion(site, victims) for victims in _victims(site, short))
    if lowered and "pods" in short:
        yield from ([*lowered, *deletion(site, victims)] for victims in _victims(site, {"pods": 1}))


def _lower(site: Site, resource: str) -> Change | None:
    free = site.free(resource)
    if free <= 0 and not is_extended(resource):  # a container without any cpu or memory is of no use
        return None
    change = _requesting(site, resource, max(free, 0))
    return change if change.edits[0].patch else None


def _requesting(site: Site, resource: str, amount: int) -> Change:
    unit = _NANO_PER_MILLI if resource == CPU else _NANO
    wanted = site.info.requests[resource]
    before, now = quantity(resource, wanted), quantity(resource, amount)
    what = (
        f"request {now} of {resource} instead of {before}" if amount else f"request no {resource} instead of {before}"
    )
    return Change(
        "LowerRequest",
        Actor.USER,
        1 + 4 * (wanted - amount) // wanted,
        what,
        (site.pod_patch(*_lowered(site.pod, resource, amount * unit)),),
        lambda given_up: _requesting(site, resource, wanted - given_up),
        (1, wanted - amount),
    )


def _lowered(pod: Pod, resource: str, target_nano: int) -> Iterator[Step]:
    """Yield the steps after which the pod requests at most this: the largest containers give most."""
    spec = pod.spec
    overhead = spec.overhead[resource].nano if resource in spec.overhead else 0
    level = spec.resources.requests.get(resource)
    if level is not None:
        yield from _set(("spec", "resources"), resource, max(target_nano - overhead, 0), spec.resources.limits)
        target_nano = max(target_nano - overhead, 0)
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    by_kind = {"containers": spec.containers, "initContainers": spec.init_containers}
    running = [*(("containers", at, c) for at, c in enumerate(spec.containers))]
    running += [("initContainers", at, c) for at, c in enumerate(spec.init_containers) if c in sidecars]
    amounts = {(kind, at): _request(c, resource) for kind, at, c in running}
    target_nano -= overhead if level is None else 0
    over = sum(amounts.values()) - target_nano
    for (kind, at), amount in sorted(amounts.items(), key=lambda each: -each[1]):
        if over <= 0 or not amount:
            break
        cut = min(amount, over)
        over -= cut
        amounts[kind, at] = amount - cut
        limits = by_kind[kind][at].resources.limits
        yield from _set(("spec", kind, at, "resources"), resource, amount - cut, limits)
    beside = sum(amount for (kind, _), amount in amounts.items() if kind == "initContainers")
    remaining = max(target_nano - beside, 0)
    for at, container in enumerate(spec.init_containers):
        if container not in sidecars and _request(container, resource) > remaining:
            yield from _set(
                ("spec", "initContainers", at, "resources"), resource, remaining, container.resources.limits
            )


def _request(container: Container, resource: str) -> int:
    amount = container.resources.requests.get(resource)
    return amount.nano if amount is not None else 0


def _set(at: tuple[str | int, ...], resource: str, nano: int, limits: Mapping[str, Quantity]) -> Iterator[Step]:
    value = text(Quantity(nano))
    yield Step("replace", pointer(*at, "requests", resource), value)
    if resource not in NATIVE and resource in limits:  # an extended resource has equal requests and limits
        yield Step("replace", pointer(*at, "limits", resource), value)


def _victims(site: Site, short: Requests) -> Iterator[list[PodInfo]]:
    """Yield few pods whose end frees enough, of low priority first: single pods, and then several together.

    The pods of controllers may take the capacity again, so some pods of both kinds are offered.
    """

    def frees(pods: Iterable[PodInfo]) -> bool:
        pods = list(pods)
        return all(
            sum(1 if name == "pods" else each.requests.get(name, 0) for each in pods) >= amount
            for name, amount in short.items()
        )

    if not short:
        return
    pods = removable(site, sorted(site.pods(), key=lambda each: sum(each.requests.values())))
    singles = [each for each in pods if frees([each])]
    few = [[each for each in singles if comes_back(each.pod) is kind][:_PODS_MAX] for kind in (True, False)]
    yield from ([each] for each in removable(site, itertools.chain(*few)))
    for some in (pods, [each for each in pods if not comes_back(each.pod)]):
        largest = sorted(some, key=lambda each: -max(each.requests.get(name, 0) for name in short))
        together = [removable(site, largest)[:count] for count in range(2, _PODS_MAX + 1)]
        if not any(each in singles for each in some) and (found := next(filter(frees, together), None)):
            yield found


def node_copy(cluster: Cluster, node: Node, number: int = 1) -> Option:
    """Add a node like this one, with its CSINode, its own devices, and the pods that stay on it. `number` names several copies."""
    name = node.metadata.name
    csi_node = cluster.volumes.csi_nodes.get(name)
    slices = (plain(each) for each in cluster.devices.slices() if each.spec.node_name == name)
    edits = copy_edits(plain(node), None if csi_node is None else plain(csi_node), slices, number)
    return [Change(ADD_NODE, Actor.ADMINISTRATOR, 6, f"add a node like {name}", edits)]


def copy_name(node: str, number: int) -> str:
    """Return the name of a copy of this node; numbers begin with 1."""
    return f"{node}-what-if" if number == 1 else f"{node}-what-if-{number}"


def copy_edits(node: Manifest, csi_node: Manifest | None, slices: Iterable[Manifest], number: int) -> tuple[Edit, ...]:
    """Return the creation of a copy of the node, its CSINode and its slices. Labels with the node's name get that of the copy."""
    name = node["metadata"]["name"]
    copy = copy_name(name, number)
    labels = {key: copy if value == name else value for key, value in node["metadata"].get("labels", {}).items()}
    empty: Manifest = {
        "metadata": {"labels": labels},
        "spec": node.get("spec", {}),
        "status": node.get("status", {}),
    }
    edits = [Edit("create", "Node", copy, manifest=empty, like=name)]
    if csi_node is not None:
        edits.append(Edit("create", "CSINode", copy, manifest=_csi_node(csi_node, copy)))
    for each in slices:
        pool = each["spec"]["pool"]
        pool_name = copy if pool["name"] == name else f"{pool['name']}-{copy}"  # a driver may have several pools
        spec = each["spec"] | {"nodeName": copy, "pool": pool | {"name": pool_name}}
        own_name = f"{each['metadata']['name']}-{copy}"
        edits.append(Edit("create", "ResourceSlice", own_name, manifest=each | {"spec": spec}))
    return tuple(edits)


def _csi_node(manifest: Manifest, node: str) -> Manifest:
    """Return the CSINode with the required `nodeID`, which Kubestow does not read."""
    drivers = [driver | {"nodeID": node} for driver in manifest.get("spec", {}).get("drivers", ())]
    return manifest | {"spec": {"drivers": drivers}}


# -- taints and cordons ----------------------------------------------------------------------------------------------


def taints(site: Site) -> Iterator[Option]:
    """Tolerate the node's taints; or remove them. Nothing is offered against the taints of a node that starts, leaves or is broken."""
    hard = untolerated(site.pod, site.node)
    if any(obstacle(taint, site.node) for _, taint in hard):
        return
    yield [_toleration(site, taint) for _, taint in hard]
    if any(is_owned(taint.key) for _, taint in hard):
        return
    named = ", ".join(taint.text for _, taint in hard)
    steps = [Step("remove", pointer("spec", "taints", at)) for at, _ in hard]
    what = f"remove the taint {named} from node {site.node.metadata.name}"
    yield [Change("RemoveTaint", Actor.ADMINISTRATOR, 3, what, (site.node_patch(*steps),))]


def untolerated_taints(site: Site) -> int:
    """Return the number of taints of the node that keep the pod away; those that nothing helps against count more."""
    return sum(_MUCH if obstacle(taint, site.node) else 1 for _, taint in untolerated(site.pod, site.node))


def _toleration(site: Site, taint: Taint) -> Change:
    toleration = {"key": taint.key, "operator": "Equal" if taint.value else "Exists", "effect": taint.effect}
    if taint.value:
        toleration["value"] = taint.value
    step = Step("add", pointer("spec", "tolerations", "-"), toleration)
    what = f"tolerate the taint {taint.text}"
    return Change("AddToleration", Actor.USER, 2, what, (site.pod_patch(step),))


def cordon(site: Site) -> Iterator[Option]:
    """Make the node schedulable again; or tolerate that it is not. Nothing is offered if a component cordoned it."""
    if departure(site.node):
        return
    steps = [Step("replace", pointer("spec", "unschedulable"), False)]
    for at, taint in enumerate(site.node.spec.taints):
        if (taint.key, taint.effect) == (UNSCHEDULABLE_TAINT.key, UNSCHEDULABLE_TAINT.effect):
            steps.append(Step("remove", pointer("spec", "taints", at)))
    what = f"uncordon node {site.node.metadata.name}"
    yield [Change("Uncordon", Actor.ADMINISTRATOR, 1, what, (site.node_patch(*steps),))]
    yield [_toleration(site, UNSCHEDULABLE_TAINT)]


# -- selectors and affinity ------------------------------------------------------------------------------------------


def node_affinity(site: Site) -> Iterator[Option]:
    """Drop what does not match in the pod's selector and required terms; or label the node, if such labels may be changed."""
    labels, pod = site.node.metadata.labels, site.pod
    keys = _other_labels(site)
    dropped = [
        Change(
            "RemoveNodeSelector",
            Actor.USER,
            3,
            f"remove {key}={pod.spec.node_selector[key]} from the nodeSelector",
            (site.pod_patch(Step("remove", pointer("spec", "nodeSelector", key))),),
        )
        for key in keys
    ]
    term = _closest(site)
    yield [*dropped, *(_without_term(site, *term) if term is not None else ())]
    wanted = {key: pod.spec.node_selector[key] for key in keys}
    removed: set[str] = set()
    if term is not None:
        for requirement in term[1].match_expressions:
            if not requirement_matches(requirement.key, requirement.operator, requirement.values, labels):
                value = _matching_value(requirement)
                if value is None:
                    removed.add(requirement.key)
                else:
                    wanted[requirement.key] = value
    steps = [(key, Step("add", pointer("metadata", "labels", key), value)) for key, value in wanted.items()]
    steps += [(key, Step("remove", pointer("metadata", "labels", key))) for key in removed if key in labels]
    if any(is_owned(key) or label_value(step.value or "") for key, step in steps):  # no label is a negative number
        return
    yield [
        Change(
            "LabelNode",
            Actor.ADMINISTRATOR,
            3,
            f"label node {site.node.metadata.name} {key}={step.value}"
            if step.op == "add"
            else f"remove the label {key} from node {site.node.metadata.name}",
            (site.node_patch(step),),
        )
        for key, step in steps
    ]


def lacking_labels(site: Site) -> int:
    """Return the number of requirements of the nodeSelector and of the closest required term that the node does not meet."""
    closest = _closest(site)
    return len(_other_labels(site)) + (_lacking(site, closest[1]) if closest is not None else 0)


def _other_labels(site: Site) -> list[str]:
    labels = site.node.metadata.labels
    return [key for key, value in site.pod.spec.node_selector.items() if labels.get(key) != value]


def _lacking(site: Site, term: NodeSelectorTerm) -> int:
    labels = site.node.metadata.labels
    wrong = sum(not requirement_matches(r.key, r.operator, r.values, labels) for r in term.match_expressions)
    return wrong + 100 * bool(term.match_fields) + _MUCH * (not term.match_expressions)


def _closest(site: Site) -> tuple[int, NodeSelectorTerm] | None:
    """Return the required term that lacks least on the node, with its index; None if the node matches or none exists."""
    selector, node = required_node_affinity(site.pod.spec.affinity), site.node
    name, labels = node.metadata.name, node.metadata.labels
    if selector is None or any(term_matches(term, name, labels) for term in selector.node_selector_terms):
        return None
    return min(enumerate(selector.node_selector_terms), key=lambda each: _lacking(site, each[1]), default=None)


def _without_term(site: Site, at: int, term: NodeSelectorTerm) -> Iterator[Change]:
    if term.match_fields and stays(site.pod):  # the DaemonSet names the node
        return
    labels = site.node.metadata.labels
    wrong = [
        (place, r)
        for place, r in enumerate(term.match_expressions)
        if not requirement_matches(r.key, r.operator, r.values, labels)
    ]
    where = ("spec", "affinity", "nodeAffinity", _REQUIRED)
    if len(wrong) == len(term.match_expressions) or term.match_fields or not wrong:
        step = Step("remove", pointer(*where))
        yield Change("RemoveNodeAffinity", Actor.USER, 4, "remove the required node affinity", (site.pod_patch(step),))
        return
    for place, r in wrong:
        what = f"remove {r.key} {r.operator} {', '.join(r.values)} from the required node affinity".replace("  ", " ")
        step = Step("remove", pointer(*where, "nodeSelectorTerms", at, "matchExpressions", place))
        yield Change("RemoveNodeAffinity", Actor.USER, 3, what, (site.pod_patch(step),))


def _matching_value(requirement: NodeSelectorRequirement) -> str | None:
    """Return a label value that the requirement accepts; None if the label must not exist."""
    match requirement.operator:
        case "In":
            return requirement.values[0] if requirement.values else ""
        case "Exists":
            return "true"
        case "Gt" | "Lt":
            bound = integer(requirement.values[0]) if requirement.values else None
            return str((bound or 0) + (1 if requirement.operator == "Gt" else -1))
        case _:
            return None


def pod_affinity(site: Site) -> Iterator[Option]:
    """Drop the pod's required terms; or delete the pods that keep it away."""
    terms = [
        Change(
            code,
            Actor.USER,
            4,
            f"remove the required {what} at {term.topology_key}{f' (term {at + 1})' if len(side) > 1 else ''}",
            (site.pod_patch(Step("remove", pointer("spec", "affinity", field, _REQUIRED, at))),),
        )
        for field, code, what, side in _sides(site.pod)
        for at, term in enumerate(side)
    ]
    if terms:
        yield terms
    holders = deletion(site, _keeping_away(site))
    if holders:
        yield holders
        if terms:
            yield [*terms, *holders]


def _sides(pod: Pod) -> Iterator[tuple[str, str, str, tuple]]:  # type: ignore[type-arg]
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_affinity is not None:
        yield "podAffinity", "RemovePodAffinity", "pod affinity", affinity.pod_affinity.required
    if affinity is not None and affinity.pod_anti_affinity is not None:
        yield "podAntiAffinity", "RemovePodAntiAffinity", "pod anti-affinity", affinity.pod_anti_affinity.required


def _keeping_away(site: Site) -> list[PodInfo]:
    """Return the pods in the node's domains that the pod's anti-affinity means, or whose anti-affinity means it."""
    cluster, pod = site.cluster, site.pod
    namespaces = cluster.namespaces
    labels, namespace = pod.metadata.labels, pod.metadata.namespace
    found: dict[str, PodInfo] = {}
    for group in cluster.nodes.pod_terms.concerning(
        TermKind.REQUIRED_ANTI, namespace, labels, namespaces.labels(namespace)
    ):
        for other in _in_domain(site, group.term.topology_key):
            if any(term.key == group.term.key for term in pod_terms(other)):
                found[other.uid] = other
    for term in pod_terms(site.info):
        if term.kind is TermKind.REQUIRED_ANTI:
            for other in _in_domain(site, term.topology_key):
                metadata = other.pod.metadata
                if term.matches(metadata.namespace, metadata.labels, namespaces.labels(metadata.namespace)):
                    found[other.uid] = other
    return all_removable(site, found.values(), _PODS_MAX)


_DOMAIN_MAX: Final = 256
"""Pods are looked for on this many nodes of a domain."""


def _in_domain(site: Site, key: str) -> Iterator[PodInfo]:
    nodes = site.cluster.nodes
    value = site.node.metadata.labels.get(key)
    if value is None:
        return
    for count, slot in enumerate(nodeset.each(nodes.labels.equal(key, value))):
        if count == _DOMAIN_MAX:
            return
        yield from nodes.pods(slot).values()


def spread(site: Site) -> Iterator[Option]:
    """Allow more skew; or make the constraints soft."""
    rules = site.pod.spec.topology_spread_constraints
    hard = [(at, c) for at, c in enumerate(rules) if c.when_unsatisfiable == "DoNotSchedule"]
    keyed = [(at, c) for at, c in hard if c.topology_key in site.node.metadata.labels]

    def raised(at: int, key: str, before: int, skew: int) -> Change:
        step = Step("replace", pointer("spec", "topologySpreadConstraints", at, "maxSkew"), skew)
        what = f"allow a maxSkew of {skew} instead of {before} at {key}"
        return Change(
            "RaiseMaxSkew",
            Actor.USER,
            2,
            what,
            (site.pod_patch(step),),
            lambda amount: raised(at, key, before, amount),
            (before + 1, _SKEW_MAX),
        )

    yield [raised(at, c.topology_key, c.max_skew, _SKEW_MAX) for at, c in keyed]
    yield [_softened(site, at, c) for at, c in hard]


def _softened(site: Site, at: int, rule: TopologySpreadConstraint) -> Change:
    """Return the change to a soft constraint; a server refuses two soft ones with one key, and minDomains of a soft one."""
    rules, where = site.pod.spec.topology_spread_constraints, ("spec", "topologySpreadConstraints", at)
    key = rule.topology_key
    if any(other.topology_key == key and other.when_unsatisfiable == _SOFT for other in rules):
        what = f"remove the hard spread constraint at {key}, next to the soft one"
        return Change("RemoveSpreadConstraint", Actor.USER, 4, what, (site.pod_patch(Step("remove", pointer(*where))),))
    steps = [Step("replace", pointer(*where, "whenUnsatisfiable"), _SOFT)]
    what = f"make the spread constraint at {key} soft (whenUnsatisfiable: {_SOFT})"
    if rule.min_domains is not None:
        steps.append(Step("remove", pointer(*where, "minDomains")))
        what += ", without minDomains"
    return Change("SoftSpreadConstraint", Actor.USER, 4, what, (site.pod_patch(*steps),))


_SKEW_MAX: Final = 2**31 - 1
_SOFT: Final = "ScheduleAnyway"


# -- ports -----------------------------------------------------------------------------------------------------------


def ports(site: Site) -> Iterator[Option]:
    """Give up the host ports; or delete the pods that have them."""
    held = {(port.protocol, port.port) for other in site.pods() for port in other.host_ports}
    freed = []
    for kind, containers in (
        ("containers", site.pod.spec.containers),
        ("initContainers", site.pod.spec.init_containers),
    ):
        for at, container in enumerate(containers):
            for number, port in enumerate(container.ports):
                if (port.protocol or "TCP", port.host_port) in held:
                    step = Step("remove", pointer("spec", kind, at, "ports", number, "hostPort"))
                    if site.pod.spec.host_network:
                        step = Step("remove", pointer("spec", kind, at, "ports", number))
                    what = f"give up host port {port.host_port}/{port.protocol or 'TCP'} of container {container.name}"
                    freed.append(Change("GiveUpHostPort", Actor.USER, 3, what, (site.pod_patch(step),)))
    if freed:
        yield freed
    wanted = {(port.protocol, port.port) for port in site.info.host_ports}
    holders = [other for other in site.pods() if any((p.protocol, p.port) in wanted for p in other.host_ports)]
    yield deletion(site, all_removable(site, holders, _PODS_MAX))
