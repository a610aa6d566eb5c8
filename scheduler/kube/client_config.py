"""Connect to the API server: kubeconfig, service account, credential plugins and their renewal.

Environment and kubeconfigs are read as Go's programs read them. This is the only module that imports
kubernetes_asyncio, which reads kubeconfigs, runs exec plugins and refreshes OIDC tokens; it is loaded only for such
credentials. Its client is not used, because generated models cost a millisecond per request.

A credential plugin (`users[].user.exec`) runs in its own process group. Cancelling kills the group, so no hanging
process remains. Both pipes are read concurrently, because a plugin that fills one of them would otherwise block.

Credentials are renewed in the background for all transports of the same settings. A request never waits for a renewal
that is due: the existing credentials are valid for some more minutes. Only a refused request waits.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import pathlib
import signal
import ssl
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

import aiohttp
import structlog
import yaml
from multidict import CIMultiDict
from yaml import YAMLError

from scheduler import __version__
from scheduler.core.clock import Clock

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def address(text: str) -> str:
    """Return the address without a final slash. Raises ValueError, also for a password: addresses are logged."""
    if _parts(text, "the server's address").username is not None:
        raise ValueError("the server's address must not name a user")
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
    return as_proxy(proxy)


def as_proxy(text: str) -> str:
    """Return the proxy with its scheme. Raises ValueError for other schemes than HTTP's; the text omits a password."""
    proxy = text if "://" in text else f"http://{text}"
    _parts(proxy, "the proxy's address")
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
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data or None)
    # Authorities of clusters often fail strict X.509 checks (on since Python 3.13); Go does not check.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
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


def content_of(*files: str | None) -> tuple[bytes | None, ...]:
    """Return the contents of the files: a replaced file keeps its name."""
    return tuple(pathlib.Path(file).read_bytes() if file else None for file in files)


