import asyncio

import pytest

from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.decode import Broken, from_manifest
from scheduler.api.pod_group import PodGroup
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, Invalid, NotFound, TooManyRequests, Unavailable
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.writes.api_writer import ApiWriter, Lease, LeaseSpec
from scheduler.kube.writes.permissions import EVICTION_RULES, GROUP_RULES, WRITES, lease_rules
from tests.support.clock import VirtualClock
from tests.unit.kube import scripted
from tests.unit.kube.scripted import LeapingClock, RecordedRequest, ScriptedTransport, WriteBench as Bench

MANAGER = {"fieldManager": "kubestow"}
REFUSED = PodCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="0/1", observed_generation=3
)


def pod(**status) -> Pod:
    return from_manifest(Pod, {**scripted.pod("p", uid="u-1"), "status": status})


async def test_bind():
    """The body names pod, uid and node, and nothing else."""
    bench = Bench()
    await bench.writer.bind(pod(), "n1")

    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert [RecordedRequest("POST", "/api/v1/namespaces/ns/pods/p/binding", {}, body)] == bench.recorded


async def test_status_patch():
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name="n1")

    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1",
        "observedGeneration": 3,
        "lastTransitionTime": "2023-11-14T22:30:00Z",
    }
    body = {"metadata": {"uid": "u-1"}, "status": {"nominatedNodeName": "n1", "conditions": [condition]}}
    path, patch = "/api/v1/namespaces/ns/pods/p/status", "application/strategic-merge-patch+json"
    assert [RecordedRequest("PATCH", path, MANAGER, body, patch)] == bench.recorded


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Conflict("already assigned to node n2", status=409), id="conflict"),
        pytest.param(NotFound("gone", status=404), id="gone"),
        pytest.param(Ambiguous("connection lost"), id="lost answer"),
        pytest.param(Unavailable("no way"), id="unavailable"),
        pytest.param(TooManyRequests("busy"), id="busy without a wish"),
        pytest.param(TooManyRequests("busy", retry_after_s=1.0), id="busy: the node is looked at again first"),
    ],
)
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda writer: writer.bind(pod(), "n1"), id="binding"),
        pytest.param(lambda writer: writer.delete_pod(pod()), id="deletion"),
    ],
)
async def test_what_had_a_turn_is_sent_once_and_its_refusal_is_the_callers(write, refusal):
    bench = Bench(refusal)
    with pytest.raises(ApiError) as caught:
        await write(bench.writer)

    assert refusal is caught.value
    assert (1, []) == (len(bench.recorded), bench.clock.slept)


async def test_a_turn_overtakes_what_is_not_a_binding():
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1, burst=1)
    writer = ApiWriter(ScriptedTransport(), throttle, clock)
    await writer.turn()
    event = asyncio.create_task(throttle.take())
    await clock.settle()
    given_up, bind = asyncio.create_task(writer.turn()), asyncio.create_task(writer.turn())
    await clock.settle()
    given_up.cancel()
    await clock.advance(1.0)
    assert (True, False) == (bind.done(), event.done())
    await clock.advance(1.0)

    assert event.done()


async def test_a_turn_that_is_cancelled_as_it_comes_gives_its_token_back(monkeypatch):
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1, burst=2)
    writer = ApiWriter(ScriptedTransport(), throttle, clock)
    await writer.turn()
    await writer.turn()
    granted = asyncio.create_task(writer.turn())
    await clock.settle()
    with monkeypatch.context() as patched:
        patched.setattr(throttle, "_next", _and_then(throttle._next, granted.cancel))
        await clock.advance(1.0)
    assert granted.cancelled()

    others = [asyncio.create_task(writer.turn()) for _ in range(2)]
    await clock.advance(1.0)

    assert [True, True] == [other.done() for other in others]


def _and_then(ask, act):
    """Call `ask`, and in the loop's next round `act`, before the waiter that the answer wakes."""

    def both():
        asyncio.get_running_loop().call_soon(act)
        return ask()

    return both


