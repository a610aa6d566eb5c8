"""Evictions: what is written, in which order, and what one refusal costs (docs/spec/core.md §3.10 step 5, §9.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import CapturingLogger

from scheduler import preemption
from scheduler.api.apps_and_policy import DISRUPTION_TARGET
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
from scheduler.preemption import EVICTIONS_IN_FLIGHT
from tests.unit.harness import SchedulerHarness, manifest, typed
from tests.unit.preemption.evicting import Wire, arena, ended, events, is_clean, metric, rest, show, show_refused

TOLD = {
    "type": DISRUPTION_TARGET,
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "kubestow: preempting to accommodate a higher priority pod",
}


def bound_at_last(sched: SchedulerHarness) -> None:
    """The watch shows that the preemptor has its place."""
    sched.pod("p", cpu="1", priority=100, on="n1")


# -- order -------------------------------------------------------------------------------------------------------------


async def test_180_a_victim_is_told_and_deleted_and_the_preemptor_comes_when_it_has_gone() -> None:
    """Nomination, condition, DELETE, event; then nothing, until the watch shows the end of the victim."""
    sched, wire = arena(1)
    await rest(sched)

    assert wire.landed == ["nominate p n1", "tell v0", "delete v0"]
    told = wire.told["v0"]
    assert (told.type, told.status, told.reason, told.message) == tuple(TOLD.values())
    assert events(sched, "Preempted") == [("v0", "Preempted by pod uid-p on node n1")]
    assert sched.places() == {"p": "unschedulable"}
    assert ended(sched) == (1, 0)

    show(sched, "v0", deleting=True)
    await sched.later(20)
    assert (sched.writer.binds, len(wire.landed)) == ([], 3)

    sched.gone("v0")
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]
    bound_at_last(sched)
    assert is_clean(sched)


async def test_no_victim_is_touched_before_the_nomination_is_on_the_server() -> None:
    """A restart in between must find out whose place that is."""
    sched, wire = arena(2)
    wire.hold("nominate p n1")
    await sched.later(60)
    assert wire.sent == ["nominate p n1"]

    wire.answer("nominate p n1")
    await rest(sched)
    assert sorted(wire.victims()) == ["v0", "v1"]


async def test_victims_are_told_before_they_are_deleted_and_the_last_one_is_evicted_alone() -> None:
    sched, wire = arena(4)
    wire.hold("tell v0", "delete v1")
    await rest(sched)
    assert sorted(wire.sent) == ["delete v1", "delete v2", "nominate p n1", "tell v0", "tell v1", "tell v2"]

    wire.answer("tell v0")
    await rest(sched)
    assert wire.sent[-1] == "delete v0"
    wire.answer("delete v1")
    await rest(sched)
    assert wire.landed[-2:] == ["tell v3", "delete v3"]


async def test_so_many_are_evicted_at_once_and_no_more() -> None:
    sched, wire = arena(EVICTIONS_IN_FLIGHT + 4)
    names = [f"v{i}" for i in range(EVICTIONS_IN_FLIGHT + 4)]
    wire.hold(*(f"tell {name}" for name in names))
    await rest(sched)
    assert (wire.on_the_wire, len(wire.sent)) == (EVICTIONS_IN_FLIGHT, EVICTIONS_IN_FLIGHT + 1)

    wire.answer(*(f"tell {name}" for name in names))
    await rest(sched)
    assert wire.most_on_the_wire == EVICTIONS_IN_FLIGHT
    assert sorted(wire.victims()) == sorted(names)


async def test_what_a_victim_says_already_is_not_written_again() -> None:
    """After a restart the condition of an earlier attempt may be there."""
    sched, wire = arena(1)
    show(sched, "v0", conditions=[TOLD])
    await rest(sched)

    assert wire.landed == ["nominate p n1", "delete v0"]


async def test_a_nomination_that_is_there_already_is_not_waited_for() -> None:
    """The status shows node and words of an earlier attempt: nothing is to be written before the victim."""
    sched, wire = arena(1, schedulingGates=[{"name": "wait"}])
    show_refused(sched, nominated="n1")
    await rest(sched)

    assert wire.landed == ["tell v0", "delete v0"]


@pytest.mark.parametrize(("leaving", "deleted", "counted"), [("v0 v1", [], 0), ("v1", ["v0"], 2)], ids=["all", "one"])
async def test_187_victims_that_are_leaving_are_left_alone(leaving: str, deleted: list[str], counted: int) -> None:
    """They get no condition and no DELETE. The histogram counts all victims of a preemption, as upstream."""
    sched, wire = arena(2)
    for name in leaving.split():
        show(sched, name, deleting=True)
    await rest(sched)

    assert wire.landed == ["nominate p n1", *(f"{write} {name}" for name in deleted for write in ("tell", "delete"))]
    assert sched.places() == {"p": "unschedulable"}
    assert metric(sched, "scheduler_preemption_victims_sum") == counted
    assert ended(sched) == (len(deleted), 0)
    assert is_clean(sched) is not bool(deleted)


@pytest.mark.parametrize(("scheduler", "others"), [("theirs", 2), ("kubestow", 0)])
async def test_victims_of_other_schedulers_are_counted(scheduler: str, others: int) -> None:
    """#57315: who preempts whom can be seen."""
    sched = SchedulerHarness()
    Wire(sched)
    sched.node("n1", cpu="2")
    for name in ("v0", "v1"):
        sched.pod(name, cpu="1", on="n1", scheduler=scheduler)
    sched.pod("p", cpu="2", priority=100)
    await rest(sched)

    assert metric(sched, "kubestow_preemption_other_victims_total") == others
    assert metric(sched, "scheduler_preemption_attempts_total") == 1


