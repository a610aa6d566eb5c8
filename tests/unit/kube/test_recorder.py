"""Events: how they are written, and which Event of a claim is quoted (docs/spec/volumes.md §12.2 B-21)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import CapturingLogger

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.core.errors import Ambiguous, Conflict, Forbidden, NotFound, Unavailable
from scheduler.kube import events as recorder
from scheduler.kube.events import EventRecorder
from scheduler.kube.rate_limit import BUSY, Throttle
from scheduler.kube.writes.api_writer import MESSAGE_LENGTH, ApiWriter, last_reported
from tests.support.clock import VirtualClock
from tests.unit.kube import scripted
from tests.unit.kube.scripted import Answer, RecordedRequest, ScriptedTransport

EVENTS = "/apis/events.k8s.io/v1/namespaces/ns/events"


class Bench:
    def __init__(self, *answers: Answer, limit: int = 100) -> None:
        self.transport = ScriptedTransport(answers=list(answers))
        self.clock = VirtualClock()
        self.writer = ApiWriter(self.transport, Throttle(self.clock, qps=-1), self.clock)
        self.recorder = EventRecorder(self.writer, self.clock, instance="host-1", limit=limit, in_flight=2)
        self.stats = self.recorder.stats

    @property
    def recorded(self) -> list[RecordedRequest]:
        return self.transport.recorded

    @property
    def notes(self) -> list[str]:
        return [recorded.body["note"] for recorded in self.recorded if recorded.method == "POST"]

    @property
    def counts(self) -> list[int]:
        return [recorded.body["series"]["count"] for recorded in self.recorded if recorded.method == "PATCH"]

    def failed(self, note: str = "0/1 nodes are available", name: str = "p", **more: Any) -> None:
        self.recorder.event(
            pod(name), controller="kubestow", type_="Warning", reason="FailedScheduling", action="Scheduling", note=note,
            **more,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        try:
            await self.clock.settle()
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def pod(name: str) -> Pod:
    return from_manifest(Pod, scripted.pod(name))


async def test_an_event():
    """Every field of events.k8s.io/v1, named as client-go names it."""
    bench = Bench()
    bench.failed(related=pod("other"))
    async with bench.running():
        await bench.clock.settle()

    stamp_ns = int(bench.clock.wall() * 1e9)
    reference = {"kind": "Pod", "apiVersion": "v1", "namespace": "ns", "resourceVersion": "1"}
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"p.{stamp_ns:x}", "namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubestow",
        "reportingInstance": "host-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": reference | {"name": "p", "uid": "uid-p"},
        "related": reference | {"name": "other", "uid": "uid-other"},
        "note": "0/1 nodes are available",
        "type": "Warning",
    }
    assert [RecordedRequest("POST", EVENTS, {"fieldManager": "kubestow"}, body)] == bench.recorded
    assert 1 == bench.stats.sent


async def test_a_repetition_is_counted_and_written_back_after_minutes():
    bench = Bench()
    async with bench.running():
        for _ in range(30):
            bench.failed()
            await bench.clock.advance(5.0)
        assert 1 == len(bench.recorded)
        await bench.clock.advance(300.0)

    assert 1 == len(bench.notes)
    assert [30] == bench.counts
    assert f"{EVENTS}/{bench.recorded[0].body['metadata']['name']}" == bench.recorded[1].path


async def test_another_note_is_a_new_event():
    bench = Bench()
    async with bench.running():
        bench.failed("2 Insufficient cpu")
        await bench.clock.settle()
        bench.failed("2 Insufficient cpu")
        bench.failed("1 Insufficient cpu")
        await bench.clock.settle()

    assert ["2 Insufficient cpu", "1 Insufficient cpu"] == bench.notes
    assert [2] == bench.counts


@pytest.mark.parametrize(
    ("in_flight", "counts"),
    [
        pytest.param(["another"], [], id="a series that is closed in flight and happened once is not patched"),
        pytest.param(["first", "another"], [2], id="a repetition in flight is patched after the answer"),
        pytest.param(["first"], [], id="a repetition of an open series waits for the next write back"),
    ],
)
async def test_what_happens_while_the_first_request_is_in_flight(in_flight: list[str], counts: list[int]):
    """The API server refuses a series whose count is below 2."""
    bench = Bench()
    notes = iter(in_flight)

    def repeat() -> None:
        for note in notes:
            bench.failed(note)

    bench.transport.on_the_way = repeat
    async with bench.running():
        bench.failed("first")
        await bench.clock.settle()

    assert ["first", *(note for note in in_flight if note != "first")] == bench.notes
    assert counts == bench.counts


async def test_after_six_quiet_minutes_a_series_is_closed():
    bench = Bench()
    async with bench.running():
        bench.failed()
        await bench.clock.advance(400.0)
        bench.failed()
        await bench.clock.settle()

    assert 2 == len(bench.notes)
    assert [] == bench.counts
    assert 2 == len({recorded.body["metadata"]["name"] for recorded in bench.recorded})


async def test_repetitions_before_the_first_was_sent_are_in_it():
    bench = Bench()
    for _ in range(3):
        bench.failed()
    async with bench.running():
        await bench.clock.advance(600.0)

    (recorded,) = bench.recorded
    assert {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"} == recorded.body["series"]


async def test_a_full_queue_drops_its_oldest():
    bench = Bench(limit=2)
    for name in ("a", "b", "c", "d"):
        bench.failed(name, name)
    assert (2, 2) == (bench.stats.dropped, bench.stats.queued)
    bench.failed("a", "a")
    async with bench.running():
        await bench.clock.settle()

    assert ["d", "a"] == bench.notes
    assert (3, 0) == (bench.stats.dropped, bench.stats.queued)


async def test_events_go_on_during_a_burst_of_bindings_once_half_of_their_queue_is_full():
    """Otherwise the first Events of a burst that is larger than the queue would be dropped."""
    bench = Bench(limit=10)
    held = asyncio.Event()
    sent: list[int] = []

    async def write(*_: Any, **__: Any) -> bytes:
        sent.append(1)
        await held.wait()
        return b"{}"

    bench.transport.write = write  # type: ignore[method-assign]
    burst = [bench.writer._requests_in_flight.urgent() for _ in range(BUSY)]
    for each in burst:
        each.__enter__()
    in_flight: list[tuple[int, int]] = []
    async with bench.running():
        for at in range(9):
            bench.failed(name=f"p{at}")
            await bench.clock.settle()
            in_flight.append((bench.stats.queued, len(sent)))
        held.set()
        await bench.clock.settle()

    # One is sent, and one waits for it; the other ones are in the queue.
    assert [(0, 1), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2)] == in_flight
    assert (9, 0) == (bench.stats.sent, bench.stats.dropped)


async def test_a_repetition_of_a_queued_event_is_counted():
    """As many series are open as the queue holds. With fewer, the first repetition would be queued again, and so on."""
    bench = Bench()
    filled = EventRecorder(bench.writer, bench.clock, instance="host-1")
    pods = [pod(f"p{at}") for at in range(filled.limit)]
    for _ in range(2):
        for each in pods:
            filled.event(
                each, controller="kubestow", type_="Warning", reason="FailedScheduling", action="Scheduling", note="no"
            )

    assert (len(pods), 0) == (filled.stats.queued, filled.stats.dropped)


async def test_an_expired_series_becomes_a_new_event():
    """Events live an hour: a PATCH that finds none becomes a new Event with the whole count."""
    bench = Bench(b"{}", NotFound("expired", status=404))
    async with bench.running():
        bench.failed()
        await bench.clock.settle()
        bench.failed()
        await bench.clock.advance(330.0)

    assert ["POST", "PATCH", "POST"] == [recorded.method for recorded in bench.recorded]
    assert 2 == bench.recorded[2].body["series"]["count"]
    assert bench.recorded[0].body["metadata"]["name"] != bench.recorded[2].body["metadata"]["name"]


@pytest.mark.parametrize(
    ("answers", "requests", "sent", "failed"),
    [
        pytest.param([Unavailable("no"), Unavailable("no")], 3, 1, 0, id="the server comes back"),
        pytest.param([Unavailable("no")] * 9, 4, 0, 1, id="the server stays away"),
        pytest.param([Ambiguous("lost"), Conflict("exists", status=409)], 2, 1, 0, id="a lost answer had arrived"),
        pytest.param([Forbidden("terminating", status=403)], 1, 0, 1, id="refused"),
    ],
)
async def test_failures_are_counted_never_raised(answers, requests, sent, failed):
    bench = Bench(*answers)
    async with bench.running():
        bench.failed()
        await bench.clock.advance(20.0)
        recorded = len(bench.recorded)
        bench.transport.answers.clear()
        bench.failed(name="next")
        await bench.clock.settle()

    assert (requests, sent + 1, failed) == (recorded, bench.stats.sent, bench.stats.failed)


async def test_flush_writes_everything_back():
    bench = Bench()
    async with bench.running():
        bench.failed()
        await bench.clock.settle()
        bench.failed()
        assert await bench.recorder.flush(5.0)

    assert [2] == bench.counts


async def test_flush_gives_up_in_time():
    bench = Bench(*[Unavailable("no")] * 99)
    async with bench.running():
        bench.failed()
        flushed = asyncio.create_task(bench.recorder.flush(3.0))
        await bench.clock.advance(3.0)

        assert not await flushed


async def test_long_pod_names_still_make_valid_event_names():
    """253 characters at most, and never the same name twice within one instant."""
    bench = Bench()
    async with bench.running():
        for note in ("a", "b"):
            bench.failed(note, name="p" * 253)
        await bench.clock.settle()

    names = [recorded.body["metadata"]["name"] for recorded in bench.recorded]
    assert [253, 253] == [len(name) for name in names]
    assert names[0] != names[1]


async def test_a_name_is_not_cut_behind_a_dot():
    """What is left must be a name, too, or the server would refuse every event about the pod."""
    bench = Bench()
    bench.failed(name="p" * 234 + "-." + "q" * 17)
    async with bench.running():
        await bench.clock.settle()

    assert f"{'p' * 234}.{int(bench.clock.wall() * 1e9):x}" == bench.recorded[0].body["metadata"]["name"]


async def test_behind_the_fence_events_are_dropped_in_silence(monkeypatch):
    """Thousands may wait when the lease is lost; one line each would bury the reason. What comes later may be sent."""
    bench, lines = Bench(), CapturingLogger()
    monkeypatch.setattr(recorder, "_log", lines)
    may = [False]
    monkeypatch.setattr(bench.recorder.writer, "may_write", lambda: may[0])
    for n in range(10):
        bench.failed(name=f"p{n}")
    async with bench.running():
        await bench.clock.settle()
        assert ([], 10, []) == (bench.recorded, bench.stats.failed, lines.calls)
        may[0] = True
        bench.failed(name="p0")
        await bench.clock.settle()

    assert [EVENTS] == bench.transport.paths("POST")


P = "disk.example"


def at(minute: int, second: int = 0) -> str:
    return f"2026-01-02T03:{minute:02}:{second:02}Z"


def classic(
    reason: str, minute: int, message: str = "m", *, by: str = f"{P}_host_1", type_: str = "Normal"
) -> dict[str, Any]:
    """As client-go's older recorder writes them, shown by a server."""
    return {
        "metadata": {"name": f"{reason}-{minute}", "creationTimestamp": at(0)},
        "source": {"component": by} if by else {},
        "firstTimestamp": at(0),
        "lastTimestamp": at(minute),
        "eventTime": None,
        "reason": reason,
        "message": message,
        "type": type_,
        "reportingComponent": by,
        "reportingInstance": "",
    }


