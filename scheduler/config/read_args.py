"""Reads and checks the `args` of one pluginConfig entry (docs/spec/core.md §6.4).

Upstream checks NodeResourcesFit only when the plugin is built; here everything is checked at load.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Set as AbstractSet
from typing import Any, Final

from scheduler.config.args import (
    CAPACITY_SHAPE,
    CPU_AND_MEMORY,
    KUBE_SCHEDULER_V1,
    KUBESTOW_V1ALPHA1,
    SPELLED,
    UPSTREAM,
    DefaultConstraint,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    KnownArgs,
    KubestowArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    VolumeBindingArgs,
)
from scheduler.config.durations import format_duration
from scheduler.config.errors import Findings
from scheduler.config.fields import INT32_MAX, INT64_MAX, Fields, shown
from scheduler.config.names import csi_driver_problem, qualified_name_problem
from scheduler.config.read_affinity import read_node_affinity
from scheduler.config.types import CAPACITY_SCORING
from scheduler.core.devicegates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, FILTER_TIMEOUT

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
RATIO: Final = "RequestedToCapacityRatio"


def read_args(
    name: str, value: Any, path: str, *, findings: Findings, feature_gates: AbstractSet[str]
) -> KnownArgs | None:
    """The typed arguments of plugin `name`; None if it is not one of those that have arguments of ours."""
    if name not in _READERS and name not in _GATED:
        return None
    with Fields(value, path, findings) as fields:
        version = KUBESTOW_V1ALPHA1 if name == KubestowArgs.plugin else KUBE_SCHEDULER_V1
        for field, wanted in (("apiVersion", version), ("kind", f"{name}Args")):
            given = fields.text(field, wanted)
            if given != wanted:
                fields.error(field, f"must be {wanted}, got {shown(given)}")
        gated = _GATED.get(name)
        return gated(fields, feature_gates) if gated is not None else _READERS[name](fields)


def _default_preemption(fields: Fields) -> DefaultPreemptionArgs:
    percentage = fields.integer("minCandidateNodesPercentage", 10, low=0, high=100)
    absolute = fields.integer("minCandidateNodesAbsolute", 100, low=0)
    if percentage == 0 and absolute == 0:
        fields.error("minCandidateNodesPercentage", "cannot be 0 at the same time as minCandidateNodesAbsolute")
    return DefaultPreemptionArgs(percentage, absolute)


def _inter_pod_affinity(fields: Fields) -> InterPodAffinityArgs:
    return InterPodAffinityArgs(
        hard_pod_affinity_weight=fields.integer("hardPodAffinityWeight", 1, low=0, high=100),
        ignore_preferred_terms_of_existing_pods=fields.boolean("ignorePreferredTermsOfExistingPods", False),
    )


def _node_affinity(fields: Fields) -> NodeAffinityArgs:
    if not fields.has("addedAffinity"):
        fields.raw("addedAffinity")
        return NodeAffinityArgs()
    return NodeAffinityArgs(added_affinity=read_node_affinity(fields.child("addedAffinity")))


def _node_resources_fit(fields: Fields) -> NodeResourcesFitArgs:
    resources = fields.texts("ignoredResources", qualified_name_problem)
    groups = fields.texts("ignoredResourceGroups", _group_problem)
    with fields.child("scoringStrategy") as strategy:
        return NodeResourcesFitArgs(resources, groups, _scoring_strategy(strategy))


def _group_problem(group: str) -> str:
    return "must not contain '/'" if "/" in group else qualified_name_problem(group)


def _scoring_strategy(fields: Fields) -> ScoringStrategy:
    kind = fields.choice("type", "LeastAllocated", STRATEGIES)
    resources = _resources(fields, high=100)
    given = fields.has(_RATIO_FIELD)
    shape: tuple[ShapePoint, ...] = ()
    with fields.child(_RATIO_FIELD) as ratio:
        if given or kind == RATIO:
            shape = _shape(ratio)
    if given and kind != RATIO:
        fields.error(_RATIO_FIELD, f"must be absent when type is not {RATIO}")
    return ScoringStrategy(kind, resources, shape)


def _balanced_allocation(fields: Fields) -> NodeResourcesBalancedAllocationArgs:
    resources = _resources(fields, high=1)
    seen: set[str] = set()
    for at, resource in enumerate(resources):
        if resource.name in seen:
            fields.error(f"resources[{at}].name", f"{shown(resource.name)} is listed twice")
        seen.add(resource.name)
    return NodeResourcesBalancedAllocationArgs(resources)


def _resources(fields: Fields, *, high: int) -> tuple[ResourceWeight, ...]:
    """Weight 0 means 1, an empty list the default, as upstream."""
    found = []
    for item in fields.children("resources"):
        with item:
            name = item.required("name", qualified_name_problem)
            weight = item.integer("weight", 1, low=-INT64_MAX, high=INT64_MAX)
            if not 0 <= weight <= high:
                item.error("weight", f"must be {f'between 1 and {high}' if high > 1 else '1'}, got {weight}")
            found.append(ResourceWeight(name, weight or 1))
    return tuple(found) or CPU_AND_MEMORY


def _shape(fields: Fields) -> tuple[ShapePoint, ...]:
    """At least one point, utilization 0..100 strictly increasing (told once), score 0..10."""
    points: list[ShapePoint] = []
    told = False
    for item in fields.children("shape"):
        with item:
            # 101 after an out-of-range 50 is in order: one mistake is not told as two.
            utilization = item.integer("utilization", None if item.has("utilization") else 0, low=0, high=100)
            if not told and points and utilization is not None and utilization <= points[-1].utilization:
                item.error("utilization", f"must be greater than the one before, got {utilization}")
                told = True
            score = item.integer("score", 0, low=0, high=10)
            points.append(ShapePoint(-1 if utilization is None else utilization, score))
    if not points:
        fields.error("shape", "at least one point must be specified")
    return tuple(points)


def _pod_topology_spread(fields: Fields) -> PodTopologySpreadArgs:
    kind = fields.choice("defaultingType", "System", ("System", "List"))
    constraints = tuple(_constraint(item) for item in fields.children("defaultConstraints"))
    if kind == "System" and constraints:
        fields.error("defaultingType", "must be List when defaultConstraints are given, got System")
    seen: set[tuple[str, str]] = set()
    for at, constraint in enumerate(constraints):
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            fields.error(f"defaultConstraints[{at}]", f"{pair[0]} with {pair[1]} is listed twice")
        seen.add(pair)
    return PodTopologySpreadArgs(constraints, kind)


def _constraint(fields: Fields) -> DefaultConstraint:
    with fields:
        if fields.raw("labelSelector") is not None:
            fields.error("labelSelector", "a default constraint has no selector: it is deduced for each pod")
        if not fields.has("maxSkew"):
            fields.error("maxSkew", "is required")
        action = fields.choice("whenUnsatisfiable", "", ("DoNotSchedule", "ScheduleAnyway"))
        least = fields.integer("minDomains", None, low=1)
        if least is not None and action == "ScheduleAnyway":
            fields.error("minDomains", "can only be given with whenUnsatisfiable DoNotSchedule")
        return DefaultConstraint(
            max_skew=fields.integer("maxSkew", 1, low=1),
            topology_key=fields.required("topologyKey", qualified_name_problem),
            when_unsatisfiable=action,
            min_domains=least,
            node_affinity_policy=_policy(fields, "nodeAffinityPolicy"),
            node_taints_policy=_policy(fields, "nodeTaintsPolicy"),
            match_label_keys=fields.texts("matchLabelKeys", qualified_name_problem),
        )


def _policy(fields: Fields, name: str) -> str | None:
    if not fields.has(name):
        fields.raw(name)
        return None
    return fields.choice(name, "Honor", ("Honor", "Ignore"))


def _volume_binding(fields: Fields, feature_gates: AbstractSet[str]) -> VolumeBindingArgs:
    """Upstream's words (docs/spec/volumes.md §6.6)."""
    capacity_scoring = CAPACITY_SCORING in feature_gates
    timeout_s = fields.integer("bindTimeoutSeconds", 600, low=-INT64_MAX, high=INT64_MAX)
    if timeout_s < 0:
        wrong = "invalid BindTimeoutSeconds, should not be a negative value"
        fields.error("bindTimeoutSeconds", f"Invalid value: {timeout_s}: {wrong}")
        timeout_s = 600
    given = fields.raw("shape")
    if given is None:
        return VolumeBindingArgs(float(timeout_s), CAPACITY_SHAPE if capacity_scoring else ())
    if not capacity_scoring:
        wrong = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        fields.error("shape", f"Invalid value: {shown(given)}: {wrong}")
        return VolumeBindingArgs(float(timeout_s))
    return VolumeBindingArgs(float(timeout_s), _capacity_shape(fields) or CAPACITY_SHAPE)


