"""Who is calling our endpoints, and may they: asked of the API server (docs/spec/core.md §7.3).

TokenReview and SubjectAccessReview are POSTs that store nothing: questions, so they are not among the writes. Answers
count for some seconds; equal questions at one time are one; few are under way at once, and so many a second; each has
its time limit, and ends when nobody waits for it any more. Tokens are not kept, only what is made of them with a key
that nobody else has.
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
from scheduler.core.errors import Ambiguous, ApiError, NotFound, TooManyRequests, Unavailable
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import RbacRule

_log = structlog.get_logger(__name__)

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 (a path)
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CLIENT_CA_NAMESPACE: Final = "kube-system"
CLIENT_CA_NAME: Final = "extension-apiserver-authentication"
CLIENT_CA: Final = f"/api/v1/namespaces/{CLIENT_CA_NAMESPACE}/configmaps/{CLIENT_CA_NAME}"
_CLIENT_CA_KEY: Final = "client-ca-file"

SERVING_RULES: Final[tuple[RbacRule, ...]] = (
    RbacRule("authentication.k8s.io", "tokenreviews", "create"),
    RbacRule("authorization.k8s.io", "subjectaccessreviews", "create"),
)
"""Only where HTTPS is served; `system:auth-delegator` has both."""

CLIENT_CA_RULES: Final[tuple[RbacRule, ...]] = (RbacRule("", "configmaps", "get"),)
"""On `CLIENT_CA_NAME` in `CLIENT_CA_NAMESPACE` only, where HTTPS is served and no flag says whose client certificates
count; the role `extension-apiserver-authentication-reader` there has it."""

LIMIT_S: Final = 10.0
"""For one question, with all its tries and the wait for its turn."""
_AT_ONCE: Final = 4
_PER_S: Final = 100
_BURST: Final = 200
"""Of each kind; upstream allows itself twice as many. Anybody who can connect can make us ask."""
_REMEMBERED: Final = 2048
"""More than can be learnt in the time that they count for, as a rule: nobody pushes out what others need."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
_PAUSE_FACTOR: Final = 1.5

T = TypeVar("T")
_Key = tuple[Hashable, ...]


class User(msgspec.Struct, frozen=True):
    """As the API server, or a client certificate, names somebody."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Permission(NamedTuple):
    """`reason` is the authorizer's, for whoever was refused; often empty."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long answers count; 0: only for those who asked at the time."""

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


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


_TOKEN_REVIEW: Final = msgspec.json.Decoder(_TokenReview)
_ACCESS_REVIEW: Final = msgspec.json.Decoder(_AccessReview)
_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class _Token(NamedTuple):
    """What became of a token. `is_final`: not the kind of no that may be a yes in a moment."""

    user: User | None
    is_final: bool


