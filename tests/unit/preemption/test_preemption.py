"""Evictions: the writes, their order, and the effect of errors (docs/spec/core.md §3.10 step 5, §9.7); pods without victims leave time.

The clock moves with every reading, so work takes the same time in each run, without any sleep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scheduler import preemption
from scheduler.api.apps_and_policy import DISRUPTION_TARGET
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration
from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from scheduler.framework.extender import Consultation
from scheduler.preemption import EVICTIONS_IN_FLIGHT
from tests.unit.harness import SchedulerHarness, StepClock, manifest, typed
from tests.unit.preemption.evicting import Wire, arena, ended, events, is_clean, metric, rest, show, show_refused

MARKED = {
    "type": DISRUPTION_TARGET,
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "kubestow: preempting to accommodate a higher priority pod",
}


# -- order -------------------------------------------------------------------------------------------------------------


async def test_180_a_victim_is_marked_and_deleted_and_the_preemptor_is_bound_after_its_end() -> None:
    sched, wire = arena(1)
    await rest(sched)

    assert wire.landed == ["nominate p n1", "mark v0", "delete v0"]
    condition = wire.conditions["v0"]
    assert (condition.type, condition.status, condition.reason, condition.message) == tuple(MARKED.values())
    assert events(sched, "Preempted") == [("v0", "Preempted by pod uid-p on node n1")]
    assert sched.places() == {"p": "unschedulable"}
    assert ended(sched) == (1, 0)

    show(sched, "v0", deleting=True)
    await sched.later(20)
    assert (sched.writer.binds, len(wire.landed)) == ([], 3)

    sched.gone("v0")
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]
    sched.pod("p", cpu="1", priority=100, on="n1")
    assert is_clean(sched)


async def test_the_worked_example() -> None:
    """The steps of the docstring of scheduler.preemption."""
    sched, wire = arena(2)
    wire.hold("delete v1")
    await rest(sched)
    first = ["nominate p n1", "mark v0", "delete v0", "mark v1"]
    assert (wire.landed, wire.sent) == (first, [*first, "delete v1"])
    sched.gone("v0")
    await rest(sched)
    assert sched.writer.binds == []

    wire.answer("delete v1")
    await rest(sched)
    sched.gone("v1")
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]


async def test_no_victim_is_touched_before_the_nomination_is_on_the_server() -> None:
    """After a restart the nomination shows for which pod the capacity is."""
    sched, wire = arena(2)
    wire.hold("nominate p n1")
    await sched.later(60)
    assert wire.sent == ["nominate p n1"]

    wire.answer("nominate p n1")
    await rest(sched)
    assert sorted(wire.victims()) == ["v0", "v1"]


async def test_victims_are_marked_before_they_are_deleted_and_the_last_one_is_evicted_alone() -> None:
    sched, wire = arena(4)
    wire.hold("mark v0", "delete v1")
    await rest(sched)
    first = ["nominate p n1", "mark v0", "mark v1", "mark v2", "delete v1", "delete v2"]
    assert sorted(wire.sent) == sorted(first)

    wire.answer("mark v0")
    await rest(sched)
    assert wire.sent[-1] == "delete v0"
    wire.answer("delete v1")
    await rest(sched)
    assert wire.landed[-2:] == ["mark v3", "delete v3"]


async def test_the_number_of_parallel_evictions_is_limited() -> None:
    sched, wire = arena(EVICTIONS_IN_FLIGHT + 4)
    names = [f"v{i}" for i in range(EVICTIONS_IN_FLIGHT + 4)]
    wire.hold(*(f"mark {name}" for name in names))
    await rest(sched)
    assert (wire.on_the_wire, len(wire.sent)) == (EVICTIONS_IN_FLIGHT, EVICTIONS_IN_FLIGHT + 1)

    wire.answer(*(f"mark {name}" for name in names))
    await rest(sched)
    assert wire.most_on_the_wire == EVICTIONS_IN_FLIGHT
    assert sorted(wire.victims()) == sorted(names)


async def test_a_condition_that_the_victim_has_is_not_written_again() -> None:
    sched, wire = arena(1)
    show(sched, "v0", conditions=[MARKED])
    await rest(sched)

    assert wire.landed == ["nominate p n1", "delete v0"]


async def test_a_nomination_that_the_status_has_is_not_written_again() -> None:
    sched, wire = arena(1, schedulingGates=[{"name": "wait"}])
    show_refused(sched, nominated="n1")
    await rest(sched)

    assert wire.landed == ["mark v0", "delete v0"]


@pytest.mark.parametrize(("leaving", "deleted", "counted"), [("v0 v1", [], 0), ("v1", ["v0"], 2)], ids=["all", "one"])
async def test_187_terminating_victims_get_no_write(leaving: str, deleted: list[str], counted: int) -> None:
    """They get no condition and no DELETE. The histogram counts all victims, as upstream."""
    sched, wire = arena(2)
    for name in leaving.split():
        show(sched, name, deleting=True)
    await rest(sched)

    assert wire.landed == ["nominate p n1", *(f"{write} {name}" for name in deleted for write in ("mark", "delete"))]
    assert sched.places() == {"p": "unschedulable"}
    assert metric(sched, "scheduler_preemption_victims_sum") == counted
    assert ended(sched) == (len(deleted), 0)
    assert is_clean(sched) is not bool(deleted)


@pytest.mark.parametrize(("scheduler", "counted"), [("theirs", 2), ("kubestow", 0)])
async def test_victims_of_other_schedulers_are_counted(scheduler: str, counted: int) -> None:
    """The metric answers #57315."""
    sched = SchedulerHarness()
    Wire(sched)
    sched.node("n1", cpu="2")
    for name in ("v0", "v1"):
        sched.pod(name, cpu="1", on="n1", scheduler=scheduler)
    sched.pod("p", cpu="2", priority=100)
    await rest(sched)

    assert metric(sched, "kubestow_preemption_other_victims_total") == counted
    assert metric(sched, "scheduler_preemption_attempts_total") == 1


