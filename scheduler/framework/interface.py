"""The extension points: upstream's, for all nodes at once, plus Verify (docs/spec/core.md §3.2).

What events are about, in the terms that several plugins wait in (`hints.Topics`).

A function here is to be registered as it is: the queue then calls it once per event, however many plugins and profiles
name it. Topics are hashable values and mean nothing by themselves.

The extension points: upstream's, for all nodes at once, plus Verify (docs/spec/core.md §3.2, ADR 0002, ADR 0003).

A plugin is a plain class with a `name` and any of these methods; no base class. Nothing here may wait except
Permit's outcome, PreBind, Bind and PostBind. Raising `AttemptError` ends the attempt with SchedulerError.

Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go FilterPlugin, ScorePlugin, ReservePlugin
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node
from scheduler.api.node_affinity import NODE_NAME_FIELD
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import probes
from scheduler.cache.nodes.nodes import NodeView
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import NodeSet
from scheduler.framework.status import Groups, Narrow, Nominate, Rejection, Skip, Wait

NODE_CAME: Final = "a node came"
"""Whoever may go to a node whatever labels it has, or lacks, waits for this one."""


def label(key: str, value: str | None = None) -> Hashable:
    """The node's label got this value; without a value: it came, went or changed."""
    return key, value


def named(node_name: str) -> Hashable:
    """The node with this name came."""
    return NODE_NAME_FIELD, node_name


def by_node_labels(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Every label that differs, with its new value; of a node that came, or went, that is all of them."""
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
    """Where the selectors are filed that may select the pod, as it was or as it is (`anchors.anchors`)."""
    before = probes(old.pod.metadata.namespace, old.pod.metadata.labels) if old is not None else ()
    after = probes(new.pod.metadata.namespace, new.pod.metadata.labels) if new is not None else ()
    return before + after


class Hint(enum.Enum):
    """`value` is the label of queueing_hint_execution_duration_seconds.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go QueueingHint
    """

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFn: TypeAlias = Callable[[PodInfo, Any, Any], Hint]
"""`(waiting pod, old, new)`: objects are `PodInfo` for pod events, core objects for others, None where absent.

An exception is logged and counts as QUEUE.
"""

OfPod: TypeAlias = Callable[[PodInfo], Iterable[Hashable] | None]
OfEvent: TypeAlias = Callable[[Any, Any], Iterable[Hashable] | None]


@dataclass(frozen=True, slots=True)
class Topics:
    """What a hint's answer depends on, so that an event asks only for the waiting pods that it can concern.

    The law: the hint says QUEUE only if one of the two answers None, or both name a common topic. It may well say SKIP
    then: topics save questions, they decide nothing. An exception is logged and counts as None. Of a plugin that gates pods
    (PreEnqueue) they do decide: a gated pod is asked about only at events that share a topic with it, by its gate's words.

    Registrations that share `of_event` have it called once per event; those of a plugin that share shape and `of_pod`
    are kept in one index.
    """

    of_pod: OfPod
    """What the answer for a waiting pod can depend on; None for anything.

    Asked when the first pod of a shape begins to wait, for all of that shape: pods of equal shape must have equal
    topics. Beyond the pod it may look only at what it was refused for: what turns up later is not what it waits for.
    """
    of_event: OfEvent
    """`(old, new)` as for the hint: what the event is about; None for everything, nothing for nobody."""


@dataclass(frozen=True, slots=True)
class EventHint:
    """One registration of a plugin.

    `hint is None` means: always worth a try. `shape` maps a waiting pod to a value such that pods of equal value
    always get the same answer; the queue then asks once per value instead of once per pod. Without it every
    waiting pod that the plugin rejected is asked. A hint that depends on the pod's own identity (events about
    the waiting pod itself) must not have a shape. `topics` narrow the question down to some of the shapes.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go ClusterEventWithHint, QueueingHintFn
    """

    event: ClusterEvent
    hint: HintFn | None = None
    shape: Callable[[PodInfo], Hashable] | None = None
    topics: Topics | None = None

    def __post_init__(self) -> None:
        if self.topics is not None and (self.hint is None or self.shape is None):
            raise ValueError(f"a registration for {self.event.label} has topics: it needs a hint and a shape, too")


T = TypeVar("T")


class StateKey(Generic[T]):
    """A typed place in a `CycleState`. Compared by identity: two keys never collide, whatever their names."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class CycleState:
    """What plugins remember between the extension points of one attempt of one pod. Never shared between attempts.

    Upstream: pkg/scheduler/framework/cycle_state.go CycleState
    """

    __slots__ = ("_values", "is_sampled", "skip_filter", "skip_score")

    def __init__(self, *, is_sampled: bool = False) -> None:
        self._values: dict[StateKey[Any], object] = {}
        self.is_sampled = is_sampled
        """This attempt's plugins are timed one by one."""
        self.skip_filter: set[str] = set()
        """Plugins whose PreFilter answered Skip: their Filter, AddPod, RemovePod and Verify are not called."""
        self.skip_score: set[str] = set()

    def set(self, key: StateKey[T], value: T) -> None:
        """Store or replace."""
        self._values[key] = value

    def get(self, key: StateKey[T]) -> T:
        """Raises KeyError naming the key when the plugin's PreFilter has not run."""
        try:
            return cast("T", self._values[key])
        except KeyError:
            raise KeyError(key.name) from None

    def has(self, key: StateKey[Any]) -> bool:
        """Whether anything is stored there."""
        return key in self._values

    def clone(self) -> CycleState:
        """For a trial: values that have a `clone` method are cloned, others are shared."""
        other = CycleState(is_sampled=self.is_sampled)
        for key, value in self._values.items():
            clone = getattr(value, "clone", None)
            other._values[key] = clone() if clone is not None else value
        other.skip_filter = set(self.skip_filter)
        other.skip_score = set(self.skip_score)
        return other


