"""Connect to the API server: kubeconfig, service account, credential plugins and their renewal.

Environment and kubeconfigs are read as Go's programs read them. This is the only module that imports
kubernetes_asyncio, which takes credentials from exec plugins and refreshes OIDC tokens; it is loaded only for such users,
because it costs 0.2 s and 36 MiB. Its client is not used: generated models cost a millisecond per request.

Credentials are renewed in the background for all transports of the same settings. A request never waits for a renewal
that is due: the existing credentials are valid for some more minutes. Only a refused request waits.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import contextlib
import dataclasses
import ipaddress
import logging
import os
import pathlib
import ssl
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, quote

import aiohttp
import structlog
from multidict import CIMultiDict
from yaml import YAMLError

from scheduler import __version__
from scheduler.api.meta import http_address
from scheduler.core.clock import Clock
from scheduler.kube.credentials.exec_plugin import CredentialPluginError, run_plugin
from scheduler.kube.credentials.kubeconfig import Kubeconfig, Section, read_kubeconfig
from scheduler.kube.http.resumption import ResumingContext

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def address(text: str, what: str = "the server's address") -> str:
    """Return the address without a final slash. Raises ValueError, also for a password: addresses are logged."""
    if _parts(text, what).username is not None:
        raise ValueError(f"{what} must not name a user")
    return text.rstrip("/")


def proxy_for(server: str) -> str | None:
    """Return the proxy by HTTPS_PROXY, HTTP_PROXY and NO_PROXY; none for this machine. Raises ValueError if invalid."""
    parts = _parts(server, "the server's address")
    name = f"{parts.scheme}_proxy"
    proxy = os.environ.get(name.upper()) or os.environ.get(name)
    no_proxy = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    if (
        not proxy
        or _is_loopback(host)
        or any(_spares(entry.strip().lower(), host, port) for entry in no_proxy.split(","))
    ):
        return None
    return as_proxy(proxy, f"the address of {name.upper()}")


def as_proxy(text: str, what: str) -> str:
    """Return the proxy with its scheme. Raises ValueError for other schemes than HTTP's; the text omits a password."""
    proxy = text if "://" in text else f"http://{text}"
    _parts(proxy, what)
    return proxy


def tls_for(
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    verify: bool = True,
    *,
    ca_data: str = "",
) -> ssl.SSLContext:
    """Return a TLS context that trusts this authority or the machine's, with a client certificate if there is one."""
    # As `ssl.create_default_context` of Python 3.13, but without strict X.509 checks, which authorities of clusters often
    # fail. Go does not check either, and an intermediate authority may be the only one that is trusted.
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if ca_file or ca_data:
        context.load_verify_locations(cafile=ca_file, cadata=ca_data or None)
    else:
        context.load_default_certs()
    if cert_file:
        context.load_cert_chain(cert_file, keyfile=key_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Write bytes to a file, in memory if possible, else private to the user: OpenSSL reads keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers with which a kubeconfig's user impersonates another one. Raises ValueError."""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not user.get("as"):
        if groups or extra or user.get("as-uid"):
            raise ValueError("as-uid, as-groups and as-user-extra need `as`")
        return
    yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in groups:
        yield "Impersonate-Group", str(group)
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key.lower(), safe='')}", str(value)


def _parts(text: str, what: str) -> SplitResult:
    try:
        return http_address(text)
    except ValueError as why:
        raise ValueError(f"{what} {why}") from why


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _spares(entry: str, host: str, port: int) -> bool:
    """Return whether this entry of NO_PROXY means the host: a domain and its subdomains, an address, a network, `*`."""
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:  # one of them is a name, or the entry has a port
        name, _, its_port = entry.rpartition(":")
    if its_port.isdecimal() and name:
        return int(its_port) == port and _spares(name, host, port)
    entry = entry.removeprefix("*")
    return bool(entry) and (host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}"))


_log = structlog.get_logger(__name__)

USER_AGENT: Final = f"kubestow/{__version__}"
_SERVICE_ACCOUNT: Final = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SERVICE_ACCOUNT_TOKEN: Final = _SERVICE_ACCOUNT / "token"
_SERVICE_ACCOUNT_CA: Final = _SERVICE_ACCOUNT / "ca.crt"
_SERVICE_ACCOUNT_NAMESPACE: Final = _SERVICE_ACCOUNT / "namespace"
_ASKING_S: Final = 60.0
"""Time limit of a plugin or token provider, once there are credentials."""