# -- a write that does not succeed -------------------------------------------------------------------------------------


async def failed(sched: SchedulerHarness, wire: Wire) -> None:
    """The preemption was given up; the pod tries again by itself, and with a willing server it gets its place.

    Not before those that died for it have left: they may be enough by then.
    """
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
        pytest.param(Ambiguous("reset"), id="an answer that was lost to the end"),
    ],
)
async def test_a_nomination_that_is_not_written_evicts_nobody(error: ApiError) -> None:
    sched, wire = arena(3)
    wire.refuses["nominate p n1"] = [error]
    await rest(sched)

    assert wire.landed == []
    await failed(sched, wire)


@pytest.mark.parametrize(
    "error", [NotFound("gone"), Fenced("not leading")], ids=["the pod is gone", "the lead is lost"]
)
async def test_a_nomination_that_cannot_be_written_any_more_evicts_nobody(error: ApiError) -> None:
    """The preemption is not tried again."""
    sched, wire = arena(3)
    wire.refuses["nominate p n1"] = [error]
    await rest(sched)
    sched.gone("p")
    await sched.later(60)

    assert (wire.landed, wire.sent) == ([], ["nominate p n1"])
    assert is_clean(sched)


GONE = pytest.param([NotFound("gone")], None, True, id="it has gone")
ANOTHER = {"uid": "another"}


@pytest.mark.parametrize(
    ("errors", "server", "goes_on"),
    [
        GONE,
        pytest.param([Invalid("uid", status=422)], ANOTHER, True, id="a namesake has taken its name"),
        pytest.param([Conflict("uid", status=409)], ANOTHER, True, id="a namesake, as other servers say it"),
        pytest.param([Invalid("uid", status=422)], None, True, id="a namesake came and went"),
        pytest.param([Invalid("bad", status=422)], {}, False, id="it is there, and the patch is refused"),
        pytest.param([NotFound("odd", status=404)], {}, False, id="not found, and it is there"),
        pytest.param([Unavailable("500")], {}, False, id="a server error"),
        pytest.param([Forbidden("no")], {}, False, id="a missing permission"),
    ],
)
@pytest.mark.parametrize("victim", ["v0", "v2"], ids=["one of many", "the last"])
async def test_a_victim_that_could_not_be_told(
    victim: str, errors: list[ApiError], server: dict[str, str] | None, goes_on: bool
) -> None:
    """Gone is as good as evicted, without an event; else it lives, and so do those that were not yet told."""
    sched, wire = arena(3)
    wire.refuses[f"tell {victim}"] = [*errors]
    if server is not None:
        sched.writer.server[f"default/{victim}"] = typed(manifest(victim, **server))
    await rest(sched)

    assert f"delete {victim}" not in wire.sent
    assert victim not in dict(events(sched, "Preempted"))
    if goes_on:
        assert ended(sched) == (1, 0)
        assert set(wire.victims()) == {"v0", "v1", "v2"} - {victim}
    else:
        assert "v2" not in wire.victims()
        await failed(sched, wire)


