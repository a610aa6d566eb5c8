"""The binding cycle: PreBind, Bind, and how failures are undone (docs/spec/core.md §3.8, §3.12, §9.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scheduler import binding_state
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.binding_state import PodWatch
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from scheduler.framework.status import AttemptError, Code, Rejection, Wait
from tests.unit.fake_plugins import AfterBind, BeforeBind, FakePlugin, Holds
from tests.unit.harness import SchedulerHarness, manifest, typed, with_pods
from tests.unit.scenarios.seen import bind_statuses, conflicts


def refuse_once(sched: SchedulerHarness, error: Exception) -> None:
    """Let the first bind fail. Later ones succeed."""

    def answer(pod: Pod, node_name: str) -> None:
        if len(sched.writer.binds) == 1:
            raise error

    sched.writer.on_bind = answer


async def test_199_a_pod_is_bound_and_its_event_is_written() -> None:
    """No condition is written, because the server sets it."""
    sched = with_pods()
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
    assert [(e.type_, e.reason, e.action, e.note) for e in sched.recorder.events] == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n1")
    ]
    assert sched.writer.conditions == []
    assert sched.cluster.is_assumed("uid-p")
    assert bind_statuses(sched) == ["Success"]


ERROR = "error backoff"
CONFLICT = Conflict("taken")


@pytest.mark.parametrize(("error", "server", "place", "conflict", "statuses"), [
    pytest.param(Unavailable("500"), {}, ERROR, {}, ["Error"], id="202 a server error: error back-off"),
    pytest.param(Forbidden("no"), {}, ERROR, {}, ["Error"], id="a missing permission: error back-off"),
    pytest.param(NotFound("gone"), {}, None, {}, [], id="the pod is gone: dropped"),
    pytest.param(NotFound("no such thing"), {"cpu": "1"}, ERROR, {}, ["Error"], id="the pod exists: error back-off"),
    pytest.param(CONFLICT, {"on": "n9"}, None, {"pod": 1}, [], id="200 another scheduler bound it: dropped"),
    pytest.param(Ambiguous("reset"), {"on": "n9"}, None, {"pod": 1}, [],
        id="bound elsewhere, and the answer was lost: dropped"),
    pytest.param(CONFLICT, {"deleting": True}, None, {}, [], id="201 the pod is terminating: dropped"),
    pytest.param(CONFLICT, {"uid": "another"}, None, {}, [], id="203 the pod was recreated: dropped"),
    pytest.param(CONFLICT, {"cpu": "1"}, ERROR, {}, ["Error"], id="a conflict without a cause: error back-off"),
])  # fmt: skip
async def test_a_refused_bind_is_undone(
    error: ApiError, server: dict[str, object], place: str | None, conflict: dict[str, float], statuses: list[str]
) -> None:
    """Plugins unreserve, the node's capacity is free, and only a binding by another scheduler counts as a conflict."""
    sched = with_pods(reserve=(Holds("R"),))
    if server:
        sched.writer.server["default/p"] = typed(manifest("p", **server))
    refuse_once(sched, error)
    await sched.settle()

    assert sched.calls == ["R.reserve", "R.unreserve"]
    assert sched.cluster.sizes()["assumed_pods"] == 0
    assert sched.places().get("p") == place
    assert len(sched.writer.binds) == 1
    assert (conflicts(sched), bind_statuses(sched)) == (conflict, statuses)


@pytest.mark.parametrize("committed", [True, False], ids=["the write was carried out", "the write was not carried out"])
async def test_a_lost_answer_is_settled_by_a_read(committed: bool) -> None:
    """If the pod is not bound the same node is tried again, while the assumption still holds it."""
    sched = with_pods(nodes="n1 n2")
    refuse_once(sched, Ambiguous("reset"))
    sched.writer.on_read = lambda: sched.writer.server.update(
        {"default/p": typed(manifest("p", on=sched.writer.binds[0][1] if committed else ""))}
    )
    await sched.settle()

    assert len({node for _, node in sched.writer.binds}) == 1
    assert len(sched.writer.binds) == (1 if committed else 2)
    assert [e.reason for e in sched.recorder.events] == ["Scheduled"]
    assert conflicts(sched) == {}


