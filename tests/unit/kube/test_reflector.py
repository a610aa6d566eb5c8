import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, Delta, ObjectDecoder, PartlyReadPod
from scheduler.core.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ResourceVersionTooLarge,
    TooManyRequests,
    Unavailable,
)
from scheduler.kube.reflector import DOWN_S, INACTIVITY_S, Reflector
from scheduler.kube.resources import POD, RESOURCE_CLAIM, KindSpec, ServedKind
from tests.examples import examples
from tests.unit.kube.scripted import (
    Answer,
    Hang,
    Later,
    LeapingClock,
    ScriptedTransport,
    Step,
    bookmark,
    error_line,
    line,
    page,
    picture,
    pod,
    too_large,
    until,
)

SERVED = ServedKind("/api/v1/pods", "v1")
REFUSES_WATCH_LIST = Invalid("sendInitialEvents is forbidden for watch", status=422)


async def nowhere_else() -> None:
    """The kind has only one place."""


class Mirror:
    """A reflector under test with everything it said."""

    def __init__(self, transport: ScriptedTransport, spec: KindSpec = POD, **more: Any) -> None:
        self.transport = transport
        self.clock = LeapingClock()
        self.batches: list[list[Delta[Pod]]] = []
        settings: dict[str, Any] = {"served": SERVED, "decoder": ObjectDecoder("Pod", Pod), "locate": nowhere_else}
        settings |= {"on_batch": self.batches.append} | more
        self.reflector: Reflector[Pod] = Reflector(
            spec,
            **settings,
            transport=transport,
            clock=self.clock,
            rng=random.Random(1),
        )
        self.stats = self.reflector.stats

    def said(self) -> list[tuple[str | None, str | None]]:
        """(old, new) of every delta as `name@version`."""
        return [(_short(delta.old), _short(delta.new)) for batch in self.batches for delta in batch]

    def holds(self) -> dict[str, str]:
        return {obj.metadata.name: obj.metadata.resource_version for obj in self.reflector.store}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reflector.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run_through(self, watches: int) -> "Mirror":
        """Run until that many watches were opened and the last one hangs."""
        async with self.running():
            await until(lambda: len(self.transport.watches()) >= watches)
            for _ in range(50):
                await asyncio.sleep(0)
        return self


def _short(obj: Pod | Broken | None) -> str | None:
    return None if obj is None else f"{obj.metadata.name}@{obj.metadata.resource_version}"


def scripted(*streams: list[Step], answers: list[Answer] | None = None, spec: KindSpec = POD) -> Mirror:
    return Mirror(ScriptedTransport(streams=list(streams), answers=answers or []), spec)


async def test_the_worked_example() -> None:
    """The steps of the docstring of reflector."""
    batches: list[int] = []
    mirror = Mirror(ScriptedTransport())
    shown = Later(lambda: batches.append(len(mirror.batches)))
    mirror.transport.streams = [
        [
            line("ADDED", pod("a", version="3")) + line("ADDED", pod("b", version="5")),
            shown,
            bookmark("7", ends_picture=True),
            shown,
            line("MODIFIED", pod("b", version="9")) + bookmark("12"),
        ],
        [error_line(410)],
        [line("ADDED", pod("b", version="9")), shown, bookmark("20", ends_picture=True), Hang()],
    ]
    await mirror.run_through(3)
    await until(lambda: mirror.reflector.version == "20")

    assert batches == [0, 1, 2]
    assert mirror.said() == [(None, "a@3"), (None, "b@5"), ("b@5", "b@9"), ("a@3", None)]
    assert [watch.get("resourceVersion", "") for watch in mirror.transport.watches()] == ["", "12", ""]
    assert mirror.holds() == {"b": "9"}


