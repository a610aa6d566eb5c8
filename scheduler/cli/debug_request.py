"""Send one request to the scheduler's leader, with one retry while it is busy, and report each failure by one line.

The way is a tunnel through the API server, or a plain connection to `--server`. In a tunnel the API server vouches for
the pod; the daemon's certificate is verified only with a file of authorities, because it is self-signed by default.
The user's credentials are a bearer token or a client certificate, as the API server gets them. Impersonation is not
sent: the daemon would ignore it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from scheduler import __version__
from scheduler.api.meta import http_address
from scheduler.cli.leader import Leader, LeaseName, NoAnswer, find_leader, one_line
from scheduler.cli.port_forward import OpenSockets, Tunnel, TunnelConnector, port_forward, unverified
from scheduler.config.types import OUR_NAME
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.terminal import printable
from scheduler.kube.client_config import (
    USER_AGENT,
    Settings,
    SettingsError,
    address,
    as_file,
    load_settings,
    proxy_for,
    tls_for,
)
from scheduler.kube.http.streams import through
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import JSON, Status

EXIT_CODE_HEADER: Final = "Kubestow-Exit-Code"
EXIT_CODES: Final = frozenset({0, 1, 2, 3, 5})
_MALFORMED: Final = 3
_LONGEST_ANSWER: Final = 32 * 2**20
_TEXTS: Final = ("/debug/explain/", "/debug/what-if")
"""Pages that are shorter as text."""
_RETRY_AFTER_MAX_S: Final = 30.0
_TRIES: Final = 2
_NO_SUCH_PAGE: Final = "404 page not found"


class MalformedInput(Exception):
    """The input cannot be sent. The text names the file or the flag."""


@dataclass(frozen=True, slots=True)
class Access:
    """The flags that say where the scheduler is."""

    lease: LeaseName
    kubeconfig: str | None = None
    context: str | None = None
    server: str = ""
    """Address of a daemon outside of the cluster; without it the leader is found by the Lease."""
    ca_file: str = ""
    server_name: str = ""
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class DebugRequest:
    """A request to a page. `rule` is the path in the RBAC rule that allows it."""

    method: str
    path: str
    rule: str
    body: bytes | None = None
    wants_text: bool = True
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class DebugAnswer:
    """What the daemon answered. `exit_code` is None if it gave none."""

    status: int
    text: str
    exit_code: int | None = None
    retry_after_s: float = 1.0
    server: str = ""


@dataclass(slots=True)
class _Progress:
    """What the client does now: the text of a time-out."""

    step: str = "reading the kubeconfig"


@dataclass(slots=True)
class Client:
    """Sends requests; created by `opened`."""

    access: Access
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    progress: _Progress = field(default_factory=_Progress)

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""
        return self.settings.namespace or "default"

    async def send(self, request: DebugRequest) -> DebugAnswer:
        """Return the answer, whose exit code says what it is. Raises NoAnswer for an answer that is none."""
        for tries_left in reversed(range(_TRIES)):
            raw, leader = await self._sent(request)
            answer = answer_of(raw.status, raw.headers, raw.body)
            if answer.status not in {429, 503} or not tries_left:
                break
            self.progress.step = f"waiting after an answer {answer.status}"
            await self.clock.sleep(min(answer.retry_after_s, _RETRY_AFTER_MAX_S))
        if answer.status == 200 or answer.exit_code == _MALFORMED:
            return answer
        if answer.status == 400:
            return DebugAnswer(answer.status, answer.text, _MALFORMED)
        if answer.status == 404 and answer.text.strip() != _NO_SUCH_PAGE:
            return DebugAnswer(answer.status, answer.text, _MALFORMED)
        raise NoAnswer(problem(answer, request, leader))

    async def page(self, request: DebugRequest, leader: Leader | None) -> DebugAnswer:
        """Return what the leader answers, with any status, after one try. `leader` is None with --server. Raises NoAnswer."""
        answer = await self._answer(request, leader)
        return answer_of(answer.status, answer.headers, answer.body)

    async def exchange(self, request: DebugRequest) -> tuple[RawAnswer, Leader | None]:
        """Return the answer as it was sent, and the pod that sent it. Refused credentials are renewed once.

        Raises NoAnswer, also when the time limit is over.
        """
        try:
            async with asyncio.timeout(self.access.timeout_s):
                found = await self._sent(request)
                if found[0].status == 401 and self.settings.renew is not None:
                    await self.settings.renew(True)
                    found = await self._sent(request)
                return found
        except TimeoutError as error:
            raise _too_late(self.access, self.progress) from error

    async def _answer(self, request: DebugRequest, leader: Leader | None) -> RawAnswer:
        if leader is None:
            self.progress.step = f"waiting for an answer of {self.access.server}"
            return await self._direct(request)
        self.progress.step = f"connecting to port {leader.port} of pod {leader} through the API server"
        async with port_forward(self.settings, leader) as tunnel:
            return await self._through(tunnel, request, leader)

    async def leader(self) -> Leader | None:
        """Return the leader by the Lease; None with --server. Raises NoAnswer."""
        if self.access.server:
            return None
        lease = self.access.lease
        self.progress.step = f"reading Lease {lease} and its holder"
        async with self.api_server() as transport:
            return await find_leader(transport, lease, self.clock)

    @contextlib.asynccontextmanager
    async def api_server(self) -> AsyncIterator[HttpTransport]:
        """Yield a connection to the API server."""
        transport = HttpTransport(self.settings, clock=self.clock)
        try:
            yield transport
        finally:
            await transport.close()

    async def _sent(self, request: DebugRequest) -> tuple[RawAnswer, Leader | None]:
        leader = await self.leader()
        return await self._answer(request, leader), leader

    async def _through(self, tunnel: Tunnel, request: DebugRequest, leader: Leader) -> RawAnswer:
        name = self.access.server_name or f"{self.access.lease.name}.{leader.namespace}.svc"
        connector = TunnelConnector(tunnel.socket, self._tls(), name)
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                self.progress.step = f"waiting for an answer of pod {leader}"
                return await self._exchange(session, URL(f"https://{name}:{leader.port}"), request)
        except aiohttp.ClientResponseError as error:
            raise _no_http(f"port {leader.port} of pod {leader}", error) from error
        except (aiohttp.ClientError, OSError, EOFError) as error:
            why = await tunnel.error() or one_line(str(error)) or type(error).__name__
            raise NoAnswer(f"the connection to pod {leader} was closed: {why}; try again") from error
        finally:
            await connector.abort()

    async def _direct(self, request: DebugRequest) -> RawAnswer:
        url = URL(self.access.server)
        tls = self._tls() if url.scheme == "https" else False
        name = {"server_hostname": self.access.server_name} if self.access.server_name else {}
        try:
            way = through(proxy_for(self.access.server))
        except ValueError as error:
            raise NoAnswer(f"{self.access.server}: {error}") from error
        sockets = OpenSockets()
        connector = aiohttp.TCPConnector(socket_factory=sockets)
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                return await self._exchange(session, url, request, ssl=tls, **name, **way)
        except aiohttp.ClientConnectorCertificateError as error:
            raise unverified(error.certificate_error, self.access.server_name or str(url.host)) from error
        except aiohttp.ClientConnectorError as error:
            why = one_line(error.strerror or str(error.os_error))
            raise NoAnswer(f"{self.access.server}: cannot connect: {why}; is the scheduler started there?") from error
        except aiohttp.ClientHttpProxyError as error:
            why = one_line(f"{error.status} {error.message}")
            raise NoAnswer(f"{self.access.server}: the proxy {way['proxy']} does not connect: {why}") from error
        except aiohttp.ClientResponseError as error:
            raise _no_http(self.access.server, error) from error
        except (aiohttp.ClientError, OSError) as error:
            why = one_line(str(error)) or type(error).__name__
            raise NoAnswer(f"{self.access.server}: the connection was closed: {why}; try again") from error
        finally:
            await sockets.closed()

    async def _exchange(
        self, session: aiohttp.ClientSession, url: URL, request: DebugRequest, **options: object
    ) -> RawAnswer:
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        text = {"output": "text"} if request.wants_text else {}
        if self.settings.authorization is not None and url.scheme == "https":
            headers["Authorization"] = self.settings.authorization
        if request.body is not None:
            headers["Content-Type"] = JSON
        exchange = session.request(
            request.method,
            url.with_path(request.path).with_query({**request.query, **text}),
            data=request.body,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(None),
            **options,  # type: ignore[arg-type]
        )
        async with exchange as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _LONGEST_ANSWER:
                    hint = "; use -o text" if request.path.startswith(_TEXTS) and not request.wants_text else ""
                    raise NoAnswer(f"the answer to {request.path} has more than {_LONGEST_ANSWER} bytes{hint}")
            return RawAnswer(response.status, response.headers, bytes(body))

    def _tls(self) -> ssl.SSLContext:
        """Return the client's side: the user's certificate, and the authorities if there are any."""
        ca_file = self.access.ca_file
        try:
            tls = tls_for(ca_file or None, verify=bool(ca_file))
            if self.settings.certificate is not None:
                with as_file(self.settings.certificate) as file:
                    tls.load_cert_chain(file)
        except OSError as error:
            file = ca_file or "the user's certificate"
            raise NoAnswer(f"{file}: cannot be used as a certificate: {one_line(str(error))}") from error
        return tls


@contextlib.asynccontextmanager
async def opened(access: Access, *, clock: Clock | None = None) -> AsyncIterator[Client]:
    """Load the kubeconfig and yield a client. All requests together have the time limit. Raises NoAnswer, MalformedInput."""
    progress = _Progress()
    try:
        async with asyncio.timeout(access.timeout_s):
            settings = await _settings(access)
            yield Client(access, settings, clock or SystemClock(), progress)
    except TimeoutError as error:
        raise _too_late(access, progress) from error


async def client_of(access: Access) -> Client:
    """Load the kubeconfig and return a client, whose requests have a time limit each. Raises NoAnswer, MalformedInput."""
    async with opened(access) as client:
        return client


def _no_http(place: str, error: aiohttp.ClientResponseError) -> NoAnswer:
    why = one_line(error.message.partition("\n")[0]).rstrip(":")
    return NoAnswer(f"{place}: the answer is no HTTP ({why}); another program than the scheduler listens there")


def _too_late(access: Access, progress: _Progress) -> NoAnswer:
    return NoAnswer(f"no answer within {access.timeout_s:g} s, while {progress.step}; --timeout gives more time")


async def _settings(access: Access) -> Settings:
    """Return address and credentials. An unencrypted daemon on this machine gets none."""
    if access.server and _scheme(access) == "http":
        return Settings(server="")
    try:
        return await load_settings(access.kubeconfig, context=access.context)
    except SettingsError as error:
        raise NoAnswer(
            f"{one_line(str(error))}; name a kubeconfig by --kubeconfig or $KUBECONFIG, and its context by --context"
        ) from error


def _scheme(access: Access) -> str:
    """Return the scheme of --server. Refuses what is no address, and to send credentials to a server that nothing vouches for."""
    try:
        parts = http_address(address(access.server, "--server"))
        why = "--server must have no path" if parts.path else ""
    except ValueError as error:
        why = str(error)
    if why:
        raise MalformedInput(f"{why}; expected an address such as https://127.0.0.1:10259, got {access.server!r}")
    if not (parts.scheme == "https" and access.ca_file) and not _is_loopback(str(parts.hostname)):
        raise NoAnswer(
            f"--server: {access.server} is not on this machine, so its certificate must be verified before credentials "
            "are sent; use https and give --scheduler-ca-file"
        )
    return parts.scheme


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def answer_of(status: int, headers: object, body: bytes) -> DebugAnswer:
    """Return the answer. Control characters of a text cannot reach the terminal."""
    found: dict[str, str] = {str(name).lower(): str(value) for name, value in dict(headers).items()}  # type: ignore[call-overload]
    code, wait = found.get(EXIT_CODE_HEADER.lower(), ""), found.get("retry-after", "")
    return DebugAnswer(
        status,
        printable(body.decode(errors="replace")),
        int(code) if code.isdecimal() and len(code) == 1 and int(code) in EXIT_CODES else None,
        float(wait) if wait.isdecimal() and len(wait) < 6 else 1.0,
        found.get("server", ""),
    )


def problem(answer: DebugAnswer, request: DebugRequest, leader: Leader | None) -> str:
    """Return the line for an answer that is no explanation."""
    daemon, message = f"pod {leader}" if leader else "the scheduler", _message(answer.text)
    match answer.status:
        case 401:
            return (
                f"{daemon} does not accept your credentials (401): {message}; it takes bearer tokens and client "
                "certificates that the API server of its cluster knows"
            )
        case 403:
            rule = f'{{nonResourceURLs: ["{request.rule}"], verbs: [{request.method.lower()}]}}'
            return f"no permission: {message}; a ClusterRole needs the rule {rule}"
        case 404 | 405 | 413:
            version = _version(answer, leader)
            return (
                f"{daemon} does not serve {request.method} {request.path} ({answer.status}): it is of version {version}, and "
                f"this program of {__version__}; use the program of the scheduler's version"
            )
        case 429:
            return f"too many questions wait for {daemon} (429): {message}; try again in a minute"
        case 503:
            return f"{daemon} cannot answer yet (503): {message}; try again in a minute"
        case _:
            return f"{daemon} did not answer the request ({answer.status}): {message}; its log has the cause"


def _version(answer: DebugAnswer, leader: Leader | None) -> str:
    """Return the daemon's version, from its header `Server` or the tag of its image."""
    name, _, version = one_line(answer.server).partition("/")
    return (version if name == OUR_NAME else "") or (leader.version if leader else "") or "unknown"


def _message(text: str) -> str:
    """Return the message of a metav1.Status, or the text, as one line."""
    try:
        found = msgspec.json.decode(text.encode(), type=Status).message
    except (msgspec.DecodeError, UnicodeEncodeError):
        found = None
    return one_line(found or text) or "no text"