@pytest.mark.parametrize("is_deletion", [False, True], ids=["binding", "deletion"])
async def test_what_had_a_turn_takes_no_token(is_deletion):
    clock = LeapingClock()
    writer = ApiWriter(ScriptedTransport(), Throttle(clock, qps=1, burst=1), clock)
    await writer.turn()
    await (writer.delete_pod(pod()) if is_deletion else writer.bind(pod(), "n1"))

    assert [] == clock.slept


WAITING_WRITES = [
    pytest.param(
        lambda writer: writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None), id="status"
    ),
    pytest.param(lambda writer: writer.create_event("ns", b"{}"), id="event"),
    pytest.param(lambda writer: writer.patch_event_series("ns", "e", count=2, last_observed_s=0), id="series"),
]


@pytest.mark.parametrize("write", WAITING_WRITES)
async def test_a_busy_server_is_waited_for(write):
    """429 with Retry-After was certainly not carried out."""
    bench = Bench(TooManyRequests("busy", retry_after_s=2.0), TooManyRequests("busy", retry_after_s=3.0))
    await write(bench.writer)

    assert 3 == len(bench.recorded)
    assert [2.0, 3.0] == bench.clock.slept


@pytest.mark.parametrize("write", WAITING_WRITES)
@pytest.mark.parametrize(
    ("retry_after_s", "tries"),
    [
        pytest.param(1.0, 10, id="ten tries, as client-go"),
        pytest.param(None, 1, id="a server that names no time gets no second request"),
    ],
)
async def test_patience_with_a_busy_server_ends(write, retry_after_s, tries):
    bench = Bench(*[TooManyRequests("busy", retry_after_s=retry_after_s)] * 20)
    with pytest.raises(TooManyRequests):
        await write(bench.writer)

    assert tries == len(bench.recorded)


@pytest.mark.parametrize(
    ("before", "moves"),
    [
        pytest.param([], True, id="a new condition"),
        pytest.param([{"type": "PodScheduled", "status": "True"}], True, id="another status"),
        pytest.param([{"type": "PodScheduled", "status": "False", "reason": "Other"}], False, id="the same status"),
        pytest.param([{"type": "Ready", "status": "False"}], True, id="another type has the same status"),
    ],
)
async def test_the_transition_time_moves_only_with_the_status(before, moves):
    """As upstream's UpdatePodCondition."""
    bench = Bench()
    await bench.writer.patch_pod_status(pod(conditions=before), condition=REFUSED, nominated_node_name=None)

    assert moves == ("lastTransitionTime" in bench.recorded[0].body["status"]["conditions"][0])


@pytest.mark.parametrize(
    ("nominated", "expected"),
    [
        pytest.param("", {"nominatedNodeName": None}, id="the empty name clears"),
        pytest.param("n1", {"nominatedNodeName": "n1"}, id="a name sets"),
    ],
)
async def test_the_nomination_alone(nominated, expected):
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=None, nominated_node_name=nominated)

    assert expected == bench.recorded[0].body["status"]


async def test_nothing_to_say_is_not_sent():
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=None, nominated_node_name=None)

    assert [] == bench.recorded


async def test_a_status_patch_is_tried_four_times():
    """An unavailable server and a lost answer alike, for the patch may be repeated."""
    bench = Bench(Unavailable("no"), Ambiguous("lost"), Unavailable("no"))
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)

    assert 4 == len(bench.recorded)
    assert [0.01, 0.05, 0.25] == bench.clock.slept


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        pytest.param([Unavailable("no")] * 4, 4, id="unavailable to the end"),
        pytest.param([Invalid("uid is immutable", status=422)], 1, id="another pod of this name"),
        pytest.param([Conflict("uid", status=409)], 1, id="conflict"),
        pytest.param([NotFound("gone", status=404)], 1, id="gone"),
    ],
)
async def test_a_refused_status_patch_is_raised(answers, tries):
    bench = Bench(*answers)
    with pytest.raises(type(answers[0])):
        await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)

    assert tries == len(bench.recorded)


def group(**status):
    return from_manifest(PodGroup, {"metadata": {"name": "g", "namespace": "ns", "uid": "u-g"}, "status": status})


