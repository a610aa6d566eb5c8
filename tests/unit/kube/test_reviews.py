"""TokenReviews and SubjectAccessReviews: shared by callers, cached for seconds, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Ambiguous, ApiError, Forbidden, NotFound, TooManyRequests, Unavailable
from scheduler.kube import authz as reviews
from scheduler.kube.authz import ACCESS_REVIEWS, CLIENT_CA, TOKEN_REVIEWS, Lifetimes, Permission, Reviews, User
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import Answer, RecordedRequest, ScriptedTransport, until

ANN = User("ann", "u1", ("dev", "ops"), (("k", ("v", "w")),))


def token_of(name: str, **more: Any) -> bytes:
    return msgspec.json.encode({"status": {"authenticated": True, "user": {"username": name} | more}})


def access(**status: Any) -> bytes:
    return msgspec.json.encode({"status": status})


@dataclass
class Gated(ScriptedTransport):
    """Answers when `open` is set; remembers how many waited at most."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    most_under_way: int = 0
    answer: Callable[[RecordedRequest], Answer] | None = None

    async def _answer(self, recorded: RecordedRequest) -> bytes:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        if self.answer is None:
            return await super()._answer(recorded)
        self.recorded.append(recorded)
        answer = self.answer(recorded)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@dataclass
class Bench:
    transport: ScriptedTransport
    clock: VirtualClock
    reviews: Reviews


def bench(*answers: Answer, transport: ScriptedTransport | None = None, **lifetimes: float) -> Bench:
    clock = VirtualClock()
    transport = transport or ScriptedTransport(answers=list(answers))
    return Bench(transport, clock, Reviews(transport, clock, Lifetimes(**lifetimes)))


async def test_a_token_becomes_a_user() -> None:
    """All fields of the user are kept, because they are part of the next review."""
    world = bench(token_of("ann", uid="u1", groups=["dev", "ops"], extra={"k": ["v", "w"]}))

    assert await world.reviews.user_of("secret") == ANN
    (recorded,) = world.transport.recorded
    assert (recorded.method, recorded.path) == ("POST", TOKEN_REVIEWS)
    assert recorded.body == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "secret"},
    }


async def test_the_body_of_a_subject_access_review() -> None:
    world = bench(access(allowed=True), access(allowed=False, reason="no"))

    assert await world.reviews.may(ANN, verb="get", path="/metrics") == Permission(True)
    assert await world.reviews.may(User("bob"), verb="get", path="/metrics") == Permission(False, "no")
    first, second = (recorded.body["spec"] for recorded in world.transport.recorded)
    path = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    assert first == path | {"user": "ann", "uid": "u1", "groups": ["dev", "ops"], "extra": {"k": ["v", "w"]}}
    assert second == path | {"user": "bob"}
    assert {recorded.path for recorded in world.transport.recorded} == {ACCESS_REVIEWS}


@pytest.mark.parametrize(
    ("answer", "lifetimes", "counts_s"),
    [
        pytest.param(token_of("ann"), {}, 10, id="known"),
        pytest.param(b'{"status": {}}', {}, 10, id="not known"),
        pytest.param(b'{"status": {"error": "invalid bearer token"}}', {}, 0, id="not known, by an error"),
        pytest.param(token_of("ann"), {"token_s": 0}, 0, id="known, without a lifetime"),
    ],
)
async def test_how_long_a_token_counts(answer: bytes, lifetimes: dict[str, Any], counts_s: float) -> None:
    """As in kube-scheduler: ten seconds, and an error is not cached."""
    world = bench(answer, answer, answer, **lifetimes)
    await world.reviews.user_of("t")
    await world.clock.advance(max(0.0, counts_s - 0.1))
    await world.reviews.user_of("t")
    assert len(world.transport.recorded) == (1 if counts_s else 2)
    await world.clock.advance(0.1)
    await world.reviews.user_of("t")

    assert len(world.transport.recorded) == (2 if counts_s else 3)


