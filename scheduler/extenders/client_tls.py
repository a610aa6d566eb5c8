"""TLS towards an extender, as Go's client has it.

Upstream: pkg/scheduler/extender.go makeTransport
"""

from __future__ import annotations

import pathlib
import ssl

from scheduler.config.types import ExtenderConfig, ExtenderTls
from scheduler.kube.client_config import as_file


def client_tls(extender: ExtenderConfig) -> ssl.SSLContext | None:
    """Return the TLS context; None if the defaults are enough. Reads files. Raises OSError or ValueError.

    With `enableHTTPS` and without an authority, the server's certificate is not verified, as upstream. A certificate
    without a key is ignored, as upstream.
    """
    tls = extender.tls or ExtenderTls()
    authority = _content(tls.ca_data, tls.ca_file)
    is_insecure = tls.insecure or (extender.enable_https and not authority)
    if tls == ExtenderTls() and not is_insecure:
        return None
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go does not check these rules
    certificate, key = _content(tls.cert_data, tls.cert_file), _content(tls.key_data, tls.key_file)
    if certificate and key:
        with as_file(key + b"\n" + certificate) as path:
            context.load_cert_chain(path)
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(data: bytes, file: str) -> bytes:
    return data or (pathlib.Path(file).read_bytes() if file else b"")