async def test_the_first_list_arrives_as_one_batch():
    seen: list[int] = []
    mirror = scripted([line("ADDED", pod("a")), Later(lambda: seen.append(len(mirror.batches))),
                       line("ADDED", pod("b", version="2")), bookmark("10", ends_picture=True), Hang()])  # fmt: skip
    await mirror.run_through(1)

    assert [0] == seen
    assert [[(None, "a@1"), (None, "b@2")]] == [[(_short(d.old), _short(d.new)) for d in b] for b in mirror.batches]
    assert mirror.reflector.synced.is_set()
    assert mirror.stats.synced
    assert 2 == mirror.stats.objects
    assert {"start": 1} == mirror.stats.relists
    (query,) = mirror.transport.watches()
    assert "true" == query["sendInitialEvents"]
    assert "NotOlderThan" == query["resourceVersionMatch"]
    assert "status.phase!=Succeeded,status.phase!=Failed" == query["fieldSelector"]
    assert "resourceVersion" not in query
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_a_quiet_stream_is_a_stream():
    seen: list[bool] = []
    mirror = scripted([picture(), Later(lambda: seen.append(mirror.stats.is_watching)), Unavailable("cut")],
                      [Unavailable("away")], [Unavailable("away")], [Hang()])  # fmt: skip
    assert not mirror.stats.is_watching
    async with mirror.running():
        await until(lambda: len(mirror.transport.watches()) >= 3)
        lost_s = mirror.stats.down_s
        await until(lambda: mirror.stats.is_watching)

    assert [True] == seen
    assert lost_s > 0.0


async def test_an_object_deleted_within_the_first_list_is_never_shown():
    mirror = await scripted(
        [line("ADDED", pod("a")), line("DELETED", pod("a", version="2")), picture(), Hang()]
    ).run_through(1)

    assert [] == mirror.said()
    assert mirror.reflector.synced.is_set()


async def test_changes_are_one_batch_per_chunk():
    chunk = (
        line("ADDED", pod("b", version="11"))
        + line("MODIFIED", pod("a", version="12"))
        + line("DELETED", pod("b", version="13"))
    )
    mirror = await scripted([picture(pod("a")), chunk, Hang()]).run_through(1)

    assert 2 == len(mirror.batches)
    assert [(None, "a@1"), (None, "b@11"), ("a@1", "a@12"), ("b@11", None)] == mirror.said()
    assert {"ADDED": 2, "MODIFIED": 1, "DELETED": 1, "BOOKMARK": 1} == mirror.stats.events


async def test_a_stream_that_ends_is_resumed_where_it_was():
    mirror = await scripted(
        [picture(pod("a"))], [line("MODIFIED", pod("a", version="11"))], [bookmark("20")], [Hang()]
    ).run_through(4)

    assert [None, "10", "11", "20"] == [query.get("resourceVersion") for query in mirror.transport.watches()]
    assert "sendInitialEvents" not in mirror.transport.watches()[1]
    assert {"start": 1} == mirror.stats.relists


async def test_a_server_that_ends_every_stream_at_once_is_requested_ever_more_slowly():
    mirror = await scripted([picture(pod("a"))], *([] for _ in range(8)), [Hang()]).run_through(10)

    assert 9 == len(mirror.clock.slept)
    assert mirror.clock.slept[0] <= 0.2
    assert 5 <= mirror.clock.slept[-1] <= 10


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(error_line(410, "too old resource version", "Expired"), id="as an error within the stream"),
        pytest.param(Gone("too old resource version", status=410), id="as the answer's status"),
        pytest.param(too_large(), id="a server restored from a backup"),
    ],
)
async def test_after_compaction_a_new_list_reports_what_vanished(end):
    shown: list[dict[str, str]] = []
    broken = [end] if isinstance(end, ApiError) else [end, Hang()]
    mirror = scripted(
        [picture(pod("a"), pod("gone"), pod("again", uid="old"))],
        broken,
        [
            line("ADDED", pod("a")),
            Later(lambda: shown.append(mirror.holds())),
            picture(pod("again", uid="new", version="7"), pod("b", version="8"), version="30"),
            Hang(),
        ],
    )
    await mirror.run_through(3)

    assert [{"a": "1", "gone": "1", "again": "1"}] == shown
    assert [("gone@1", None), ("again@1", None), (None, "again@7"), (None, "b@8")] == mirror.said()[3:]
    assert 2 == mirror.stats.synthesised_deletes
    assert {"start": 1, "gone": 1} == mirror.stats.relists
    assert "resourceVersion" not in mirror.transport.watches()[2]


BEGUN = line("ADDED", pod("a"))
LAGS = ResourceVersionTooLarge("Timeout: Too large resource version: 3739", status=504)
CUT: dict[str, list[Step]] = {
    "the connection is lost": [BEGUN, Unavailable("connection lost")],
    "an ERROR with 410 ends it": [BEGUN, error_line(410, "too old resource version", "Expired")],
    "an ERROR with 500 ends it": [BEGUN, error_line(500, "unable to transform key")],
    "the server's cache lags": [BEGUN, too_large()],
    "the server ends it": [BEGUN, b""],
    "its end has no version": [BEGUN, bookmark("", ends_picture=True)],
    "it is answered with 410": [Gone("too old resource version", status=410)],
    "it is answered that the cache lags": [LAGS],
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT.keys())
async def test_a_watch_list_that_is_cut_is_followed_by_a_list_at_once(cut: list[Step]):
    mirror = await scripted(cut, [Hang()], answers=[page(pod("b"))]).run_through(2)

    assert [(None, "b@1")] == mirror.said()
    assert [] == mirror.clock.slept
    assert (1, 0) == (mirror.stats.failures_total, mirror.stats.failures)


