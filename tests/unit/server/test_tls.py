"""Certificates that change while they are served, and authentication and authorization: kube-scheduler's order, codes and texts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from scheduler.config.types import ALWAYS_ALLOWED, CIPHER_SUITES
from scheduler.core.errors import ApiError, Unavailable
from scheduler.server.authorization import EXPIRED, Refusal, RequestAttributes, RequestGate, bearer_token, certified
from scheduler.server.reviews import Permission, Reviews, User
from scheduler.server.tls import CertificateError, Pair, SelfSigned, Tls, pair_of_files, self_signed
from tests.unit.server.authorities import Authority, Issued

NOW_S = 1_767_225_600.0
DAY_S = 86_400.0


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake without a network. Raises what either end raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    for end in ends:
        if end not in done:
            end.do_handshake()
        with contextlib.suppress(ssl.SSLWantReadError):
            end.read(1)  # a client's certificate is refused after its side of the handshake
    return ends


def client(*, trusts: bytes, shows: Issued | None = None, path: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusts.decode())
    if shows is not None and path is not None:
        file = path / "client.pem"
        file.write_bytes(shows.key + shows.certificate)
        context.load_cert_chain(file)
    return context


def self_served(minimum: str = "VersionTLS12", *suites: str) -> tuple[Tls, bytes]:
    """Return TLS that serves a self-signed certificate, and that certificate."""
    served, pair = Tls(minimum, suites), SelfSigned(["localhost"]).newest(dt.datetime.now(dt.UTC).timestamp())
    served.serve(pair)
    return served, pair.certificate


class Files:
    """A pair of files that a test rewrites."""

    def __init__(self, path: Path, issued: Issued) -> None:
        self.cert, self.key = path / "tls.crt", path / "tls.key"
        self.write(issued)

    def pair(self) -> Pair:
        return pair_of_files(str(self.cert), str(self.key))

    def write(self, issued: Issued) -> None:
        self.cert.write_bytes(issued.certificate)
        self.key.write_bytes(issued.key)


def test_self_signed_certificates() -> None:
    first = self_signed(["localhost", "me", "127.0.0.1", "::1", "localhost"], NOW_S)
    seen = x509.load_pem_x509_certificate(first.certificate)

    names = seen.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "me"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    now = dt.datetime.fromtimestamp(NOW_S, dt.UTC)
    assert seen.not_valid_before_utc == now - dt.timedelta(hours=1)
    assert seen.not_valid_after_utc == now + dt.timedelta(days=365)
    assert first.key != self_signed(["localhost"], NOW_S).key
    assert "PRIVATE" not in repr(first)


def test_a_self_signed_certificate_is_renewed_in_time() -> None:
    source = SelfSigned(["localhost"])
    first = source.newest(NOW_S)
    assert source.newest(NOW_S + 240 * DAY_S) is first
    second = source.newest(NOW_S + 250 * DAY_S)
    assert second != first
    assert source.newest(NOW_S) not in {first, second}


@pytest.mark.parametrize(("suites", "agreed"), [
    pytest.param((), "ECDHE-ECDSA-AES256-GCM-SHA384", id="OpenSSL's order without the flag"),
    pytest.param(("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "ECDHE-ECDSA-AES128-GCM-SHA256", id="the only one"),
    pytest.param(("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        "ECDHE-ECDSA-CHACHA20-POLY1305", id="those of TLS 1.3 are not for TLS 1.2"),
    pytest.param(("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",), None, id="none for the certificate's kind of key"),
    pytest.param(("TLS_AES_128_GCM_SHA256",), None, id="with TLS 1.3 alone TLS 1.2 is off"),
])  # fmt: skip
def test_cipher_suites_of_tls_1_2(suites: tuple[str, ...], agreed: str | None) -> None:
    served, ours = self_served("VersionTLS12", *suites)
    old = client(trusts=ours)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    if agreed is None:
        with pytest.raises(ssl.SSLError):
            shaken(served.front, old)
    else:
        _, other = shaken(served.front, old)
        assert (other.cipher() or ("",))[0] == agreed
    _, new = shaken(served.front, client(trusts=ours))
    assert new.version() == "TLSv1.3"


def test_openssl_knows_every_cipher_suite() -> None:
    known = {each["name"] for each in ssl.create_default_context().get_ciphers()}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    known |= {each["name"] for each in context.get_ciphers()}

    assert set(filter(None, CIPHER_SUITES.values())) <= known


def test_versions_below_the_minimum_are_not_spoken() -> None:
    served, ours = self_served("VersionTLS13")
    old = client(trusts=ours)
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError):
        shaken(served.front, old)


NO_KEY = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda f: f.key.write_bytes(Authority("x").issues("localhost").key), id="the key of another"),
        pytest.param(lambda f: f.key.write_bytes(Authority("x").issues("localhost", password=b"s").key), id="locked"),
        pytest.param(lambda f: f.key.write_bytes(NO_KEY), id="garbage for a key"),
        pytest.param(lambda f: f.cert.write_bytes(b""), id="an empty certificate"),
        pytest.param(lambda f: f.cert.unlink(), id="no certificate"),
    ],
)
def test_a_broken_pair_changes_nothing(tmp_path: Path, spoil: Callable[[Files], None]) -> None:
    authority = Authority("one")
    files = Files(tmp_path, authority.issues("localhost"))
    served = Tls("VersionTLS12")
    served.serve(files.pair())
    spoil(files)
    with pytest.raises(CertificateError, match=str(tmp_path)):
        served.serve(files.pair())
    shaken(served.front, client(trusts=authority.pem))
    good = Authority("good")
    files.write(good.issues("localhost"))
    served.serve(files.pair())

    shaken(served.front, client(trusts=good.pem))


def test_whose_client_certificates_count(tmp_path: Path) -> None:
    served, ours = self_served()
    one, two = Authority("one"), Authority("two")
    ann = client(trusts=ours, shows=one.issues("ann", groups=("dev",)), path=tmp_path)
    assert not shaken(served.front, ann)[0].getpeercert()
    served.trust(one.pem.decode())
    subject = (shaken(served.front, ann)[0].getpeercert() or {})["subject"]
    assert sorted(part[0] for part in subject) == [("commonName", "ann"), ("organizationName", "dev")]
    assert not shaken(served.front, client(trusts=ours))[0].getpeercert()
    served.trust(two.pem.decode())
    with pytest.raises(ssl.SSLError):
        shaken(served.front, ann)
    served.trust("")

    assert not shaken(served.front, ann)[0].getpeercert()


def test_certificates_that_are_not_for_clients_or_not_valid_any_more(tmp_path: Path) -> None:
    authority = Authority("one")
    served, ours = self_served()
    served.trust(authority.pem.decode())
    for wrong in (authority.issues("ann", is_for_clients=False), authority.issues("ann", days=-1)):
        with pytest.raises(ssl.SSLError):
            shaken(served.front, client(trusts=ours, shows=wrong, path=tmp_path))


def test_an_authority_with_words_of_any_language(tmp_path: Path) -> None:
    authority = Authority("one")
    served, ours = self_served()
    assert served.trust(f"# Főtanúsítvány \ufffd\n{authority.pem.decode()}")
    ann = client(trusts=ours, shows=authority.issues("ann"), path=tmp_path)

    assert (shaken(served.front, ann)[0].getpeercert() or {})["subject"] == ((("commonName", "ann"),),)


def test_an_authority_that_cannot_be_read() -> None:
    served = Tls("VersionTLS12")
    served.serve(SelfSigned(["localhost"]).newest(NOW_S))
    before = served.front.newest
    with pytest.raises(CertificateError, match="client CA"):
        served.trust("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")

    assert served.front.newest is before


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


@pytest.mark.parametrize(("request_", "user"), [
    pytest.param(attributes(), User("system:anonymous", groups=("system:unauthenticated",)), id="no credentials"),
    pytest.param(attributes(token="ann"), User("ann", groups=("dev", "system:authenticated")), id="by a token"),
    pytest.param(attributes(token="ann", certificate=User("cert", groups=("o",))),
        User("cert", groups=("o", "system:authenticated")), id="a certificate comes first"),
    pytest.param(RequestAttributes("get", "/metrics", "Basic YTpi"),
        User("system:anonymous", groups=("system:unauthenticated",)), id="another kind of claim is none"),
])  # fmt: skip
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
