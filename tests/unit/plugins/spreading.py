"""Topology spread in tests: short ways to say it, and the rules of docs/spec/core.md §5.8 taken literally.

The reference looks at every pod of every node, keeps nothing, and knows no sets and no columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.api.core_v1 import Node, TopologySpreadConstraint
from scheduler.api.node_affinity import required_affinity_matches, untolerated
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.core import nodeset
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import EMPTY_SPREAD
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code
from scheduler.plugins.podtopologyspread import PodTopologySpread
from tests.unit import objects
from tests.unit.harness import manifest, typed
from tests.unit.plugins.ask import Refusals

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SKEWED = (Code.UNSCHEDULABLE, ("node(s) didn't match pod topology spread constraints",))
KEYLESS = (Code.UNRESOLVABLE, ("node(s) didn't match pod topology spread constraints (missing required label)",))
FOO: dict[str, Any] = {"matchLabels": {"foo": ""}}
BAR: dict[str, Any] = {"matchLabels": {"bar": ""}}
LIST = PodTopologySpreadArgs((), "List")

# -- short ways to say it ----------------------------------------------------------------------------------------------


def hard(key: str = ZONE, skew: int = 1, *, selector: dict[str, Any] | None = FOO, **more: Any) -> dict[str, Any]:
    """A constraint on pods labelled `foo` if nothing else is said; `more` in the API's spelling."""
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return constraint if selector is None else {**constraint, "labelSelector": selector}


def soft(key: str = ZONE, skew: int = 1, **more: Any) -> dict[str, Any]:
    """As `hard`, to be honoured only as far as it goes."""
    return {**hard(key, skew, **more), "whenUnsatisfiable": "ScheduleAnyway"}


def pod(
    name: str = "p",
    *constraints: dict[str, Any],
    labels: str | Mapping[str, str] = "foo",
    ns: str = "default",
    owner: str = "",
    **more: Any,
) -> PodInfo:
    """`labels` are words without values, or a mapping; `owner` is `Kind/name`; `more` as the harness's `manifest`."""
    words = dict.fromkeys(labels.split(), "") if isinstance(labels, str) else dict(labels)
    raw = manifest(name, uid=name, labels=words, topologySpreadConstraints=list(constraints), **more)
    raw["metadata"]["namespace"] = ns
    if owner:
        kind, _, owner_name = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "controller": True}
        raw["metadata"]["ownerReferences"] = [reference]
    return pod_info(typed(raw))


def node(name: str, *more_labels: str, taints: Iterable[str] = (), **labels: str) -> Node:
    """In the zone of its first letter, with its name as hostname; `zone=""` and `host=""` leave these out."""
    zone, host = labels.pop("zone", name[0]), labels.pop("host", name)
    found = {**dict.fromkeys(more_labels, ""), **labels}
    if zone:
        found[ZONE] = zone
    if host:
        found[HOST] = host
    return objects.node(name, labels=found, taints=tuple(taints))


def on(**counts: int | str) -> list[PodInfo]:
    """Pods by node: a number of pods labelled `foo`, or one per comma with these labels (`a1="foo bar, bar"`)."""
    out = []
    for name, said in counts.items():
        each = ["foo"] * said if isinstance(said, int) else said.split(",")
        out += [pod(f"on-{name}-{at}", labels=labels, on=name) for at, labels in enumerate(each)]
    return out


def scored_among(
    plugin: PodTopologySpread, seen: Cluster, incoming: PodInfo, names: Iterable[str]
) -> dict[str, int] | None:
    """PreScore, Score and NormalizeScore of these candidates by name; None if the plugin skips."""
    state, nodes = CycleState(), seen.nodes
    candidates = nodes.by_name(names)
    if plugin.pre_score(state, incoming, candidates) is not None:
        return None
    column = finish(answered(plugin.score(state, incoming, candidates)))
    column = plugin.normalize_score(state, incoming, column, nodeset.slots(candidates, nodes.capacity))
    assert len(column) == nodes.capacity
    return {nodes.name(slot): int(column[slot]) for slot in nodeset.each(candidates)}


# -- the rules, literally ----------------------------------------------------------------------------------------------


def expected_refusals(
    seen: Cluster, incoming: PodInfo, args: PodTopologySpreadArgs, gates: frozenset[str] = frozenset()
) -> Refusals | None:
    """PreFilter and Filter for every node there is; None if PreFilter skips."""
    constraints = _constraints(seen, incoming, args, "DoNotSchedule")
    if not constraints:
        return None
    nodes = _nodes(seen)
    counts = []
    for constraint, selector in constraints:
        found: dict[str, int] = {}
        for other in nodes:
            if _has_all(other, constraints) and _is_included(constraint, incoming, other):
                value = other.metadata.labels[constraint.topology_key]
                found[value] = found.get(value, 0) + _count(seen, other, selector, incoming, gates)
        counts.append(found)
    out: Refusals = {}
    for one in nodes:
        for (constraint, selector), found in zip(constraints, counts):
            its = one.metadata.labels.get(constraint.topology_key)
            if its is None:
                out[one.metadata.name] = KEYLESS
                break
            least = 0 if len(found) < (constraint.min_domains or 1) else min(found.values())
            itself = selector is not None and selector.matches(incoming.pod.metadata.labels)
            if found.get(its, 0) + itself - least > constraint.max_skew:
                out[one.metadata.name] = SKEWED
                break
    return out


