"""The spread constraints of a pod, and the nodes that count for them (docs/spec/core.md §5.8).

A pod has its own constraints or the profile's defaults. They are computed once for all pods that they cannot
distinguish: of a pod with constraints only the labels matter that these read, so the pods of a StatefulSet share
them. Default constraints select the pods that the pod's Services and its owner select.

Topology keys and inclusion policies decide on which nodes pods count. Only the pod's own nodeSelector and node
affinity are used, not those that a profile adds. A cordon is not a taint here, although the taint that the node
controller adds to it is one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict
from typing import Final

import msgspec

from scheduler.api.core_v1 import TopologySpreadConstraint, controller_of
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.nodes.node_groups import admitting, refusing
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pods import Selection, selection
from scheduler.cache.workloads import Workloads
from scheduler.config.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.core.caching import Interner
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.memo import ByObjects

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS: Final = (
    DefaultConstraint(3, HOSTNAME, "ScheduleAnyway"),
    DefaultConstraint(5, ZONE, "ScheduleAnyway"),
)
_KNOWN_MAX: Final = 8192


class Constraint(msgspec.Struct, frozen=True, eq=False):
    """One constraint of one shape of pods.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/common.go topologySpreadConstraint
    """

    topology_key: str
    max_skew: int
    min_domains: int
    honors_affinity: bool
    """Pods count only on nodes that match the pod's nodeSelector and required node affinity."""
    honors_taints: bool
    """Pods count only on nodes without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    selector: LabelSelector | None
    """With the pod's own values of matchLabelKeys."""
    counted: Selection
    """Pods of the namespace that are not terminating. Before 1.38 an empty selector counts no pods."""
    counts_itself: bool
    """The selector matches the pod itself; an empty selector matches every pod."""


class Constraints(msgspec.Struct, frozen=True, eq=False):
    """The hard or the soft constraints of a shape of pods, in order. Compared by identity."""

    each: tuple[Constraint, ...]
    requires_all: bool
    """Nodes that lack one of the topology keys are excluded."""
    honors_affinity: bool
    honors_taints: bool


class SpreadRules(msgspec.Struct, frozen=True, eq=False):
    """All constraints of a shape of pods."""

    hard: Constraints
    soft: Constraints


class SpreadRulesCache:
    """Pod → its rules, for one profile."""

    def __init__(self, args: PodTopologySpreadArgs, workloads: Workloads, *, counts_for_empty: bool) -> None:
        """Create the cache. `counts_for_empty`: an empty selector counts all pods of the namespace, not none."""
        self._counts_for_empty = counts_for_empty
        self._is_system = args.defaulting_type == "System"
        # matchLabelKeys have no effect: they narrow a selector, and a default constraint has none.
        self._defaults = tuple(
            TopologySpreadConstraint(**asdict(default))
            for default in (SYSTEM_DEFAULTS if self._is_system else args.default_constraints)
        )
        self.has_defaults = bool(self._defaults)
        self.has_hard_defaults = any(c.when_unsatisfiable == "DoNotSchedule" for c in self._defaults)
        self._workloads = workloads
        self._generation = workloads.generation
        self._labels_read: Interner[bytes, tuple[str, ...]] = Interner(_KNOWN_MAX)
        self._own: Interner[Hashable, SpreadRules] = Interner(_KNOWN_MAX)
        self._by_default: Interner[Hashable, SpreadRules] = Interner(_KNOWN_MAX)

    def has_hard(self, pod: PodInfo) -> bool:
        """Return whether any constraint can reject nodes. A look-up, and not even that for most pods."""
        return bool(pod.spread_shape or self.has_hard_defaults) and bool(self.of(pod).hard.each)

    def of(self, pod: PodInfo) -> SpreadRules:
        """Return the pod's rules, by its current Services and owner. A look-up for a known shape."""
        if not pod.spread_shape and not self._defaults:
            return NONE
        interner = self._own if pod.spread_shape else self._fresh_defaults()
        shape = self.shape(pod)
        rules = interner.get(shape)
        if rules is None:
            rules = interner.share(shape, self._own_of(pod) if pod.spread_shape else self._defaults_of(pod))
        return rules

    def shape(self, pod: PodInfo) -> Hashable:
        """Return the pod's shape: pods of equal shape have equal rules."""
        metadata = pod.pod.metadata
        labels = metadata.labels
        if pod.spread_shape:
            read = self._labels_read.get(pod.spread_shape)
            if read is None:
                read = self._read(pod)
            return pod.spread_shape, metadata.namespace, *map(labels.get, read)
        owner = controller_of(pod.pod)
        owner_key = (owner.api_version, owner.kind, owner.name) if owner is not None else None
        return metadata.namespace, frozenset(labels.items()), owner_key

    def _fresh_defaults(self) -> Interner[Hashable, SpreadRules]:
        if self._generation != self._workloads.generation:
            self._generation = self._workloads.generation
            self._by_default.clear()
        return self._by_default

    def _read(self, pod: PodInfo) -> tuple[str, ...]:
        names: set[str] = set()
        for constraint in pod.pod.spec.topology_spread_constraints:
            selector = constraint.label_selector or LabelSelector()
            names.update(constraint.match_label_keys, selector.match_labels)
            names.update(requirement.key for requirement in selector.match_expressions)
        return self._labels_read.share(pod.spread_shape, tuple(sorted(names)))

    def _own_of(self, pod: PodInfo) -> SpreadRules:
        labels = pod.pod.metadata.labels
        return _rules(
            pod,
            ((c, _narrowed(c, labels)) for c in pod.pod.spec.topology_spread_constraints),
            soft_requires_all=True,
            counts_for_empty=self._counts_for_empty,
        )

    def _defaults_of(self, pod: PodInfo) -> SpreadRules:
        selector = self._workloads.default_selector(pod.pod)
        if selector is None:
            return NONE
        constraints = ((c, selector) for c in self._defaults)
        return _rules(pod, constraints, soft_requires_all=not self._is_system, counts_for_empty=self._counts_for_empty)


