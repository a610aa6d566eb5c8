"""The extension points: upstream's, for all nodes at once, plus Verify (docs/spec/core.md §3.2, ADR 0002, ADR 0003).

A plugin is a plain class with a `name` and any of these methods; there is no base class. Only the outcome of Permit,
PreBind, Bind and PostBind may wait. Raising `AttemptError` ends the attempt with SchedulerError.

Functions of topics that several plugins share are here (`Topics`). Register them as they are: the queue then calls
each once per event, for all plugins and profiles that name it. Topics are hashable values without further meaning.

Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go FilterPlugin, ScorePlugin, ReservePlugin
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node
from scheduler.api.node_affinity import NODE_NAME_FIELD
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import probes
from scheduler.cache.nodes.nodes import NodeView
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import EMPTY, NodeSet, Slots
from scheduler.framework.status import Groups, Narrow, Nominate, Rejection, Skip, Wait

NODE_CAME: Final = "a node came"
"""The topic of pods that may go to a node with any labels, or without any."""


def label(key: str, value: str | None = None) -> Hashable:
    """Return the topic of a node label that got this value, or without a value, of any change of the label."""
    return key, value


def named(node_name: str) -> Hashable:
    """Return the topic for a new node with this name."""
    return NODE_NAME_FIELD, node_name


def by_node_labels(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Yield the topics of every label that differs; of a node that was added or removed, those of all its labels."""
    before = old.metadata.labels if old is not None else {}
    after = new.metadata.labels if new is not None else {}
    for key, value in after.items():
        if before.get(key) != value:
            yield label(key)
            yield label(key, value)
    for key in before:
        if key not in after:
            yield label(key)
    if old is None and new is not None:
        yield NODE_CAME
        yield named(new.metadata.name)


def by_pod_labels(old: PodInfo | None, new: PodInfo | None) -> tuple[Hashable, ...]:
    """Return the index keys of all selectors that may select the pod before or after the change (`anchors.anchors`)."""
    before = probes(old.pod.metadata.namespace, old.pod.metadata.labels) if old is not None else ()
    after = probes(new.pod.metadata.namespace, new.pod.metadata.labels) if new is not None else ()
    return before + after


class Hint(enum.Enum):
    """The result of a hint; `value` is the label of queueing_hint_execution_duration_seconds.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go QueueingHint
    """

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFn: TypeAlias = Callable[[PodInfo, Any, Any], Hint]
"""`(waiting pod, old, new)`: `PodInfo` for pod events, core objects for other events, None where absent.

An exception is logged and counts as QUEUE.
"""

OfPod: TypeAlias = Callable[[PodInfo], Iterable[Hashable] | None]
OfEvent: TypeAlias = Callable[[Any, Any], Iterable[Hashable] | None]


class Topics(msgspec.Struct, frozen=True):
    """The inputs that a hint's result depends on, so that an event evaluates only the waiting pods that it can concern.

    Invariant: the hint says QUEUE only if one of the two functions returns None, or both return a common topic. It
    may still say SKIP, because topics only save calls of the hint. An exception is logged and counts as None.

    For a plugin that gates pods (PreEnqueue) topics also decide: a gated pod is evaluated only at events that share a
    topic with it, according to the gating plugin.

    For registrations with the same `of_event`, it is called once per event. Registrations of one plugin with the same
    shape and `of_pod` share one index.
    """

    of_pod: OfPod
    """Returns the topics that the result for a waiting pod can depend on; None for all topics.

    It is called when the first pod of a shape begins to wait, for all pods of that shape. So pods of equal shape must
    have equal topics. Besides the pod it may read only the cause of the rejection: later changes are not what the pod
    waits for.
    """
    of_event: OfEvent
    """`(old, new)` as for the hint; returns the topics of the event.

    None means all topics, and an empty result means none.
    """


