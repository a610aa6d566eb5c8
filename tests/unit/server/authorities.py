"""Authorities and what they sign, for tests."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Issued:
    """PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority; `pem` is its own certificate. `by` is the authority above an intermediate one."""

    def __init__(self, name: str, *, by: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        above = self if by is None else by
        own = _builder(self._name, above._name, self._key, days=1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = own.sign(above._key, hashes.SHA256()).public_bytes(_PEM)

    def issues(
        self,
        name: str,
        *,
        groups: tuple[str, ...] = (),
        days: int = 1,
        is_for_clients: bool = True,
        password: bytes = b"",
    ) -> Issued:
        """For a host or a user; one of -1 days ended a day ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        use = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if is_for_clients else [])]
        certificate = (
            _builder(subject, self._name, key, days=days)
            .add_extension(x509.SubjectAlternativeName([_host(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(use), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return Issued(certificate.public_bytes(_PEM), key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, lock))


def _host(name: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(name)) if name[:1].isdigit() else x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - dt.timedelta(days=2),
        now + dt.timedelta(days=days),
    )