# -- a write that does not succeed -------------------------------------------------------------------------------------


async def failed(sched: SchedulerHarness, wire: Wire) -> None:
    """The preemption has failed. The pod is retried once its deleted victims are gone, and then it succeeds."""
    assert ended(sched) == (0, 1)
    assert not sched.parts.evictions._plans
    wire.refuses.clear()
    dead = wire.victims()
    if dead:
        await sched.later(30)
        assert wire.victims() == dead
    for name in dead:
        sched.gone(name)
    await sched.later(30)
    await rest(sched)
    assert set(wire.victims()) == {"v0", "v1", "v2"}
    assert ended(sched)[0] == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unavailable("500"), id="a server error"),
        pytest.param(Forbidden("no"), id="a missing permission"),
        pytest.param(Ambiguous("reset"), id="an answer that was lost"),
    ],
)
async def test_no_pod_is_evicted_if_the_nomination_fails(error: ApiError) -> None:
    sched, wire = arena(3)
    wire.refuses["nominate p n1"] = [error]
    await rest(sched)

    assert wire.landed == []
    await failed(sched, wire)


@pytest.mark.parametrize(
    "error", [NotFound("gone"), Fenced("not leading")], ids=["the pod is gone", "the lead is lost"]
)
async def test_no_pod_is_evicted_and_nothing_is_retried_if_the_nomination_cannot_be_written(error: ApiError) -> None:
    sched, wire = arena(3)
    wire.refuses["nominate p n1"] = [error]
    await rest(sched)
    sched.gone("p")
    await sched.later(60)

    assert (wire.landed, wire.sent) == ([], ["nominate p n1"])
    assert is_clean(sched)


ANOTHER = {"uid": "another"}
DELETED, REPLACED = NotFound("gone"), Conflict("uid", status=409)


