"""Serve the pages: plain HTTP on 127.0.0.1, HTTPS for authorized clients; each only if configured.

HTTPS follows changes of its certificate and of the authorities for client certificates, in files and in the cluster.
Serving begins before the API server has answered: until the cluster's authority is known, client certificates are
ignored.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from scheduler.config.types import EVERYWHERE, RunOptions, SecureServing
from scheduler.core.caching import LogOnce
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Unavailable
from scheduler.kube.authz import CLIENT_CA_NAME, CLIENT_CA_NAMESPACE, CLIENT_CA_RULES, SERVING_RULES, Lifetimes, Reviews
from scheduler.kube.client_config import load_settings
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import RbacRule
from scheduler.server.authorization import RequestGate
from scheduler.server.endpoints import Endpoints, EndpointSources
from scheduler.server.listening import CannotListen, Listener, ListenerLimits, bound
from scheduler.server.tls import CertificateError, Pair, SelfSigned, Tls, pair_of_files, read_file

_log = structlog.get_logger(__name__)

__all__ = ["CannotListen", "CertificateError", "LookupFailed", "Serving", "rules"]

_LOOPBACK: Final = "127.0.0.1"
_WHERE: Final = f"{CLIENT_CA_NAMESPACE}/{CLIENT_CA_NAME}"
FILES_EVERY_S: Final = 10.0
"""Interval in which files are checked for changes."""
LOOKUP_EVERY_S: Final = 60.0


class LookupFailed(RuntimeError):
    """The cluster's client CA cannot be read, and the daemon is configured to need it."""


class Serving:
    """All listeners. Call `start` once, then `run`; `stop` may be called repeatedly."""

    def __init__(
        self,
        options: RunOptions,
        sources: EndpointSources,
        transport: Transport,
        clock: Clock,
        *,
        limits: ListenerLimits | None = None,
    ) -> None:
        self._options = options
        self._sources = sources
        self._transport = transport
        self._clock = clock
        self._limits = limits
        self._endpoints: list[Endpoints] = []
        self._listeners: list[Listener] = []
        self._own_transports: list[Transport] = []
        self._https: _Https | None = None
        self.port = 0
        """Port of plain HTTP; 0 if it is not served."""
        self.secure_port = 0
        """Port of HTTPS; 0 if it is not served."""

    async def start(self) -> None:
        """Listen. Raises CannotListen, CertificateError, LookupFailed, and SettingsError for a wrong kubeconfig."""
        if self._options.port is not None:
            self.port = await self._listen(bound(_LOOPBACK, self._options.port))
        secure = self._options.secure
        if secure is None:
            return
        reviews = Reviews(
            await self._way(secure.authentication_kubeconfig),
            self._clock,
            Lifetimes(secure.token_ttl_s, secure.allowed_ttl_s, secure.denied_ttl_s),
            access=await self._way(secure.authorization_kubeconfig),
        )
        self._https = https = _Https(secure, reviews, self._clock, self._start_over)
        await https.begin()
        gate = RequestGate(reviews, secure.always_allow_paths)
        listening = bound(secure.host, secure.port, reuse_port=secure.shares_port)
        self.secure_port = await self._listen(listening, gate=gate, tls=https.tls.front)

    def _start_over(self) -> None:
        for listener in self._listeners:
            listener.start_over()

    async def run(self) -> None:
        """Follow changes of certificate and authorities until cancelled. Returns at once without HTTPS."""
        if self._https is not None:
            await self._https.run()

    async def stop(self) -> None:
        """Close; running requests get a second to finish."""
        for listener in self._listeners:
            await listener.stop()
        for endpoints in self._endpoints:
            await endpoints.stop()
        for listener in self._listeners:
            await listener.cut()
        if self._https is not None:
            await self._https.reviews.close()
        while self._own_transports:
            await self._own_transports.pop().close()

    async def _way(self, kubeconfig: str) -> Transport:
        """Return the transport for reviews: the daemon's, unless another kubeconfig is configured."""
        if not kubeconfig:
            return self._transport
        transport = HttpTransport(await load_settings(kubeconfig), clock=self._clock)
        self._own_transports.append(transport)
        return transport

    async def _listen(
        self, listening: socket.socket, *, gate: RequestGate | None = None, tls: ssl.SSLContext | None = None
    ) -> int:
        endpoints = Endpoints(self._sources, gate, clock=self._clock)
        await endpoints.start()
        listener = Listener(listening, endpoints.make, tls=tls, limits=self._limits)
        self._endpoints.append(endpoints)
        self._listeners.append(listener)
        listener.start()
        return listener.port