@dataclass(frozen=True, slots=True)
class EventHint:
    """One registration of a plugin.

    `hint is None` means that a retry is always worthwhile. `shape` maps a waiting pod to a value; pods of equal value
    must always get the same result. The queue then calls the hint once per value instead of once per rejected pod. A
    hint that depends on the pod's identity (events about the waiting pod itself) must not have a shape. `topics`
    limit the calls to some of the shapes.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go ClusterEventWithHint, QueueingHintFn
    """

    event: ClusterEvent
    hint: HintFn | None = None
    shape: Callable[[PodInfo], Hashable] | None = None
    topics: Topics | None = None

    def __post_init__(self) -> None:
        if self.topics is not None and (self.hint is None or self.shape is None):
            raise ValueError(f"a registration for {self.event.label} has topics: it needs a hint and a shape")


T = TypeVar("T")


class StateKey(Generic[T]):
    """A typed key in a `CycleState`. Keys are compared by identity, so two keys never collide."""

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True, slots=True)
class AttemptMode:
    """How an attempt looks for a node. Most attempts of a plan of several pods evict none."""

    preempts: bool = True
    is_tentative: bool = False
    """Whether PostFilter only says what it would do, because the whole plan may still fail. It writes nothing then."""
    packs: bool = False
    """Whether the fullest of the nodes is taken, whatever the scores are."""
    besides: NodeSet = EMPTY
    """Nodes that are left out. What the attempt says about them has no meaning."""
    within: NodeSet | None = None
    """The nodes that exist for the attempt, and that it counts; None for all."""
    shares: bool = False
    """Whether the pod may use what is in flight for other pods of its group."""

    def allows(self, slot: int) -> bool:
        """Return whether the node at this slot may be chosen."""
        return not self.besides >> slot & 1 and (self.within is None or bool(self.within >> slot & 1))


ALONE: Final = AttemptMode()


class CycleState:
    """The data that plugins store between the extension points of one attempt of one pod. Attempts never share it.

    Upstream: pkg/scheduler/framework/cycle_state.go CycleState
    """

    __slots__ = ("_values", "is_sampled", "mode", "skip_filter", "skip_score")

    def __init__(self, *, is_sampled: bool = False, mode: AttemptMode = ALONE) -> None:
        self._values: dict[StateKey[Any], object] = {}
        self.mode = mode
        self.is_sampled = is_sampled
        """Whether the plugins of this attempt are timed one by one."""
        self.skip_filter: set[str] = set()
        """Plugins whose PreFilter returned Skip: their Filter, AddPod, RemovePod and Verify are not called."""
        self.skip_score: set[str] = set()

    def set(self, key: StateKey[T], value: T) -> None:
        self._values[key] = value

    def get(self, key: StateKey[T]) -> T:
        """Return a value; raise KeyError with the key's name if the plugin's PreFilter has not run."""
        try:
            return cast("T", self._values[key])
        except KeyError:
            raise KeyError(key.name) from None

    def has(self, key: StateKey[Any]) -> bool:
        """Return whether there is a value."""
        return key in self._values

    def clone(self) -> CycleState:
        """Return a copy for a trial: values that have a `clone` method are cloned, other values are shared."""
        other = CycleState(is_sampled=self.is_sampled, mode=self.mode)
        for key, value in self._values.items():
            clone = getattr(value, "clone", None)
            other._values[key] = clone() if clone is not None else value
        other.skip_filter = set(self.skip_filter)
        other.skip_score = set(self.skip_score)
        return other


Scores: TypeAlias = npt.NDArray[np.int64]
"""One value per slot (length `nodes.capacity`); slots that are not candidates are ignored."""

MAX_NODE_SCORE = 100


class Scored(msgspec.Struct):
    """The total score as a full-length column, the candidates' slots, and each plugin's weighted part for the record."""

    total: Scores
    slots: Slots
    parts: dict[str, Scores]


PostFiltered: TypeAlias = Nominate | Rejection
"""A rejection does not change the pod's nomination."""


class Tally(Protocol):
    """One filter's count of the pods on one node. An additional pod never makes the result better."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None: ...


class NodeSimulation(Protocol):
    """A hypothetical state of one node. Only pods of that node may be removed, and only removed pods may be added."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None:
        """Return the filters' result with and without nominated pods of equal or higher priority (§3.5).

        A filter that fails gives a rejection with `Code.ERROR`, which concerns only this node.
        """

    def judging(self) -> Work[Rejection | None] | None:
        """Return `verdict` as a generator that restores the cache where it yields; None where `verdict` is fast."""