@pytest.mark.parametrize(
    ("later_s", "lists"), [pytest.param(200.0, 2, id="200 s later"), pytest.param(301.0, 1, id="301 s later")]
)
async def test_a_kind_whose_watch_list_was_cut_is_listed_for_minutes(later_s: float, lists: int):
    mirror = scripted(
        [line("ADDED", pod("a")), Unavailable("connection lost")],
        [Later(lambda: _pass(mirror, later_s)), error_line(410)],
        [picture(pod("b")) if lists == 1 else b"", Hang()],
        answers=[page(pod("a")), page(pod("b"))],
    )
    await mirror.run_through(3)

    assert lists == len(mirror.transport.paths("LIST"))
    assert {"b": "1"} == mirror.holds()


async def test_where_lists_fail_too_a_watch_list_is_tried_again():
    """Behind some proxies only one of them works."""
    mirror = await scripted(
        [line("ADDED", pod("a")), Unavailable("connection lost")],
        [picture(pod("a")), Hang()],
        answers=[ApiError("unreadable list")],
    ).run_through(2)

    assert {"a": "1"} == mirror.holds()
    assert 1 == len(mirror.clock.slept)


async def test_newer_objects_of_an_incomplete_list_are_shown_at_once():
    shown: list[dict[str, str]] = []
    mirror = scripted(
        [picture(pod("a", version="5"), pod("b", version="6"), pod("c"), pod("gone")), error_line(410)],
        [
            line("ADDED", pod("a", version="4")) + line("ADDED", pod("b", version="11")),
            line("ADDED", pod("new", version="12")) + line("DELETED", pod("c", version="13")),
            Later(lambda: shown.append(mirror.holds())),
            Unavailable("connection lost"),
        ],
        [Hang()],
        answers=[page(pod("a", version="5"), pod("b", version="11"), pod("new", version="12"), version="20")],
    )
    await mirror.run_through(3)

    assert [{"a": "5", "b": "11", "gone": "1", "new": "12"}] == shown
    assert [("b@6", "b@11"), (None, "new@12"), ("c@1", None), ("gone@1", None)] == mirror.said()[4:]
    assert 1 == mirror.stats.synthesised_deletes


async def test_claims_of_an_incomplete_list_wait_for_its_end():
    """Only the order of two claims shows which got a device first, and it is known at the end."""
    shown: list[dict[str, str]] = []
    mirror = scripted(
        [picture(pod("a")), error_line(410)],
        [line("ADDED", pod("b", version="12")), Later(lambda: shown.append(mirror.holds())), picture(pod("c")), Hang()],
        spec=RESOURCE_CLAIM,
    )
    await mirror.run_through(2)

    assert [{"a": "1"}] == shown
    assert {"b": "12", "c": "1"} == mirror.holds()


async def test_a_requested_relist_ends_the_stream_and_corrects_the_store():
    first, second = picture(pod("a"), pod("b")), picture(pod("a"), pod("b"), version="12")
    mirror = Mirror(ScriptedTransport(streams=[[first, Hang()], [second, Hang()]]))
    async with mirror.running():
        await until(lambda: mirror.stats.synced)
        del mirror.reflector.store._objects["ns/b"]
        mirror.reflector.relist("audit")
        await until(lambda: mirror.reflector.version == "12")

    assert mirror.holds() == {"a": "1", "b": "1"}
    assert mirror.said()[2:] == [(None, "b@1")]
    assert (mirror.stats.relists, mirror.stats.failures_total) == ({"start": 1, "audit": 1}, 0)
    assert mirror.clock.slept == []


async def test_a_relist_that_is_requested_between_two_streams_begins_with_a_list():
    streams: list[list[Step]] = [[picture(pod("a"))], [picture(pod("a"), pod("b"), version="12"), Hang()]]
    mirror = Mirror(ScriptedTransport(streams=streams))
    mirror.reflector.on_batch = lambda _: (
        mirror.reflector.relist("audit") if mirror.stats.relists == {"start": 1} else None
    )
    async with mirror.running():
        await until(lambda: mirror.reflector.version == "12")

    assert mirror.stats.relists == {"start": 1, "audit": 1}


