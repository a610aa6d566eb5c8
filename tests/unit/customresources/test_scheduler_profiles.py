"""SchedulerProfile objects: events and lists in any order, and the status that is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Ambiguous, Conflict, Forbidden, NotFound, Unavailable
from scheduler.customresources.scheduler_profiles import ProfileObjects
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.writes.own_objects import PROFILES, ProfileWriter
from scheduler.profiles.reconciler import IN_FORCE, INVALID, ProfileVerdict, RequestedProfile
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import Answer, ScriptedTransport, until

Object = dict[str, Any]


def profile(name: str = "kubestow", *, uid: str = "u1", version: int = 5, generation: int = 1, **more: Any) -> Object:
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version), "generation": generation}
    return {"metadata": metadata, "spec": {"n": generation}, **more}


def listed(*objects: Object, version: int = 10) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": str(version)}, "items": objects})


class Bench:
    """The objects of the scheduler `kubestow`, and verdicts that a test sets."""

    def __init__(self, *answers: Answer) -> None:
        self.transport = ScriptedTransport(answers=list(answers))
        self.clock = VirtualClock()
        self.leads = True
        self.wishes: list[Mapping[str, RequestedProfile]] = []
        self.verdicts: dict[str, ProfileVerdict] = {}
        throttle = Throttle(self.clock, qps=-1, burst=1)
        self.objects = ProfileObjects(
            self.transport,
            ProfileWriter(self.transport, throttle, self.clock, may_write=lambda: self.leads),
            self.clock,
            names=frozenset({"kubestow"}),
            on_requested=self.wishes.append,
            verdicts=lambda: self.verdicts,
        )

    @property
    def wished(self) -> list[tuple[str, int]]:
        """The uids and generations of the profiles that are wished for."""
        return [(wish.uid, wish.generation) for wish in (self.wishes[-1] if self.wishes else {}).values()]

    async def look(self) -> None:
        await self.objects._list()

    async def write_statuses(self) -> bool:
        return await self.objects.write()

    def written(self) -> list[Object]:
        return [recorded.body["status"] for recorded in self.transport.recorded if recorded.method == "PATCH"]

    def judge(self, obj: Object, reason: str = IN_FORCE, message: str = "as said", in_force: int = 1) -> None:
        metadata = obj["metadata"]
        wish = RequestedProfile(metadata["uid"], metadata["generation"], obj["spec"])
        self.verdicts["kubestow"] = ProfileVerdict(wish, reason, message, in_force, "score: A 1→2")


async def judged(obj: Object, *answers: Answer, **verdict: Any) -> Bench:
    """Return a bench that has listed this object, with a verdict. `answers` follow."""
    bench = Bench(listed(obj), *answers)
    await bench.look()
    bench.judge(obj, **verdict)
    return bench


@asynccontextmanager
async def following(bench: Bench) -> AsyncIterator[None]:
    """Run `follow` inside the block."""
    task = asyncio.ensure_future(bench.objects.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- events and lists ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("history", "wished"), [
    pytest.param([("ADDED", profile())], [("u1", 1)], id="created"),
    pytest.param([(None, profile()), ("MODIFIED", profile(version=6, generation=2))], [("u1", 2)], id="changed"),
    pytest.param([("MODIFIED", profile(version=6, generation=2)), (None, profile())], [("u1", 2)],
        id="an older version later"),
    pytest.param([("ADDED", profile()), ("DELETED", profile(version=7))], [], id="deleted"),
    pytest.param([("ADDED", profile()), ("DELETED", profile(version=7)), (None, profile(version=6))], [],
        id="an older version after the deletion"),
    pytest.param([("ADDED", profile()), ("ADDED", profile(uid="u2", version=9)), ("DELETED", profile(version=8))],
        [("u2", 1)], id="the deletion of an earlier object of the name"),
    pytest.param([("ADDED", profile("theirs"))], [], id="another scheduler's"),
])  # fmt: skip
def test_events_in_any_order(history: list[tuple[str | None, Object]], wished: list[tuple[str, int]]) -> None:
    bench = Bench()
    for type_, obj in history:
        bench.objects.seen(type_, obj)

    assert bench.wished == wished


async def test_an_object_newer_than_the_list_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    async def slowly(_path: str, **_: object) -> bytes:
        bench.objects.seen("ADDED", profile(version=11))
        return listed(version=10)

    monkeypatch.setattr(bench.transport, "get", slowly)
    await bench.look()

    assert bench.wished == [("u1", 1)]


async def test_the_state_of_a_restored_server_counts() -> None:
    """A server restored from a backup continues at an older resource version."""
    bench = Bench(listed(profile(version=500, generation=7), version=500), listed(profile(version=40), version=60))
    await bench.look()
    bench.objects.seen("DELETED", profile("kubestow", uid="u2", version=490))

    await bench.look()
    assert bench.wished == [("u1", 1)]

    bench.transport.answers.append(listed(version=61))
    await bench.look()
    assert bench.wished == []


async def test_a_list_older_than_a_deletion_brings_nothing_back() -> None:
    bench = Bench(listed(profile(version=5), version=6), listed(profile(uid="u2", version=9), version=10))
    bench.objects.seen("DELETED", profile(version=7))

    await bench.look()
    assert bench.wished == []

    await bench.look()
    assert bench.wished == [("u2", 1)]


async def test_unchanged_objects_are_not_reported_again() -> None:
    bench = Bench(listed(profile(version=5)), listed(profile(version=6, status={"changes": "x"}), version=11))
    await bench.look()
    await bench.look()

    assert len(bench.wishes) == 1


@pytest.mark.parametrize("error", [Forbidden("no", status=403), Unavailable("down"), b"nonsense"], ids=type)
async def test_a_list_that_fails_changes_nothing(error: Answer) -> None:
    bench = Bench(listed(profile()), error, listed(profile(), version=11))
    await bench.look()

    await bench.look()
    assert bench.wished == [("u1", 1)]
    assert bench.objects.remark().startswith("SchedulerProfiles cannot be read: ")

    await bench.look()
    assert bench.objects.remark() == ""


async def test_a_first_list_that_fails_for_a_moment_does_not_count() -> None:
    """The start waits for the next list. It does not wait if the list is forbidden."""
    bench = Bench(Unavailable("down"), listed(profile()))
    async with following(bench):
        await until(lambda: bench.objects.unread)
        assert not bench.objects.looked.is_set()
        await bench.clock.advance(3)
        await until(bench.objects.looked.is_set)
        assert bench.wished == [("u1", 1)]

    refused = Bench(Forbidden("no", status=403))
    await refused.look()
    assert refused.objects.looked.is_set()


async def test_a_kind_that_is_gone_has_no_objects() -> None:
    """The file counts, and the watch is ended. A watch that starts without the kind would wait permanently."""
    bench = Bench(listed(profile()), NotFound("gone", status=404))
    await bench.look()
    assert not bench.objects.deaf.is_set()
    await bench.look()

    assert (bench.wished, bench.objects.remark()) == ([], "")
    assert (bench.objects.deaf.is_set(), bench.objects.why_deaf) == (True, "the kind is not served any more")


# -- the status ------------------------------------------------------------------------------------------------------


async def test_a_verdict_is_written_once() -> None:
    condition = {
        "type": "InForce",
        "status": "True",
        "reason": "InForce",
        "message": "as said",
        "observedGeneration": 1,
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    status = {"observedGeneration": 1, "inForceGeneration": 1, "changes": "score: A 1→2", "conditions": [condition]}
    bench = await judged(profile(), msgspec.json.encode(profile(version=12, status=status)))

    assert await bench.write_statuses()
    assert await bench.write_statuses()

    (status_written,) = bench.written()
    status_written["conditions"][0]["lastTransitionTime"] = "1970-01-01T00:00:00Z"
    assert status_written == status


async def test_other_conditions_and_the_transition_time_stay_and_a_long_message_is_cut() -> None:
    theirs = {"type": "Reviewed", "status": "True"}
    ours = {"type": "InForce", "status": "False", "reason": INVALID, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    obj = profile(status={"conditions": [ours, theirs]})
    answer = msgspec.json.encode(profile(version=12))
    bench = await judged(obj, answer, reason=INVALID, message="x" * 40_000, in_force=0)

    await bench.write_statuses()

    (status_written,) = bench.written()
    assert status_written["inForceGeneration"] is None
    first, second = status_written["conditions"]
    assert first == theirs
    assert {key: second[key] for key in ours} == ours
    assert second["message"] == "x" * 4095 + "…"


async def test_a_standby_and_an_old_verdict_write_nothing() -> None:
    bench = Bench(listed(profile(generation=2)))
    await bench.look()
    bench.judge(profile(generation=1))
    assert await bench.write_statuses()
    bench.judge(profile(generation=2))
    bench.leads = False
    assert await bench.write_statuses()

    assert bench.written() == []


@pytest.mark.parametrize(
    ("answer", "again", "patches"),
    [
        pytest.param(Conflict("modified", status=409), profile(version=20), 2, id="a conflict: read and written again"),
        pytest.param(Ambiguous("cut"), profile(version=20), 2, id="a lost answer, and a read shows no status"),
        pytest.param(NotFound("gone", status=404), None, 1, id="it is gone"),
    ],
)
async def test_after_a_failure_the_object_is_read_first(answer: Answer, again: Object | None, patches: int) -> None:
    obj = profile()
    bench = Bench(listed(obj), answer, listed(*([again] if again else []), version=30))
    bench.judge(obj)
    async with following(bench):
        await until(lambda: len(bench.written()) == 1)
        bench.transport.answers.append(msgspec.json.encode(profile(version=31)))
        await bench.clock.advance(5)
        await until(lambda: len(bench.written()) == patches)

    assert bench.transport.paths("GET") == [PROFILES, PROFILES]


async def test_a_status_that_cannot_be_written_has_a_remark() -> None:
    bench = await judged(profile(), Forbidden("cannot patch", status=403))

    assert not await bench.write_statuses()
    assert bench.objects.remark() == "the status of SchedulerProfile kubestow cannot be written: cannot patch"

    bench.transport.answers.append(msgspec.json.encode(profile(version=31)))
    assert await bench.write_statuses()
    assert bench.objects.remark() == ""


async def test_an_unforeseen_error_is_retried_after_a_pause() -> None:
    obj = profile()
    bench = Bench(listed(obj), b"{}", listed(profile(version=20, generation=2), version=30))
    bench.judge(obj)
    async with following(bench):
        await until(lambda: bench.objects.remark() == "SchedulerProfiles could not be followed: KeyError")
        await bench.clock.advance(120)
        await until(lambda: bench.wished == [("u1", 2)])
        assert bench.objects.remark() == ""


@pytest.mark.parametrize(
    ("method", "refused"), [("GET", PROFILES), ("PATCH", f"{PROFILES}/kubestow/status")], ids=["the list", "the status"]
)
async def test_a_refused_request_is_repeated_less_and_less_often(method: str, refused: str) -> None:
    obj = profile()
    bench = Bench()
    bench.transport.by_path = {PROFILES: listed(obj), refused: Forbidden("no", status=403)}
    bench.judge(obj)
    async with following(bench):
        await bench.clock.advance(300)

    assert 8 <= len(bench.transport.paths(method)) <= 12


async def test_a_silent_watch_is_noticed_by_the_second_list() -> None:
    """One list may be ahead of the watch."""
    seen, newer = profile(version=5), profile(version=6, generation=2)
    bench = Bench(*(listed(obj, version=10) for obj in (seen, newer, newer)))
    bench.objects.listen()
    bench.objects.seen(None, seen)
    await bench.look()
    await bench.clock.advance(60)
    await bench.look()
    assert not bench.objects.deaf.is_set()

    await bench.clock.advance(60)
    await bench.look()
    assert bench.objects.deaf.is_set()

    bench.objects.listen()
    assert not bench.objects.deaf.is_set()


@pytest.mark.parametrize(("pause_s", "event"), [
    pytest.param(1, None, id="the lists follow each other closely"),
    pytest.param(60, profile("theirs", uid="u2"), id="another object is reported between them"),
])  # fmt: skip
async def test_a_watch_that_reports_slowly_is_not_silent(pause_s: float, event: Object | None) -> None:
    """kopf needs time for the first list of many objects."""
    bench = Bench(*(listed(profile(version=5)) for _ in range(3)))
    bench.objects.listen()
    for _ in range(3):
        await bench.look()
        await bench.clock.advance(pause_s)
        if event is not None:
            bench.objects.seen(None, event)

    assert not bench.objects.deaf.is_set()


async def test_after_kopf_has_listed_objects_all_are_listed_here_soon() -> None:
    """A deletion that kopf missed is found. Many events cause one list."""
    bench = Bench()
    bench.transport.by_path = {PROFILES: listed(profile())}
    async with following(bench):
        await bench.clock.advance(30)
        assert len(bench.transport.paths("GET")) == 1

        for at in range(50):
            bench.objects.seen(None, profile(version=5 + at))
            await bench.clock.advance(0.01)
        await bench.clock.advance(6)
        assert len(bench.transport.paths("GET")) == 2