def unreadable(sched: SchedulerHarness) -> list[ApiError]:
    """Let reads fail until the returned list is empty."""
    errors: list[ApiError] = [Unavailable("the server is away")]

    def read() -> None:
        if errors:
            raise errors[0]

    sched.writer.on_read = read
    return errors


@pytest.mark.parametrize(
    ("source", "on", "events"),
    [
        pytest.param("read", "n1", ["Scheduled"], id="a read shows the pod on the node"),
        pytest.param("read", "", ["Scheduled"], id="a read shows the pod without a node: sent again"),
        pytest.param("read", "other", [], id="a read shows the pod on another node"),
        pytest.param("watch", "n1", ["Scheduled"], id="the watch shows the pod on the node"),
        pytest.param("watch", "other", [], id="the watch shows the pod on another node"),
        pytest.param("watch", None, [], id="the watch shows that the pod is gone"),
    ],
)
async def test_an_unknown_outcome_keeps_the_place_until_a_read_or_the_watch_shows_it(
    source: str, on: str | None, events: list[str]
) -> None:
    """A pod that waits for the capacity does not get it in half an hour without an answer."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")
    refuse_once(sched, Ambiguous("reset"))
    errors = unreadable(sched)
    await sched.settle()
    sched.pod("waits", cpu="1")
    for _ in range(180):
        await sched.later(10)
    assert (sched.cluster.is_assumed("uid-p"), len(sched.writer.binds)) == (True, 1)

    if source == "read":
        errors.clear()
        sched.writer.server["default/p"] = typed(manifest("p", cpu="1", on=on))
    elif on is None:
        sched.gone("p")
    else:
        sched.pod("p", cpu="1", on=on)
    await sched.later(11)
    await sched.later(11)

    binds_of_p = [node for key, node in sched.writer.binds if key == "default/p"]
    assert binds_of_p == ["n1"] * (2 if on == "" else 1)
    assert [e.reason for e in sched.recorder.events if e.pod == "default/p"] == events
    assert "p" not in sched.places()
    assert (("default/waits", "n1") in sched.writer.binds) == (on not in {"n1", ""})
    assert sched.parts.binder.remark() == ""


async def test_an_unknown_outcome_is_logged_each_minute_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a minute covers all of them and names the oldest. An error is cut at 1 KiB."""
    logger = CapturingLogger()
    monkeypatch.setattr(binding_state, "_log", logger)
    sched = with_pods("p q")
    unreadable(sched)[0].message = "x" * 5000

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    sched.writer.on_bind = lost
    await sched.settle()
    for _ in range(140):
        await sched.later(1)

    lines = [call.kwargs for call in logger.calls]
    assert [(line["count"], line["pod"], line["node"], len(line["error"])) for line in lines] == [
        (2, "default/p", "n1", 1024)
    ] * 2
    assert sched.parts.binder.remark() == (
        "the outcome of bindings is unknown; number: 2, longest: 140 s; the log names the oldest"
    ), "a public page names no object"


