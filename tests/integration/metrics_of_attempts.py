"""Metrics of the queue, of attempts and of bindings: what each action on a daemon changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import patch

from scheduler import plugins
from scheduler.api.podinfo import PodInfo
from scheduler.config.types import OUR_NAME, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.cluster_events import ANYTHING
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.status import Code, Rejection, Skip, Wait
from simulator.apiserver import Fault
from tests.integration.metering import Amount, DaemonStage, MetricRow, Steps, rises, shows, staged, when

HOLD: Final = "example.com/hold"
"""A pod with this label is held at Permit for this many seconds."""
REFUSED: Final = "example.com/refused"
"""A pod with this label is refused at the point that it names, until `Directed.is_open`; no event wakes the pod."""
BREAKS: Final = "example.com/breaks"
"""The point that this label names raises an exception."""
BIND: Final[dict[str, Any]] = {"verb": "create", "subresource": "binding"}


class Directed:
    name = "Directed"
    is_open = False

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        if _label(pod, BREAKS) == "PreEnqueue":
            raise RuntimeError("PreEnqueue breaks")
        return None

    def pre_filter(self, _state: CycleState, pod: PodInfo, _nodes: NodeSet) -> Rejection | Skip | None:
        if _label(pod, BREAKS) == "PreFilter":
            raise RuntimeError("PreFilter breaks")
        return self._refusal(pod, "PreFilter") or Skip.SKIP

    def reserve(self, _state: CycleState, pod: PodInfo, _node_name: str) -> Rejection | None:
        return self._refusal(pod, "Reserve")

    def unreserve(self, _state: CycleState, _pod: PodInfo, _node_name: str) -> None: ...

    def permit(self, _state: CycleState, pod: PodInfo, _node_name: str) -> Wait | Rejection | None:
        return Wait(float(_label(pod, HOLD))) if _label(pod, HOLD) else self._refusal(pod, "Permit")

    def pre_bind_pre_flight(self, _state: CycleState, pod: PodInfo, _node_name: str) -> Skip | None:
        return None if _label(pod, REFUSED) == "PreBind" else Skip.SKIP

    async def pre_bind(self, _state: CycleState, pod: PodInfo, _node_name: str) -> Rejection | None:
        return self._refusal(pod, "PreBind")

    def events_to_register(self) -> Sequence[EventHint]:
        return (EventHint(ANYTHING, _never),)

    def _refusal(self, pod: PodInfo, point: str) -> Rejection | None:
        is_refused = _label(pod, REFUSED) == point and not self.is_open
        return Rejection(self.name, Code.UNSCHEDULABLE, ("refused",)) if is_refused else None


def _never(_pod: PodInfo, _old: object, _new: object) -> Hint:
    return Hint.SKIP


def _label(pod: PodInfo, key: str) -> str:
    return pod.pod.metadata.labels.get(key, "")


DIRECTED: Final = (
    KubeSchedulerProfile(OUR_NAME, plugins={"multiPoint": PluginSet(enabled=(PluginRef(Directed.name),))}),
)


def labelled(stage: DaemonStage, name: str, cpu: str = "100m", **labels: str) -> None:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {f"example.com/{key}": v for key, v in labels.items()}}
    stage.server.create("pods", {"metadata": metadata, "spec": {"schedulerName": OUR_NAME, "containers": [container]}})


async def scenario() -> Steps:
    """Run the steps in order. The nodes n1 and n2 have capacity for all pods that are to be bound."""
    with patch.dict(plugins.BUILT_IN, {Directed.name: lambda _args, _handle: Directed()}):
        async with staged(profiles=DIRECTED, max_in_unschedulable_s=20) as stage:
            for part in (_bindings, _slow_bindings, _refusals, _flushes, _waiting_pods, _conflicts, _errors):
                await part(stage)
            return stage.steps


_ALGORITHM: Final = "scheduler_scheduling_algorithm_duration_seconds"
_ATTEMPT: Final = "scheduler_scheduling_attempt_duration_seconds"
_ATTEMPTS: Final = "scheduler_schedule_attempts_total"
_CONFLICTS: Final = "kubestow_binding_conflicts_total"
_ERRORS: Final = "kubestow_unforeseen_errors_total"
_EVENT: Final = "scheduler_event_handling_duration_seconds"
_HINT: Final = "scheduler_queueing_hint_execution_duration_seconds"
_INCOMING: Final = "scheduler_queue_incoming_pods_total"
_IN_FLIGHT: Final = "scheduler_inflight_events"
_OLDEST: Final = "kubestow_assumed_oldest_seconds"
_PENDING: Final = "scheduler_pending_pods"
_PERMIT: Final = "scheduler_permit_wait_duration_seconds"
_PLUGIN: Final = "scheduler_plugin_execution_duration_seconds"
_POINT: Final = "scheduler_framework_extension_point_duration_seconds"
_POD_ATTEMPTS: Final = "scheduler_pod_scheduling_attempts"
_SLI: Final = "scheduler_pod_scheduling_sli_duration_seconds"
_PREFERRED_NOT: Final = {"key": "example.com/slow", "effect": "PreferNoSchedule"}
_UNSCHEDULABLE: Final = "scheduler_unschedulable_pods"


def point(name: str, status: str = "Success", *, total: Amount | None = None) -> MetricRow:
    return rises(_POINT, total=total, extension_point=name, status=status, profile=OUR_NAME)


def attempted(result: str) -> tuple[MetricRow, MetricRow]:
    return rises(_ATTEMPTS, result=result, profile=OUR_NAME), rises(_ATTEMPT, result=result, profile=OUR_NAME)


def evaluated(plugin: str, name: str) -> MetricRow:
    return rises("scheduler_plugin_evaluation_total", plugin=plugin, extension_point=name, profile=OUR_NAME)


# -- a pod is bound ------------------------------------------------------------------------------------------------------


async def _bindings(stage: DaemonStage) -> None:
    with stage.steps("two nodes are added"):
        stage.node("n1", cpu="1000", pods="1000")
        stage.node("n2", cpu="1000", pods="1000")
        await stage.seconds(2)
    with stage.steps("cache and queue take a quarter of a second each for a node with two changes"):
        scheduler = stage.daemon.scheduler
        slow_cache = patch.object(scheduler.cluster, "set_node", _slowly(stage, scheduler.cluster.set_node))
        slow_queue = patch.object(scheduler.queue, "move_all", _slowly(stage, scheduler.queue.move_all))
        with slow_cache, slow_queue:
            two = {"metadata": {"labels": {"rack": "1"}}, "spec": {"taints": [_PREFERRED_NOT]}}
            stage.server.patch("nodes", "n2", two)
            await stage.seconds(2)
    with stage.steps("a pod is bound"):
        stage.pod("bound", cpu="100m")
        await stage.bound("bound")
        await stage.seconds(2)
    with stage.steps("forty pods are bound"):
        names = [f"bound-{i}" for i in range(40)]
        for name in names:
            stage.pod(name, cpu="100m")
        await stage.bound(*names)
        await stage.seconds(2)
    with stage.steps("a kubelet refuses a bound pod"):
        stage.patch_status("bound-0", phase="Failed", reason="OutOfcpu")
        await stage.seconds(1)
    with stage.steps("a bound pod is shown on another node"):
        other = {"n1": "n2", "n2": "n1"}[stage.pods()["bound"]]
        stage.moved("bound", other)
        await stage.seconds(1)
    with stage.steps("the requested cpu of a node is wrong for two minutes"):
        stage.daemon.scheduler.cluster.nodes.requested[0, 0] += 1
        await stage.seconds(130)


def _slowly(stage: DaemonStage, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call takes a quarter of a second."""

    def slow(*args: Any, **more: Any) -> Any:
        stage.clock.advance(0.25)
        return call(*args, **more)

    return slow