class Reviews:
    """The API server's answers. What cannot be asked raises a type of `core.errors`; that is not remembered.

    `close` ends what is under way; whoever waits for it is cancelled.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        lifetimes: Lifetimes | None = None,
        *,
        access: Transport | None = None,
    ) -> None:
        """`access` is the way to whoever knows permissions, if that is somebody else."""
        self._transport = transport
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
        """None for a token that the API server does not know, or does not take any more."""
        digest = hmac.digest(self._key, token.encode(), "sha256")

        async def ask() -> _Token:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            return await self._ask(TOKEN_REVIEWS, body, _token)

        answer = await self._tokens.get(
            (digest,), ask, keep_s=lambda answer: self._lifetimes.token_s if answer.is_final else 0.0
        )
        return answer.user

    async def may(self, user: User, *, verb: str, path: str) -> Permission:
        """Whether RBAC, or whatever the cluster has, lets the user do this with a path that is no resource."""

        async def ask() -> Permission:
            spec: dict[str, Any] = {"user": user.name, "nonResourceAttributes": {"path": path, "verb": verb}}
            more = {"uid": user.uid, "groups": user.groups, "extra": dict(user.extra)}
            spec |= {name: value for name, value in more.items() if value}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            return await self._ask(ACCESS_REVIEWS, body, _permission)

        lifetimes = self._lifetimes
        return await self._permissions.get(
            (user, verb, path),
            ask,
            keep_s=lambda answer: lifetimes.allowed_s if answer.allowed else lifetimes.denied_s,
        )

    async def client_ca(self) -> str:
        """PEM of those who sign client certificates, by the cluster's own word; "" if it names none."""
        try:
            found = await _within(self._clock, self._transport.get(CLIENT_CA))
        except NotFound:
            return ""
        return _decoded(_CONFIG_MAP, found).data.get(_CLIENT_CA_KEY, "")

    async def close(self) -> None:
        """Idempotent."""
        await self._tokens.close()
        await self._permissions.close()

    async def _ask(self, path: str, body: dict[str, Any], read: Callable[[bytes], T]) -> T:
        """Read as part of the question: an answer that makes no sense is no answer, for everybody who waits for it."""

        async def asking() -> T:
            async with self._rooms[path]:
                await self._paces[path].take()
                return read(await self._insist(path, msgspec.json.encode(body)))

        return await _within(self._clock, asking())

    async def _insist(self, path: str, body: bytes) -> bytes:
        """Upstream's back-off, for what may pass: a connection that broke, a server that is busy or confused."""
        pause_s = _PAUSE_S
        for _ in range(_TRIES - 1):
            try:
                return await self._ways[path].post(path, body)
            except (Ambiguous, TooManyRequests):
                pass
            except Unavailable as error:
                if not error.status:  # nobody there: whoever asks is told at once
                    raise
            await self._clock.sleep(pause_s)
            pause_s *= _PAUSE_FACTOR
        return await self._ways[path].post(path, body)


@dataclass(slots=True, eq=False)
class _Question(Generic[T]):
    """One that is under way, and how many wait for it."""

    asking: asyncio.Task[T]
    waiting: int = 0


class _Answers(Generic[T]):
    """Questions under way, and answers while they count. The least lately used go when there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: BoundedCache[_Key, tuple[T, float]] = BoundedCache(_REMEMBERED)
        self._asked: dict[_Key, _Question[T]] = {}

    async def get(self, key: _Key, ask: Callable[[], Awaitable[T]], *, keep_s: Callable[[T], float]) -> T:
        """The answer, from memory if it may be. Whoever stops waiting does not take it from the others; the last does."""
        known = self._known.get(key)
        if known is not None and self._clock.now() < known[1]:
            return known[0]
        question = self._asked.get(key)
        if question is None:
            question = self._asked[key] = _Question(asyncio.ensure_future(self._learn(key, ask, keep_s)))
            question.asking.add_done_callback(_was_seen)
        question.waiting += 1
        try:
            return await asyncio.shield(question.asking)
        finally:
            question.waiting -= 1
            if not question.waiting and not question.asking.done():
                self._forget(key, question.asking)
                question.asking.cancel()

    async def _learn(self, key: _Key, ask: Callable[[], Awaitable[T]], keep_s: Callable[[T], float]) -> T:
        try:
            answer = await ask()
        finally:
            self._forget(key, asyncio.current_task())
        self._known.pop(key)
        if (lifetime_s := keep_s(answer)) > 0:
            self._known.put(key, (answer, self._clock.now() + lifetime_s))
        return answer

    def _forget(self, key: _Key, asking: asyncio.Task[Any] | None) -> None:
        """It may be another one's place by now."""
        if key in self._asked and self._asked[key].asking is asking:
            del self._asked[key]

    async def close(self) -> None:
        asked = [question.asking for question in self._asked.values()]
        for asking in asked:
            asking.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


def _was_seen(asking: asyncio.Task[Any]) -> None:
    """All who asked may be gone; then nobody else would look at what became of it."""
    if not asking.cancelled() and (error := asking.exception()) is not None:
        _log.debug("a review failed", error=str(error))


async def _within(clock: Clock, asking: Awaitable[T]) -> T:
    """Its answer, or `Unavailable` once the time limit has passed."""
    answer = asyncio.ensure_future(asking)
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
    status = _decoded(_ACCESS_REVIEW, answer).status
    if status.allowed and status.denied:
        raise ApiError("webhook subject access review returned both allow and deny response")
    return Permission(status.allowed, status.reason)


def _decoded(decoder: msgspec.json.Decoder[T], answer: bytes) -> T:
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(f"an answer that makes no sense: {error}") from error