async def test_how_long_a_permission_counts() -> None:
    world = bench(*[access(allowed=True), access(allowed=False)] * 3, allowed_s=5, denied_s=2)
    ann, count = User("ann"), lambda: len(world.transport.recorded)
    yes, no = {"verb": "get", "path": "/yes"}, {"verb": "get", "path": "/no"}
    for _ in range(2):
        assert (await world.reviews.may(ann, **yes)).allowed
        assert not (await world.reviews.may(ann, **no)).allowed
    assert count() == 2
    await world.clock.advance(2)
    await world.reviews.may(ann, **yes)
    assert count() == 2
    await world.reviews.may(ann, **no)
    assert count() == 3
    await world.reviews.may(msgspec.structs.replace(ann, groups=("g",)), **yes)
    await world.reviews.may(ann, verb="head", path="/yes")
    assert count() == 5


async def test_equal_questions_at_one_time_are_one() -> None:
    transport = Gated(answer=lambda _: token_of("ann"))
    world = bench(transport=transport)
    waiting = [asyncio.create_task(world.reviews.user_of("t")) for _ in range(20)]
    await until(lambda: transport.under_way == 1)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    transport.open.set()

    assert {user and user.name for user in await asyncio.gather(*waiting[1:])} == {"ann"}
    assert len(transport.recorded) == 1


async def test_a_review_ends_when_all_callers_are_cancelled() -> None:
    transport = Gated(answer=lambda _: token_of("ann"))
    world = bench(transport=transport)
    waiting = [asyncio.create_task(world.reviews.user_of("t")) for _ in range(2)]
    await until(lambda: transport.under_way == 1)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    again = asyncio.create_task(world.reviews.user_of("t"))
    await world.clock.settle()
    assert transport.under_way == 1
    transport.open.set()

    assert await again == User("ann")
    assert len(transport.recorded) == 1
    assert not world.reviews._tokens._running


async def test_questions_have_a_pace() -> None:
    """However many made-up tokens come: the API server has other clients. Permissions have their own rate limit."""
    transport = Gated(answer=lambda recorded: token_of("x") if recorded.path == TOKEN_REVIEWS else access(allowed=True))
    transport.open.set()
    world = bench(transport=transport)
    tokens = [asyncio.create_task(world.reviews.user_of(f"t{i}")) for i in range(400)]
    await world.clock.settle()
    assert len(transport.recorded) == reviews._BURST
    assert (await world.reviews.may(User("a"), verb="get", path="/p")).allowed
    await world.clock.advance(1)
    assert len(transport.recorded) == pytest.approx(reviews._BURST + 1 + reviews._PER_S, abs=1)
    await world.clock.advance(2)

    assert all(task.result() == User("x") for task in tokens)


async def test_few_questions_are_under_way_at_once() -> None:
    transport = Gated(answer=lambda recorded: token_of("x") if recorded.path == TOKEN_REVIEWS else access(allowed=True))
    world = bench(transport=transport)
    tokens = [asyncio.create_task(world.reviews.user_of(f"t{i}")) for i in range(50)]
    permission = asyncio.create_task(world.reviews.may(User("a"), verb="get", path="/p"))
    await world.clock.settle()
    assert transport.under_way == reviews._AT_ONCE + 1
    transport.open.set()
    await asyncio.gather(*tokens, permission)

    assert transport.most_under_way == reviews._AT_ONCE + 1


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "_REMEMBERED", 3)
    transport = Gated(answer=lambda recorded: token_of(recorded.body["spec"]["token"]))
    transport.open.set()
    world = bench(transport=transport)
    for token in ("a", "b", "c", "a", "d", "a", "b"):
        await world.reviews.user_of(token)

    assert [recorded.body["spec"]["token"] for recorded in transport.recorded] == ["a", "b", "c", "d", "b"]
    kept = world.reviews._tokens._cached
    assert len(kept) == 3
    assert all(isinstance(key[0], bytes) and len(key[0]) == 32 for key in kept)