Scores: TypeAlias = npt.NDArray[np.int64]
"""One value per slot (length `nodes.capacity`); slots outside the candidate set are ignored."""

MAX_NODE_SCORE = 100

PostFiltered: TypeAlias = Nominate | Rejection
"""A rejection leaves the pod's nomination as it is."""


class Tally(Protocol):
    """One filter's count of the pods on one node. A pod more never makes the verdict better."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None: ...


class NodeSimulation(Protocol):
    """One node, as if. Only pods of that node may leave, and those that left come back."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None:
        """Of the filters on this node, with nominated pods of equal or higher priority counted, and without (§3.5).

        A filter that fails is an answer, too, with `Code.ERROR`: it is about this node only.
        """

    def judging(self) -> Work[Rejection | None] | None:
        """The same bit by bit, everybody being back in place where it rests; None where `verdict` is quick."""


class DryRun(Protocol):
    """For one pod whose PreFilter has run: would it fit on a node if some pods were not there? Valid until the attempt ends."""

    is_counted: bool
    """Whether answers need no change of the cache, except on nodes where newcomers make a difference."""
    alike: NodeSet
    """Nodes that have the same answer for every pod of this shape: not the node that this pod is nominated to."""

    @property
    def nominated_to(self) -> str:
        """The node that the pod itself is nominated to, or ""."""

    @property
    def shape(self) -> tuple[Hashable, ...]:
        """Equal for pods that get equal answers on equal nodes: from all filters if `is_counted`, else from `leading`."""

    def about(self, nodes: NodeSet) -> None:
        """Set the nodes that the next calls are about, so that filters that do not read pods run once for all of them."""

    @property
    def hopeless_nodes(self) -> NodeSet:
        """The nodes set by `about` that one of the leading filters refuses without reading pods."""

    def hopeless(self, slot: int) -> bool:
        """Whether this node is one of `hopeless_nodes`."""

    def version(self, slot: int) -> int:
        """A number that changes whenever a nomination to this node begins or ends."""

    def on(self, slot: int) -> contextlib.AbstractContextManager[NodeSimulation]:
        """The node as it is; its pods may leave and come back until the block ends."""

    def leading(self, slot: int) -> NodeSimulation | None:
        """The node for the filters before the first one that needs the cache: their refusal is that of all filters.

        None if this pod must yield to pods nominated to the node.
        """