@pytest.mark.parametrize(
    ("write", "errors", "server", "goes_on"),
    [
        pytest.param("mark", [DELETED], None, True, id="condition: the victim is gone"),
        pytest.param("mark", [Invalid("uid", status=422)], ANOTHER, True, id="condition: another pod has its name"),
        pytest.param("mark", [REPLACED], ANOTHER, True, id="condition: another pod has its name, by a conflict"),
        pytest.param("mark", [Invalid("uid", status=422)], None, True, id="condition: another pod of its name is gone, too"),
        pytest.param("mark", [Invalid("bad", status=422)], {}, False, id="condition: the patch is refused"),
        pytest.param("mark", [NotFound("odd", status=404)], {}, False, id="condition: not found, and a read finds it"),
        pytest.param("mark", [Unavailable("500")], {}, False, id="condition: a server error"),
        pytest.param("mark", [Forbidden("no")], {}, False, id="condition: a missing permission"),
        pytest.param("delete", [DELETED], None, True, id="193 deletion: the victim is gone"),
        pytest.param("delete", [REPLACED], ANOTHER, True, id="deletion: another pod has its name"),
        pytest.param("delete", [REPLACED], None, True, id="deletion: another pod of its name is gone, too"),
        pytest.param("delete", [Conflict("odd", status=409)], {}, False, id="deletion: a conflict without a cause"),
        pytest.param("delete", [NotFound("odd", status=404)], {}, False, id="deletion: not found, and a read finds it"),
        pytest.param("delete", [Forbidden("no")], {}, False, id="192 deletion: a missing permission"),
        pytest.param("delete", [Unavailable("500")] * 4, {}, False, id="192 deletion: a server error on each try"),
        pytest.param("delete", [Ambiguous("reset")] * 4, {}, False, id="deletion: an answer lost on each try"),
        pytest.param("delete", [TooManyRequests("busy")], {}, False, id="deletion: a busy server that names no time"),
        pytest.param("delete", [Fenced("not leading")], {}, False, id="deletion: leadership is lost"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("victim", ["v0", "v2"], ids=["one of many", "the last"])
async def test_a_write_to_a_victim_that_fails(
    victim: str, write: str, errors: list[ApiError], server: dict[str, str] | None, goes_on: bool
) -> None:
    sched, wire = arena(3)
    wire.refuses[f"{write} {victim}"] = [*errors]
    if server is not None:
        sched.writer.server[f"default/{victim}"] = typed(manifest(victim, **server))
    await rest(sched)
    for seconds in (0.02, 0.06, 0.3):
        sched.clock.move(seconds)
        await rest(sched)

    if write == "mark":
        assert f"delete {victim}" not in wire.sent
    assert victim not in dict(events(sched, "Preempted"))
    if goes_on:
        assert ended(sched) == (1, 0)
        assert set(wire.victims()) == {"v0", "v1", "v2"} - {victim}
    else:
        assert "v2" not in wire.victims()
        await failed(sched, wire)


@pytest.mark.parametrize(
    ("refuses", "loses", "waits_s"),
    [
        pytest.param([Unavailable("500"), Unavailable("500"), Unavailable("500")], [], (0.01, 0.05, 0.25), id="away"),
        pytest.param([Ambiguous("reset")], [], (0.01,), id="lost before it was carried out"),
        pytest.param([], [Ambiguous("reset")], (0.01,), id="lost after it was carried out"),
        pytest.param([TooManyRequests("busy", retry_after_s=7)] * 9, [], (7,) * 9, id="busy, nine times"),
    ],
)
async def test_a_deletion_is_repeated(refuses: list[ApiError], loses: list[ApiError], waits_s: tuple[float]) -> None:
    sched, wire = arena(1)
    wire.refuses["delete v0"], wire.loses["delete v0"] = [*refuses], [*loses]
    tries = len(refuses) + len(loses)
    await rest(sched)
    for at, wait_s in enumerate(waits_s, 1):
        sched.clock.move(wait_s - 0.001)
        await rest(sched)
        assert wire.sent.count("delete v0") == at
        sched.clock.move(0.002)
        await rest(sched)

    assert wire.sent.count("delete v0") == tries + 1
    assert ended(sched) == (1, 0)
    assert len(events(sched, "Preempted")) == 1


async def test_after_nine_waits_a_busy_server_is_given_up() -> None:
    sched, wire = arena(1)
    wire.refuses["delete v0"] = [TooManyRequests("busy", retry_after_s=1)] * 10
    for _ in range(10):
        await rest(sched)
        sched.clock.move(1.001)
    await rest(sched)

    assert (wire.refuses["delete v0"], ended(sched)[1]) == ([], 1)


@pytest.mark.parametrize("then", [
    pytest.param(lambda sched, wire: show(sched, "v0", deleting=True), id="the watch shows that it is leaving"),
    pytest.param(lambda sched, wire: sched.gone("v0"), id="the watch shows that it has gone"),
    pytest.param(lambda sched, wire: wire.refuses.update({"delete v0": [NotFound("gone")]}),
        id="the server has it no more"),
])  # fmt: skip
async def test_a_deletion_whose_answer_was_lost_has_an_event(then: Callable[[SchedulerHarness, Wire], None]) -> None:
    sched, wire = arena(1)
    wire.loses["delete v0"] = [Ambiguous("reset")]
    await rest(sched)
    then(sched, wire)
    sched.clock.move(0.02)
    await rest(sched)

    assert [name for name, _ in events(sched, "Preempted")] == ["v0"]
    assert ended(sched) == (1, 0)


async def test_a_bug_fails_one_preemption() -> None:
    sched, wire = arena(2)
    wire.refuses["delete v0"] = [ValueError("a mistake")]  # type: ignore[list-item]
    await rest(sched)
    assert (ended(sched), wire.victims()) == ((0, 1), [])

    await sched.later(5)
    await rest(sched)
    assert sorted(wire.victims()) == ["v0", "v1"]


# -- retries ------------------------------------------------------------------------------------------------------------


async def test_retries_against_a_server_that_always_refuses_follow_the_back_off() -> None:
    sched, wire = arena(1)
    wire.refuses["delete v0"] = [Forbidden("no")] * 1000
    for _ in range(240):
        await sched.later(0.25)
        await sched.turns()

    tries = wire.sent.count("delete v0")
    assert 5 <= tries <= 9  # one minute with waits of 1, 2, 4, 8, 10, 10 … seconds


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "error", "levels"),
    [
        pytest.param("delete v0", Forbidden("no"), ["warning"], id="refused: logged"),
        pytest.param("delete v0", Fenced("not leading"), [], id="not leading: not logged here"),
        pytest.param("mark v0", NotFound("gone"), [], id="gone: not logged"),
    ],
)
async def test_errors_that_are_logged(
    monkeypatch: pytest.MonkeyPatch, write: str, error: ApiError, levels: list[str]
) -> None:
    lines = CapturingLogger()
    monkeypatch.setattr(preemption, "_log", lines)
    sched, wire = arena(1)
    wire.refuses[write] = [error]
    await rest(sched)

    assert [call.method_name for call in lines.calls] == levels


NODES = 60
REPLICAS = 6
READING_S = 0.002
SPREAD = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "db"}},
}
"""Spread depends on all nodes, so no verdict is cached."""