async def test_group_status_patch():
    bench = Bench()
    await bench.writer.patch_pod_group_status(group(), PodCondition("T", "False", "Unschedulable", "why"))

    condition = {
        "type": "T",
        "status": "False",
        "reason": "Unschedulable",
        "message": "why",
        "lastTransitionTime": "2023-11-14T22:30:00Z",
    }
    body = {"metadata": {"uid": "u-g"}, "status": {"conditions": [condition]}}
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/g/status"
    assert [RecordedRequest("PATCH", path, MANAGER, body, "application/strategic-merge-patch+json")] == bench.recorded


async def test_a_lost_answer_about_a_group_repeats_the_patch():
    bench = Bench(Ambiguous("lost"), Unavailable("no"))
    before = {"conditions": [{"type": "T", "status": "False"}]}
    await bench.writer.patch_pod_group_status(group(**before), PodCondition("T", "False", "SchedulerError"))

    assert 3 == len(bench.recorded)
    assert "lastTransitionTime" not in bench.recorded[0].body["status"]["conditions"][0]


@pytest.mark.parametrize(
    "refusal", [Invalid("uid is immutable", status=422), Conflict("uid", status=409), NotFound("gone", status=404)]
)
async def test_a_refused_patch_of_a_group_is_raised(refusal):
    bench = Bench(refusal)
    with pytest.raises(type(refusal)):
        await bench.writer.patch_pod_group_status(group(), PodCondition("T", "True"))

    assert 1 == len(bench.recorded)


async def test_read_pod():
    raw = scripted.raw(scripted.pod("p", nodeName="n1"))
    pending = scripted.raw(scripted.pod("p")).replace(b'"spec":{', b'"spec":{"priority":"x",')
    bench = Bench(raw, NotFound("gone", status=404), pending)

    found, gone, broken = [await bench.writer.read_pod("ns", "p") for _ in range(3)]

    assert isinstance(found, Pod)
    assert "n1" == found.spec.node_name
    assert gone is None
    assert isinstance(broken, Broken)
    assert "/api/v1/namespaces/ns/pods/p" == bench.recorded[0].path


async def test_every_write_has_its_permission():
    bench = Bench()
    await bench.writer.bind(pod(), "n1")
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)
    await bench.writer.create_event("ns", b"{}")
    await bench.writer.patch_event_series("ns", "e", count=2, last_observed_s=0)
    await bench.writer.delete_pod(pod())
    await bench.writer.patch_pod_group_status(group(), PodCondition("T", "True"))

    assert sorted((*WRITES, *EVICTION_RULES, *GROUP_RULES)) == sorted({recorded.rule for recorded in bench.recorded})


# -- the fence ---------------------------------------------------------------------------------------------------------

FENCED_WRITES = [
    pytest.param(lambda writer: writer.patch_pod_group_status(group(), PodCondition("T", "True")), id="group"),
    pytest.param(lambda writer: writer.bind(pod(), "n1"), id="binding"),
    pytest.param(lambda writer: writer.delete_pod(pod()), id="deletion"),
    *WAITING_WRITES,
]


@pytest.mark.parametrize("write", WAITING_WRITES)
async def test_the_fence_is_checked_again_after_waiting_for_a_busy_server(write):
    bench = Bench(TooManyRequests("busy", retry_after_s=2.0))
    bench.until_s = bench.clock.now() + 1
    with pytest.raises(Fenced):
        await write(bench.writer)

    assert 1 == len(bench.recorded)


@pytest.mark.parametrize("answer", [Unavailable("away"), Ambiguous("lost")], ids=["away", "lost"])
async def test_the_fence_is_checked_again_before_a_patch_is_repeated(answer):
    bench = Bench(answer)
    bench.until_s = bench.clock.now() + 0.001
    with pytest.raises(Fenced):
        await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)

    assert 1 == len(bench.recorded)


