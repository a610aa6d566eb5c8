"""Builds the plugins of one scheduler name from the configuration, in order, for each extension point.

The methods of a plugin determine its extension points (docs/spec/core.md §6.3 for the order).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.config.args import KubestowArgs, RawArgs
from scheduler.config.errors import ConfigError, ConfigErrors, below, collecting
from scheduler.config.plugins import GROUPS_PLUGIN, Resolved, check_args_have_plugins, default_plugins, resolve
from scheduler.config.types import KubeSchedulerProfile as ProfileConfig, PluginRef
from scheduler.core import nodeset
from scheduler.core.cluster_events import ANYTHING
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import NodeSet
from scheduler.framework import interface as points
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Scores
from scheduler.framework.status import Groups, Rejection

Factory: TypeAlias = Callable[[Any, Handle], points.Plugin]

METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter", "filter_one"),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score", "score_one"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}
"""Extension point by its name in configurations → the methods that implement it."""

GANGS: Final = GROUPS_PLUGIN.name
"""The plugin without which pods of groups are placed one by one."""

_OURS: Final = "scheduler.plugins."

_REJECTING: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit")


class BoundFilter(msgspec.Struct, frozen=True):
    """A Filter plugin for all nodes at once, and its Verify if it has one."""

    name: str
    filter: Callable[[CycleState, PodInfo, NodeSet], Groups | Work[Groups]]
    verify: Callable[[CycleState, PodInfo, int], Rejection | Work[Rejection | None] | None] | None
    depends_on_pods: bool = True
    """False if its result does not depend on the pods on nodes."""
    tally: points.TallyPlugin | None = None
    reads_node_pods: Callable[[CycleState, PodInfo, Iterable[PodInfo]], bool] | None = None
    filter_is_exact: Callable[[CycleState, PodInfo], bool] | None = None
    """Whether Filter's result is exact for this pod, so that Verify need not be called."""
    preemptible_nodes: Callable[[CycleState, PodInfo, Rejection, NodeSet], Work[NodeSet]] | None = None
    """Of the nodes that it rejected as unresolvable, those where an eviction would help."""

    def is_exact(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether the result of Filter alone is exact."""
        return self.verify is None or (self.filter_is_exact is not None and self.filter_is_exact(state, pod))

    def is_flat(self, state: CycleState, pod: PodInfo, others: Iterable[PodInfo]) -> bool:
        """Return whether its result for this pod does not depend on the pods on nodes, also if `others` were added."""
        return not self.depends_on_pods or (
            self.reads_node_pods is not None and not self.reads_node_pods(state, pod, others)
        )


class BoundScore(msgspec.Struct, frozen=True):
    """A Score plugin for all nodes at once, with its weight."""

    name: str
    weight: int
    score: Callable[[CycleState, PodInfo, NodeSet], Scores | Work[Scores]]
    normalize: Callable[[CycleState, PodInfo, Scores, npt.NDArray[np.intp]], Scores] | None
    is_checked: bool
    """Whether the range of its scores is checked at each attempt; for our own plugins the tests check it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler name. Within each point they are in the order of their calls."""

    name: str
    percentage_of_nodes_to_score: int | None
    ours: KubestowArgs
    """Deliberate differences from upstream in this profile (docs/differences.md); `parity` switches them off."""
    starts_groups: bool
    """Whether the pods of a group are tried together."""
    pre_enqueue: tuple[points.PreEnqueuePlugin, ...]
    queue_sort: points.QueueSortPlugin
    pre_filter: tuple[points.PreFilterPlugin, ...]
    pre_filter_extensions: tuple[points.PreFilterExtensions, ...]
    filter: tuple[BoundFilter, ...]
    post_filter: tuple[points.PostFilterPlugin, ...]
    pre_score: tuple[points.PreScorePlugin, ...]
    score: tuple[BoundScore, ...]
    prefer: tuple[points.PreferPlugin, ...]
    reserve: tuple[points.ReservePlugin, ...]
    group_preemption: points.GroupPreemptionPlugin | None
    """The first PostFilter plugin that says which pods a group may preempt."""
    group_wait: tuple[points.GroupWaitPlugin, ...]
    group_reserve: tuple[points.GroupReservePlugin, ...]
    permit: tuple[points.PermitPlugin, ...]
    pre_bind: tuple[points.PreBindPlugin, ...]
    bind: tuple[points.BindPlugin, ...]
    post_bind: tuple[points.PostBindPlugin, ...]
    hints: Mapping[str, tuple[EventHint, ...]]
    reads: frozenset[str]
    """Kinds that the plugins need in addition to pods and nodes: each plugin names them in an attribute `reads`."""
    resolved: Resolved
    """The resolved plugin lists; `absent` in it names upstream's defaults that this version does not have."""
    plugins: Mapping[str, Sequence[str]]
    """Extension point → plugin names, for `check-config`. Those of Score have their weights."""

    def extensions(self, state: CycleState) -> Iterator[points.PreFilterExtensions]:
        """Return the PreFilter plugins with AddPod and RemovePod, without those that skip this pod."""
        return (plugin for plugin in self.pre_filter_extensions if plugin.name not in state.skip_filter)


def served_points(plugin: object) -> frozenset[str]:
    """Return the extension points that a plugin (instance or class) implements."""
    return frozenset(
        point for point, methods in METHODS.items() if any(callable(getattr(plugin, m, None)) for m in methods)
    )


def build(
    config: ProfileConfig,
    registry: Mapping[str, Factory],
    handle: Handle,
    *,
    percentage: int | None = None,
    rejecters: Iterable[str] = (),
) -> Profile:
    """Create and bind every plugin that the profile names; raise ConfigErrors with the paths.

    `percentage` is the global percentageOfNodesToScore, for a profile without its own value. `rejecters` are names
    under which other components reject pods. All events wake those pods.

    Upstream: pkg/scheduler/framework/runtime/framework.go NewFramework
    """
    ours = config.args_for(KubestowArgs)
    default = default_plugins(handle.feature_gates, has_groups=ours.groups == "on")
    named = {ref.name for ref in default}
    for chosen in config.plugins.values():
        named.update(ref.name for ref in chosen.enabled)
    made, resolved = _made_and_resolved(
        config, {name: registry[name] for name in registry if name in named}, registry, handle, default
    )
    nodes = handle.cluster.nodes
    at: dict[str, list[Any]] = {point: [made[ref.name] for ref in resolved.points.get(point, ())] for point in METHODS}
    weights = {ref.name: ref.weight for ref in resolved.points.get("score", ())}
    own = config.percentage_of_nodes_to_score
    rejecting = {p.name: p for point in _REJECTING for p in at[point]}
    return Profile(
        name=config.scheduler_name,
        percentage_of_nodes_to_score=percentage if own is None else own,
        ours=ours,
        starts_groups=any(plugin.name == GANGS for plugin in at["preEnqueue"]),
        pre_enqueue=tuple(at["preEnqueue"]),
        queue_sort=cast("points.QueueSortPlugin", at["queueSort"][0]),
        pre_filter=tuple(at["preFilter"]),
        pre_filter_extensions=tuple(p for p in at["preFilter"] if isinstance(p, points.PreFilterExtensions)),
        filter=tuple(_bound_filter(p, nodes) for p in at["filter"]),
        post_filter=tuple(at["postFilter"]),
        pre_score=tuple(at["preScore"]),
        score=tuple(_bound_score(p, weights[p.name], nodes) for p in at["score"]),
        prefer=tuple(p for p in at["filter"] if isinstance(p, points.PreferPlugin)),
        reserve=tuple(at["reserve"]),
        group_preemption=next((p for p in at["postFilter"] if isinstance(p, points.GroupPreemptionPlugin)), None),
        group_wait=tuple(p for p in at["postFilter"] if isinstance(p, points.GroupWaitPlugin)),
        group_reserve=tuple(p for p in at["reserve"] if isinstance(p, points.GroupReservePlugin)),
        permit=tuple(at["permit"]),
        pre_bind=tuple(at["preBind"]),
        bind=tuple(at["bind"]),
        post_bind=tuple(at["postBind"]),
        hints={
            **{name: _hints(plugin) for name, plugin in rejecting.items()},
            **dict.fromkeys(rejecters, (EventHint(ANYTHING),)),
        },
        reads=frozenset(kind for plugins_at in at.values() for p in plugins_at for kind in getattr(p, "reads", ())),
        resolved=resolved,
        plugins={
            point: [f"{p.name}:{weights[p.name]}" if point == "score" else p.name for p in plugins_at]
            for point, plugins_at in at.items()
            if plugins_at
        },
    )


def _made_and_resolved(
    config: ProfileConfig,
    wanted: Mapping[str, Factory],
    registry: Mapping[str, Factory],
    handle: Handle,
    default: Sequence[PluginRef],
) -> tuple[dict[str, points.Plugin], Resolved]:
    """Create the wanted plugins and resolve their order; raise ConfigErrors with the errors of all of them."""
    errors: list[ConfigError] = []
    made: dict[str, points.Plugin] = {}
    for name, factory in wanted.items():
        with collecting(errors):
            made[name] = _made(name, factory, config, handle)
    implements = {name: served_points(plugin) for name, plugin in made.items()}
    # The points of a plugin that cannot be created are unknown: it already has its own error, and gets no second one.
    # The default queue sort stays, because the number of plugins at that point is checked.
    implements |= dict.fromkeys(wanted.keys() - made.keys(), frozenset(METHODS) - {"queueSort"})
    installed = {name: implements.get(name, frozenset()) for name in registry}
    with collecting(errors):
        check_args_have_plugins(config, installed)  # also for plugins that this profile does not enable
    with collecting(errors):
        resolved = resolve(
            config.plugins,
            implements=implements,
            default=default,
            path=f"{config.path}.plugins",
        )
    if errors:
        raise ConfigErrors(list({(error.path, error.message): error for error in errors}.values()))
    return made, resolved


def _made(name: str, factory: Factory, config: ProfileConfig, handle: Handle) -> points.Plugin:
    """Create the plugin. A third-party plugin that fails is a ConfigError of its arguments; ours raise as they are."""
    args = config.args.get(name)
    try:
        return factory(args, handle)
    except ConfigErrors:
        raise
    except Exception as error:
        if getattr(factory, "__module__", "").startswith(_OURS):
            raise
        where = args.path if isinstance(args, RawArgs) else below(config.path, "plugins")
        what = f'plugin "{name}" cannot be created from these arguments: {type(error).__name__}: {error}'
        raise ConfigErrors([ConfigError(where, what)]) from error


def _hints(plugin: object) -> tuple[EventHint, ...]:
    return (
        tuple(plugin.events_to_register()) if isinstance(plugin, points.EnqueueExtensions) else (EventHint(ANYTHING),)
    )


def _bound_filter(plugin: Any, nodes: Nodes) -> BoundFilter:
    verify = plugin.verify if isinstance(plugin, points.VerifyPlugin) else None
    reads_node_pods = isinstance(plugin, points.ReadsNodePodsPlugin) and verify is None
    return BoundFilter(
        plugin.name,
        plugin.filter if isinstance(plugin, points.FilterPlugin) else _filtering_each(plugin, nodes),
        verify,
        # heeds_pods is the former name
        depends_on_pods=bool(getattr(plugin, "depends_on_pods", getattr(plugin, "heeds_pods", True))),
        tally=plugin if isinstance(plugin, points.TallyPlugin) and verify is None else None,
        reads_node_pods=plugin.reads_node_pods if reads_node_pods else None,
        filter_is_exact=getattr(plugin, "filter_is_exact", None),
        preemptible_nodes=plugin.preemptible_nodes if isinstance(plugin, points.PreemptibleNodesPlugin) else None,
    )


def _filtering_each(one: points.FilterOnePlugin, nodes: Nodes) -> Callable[[CycleState, PodInfo, NodeSet], Groups]:
    def filter_each(state: CycleState, pod: PodInfo, candidates: NodeSet) -> Groups:
        groups: Groups = {}
        for slot in nodeset.each(candidates):
            rejection = one.filter_one(state, pod, nodes.view(slot))
            if rejection is not None:
                groups[rejection] = groups.get(rejection, nodeset.EMPTY) | 1 << slot
        return groups

    return filter_each


def _bound_score(plugin: Any, weight: int, nodes: Nodes) -> BoundScore:
    normalize = plugin.normalize_score if isinstance(plugin, points.NormalizeScorePlugin) else None
    is_checked = not type(plugin).__module__.startswith(_OURS)
    if isinstance(plugin, points.ScorePlugin):
        return BoundScore(plugin.name, weight, plugin.score, normalize, is_checked)
    one = cast("points.ScoreOnePlugin", plugin)

    def score_each(state: CycleState, pod: PodInfo, candidates: NodeSet) -> Scores:
        column = np.zeros(nodes.capacity, dtype=np.int64)
        for slot in nodeset.each(candidates):
            column[slot] = one.score_one(state, pod, nodes.view(slot))
        return column

    return BoundScore(one.name, weight, score_each, normalize, is_checked)