class Reading(StepClock):
    """Each reading takes two milliseconds once it `runs`."""

    runs = False

    def now(self) -> float:
        self.time += READING_S if self.runs else 0.0
        return self.time


def crowded(monkeypatch: pytest.MonkeyPatch, **switches: Any) -> tuple[SchedulerHarness, list[str]]:
    """Return a scheduler where preemption finds no victims for replicas, and the list of tried pods.

    Each node has a pod of high priority and one of low priority. A replica requests a whole node.
    """
    config = Configuration()
    own = replace(config.profiles[0], args={**config.profiles[0].args, "Kubestow": KubestowArgs(**switches)})
    monkeypatch.setattr("tests.unit.harness.StepClock", Reading)
    sched = SchedulerHarness(replace(config, profiles=(own,)))
    for index in range(NODES):
        sched.node(f"n{index}", cpu="10", labels={"zone": f"z{index % 3}"})
        sched.pod(f"guard{index}", on=f"n{index}", cpu="1", priority=2000, scheduler="other")
        sched.pod(f"low{index}", on=f"n{index}", cpu="1", priority=-1, scheduler="other")
    tried: list[str] = []
    attempt = sched.parts.cycle.attempt

    def noted(pod: PodInfo, attempts: int, consultation: Consultation | None = None) -> Any:
        tried.append(pod.pod.metadata.name)
        return attempt(pod, attempts, consultation)

    monkeypatch.setattr(sched.parts.cycle, "attempt", noted)
    return sched, tried


def replicas(sched: SchedulerHarness, *names: str, priority: int = 1000, cpu: str = "10") -> None:
    for name in names or [f"db{index}" for index in range(REPLICAS)]:
        sched.pod(name, cpu=cpu, priority=priority, labels={"app": "db"}, topologySpreadConstraints=[SPREAD])


def wake_all(sched: SchedulerHarness) -> None:
    """Let a node shrink and grow again, which wakes all pods that would fit on it if it were empty."""
    for cpu in ("9", "10"):
        sched.node("n0", cpu=cpu, labels={"zone": "z0"})


async def busy(sched: SchedulerHarness, tried: list[str], *, is_over: Callable[[], bool]) -> list[str]:
    """Return the order of attempts until `is_over`, with the clock running. All pods are woken before each step."""
    tried.clear()
    sched.clock.runs = True  # type: ignore[attr-defined]
    for _ in range(2000):
        if is_over():
            break
        wake_all(sched)
        await sched.parts.loop.step()
        await sched.turns()
    sched.clock.runs = False  # type: ignore[attr-defined]
    assert is_over()
    return tried