@pytest.mark.parametrize("answer", [b"{}", b"<html>", b'{"metadata": {"na'])
async def test_an_answer_that_is_no_pod_settles_nothing(answer: bytes) -> None:
    """The pod would be in no queue until the next audit."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")
    refuse_once(sched, Ambiguous("reset"))
    sched.writer.server["default/p"] = ObjectDecoder("Pod", Pod).decode(answer)
    await sched.settle()
    await sched.later(30)
    assert (sched.cluster.is_assumed("uid-p"), len(sched.writer.binds)) == (True, 1)

    sched.writer.server["default/p"] = typed(manifest("p", cpu="1", on="n1"))
    await sched.later(11)
    assert [each.reason for each in sched.recorder.events] == ["Scheduled"]


@pytest.mark.parametrize(
    ("lost_s", "binds"),
    [
        pytest.param(10.0, 1, id="an ordinary reconnect delays nothing"),
        pytest.param(10.5, 0, id="disconnected for longer: nothing is sent"),
    ],
)
async def test_no_binding_is_sent_while_the_watch_of_pods_is_disconnected(lost_s: float, binds: int) -> None:
    """Once the watch is connected the node is checked again, because it may have got other pods."""
    sched = SchedulerHarness(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")
    await sched.settle()
    await sched.later(1)
    assert len(sched.writer.binds) == binds
    if binds:
        assert sched.parts.binder.remark() == ""
        return
    assert sched.parts.binder.remark() == ("no Binding is sent: the watch of pods has been disconnected for 10 s")

    lost_s = 0.0
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await sched.later(1)

    assert (sched.writer.binds, sched.places()) == ([], {"p": "unschedulable"})


@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError()], ids=["a failure", "a bug"])
async def test_a_pod_whose_binding_fails_is_retried_and_another_is_bound(error: Exception) -> None:
    sched = with_pods("p q")
    refuse_once(sched, error)
    await sched.settle()
    await sched.later(2.5)

    (failed, _), (other, _), (retried, _) = sched.writer.binds
    assert failed == retried != other


async def test_205_an_assumed_pod_that_is_deleted_frees_its_place_at_once() -> None:
    """Waiting pods are woken before the binding has failed."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p", cpu="1")
    await sched.settle()
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.places()["q"] == "unschedulable"

    sched.gone("p")
    await sched.later(2.5)

    assert sched.cluster.is_assumed("uid-q")
    sched.writer.hold.set()
    await sched.settle()
    assert ("default/q", "n1") in sched.writer.binds


# -- draining ----------------------------------------------------------------------------------------------------------


async def draining(sched: SchedulerHarness, limit_s: float = 5) -> asyncio.Future[int]:
    """Begin to drain the binder, and let the limit pass."""
    drain = asyncio.ensure_future(sched.parts.binder.drain(limit_s))
    await sched.turns()
    sched.clock.move(limit_s + 1)
    await sched.turns()
    return drain


@pytest.mark.parametrize(
    ("lost_s", "error", "binds"),
    [
        pytest.param(0.0, Ambiguous("reset"), 1, id="an unknown outcome, which the next process reads"),
        pytest.param(60.0, None, 0, id="the watch of pods, without which no Binding is sent"),
        pytest.param(0.0, TooManyRequests("busy", retry_after_s=600.0), 1, id="a busy server"),
    ],
)
async def test_draining_does_not_wait_for(lost_s: float, error: ApiError | None, binds: int) -> None:
    sched = with_pods(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    if error is not None:
        refuse_once(sched, error)
        unreadable(sched)
    await sched.settle()
    drain = await draining(sched)
    await sched.settle()

    assert drain.done()
    assert (len(sched.writer.binds), sched.is_free()) == (binds, True)
    assert bool(sched.parts.binder.remark()) is (error is None)


@pytest.mark.parametrize("held", ["the turn", "the answer"])
@pytest.mark.parametrize("answers", [False, True], ids=["never", "late"])
async def test_draining_waits_for_the_answer_of_a_sent_write_for_some_seconds(held: str, answers: bool) -> None:
    """A pod that waits for its turn is given up at the limit and returns to the queue."""
    sched, event = with_pods(), asyncio.Event()
    if held == "the turn":
        sched.writer.turn_hold = event
    else:
        sched.writer.hold = event
    await sched.settle()
    drain = await draining(sched)
    assert drain.done() == (held == "the turn")
    if answers:
        event.set()
        await sched.turns()
        assert drain.done()
    sched.clock.move(10)
    await sched.turns()

    assert drain.done()
    is_bound = answers and held == "the answer"
    assert await drain == 1
    assert sched.writer.binds == ([("default/p", "n1")] if is_bound else [])
    if held == "the turn":
        await sched.settle()
        assert (sched.is_free(), sched.places()) == (True, {"p": ERROR})


# -- a busy server -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [False, True], ids=["the node still has capacity", "the node is full now"])
async def test_after_retry_after_the_node_is_checked_again_before_the_next_post(filled: bool) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    refuse_once(sched, TooManyRequests("busy", retry_after_s=2.0))
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(1.5)
    assert (len(sched.writer.binds), sched.writer.turns) == (1, 1)
    assert sched.cluster.is_assumed("uid-p")
    if filled:
        sched.pod("other", cpu="2", on="n1", scheduler="default-scheduler")
    await sched.later(1)

    assert sched.writer.turns == 2
    assert len(sched.writer.binds) == (1 if filled else 2)
    assert sched.places() == ({"p": "unschedulable"} if filled else {})


@pytest.mark.parametrize(
    ("retry_after_s", "posts"),
    [
        pytest.param(None, 1, id="a server that names no time: error back-off at once"),
        pytest.param(1.0, 10, id="ten tries, as client-go"),
    ],
)
async def test_retries_of_a_busy_server_are_limited(retry_after_s: float | None, posts: int) -> None:
    sched = with_pods()

    def busy(pod: Pod, node_name: str) -> None:
        raise TooManyRequests("busy", retry_after_s=retry_after_s)

    sched.writer.on_bind = busy
    await sched.settle()
    for _ in range(posts - 1):
        assert sched.cluster.is_assumed("uid-p")
        await sched.later(1)

    assert len(sched.writer.binds) == posts
    assert sched.is_free()
    assert sched.places() == {"p": ERROR}
    assert sched.message("p") == 'running Bind plugin "DefaultBinder": busy'
    assert sched.writer.conditions[0][1].reason == "SchedulerError"


# -- plugins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        pytest.param(Code.UNSCHEDULABLE, "Unschedulable", "not today", id="a rejection keeps its text"),
        pytest.param(Code.ERROR, "SchedulerError", 'running Bind plugin "Mine": not today', id="a failure"),
    ],
)
async def test_a_bind_plugin_that_rejects_the_pod(code: Code, reason: str, message: str) -> None:
    """§3.8: error back-off in both cases."""

    class Mine(FakePlugin):
        async def bind(self, *_: object) -> Rejection:
            return Rejection(self.name, code, ("not today",))

    sched = with_pods(bind=(Mine("Mine"),))
    await sched.settle()

    assert [(written.reason, written.message) for _, written in sched.writer.conditions] == [(reason, message)]
    assert (sched.is_free(), sched.places()) == (True, {"p": ERROR})