@pytest.mark.parametrize(
    ("errors", "server", "goes_on"),
    [
        pytest.param([NotFound("gone")], None, True, id="193 it has gone"),
        pytest.param([Conflict("uid", status=409)], ANOTHER, True, id="a namesake has taken its name"),
        pytest.param([Conflict("uid", status=409)], None, True, id="a namesake came and went"),
        pytest.param([Conflict("odd", status=409)], {}, False, id="a conflict without a cause"),
        pytest.param([NotFound("odd", status=404)], {}, False, id="not found, and it is there"),
        pytest.param([Forbidden("no")], {}, False, id="a missing permission"),
        pytest.param([Unavailable("500")] * 4, {}, False, id="192 a server error to the end"),
        pytest.param([Ambiguous("reset")] * 4, {}, False, id="lost before it was carried out, to the end"),
        pytest.param([TooManyRequests("busy")], {}, False, id="a busy server that names no time"),
        pytest.param([Fenced("not leading")], {}, False, id="leadership lost"),
    ],
)
@pytest.mark.parametrize("victim", ["v0", "v2"], ids=["one of many", "the last"])
async def test_a_victim_that_could_not_be_deleted(
    victim: str, errors: list[ApiError], server: dict[str, str] | None, goes_on: bool
) -> None:
    """The remaining ones are skipped, and the preemptor is not stuck."""
    sched, wire = arena(3)
    wire.refuses[f"delete {victim}"] = [*errors]
    if server is not None:
        sched.writer.server[f"default/{victim}"] = typed(manifest(victim, **server))
    await rest(sched)
    for seconds in (0.02, 0.06, 0.3):
        sched.clock.move(seconds)
        await rest(sched)

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


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(lambda sched, wire: show(sched, "v0", deleting=True), id="the watch shows that it is leaving"),
        pytest.param(lambda sched, wire: sched.gone("v0"), id="the watch shows that it has gone"),
        pytest.param(
            lambda sched, wire: wire.refuses.update({"delete v0": [NotFound("gone")]}), id="the server has it no more"
        ),
    ],
)
async def test_a_deletion_whose_answer_was_lost_is_told_of(then: Callable[[SchedulerHarness, Wire], None]) -> None:
    """Users look for the event to learn why their pod has died."""
    sched, wire = arena(1)
    wire.loses["delete v0"] = [Ambiguous("reset")]
    await rest(sched)
    then(sched, wire)
    sched.clock.move(0.02)
    await rest(sched)

    assert [name for name, _ in events(sched, "Preempted")] == ["v0"]
    assert ended(sched) == (1, 0)


async def test_a_mistake_of_ours_costs_one_preemption() -> None:
    sched, wire = arena(2)
    wire.refuses["delete v0"] = [ValueError("a mistake")]  # type: ignore[list-item]
    await rest(sched)
    assert (ended(sched), wire.victims()) == ((0, 1), [])

    await sched.later(5)
    await rest(sched)
    assert sorted(wire.victims()) == ["v0", "v1"]


# -- how fast it is tried again ----------------------------------------------------------------------------------------


async def test_a_server_that_always_refuses_is_not_asked_faster_than_the_back_off_allows() -> None:
    sched, wire = arena(1)
    wire.refuses["delete v0"] = [Forbidden("no")] * 1000
    for _ in range(240):
        await sched.later(0.25)
        await sched.turns()

    tries = wire.sent.count("delete v0")
    assert 5 <= tries <= 9  # one minute with waits of 1, 2, 4, 8, 10, 10 … seconds


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "error", "levels"),
    [
        pytest.param("delete v0", Forbidden("no"), ["warning"], id="refused: said"),
        pytest.param("delete v0", Fenced("not leading"), [], id="not leading: said once, by others"),
        pytest.param("tell v0", NotFound("gone"), [], id="gone: nothing to say"),
    ],
)
async def test_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch, write: str, error: ApiError, levels: list[str]
) -> None:
    lines = CapturingLogger()
    monkeypatch.setattr(preemption, "_log", lines)
    sched, wire = arena(1)
    wire.refuses[write] = [error]
    await rest(sched)

    assert [call.method_name for call in lines.calls] == levels