async def test_removed_objects_are_logged():
    first: list[Step] = [
        picture(pod("a"), pod("b"), pod("c")),
        line("DELETED", pod("b", version="11")),
        error_line(410),
    ]
    mirror = Mirror(ScriptedTransport(streams=[first, [picture(pod("a"), version="12"), Hang()]]))
    async with mirror.running():
        await until(lambda: mirror.reflector.version == "12")

    assert mirror.reflector.store.removals.changed_since(0) == ["ns/b", "ns/c"]


async def test_a_stream_that_lived_for_a_while_resets_the_back_off():
    """Although it brought nothing: a reset every few seconds is no reason to wait ever longer."""
    lives: list[Step] = [Later(lambda: _pass(mirror, 3.0)), Unavailable("connection reset")]
    mirror = scripted([picture(pod("a"))], *([*lives] for _ in range(8)), [Hang()])
    await mirror.run_through(10)

    assert max(mirror.clock.slept) <= 0.2


async def test_a_stream_that_is_silent_for_as_long_as_can_be_is_followed_by_a_list():
    """A server restored from a backup sends nothing, not even bookmarks, before it has come as far as it was."""
    silent: list[Step] = [Later(lambda: _pass(mirror, INACTIVITY_S - 0.1)), Unavailable("timeout on reading data")]
    mirror = scripted([picture(pod("a"), pod("gone"))], silent, [picture(pod("a")), Hang()])
    await mirror.run_through(3)

    assert {"a": "1"} == mirror.holds()
    assert {"start": 1, "silent": 1} == mirror.stats.relists


async def test_a_stream_that_brought_something_before_it_was_silent_is_resumed():
    silent: list[Step] = [bookmark("20"), Later(lambda: _pass(mirror, INACTIVITY_S)), Unavailable("timeout")]
    mirror = scripted([picture(pod("a"))], silent, [Hang()])
    await mirror.run_through(3)

    assert {"start": 1} == mirror.stats.relists


@pytest.mark.parametrize(
    ("status", "relists"),
    [
        pytest.param(0, {"start": 1, "outage": 1}, id="a server that cannot be reached"),
        pytest.param(503, {"start": 1}, id="a server that is overloaded, which a list would not help"),
    ],
)
async def test_after_an_outage_a_list_follows(status: int, relists: dict[str, int]):
    """An etcd that was restored may have reached the same version again, with another history. Short outages are resumed."""
    away: list[list[Step]] = [[Unavailable("no way", status=status)] for _ in range(9)]
    mirror = await scripted([picture(pod("a"))], *away, [picture(pod("a")), Hang()]).run_through(11)

    assert mirror.clock.time_s - 1000 > DOWN_S
    assert relists == mirror.stats.relists


LESS_THAN_A_LIST = {
    "an empty object": b"{}",
    "a list without a version": b'{"kind":"PodList","metadata":{},"items":[]}',
    "another kind of answer": b'{"kind":"Status","status":"Success","metadata":{}}',
}


@pytest.mark.parametrize("answer", LESS_THAN_A_LIST.values(), ids=LESS_THAN_A_LIST.keys())
async def test_an_answer_that_is_no_list_does_not_say_that_there_are_no_objects(answer: bytes):
    mirror = await scripted(
        [REFUSES_WATCH_LIST],
        [error_line(410)],
        [Hang()],
        answers=[page(pod("a")), answer, page(pod("a"), pod("b", version="2"))],
    ).run_through(3)

    assert [(None, "a@1"), (None, "b@2")] == mirror.said()
    assert 2 == len(mirror.clock.slept)


async def test_a_kind_that_stays_down_is_reported_each_minute_with_its_failures():
    """The same answer again and again is else logged once; the first report comes after 15 s."""
    mirror = scripted([picture(pod("a"))], answers=[])
    mirror.transport.streams += [[Unavailable("no way", status=503)] for _ in range(30)]
    with structlog.testing.capture_logs() as log:
        await mirror.run_through(32)

    said = [line for line in log if line["event"] == "no complete list and no watch"]
    assert len(said) == 3
    assert said[0]["seconds"] >= 15
    assert said[0]["failures"] < said[1]["failures"] < said[2]["failures"]
    assert said[1]["seconds"] - said[0]["seconds"] >= 60
    assert ("Pod", "watch pods: no way") == (said[0]["kind"], said[0]["error"])
    assert 1 == len([line for line in log if line["event"] == "watch interrupted"])
    assert (0, 0.0, 30) == (mirror.stats.failures, mirror.stats.down_s, mirror.stats.failures_total)


