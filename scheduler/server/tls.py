"""TLS of the HTTPS listener: the certificate, and the authorities of client certificates. Both may change.

Python's contexts cannot forget an authority. Each change therefore creates a new context, and `Tls.front`, which the
event loop holds, passes each connection to the newest. A broken file is refused and the last good one stays. No
session tickets are issued. A resumed TLS 1.2 session keeps its user, so the gate checks the certificate's expiry, and
a change of authorities closes all connections.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scheduler.config.types import CIPHER_SUITES
from scheduler.kube.client_config import as_file

_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_SELF_SIGNED_FOR: Final = dt.timedelta(days=365)
_RENEWED_AFTER_S: Final = _SELF_SIGNED_FOR.total_seconds() * 2 / 3
_BEFORE: Final = dt.timedelta(hours=1)
"""The clocks of clients may be late."""


class CertificateError(ValueError):
    """A certificate, a key or an authority cannot be used. The message names the file."""


@dataclass(frozen=True, slots=True)
class Pair:
    """PEM of a certificate with its chain, and of its private key."""

    certificate: bytes
    key: bytes = field(repr=False)
    source: str
    """Name for messages."""


def pair_of_files(cert_file: str, key_file: str) -> Pair:
    """Return the content of files that may be replaced at any time, like mounted Secrets. Raises CertificateError.

    The caller checks that certificate and key match.
    """
    return Pair(read_file(cert_file), read_file(key_file), f"{cert_file} and {key_file}")


class SelfSigned:
    """A certificate in memory, created again after two thirds of its year."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._made_at_s = 0.0
        self._pair: Pair | None = None

    def newest(self, wall_s: float) -> Pair:
        """Return the current certificate; it is replaced after months."""
        if self._pair is None or not 0 <= wall_s - self._made_at_s < _RENEWED_AFTER_S:
            self._pair, self._made_at_s = self_signed(self._names, wall_s), wall_s
        return self._pair


def self_signed(names: Sequence[str], wall_s: float) -> Pair:
    """Create a certificate for these host names and IP addresses; the first is its common name.

    Takes some milliseconds.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = dt.datetime.fromtimestamp(wall_s, dt.UTC)
    alternatives: list[x509.GeneralName] = []
    for text in dict.fromkeys(names):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            alternatives.append(x509.DNSName(text))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _SELF_SIGNED_FOR)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Pair(certificate.public_bytes(pem), secret, "self-signed")


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises CertificateError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror}") from error


class _Front(ssl.SSLContext):
    """Pass each connection to the newest context."""

    newest: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Implement the call of asyncio and uvloop."""
        return self.newest.wrap_bio(*arguments, **named)


class Tls:
    """TLS state: `front` for the server, `serve` sets the certificate, `trust` the authorities.

    Both on the event loop.
    """

    def __init__(self, min_tls: str, cipher_suites: Sequence[str] = ()) -> None:
        """Create the state.

        `cipher_suites` are names of CIPHER_SUITES; with only those of TLS 1.3, TLS 1.2 is off, as in Go.
        """
        self._minimum = _VERSIONS[min_tls]
        self._ciphers = ":".join(filter(None, (CIPHER_SUITES[name] for name in cipher_suites)))
        if cipher_suites and not self._ciphers:
            self._minimum = ssl.TLSVersion.TLSv1_3
        self._pair: Pair | None = None
        self._client_ca = ""
        self.front = _Front(ssl.PROTOCOL_TLS_SERVER)

    def serve(self, pair: Pair) -> bool:
        """Use this certificate for new connections; return False if it is unchanged.

        Raises CertificateError and changes nothing.
        """
        return self._use(pair, self._client_ca)

    def trust(self, client_ca: str) -> bool:
        """Accept client certificates of these authorities (PEM); "" for none. Call after `serve`; results as there."""
        assert self._pair is not None
        return self._use(self._pair, client_ca)

    def _use(self, pair: Pair, client_ca: str) -> bool:
        if (pair, client_ca) == (self._pair, self._client_ca):
            return False
        self.front.newest = self._context(pair, client_ca)
        self._pair, self._client_ca = pair, client_ca
        return True

    def _context(self, pair: Pair, client_ca: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            with as_file(pair.key + b"\n" + pair.certificate) as path:
                context.load_cert_chain(path, password="")
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"{pair.source}: {_why(error)}") from error
        if client_ca:
            try:
                context.load_verify_locations(cadata=client_ca.encode("ascii", "replace").decode())  # comments
            except (ssl.SSLError, ValueError) as error:
                raise CertificateError(f"client CA: {_why(error)}") from error
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= (
                ssl.VERIFY_X509_PARTIAL_CHAIN
            )  # as Go: a listed certificate is trusted without its issuer
        return context


def _why(error: Exception) -> str:
    return error.reason or str(error) if isinstance(error, ssl.SSLError) else str(error)
