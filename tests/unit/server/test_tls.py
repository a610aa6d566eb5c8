"""Certificates that change while they are served: the newest good one counts, for new connections."""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from scheduler.config.types import CIPHER_SUITES
from scheduler.server.tls import CertificateError, PairOfFiles, SelfSigned, Tls, self_signed
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
        self.source = PairOfFiles(str(self.cert), str(self.key))

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


@pytest.mark.parametrize(
    ("suites", "agreed"),
    [
        pytest.param((), "ECDHE-ECDSA-AES256-GCM-SHA384", id="OpenSSL's order without the flag"),
        pytest.param(("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "ECDHE-ECDSA-AES128-GCM-SHA256", id="the only one"),
        pytest.param(
            ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            id="those of TLS 1.3 are not for TLS 1.2",
        ),
        pytest.param(("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",), None, id="none for the certificate's kind of key"),
        pytest.param(("TLS_AES_128_GCM_SHA256",), None, id="with TLS 1.3 alone TLS 1.2 is off"),
    ],
)
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
    served.serve(files.source.newest(NOW_S))
    spoil(files)
    with pytest.raises(CertificateError, match=str(tmp_path)):
        served.serve(files.source.newest(NOW_S))
    shaken(served.front, client(trusts=authority.pem))
    good = Authority("good")
    files.write(good.issues("localhost"))
    served.serve(files.source.newest(NOW_S))

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
