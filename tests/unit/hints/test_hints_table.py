"""Queueing hints of every plugin, through the real queue of the real profile (docs/spec/core.md §1.10, §5).

One row says what happens to one waiting pod, and whether that is worth another try. Every event that a plugin registered
for has a row in both senses, or is named here with the reason why it cannot have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from scheduler.config.types import KubeSchedulerProfile
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint
from tests.unit.harness import SchedulerHarness
from tests.unit.hints import (
    hint_rows_between,
    hint_rows_devices,
    hint_rows_limits,
    hint_rows_nodes,
    hint_rows_pods,
    hint_rows_volumes,
)
from tests.unit.hints.hint_rows import DEFAULT, ONLY_IN_CELLAR, WAITS, HintRow, harness_of, pod, spreads_by_default
from tests.unit.hints.hint_rows_between import DEFAULT_IN_ZONES

ROWS: Final[list[Any]] = [
    *hint_rows_nodes.ROWS,
    *hint_rows_pods.ROWS,
    *hint_rows_between.ROWS,
    *hint_rows_limits.ROWS,
    *hint_rows_volumes.ROWS,
    *hint_rows_devices.ROWS,
]


@pytest.mark.parametrize("row", ROWS)
async def test_what_happens_to_a_waiting_pod(row: HintRow, monkeypatch: pytest.MonkeyPatch) -> None:
    """149, 153, 166, 167, 168: the pod waits for this plugin; the event comes, and the pod is tried again or left alone."""
    sched = harness_of(row.profile)
    await refused(sched, row)
    waits_as = sched.places()[WAITS]
    seen = spied(sched, monkeypatch)

    for thing in row.then:
        thing(sched)
    sched.parts.event_handlers.devices.tick()  # as the scheduling loop does in each turn: it ends holds of devices

    assert row.event in seen
    place = sched.places()[WAITS]
    assert place in ({"backoff", "active"} if row.woken else {waits_as})


async def refused(sched: SchedulerHarness, row: HintRow) -> None:
    """The pod `p` is parked, and the row's plugin is why."""
    for thing in row.given:
        thing(sched)
    queue = sched.parts.queue
    if row.by_hand:
        pod(WAITS, **row.waits)(sched)
        queued = queue.pop()
        assert queued is not None
        queued.unschedulable_plugins = {row.plugin}
        queue.requeue(queued)
    else:
        await sched.settle()
        pod(WAITS, **row.waits)(sched)
        await sched.settle()
    for thing in row.while_waiting:
        thing(sched)
    (entry,) = [entry for entry in queue.entries() if entry.key == f"default/{WAITS}"]
    assert set(entry.plugins) == {row.plugin} | row.also_refused_by
    assert entry.place in {"unschedulable", "gated"}


def spied(sched: SchedulerHarness, monkeypatch: pytest.MonkeyPatch) -> list[ClusterEvent]:
    """Record each event that the queue looks up from now on."""
    seen: list[ClusterEvent] = []
    wakers = sched.parts.queue._wakers
    of = wakers.of

    def spy(event: ClusterEvent) -> Any:
        seen.append(event)
        return of(event)

    monkeypatch.setattr(wakers, "of", spy)
    return seen


# -- nothing is left out -----------------------------------------------------------------------------------------------

NODES: Final = [
    Action.ADD,
    Action.DELETE,
    Action.UPDATE_NODE_ALLOCATABLE,
    Action.UPDATE_NODE_LABEL,
    Action.UPDATE_NODE_TAINT,
    Action.UPDATE_NODE_CONDITION,
    Action.UPDATE_NODE_ANNOTATION,
    Action.UPDATE_NODE_DECLARED_FEATURE,
]
PODS: Final = [
    Action.UPDATE_POD_LABEL,
    Action.UPDATE_POD_SCALE_DOWN,
    Action.UPDATE_POD_SCALE_UP,
    Action.UPDATE_POD_TOLERATION,
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    Action.UPDATE_OTHER,
]
OTHERS: Final = [Action.ADD, Action.DELETE, Action.UPDATE_OTHER]
EMITTED: Final = {
    Resource.NODE: NODES,
    Resource.ASSIGNED_POD: [Action.ADD, Action.DELETE, *PODS],
    Resource.TARGET_POD: PODS,
    Resource.UNSCHEDULED_POD: [Action.ADD],
    Resource.NAMESPACE: [Action.ADD, Action.UPDATE_OTHER],
    Resource.SERVICE: OTHERS,
    Resource.CONTROLLER: OTHERS,
    **dict.fromkeys(
        (
            *(Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME, Resource.STORAGE_CLASS),
            *(Resource.CSI_NODE, Resource.CSI_DRIVER, Resource.CSI_STORAGE_CAPACITY, Resource.VOLUME_ATTACHMENT),
            *(Resource.RESOURCE_CLAIM, Resource.RESOURCE_SLICE, Resource.DEVICE_CLASS, Resource.POD_GROUP),
        ),
        OTHERS,
    ),
}
"""What intake makes of the watch's news."""