def current_context(paths: str) -> str | None:
    """Return the first context that one of the kubeconfigs names, as kubectl. Raises OSError or TypeError."""
    files = [pathlib.Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    found = [file for file in files if file.exists()]
    if not found:
        raise FileNotFoundError("no such file")
    for file in found:
        document = yaml.safe_load(file.read_bytes())
        if not isinstance(document, dict):
            raise TypeError(f"{file} holds no kubeconfig")
        if document.get("current-context"):
            return str(document["current-context"])
    return None


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
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{what} must begin with https:// or http:// and name a host")
    _ = parts.port, parts.hostname.encode("idna")  # each raises ValueError for an invalid address
    if parts.query or parts.fragment:
        raise ValueError(f"{what} must end with the path")
    return parts


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


_LONGEST_ERROR: Final = 1024
_GONE_WITHIN_S: Final = 1.0
_NEEDED: Final = ("apiVersion", "kind", "status")


class CredentialPluginError(ValueError):
    """A credential plugin could not run, failed, or wrote no credentials. The text names the command."""


async def run_plugin(command: Sequence[str], env: Mapping[str, str], *, api_version: str, hint: str = "") -> Any:
    """Return the `status` of its ExecCredential. Raises CredentialPluginError; `hint` says how to install it."""
    name = command[0]
    exec_info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**env, "KUBERNETES_EXEC_INFO": json.dumps(exec_info)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    except OSError as why:
        advice = f". {hint}" if hint else ""
        raise CredentialPluginError(
            f"exec: cannot run {name!r}: {why.strerror or why}{advice}"[:_LONGEST_ERROR]
        ) from why
    try:
        answer, errors = await process.communicate()
    except asyncio.CancelledError:
        await _kill(process)
        raise
    if process.returncode:
        error_output = errors.decode(errors="replace").strip()
        raise CredentialPluginError(f"exec: {name!r} returned {process.returncode}. {error_output}"[:_LONGEST_ERROR])
    return _status(name, answer, api_version)


def _status(name: str, answer: bytes, api_version: str) -> Any:
    try:
        credential = json.loads(answer)
    except ValueError as why:
        raise CredentialPluginError(f"exec: {name!r} wrote no JSON: {why}") from why
    missing = [key for key in _NEEDED if not isinstance(credential, dict) or key not in credential]
    if missing:
        raise CredentialPluginError(f"exec: {name!r} wrote no ExecCredential: {missing[0]} is missing")
    if credential["apiVersion"] != api_version:
        raise CredentialPluginError(
            f"exec: {name!r} answered in {credential['apiVersion']!r}, not in {api_version!r}"[:_LONGEST_ERROR]
        )
    if not isinstance(credential["status"], dict):
        raise CredentialPluginError(f"exec: {name!r} wrote no ExecCredential: status is no object")
    return credential["status"]


async def _kill(process: Process) -> None:
    """Kill the process group: the plugin leads it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_WITHIN_S):
            await process.wait()


_log = structlog.get_logger(__name__)

USER_AGENT: Final = f"kubestow/{__version__}"
_SERVICE_ACCOUNT_NAMESPACE: Final = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
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
    certificate: tuple[str, str | None] | None = field(default=None, repr=False)
    """Files of the client certificate and its key; `tls` has them loaded."""
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
    if kubeconfig is None and master is not None:
        try:
            settings = Settings(server=address(master), proxy=proxy_for(master))
        except ValueError as why:
            raise SettingsError(f"{master}: {why}") from why
        settings.tls = tls_for() if settings.server.startswith("https") else None
        return settings
    in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is None and not in_cluster:
        kubeconfig = os.environ.get("KUBECONFIG") or str(pathlib.Path.home() / ".kube" / "config")
    source = _ServiceAccount() if in_cluster else _Kubeconfig(kubeconfig or "", context)
    settings = Settings(server="")
    try:
        await source.load(settings, force=True)
        settings.server = address(master or settings.server)
        settings.proxy = as_proxy(settings.proxy) if settings.proxy else proxy_for(settings.server)
    except source.failures as why:
        raise SettingsError(f"{source.name}: {' '.join(str(why).split()) or type(why).__name__}") from why
    settings.renew = lambda force: source.renew(settings, force=force)
    return settings


class _Source(abc.ABC):
    """A loader of kubernetes_asyncio with three steps: read, copy into settings, renew."""

    name: str

    def __init__(self) -> None:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException

        self._configuration: Any = type.__call__(Configuration)
        self._configuration.host = ""
        self._trusted: tuple[Any, ...] | None = None
        # A malformed kubeconfig raises any of these, because the library reads keys from any YAML value.
        self.failures = (
            ConfigException, OSError, AssertionError, AttributeError, KeyError, TypeError, ValueError, YAMLError,
            aiohttp.ClientError,
        )  # fmt: skip

    async def load(self, settings: Settings, *, force: bool) -> None:
        """Read again and copy. The TLS context is rebuilt only if its files changed, or with `force`."""
        await self._read(force)
        read = self._configuration
        settings.server = read.host.rstrip("/")
        token = (read.api_key.get("BearerToken") or "").strip()
        if token and not token.isprintable():
            raise ValueError("the token has a line break, or what else no header may have")
        settings.authorization = token or None
        settings.impersonation = tuple(impersonation(self._user()))
        for name, text in settings.impersonation:
            if not text.isprintable():
                raise ValueError(f"{name} would have a line break, or what else no header may have")
        settings.tls_server_name = read.tls_server_name
        settings.proxy = read.proxy or settings.proxy
        settings.certificate = (read.cert_file, read.key_file) if read.cert_file else None
        settings.namespace = self._namespace()
        if not settings.server.startswith("https"):
            return
        files = (read.ssl_ca_cert, read.cert_file, read.key_file)
        trusted = (*content_of(*files), read.verify_ssl)
        if force or trusted != self._trusted:
            settings.tls = tls_for(*files, verify=read.verify_ssl)
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

    def _user(self) -> Mapping[str, Any]:
        """Return the user in the form of a kubeconfig."""
        return {}

    def _namespace(self) -> str:
        """Return the namespace of requests that name none; "" for the default."""
        return ""

    @abc.abstractmethod
    async def _read(self, force: bool) -> None:
        """Have the loader read its files or run its plugin. `force` renews credentials that claim to be valid."""


class _ServiceAccount(_Source):
    name = "service account"

    async def _read(self, force: bool) -> None:
        from kubernetes_asyncio.config import load_incluster_config

        load_incluster_config(client_configuration=self._configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]

    def _namespace(self) -> str:
        with contextlib.suppress(OSError):
            return _SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip()
        return ""


class _Kubeconfig(_Source):
    def __init__(self, path: str, context: str | None) -> None:
        from kubernetes_asyncio.config import kube_config
        from kubernetes_asyncio.config.openid import OpenIDRequestor

        super().__init__()
        kube_config.logger.addFilter(_RAISED_ANYWAY)
        kube_config.ExecProvider = _Plugin  # type: ignore[assignment, attr-defined]
        OpenIDRequestor._get_connector = _trusting  # type: ignore[assignment, method-assign]  # noqa: SLF001 (there is no other way in)
        self.name = f"kubeconfig {path}"
        self._path = path
        self._context = context
        self._loader: Any = None

    async def _read(self, force: bool) -> None:
        if self._loader is None:
            self._loader = self._made()
        elif force:
            self._loader.__dict__.pop("exec_plugin_expiry", None)
        elif self._runs_plugin_without_expiry():
            return
        try:
            await self._loader.load_and_set(self._configuration)
        except CredentialPluginError as error:
            raise CredentialPluginError(f'user "{self._loader.current_context["context"]["user"]}": {error}') from error

    def _made(self) -> Any:
        """Return the loader. Renewed tokens are written back where possible, because the old ones may be invalid."""
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

        context = self._context or current_context(self._path)
        merged = KubeConfigMerger(self._path)
        keep = (lambda _: merged.save_changes()) if os.access(self._path, os.W_OK) else None
        return KubeConfigLoader(merged.config, active_context=context, config_base_path=None, config_persister=keep)

    def _user(self) -> Mapping[str, Any]:
        user = getattr(self._loader, "_user", None)
        return user.value if user is not None else {}

    def _namespace(self) -> str:
        return str(self._loader.current_context["context"].get("namespace") or "")

    def _runs_plugin_without_expiry(self) -> bool:
        """Return whether a plugin gave no expiry: its credentials are used until they are refused, as in client-go."""
        return "exec" in self._user() and not hasattr(self._loader, "exec_plugin_expiry")


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