async def test_a_pod_deleted_right_after_its_decision_leaves_permit() -> None:
    """The deletion comes before the binding task has run for the first time."""
    sched = with_pods(permit=(Holds("A", permits=Wait(600)),))
    await sched.parts.loop.step()
    sched.gone("p")
    await sched.settle()

    assert sched.is_free()
    assert (sched.writer.binds, sched.places()) == ([], {})


NO_WAY = Rejection("B", Code.UNSCHEDULABLE, ("no way",))


@pytest.mark.parametrize("error", [KeyError("bug"), AttemptError("disk is away")], ids=["a bug", "a failure"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the rejection first", "the rejection last"])
async def test_a_rejection_by_a_parallel_prebind_plugin_outweighs_a_failure(error: Exception, is_first: bool) -> None:
    plugins = [BeforeBind("A", answer=NO_WAY), BeforeBind("B", answer=error)]
    for plugin in plugins:
        plugin.pre_bind_parallel = True
    sched = with_pods(pre_bind=tuple(plugins if is_first else reversed(plugins)))
    await sched.settle()

    assert sorted(sched.calls) == ["A.pre_bind", "B.pre_bind"]
    assert [(written.reason, written.message) for _, written in sched.writer.conditions] == [
        ("Unschedulable", "no way")
    ]


async def test_an_unreserve_that_raises_does_not_stop_the_other_plugins() -> None:
    """The pod is retried, and the node's capacity is free."""

    class Breaks(Holds):
        def unreserve(self, *_: object) -> None:
            raise RuntimeError("boom")

    sched = with_pods(reserve=(Holds("A"), Breaks("B")))
    refuse_once(sched, Unavailable("500"))
    await sched.settle()
    assert sched.is_free()
    assert sched.places() == {"p": ERROR}
    assert sched.calls == ["A.reserve", "B.reserve", "A.unreserve"]
    await sched.later(2.5)

    assert len(sched.writer.binds) == 2
    assert sched.places() == {}


async def test_a_postbind_that_raises_changes_nothing() -> None:
    sched = with_pods(post_bind=(AfterBind("A", error=KeyError("bug")), AfterBind("B")), reserve=(Holds("R"),))
    await sched.settle()

    assert sched.calls == ["R.reserve", "A.post_bind", "B.post_bind"]
    assert sched.cluster.is_assumed("uid-p")
    assert [event.reason for event in sched.recorder.events] == ["Scheduled"]
    assert (len(sched.writer.binds), sched.places(), sched.writer.conditions) == (1, {}, [])


# -- a pod that changes during its binding -----------------------------------------------------------------------------


def raising(error: Exception) -> Callable[[SchedulerHarness], None]:
    """The server commits the Binding, the watch shows it, and the answer is an error."""

    def arrange(sched: SchedulerHarness) -> None:
        def commits(pod: Pod, node_name: str) -> None:
            sched.pod("p", cpu="1", on=node_name)
            raise error

        sched.writer.on_bind = commits

    return arrange


def late_commit(sched: SchedulerHarness) -> None:
    """The answer is lost and a read shows no node. Then the watch shows the pod bound, and the node fills up."""

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    def read() -> None:
        sched.writer.server["default/p"] = typed(manifest("p"))
        sched.pod("p", cpu="1", on="n1")
        sched.pod("theirs", cpu="4", on="n1", scheduler="default-scheduler")

    sched.writer.on_bind, sched.writer.on_read = lost, read


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(raising(Unavailable("500")), id="a server error"),
        pytest.param(raising(Forbidden("no")), id="a missing permission"),
        pytest.param(raising(KeyError("bug")), id="a bug"),
        pytest.param(late_commit, id="a lost answer, a late commit, and a node that is full"),
    ],
)
async def test_nothing_is_unreserved_once_the_watch_has_shown_the_pod_bound(
    arrange: Callable[[SchedulerHarness], None],
) -> None:
    sched = with_pods("", reserve=(Holds("A"),))
    sched.pod("p", cpu="1")
    arrange(sched)
    await sched.settle()

    assert sched.calls == ["A.reserve"]
    assert [event.reason for event in sched.recorder.events] == ["Scheduled"]
    assert "default/p" in {info.key for info in sched.cluster.pods()}
    assert (sched.places(), sched.writer.conditions, sched.is_free()) == ({}, [], True)


