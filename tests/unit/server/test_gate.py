"""Authentication and authorization of requests: kube-scheduler's order, codes and texts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from scheduler.config.types import ALWAYS_ALLOWED
from scheduler.core.errors import ApiError, Unavailable
from scheduler.kube.authz import Permission, Reviews, User
from scheduler.server.authorization import EXPIRED, Refusal, RequestAttributes, RequestGate, bearer_token, certified

GONE = Unavailable("cannot connect to 127.0.0.1:1: refused <here>")


class Server(Reviews):
    """Accepts tokens that are names, and permits the users of a list."""

    def __init__(self, *, known: Any = ("ann",), permits: Any = ("ann",), reason: str = "") -> None:
        self.known, self.permits, self.reason = known, permits, reason
        self.reviewed: list[str] = []
        self.asked: list[tuple[User, str, str]] = []

    async def user_of(self, token: str) -> User | None:
        await asyncio.sleep(0)
        self.reviewed.append(token)
        if isinstance(self.known, ApiError):
            raise self.known
        return User(token, groups=("dev",)) if token in self.known else None

    async def may(self, user: User, *, verb: str, path: str) -> Permission:
        await asyncio.sleep(0)
        self.asked.append((user, verb, path))
        if isinstance(self.permits, ApiError):
            raise self.permits
        return Permission(user.name in self.permits, self.reason)


def attributes(path: str = "/metrics", *, token: str = "", certificate: User | None = None) -> RequestAttributes:
    return RequestAttributes("get", path, f"Bearer {token}" if token else "", certificate)


def status(refusal: Refusal | None) -> tuple[int, str, str]:
    assert refusal is not None
    assert refusal.is_json
    body = json.loads(refusal.text)
    fixed = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refusal.status}
    assert fixed.items() <= body.items()
    return refusal.status, body["reason"], body["message"]


def forbidden(name: str, path: str = "/metrics", reason: str = "") -> tuple[int, str, str]:
    return 403, "Forbidden", f'forbidden: User "{name}" cannot get path "{path}"{reason}'


UNAUTHORIZED = (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/informer-sync-pods", "/healthz/ping"]
)
async def test_paths_without_authorization(path: str) -> None:
    """No review is sent, so that probes do not depend on the API server; a token is ignored."""
    server = Server(known=GONE, permits=GONE)

    assert await RequestGate(server, ALWAYS_ALLOWED).refuses(attributes(path, token="zoe")) is None
    assert (server.reviewed, server.asked) == ([], [])


@pytest.mark.parametrize("path", ["/", "/livezx", "/livez-x/ping", "/metrics", "/debug/cache", "/configz", "/readyzz"])
async def test_all_other_paths_are_closed(path: str) -> None:
    assert status(await RequestGate(Server(), ALWAYS_ALLOWED).refuses(attributes(path))) == forbidden(
        "system:anonymous", path
    )


async def test_the_list_of_open_paths_may_be_empty() -> None:
    assert status(await RequestGate(Server(), ()).refuses(attributes("/livez"))) == forbidden(
        "system:anonymous", "/livez"
    )
    gate = RequestGate(Server(), ("/debug/*",))
    assert await gate.refuses(attributes("/debug/pod/a/b")) is None
    assert status(await gate.refuses(attributes("/debug"))) == forbidden("system:anonymous", "/debug")


@pytest.mark.parametrize(
    ("request_", "user"),
    [
        pytest.param(attributes(), User("system:anonymous", groups=("system:unauthenticated",)), id="no credentials"),
        pytest.param(attributes(token="ann"), User("ann", groups=("dev", "system:authenticated")), id="by a token"),
        pytest.param(
            attributes(token="ann", certificate=User("cert", groups=("o",))),
            User("cert", groups=("o", "system:authenticated")),
            id="a certificate comes first",
        ),
        pytest.param(
            RequestAttributes("get", "/metrics", "Basic YTpi"),
            User("system:anonymous", groups=("system:unauthenticated",)),
            id="another kind of claim is none",
        ),
    ],
)
async def test_the_user_of_a_review(request_: RequestAttributes, user: User) -> None:
    server = Server(permits=(user.name,))

    assert await RequestGate(server, ALWAYS_ALLOWED).refuses(request_) is None
    assert server.asked == [(user, "get", "/metrics")]


async def test_system_masters_need_no_review() -> None:
    """So that an administrator can look when the API server is gone."""
    server = Server(permits=GONE)
    master = User("admin", groups=("system:masters",))

    assert await RequestGate(server, ALWAYS_ALLOWED).refuses(attributes(certificate=master)) is None
    assert server.asked == []


@pytest.mark.parametrize(
    ("token", "known"),
    [("zoe", ("ann",)), ("é", ("ann",)), ("a\udcff", ("ann",)), ("ann", GONE)],
    ids=["another token", "not ASCII", "half a character", "it cannot be reviewed"],
)
async def test_a_token_without_a_user(token: str, known: Any) -> None:
    """401 as upstream, also where the review fails: the user is unknown."""
    server = Server(known=known, permits=("system:anonymous",))

    assert status(await RequestGate(server, ALWAYS_ALLOWED).refuses(attributes(token=token))) == UNAUTHORIZED
    assert server.asked == []


async def test_a_permission_that_cannot_be_reviewed() -> None:
    """500 as upstream, in its words, and nothing that a browser would take for HTML."""
    refusal = await RequestGate(Server(permits=GONE), ALWAYS_ALLOWED).refuses(attributes(token="ann"))

    said = 'Internal Server Error: "/metrics": cannot connect to 127.0.0.1:1: refused &lt;here&gt;\n'
    assert refusal == Refusal(500, said, is_json=False)


async def test_the_authorizers_reason_is_passed_on() -> None:
    """As upstream does; names are made harmless."""
    refusal = await RequestGate(Server(known=('<"ann">',), reason="RBAC: no"), ()).refuses(attributes(token='<"ann">'))

    assert status(refusal) == forbidden(r"&lt;\"ann\"&gt;", reason=": RBAC: no")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("  BEARER abc  ", "abc"),
        ("Bearer abc def", "abc"),
        ("Bearer  abc", None),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic abc", None),
        ("", None),
        ("abc", None),
    ],
)
def test_bearer_tokens(header: str, token: str | None) -> None:
    """Upstream's way of reading the header, an extra space included."""
    assert bearer_token(header) == token


