"""Resolve which plugins run at which point, and in which order (docs/spec/core.md §6.3).

Pure functions: the caller passes what each plugin implements (`implements`), because only the framework knows the
classes. The default list is that of kube-scheduler v1.36 with its default feature gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.config.args import KUBE_SCHEDULER_V1, KubestowArgs
from scheduler.config.errors import Findings, below
from scheduler.config.fields import suggestion
from scheduler.config.schema import INT64_MAX
from scheduler.config.types import KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.feature_gates import NODE_NAME_FIRST

Implements: TypeAlias = Mapping[str, AbstractSet[str]]
"""Plugin name → the points it implements, in the file's spelling. A missing name is not built."""

MULTI_POINT: Final = "multiPoint"
POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
LATER_POINTS: Final = ("placementGenerate", "placementFeasible", "placementScore", "podGroupPostFilter")
"""Points of the schema for pod groups, accepted if they enable nothing. The last one is of 1.37, placementFeasible of 1.38."""

DEFAULT_PLUGINS: Final = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeUnschedulable"),
    PluginRef("NodeName"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    # Freeing an idle claim is tried before evicting a pod.
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)


GROUPS_PLUGIN: Final = PluginRef("GangScheduling")
"""Kubestow has it in its default list, kube-scheduler only while its feature gate GenericWorkload is on."""


def default_plugins(feature_gates: AbstractSet[str], *, has_groups: bool = False) -> Sequence[PluginRef]:
    """Return the default list. Since 1.37 NodeName comes before NodeUnschedulable."""
    added = (GROUPS_PLUGIN,) if has_groups else ()
    if NODE_NAME_FIRST not in feature_gates:
        return (*DEFAULT_PLUGINS, *added)
    first, second = PluginRef("NodeUnschedulable"), PluginRef("NodeName")
    swapped = {first: second, second: first}
    return (*(swapped.get(ref, ref) for ref in DEFAULT_PLUGINS), *added)


GATED_NAMES: Final = frozenset(
    {"GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount", "DeferredPodScheduling"}
)
"""Plugins that kube-scheduler adds to multiPoint while a gate is on, so that a configuration dumped from it lists them."""
KNOWN_NAMES: Final = GATED_NAMES | {ref.name for ref in DEFAULT_PLUGINS}
"""Every plugin of kube-scheduler v1.36 to v1.38, built here or not."""

REMOVED_NAMES: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins that v1 removed."""

_PRE_FILTER: Final = frozenset({"preFilter"})
_DONE_ELSEWHERE: Final[Mapping[str, AbstractSet[str]]] = {
    "NodeResourcesFit": frozenset({"preFilter", "preScore"}),
    "NodeName": _PRE_FILTER,
    "NodeUnschedulable": _PRE_FILTER,
    "TaintToleration": _PRE_FILTER,
}
"""Points of kube-scheduler's plugins whose work ours do at another point. They are accepted, and nothing is called.

The last three have PreFilter from 1.37 on. There they do nothing for pods without a node.
"""

_MAX_NODE_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class Resolved:
    """One list per point of POINTS, in the order of calls. Weights are 0 except at `score`, where none is 0.

    `absent`: plugins that upstream runs by default or with a gate, and that are not built here, in order.
    """

    points: Mapping[str, tuple[PluginRef, ...]]
    absent: tuple[str, ...] = ()


def resolve(
    plugins: Mapping[str, PluginSet],
    *,
    implements: Implements,
    default: Sequence[PluginRef] = DEFAULT_PLUGINS,
    path: str = "plugins",
) -> Resolved:
    """Return the ordered lists of a profile's plugin sets. Raises ConfigErrors with every mistake, under `path`."""
    findings = Findings()
    check_sets(plugins, path=path, findings=findings)
    _check_names(plugins, implements=implements, path=path, findings=findings)
    wrong = {
        point for point in plugins if any(f"{error.path}.".startswith(f"{path}.{point}.") for error in findings.errors)
    }

    def is_checked(point: str) -> bool:
        """Return whether the number of plugins at a point can be checked: not if a name is wrong."""
        return not wrong & {point, MULTI_POINT}

    wanted = merge(default, plugins.get(MULTI_POINT, PluginSet()))
    absent = tuple(ref.name for ref in wanted if ref.name not in implements)
    multi = [ref for ref in wanted if ref.name in implements]
    points = {point: _expand(point, multi, plugins.get(point, PluginSet()), implements=implements) for point in POINTS}

    if is_checked("queueSort") and len(points["queueSort"]) != 1:
        names = ", ".join(ref.name for ref in points["queueSort"]) or "none"
        findings.error(below(path, "queueSort"), f"exactly one plugin is needed, got {names}")
    if is_checked("bind") and not points["bind"]:
        findings.error(below(path, "bind"), "at least one plugin is needed")
    if sum(ref.weight for ref in points["score"]) * _MAX_NODE_SCORE > INT64_MAX:
        findings.error(below(path, "score"), "the sum of all weights is too large: a total score could overflow")
    findings.raise_any()
    return Resolved(points, absent)


def merge(default: Sequence[PluginRef], given: PluginSet) -> tuple[PluginRef, ...]:
    """Return step 1 of the merge: the defaults with the changes of the set.

    Defaults that are not disabled come first, each replaced in place if listed again, then new plugins in order.

    Upstream: pkg/scheduler/apis/config/v1/default_plugins.go mergePlugins
    """
    again = {ref.name: ref for ref in given.enabled}
    kept = [] if "*" in given.disabled else [ref for ref in default if ref.name not in given.disabled]
    replaced = {ref.name for ref in kept}
    return (*(again.get(ref.name, ref) for ref in kept), *(ref for ref in given.enabled if ref.name not in replaced))


