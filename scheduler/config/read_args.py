"""Read and check the `args` of one pluginConfig entry (docs/spec/core.md §6.4).

The v1.NodeAffinity of NodeAffinity's arguments is checked and returned as it is written. The API server never sees
it, so everything that kube-scheduler can parse is allowed (docs/spec/core.md §5.4, §6.4). Upstream checks the
arguments of NodeResourcesFit when the plugin is built; here everything is checked at load.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from scheduler.api.meta import label_key, label_value
from scheduler.api.selectors import integer
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
from scheduler.config.errors import Findings
from scheduler.config.fields import Fields, csi_driver, quoted, read, shown
from scheduler.config.schema import INT32_MAX, INT64_MAX, spelled
from scheduler.core.feature_gates import CAPACITY_SCORING

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_FOR_LABELS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FOR_FIELDS: Final = ("In", "NotIn")
_NOTHING_IN: Final = "for 'in', 'notin' operators, values set can't be empty"
_VALUES_FOR_EXISTS: Final = "values set must be empty for exists and does not exist"
_NOT_ONE: Final = "for 'Gt', 'Lt' operators, exactly one value is required"
_NO_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"


def read_node_affinity(fields: Fields) -> Mapping[str, Any]:
    """Return the affinity as a plain mapping, without nulls at the top."""
    with fields:
        given = {name: fields.raw(name) for name in (_REQUIRED, _PREFERRED) if fields.has(name)}
        with fields.child(_REQUIRED) as required:
            for term in required.children("nodeSelectorTerms"):
                _term(term)
        for preferred in fields.children(_PREFERRED):
            with preferred:
                # Upstream accepts a negative weight, and then fails pods with their score.
                preferred.within("weight", 0, (0, INT32_MAX), "not in valid range [0, inf)")
                _term(preferred.child("preference"))
        return given


def _term(term: Fields) -> None:
    with term:
        for expression in term.children("matchExpressions"):
            with expression:
                _label_requirement(expression)
        for expression in term.children("matchFields"):
            with expression:
                _field_requirement(expression)


def _label_requirement(fields: Fields) -> None:
    key, values = fields.text("key"), fields.texts("values")
    operator = fields.choice("operator", "", _FOR_LABELS)
    if not operator:
        return
    if found := label_key(key):
        fields.invalid("key", key, "; ".join(found))
    written = list(values) if fields.has("values") else None
    if operator in {"In", "NotIn"} and not values:
        fields.invalid("values", written, _NOTHING_IN)
    if operator in {"Exists", "DoesNotExist"} and values:
        fields.invalid("values", written, _VALUES_FOR_EXISTS)
    if operator in {"Gt", "Lt"}:
        if len(values) != 1:
            fields.invalid("values", written, _NOT_ONE)
        for at, value in enumerate(values):
            if integer(value) is None:
                fields.invalid(f"values[{at}]", value, _NO_INTEGER)
    for at, value in enumerate(values):
        if found := label_value(value):
            fields.invalid(f"values[{at}][{key}]", value, "; ".join(found))


def _field_requirement(fields: Fields) -> None:
    fields.choice("key", "", ("metadata.name",))  # upstream accepts any key, and finds it on no node
    values = fields.texts("values")
    if fields.choice("operator", "", _FOR_FIELDS) and len(values) != 1:
        fields.invalid("values", list(values) if fields.has("values") else None, "must have one element")


STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
RATIO: Final = "RequestedToCapacityRatio"
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")


def read_args(name: str, value: Any, path: str, *, findings: Findings) -> KnownArgs | None:
    """Return the typed arguments of plugin `name`; None if no arguments are known for it.

    Upstream: pkg/scheduler/apis/config/validation/validation_pluginargs.go ValidateVolumeBindingArgs
    """
    if name not in _READERS:
        return None
    with Fields(value, path, findings) as fields:
        version = KUBESTOW_V1ALPHA1 if name == KubestowArgs.plugin else KUBE_SCHEDULER_V1
        for field, wanted in (("apiVersion", version), ("kind", f"{name}Args")):
            given = fields.text(field, wanted)
            if given != wanted:
                fields.error(field, f"must be {wanted}, got {shown(given)}")
        return _READERS[name](fields)


def _default_preemption(fields: Fields) -> DefaultPreemptionArgs:
    args = read(DefaultPreemptionArgs, fields)
    if args.min_candidate_nodes_percentage == args.min_candidate_nodes_absolute == 0:
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        fields.invalid(percentage, 0, f"cannot be zero at the same time as {absolute}")
        fields.invalid(absolute, 0, f"cannot be zero at the same time as {percentage}")
    return args


def _node_affinity(fields: Fields) -> NodeAffinityArgs:
    affinity = read_node_affinity(fields.child("addedAffinity"))
    return NodeAffinityArgs(affinity if fields.has("addedAffinity") else None)


def _node_resources_fit(fields: Fields) -> NodeResourcesFitArgs:
    return read(NodeResourcesFitArgs, fields, scoring_strategy=lambda: _scoring_strategy(fields))


def _scoring_strategy(args: Fields) -> ScoringStrategy:
    """Read the strategy. Only a missing strategy has a default type."""
    given = args.has("scoringStrategy")
    with args.child("scoringStrategy") as fields:
        return _strategy(fields, given=given)


def _strategy(fields: Fields, *, given: bool) -> ScoringStrategy:
    kind = fields.choice("type", "" if given else ScoringStrategy().type, STRATEGIES)
    why = "resource weight of {} not in valid range (0, 100]"
    resources = _resources(fields, lambda each: "" if 0 < each.weight <= 100 else why.format(each.name))
    shape: tuple[ShapePoint, ...] = ()
    has_ratio = fields.has(_RATIO_FIELD)
    with fields.child(_RATIO_FIELD) as ratio:
        points = _points(ratio)
        if kind == RATIO and has_ratio:
            shape = _shape(ratio, points)
    if kind == RATIO and not has_ratio:
        fields.error(_RATIO_FIELD, f"Required value: must be specified when type is {RATIO}")
    if kind != RATIO and has_ratio:
        fields.error(_RATIO_FIELD, f"Forbidden: must be nil when type is not {RATIO}")
    return ScoringStrategy(kind, resources, shape)


def _balanced_allocation(fields: Fields) -> NodeResourcesBalancedAllocationArgs:
    resources = _resources(fields, lambda resource: "" if resource.weight == 1 else "must be 1")
    seen: set[str] = set()
    for at, resource in enumerate(resources):
        if resource.name in seen:
            fields.error(f"resources[{at}].name", f"Duplicate value: {quoted(resource.name)}")
        seen.add(resource.name)
    return NodeResourcesBalancedAllocationArgs(resources)


def _resources(fields: Fields, weight_problem: Callable[[ResourceWeight], str]) -> tuple[ResourceWeight, ...]:
    """Read resources with weights.

    As upstream, weight 0 means 1, an empty list means the default, and all names are accepted.
    """
    found = []
    for item in fields.children("resources"):
        with item:
            resource = read(ResourceWeight, item)
            if why := weight_problem(resource):
                item.invalid("weight", resource.weight, why)
            found.append(resource)
    return tuple(found) or CPU_AND_MEMORY


def _points(fields: Fields) -> list[tuple[Fields, ShapePoint]]:
    points = []
    for item in fields.children("shape"):
        with item:
            points.append((item, read(ShapePoint, item)))
    return points


def _shape(fields: Fields, points: Sequence[tuple[Fields, ShapePoint]]) -> tuple[ShapePoint, ...]:
    """Check a shape: at least one point, utilization 0..100 strictly increasing (reported once), score 0..10."""
    if not points:
        fields.error("shape", "Required value: at least one point must be specified")
    for (_, before), (item, point) in itertools.pairwise(points):
        if point.utilization <= before.utilization:
            item.invalid("utilization", point.utilization, "values must be sorted in increasing order")
            break
    for item, point in points:
        for name, value, high in (("utilization", point.utilization, 100), ("score", point.score, 10)):
            if not 0 <= value <= high:
                item.invalid(name, value, f"not in valid range [0, {high}]")
    return tuple(point for _, point in points)


def _pod_topology_spread(fields: Fields) -> PodTopologySpreadArgs:
    kind = fields.choice("defaultingType", "System", ("System", "List"))
    constraints = tuple(_constraint(item) for item in fields.children("defaultConstraints"))
    if kind == "System" and constraints:
        fields.invalid("defaultingType", kind, "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for at, constraint in enumerate(constraints):
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            fields.error(f"defaultConstraints[{at}]", f'Duplicate value: "{{{", ".join(pair)}}}"')
        seen.add(pair)
    return PodTopologySpreadArgs(constraints, kind)


def _constraint(fields: Fields) -> DefaultConstraint:
    """Read a default constraint.

    As upstream, any minDomains is accepted and counts as at least 1, as are unknown policies and label keys.
    """
    with fields:
        if fields.raw("labelSelector") is not None:
            why = "constraint must not define a selector, as they deduced for each pod"
            fields.error("labelSelector", f"Forbidden: {why}")
        skew = fields.integer("maxSkew", 0)
        if skew <= 0:
            fields.invalid("maxSkew", skew, "not in valid range (0, inf)")
        action = fields.required("whenUnsatisfiable", why="can not be empty")
        return read(
            DefaultConstraint,
            fields,
            max_skew=lambda: skew,
            topology_key=lambda: fields.required("topologyKey", label_key, why="can not be empty"),
            when_unsatisfiable=lambda: fields.choice("whenUnsatisfiable", "", ACTIONS) if action else "",
            node_affinity_policy=lambda: _policy(fields, "nodeAffinityPolicy"),
            node_taints_policy=lambda: _policy(fields, "nodeTaintsPolicy"),
        )


def _policy(fields: Fields, name: str) -> str | None:
    chosen = fields.choice(name, "Honor", ("Honor", "Ignore"))
    return chosen if fields.has(name) else None


def _volume_binding(fields: Fields) -> VolumeBindingArgs:
    """Read VolumeBinding's arguments (docs/spec/volumes.md §6.6).

    An empty shape is the default if a shape is allowed, otherwise a mistake.
    """
    timeout_s = fields.integer("bindTimeoutSeconds", 600, high=INT64_MAX)
    if timeout_s < 0:
        why = "invalid BindTimeoutSeconds, should not be a negative value"
        fields.invalid("bindTimeoutSeconds", timeout_s, why)
    given, points = fields.has("shape"), _points(fields)
    if CAPACITY_SCORING in fields.findings.feature_gates:
        return VolumeBindingArgs(float(timeout_s), _shape(fields, points) if points else CAPACITY_SHAPE)
    if given:
        why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        shape = [{"Utilization": point.utilization, "Score": point.score} for _, point in points]
        fields.invalid("shape", shape, why)
    return VolumeBindingArgs(float(timeout_s))


def _kubestow(fields: Fields) -> KubestowArgs:
    parity = fields.boolean("parity", False)
    usual = KubestowArgs(parity=parity)
    given: dict[str, Any] = {
        name: fields.choice(spelled(name), getattr(usual, name), _CHOICES[name])
        if name in _CHOICES
        else fields.texts(spelled(name), csi_driver)
        for name in ("victims", *SPELLED)
    }
    if not parity:
        return KubestowArgs(**given)
    for name, spelling in SPELLED.items():
        if given[name] != (upstream := UPSTREAM[name]):
            wanted = "absent" if upstream == () else shown(upstream)
            fields.error(spelling, f"must be {wanted} where parity is true")
    return dataclasses.replace(usual, victims=given["victims"])


_CHOICES: Final = {
    name: get_args(kind) for name, kind in get_type_hints(KubestowArgs).items() if get_origin(kind) is Literal
}
"""The words that a switch may have."""
_RATIO_FIELD: Final = "requestedToCapacityRatio"
_READERS: Final[Mapping[str, Callable[[Fields], KnownArgs]]] = {
    DefaultPreemptionArgs.plugin: _default_preemption,
    InterPodAffinityArgs.plugin: functools.partial(read, InterPodAffinityArgs),
    NodeAffinityArgs.plugin: _node_affinity,
    NodeResourcesFitArgs.plugin: _node_resources_fit,
    NodeResourcesBalancedAllocationArgs.plugin: _balanced_allocation,
    PodTopologySpreadArgs.plugin: _pod_topology_spread,
    VolumeBindingArgs.plugin: _volume_binding,
    DynamicResourcesArgs.plugin: functools.partial(read, DynamicResourcesArgs),
    KubestowArgs.plugin: _kubestow,
}