class SettingsError(ValueError):
    """There is no usable way to an API server. The text names the file or variable with the mistake."""


@dataclass(slots=True)
class Settings:
    """Address and credentials of the API server. `renew` updates the credentials in place.

    `renew(True)` follows a refusal: it renews credentials that still claim to be valid, too.
    """

    server: str
    authorization: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers; a name may appear several times."""
    certificate: bytes | None = field(default=None, repr=False)
    """The client certificate and its key, both PEM; `tls` has them loaded."""
    namespace: str = ""
    """The namespace of the kubeconfig's context, or of the service account; "" if none is named."""
    renew: Callable[[bool], Coroutine[Any, Any, None]] | None = None

    def headers(self) -> CIMultiDict[str]:
        """Return the headers of every request: credentials, impersonation, and the accepted format."""
        headers = CIMultiDict({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"})
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        headers.extend(self.impersonation)
        return headers


async def load_settings(
    kubeconfig: str | None = None, master: str | None = None, *, context: str | None = None
) -> Settings:
    """Load the settings from the first of these sources that is given.

    They are a kubeconfig, `master` alone (no credentials), the service account, and kubectl's default file. `master`
    also replaces the address of a kubeconfig. May run an exec plugin. Raises `SettingsError`.
    """
    try:
        given = address(master, "the address of --master") if master is not None else ""
    except ValueError as why:
        raise SettingsError(f"{why}, got {master!r}") from why
    if kubeconfig is None and given:
        try:
            settings = Settings(server=given, proxy=proxy_for(given))
        except ValueError as why:
            raise SettingsError(str(why)) from why
        settings.tls = tls_for() if settings.server.startswith("https") else None
        return settings
    in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is None and not in_cluster:
        kubeconfig = os.environ.get("KUBECONFIG") or str(pathlib.Path.home() / ".kube" / "config")
    source = _ServiceAccount() if in_cluster else _Kubeconfig(kubeconfig or "", context)
    settings = Settings(server="")
    try:
        await source.load(settings, force=True)
        settings.server = given or address(settings.server)
        settings.proxy = as_proxy(settings.proxy, "proxy-url") if settings.proxy else proxy_for(settings.server)
    except source.failures as why:
        raise SettingsError(f"{source.name}: {' '.join(str(why).split()) or type(why).__name__}") from why
    settings.renew = lambda force: source.renew(settings, force=force)
    return settings


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a source has. Contents instead of files: a replaced file keeps its name."""

    server: str
    authorization: str = field(default="", repr=False)
    authority: bytes | None = None
    certificate: bytes | None = field(default=None, repr=False)
    """The client certificate and its key, both PEM."""
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()


class _Source(abc.ABC):
    """Where settings come from, and come from again when they are renewed."""

    name: str
    failures: Final = (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        AssertionError,
        YAMLError,
        aiohttp.ClientError,
    )
    """What reading may raise: a kubeconfig may have any YAML value anywhere."""

    def __init__(self) -> None:
        self._trusted: tuple[bytes | None, bytes | None, bool] | None = None

    async def load(self, settings: Settings, *, force: bool) -> None:
        """Read again and copy. The TLS context is rebuilt only if its files changed, or with `force`."""
        read = await self._read(force)
        settings.server = read.server.rstrip("/")
        if not read.authorization.isprintable():
            raise ValueError("the token has a line break, or what else no header may have")
        settings.authorization = read.authorization or None
        settings.impersonation = read.impersonation
        for name, text in settings.impersonation:
            if not text.isprintable():
                raise ValueError(f"{name} would have a line break, or what else no header may have")
        settings.tls_server_name = read.tls_server_name or None
        settings.proxy = read.proxy or settings.proxy
        settings.certificate = read.certificate
        settings.namespace = read.namespace
        if not settings.server.startswith("https"):
            return
        trusted = (read.authority, read.certificate, read.verify)
        if force or trusted != self._trusted:
            settings.tls = _tls_with(read.authority, read.certificate, verify=read.verify)
            self._trusted = trusted

    async def renew(self, settings: Settings, *, force: bool) -> None:
        """Load again, but keep the existing credentials after a failure.

        They may be valid, and the next renewal may succeed.
        """
        server, proxy = settings.server, settings.proxy
        try:
            async with asyncio.timeout(_ASKING_S):
                await self.load(settings, force=force)
        except self.failures as why:
            _log.warning("credentials could not be renewed", source=self.name, error=str(why) or type(why).__name__)
        settings.server, settings.proxy = server, proxy

    @abc.abstractmethod
    async def _read(self, force: bool) -> _Loaded:
        """Read the files or run the plugin. `force` renews credentials that claim to be valid."""


class _ServiceAccount(_Source):
    name = "service account"

    async def _read(self, force: bool) -> _Loaded:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must not be empty")
        token = _SERVICE_ACCOUNT_TOKEN.read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{_SERVICE_ACCOUNT_TOKEN} is empty")
        return _Loaded(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            authorization=f"Bearer {token}",
            authority=_SERVICE_ACCOUNT_CA.read_bytes(),
            namespace=self._namespace(),
        )

    def _namespace(self) -> str:
        with contextlib.suppress(OSError):
            return _SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip()
        return ""


class _Kubeconfig(_Source):
    def __init__(self, paths: str, context: str | None) -> None:
        super().__init__()
        self.name = f"kubeconfig {paths}"
        self._paths = paths
        self._context = context
        self._kubeconfig: Kubeconfig | None = None
        self._provider: _Provider | None = None

    async def _read(self, force: bool) -> _Loaded:
        """Read the kubeconfig once, and the files that it names each time."""
        if self._kubeconfig is None:
            read = read_kubeconfig(self._paths, self._context)
            if read.user.fields.keys() & {"exec", "auth-provider"}:
                self._provider = _Provider(self._paths, read)
            self._kubeconfig = read
        cluster, user = self._kubeconfig.cluster, self._kubeconfig.user
        loaded = _Loaded(
            server=cluster.text("server"),
            authorization="" if self._provider else _static_authorization(user),
            authority=cluster.content("certificate-authority"),
            certificate=_joined(user.content("client-certificate"), user.content("client-key")),
            verify=not cluster.flag("insecure-skip-tls-verify"),
            tls_server_name=cluster.text("tls-server-name"),
            proxy=cluster.text("proxy-url"),
            namespace=self._kubeconfig.namespace,
            impersonation=tuple(impersonation(user.fields)),
        )
        if self._provider is None:
            return loaded
        authorization, certificate = await self._provider.credentials(force)
        return dataclasses.replace(loaded, authorization=authorization, certificate=certificate or loaded.certificate)


def _static_authorization(user: Section) -> str:
    """Return the header for a user's token, its file, or its name and password; "" without any."""
    token = user.text("token") or (user.file_content("tokenFile") or b"").decode()
    if token.strip():
        return f"Bearer {token.strip()}"
    if "username" in user.fields and "password" in user.fields:
        pair = f"{user.text('username')}:{user.text('password')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _joined(certificate: bytes | None, key: bytes | None) -> bytes | None:
    """Return one PEM of both; a certificate's file may also have the key."""
    return None if certificate is None else (key or b"") + b"\n" + certificate


def _tls_with(authority: bytes | None, certificate: bytes | None, *, verify: bool) -> ssl.SSLContext:
    with contextlib.ExitStack() as files:
        try:
            context = tls_for(None if authority is None else files.enter_context(as_file(authority)), verify=verify)
        except ssl.SSLError as error:
            raise ValueError(f"the certificate authority cannot be used: {error}") from error
        try:
            if certificate is not None:
                context.load_cert_chain(files.enter_context(as_file(certificate)))
        except ssl.SSLError as error:
            raise ValueError(f"the client certificate and its key cannot be used: {error}") from error
    return context


class _Provider:
    """Credentials of an exec plugin or an OIDC issuer, by the loader of kubernetes_asyncio."""

    def __init__(self, paths: str, read: Kubeconfig) -> None:
        from kubernetes_asyncio.client import Configuration

        self._paths = paths
        self._context_name = read.context_name
        self._user = read.user
        self._configuration: Any = type.__call__(Configuration)
        self._loader: Any = None

    async def credentials(self, force: bool) -> tuple[str, bytes | None]:
        """Return the Authorization header, and the client certificate with its key if there is one."""
        from kubernetes_asyncio.config import ConfigException

        is_due = force or self._loader is None or not self._runs_plugin_without_expiry()
        try:
            self._loader = self._loader or self._made()
            if force:
                self._loader.__dict__.pop("exec_plugin_expiry", None)
            if is_due:
                await self._loader.load_and_set(self._configuration)
        except ConfigException as error:
            raise ValueError(str(error)) from error
        except CredentialPluginError as error:
            raise CredentialPluginError(f"{self._user.title}: {error}") from error
        return (self._configuration.api_key.get("BearerToken") or "").strip(), self._certificate()

    def _made(self) -> Any:
        """Return the loader. Renewed tokens are written back where possible, because the old ones may be invalid."""
        from kubernetes_asyncio.config import kube_config
        from kubernetes_asyncio.config.openid import OpenIDRequestor

        kube_config.logger.addFilter(_RAISED_ANYWAY)
        kube_config.ExecProvider = _Plugin  # type: ignore[assignment, attr-defined]
        OpenIDRequestor._get_connector = _trusting  # type: ignore[assignment, method-assign]  # noqa: SLF001 (there is no other way in)
        merged = kube_config.KubeConfigMerger(self._paths)
        keep = (lambda _: merged.save_changes()) if os.access(self._paths, os.W_OK) else None
        return kube_config.KubeConfigLoader(
            merged.config, active_context=self._context_name, config_base_path=None, config_persister=keep
        )

    def _certificate(self) -> bytes | None:
        files = (self._configuration.cert_file, self._configuration.key_file)
        return _joined(*(pathlib.Path(file).read_bytes() if file else None for file in files))

    def _runs_plugin_without_expiry(self) -> bool:
        """Return whether a plugin gave no expiry: its credentials are used until they are refused, as in client-go."""
        return "exec" in self._user.fields and not hasattr(self._loader, "exec_plugin_expiry")


class _RaisedAnyway(logging.Filter):
    """Hide log lines of the library about errors that it also raises: the caller logs them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return sys.exc_info()[0] is None


_RAISED_ANYWAY: Final = _RaisedAnyway()


class _Plugin:
    """Replace the library's ExecProvider, which reads the pipes one after the other and leaves processes behind."""

    def __init__(self, exec_config: Any) -> None:
        config = exec_config.value
        self._command = [str(part) for part in (config["command"], *(config.get("args") or ()))]
        self._env = os.environ | {str(item["name"]): str(item["value"]) for item in config.get("env") or ()}
        self._api_version = str(config["apiVersion"])
        self._hint = " ".join(str(config.get("installHint") or "").split())

    async def run(self) -> Any:
        return await run_plugin(self._command, self._env, api_version=self._api_version, hint=self._hint)


def _trusting(requestor: Any) -> aiohttp.TCPConnector:
    """Return a connector with our trust. The library's, without an authority, trusts any issuer, and then fails."""
    return aiohttp.TCPConnector(ssl=tls_for(requestor._ssl_ca_cert))  # noqa: SLF001


RENEW_S: Final = 60.0


class Renewal:
    """Renew credentials, at most one renewal at a time. Used inside one event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._due_at = clock.now() + RENEW_S
        self._running: asyncio.Task[None] | None = None
        self._is_forced = False
        self.count = 0
        """Number of finished renewals. A transport that knows a smaller number takes over the settings."""

    def start_if_due(self) -> None:
        """Start a renewal if the last one is a minute old and none runs."""
        if self._settings.renew is not None and self._running is None and self._clock.now() >= self._due_at:
            self._start(force=False)

    @property
    def credentials(self) -> tuple[object, ...]:
        """What a renewal may replace."""
        return self._settings.authorization, self._settings.tls

    async def after_refusal(self, refused: tuple[object, ...]) -> bool:
        """Renew after a 401; return whether there are other credentials than `refused`, those of the request.

        Concurrent callers share one renewal. Cancelling the caller does not cancel the renewal.
        """
        if self._settings.renew is None:
            return False
        if self._running is not None:
            was_forced = self._is_forced
            await asyncio.shield(self._running)
            if was_forced or self.credentials != refused:
                return self.credentials != refused
        if self.credentials == refused:
            await asyncio.shield(self._running or self._start(force=True))
        return self.credentials != refused

    async def close(self) -> None:
        """Cancel a running renewal."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    def _start(self, *, force: bool) -> asyncio.Task[None]:
        assert self._settings.renew is not None
        self._is_forced = force
        self._running = task = asyncio.ensure_future(self._settings.renew(force))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        self.count += 1
        self._due_at = self._clock.now() + RENEW_S
        if not task.cancelled() and task.exception() is not None:
            _log.error("credentials could not be renewed", exc_info=task.exception())