async def failed_once(sched: SchedulerHarness, tried: list[str]) -> None:
    """All replicas have failed once, and their back-off is over."""
    replicas(sched)
    sched.clock.runs = True  # type: ignore[attr-defined]
    for _ in range(REPLICAS):
        await sched.parts.loop.step()
    sched.clock.runs = False  # type: ignore[attr-defined]
    assert sorted(tried) == [f"db{index}" for index in range(REPLICAS)]
    sched.clock.move(20)
    wake_all(sched)
    sched.parts.queue.tick()
    assert sched.parts.queue.counts()["active"] == REPLICAS


def bound(sched: SchedulerHarness, names: list[str]) -> Callable[[], bool]:
    return lambda: {f"default/{name}" for name in names} <= {key for key, _ in sched.writer.binds}


SMALL = [f"small{index}" for index in range(20)]


async def test_pods_never_tried_go_first_once_the_replicas_have_used_up_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One replica is tried by its priority. After it, small pods get nine times as long."""
    sched, tried = crowded(monkeypatch)
    await failed_once(sched, tried)
    for name in SMALL:
        sched.pod(name, cpu="100m", priority=0)

    order = await busy(sched, tried, is_over=bound(sched, SMALL))

    assert [name for name in order if name.startswith("small")] == SMALL
    assert order[0].startswith("db")
    assert sum(name.startswith("db") for name in order) <= 2


@pytest.mark.parametrize(("switches", "order"), [
    pytest.param({}, [["small"], [], ["db"]], id="after a long attempt for nine times as long"),
    pytest.param({"preemption_fair_share": "none"}, [["db"]] * 3, id="the switch"),
])  # fmt: skip
async def test_a_pod_whose_attempt_took_seconds_waits_also_while_no_other_pod_is_ready(
    monkeypatch: pytest.MonkeyPatch, switches: Any, order: list[list[str]]
) -> None:
    """A pod that arrives during an attempt waits for its end."""
    sched, tried = crowded(monkeypatch, **switches)
    attempt = sched.parts.cycle.attempt

    def slow(pod: PodInfo, attempts: int, consultation: Consultation | None = None) -> Any:
        sched.clock.move(3.0 if pod.pod.metadata.name == "db" else 0.0)
        return (yield from attempt(pod, attempts, consultation))

    monkeypatch.setattr(sched.parts.cycle, "attempt", slow)
    replicas(sched, "db")

    async def tried_after(seconds: float) -> list[str]:
        tried.clear()
        sched.clock.move(seconds)
        wake_all(sched)
        await sched.parts.loop.step()
        await sched.turns()
        return tried.copy()

    assert await tried_after(0.0) == ["db"]
    sched.pod("small", cpu="100m", priority=0)
    assert [await tried_after(seconds) for seconds in (20.0, 3.0, 5.0)] == order


@pytest.mark.parametrize(
    "switches",
    [pytest.param({"preemption_fair_share": "none"}, id="the switch"), pytest.param({"parity": True}, id="parity")],
)
async def test_priority_alone_decides_without_the_share(monkeypatch: pytest.MonkeyPatch, switches: Any) -> None:
    """As kube-scheduler: every replica is tried before any small pod is, and that again after each back-off."""
    sched, tried = crowded(monkeypatch, **switches)
    await failed_once(sched, tried)
    for name in SMALL:
        sched.pod(name, cpu="100m", priority=0)

    order = await busy(sched, tried, is_over=bound(sched, SMALL))

    assert order.index("small0") >= REPLICAS


async def test_replicas_keep_their_share_while_pods_that_fit_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    sched, tried = crowded(monkeypatch)
    await failed_once(sched, tried)
    spent: list[float] = []
    charge = sched.parts.queue.fair_share.charge

    def charged(info: PodInfo, spent_s: float) -> None:
        spent.append(spent_s)
        charge(info, spent_s)

    monkeypatch.setattr(sched.parts.queue.fair_share, "charge", charged)
    began, index = sched.clock.time, 0

    def is_over() -> bool:
        nonlocal index
        while sched.parts.queue.counts()["active"] < REPLICAS + 3:
            sched.pod(f"stream{index}", cpu="1m", priority=0)
            index += 1
        return len(spent) >= 2 * REPLICAS

    order = await busy(sched, tried, is_over=is_over)

    assert 0.05 <= sum(spent) / (sched.clock.time - began) <= 0.15
    assert {name for name in order if name.startswith("db")} == {f"db{index}" for index in range(REPLICAS)}