def _capacity_shape(fields: Fields) -> tuple[ShapePoint, ...]:
    """As `_shape`, but an empty one is allowed, and a point may be told to be out of order and out of range."""
    points: list[ShapePoint] = []
    told = False
    for item in fields.children("shape"):
        with item:
            point = ShapePoint(_any_int32(item, "utilization"), _any_int32(item, "score"))
            if not told and points and point.utilization <= points[-1].utilization:
                told = True
                wrong = "values must be sorted in increasing order"
                item.error("utilization", f"Invalid value: {point.utilization}: {wrong}")
            for name, value, high in (("utilization", point.utilization, 100), ("score", point.score, 10)):
                if not 0 <= value <= high:
                    item.error(name, f"Invalid value: {value}: not in valid range [0, {high}]")
            points.append(point)
    return tuple(points)


def _any_int32(fields: Fields, name: str) -> int:
    return fields.integer(name, 0, low=-INT32_MAX)


def _dynamic_resources(fields: Fields, feature_gates: AbstractSet[str]) -> DynamicResourcesArgs:
    """Upstream's words (docs/spec/dra.md §3.1). A time that counts for nothing is a mistake, as there."""
    usual = DynamicResourcesArgs()
    search_s = fields.seconds("filterTimeout", usual.filter_timeout_s)
    if FILTER_TIMEOUT not in feature_gates:
        _forbidden(fields, "filterTimeout", "DRASchedulingFilterTimeout feature gate is disabled")
    elif search_s < 0:
        _invalid(fields, "filterTimeout", search_s, "must be zero or positive")
    binding_s = fields.seconds("bindingTimeout", usual.binding_timeout_s)
    if not feature_gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}:
        gates = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus"
        _forbidden(fields, "bindingTimeout", f"{gates} feature gate is disabled")
    elif binding_s < 1:
        _invalid(fields, "bindingTimeout", binding_s, "must be at least 1 second")
    return DynamicResourcesArgs(search_s, binding_s)