class DryRun(Protocol):
    """A dry run for one pod whose PreFilter has run: it checks whether the pod fits on a node without some pods.

    It is valid until the attempt ends.
    """

    is_counted: bool
    """Whether results need no change of the cache, except on nodes where nominated pods make a difference."""
    alike: NodeSet
    """Nodes with the same result for every pod of this shape, so without the node that this pod is nominated to."""

    @property
    def nominated_to(self) -> str:
        """The node that the pod itself is nominated to; empty if there is none."""

    @property
    def shape(self) -> tuple[Hashable, ...]:
        """Equal for pods with equal results on equal nodes: of all filters if `is_counted`, else of `leading`."""

    def about(self, nodes: NodeSet) -> None:
        """Set the nodes of the next calls, so that filters that do not read pods run once for all of them."""

    @property
    def hopeless_nodes(self) -> NodeSet:
        """The nodes set by `about` that one of the leading filters rejects without reading pods."""

    def hopeless(self, slot: int) -> bool:
        """Return whether this node is one of `hopeless_nodes`."""

    def version(self, slot: int) -> int:
        """Return a number that changes whenever a nomination to this node begins or ends."""

    def on(self, slot: int) -> contextlib.AbstractContextManager[NodeSimulation]:
        """Return the node as it is; its pods may be removed and added again until the block ends."""

    def leading(self, slot: int) -> NodeSimulation | None:
        """Return the node for the filters before the first one that needs the cache.

        Their rejection is that of all filters. Return None if pods with precedence over this pod are nominated to the
        node.
        """


class Plugin(Protocol):
    """The part that all plugins have in common."""

    @property
    def name(self) -> str:
        """The name in configurations, messages and metrics."""


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """May keep a pod out of the queue. It gets only the pod."""

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """The order of the active queue, smallest first. `queued_at` is when the pod was last put into the queue."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]: ...


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    """The events that can help. A rejecting plugin without this method is registered for all events."""

    def events_to_register(self) -> Sequence[EventHint]: ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Called once per attempt. `nodes` are all nodes. None means that all of them stay candidates."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Narrow | Rejection | Skip | None: ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Update PreFilter state when `other` is added to or removed from a node; columns are already updated."""

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None: ...

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Called once with all candidates. It must not wait, write, or keep its arguments.

    A class attribute `depends_on_pods = False` means that its result does not depend on the pods on nodes.

    For a long computation, the method returns a generator that yields where the event loop may run, and returns the
    result. The cache does not change during the computation. The generator may be closed at any time, so it must not
    hold anything. The same applies to `verify` and `score`.
    """

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]: ...


@runtime_checkable
class TallyPlugin(Plugin, Protocol):
    """A Filter whose result on a node depends only on the pods of that node, and never gets better with more of them.

    The many checks of preemption are then computed without changes of the cache. Two pods with equal `tally_shape`s
    get equal results on equal nodes.
    """

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally: ...

    def tally_shape(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class ReadsNodePodsPlugin(Plugin, Protocol):
    """A Filter that reports whether a pod's result depends on other pods, also if `others` were added to nodes."""

    def reads_node_pods(self, state: CycleState, pod: PodInfo, others: Iterable[PodInfo]) -> bool: ...


@runtime_checkable
class FilterOnePlugin(Plugin, Protocol):
    """The same as FilterPlugin for one node, for plugin authors; the runner calls it per candidate (some µs per node)."""

    def filter_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> Rejection | None: ...


@runtime_checkable
class VerifyPlugin(Plugin, Protocol):
    """The exact result for one node, where `filter` checks only a necessary condition. The best node is verified first.

    A method `filter_is_exact(state, pod) -> bool` may return True if `filter` is exact for this pod; then Verify is
    not called.
    """

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None: ...


@runtime_checkable
class PrepareReservePlugin(Plugin, Protocol):
    """Not upstream's: a Reserve with a long computation. It is called right before the node is assumed."""

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        """Find and store what `reserve` will take on the node. It reserves nothing, so it may be closed at any time."""