def failed(minute: int, message: str = "m", **rest: str) -> dict[str, Any]:
    return classic("ProvisioningFailed", minute, message, type_="Warning", **rest)


def quoted(*events: dict[str, Any], besides: tuple[str, ...] = ("kubestow",), provisioner: str = P) -> str | None:
    raw = msgspec.json.encode({"kind": "EventList", "metadata": {}, "items": list(events)})
    return last_reported(raw, provisioner=provisioner, besides=besides)


@pytest.mark.parametrize(("events", "said"), [
    pytest.param([failed(1)], f"ProvisioningFailed at {at(1)}: m", id="the only one"),
    pytest.param([failed(2, "new"), failed(1, "old")], f"ProvisioningFailed at {at(2)}: new", id="the newest"),
    pytest.param([failed(1), classic("ProvisioningSucceeded", 2)], f"ProvisioningSucceeded at {at(2)}: m",
        id="the provisioner's news after its warning"),
    pytest.param([failed(1), classic("Provisioning", 2)], f"ProvisioningFailed at {at(1)}: m",
        id="a try that begins does not hide what the last one came to"),
    pytest.param([classic("Provisioning", 2)], f"Provisioning at {at(2)}: m",
        id="a try that begins is better than nothing"),
    pytest.param([failed(1), classic("ExternalProvisioning", 5, by="persistentvolume-controller")],
        f"ProvisioningFailed at {at(1)}: m",
        id="the PV controller, which says every quarter of a minute that it waits, is not it"),
    pytest.param([failed(1, by="persistentvolume-controller")], f"ProvisioningFailed at {at(1)}: m",
        id="a warning of another component is quoted"),
    pytest.param([failed(1, by="kubestow")], None, id="but not our own"),
    pytest.param([classic("Resized", 1, by=f"{P}er")], None, id="nor a longer name's news"),
    pytest.param([classic("Resized", 1, by=P)], f"Resized at {at(1)}: m", id="the bare name's are the provisioner's"),
    pytest.param([], None, id="none"),
    pytest.param([failed(1, " two\n\tlines ")], f"ProvisioningFailed at {at(1)}: two lines", id="on one line"),
    pytest.param([failed(1, "x" * MESSAGE_LENGTH)], f"ProvisioningFailed at {at(1)}: {'x' * MESSAGE_LENGTH}",
        id="as long as may be"),
    pytest.param([failed(1, "x" * (MESSAGE_LENGTH + 1))],
        f"ProvisioningFailed at {at(1)}: {'x' * (MESSAGE_LENGTH - 4)} ...", id="longer"),
])  # fmt: skip
def test_what_is_quoted(events: list[dict[str, Any]], said: str | None) -> None:
    assert said == quoted(*events)
    assert said == quoted(*reversed(events))