def _forbidden(fields: Fields, name: str, why: str) -> None:
    if fields.has(name):
        fields.error(name, f"Forbidden: {why}")


def _invalid(fields: Fields, name: str, seconds: float, why: str) -> None:
    fields.error(name, f'Invalid value: "{format_duration(seconds)}": {why}')


def _kubestow(fields: Fields) -> KubestowArgs:
    parity = fields.boolean("parity", False)
    usual = KubestowArgs(parity=parity)
    given = KubestowArgs(
        victims=fields.choice("victims", "all", ("all", "own", "ownFirst")),
        storage_capacity_reservation=fields.choice(
            "storageCapacityReservation", usual.storage_capacity_reservation, ("ledger", "none")
        ),
        clear_stale_selected_node=fields.choice(
            "clearStaleSelectedNode", usual.clear_stale_selected_node, ("own", "none")
        ),
        require_csi_node_drivers=fields.texts("requireCSINodeDrivers", csi_driver_problem),
        volume_write_retries=fields.integer("volumeWriteRetries", usual.volume_write_retries, low=0, high=10),
        bind_poll=fields.choice("bindPoll", usual.bind_poll, ("events", "upstream")),
        treat_binding_as_unbound=fields.boolean("treatBindingAsUnbound", usual.treat_binding_as_unbound),
        count_attached_twice=fields.boolean("countAttachedTwice", usual.count_attached_twice),
        zone_ephemeral=fields.choice("zoneEphemeral", usual.zone_ephemeral, ("on", "none")),
        pre_bind_live_check=fields.choice("preBindLiveCheck", usual.pre_bind_live_check, ("claims", "none")),
        device_scoring=fields.choice("deviceScoring", usual.device_scoring, ("pack", "firstFit")),
        device_preemption=fields.choice("devicePreemption", usual.device_preemption, ("on", "none")),
        device_double_check=fields.choice("deviceDoubleCheck", usual.device_double_check, ("on", "none")),
    )
    if not parity:
        return given
    for name, upstream in UPSTREAM.items():
        if getattr(given, name) != upstream:
            wanted = "absent" if upstream == () else shown(upstream)
            fields.error(SPELLED[name], f"must be {wanted} where parity is true")
    return dataclasses.replace(usual, victims=given.victims)


_GATED: Final[Mapping[str, Callable[[Fields, AbstractSet[str]], KnownArgs]]] = {
    VolumeBindingArgs.plugin: _volume_binding,
    DynamicResourcesArgs.plugin: _dynamic_resources,
}
"""Those for which it matters which of kube-scheduler's gates are on."""
_RATIO_FIELD: Final = "requestedToCapacityRatio"
_READERS: Final[Mapping[str, Callable[[Fields], KnownArgs]]] = {
    DefaultPreemptionArgs.plugin: _default_preemption,
    InterPodAffinityArgs.plugin: _inter_pod_affinity,
    NodeAffinityArgs.plugin: _node_affinity,
    NodeResourcesFitArgs.plugin: _node_resources_fit,
    NodeResourcesBalancedAllocationArgs.plugin: _balanced_allocation,
    PodTopologySpreadArgs.plugin: _pod_topology_spread,
    KubestowArgs.plugin: _kubestow,
}