class _Https:
    """Certificate and authorities. Files are read in a thread, because a volume may hang.

    `start_over` is called when the authorities change, because the user of a connection may no longer be valid.
    """

    def __init__(self, secure: SecureServing, reviews: Reviews, clock: Clock, start_over: Callable[[], None]) -> None:
        self._secure = secure
        self._clock = clock
        self._start_over = start_over
        self._newest_pair = _certificates(secure)
        self.tls = Tls(secure.min_tls, secure.cipher_suites)
        self.reviews = reviews

    async def begin(self) -> None:
        """Read the first certificate, and the authorities if the daemon needs them."""
        await self._serve()
        if self._secure.client_ca_file:
            await self._trust_file()
        elif _looks_up(self._secure) and not self._secure.tolerates_lookup_failure:
            try:
                self.tls.trust(await self.reviews.client_ca())
            except ApiError as error:
                raise LookupFailed(f"{_WHERE}: {error.message}") from error

    async def run(self) -> None:
        """Follow changes until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._renew())
            if _looks_up(self._secure):
                parts.create_task(self._look_up())

    async def _renew(self) -> None:
        logged = LogOnce()
        steps = {"the new serving certificate": (self._serve, "the serving certificate was reloaded")}
        if self._secure.client_ca_file:
            steps["the new client CA"] = (self._trust_file, "the client CA was reloaded")
        while True:
            await self._clock.sleep(FILES_EVERY_S)
            for what, (step, done) in steps.items():
                try:
                    if await step():
                        _log.info(done)
                    logged.forget(what)
                except CertificateError as error:
                    if logged.is_new(what, str(error)):
                        _log.warning(f"{what} cannot be loaded; the previous one stays in use", error=str(error))

    async def _look_up(self) -> None:
        """Read the cluster's client CA. Without it clients can still use tokens."""
        logged = LogOnce()
        while True:
            try:
                if self._trust(await self.reviews.client_ca()):
                    _log.info("the client CA of the cluster is in use")
                logged.forget("authority")
            except (ApiError, CertificateError) as error:
                if not self._is_logged_elsewhere(error) and logged.is_new("authority", str(error)):
                    _log.warning(f"the client CA in ConfigMap {_WHERE} cannot be read", error=str(error))
            await self._clock.sleep(LOOKUP_EVERY_S)

    def _is_logged_elsewhere(self, error: Exception) -> bool:
        """Return whether discovery and informers log this error: they do, unless reviews use another server."""
        is_unreachable = isinstance(error, Unavailable) and not error.status
        return is_unreachable and not self._secure.authentication_kubeconfig

    async def _serve(self) -> bool:
        return self.tls.serve(await asyncio.to_thread(self._newest_pair, self._clock.wall()))

    async def _trust_file(self) -> bool:
        path = self._secure.client_ca_file
        text = (await asyncio.to_thread(read_file, path)).decode(errors="replace")
        if "CERTIFICATE" not in text:  # an empty file is a mistake
            raise CertificateError(f"{path}: contains no certificate")
        return self._trust(text)

    def _trust(self, client_ca: str) -> bool:
        """Return whether these authorities are other ones. Then clients connect again."""
        is_changed = self.tls.trust(client_ca)
        if is_changed:
            self._start_over()
        return is_changed


def rules(secure: SecureServing | None) -> tuple[RbacRule, ...]:
    """Return the permissions that the endpoints need with the daemon's credentials."""
    if secure is None:
        return ()
    tokens, access = SERVING_RULES
    own = not secure.authentication_kubeconfig
    return (
        *([tokens] if own else []),
        *([access] if not secure.authorization_kubeconfig else []),
        *(CLIENT_CA_RULES if own and _looks_up(secure) else ()),
    )


def _looks_up(secure: SecureServing) -> bool:
    return not secure.client_ca_file and not secure.skips_lookup


def _certificates(secure: SecureServing) -> Callable[[float], Pair]:
    """Return the function that returns the certificate for a time, in seconds since the epoch."""
    if secure.cert_file:
        return lambda _: pair_of_files(secure.cert_file, secure.key_file)
    names = ["localhost", socket.gethostname(), _LOOPBACK, "::1", secure.host]
    return SelfSigned([name for name in names if name.isascii() and name not in {"", "::", EVERYWHERE}]).newest