def _rules(
    pod: PodInfo,
    constraints: Iterable[tuple[TopologySpreadConstraint, LabelSelector | None]],
    *,
    soft_requires_all: bool,
    counts_for_empty: bool,
) -> SpreadRules:
    hard: list[Constraint] = []
    soft: list[Constraint] = []
    for constraint, selector in constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            hard.append(_constraint(pod, constraint, selector, counts_for_empty=counts_for_empty))
        elif constraint.when_unsatisfiable == "ScheduleAnyway":
            soft.append(_constraint(pod, constraint, selector, counts_for_empty=counts_for_empty))
    return SpreadRules(_together(hard, requires_all=True), _together(soft, requires_all=soft_requires_all))


def _together(constraints: list[Constraint], *, requires_all: bool) -> Constraints:
    return Constraints(
        tuple(constraints),
        requires_all=requires_all,
        honors_affinity=any(c.honors_affinity for c in constraints),
        honors_taints=any(c.honors_taints for c in constraints),
    )


def _constraint(
    pod: PodInfo, constraint: TopologySpreadConstraint, selector: LabelSelector | None, *, counts_for_empty: bool
) -> Constraint:
    metadata = pod.pod.metadata
    counts = selector is not None and (counts_for_empty or not selector.is_empty)
    terms = ((frozenset({metadata.namespace}), selector),) if counts else ()
    return Constraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honors_taints=constraint.node_taints_policy == "Honor",
        selector=selector,
        counted=selection(terms, counts_terminating=False),
        counts_itself=selector is not None and selector.matches(metadata.labels),
    )


def _narrowed(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> LabelSelector | None:
    """Return the selector with the pod's own values of matchLabelKeys. A nil selector stays: it matches nothing."""
    selector = constraint.label_selector
    own = tuple(
        LabelSelectorRequirement(key, "In", (labels[key],)) for key in constraint.match_label_keys if key in labels
    )
    if selector is None or not own:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *own))


NONE: Final = SpreadRules(_together([], requires_all=True), _together([], requires_all=True))


class EligibleNodes(msgspec.Struct, frozen=True):
    """The nodes where the pods of one constraint count."""

    nodes: NodeSet | None
    """None for all nodes that have the key, which is the default of a count over domains."""
    keyless: NodeSet
    """Nodes without the key whose pods count for the value "", if some node has that value."""


class EligibleNodesCache:
    """Constraints of a pod → the nodes where each counts. Cached while no node object changes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._cached: ByObjects[tuple[EligibleNodes, ...]] = ByObjects(nodes)

    def of(self, pod: PodInfo, constraints: Constraints) -> tuple[EligibleNodes, ...]:
        """Return one set per constraint, in order."""
        affinity = pod.placement_shape if constraints.honors_affinity else b""
        tolerations = pod.pod.spec.tolerations if constraints.honors_taints else ()
        return self._cached.get((constraints, affinity, tolerations), lambda: self._made(pod, constraints))

    def _made(self, pod: PodInfo, constraints: Constraints) -> tuple[EligibleNodes, ...]:
        nodes = self._nodes
        everywhere = nodes.present
        if constraints.requires_all:
            for constraint in constraints.each:
                everywhere &= nodes.labels.having(constraint.topology_key)
        admitted = admitting(nodes, pod.pod.spec) if constraints.honors_affinity else everywhere
        refused = refusing(nodes, pod.pod.spec.tolerations) if constraints.honors_taints else EMPTY
        made = []
        for constraint in constraints.each:
            included = everywhere
            if constraint.honors_affinity:
                included &= admitted
            if constraint.honors_taints:
                included &= ~refused
            made.append(self._eligible(constraint, included))
        return tuple(made)

    def _eligible(self, constraint: Constraint, included: NodeSet) -> EligibleNodes:
        labels, key = self._nodes.labels, constraint.topology_key
        having = labels.having(key)
        counting = included & having
        keyless = included & ~having if labels.equal(key, "") else EMPTY
        return EligibleNodes(None if counting == having else counting, keyless)
