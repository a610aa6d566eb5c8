"""Authenticate and authorize clients of our endpoints with the API server (docs/spec/core.md §7.3).

TokenReview and SubjectAccessReview are POSTs that store nothing, so they are not among the writes. Answers are cached
for some seconds. Equal concurrent reviews are sent once. Their rate and their number in flight are limited, each has
a time limit, and a review without waiting callers is cancelled. Tokens are not stored, only their keyed hashes.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, NotFound, Unavailable
from scheduler.core.retry import Retry
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.self_check import ACCESS_REVIEW
from scheduler.kube.wire import Transport
from scheduler.kube.writes.permissions import CLIENT_CA_RULE

_log = structlog.get_logger(__name__)

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 (a path)
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CLIENT_CA: Final = f"/api/v1/namespaces/{CLIENT_CA_RULE.namespace}/configmaps/{CLIENT_CA_RULE.name}"
_CLIENT_CA_KEY: Final = "client-ca-file"

LIMIT_S: Final = 10.0
"""For one review, with all retries and the wait for its turn."""
_AT_ONCE: Final = 4
_PER_S: Final = 100
_BURST: Final = 200
"""Of each kind; upstream allows twice as many. Any client that can connect causes reviews."""
_REMEMBERED: Final = 2048
"""More than arrive within the lifetime, so that clients rarely evict each other's answers."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
_PAUSE_FACTOR: Final = 1.5

T = TypeVar("T")
_Key = tuple[Hashable, ...]


class User(msgspec.Struct, frozen=True):
    """A user as the API server or a client certificate names it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Permission(NamedTuple):
    """`reason` is the authorizer's, for the refused caller; often empty."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long answers are cached; 0: they are only shared by concurrent callers."""

    token_s: float = 10.0
    allowed_s: float = 10.0
    denied_s: float = 10.0


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


_TOKEN_REVIEW: Final = msgspec.json.Decoder(_TokenReview)
_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class _Token(NamedTuple):
    """Result of a token review. `is_final`: a refusal that a retry would not change."""

    user: User | None
    is_final: bool


class Reviews:
    """Reviews by the API server. A review that fails raises a type of `core.errors` and is not cached.

    `close` cancels running reviews and their callers.
    """

    def __init__(
        self, transport: Transport, clock: Clock, lifetimes: Lifetimes | None = None, *, access: Transport | None = None
    ) -> None:
        """Create the reviews. `access` is the transport for permissions if another server decides them."""
        self._ways = {TOKEN_REVIEWS: transport, ACCESS_REVIEWS: access or transport}
        self._clock = clock
        self._lifetimes = lifetimes or Lifetimes()
        self._key = os.urandom(32)
        self._tokens: _Answers[_Token] = _Answers(clock)
        self._permissions: _Answers[Permission] = _Answers(clock)
        kinds = (TOKEN_REVIEWS, ACCESS_REVIEWS)
        self._rooms = {path: asyncio.Semaphore(_AT_ONCE) for path in kinds}
        self._paces = {path: Throttle(clock, qps=_PER_S, burst=_BURST) for path in kinds}

    async def user_of(self, token: str) -> User | None:
        """Return the user; None for an unknown or expired token."""
        digest = hmac.digest(self._key, token.encode(), "sha256")

        async def review() -> _Token:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            return await self._review(TOKEN_REVIEWS, body, _token)

        answer = await self._tokens.get(
            (digest,), review, keep_s=lambda answer: self._lifetimes.token_s if answer.is_final else 0.0
        )
        return answer.user

    async def may(self, user: User, *, verb: str, path: str) -> Permission:
        """Return whether the cluster's authorizer allows the user this verb on a non-resource path."""

        async def review() -> Permission:
            spec: dict[str, Any] = {"user": user.name, "nonResourceAttributes": {"path": path, "verb": verb}}
            more = {"uid": user.uid, "groups": user.groups, "extra": dict(user.extra)}
            spec |= {name: value for name, value in more.items() if value}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            return await self._review(ACCESS_REVIEWS, body, _permission)

        lifetimes = self._lifetimes
        return await self._permissions.get(
            (user, verb, path),
            review,
            keep_s=lambda answer: lifetimes.allowed_s if answer.allowed else lifetimes.denied_s,
        )

    async def client_ca(self) -> str:
        """Return the PEM of the cluster's client CA; "" if the cluster names none."""
        try:
            found = await _within(self._clock, self._ways[TOKEN_REVIEWS].get(CLIENT_CA))
        except NotFound:
            return ""
        return _decoded(_CONFIG_MAP, found).data.get(_CLIENT_CA_KEY, "")

    async def close(self) -> None:
        """Cancel running reviews. Idempotent."""
        await self._tokens.close()
        await self._permissions.close()

    async def _review(self, path: str, body: dict[str, Any], read: Callable[[bytes], T]) -> T:
        """Send a review and decode its answer. An unreadable answer is a failure for all callers."""

        async def sent() -> T:
            async with self._rooms[path]:
                await self._paces[path].take()
                return read(await self._insist(path, msgspec.json.encode(body)))

        return await _within(self._clock, sent())

    async def _insist(self, path: str, body: bytes) -> bytes:
        """Retry with upstream's back-off after transient failures: a broken connection, a busy server."""
        retry = Retry(self._clock, first_s=_PAUSE_S, factor=_PAUSE_FACTOR, tries=_TRIES, obeys_server=False)
        while True:
            try:
                return await self._ways[path].write("POST", path, body)
            except (Ambiguous, Unavailable) as error:
                if isinstance(error, Unavailable) and not error.status:
                    raise  # the server does not answer: callers get the error at once
                await retry.pause(error)