class Plugin(Protocol):
    """What every plugin has."""

    @property
    def name(self) -> str:
        """As configurations, messages and metrics call it."""


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """May keep a pod out of the queue. Called with the pod alone."""

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Order of the active queue: smaller first. `queued_at` is when the pod was last put into the queue."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]: ...


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    """Which events can help. A rejecting plugin without this is registered for everything."""

    def events_to_register(self) -> Sequence[EventHint]: ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Once per attempt. `nodes` is every node there is. None means: go on with all of them."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Narrow | Rejection | Skip | None: ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Adjust PreFilter state as `other` appears on or leaves a node; columns have been changed already."""

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None: ...

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Called once with all candidates. Must not wait, write, or keep what it is given.

    A class attribute `depends_on_pods = False` says that its verdict has nothing to do with the pods on nodes.

    Where the answer takes long to find, the method returns a generator that yields wherever the event loop may run, and
    returns the answer. Nothing changes in the cache while it works. It may be closed at any time, so it holds nothing. The same
    holds for `verify` and `score`.
    """

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]: ...


@runtime_checkable
class TallyPlugin(Plugin, Protocol):
    """A Filter whose verdict on a node hangs on the pods of that node alone, and only gets worse with more of them.

    What preemption asks a thousand times is then counted aside, without touching the cache. Equal `tally_shape`s of
    two pods mean equal verdicts on equal nodes.
    """

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally: ...

    def tally_shape(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class ReadsNodePodsPlugin(Plugin, Protocol):
    """A Filter that can say of a pod that other pods do not matter to it, nor would if `others` came to nodes."""

    def reads_node_pods(self, state: CycleState, pod: PodInfo, others: Iterable[PodInfo]) -> bool: ...


@runtime_checkable
class FilterOnePlugin(Plugin, Protocol):
    """The same for one node, for plugin authors; the runner maps it over the candidates (some µs a node)."""

    def filter_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> Rejection | None: ...


@runtime_checkable
class VerifyPlugin(Plugin, Protocol):
    """The exact answer for one node, where `filter` gave only a necessary condition. Asked for the best node first.

    A method `filter_is_exact(state, pod) -> bool` may say that for this pod `filter` was exact: then nothing is asked.
    """

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None: ...


@runtime_checkable
class PrepareReservePlugin(Plugin, Protocol):
    """Ours: a Reserve whose answer may take long to find. Called right before the node is assumed."""

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        """Find what `reserve` will take on the node, and remember it. Reserves nothing, so it may be closed at any time."""


@runtime_checkable
class PreemptibleNodesPlugin(Plugin, Protocol):
    """Ours: a Filter that says "unresolvable" of nodes, and can say later on which of them an eviction would change that.

    Asked only when no node takes the pod, right before PostFilter: what was refused stays refused, in the same words, but
    preemption looks at these nodes, too.
    """

    def preemptible_nodes(self, state: CycleState, pod: PodInfo, no: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        """Some of the nodes that it refused with `no`. Rests wherever it may, between nodes at least."""


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits, with the verdict per group.

    May be a generator, which yields now and then to give the event loop a turn; nothing changes meanwhile, and no
    scene of `what_if` may be open then, but while it is `judging`.
    """

    def post_filter(
        self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun
    ) -> PostFiltered | Generator[None, None, PostFiltered]: ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Once per attempt, with the feasible nodes; Skip leaves the plugin out of scoring."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None: ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Raw scores for all nodes at once. The returned column is not changed by the caller."""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores | Work[Scores]: ...


@runtime_checkable
class ScoreOnePlugin(Plugin, Protocol):
    """The same for one node, for plugin authors."""

    def score_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> int: ...


@runtime_checkable
class NormalizeScorePlugin(Plugin, Protocol):
    """Raw scores → 0..100. `slots` are the candidates' slot numbers; returns a new full-length column."""

    def normalize_score(
        self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]
    ) -> Scores: ...


@runtime_checkable
class PreferPlugin(Plugin, Protocol):
    """Ours: which of the nodes with equal scores are better. Asked of Filter plugins; upstream throws dice at once."""

    def prefer(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> NodeSet:
        """Some of `nodes`, at least one; all of them if it is all the same."""


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Take what the pod needs on the node. `unreserve` is idempotent and is called even if `reserve` said no."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Last word before binding: None allows, a rejection refuses, Wait holds the pod."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Wait | Rejection | None: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Work that must be done before the pod is bound. Cancelling acts between writes, never inside one.

    `pre_bind_pre_flight` says Skip when there is nothing to do for this pod. `pre_bind` may raise `AttemptError`.
    Plugins with `pre_bind_parallel = True` may run beside each other; those with `is_brief = True` are mostly done within
    seconds, which saves saying where the pod will be.
    """

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None: ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Bind the pod; Skip asks the next binder. Raises `scheduler.core.errors.ApiError` types."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Told after the pod was bound."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


def is_brief(plugins: Iterable[PreBindPlugin]) -> bool:
    """Whether all of them say that they are mostly done within seconds."""
    return all(getattr(plugin, "is_brief", False) for plugin in plugins)


@runtime_checkable
class ExplainPlugin(Plugin, Protocol):
    """Ours: what stands in a pod's way, in numbers. Called for who asks, between attempts; may be expensive."""

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None: ...
