"""Nodes that change before the Binding is sent (docs/spec/core.md §2.6), repeated Bindings (docs/spec/changes-1.37.md §1.7), and metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta
from scheduler.binding_state import PodWatch
from scheduler.config.load import default
from scheduler.config.types import Configuration
from scheduler.core.errors import ApiError, Conflict, Forbidden, Unavailable
from scheduler.core.feature_gates import defaults
from scheduler.framework.status import AttemptError, Code, Rejection
from tests.unit.fake_plugins import BeforeBind
from tests.unit.harness import SchedulerHarness, manifest, read_pod, typed, with_pods
from tests.unit.scenarios.seen import conflicts, point_statuses, samples


async def decided(sched: SchedulerHarness) -> None:
    """The pod has a node and waits for its turn to be bound."""
    sched.node("n1", cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    sched.pod("p", cpu="2")
    await sched.settle()


async def send(sched: SchedulerHarness) -> None:
    """Let the Binding leave."""
    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.settle()


@pytest.mark.parametrize("gone", [False, True], ids=["92 its capacity is taken", "the node is gone"])
async def test_a_node_that_does_not_fit_the_pod_any_more_is_a_conflict(gone: bool) -> None:
    sched = SchedulerHarness()
    await decided(sched)
    if gone:
        sched.node_gone("n1")
    else:
        sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await send(sched)

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])
    reason = "1 node(s) had gone before the pod was bound" if gone else "1 Insufficient cpu"
    event = sched.recorder.events[0]
    assert (event.reason, event.note) == ("FailedScheduling", f"0/1 nodes are available: {reason}.")


async def test_a_pod_that_another_scheduler_bound_to_this_node_takes_the_capacity_of_ours() -> None:
    """Our scheduler had given that pod another node."""
    sched = SchedulerHarness()
    for name in ("n1", "n2"):
        sched.node(name, cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    for name in ("p", "q"):
        sched.pod(name, cpu="2")
    await sched.settle()
    held = sched.cluster.get("uid-q")
    assert held is not None
    sched.pod("p", cpu="2", on=held.node_name)
    await send(sched)

    assert conflicts(sched).get("node") == 1
    assert ("default/q", held.node_name) not in sched.writer.binds
    assert sched.message("q") == "0/1 nodes are available: 1 Insufficient cpu."


BY_ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
DB: dict[str, Any] = {"labels": {"app": "db"}}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [BY_ZONE]}}}
SPREAD = {**BY_ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}


@pytest.mark.parametrize(("ours", "theirs", "reason"), [
    pytest.param(APART, DB, "didn't match pod anti-affinity rules", id="its anti-affinity selects the new pod"),
    pytest.param(DB, APART, "didn't satisfy existing pods anti-affinity rules",
        id="the new pod's anti-affinity selects it"),
    pytest.param({**DB, "topologySpreadConstraints": [SPREAD]}, DB, "didn't match pod topology spread constraints",
        id="its spread constraint counts the new pod"),
    pytest.param({}, DB, "", id="it has no constraint"),
])  # fmt: skip
async def test_a_new_pod_on_another_node_of_the_zone_is_checked_before_the_binding(
    ours: dict[str, Any], theirs: dict[str, Any], reason: str
) -> None:
    sched = SchedulerHarness()
    sched.writer.turn_hold = asyncio.Event()
    sched.node("n1", labels={"zone": "a"})
    sched.pod("p", **ours)
    await sched.settle()
    sched.node("n2", labels={"zone": "a"})
    sched.pod("theirs", on="n2", scheduler="default-scheduler", **theirs)
    await send(sched)

    assert sched.writer.binds == ([] if reason else [("default/p", "n1")])
    if reason:
        assert sched.message("p").startswith("0/")
        assert f"node(s) {reason}" in sched.message("p")


async def test_a_change_of_the_node_that_leaves_capacity_is_no_conflict() -> None:
    sched = SchedulerHarness()
    await decided(sched)
    sched.node("n1", cpu="3")
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await send(sched)

    assert (conflicts(sched), sched.writer.binds) == ({}, [("default/p", "n1")])


async def test_the_record_has_the_version_of_the_watch_when_the_binding_was_sent() -> None:
    shown = "5"
    sched = SchedulerHarness(pod_watch=PodWatch(version=lambda: shown))
    await decided(sched)
    record = sched.parts.records.of("default/p")[-1]
    assert record.seen_resource_version == ""

    shown = "7"
    await send(sched)

    assert record.seen_resource_version == "7"


async def test_changes_that_wait_in_the_inbox_are_applied_before_the_binding_is_sent() -> None:
    sched = SchedulerHarness()
    await decided(sched)
    theirs = read_pod(manifest("theirs", cpu="1", on="n1", scheduler="default-scheduler"))
    sched.parts.inbox.put(partial(sched.parts.event_handlers.apply, "Pod", [Delta(None, theirs)]))

    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.turns()

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])


IN_1_37 = default(feature_gates=defaults("1.37"))
AWAY, BROKEN, UNREACHABLE = (Unavailable("no", status=status) for status in (503, 500, 0))


async def bound_with(config: Configuration, *errors: ApiError, server: str = "") -> SchedulerHarness:
    """A binding whose first tries fail with these errors; `server` is the node on which a read then finds the pod."""
    sched = SchedulerHarness(config)
    left = list(errors)

    def answer(pod: Pod, node_name: str) -> None:
        if left:
            raise left.pop(0)

    sched.writer.on_bind = answer
    sched.node("n1")
    sched.pod("p")
    sched.writer.server["default/p"] = typed(manifest("p", on=server))
    await sched.settle()
    for _ in errors:
        await sched.later(0.26)
    return sched


@pytest.mark.parametrize(
    ("config", "errors", "binds", "place"),
    [
        pytest.param(Configuration(), [AWAY], 1, "error backoff", id="1.36 does not retry"),
        pytest.param(IN_1_37, [AWAY], 2, None, id="503 is retried"),
        pytest.param(IN_1_37, [BROKEN], 2, None, id="500 is retried"),
        pytest.param(IN_1_37, [UNREACHABLE], 2, None, id="a refused connection is retried"),
        pytest.param(IN_1_37, [AWAY, BROKEN, UNREACHABLE], 4, None, id="the fourth try succeeds"),
        pytest.param(IN_1_37, [AWAY] * 4, 4, "error backoff", id="there is no fifth try"),
        pytest.param(IN_1_37, [Unavailable("no", status=504)], 1, "error backoff", id="504 is not retried"),
        pytest.param(IN_1_37, [Forbidden("no")], 1, "error backoff", id="a missing permission is not retried"),
        pytest.param(IN_1_37, [Conflict("odd")], 1, "error backoff", id="a conflict without a cause is not retried"),
    ],
)
async def test_a_binding_is_retried(
    config: Configuration, errors: list[ApiError], binds: int, place: str | None
) -> None:
    """The pauses are 10, 50 and 250 ms. The node stays the same, and the pod stays assumed."""
    sched = await bound_with(config, *errors)

    assert sched.writer.binds == [("default/p", "n1")] * binds
    assert sched.places().get("p") == place
    assert sched.cluster.is_assumed("uid-p") == (place is None)


async def test_a_retry_of_a_binding_that_was_carried_out_gets_a_conflict() -> None:
    """The pod is read, and it is on our node."""
    sched = await bound_with(IN_1_37, BROKEN, Conflict("already assigned"), server="n1")

    assert len(sched.writer.binds) == 2
    assert [e.reason for e in sched.recorder.events] == ["Scheduled"]


async def test_pauses_between_the_tries_of_a_binding() -> None:
    sched = SchedulerHarness(IN_1_37)
    sent_at = []

    def answer(pod: Pod, node_name: str) -> None:
        sent_at.append(round(sched.clock.now() - 1000, 3))
        raise AWAY

    sched.writer.on_bind = answer
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    for pause_s in (0.01, 0.05, 0.25):
        await sched.later(pause_s + 1e-9)

    assert sent_at == [0, 0.01, 0.06, 0.31]


class Waits(BeforeBind):
    """PreBind that returns once `go` is set."""

    def __init__(self) -> None:
        super().__init__("Waits")
        self.go = asyncio.Event()

    async def pre_bind(self, *_: object) -> Rejection | None:
        await self.go.wait()
        return None


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        pytest.param(None, (["Success"], ["Success"]), id="success"),
        pytest.param(Rejection("Before", Code.UNSCHEDULABLE, ("no",)), (["Unschedulable"], []), id="a rejection"),
        pytest.param(Rejection("Before", Code.ERROR, ("broke",)), (["Error"], []), id="an error that is returned"),
        pytest.param(AttemptError("broke"), (["Error"], []), id="an error that is raised"),
        pytest.param(ValueError("unforeseen"), (["Error"], []), id="a bug of the plugin"),
    ],
)
async def test_statuses_of_prebind_and_bind(
    answer: Rejection | Exception | None, statuses: tuple[list[str], list[str]]
) -> None:
    """Upstream's statuses: alerts count those that are errors (docs/spec/core.md §7.1)."""
    sched = with_pods(pre_bind=(BeforeBind("Before", answer=answer),))
    await sched.settle()

    assert (point_statuses(sched, "PreBind"), point_statuses(sched, "Bind")) == statuses


