"""Metrics of mirrors, requests, Events, the lease, the checks and SchedulerProfiles: what each action on a daemon and its server changes."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from scheduler.config.types import OUR_NAME, LeaderElection
from simulator.apiserver import LIKE_1_36_WITH_OURS, ApiServer, Fault
from tests.integration.metering import ANY, DaemonStage, Steps, rises, shows, staged, starts, when

EVENTS: Final[dict[str, Any]] = {"verb": "create", "resource": "events"}
_LEASE: Final = {"metadata": {"name": OUR_NAME, "namespace": "kube-system"}}
_DECODE: Final = "kubestow_watch_decode_errors_total"
_DOWN: Final = "kubestow_watch_down_seconds"
_DURATION: Final = "rest_client_request_duration_seconds"
_EVENTS: Final = "kubestow_watch_events_total"
_FAILURES: Final = "kubestow_watch_failures_total"
_FINDINGS: Final = "kubestow_self_check_findings"
_MASTER: Final = "leader_election_master_status"
_OBJECTS: Final = "kubestow_watch_objects"
_QUEUED: Final = "kubestow_recorder_queued_events"
_RECORDED: Final = "kubestow_recorder_events_total"
_RELISTS: Final = "kubestow_watch_relists_total"
_REQUESTS: Final = "rest_client_requests_total"
_SILENT: Final = "kubestow_watch_silent_seconds"
_SYNCED: Final = "kubestow_watch_synced"
_WAITING: Final = "kubestow_api_writes_waiting"


def _prepared(server: ApiServer) -> None:
    """Another replica holds the lease, and one permission is missing."""
    held = {"holderIdentity": "another", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    server.create("leases", _LEASE | {"spec": held | {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    server.forbidden.add(("delete", "pods"))


async def scenario() -> Steps:
    """The daemon stands by at first, and leads from the second step on."""
    async with staged(before=[_prepared], leader_election=LeaderElection(leader_elect=True)) as stage:
        for part in (_beginning, _requests, _events_about_pods, _informers, _outages):
            await part(stage)
        return stage.steps


# -- the daemon starts ---------------------------------------------------------------------------------------------------


async def _beginning(stage: DaemonStage) -> None:
    await stage.seconds(5)
    stage.steps.begin("the daemon starts while another one leads")
    with stage.steps("the lease of the other daemon expires"):
        await stage.until(stage.daemon.leadership.may_write, "does not lead")
        await stage.seconds(1)
    with stage.steps("a permission that was missing is given"):
        stage.server.forbidden.clear()
        await stage.seconds(70)


BEGINNING: Final = [
    *when(
        "the daemon starts while another one leads",
        shows("kubestow_build_info", 1, version=ANY, python=ANY),
        shows("kubestow_leading", 0),
        shows(_MASTER, 0, name=OUR_NAME),
        shows(_SYNCED, 1, kind="Node"),
        shows(_FINDINGS, 1, check="permissions", needed="false"),
        shows("kubestow_device_kind_served", 1, kind="ResourceClaim"),
        shows("scheduler_volume_capacity_api_info", 1, version="v1"),
        rises(_RELISTS, kind="Pod", cause="start"),
        starts("kubestow_admission_rejections_total", reason="OutOfcpu", profile=OUR_NAME),
        starts("kubestow_binding_conflicts_total", kind="node"),
        starts("kubestow_unforeseen_errors_total", part="informer-pods"),
        starts("kubestow_volume_write_conflicts_total", resource="PersistentVolume"),
        starts("scheduler_preemption_goroutines_execution_total", result="error"),
        starts("scheduler_schedule_attempts_total", result="error", profile=OUR_NAME),
    ),
    *when("the lease of the other daemon expires", shows("kubestow_leading", 1), shows(_MASTER, 1, name=OUR_NAME)),
    *when("a permission that was missing is given", shows(_FINDINGS, 0, check="permissions", needed="false")),
]


# -- requests and Events -------------------------------------------------------------------------------------------------


async def _requests(stage: DaemonStage) -> None:
    with stage.steps("a node is added"):
        stage.node("n1", cpu="100")
        await stage.seconds(1)
    with stage.steps("a pod is bound by a server that takes two seconds"):
        stage.server.faults.add(Fault(verb="create", subresource="binding", delay_s=2))
        stage.pod("bound", cpu="100m")
        await stage.bound("bound")
        await stage.seconds(1)
    with stage.steps("the answer to a binding is lost"):
        stage.server.faults.add(Fault(verb="create", subresource="binding", reset="after"))
        stage.pod("lost", cpu="100m")
        await stage.bound("lost")
        await stage.seconds(1)


REQUESTS: Final = [
    *when(
        "a node is added",
        rises(_EVENTS, kind="Node", type_="ADDED"),
        shows(_OBJECTS, 1, kind="Node"),
        rises(_DECODE, 0, kind="Node"),
    ),
    *when(
        "a pod is bound by a server that takes two seconds",
        rises(_REQUESTS, 2, code="201", method="POST", host=ANY),  # the Binding and the Event
        rises(_DURATION, 2, total=(2, 3), verb="POST", host=ANY),
        rises(_EVENTS, kind="Pod", type_="ADDED"),
        rises(_EVENTS, (1, 2), kind="Pod", type_="MODIFIED"),
        rises(_RECORDED, outcome="sent"),
    ),
    *when(
        "the answer to a binding is lost",
        rises(_REQUESTS, code="<error>", method="POST", host=ANY),
        rises(_DURATION, 2, verb="POST", host=ANY),
    ),
]


async def _events_about_pods(stage: DaemonStage) -> None:
    with stage.steps("an Event is refused"):
        stage.server.faults.add(Fault(**EVENTS, status=403))
        stage.pod("seen", cpu="100m")
        await stage.bound("seen")
        await stage.seconds(1)
    slow = stage.server.faults.add(Fault(**EVENTS, delay_s=10, times=None))
    with stage.steps("more Events wait than the queue can hold"):
        for limit, count in ((4096, 8), (3, 10)):  # the first eight are being sent when the next ones come
            stage.daemon._recorder.limit = limit
            names = [f"unseen-{count}-{i}" for i in range(count)]
            for name in names:
                stage.pod(name, cpu="100m")
            await stage.bound(*names)
            await stage.seconds(0.5)
    stage.server.faults.rules.remove(slow)
    with stage.steps("the Events that waited are sent"):
        await stage.seconds(20)
    with stage.steps("an Event raises an error that no code path expects"):
        stage.daemon._recorder._body, body = None, stage.daemon._recorder._body  # type: ignore[assignment]
        stage.pod("unforeseen", cpu="100m")
        await stage.bound("unforeseen")
        await stage.seconds(1)
        stage.daemon._recorder._body = body  # type: ignore[method-assign]


EVENTS_ABOUT_PODS: Final = [
    *when("an Event is refused", rises(_RECORDED, outcome="failed"), rises(_RECORDED, 0, outcome="sent")),
    *when("more Events wait than the queue can hold", shows(_QUEUED, 3), rises(_RECORDED, 7, outcome="dropped")),
    *when("the Events that waited are sent", shows(_QUEUED, 0), rises(_RECORDED, 11, outcome="sent")),
    *when(
        "an Event raises an error that no code path expects",
        rises(_RECORDED, outcome="dropped"),
        rises("kubestow_unforeseen_errors_total", part="event-recorder"),
    ),
]


# -- mirrors -------------------------------------------------------------------------------------------------------------


def _stored(stage: DaemonStage, resource: str, name: str, obj: dict[str, Any]) -> None:
    """Store an object past all checks of the server."""
    stage.server.store(resource, json.dumps(obj, separators=(",", ":")).encode(), name=name)


async def _informers(stage: DaemonStage) -> None:
    with stage.steps("a node is changed and deleted"):
        stage.node("n2")
        stage.server.patch("nodes", "n2", {"metadata": {"labels": {"rack": "1"}}})
        stage.server.delete("nodes", "n2")
        await stage.seconds(1)
    with stage.steps("a node cannot be read"):
        stage.node("broken", cpu="four")
        await stage.seconds(1)
    with stage.steps("a bound pod can be read in part"):
        stage.pod("partly", cpu="1x", schedulerName="other", nodeName="n1")
        await stage.seconds(1)
    with stage.steps("an object has no name"):
        _stored(stage, "nodes", "nameless", {"metadata": {"resourceVersion": "1"}, "spec": 5})
        await stage.seconds(1)
    stage.server.delete("nodes", "nameless")
    with stage.steps("a watch is cut"):
        stage.server.cut_watches("nodes", abruptly=True)
        await stage.seconds(5)
    with stage.steps("the watches of all kinds are cut"):
        stage.server.cut_watches(abruptly=True)
        await stage.seconds(5)
    with stage.steps("a node is deleted in a past that the server has forgotten"):
        stage.server.hold_watches("nodes")
        stage.server.delete("nodes", "broken")
        stage.node("n3")
        stage.server.compact()
        stage.server.cut_watches("nodes", abruptly=True)
        stage.server.release_watches()
        await stage.seconds(5)


MIRRORS: Final = [
    *when(
        "a node is changed and deleted",
        rises(_EVENTS, kind="Node", type_="ADDED"),
        rises(_EVENTS, kind="Node", type_="MODIFIED"),
        rises(_EVENTS, kind="Node", type_="DELETED"),
    ),
    *when("a node cannot be read", rises(_DECODE, kind="Node"), shows(_OBJECTS, 2, kind="Node")),
    *when("a bound pod can be read in part", rises(_DECODE, kind="Pod")),
    *when("an object has no name", rises(_DECODE, kind="Node")),
    *when("a watch is cut", rises(_FAILURES, kind="Node"), rises(_RELISTS, 0, kind="Node", cause=ANY)),
    *when(
        "the watches of all kinds are cut",
        rises(_REQUESTS, (18, 30), code="200", method="GET", host=ANY),
        rises(_DURATION, (0, 4), verb="GET", host=ANY),
    ),
    *when(
        "a node is deleted in a past that the server has forgotten",
        rises(_RELISTS, kind="Node", cause="gone"),
        rises("kubestow_watch_synthesised_deletes_total", kind="Node"),
    ),
]


async def _outages(stage: DaemonStage) -> None:
    with stage.steps("the server is silent for twenty seconds"):
        stage.server.hold_watches("nodes")
        await stage.seconds(20)
    with stage.steps("the server is heard again"):
        stage.server.release_watches()
        stage.node("n4")
        await stage.seconds(1)
    refused = stage.server.faults.add(Fault(verb="watch", resource="nodes", status=500, times=None))
    with stage.steps("watches are refused for twenty seconds"):
        stage.server.cut_watches("nodes", abruptly=True)
        await stage.seconds(20)
    stage.server.faults.rules.remove(refused)
    with stage.steps("a watch is open again"):
        await stage.seconds(60)
    with stage.steps("nodes may not be read any more"):
        stage.server.forbidden.update({("list", "nodes"), ("watch", "nodes")})
        stage.server.cut_watches("nodes", abruptly=True)
        await stage.seconds(10)
    with stage.steps("nodes may be read again"):
        stage.server.forbidden.clear()
        await stage.seconds(60)


OUTAGES: Final = [
    *when("the server is silent for twenty seconds", shows(_SILENT, (15, 25), kind="Node")),
    *when("the server is heard again", shows(_SILENT, (0, 2), kind="Node")),
    *when(
        "watches are refused for twenty seconds",
        shows(_DOWN, (15, 20), kind="Node"),
        rises(_FAILURES, (3, 20), kind="Node"),
    ),
    *when("a watch is open again", shows(_DOWN, 0, kind="Node"), rises(_RELISTS, (0, 1), kind="Node", cause=ANY)),
    *when("nodes may not be read any more", shows(_SYNCED, 0, kind="Node")),
    *when("nodes may be read again", shows(_SYNCED, 1, kind="Node")),
]


# -- the client-side limit -----------------------------------------------------------------------------------------------


async def throttled() -> Steps:
    """One write a second."""
    async with staged(qps=1) as stage:
        stage.node("n1")
        with stage.steps("six pods are bound at one write a second"):
            for i in range(6):
                stage.pod(f"p{i}", cpu="100m")
            await stage.seconds(1)
        with stage.steps("all writes have been sent"):
            await stage.bound(*(f"p{i}" for i in range(6)))
            await stage.seconds(20)
        return stage.steps


THROTTLED: Final = [
    *when("six pods are bound at one write a second", shows(_WAITING, (3, 10))),
    *when("all writes have been sent", shows(_WAITING, 0)),
]


# -- SchedulerProfile objects, and the shell that watches them ---------------------------------------------------------


_KIND: Final = "schedulerprofiles"
_GENERATION: Final = "kubestow_profile_generation"
_INCOMING: Final = "scheduler_queue_incoming_pods_total"
_RELOADS: Final = "kubestow_profile_reloads_total"
_UNSCHEDULABLE: Final = "scheduler_unschedulable_pods"
_UP: Final = "kubestow_shell_up"


def _spec(plugin: str) -> dict[str, Any]:
    return {"plugins": {"score": {"enabled": [{"name": plugin, "weight": 2}]}}}


async def profiles_change() -> Steps:
    """Run the steps. A pod waits from the first step on, so each profile that is applied causes an attempt."""
    async with staged(served=LIKE_1_36_WITH_OURS) as stage:
        stage.node("n1", cpu="1")
        stage.pod("big", cpu="2")
        await stage.refused("big")
        await stage.until(lambda: _watches(stage) == 1, "kopf does not watch")
        await stage.seconds(5)  # the back-off of the pod is over
        stage.steps.begin("the shell is up")
        with stage.steps("a profile is created"):
            stage.server.create(_KIND, {"metadata": {"name": OUR_NAME}, "spec": _spec("NodeResourcesFit")})
            await _observed(stage, 1)
        with stage.steps("a profile names a plugin that does not exist"):
            stage.server.patch(_KIND, OUR_NAME, {"spec": _spec("NoSuchPlugin")})
            await _observed(stage, 2)
        with stage.steps("the profile is corrected"):
            stage.server.patch(_KIND, OUR_NAME, {"spec": _spec("ImageLocality")})
            await _observed(stage, 3)
        with stage.steps("the profile is deleted"):
            stage.server.delete(_KIND, OUR_NAME)
            await stage.until(lambda: not stage.daemon.scheduler.reloading._requests, "still in force")
            await stage.seconds(1)
        with stage.steps("a part of the shell ends"):
            next(task for task in asyncio.all_tasks() if task.get_name().startswith("resource observer")).cancel()
            await stage.until(lambda: bool(stage.daemon._shell._why), "not noticed")
        with stage.steps("the shell is up again"):
            await stage.until(lambda: _watches(stage) == 2, "kopf does not watch again")
            await stage.seconds(1)
        return stage.steps


def _watches(stage: DaemonStage) -> int:
    return stage.server.requests()[f"watch {_KIND} 200"]


async def _observed(stage: DaemonStage, generation: int) -> None:
    """The status of the profile is about this generation."""

    def is_observed() -> bool:
        status = stage.server.get(_KIND, OUR_NAME).get("status", {})
        return bool(status.get("observedGeneration") == generation)

    await stage.until(is_observed, f"generation {generation} was not observed")
    await stage.seconds(1)


PROFILES: Final = [
    *when(
        "the shell is up",
        shows(_UP, 1),
        shows(_GENERATION, 0, profile=OUR_NAME),
        *(starts(_RELOADS, result=result) for result in ("applied", "refused", "removed")),
    ),
    *when(
        "a profile is created",
        rises(_RELOADS, result="applied"),
        shows(_GENERATION, 1, profile=OUR_NAME),
        rises(_INCOMING, queue="active", event="ProfileChanged"),
        rises(_UNSCHEDULABLE, 0, plugin="NodeResourcesFit", profile=OUR_NAME),
    ),
    *when("a profile names a plugin that does not exist", rises(_RELOADS, result="refused")),
    *when("the profile is corrected", rises(_RELOADS, result="applied"), shows(_GENERATION, 3, profile=OUR_NAME)),
    *when("the profile is deleted", rises(_RELOADS, result="removed"), shows(_GENERATION, 0, profile=OUR_NAME)),
    *when("a part of the shell ends", rises("kubestow_shell_restarts_total"), shows(_UP, 0)),
    *when("the shell is up again", shows(_UP, 1)),
]

SERVER: Final = [*BEGINNING, *REQUESTS, *EVENTS_ABOUT_PODS, *MIRRORS, *OUTAGES]
STORIES: Final = ((scenario, SERVER), (throttled, THROTTLED), (profiles_change, PROFILES))