def _expand(
    point: str, multi: Sequence[PluginRef], given: PluginSet, *, implements: Implements
) -> tuple[PluginRef, ...]:
    """Return step 2: plugins listed at the point and in multiPoint, then only in multiPoint, then only at the point.

    A plugin that the point both disables and enables counts as listed only at the point.
    """
    offered = [] if "*" in given.disabled else [ref for ref in multi if ref.name not in given.disabled]
    offered = [ref for ref in offered if point in implements[ref.name]]
    enabled = [ref for ref in given.enabled if point in implements.get(ref.name, ())]
    in_multi, at_point = {ref.name for ref in offered}, {ref.name for ref in enabled}
    ordered = (
        *(ref for ref in enabled if ref.name in in_multi),
        *(ref for ref in offered if ref.name not in at_point),
        *(ref for ref in enabled if ref.name not in in_multi),
    )
    if point == "score":
        return tuple(PluginRef(ref.name, ref.weight or 1) for ref in ordered)
    return tuple(PluginRef(ref.name) for ref in ordered)


def check_sets(plugins: Mapping[str, PluginSet], *, path: str, findings: Findings) -> None:
    """Record mistakes that are visible without the registry: `*`, duplicates and removed names among the enabled."""
    for point, given in plugins.items():
        seen: dict[str, int] = {}
        for at, ref in enumerate(given.enabled):
            where = f"{path}.{point}.enabled[{at}].name"
            if ref.name == "*":
                findings.error(where, '"*" has a meaning only in disabled')
            elif ref.name in REMOVED_NAMES:
                findings.error(f"{path}.{point}.enabled[{at}]", removed(ref.name))
            elif ref.name in seen:
                findings.error(where, f'plugin "{ref.name}" is already enabled by enabled[{seen[ref.name]}]')
            seen.setdefault(ref.name, at)


def removed(name: str) -> str:
    """Return the message for a name that v1 removed."""
    return f'Invalid value: "{name}": was invalid in version "v1" (KubeSchedulerConfiguration is version "{KUBE_SCHEDULER_V1}")'


def _check_names(plugins: Mapping[str, PluginSet], *, implements: Implements, path: str, findings: Findings) -> None:
    for point, given in plugins.items():
        accepted = {name for name in implements if _accepts(name, point, implements)}
        for at, ref in enumerate(given.enabled):
            where = f"{path}.{point}.enabled[{at}].name"
            if ref.name == "*" or ref.name in REMOVED_NAMES:
                continue
            if point == MULTI_POINT and ref.name in GATED_NAMES - implements.keys():
                continue  # a dump of kube-scheduler with the gate on; `Resolved.absent` has the name
            if ref.name not in implements:
                findings.error(where, _missing(ref.name, accepted - {ref.name for ref in given.enabled}))
            elif ref.name not in accepted:
                findings.error(where, f'plugin "{ref.name}" does not implement {point}')
        for at, name in enumerate(given.disabled):
            if name != "*" and name not in implements and name not in KNOWN_NAMES | REMOVED_NAMES:
                findings.error(f"{path}.{point}.disabled[{at}].name", _missing(name, KNOWN_NAMES | implements.keys()))


def _accepts(name: str, point: str, implements: Implements) -> bool:
    """Return whether a registered plugin may be enabled at the point."""
    return point in {MULTI_POINT, *implements[name], *_DONE_ELSEWHERE.get(name, ())}


def _missing(name: str, accepted: AbstractSet[str]) -> str:
    """Return the message for a plugin that is not registered. It suggests only a plugin that is accepted in its place."""
    if name in KNOWN_NAMES:
        return f'plugin "{name}" is not available in this version'
    return f'unknown plugin "{name}"{suggestion(name, sorted(accepted))}'


def check_args_have_plugins(profile: KubeSchedulerProfile, implements: Implements) -> None:
    """Raise ConfigErrors if pluginConfig names a plugin that is neither upstream's nor registered."""
    findings = Findings()
    for at, name in enumerate(profile.args):  # the given arguments come first, in the file's order
        if name not in implements and name not in KNOWN_NAMES and name != KubestowArgs.plugin:
            accepted = implements.keys() | {KubestowArgs.plugin}
            findings.error(f"{profile.path}.pluginConfig[{at}].name", _missing(name, accepted))
    findings.raise_any()


def check_common_queue_sort(resolved: Sequence[tuple[KubeSchedulerProfile, Resolved]]) -> None:
    """Raise ConfigErrors unless all profiles sort the queue by the same plugin and arguments: they share one queue."""
    findings = Findings()
    for profile, lists in resolved[1:]:
        first_profile, first = resolved[0]
        name, wanted = lists.points["queueSort"][0].name, first.points["queueSort"][0].name
        where = f"{profile.path}.plugins.queueSort"
        if name != wanted:
            findings.error(where, f"must be the same for all profiles: {name} here, {wanted} in {first_profile.path}")
        elif profile.args.get(name) != first_profile.args.get(name):
            findings.error(f"{profile.path}.pluginConfig", f"the args of {name} must be the same for all profiles")
    findings.raise_any()