async def test_a_pod_that_is_preempted_in_prebind_counts_no_failure() -> None:
    sched = with_pods(pre_bind=(Waits(),))
    await sched.settle()
    assert sched.parts.binder.preempt("uid-p", "DefaultPreemption")
    await sched.settle()

    assert point_statuses(sched, "PreBind") == point_statuses(sched, "Bind") == []


async def test_the_time_that_scheduling_took_counts_from_the_first_attempt() -> None:
    """A pod that found no node for 40 s took these 40 s, although its last attempt took none."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(40)
    sched.node("n1", cpu="2")
    await sched.settle()

    assert ["default/p"] == [key for key, _ in sched.writer.binds]
    sums = samples(sched, "scheduler_pod_scheduling_sli_duration_seconds_sum")
    assert {each.labels["attempts"]: each.value for each in sums} == {"2": 40.0}


async def test_the_age_of_the_oldest_binding() -> None:
    """`oldest_s` runs from the pop until the answer, `unconfirmed_s` from the answer until the watch shows the pod."""
    plugin = Waits()
    sched = with_pods("", pre_bind=(plugin,))
    binder, cluster = sched.parts.binder, sched.cluster
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 0)

    sched.pod("p")
    await sched.settle()
    await sched.later(40)
    sched.pod("q")
    await sched.settle()
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (40, 0)

    plugin.go.set()
    await sched.settle()
    await sched.later(7)
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 7)

    sched.pod("p", on="n1")
    assert cluster.unconfirmed_s() == 7
    sched.gone("q")
    assert cluster.unconfirmed_s() == 0


async def test_a_watch_event_before_the_answer_leaves_nothing_unconfirmed() -> None:
    sched = with_pods()

    def answer(pod: Pod, node_name: str) -> None:
        sched.pod("p", on="n1")

    sched.writer.on_bind = answer
    await sched.settle()
    await sched.later(30)

    assert sched.cluster.sizes()["assumed_pods"] == 0
    assert sched.cluster.unconfirmed_s() == 0