@pytest.mark.parametrize(("times", "when"), [
    pytest.param({"lastTimestamp": at(5)}, at(5), id="the older API's count"),
    pytest.param({"eventTime": "2026-01-02T03:05:00.250000Z"}, at(5), id="the newer API's"),
    pytest.param({"eventTime": at(1), "series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:00.250000Z"}}, at(5),
        id="of a series the last"),
    pytest.param({"eventTime": at(5), "series": {"count": 2, "lastObservedTime": None}}, at(5), id="an empty series"),
    pytest.param({"metadata": {"creationTimestamp": at(5)}}, at(5), id="no time but its birth"),
    pytest.param({"eventTime": "2026-01-02T04:05:00+01:00"}, at(5), id="in another zone"),
])  # fmt: skip
def test_when_it_happened(times: dict[str, Any], when: str) -> None:
    event = {"type": "Warning", "reason": "r", "message": "m"} | times

    assert f"r at {when}: m" == quoted(event, failed(4))
    assert f"ProvisioningFailed at {at(6)}: m" == quoted(event, failed(6))


def test_within_one_second() -> None:
    """Times are compared as times: as texts, a fraction would come before none."""
    later = {"type": "Warning", "reason": "later", "eventTime": "2026-01-02T03:01:00.500000Z"}

    assert f"later at {at(1)}: " == quoted(failed(1), later)


def test_one_without_any_time() -> None:
    timeless = {"type": "Warning", "reason": "r", "message": "m"}

    assert "r: m" == quoted(timeless)
    assert f"ProvisioningFailed at {at(0)}: m" == quoted(timeless, failed(0))


def test_an_event_without_a_reporter_is_not_the_provisioners() -> None:
    assert quoted(classic("Odd", 1, by=""), provisioner="") is None


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"items":[{"type":3}]}', b'{"items":[{"lastTimestamp":"soon"}]}'])
def test_what_is_no_list_of_events(raw: bytes) -> None:
    with pytest.raises(Unavailable, match="no list of Events"):
        last_reported(raw, provisioner=P, besides=())


def test_a_list_without_items() -> None:
    """Go writes an empty slice as null."""
    assert last_reported(b'{"items":null}', provisioner=P, besides=()) is None