NOON_S = 1_767_268_800.0


class Shown:
    """As `ssl.SSLObject.getpeercert` shows a certificate that TLS has verified."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self.names = names

    def getpeercert(self, binary_form: bool = False) -> Any:
        if binary_form:
            return b"der"
        if not self.names:
            return {}
        return {"subject": tuple((pair,) for pair in self.names), "notAfter": "Jan  1 12:00:00 2026 GMT"}


@pytest.mark.parametrize(
    ("names", "user"),
    [
        ([("organizationName", "o1"), ("organizationName", "o2"), ("commonName", "ann")], ("ann", "", ("o1", "o2"))),
        ([("commonName", "first"), ("commonName", "last")], ("last", "", ())),
        ([("commonName", "ann"), ("1.3.6.1.4.1.57683.2", "u1")], ("ann", "u1", ())),
        ([("commonName", "ann"), ("1.3.6.1.4.1.57683.2", "u1"), ("1.3.6.1.4.1.57683.2", "u2")], None),
        ([("organizationName", "system:masters")], None),
        ([("commonName", "")], None),
        ([], None),
    ],
    ids=["name and groups", "the last name", "a uid", "two uids", "no name", "an empty name", "not verified"],
)
def test_the_user_of_a_certificate(names: list[tuple[str, str]], user: tuple[str, str, tuple[str, ...]] | None) -> None:
    found = certified(Shown(*names), NOON_S)  # type: ignore[arg-type]

    assert user == (found and (found.name, found.uid, found.groups))
    if found is not None:
        fingerprint = "X509SHA256=ad5e7ab8acd2e3cc0eccb4ce63e86fc0ae26aae7cf8ffeb1d2fd4f3c65b0bc7c"
        assert [key for key, _ in found.extra] == ["authentication.kubernetes.io/credential-id"]
        assert len(found.extra[0][1][0]) == len(fingerprint)


async def test_a_certificate_that_expires_while_its_connection_lasts() -> None:
    """It names no user from then on: the answer is 401, unless a token is valid. Open paths stay open."""
    ann = Shown(("commonName", "ann"))
    assert (certified(ann, NOON_S) or EXPIRED).name == "ann"  # type: ignore[arg-type]
    late = certified(ann, NOON_S + 0.5)  # type: ignore[arg-type]
    assert late == EXPIRED

    gate = RequestGate(Server(known={"zoe"}, permits={"zoe"}), ALWAYS_ALLOWED)
    assert status(await gate.refuses(attributes(certificate=late))) == UNAUTHORIZED
    assert await gate.refuses(attributes(certificate=late, token="zoe")) is None
    assert await gate.refuses(attributes("/livez", certificate=late)) is None
    assert certified(None, NOON_S) is None, "without TLS"


@pytest.mark.parametrize("groups", [(), ("dev",)])
async def test_a_certificate_for_the_anonymous_user(groups: tuple[str, ...]) -> None:
    server = Server(known=set(), permits=set())
    await RequestGate(server, ()).refuses(attributes(certificate=User("system:anonymous", groups=groups)))

    assert [user.groups for user, _, _ in server.asked] == [groups]
