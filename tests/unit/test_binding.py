"""The background half: what happens between the decision and the bound pod (docs/spec/core.md §3.8, §3.12, §9.8)."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, NotFound, Unavailable
from scheduler.core.pod import Pod
from tests.unit.brain import Brain, manifest, typed


def refuse_once(brain: Brain, error: ApiError) -> None:
    """The first bind fails, later ones succeed."""

    def answer(pod: Pod, node_name: str) -> None:
        if len(brain.writer.binds) == 1:
            raise error

    brain.writer.on_bind = answer


async def test_a_pod_is_bound_and_said_so() -> None:
    """9.8-199: Binding, event; no condition, because the server sets it."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")

    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]
    assert [(e.type_, e.reason, e.action, e.note) for e in brain.recorder.events] == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n1")
    ]
    assert brain.writer.conditions == []
    assert brain.parts.cluster.is_assumed("uid-p")


async def test_the_watch_confirms_the_assumption() -> None:
    """9.2-71: one pod on the node, no longer assumed, nothing left in the queue."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    await brain.settle()

    brain.pod("p", on="n1")

    assert brain.parts.cluster.sizes() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
    assert brain.places() == {}
    assert int(brain.parts.cluster.nodes.pod_count.sum()) == 1


@pytest.mark.parametrize(
    ("error", "server", "outcome"),
    [
        pytest.param(Unavailable("500"), {}, "error backoff", id="9.8-202 a server error: error back-off"),
        pytest.param(Forbidden("no"), {}, "error backoff", id="a missing permission: error back-off"),
        pytest.param(NotFound("gone"), {}, None, id="the pod is gone: dropped"),
        pytest.param(Conflict("taken"), {"on": "elsewhere"}, None, id="9.8-200 bound by somebody else: dropped"),
        pytest.param(Conflict("taken"), {"deleting": True}, None, id="9.8-201 being deleted: dropped"),
        pytest.param(Conflict("taken"), {"uid": "another"}, None, id="9.8-203 recreated meanwhile: dropped"),
        pytest.param(Conflict("odd"), {"cpu": "1"}, "error backoff", id="a conflict without a cause: error back-off"),
    ],
)
async def test_a_refused_bind_is_undone(error: ApiError, server: dict[str, object], outcome: str | None) -> None:
    """Whatever the refusal, the place is free again and the pod is where it belongs."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    if server:
        brain.writer.server["default/p"] = typed(manifest("p", **server))
    refuse_once(brain, error)

    await brain.settle()

    assert brain.parts.cluster.sizes()["assumed_pods"] == 0
    assert brain.places().get("p") == outcome
    assert len(brain.writer.binds) == 1


async def test_an_error_is_retried_after_the_error_back_off_with_event_and_condition() -> None:
    """§3.8: reason SchedulerError, and the second attempt succeeds."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    refuse_once(brain, Unavailable("etcd is away"))

    await brain.settle()
    assert brain.writer.conditions[0][1].reason == "SchedulerError"
    assert brain.message("p") == 'running Bind plugin "DefaultBinder": etcd is away'
    await brain.later(2.5)

    assert [node for _, node in brain.writer.binds] == ["n1", "n1"]


@pytest.mark.parametrize("committed", [True, False], ids=["it was carried out", "it was not"])
async def test_a_lost_answer_is_settled_by_reading(committed: bool) -> None:
    """Never guessed: carried out means bound; otherwise the same node is tried again while the place is still held."""
    brain = Brain()
    brain.node("n1")
    brain.node("n2")
    brain.pod("p")
    refuse_once(brain, Ambiguous("reset"))
    brain.writer.on_read = lambda: brain.writer.server.update(
        {"default/p": typed(manifest("p", on=brain.writer.binds[0][1] if committed else ""))}
    )

    await brain.settle()

    assert len({node for _, node in brain.writer.binds}) == 1
    assert len(brain.writer.binds) == (1 if committed else 2)
    assert [e.reason for e in brain.recorder.events] == ["Scheduled"]


async def test_reading_is_repeated_until_the_server_answers() -> None:
    """The assumption stays while the outcome is unknown."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    refuse_once(brain, Ambiguous("reset"))
    reads = 0

    def away_twice() -> None:
        nonlocal reads
        reads += 1
        if reads <= 2:
            raise Unavailable("away")
        brain.writer.server["default/p"] = typed(manifest("p", on="n1"))

    brain.writer.on_read = away_twice

    await brain.settle()
    assert brain.parts.cluster.is_assumed("uid-p")
    await brain.later(0.2)
    await brain.later(1)

    assert reads == 3
    assert [e.reason for e in brain.recorder.events] == ["Scheduled"]


async def test_an_unforeseen_exception_costs_one_attempt() -> None:
    """A bug in a binding is logged with the pod and retried; nothing else suffers."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    brain.pod("q")

    def answer(pod: Pod, node_name: str) -> None:
        if pod.metadata.name == "p" and len(brain.writer.binds) < 3:
            raise ZeroDivisionError

    brain.writer.on_bind = answer

    await brain.settle()
    await brain.later(2.5)

    assert brain.writer.binds[-1] == ("default/p", "n1")
    assert ("default/q", "n1") in brain.writer.binds


async def test_the_node_is_looked_at_again_before_the_bind() -> None:
    """9.2-92: another scheduler took the room between our decision and our Binding; we yield and do not POST."""
    brain = Brain()
    brain.node("n1", cpu="2")
    brain.pod("p", cpu="2")
    queued = brain.parts.queue
    brain.parts.inbox.put(lambda: None)
    await brain.parts.loop.step()  # decided; the binding task has not run yet
    brain.pod("other", cpu="2", on="n1", scheduler="default-scheduler")

    await brain.settle()

    assert brain.writer.binds == []
    assert brain.message("p") == "0/1 nodes are available: 1 Insufficient cpu."
    assert queued.counts()["unschedulable"] == 1


async def test_a_node_that_goes_before_the_bind_is_not_bound_to() -> None:
    """The second look finds no node."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    await brain.parts.loop.step()
    brain.node_gone("n1")

    await brain.settle()

    assert brain.writer.binds == []


async def test_changes_of_our_own_making_need_no_second_look() -> None:
    """Our assumptions were counted when we decided."""
    brain = Brain()
    brain.node("n1", cpu="2")
    brain.pod("p", cpu="1")
    brain.pod("q", cpu="1")

    await brain.settle()

    assert sorted(brain.writer.binds) == [("default/p", "n1"), ("default/q", "n1")]


async def test_an_assumed_pod_that_is_deleted_gives_its_place_back_at_once() -> None:
    """9.8-205: others are woken before the binding has even failed."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p", cpu="1")
    await brain.settle()
    brain.pod("q", cpu="1")
    await brain.settle()
    assert brain.places()["q"] == "unschedulable"

    brain.gone("p")
    await brain.later(2.5)

    assert brain.parts.cluster.is_assumed("uid-q")
    brain.writer.hold.set()
    await brain.settle()
    assert ("default/q", "n1") in brain.writer.binds


async def test_draining_waits_for_what_was_sent() -> None:
    """A Binding on the wire is awaited to its answer even when its task is cancelled."""
    brain = Brain()
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p")
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.binder.drain(5))
    await asyncio.sleep(0)

    brain.clock.move(6)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not draining.done()
    brain.writer.hold.set()

    await asyncio.wait_for(draining, 30)
    assert brain.writer.binds == [("default/p", "n1")]