ONE_SENSE: Final = {
    ("NodeName", "NodeAdd", False): "no hint: any node may be the one",
    ("VolumeBinding", "NodeAdd", False): "no hint: any node may be the one",
    (
        "VolumeBinding",
        "NodeUpdateNodeLabel",
        False,
    ): "no hint: volumes, classes and capacity say by labels where they are",
    ("NodePorts", "NodeAdd", False): "no hint: a new node has all its ports",
    ("VolumeRestrictions", "NodeAdd", False): "no hint: no pod has a disk on a new node",
    ("VolumeZone", "NodeAdd", False): "as upstream: its zone is for the attempt to look at",
    ("VolumeZone", "NodeUpdateNodeLabel", False): "as upstream: so are changes of it",
    ("NodeVolumeLimits", "storage.k8s.io/CSINodeAdd", False): "no hint: its drivers may attach more",
    ("NodeDeclaredFeatures", "NodeAdd", False): "as upstream: what the node declares is for the attempt to look at",
    ("NodeDeclaredFeatures", "NodeUpdateNodeDeclaredFeature", False): "as upstream: any other feature will do",
    ("GangScheduling", "AssignedPodAdd", False): "a pod with a node has started its group, so that it is complete",
    ("DefaultPreemption", "AssignedPodDelete", True): "always Skip: it only runs the gate again (see its rows)",
}
PROFILES: Final = [DEFAULT, ONLY_IN_CELLAR, spreads_by_default(DEFAULT_IN_ZONES)]


def events(registered: EventHint) -> Iterator[ClusterEvent]:
    """One by one what intake can emit of it; a registration for all updates of a pod is one."""
    for resource, actions in EMITTED.items():
        for action in actions:
            event = ClusterEvent(resource, action)
            if registered.event.wants(event):
                yield event


def required(one: KubeSchedulerProfile) -> Iterator[tuple[str, frozenset[ClusterEvent], bool]]:
    """Plugin, events of which any will do, and the sense."""
    for plugin, registrations in harness_of(one).parts.profiles[one.scheduler_name].hints.items():
        for registered in registrations:
            wanted = list(events(registered))
            assert wanted, f"{plugin} registered {registered.event.label}, which nothing emits"
            updates = frozenset(event for event in wanted if event.action & UPDATE)
            takes_any = registered.event.action & UPDATE == UPDATE
            groups = [updates] if takes_any else []
            groups += [frozenset({event}) for event in wanted if not (takes_any and event in updates)]
            for group in groups:
                for sense in (True, False):
                    if not any((plugin, event.label, sense) in ONE_SENSE for event in group):
                        yield plugin, group, sense


@pytest.mark.parametrize("one", PROFILES, ids=["default", "added affinity", "hard default constraints"])
def test_every_registration_has_rows_in_both_senses(one: KubeSchedulerProfile) -> None:
    """A plugin that registers for one more event needs a row that is woken by it, and one that is not."""
    shown = {(row.plugin, row.event, row.woken) for row in (param.values[0] for param in ROWS)}
    missing = [
        f"{plugin} {'wakes' if sense else 'leaves'}: {' or '.join(sorted(event.label for event in group))}"
        for plugin, group, sense in required(one)
        if not any((plugin, event, sense) in shown for event in group)
    ]

    assert missing == []


def test_an_event_that_helps_no_plugin_has_no_registrations() -> None:
    """An event that no plugin can be helped by costs one look-up, and is not kept for the pods in flight."""
    queue = harness_of(DEFAULT).parts.queue

    for action in (Action.UPDATE_NODE_CONDITION, Action.UPDATE_NODE_ANNOTATION):
        assert queue._wakers.of(ClusterEvent(Resource.NODE, action)) == ()
    assert queue._wakers.of(ClusterEvent(Resource.SERVICE, Action.ADD)) == ()