async def test_a_kind_is_down_from_its_last_list_or_watch_on():
    down: list[float] = []
    mirror = scripted(
        [Later(lambda: _pass(mirror, 7.0)), Later(lambda: down.append(mirror.stats.down_s)), picture(pod("a")),
         Later(lambda: _pass(mirror, 50.0)), Later(lambda: down.append(mirror.stats.down_s)), error_line(410)],
        [line("ADDED", pod("a")), Later(lambda: _pass(mirror, 20.0)), Later(lambda: down.append(mirror.stats.down_s)),
         picture(pod("a")), Hang()],
    )  # fmt: skip
    await mirror.run_through(2)

    assert [7.0, 0.0, pytest.approx(20.0, abs=0.5)] == down
    assert 0.0 == mirror.stats.down_s


async def test_a_server_without_watch_list_is_listed_page_by_page_and_that_is_remembered():
    mirror = await scripted(
        [REFUSES_WATCH_LIST],
        [error_line(410)],
        [Hang()],
        answers=[page(pod("a"), version="9", more="token"), page(pod("b"), version="9"), page(pod("b"), version="20")],
    ).run_through(3)

    lists = [recorded.query for recorded in mirror.transport.recorded if recorded.method == "LIST"]
    assert [None, "token", None] == [query.get("continue") for query in lists]
    assert all("500" == query["limit"] and "resourceVersion" not in query for query in lists)
    assert ["9", "20"] == [query["resourceVersion"] for query in mirror.transport.watches()[1:]]
    assert [(None, "a@1"), (None, "b@1"), ("a@1", None)] == mirror.said()


async def test_an_expired_page_token_starts_the_list_again():
    """410 on the second page: nothing of the first is shown."""
    mirror = await scripted(
        [REFUSES_WATCH_LIST],
        [Hang()],
        answers=[page(pod("a"), more="t"), Gone("continue token expired", status=410), page(pod("b"))],
    ).run_through(2)

    assert [(None, "b@1")] == mirror.said()


async def test_a_server_that_ignores_watch_list_is_listed_from_then_on():
    ignored: list[Step] = [line("ADDED", pod("a"))]
    later: list[Step] = [Later(lambda: _pass(mirror, 1000.0)), error_line(410)]
    mirror = scripted(ignored, later, ignored, later, [Hang()], answers=[page(pod("a"))] * 3)
    await mirror.run_through(5)

    assert 3 == len(mirror.transport.paths("LIST"))
    assert {"a": "1"} == mirror.holds()


@pytest.mark.parametrize(("refusal", "least_s", "denied"), [
    pytest.param(Forbidden("pods is forbidden", status=403), 5.0, "cannot watch pods: pods is forbidden",
        id="forbidden"),
    pytest.param(NotFound("no such kind", status=404), 30.0, "", id="not served"),
    pytest.param(TooManyRequests("busy", retry_after_s=7.0), 7.0, "", id="too many requests"),
    pytest.param(Unavailable("no way", status=503), 0.1, "", id="unavailable"),
])  # fmt: skip
async def test_refusals_are_waited_out(refusal, least_s, denied):
    seen: list[str] = []
    mirror = scripted([refusal], [Later(lambda: None), picture(pod("a")), Hang()])
    sleep = mirror.clock.sleep

    async def look(delay_s: float) -> None:
        seen.append(mirror.stats.denied)
        await sleep(delay_s)

    mirror.clock.sleep = look  # type: ignore[method-assign]
    await mirror.run_through(2)

    assert mirror.clock.slept[0] >= least_s
    assert [denied] == seen
    assert ("", "", False) == (mirror.stats.denied, mirror.stats.last_error, mirror.stats.absent)
    assert mirror.reflector.synced.is_set()


async def test_an_error_in_the_stream_does_not_lose_what_came_before_it():
    mirror = await scripted(
        [picture(pod("a"))], [line("ADDED", pod("b", version="11")) + error_line(500, "etcd is away")], [Hang()]
    ).run_through(3)

    assert [(None, "a@1"), (None, "b@11")] == mirror.said()
    assert "11" == mirror.transport.watches()[2]["resourceVersion"]