async def test_a_pod_that_becomes_unreadable_gets_no_condition_after_its_binding() -> None:
    """The server would keep PodScheduled=False on a bound pod."""
    sched = with_pods()
    sched.writer.hold = asyncio.Event()
    await sched.settle()
    sched.pod("p", cpu="bad!")
    sched.writer.hold.set()
    await sched.settle()

    assert sched.writer.wire == ["bind p"]


@pytest.mark.parametrize(
    ("ends", "free"),
    [
        pytest.param({"on": "n1"}, False, id="bound"),
        pytest.param({"deleting": True}, True, id="terminating"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_pod_that_becomes_unreadable_keeps_its_place(ends: dict[str, Any] | None, free: bool) -> None:
    """Its Binding has been sent, so the node's capacity is free only after the pod's end."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p", cpu="1")
    await sched.settle()
    for cpu in ("bad!", "worse!"):
        sched.pod("p", cpu=cpu)
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.places() == {"q": "unschedulable"}

    if ends is None:
        sched.gone("p")
    else:
        sched.pod("p", cpu="bad!", **ends)
    sched.writer.hold.set()
    await sched.later(20)

    assert (("default/q", "n1") in sched.writer.binds) is free
    assert not sched.cluster.is_assumed("uid-p")


async def test_a_pod_that_is_unreadable_for_a_moment_is_not_tried_twice() -> None:
    sched = with_pods()
    sched.writer.hold = asyncio.Event()
    await sched.settle()
    sched.pod("p", cpu="bad!")
    await sched.settle()
    sched.pod("p")
    await sched.settle()
    assert len(sched.parts.binder) == 1
    sched.writer.hold.set()
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
