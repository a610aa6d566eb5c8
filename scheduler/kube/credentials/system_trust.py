"""Import aiohttp without the certificate authorities of the system, which few processes need.

aiohttp makes two TLS contexts when it is imported, for requests that bring none, and both parse all authorities: 35 ms
of CPU. Requests to the API server bring their own context. So the authorities are loaded at the first connection with
aiohttp's context: that of a plugin, for example.
"""

from __future__ import annotations

import importlib
import ssl
import sys
from typing import Any


class DeferredTrust(ssl.SSLContext):
    """The context of `ssl.create_default_context`, but the authorities are loaded at the first connection."""

    _is_loaded = False

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Load the authorities once, and return the TLS layer of a connection."""
        self._load()
        return super().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Load the authorities once, and return the socket with TLS."""
        self._load()
        return super().wrap_socket(*args, **options)

    def _load(self) -> None:
        if not self._is_loaded:
            self.load_default_certs()
            self._is_loaded = True


def import_aiohttp() -> None:
    """Import aiohttp, if nothing has imported it. Functions of `ssl` are replaced until it returns, so no other thread may run."""
    if "aiohttp" in sys.modules:
        return
    create = ssl.create_default_context
    ssl.create_default_context = _deferred  # type: ignore[assignment]
    ssl.SSLContext.set_default_verify_paths = _unverified  # type: ignore[assignment, method-assign]
    try:
        importlib.import_module("aiohttp")
    finally:
        ssl.create_default_context = create
        del ssl.SSLContext.set_default_verify_paths


def _deferred() -> DeferredTrust:
    context = DeferredTrust(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


def _unverified(_: ssl.SSLContext) -> None:
    """Load nothing: the other context of aiohttp verifies no certificate."""