async def test_a_stream_that_cannot_go_on_from_where_we_are_is_followed_by_a_list():
    """An event that the server cannot send would block the watch permanently."""
    stuck: list[Step] = [error_line(500, "unable to transform key")]
    mirror = await scripted([picture(pod("a"))], stuck, stuck, stuck, [picture(pod("b")), Hang()]).run_through(5)

    assert {"b": "1"} == mirror.holds()
    assert {"start": 1, "error": 1} == mirror.stats.relists


async def test_a_version_that_the_server_refuses_is_followed_by_a_list():
    """Every later watch would be refused, too."""
    refused = Invalid('resourceVersion: Invalid value: "x"', status=400)
    strange: list[Step] = [line("ADDED", pod("b", version="x")), Unavailable("connection reset")]
    mirror = await scripted([picture(pod("a"))], strange, [refused], [picture(pod("b")), Hang()]).run_through(4)

    assert {"b": "1"} == mirror.holds()
    assert {"start": 1, "error": 1} == mirror.stats.relists


async def test_errors_between_events_cause_no_list():
    streams: list[list[Step]] = [
        [line("ADDED", pod("b", version=str(n))), error_line(500, "etcd is away")] for n in range(11, 17)
    ]
    mirror = await scripted([picture(pod("a"))], *streams, [Hang()]).run_through(8)

    assert {"start": 1} == mirror.stats.relists
    assert "16" == mirror.transport.watches()[7]["resourceVersion"]


@pytest.mark.parametrize(("spec", "order"), [(RESOURCE_CLAIM, "cba"), (POD, "abc")], ids=["claims", "pods"])
async def test_a_new_list_of_claims_is_in_the_order_of_writes(spec, order):
    """Nothing else shows which of several claims got one device first."""
    mirror = scripted([picture(pod("a", version="10"), pod("b", version="9"), pod("c", version="")), Hang()], spec=spec)
    await mirror.run_through(1)

    assert list(order) == [obj.metadata.name for obj in mirror.reflector.store]


async def test_unreadable_things_are_counted_and_stop_nothing():
    bad = pod("bad", version="12", nodeName="n1")
    bad["spec"]["containers"] = [{"resources": {"requests": {"cpu": "lots"}}}]
    mirror = await scripted(
        [
            picture(pod("a")),
            b"<html>\n" + line("STRANGE", {}) + line("ADDED", {"metadata": 7}) + line("ADDED", bad) + b"\n"
            + line("BOOKMARK", []) + line("ADDED", pod("c", version="13")),
            Hang(),
        ]
    ).run_through(1)  # fmt: skip

    assert [(None, "a@1"), (None, "bad@12"), (None, "c@13")] == mirror.said()
    partly = next(obj for obj in mirror.reflector.store if obj.key == "ns/bad")
    assert isinstance(partly, PartlyReadPod)
    assert "n1" == partly.spec.node_name
    assert 5 == mirror.stats.decode_errors


async def test_silence_is_measured_from_the_last_byte():
    mirror = scripted([picture(pod("a")), Later(lambda: _pass(mirror, 50.0)), bookmark("11"),
                       Later(lambda: _pass(mirror, 3.0)), Hang()])  # fmt: skip
    await mirror.run_through(1)

    assert 3.0 == pytest.approx(mirror.stats.silent_s)


def _pass(mirror: Mirror, seconds: float) -> None:
    mirror.clock.time_s += seconds


HISTORY = (
    picture(pod("a"), pod("ü", version="3"))
    + line("MODIFIED", pod("a", version="11"))
    + line("ADDED", pod("b", version="12"))
    + b"not json\n"
    + line("DELETED", pod("ü", version="13"))
    + line("ADDED", pod("ü", uid="other", version="14"))
    + bookmark("15")
    + line("DELETED", pod("b", version="16"))
)  # fmt: skip


@given(cuts=st.lists(st.integers(0, len(HISTORY)), max_size=30))
@settings(max_examples=examples(60), deadline=None)
def test_chunk_boundaries_mean_nothing(cuts):
    edges = [0, *sorted(cuts), len(HISTORY)]
    chunks = [HISTORY[a:b] for a, b in itertools.pairwise(edges)]

    mirror = asyncio.run(scripted([*chunks, Hang()]).run_through(1))

    assert {"a": "11", "ü": "14"} == mirror.holds()
    assert [(None, "a@1"), (None, "ü@3"), ("a@1", "a@11"), (None, "b@12"), ("ü@3", None), (None, "ü@14"),
            ("b@12", None)] == mirror.said()  # fmt: skip
    assert 1 == mirror.stats.decode_errors