@pytest.mark.parametrize(
    "passing",
    [Ambiguous("connection reset"), TooManyRequests("busy", retry_after_s=1), Unavailable("confused", status=500)],
    ids=lambda error: error.message,
)
async def test_what_may_pass_is_tried_again(passing: ApiError) -> None:
    """After half a second, and then longer, as upstream's webhooks are."""
    world = bench(passing, passing, token_of("ann"))
    asking = asyncio.create_task(world.reviews.user_of("t"))
    await world.clock.advance(0.4)
    assert len(world.transport.recorded) == 1
    await world.clock.advance(0.1)
    assert len(world.transport.recorded) == 2
    await world.clock.advance(0.75)

    assert (await asking) == User("ann")


@pytest.mark.parametrize(("error", "tries"), [
    (Unavailable("cannot connect"), 1),
    (Forbidden("you may not", status=403), 1),
    (Unavailable("confused", status=500), 5),
], ids=["unreachable", "not permitted", "confused permanently"])  # fmt: skip
async def test_what_does_not_pass_is_raised_and_not_remembered(error: ApiError, tries: int) -> None:
    world = bench(*[error] * tries, token_of("ann"))
    asking = [asyncio.create_task(world.reviews.user_of("t")) for _ in range(2)]
    await world.clock.advance(5)
    for task in asking:
        with pytest.raises(type(error), match=error.message):
            await task
    assert len(world.transport.recorded) == tries

    assert await world.reviews.user_of("t") == User("ann")


async def test_a_silent_server_is_given_up() -> None:
    transport = Gated()
    world = bench(transport=transport)
    asking = [asyncio.create_task(world.reviews.user_of(f"t{i}")) for i in range(9)]
    await world.clock.advance(9.9)
    assert not any(task.done() for task in asking)
    await world.clock.advance(0.2)
    for task in asking:
        with pytest.raises(Unavailable, match="no answer within 10 s"):
            await task
    await world.clock.settle()
    assert transport.under_way == 0
    transport.answer = lambda _: token_of("ann")
    transport.open.set()

    assert await world.reviews.user_of("t0") == User("ann")


@pytest.mark.parametrize("answer", [b"[]", b"not JSON", b'{"status": {"authenticated": "yes"}}'])
async def test_an_answer_that_makes_no_sense(answer: bytes) -> None:
    with pytest.raises(Unavailable, match="makes no sense"):
        await bench(answer).reviews.user_of("t")


async def test_yes_and_no_in_one() -> None:
    with pytest.raises(ApiError, match="both allow and deny"):
        await bench(access(allowed=True, denied=True)).reviews.may(ANN, verb="get", path="/")


@pytest.mark.parametrize(("answer", "found"), [
    (msgspec.json.encode({"data": {"client-ca-file": "PEM", "other": "x"}}), "PEM"),
    (b'{"data": {"other": "x"}}', ""),
    (b"{}", ""),
    (NotFound("not found", status=404), ""),
], ids=["named", "not named", "empty", "no such ConfigMap"])  # fmt: skip
async def test_the_clusters_client_ca(answer: Answer, found: str) -> None:
    world = bench(answer)

    assert await world.reviews.client_ca() == found
    assert world.transport.paths("GET") == [CLIENT_CA]


async def test_a_client_ca_that_may_not_be_read() -> None:
    with pytest.raises(Forbidden):
        await bench(Forbidden("no", status=403)).reviews.client_ca()


async def test_closing_ends_what_is_under_way() -> None:
    transport = Gated()
    world = bench(transport=transport)
    asking = asyncio.create_task(world.reviews.user_of("t"))
    await until(lambda: transport.under_way == 1)
    await world.reviews.close()
    await world.reviews.close()
    await asyncio.gather(asking, return_exceptions=True)

    assert asking.cancelled()
    assert transport.under_way == 0