@dataclass(slots=True, eq=False)
class _Question(Generic[T]):
    """A running review and the number of its callers."""

    task: asyncio.Task[T]
    waiting: int = 0


class _Answers(Generic[T]):
    """Running reviews and cached answers; the least recently used answers are evicted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: BoundedCache[_Key, tuple[T, float]] = BoundedCache(_REMEMBERED)
        self._running: dict[_Key, _Question[T]] = {}

    async def get(self, key: _Key, ask: Callable[[], Awaitable[T]], *, keep_s: Callable[[T], float]) -> T:
        """Return the answer, cached if possible. The review is cancelled when its last caller stops waiting."""
        cached = self._answers.get(key)
        if cached is not None and self._clock.now() < cached[1]:
            return cached[0]
        question = self._running.get(key)
        if question is None:
            question = self._running[key] = _Question(asyncio.ensure_future(self._learn(key, ask, keep_s)))
            question.task.add_done_callback(_was_seen)
        question.waiting += 1
        try:
            return await asyncio.shield(question.task)
        finally:
            question.waiting -= 1
            if not question.waiting and not question.task.done():
                self._forget(key, question.task)
                question.task.cancel()

    async def _learn(self, key: _Key, ask: Callable[[], Awaitable[T]], keep_s: Callable[[T], float]) -> T:
        try:
            answer = await ask()
        finally:
            self._forget(key, asyncio.current_task())
        self._answers.pop(key)
        if (lifetime_s := keep_s(answer)) > 0:
            self._answers.put(key, (answer, self._clock.now() + lifetime_s))
        return answer

    def _forget(self, key: _Key, task: asyncio.Task[Any] | None) -> None:
        """Remove the review unless another one has replaced it."""
        if key in self._running and self._running[key].task is task:
            del self._running[key]

    async def close(self) -> None:
        tasks = [question.task for question in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _was_seen(task: asyncio.Task[Any]) -> None:
    """Retrieve the result, because all callers may have gone."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a review failed", error=str(error))


async def _within(clock: Clock, task: Awaitable[T]) -> T:
    """Return the answer; raise `Unavailable` after the time limit."""
    answer = asyncio.ensure_future(task)
    if not await done_within(clock, answer, LIMIT_S):
        raise Unavailable(f"no answer within {LIMIT_S:.0f} s")
    return answer.result()


def _token(answer: bytes) -> _Token:
    status = _decoded(_TOKEN_REVIEW, answer).status
    if not status.authenticated:
        return _Token(None, is_final=not status.error)
    info = status.user
    extra = tuple(sorted((key, tuple(values)) for key, values in info.extra.items()))
    return _Token(User(info.username, info.uid, tuple(info.groups), extra), is_final=True)


def _permission(answer: bytes) -> Permission:
    status = _decoded(ACCESS_REVIEW, answer).status
    if status.allowed and status.denied:
        raise ApiError("webhook subject access review returned both allow and deny response")
    return Permission(status.allowed, status.reason)


def _decoded(decoder: msgspec.json.Decoder[T], answer: bytes) -> T:
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(f"an answer that makes no sense: {error}") from error