@pytest.mark.parametrize("write", WAITING_WRITES)
async def test_the_fence_is_checked_after_waiting_for_a_token(write):
    clock, transport = VirtualClock(), ScriptedTransport()
    writer = ApiWriter(transport, Throttle(clock, qps=1, burst=1), clock, may_write=lambda: clock.now() < 1)
    await writer.turn()
    waiting = asyncio.ensure_future(write(writer))
    await clock.advance(1)

    assert isinstance(waiting.exception(), Fenced)
    assert [] == transport.recorded


async def test_what_was_sent_before_the_fence_fell_is_awaited():
    bench = Bench()
    binding = asyncio.ensure_future(bench.writer.bind(pod(), "n1"))
    await asyncio.sleep(0)
    assert 1 == len(bench.recorded)
    bench.until_s = 0
    await binding


async def test_reads_pass_the_fence():
    bench = Bench(scripted.raw(scripted.pod("p")))
    bench.until_s = 0

    assert isinstance(await bench.writer.read_pod("ns", "p"), Pod)


# -- the lease ---------------------------------------------------------------------------------------------------------

LEASE = scripted.raw(
    {"metadata": {"name": "l", "namespace": "ns", "uid": "u", "resourceVersion": "7"}, "spec": {"holderIdentity": "b"}}
)
PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
RECORD = LeaseSpec("", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.000000Z", 0)


async def test_read_lease():
    bare = LEASE.replace(b'"spec":{"holderIdentity":"b"}', b'"spec":null')
    bench = Bench(LEASE, NotFound("no", status=404), bare)
    seen, none, empty = [await bench.leases.read_lease() for _ in range(3)]

    assert isinstance(seen, Lease)
    assert ("b", "7") == (seen.record.holder, seen.metadata.resource_version)
    assert none is None
    assert isinstance(empty, Lease)
    assert ("", 0) == (empty.record.holder, empty.record.transitions)
    assert [f"{PATH}/l"] * 3 == bench.transport.paths("GET")


async def test_every_lease_request_has_its_permission():
    bench = Bench(LEASE, LEASE, LEASE)
    seen = await bench.leases.read_lease()
    assert seen is not None
    await bench.leases.create_lease(LeaseSpec("a"))
    await bench.leases.patch_lease(seen, LeaseSpec("a"))

    assert {(rule.group, rule.resource, rule.verb) for rule in lease_rules("", "")} == {
        (recorded.rule.group, recorded.rule.resource, recorded.rule.verb) for recorded in bench.recorded
    }


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Conflict("modified", status=409), id="conflict"),
        pytest.param(Ambiguous("lost"), id="lost answer"),
        pytest.param(TooManyRequests("busy", retry_after_s=1.0), id="busy"),
        pytest.param(Unavailable("away"), id="unavailable"),
    ],
)
async def test_lease_writes_are_sent_once(refusal):
    bench = Bench(LEASE, refusal, refusal)
    seen = await bench.leases.read_lease()
    assert seen is not None
    with pytest.raises(type(refusal)):
        await bench.leases.patch_lease(seen, RECORD)
    with pytest.raises(type(refusal)):
        await bench.leases.create_lease(RECORD)

    assert (3, []) == (len(bench.recorded), bench.clock.slept)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"<html>", id="not JSON"),
        pytest.param(b'{"metadata":{"resourceVersion":7}}', id="no Lease"),
        pytest.param(b"{}", id="no version, so no precondition could be made of it"),
    ],
)
async def test_an_answer_that_is_no_lease(answer):
    bench = Bench(answer, answer)
    with pytest.raises(Unavailable):
        await bench.leases.read_lease()
    with pytest.raises(Ambiguous):
        await bench.leases.create_lease(RECORD)


async def test_event_series():
    bench = Bench()
    await bench.writer.patch_event_series("ns", "p.1", count=5, last_observed_s=1_700_000_000.000_002)

    body = {"series": {"count": 5, "lastObservedTime": "2023-11-14T22:13:20.000002Z"}}
    path, patch = "/apis/events.k8s.io/v1/namespaces/ns/events/p.1", "application/strategic-merge-patch+json"
    assert [RecordedRequest("PATCH", path, MANAGER, body, patch)] == bench.recorded