@runtime_checkable
class PreemptibleNodesPlugin(Plugin, Protocol):
    """Not upstream's: a Filter that rejects as unresolvable, and finds later on which nodes an eviction would help.

    It is called only if no node fits, right before PostFilter. The rejections and their texts stay, but preemption
    also evaluates these nodes.
    """

    def preemptible_nodes(self, state: CycleState, pod: PodInfo, rejection: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        """Return some of the nodes that it rejected with `no`. The work yields at least between nodes."""


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits, with the rejections by group.

    It may be a generator that yields to the event loop. Nothing changes while it is suspended. No simulation of
    `what_if` may be open when it yields, except during `judging`.
    """

    def post_filter(
        self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun
    ) -> PostFiltered | Generator[None, None, PostFiltered]: ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Called once per attempt, with the feasible nodes; Skip excludes the plugin from scoring."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None: ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Raw scores for all nodes at once. The caller does not change the returned column."""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores | Work[Scores]: ...


@runtime_checkable
class ScoreOnePlugin(Plugin, Protocol):
    """The same as ScorePlugin for one node, for plugin authors."""

    def score_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> int: ...


@runtime_checkable
class NormalizeScorePlugin(Plugin, Protocol):
    """Normalizes raw scores to 0..100. `slots` are the candidates' slot numbers; it returns a new full-length column."""

    def normalize_score(
        self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]
    ) -> Scores: ...


@runtime_checkable
class PreferPlugin(Plugin, Protocol):
    """Not upstream's: chooses between nodes with equal scores, for Filter plugins. Upstream chooses at random."""

    def prefer(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> NodeSet:
        """Return a non-empty subset of `nodes`; all of them if the plugin has no preference."""


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Reserves what the pod needs on the node. `unreserve` is idempotent and is called even if `reserve` rejects."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class GroupPreemptionPlugin(Plugin, Protocol):
    """Says which pods a group may preempt. The search itself is scheduler/groups/preemption.py."""

    def may_evict(self, victim: PodInfo, preemptor: PodInfo) -> bool: ...

    def unit_of(self, victim: PodInfo) -> Sequence[PodInfo]: ...

    def in_turn_to_stay(self, victims: Iterable[PodInfo]) -> Work[Sequence[PodInfo]]: ...


@runtime_checkable
class GroupWaitPlugin(Plugin, Protocol):
    """Says whether something is being freed on a node to which a pod of a group is nominated, so that no more pods have to leave."""

    def waits_on(self, pod: PodInfo, slot: int) -> bool: ...


@runtime_checkable
class GroupReservePlugin(Plugin, Protocol):
    """Gives back what is written for pods of a group that was refused, so that it does not decide about their next nodes.

    `release_group` does not block. Called after each refusal, so it must be cheap if nothing is left.
    """

    def release_group(self, pods: Sequence[PodInfo]) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """The last check before binding: None allows, a rejection rejects, and Wait holds the pod."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Wait | Rejection | None: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Work that must end before the pod is bound. Cancellation takes effect between writes, never inside one.

    `pre_bind_pre_flight` returns Skip if there is nothing to do for this pod. `pre_bind` may raise `AttemptError`.
    Plugins with `pre_bind_parallel = True` may run in parallel. Plugins with `is_brief = True` usually end within
    seconds, so the write of the nominated node is saved. Plugins with `is_reversible = True` leave no trace when they are
    undone; for the pods of a group they come first.
    """

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None: ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Binds the pod; Skip passes it to the next Bind plugin. Raises `scheduler.core.errors.ApiError` types."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Called after the pod was bound."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class ExplainPlugin(Plugin, Protocol):
    """Not upstream's: explains what prevents a pod, in numbers. It is called on request and may be expensive."""

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None: ...


@runtime_checkable
class ReasonCodePlugin(Plugin, Protocol):
    """Not upstream's: names the cause of a rejection on one node more exactly than its text. It is called on request."""

    def reason_code(self, rejection: Rejection, pod: PodInfo, slot: int) -> str:
        """Return the stable code (docs/explain.md); "" for the code of the rejection."""
        ...