def expected_scores(
    seen: Cluster,
    incoming: PodInfo,
    args: PodTopologySpreadArgs,
    names: Iterable[str],
    gates: frozenset[str] = frozenset(),
) -> dict[str, int] | None:
    """PreScore, Score and NormalizeScore for these candidates."""
    constraints = _constraints(seen, incoming, args, "ScheduleAnyway")
    if not constraints:
        return None
    requires_all = bool(incoming.pod.spec.topology_spread_constraints) or args.defaulting_type != "System"
    candidates = [one for one in _nodes(seen) if one.metadata.name in set(names)]
    scored = [one for one in candidates if not requires_all or _has_all(one, constraints)]
    raw = {one.metadata.name: 0.0 for one in scored}
    for constraint, selector in constraints:
        key = constraint.topology_key
        size = len(scored) if key == HOST else len({one.metadata.labels.get(key, "") for one in scored})
        weight = math.log(size + 2)
        found: dict[str, int] = {}
        for other in _nodes(seen):
            if (not requires_all or _has_all(other, constraints)) and _is_included(constraint, incoming, other):
                value = other.metadata.labels.get(key, "")
                found[value] = found.get(value, 0) + _count(seen, other, selector, incoming, gates)
        for one in scored:
            if key in one.metadata.labels:
                of_it = (
                    _count(seen, one, selector, incoming, gates)
                    if key == HOST
                    else found.get(one.metadata.labels[key], 0)
                )
                raw[one.metadata.name] += of_it * weight + float(constraint.max_skew - 1)
    rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
    lowest, highest = min(rounded.values(), default=0), max(rounded.values(), default=0)
    out = {one.metadata.name: 0 for one in candidates}
    for name, score in rounded.items():
        out[name] = 100 * (highest + lowest - score) // highest if highest else 100
    return out


def _constraints(
    seen: Cluster, incoming: PodInfo, args: PodTopologySpreadArgs, action: str
) -> list[tuple[TopologySpreadConstraint, LabelSelector | None]]:
    own = incoming.pod.spec.topology_spread_constraints
    if own:
        return [(c, _own_selector(c, incoming.pod.metadata.labels)) for c in own if c.when_unsatisfiable == action]
    selector = seen.workloads.default_selector(incoming.pod)
    if selector is None:
        return []
    defaults = args.default_constraints
    if args.defaulting_type == "System":
        defaults = (DefaultConstraint(3, HOST, "ScheduleAnyway"), DefaultConstraint(5, ZONE, "ScheduleAnyway"))
    return [
        (
            TopologySpreadConstraint(
                c.max_skew,
                c.topology_key,
                min_domains=c.min_domains,
                node_affinity_policy=c.node_affinity_policy,
                node_taints_policy=c.node_taints_policy,
            ),
            selector,
        )
        for c in defaults
        if c.when_unsatisfiable == action
    ]


def _own_selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> LabelSelector | None:
    selector = constraint.label_selector
    if selector is None:
        return None
    own = [LabelSelectorRequirement(k, "In", (labels[k],)) for k in constraint.match_label_keys if k in labels]
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *own))


def _nodes(seen: Cluster) -> list[Node]:
    found = (seen.nodes.node(slot) for slot in nodeset.each(seen.nodes.present))
    return [one for one in found if one is not None]


def _has_all(one: Node, constraints: Iterable[tuple[TopologySpreadConstraint, object]]) -> bool:
    return all(constraint.topology_key in one.metadata.labels for constraint, _ in constraints)


def _is_included(constraint: TopologySpreadConstraint, incoming: PodInfo, other: Node) -> bool:
    if constraint.node_affinity_policy != "Ignore" and not required_affinity_matches(
        incoming.pod, other.metadata.name, other.metadata.labels
    ):
        return False
    is_tainted = untolerated(incoming.pod.spec.tolerations, other.spec.taints) is not None
    return not (constraint.node_taints_policy == "Honor" and is_tainted)


def _count(seen: Cluster, one: Node, selector: LabelSelector | None, incoming: PodInfo, gates: frozenset[str]) -> int:
    if selector is None or (selector == LabelSelector() and EMPTY_SPREAD not in gates):
        return 0
    slot = seen.nodes.slot(one.metadata.name)
    assert slot is not None
    metadatas = [info.pod.metadata for info in seen.nodes.pods(slot).values()]
    return sum(
        metadata.namespace == incoming.pod.metadata.namespace
        and metadata.deletion_timestamp is None
        and selector.matches(metadata.labels)
        for metadata in metadatas
    )