BINDINGS: Final = [
    *when("two nodes are added", shows("scheduler_cache_size", 2, type_="nodes"), rises(_EVENT, 2, event="NodeAdd")),
    *when(
        "cache and queue take a quarter of a second each for a node with two changes",
        rises(_EVENT, total=(0.5, 0.6), event="NodeUpdateNodeLabel"),
        rises(_EVENT, total=(0.5, 0.6), event="NodeUpdateNodeTaint"),
    ),
    *when(
        "a pod is bound",
        *attempted("scheduled"),
        rises(_ALGORITHM),
        rises(_SLI, attempts="1"),
        rises(_POD_ATTEMPTS, total=1),
        *map(point, ("PreEnqueue", "PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "Bind")),
        evaluated("NodePorts", "PreFilter"),
        evaluated("NodeResourcesFit", "Filter"),
        evaluated("TaintToleration", "PreScore"),
        evaluated("NodeResourcesFit", "Score"),
        rises(_INCOMING, queue="active", event="UnschedulablePodAdd"),
        rises(_EVENT, event="AssignedPodAdd"),
        shows("scheduler_cache_size", 1, type_="pods"),
    ),
    *when(
        "forty pods are bound",
        *(
            rises(_PLUGIN, (1, 20), plugin=plugin, extension_point=at, status="Success")
            for plugin, at in (
                ("NodeName", "Filter"),
                ("NodeResourcesFit", "Filter"),
                ("NodeResourcesFit", "Score"),
                ("NodeResourcesBalancedAllocation", "PreScore"),
            )
        ),
    ),
    *when(
        "a kubelet refuses a bound pod",
        rises("kubestow_admission_rejections_total", reason="OutOfcpu", profile=OUR_NAME),
        rises(_EVENT, event="AssignedPodDelete"),
    ),
    *when("a bound pod is shown on another node", rises("kubestow_cache_healed_total")),
    *when(
        "the requested cpu of a node is wrong for two minutes",
        rises("kubestow_audit_differences_total", index="requests"),
    ),
]


# -- a binding takes its time --------------------------------------------------------------------------------------------


async def _slow_bindings(stage: DaemonStage) -> None:
    with stage.steps("a binding has been under way for five seconds"):
        stage.server.faults.add(Fault(**BIND, delay_s=10))
        stage.pod("slow", cpu="100m")
        await stage.seconds(5)
    with stage.steps("a binding ends after ten seconds"):
        await stage.bound("slow")
        await stage.seconds(2)
    with stage.steps("the watch has not shown a binding for four seconds"):
        stage.server.faults.add(Fault(**BIND, delay_s=1))
        stage.pod("unseen", cpu="100m")
        await stage.seconds(0.5)
        stage.server.hold_watches("pods")
        await stage.bound("unseen")
        await stage.seconds(4)
    with stage.steps("the watch shows the binding"):
        stage.server.release_watches()
        await stage.seconds(2)


SLOW_BINDINGS: Final = [
    *when(
        "a binding has been under way for five seconds",
        shows("scheduler_cache_size", 1, type_="assumed_pods"),
        shows("scheduler_goroutines", 1, operation="binding"),
        shows(_OLDEST, (4.5, 5), state="binding"),
    ),
    *when(
        "a binding ends after ten seconds",
        shows("scheduler_goroutines", 0, operation="binding"),
        shows(_OLDEST, 0, state="binding"),
        rises(_ATTEMPT, total=(9.5, 11), result="scheduled", profile=OUR_NAME),
        rises(_SLI, total=(9.5, 11), attempts="1"),
        point("Bind", total=(9.5, 11)),
    ),
    *when("the watch has not shown a binding for four seconds", shows(_OLDEST, (3.5, 5), state="bound")),
    *when(
        "the watch shows the binding",
        shows("scheduler_cache_size", 0, type_="assumed_pods"),
        shows(_OLDEST, 0, state="bound"),
    ),
]


# -- a pod is refused, and woken -----------------------------------------------------------------------------------------


async def _refusals(stage: DaemonStage) -> None:
    with stage.steps("no node has enough cpu"):
        stage.pod("big", cpu="2000")
        await stage.refused("big")
        await stage.seconds(3)
    with stage.steps("a larger node is added"):
        stage.node("large", cpu="2000", unschedulable=False)
        await stage.bound("big")
        await stage.seconds(1)
    stage.server.patch("nodes", "large", {"spec": {"unschedulable": True}})
    with stage.steps("a larger node is added before the back-off of a pod is over"):
        stage.pod("early", cpu="3000")
        await stage.refused("early")
        stage.node("larger", cpu="3000")
        await stage.bound("early")
        await stage.seconds(1)
    stage.server.patch("nodes", "larger", {"spec": {"unschedulable": True}})
    with stage.steps("a pod has a scheduling gate"):
        stage.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
        await stage.seconds(1)
    with stage.steps("the scheduling gate is removed"):
        stage.server.patch("pods", "gated", {"spec": {"schedulingGates": None}})
        await stage.bound("gated")
        await stage.seconds(1)
    for name in ("Reserve", "Permit", "PreBind"):
        with stage.steps(f"{name} refuses a pod"):
            labelled(stage, name.lower(), refused=name)
            await stage.refused(name.lower())
            await stage.seconds(0.2)
        stage.server.delete("pods", name.lower(), grace_s=0)
        await stage.seconds(1)


REFUSALS: Final = [
    *when(
        "no node has enough cpu",
        *attempted("unschedulable"),
        rises(_ALGORITHM),
        point("Filter"),
        point("PostFilter", "Unschedulable"),
        rises("scheduler_preemption_attempts_total"),
        rises(_INCOMING, queue="unschedulable", event="ScheduleAttemptFailure"),
        shows(_PENDING, 1, queue="unschedulable"),
        shows(_UNSCHEDULABLE, 1, plugin="NodeResourcesFit", profile=OUR_NAME),
    ),
    *when(
        "a larger node is added",
        rises(_HINT, plugin="NodeResourcesFit", event="NodeAdd", hint="Queue"),
        rises(_INCOMING, queue="active", event="NodeAdd"),
        rises(_SLI, total=(3, 5), attempts="2"),
        rises(_POD_ATTEMPTS, total=2),
        shows(_PENDING, 0, queue="unschedulable"),
        shows(_UNSCHEDULABLE, 0, plugin="NodeResourcesFit", profile=OUR_NAME),
    ),
    *when(
        "a larger node is added before the back-off of a pod is over",
        rises(_INCOMING, queue="backoff", event="NodeAdd"),
        rises(_INCOMING, queue="active", event="PopFromBackoffQ"),
    ),
    *when(
        "a pod has a scheduling gate",
        point("PreEnqueue", "UnschedulableAndUnresolvable"),
        rises(_INCOMING, queue="unschedulable", event="UnschedulablePodAdd"),
        shows(_PENDING, 1, queue="gated"),
        shows(_UNSCHEDULABLE, 1, plugin="SchedulingGates", profile=OUR_NAME),
    ),
    *when(
        "the scheduling gate is removed",
        shows(_PENDING, 0, queue="gated"),
        shows(_UNSCHEDULABLE, 0, plugin="SchedulingGates", profile=OUR_NAME),
    ),
    *when("Reserve refuses a pod", point("Reserve", "Unschedulable"), *attempted("unschedulable")),
    *when("Permit refuses a pod", point("Permit", "Unschedulable"), *attempted("unschedulable")),
    *when(
        "PreBind refuses a pod",
        point("PreBind", "Unschedulable"),
        *attempted("unschedulable"),
        rises(_INCOMING, queue="backoff", event="ScheduleAttemptFailure"),
        shows(_PENDING, 1, queue="backoff"),
    ),
]


async def _flushes(stage: DaemonStage) -> None:
    directed: Any = next(p for p in stage.daemon.scheduler.profiles[OUR_NAME].reserve if p.name == Directed.name)
    with stage.steps("no event wakes a pod"):
        labelled(stage, "closed", refused="PreFilter")
        await stage.refused("closed")
        await stage.seconds(1)
    with stage.steps("the flush wakes a pod"):
        directed.is_open = True
        await stage.bound("closed")
        await stage.seconds(1)
    directed.is_open = False


FLUSHES: Final = [
    *when(
        "no event wakes a pod",
        rises(_HINT, (1, 5), plugin="Directed", event="UnschedulablePodUpdate", hint="QueueSkip"),
    ),
    *when(
        "the flush wakes a pod",
        rises("scheduler_pod_scheduled_after_flush_total"),
        rises(_INCOMING, queue="active", event="UnschedulableTimeout"),
        rises(_SLI, total=(20, 60), attempts="2"),
    ),
]


# -- a pod is held at Permit ---------------------------------------------------------------------------------------------


async def _waiting_pods(stage: DaemonStage) -> None:
    waiting_pods = stage.daemon.scheduler.binder.waiting_pods
    with stage.steps("a pod is held at Permit while a node is added"):
        labelled(stage, "held", hold="60")
        await stage.until(lambda: len(waiting_pods) == 1, "not held")
        stage.node("n3", unschedulable=True)
        await stage.seconds(5)
    with stage.steps("a pod is allowed after five seconds at Permit"):
        next(iter(waiting_pods)).allow(Directed.name)
        await stage.bound("held")
        await stage.seconds(1)
    with stage.steps("a pod is not allowed within three seconds at Permit"):
        labelled(stage, "expired", hold="3")
        await stage.refused("expired")
        await stage.seconds(1)
    stage.server.delete("pods", "expired", grace_s=0)


PERMITS: Final = [
    *when(
        "a pod is held at Permit while a node is added",
        shows(_IN_FLIGHT, 1, event="PodPopped"),
        shows(_IN_FLIGHT, 1, event="NodeAdd"),
    ),
    *when("a pod is allowed after five seconds at Permit", rises(_PERMIT, total=(5, 6), result="Success")),
    *when("a pod is not allowed within three seconds at Permit", rises(_PERMIT, total=(3, 4), result="Unschedulable")),
]


# -- another scheduler was faster ----------------------------------------------------------------------------------------


async def _conflicts(stage: DaemonStage) -> None:
    waiting_pods = stage.daemon.scheduler.binder.waiting_pods
    with stage.steps("another scheduler fills the node of a pod that is held"):
        labelled(stage, "late", cpu="800", hold="60")
        await stage.until(lambda: len(waiting_pods) == 1, "not held")
        held = next(iter(waiting_pods))
        stage.pod("theirs", cpu="800", schedulerName="default-scheduler", nodeName=held.pod.node_name)
        await stage.seconds(1)
        held.allow(Directed.name)
        await stage.refused("late")
        await stage.seconds(0.2)
    for name in ("late", "theirs"):
        stage.server.delete("pods", name, grace_s=0)
    with stage.steps("another scheduler binds our pod to another node"):
        await _stolen(stage, "stolen")
    with stage.steps("another scheduler binds our pod while it cannot be read"):
        unread = stage.server.faults.add(
            Fault(verb="get", resource="pods", name="stolen-unread", status=500, times=None)
        )
        await _stolen(stage, "stolen-unread")
    stage.server.faults.rules.remove(unread)
    await stage.seconds(60)


async def _stolen(stage: DaemonStage, name: str) -> None:
    """Another scheduler binds the pod while our Binding is on its way."""
    stage.server.faults.add(Fault(**BIND, delay_s=3))
    stage.pod(name, cpu="100m")
    await stage.seconds(1)
    ours = next(info for info in stage.daemon.scheduler.cluster.pods() if info.pod.metadata.name == name)
    stage.server.bind(name, {"n1": "n2", "n2": "n1"}[ours.node_name])
    await stage.seconds(10)


CONFLICTS: Final = [
    *when("another scheduler fills the node of a pod that is held", rises(_CONFLICTS, kind="node")),
    *when("another scheduler binds our pod to another node", rises(_CONFLICTS, kind="pod")),
    *when("another scheduler binds our pod while it cannot be read", rises(_CONFLICTS, kind="pod")),
]


# -- something fails -----------------------------------------------------------------------------------------------------


async def _errors(stage: DaemonStage) -> None:
    with stage.steps("the API server does not bind a pod"):
        stage.server.faults.add(Fault(**BIND, status=403))
        stage.pod("failed", cpu="100m")
        await stage.refused("failed")
        await stage.seconds(0.2)
    with stage.steps("the pod is tried again after an error"):
        await stage.bound("failed")
        await stage.seconds(1)
    with stage.steps("PreFilter raises"):
        labelled(stage, "prefilter", breaks="PreFilter")
        await stage.refused("prefilter")
    stage.server.delete("pods", "prefilter", grace_s=0)
    with stage.steps("PreEnqueue raises"):
        labelled(stage, "preenqueue", breaks="PreEnqueue")
        await stage.seconds(1)
    stage.server.delete("pods", "preenqueue", grace_s=0)
    with stage.steps("the event loop is blocked for two seconds"):
        stage.clock.advance(2)
        await stage.seconds(0.9)


ERRORS: Final = [
    *when(
        "the API server does not bind a pod",
        *attempted("error"),
        point("Bind", "Error"),
    ),
    *when("the pod is tried again after an error", rises(_INCOMING, queue="active", event="BackoffComplete")),
    *when("PreFilter raises", rises(_ERRORS, part="attempt"), rises(_ATTEMPTS, result="error", profile=OUR_NAME)),
    *when(
        "PreEnqueue raises",
        rises(_ERRORS, part="attempt"),
        point("PreEnqueue", "Error"),
        shows(_UNSCHEDULABLE, 1, plugin="Directed", profile=OUR_NAME),
    ),
    *when("the event loop is blocked for two seconds", rises("kubestow_event_loop_lag_seconds", total=(1, 2))),
]

ROWS: Final = [*BINDINGS, *SLOW_BINDINGS, *REFUSALS, *FLUSHES, *PERMITS, *CONFLICTS, *ERRORS]
STORIES: Final = ((scenario, ROWS),)
