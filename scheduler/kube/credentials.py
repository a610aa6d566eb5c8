"""How we are let in: by a kubeconfig, by the service account of a pod, or by an address alone.

The only module that imports kubernetes_asyncio, which knows how to read kubeconfigs, run exec plugins and refresh OIDC
tokens; it is loaded only when such credentials are wanted. Its own client is not used, because models cost a millisecond
per request.
"""

from __future__ import annotations

import abc
import asyncio
import os
import pathlib
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import structlog
from multidict import CIMultiDict
from yaml import YAMLError

from scheduler import __version__
from scheduler.kube.execplugin import run_plugin
from scheduler.kube.reaching import (
    address,
    as_proxy,
    content_of,
    current_context,
    impersonation,
    proxy_for,
    tls_for,
)

_log = structlog.get_logger(__name__)

USER_AGENT: Final = f"kubestow/{__version__}"
_ASKING_S: Final = 60.0
"""For a plugin or a provider of tokens, once there is something to go on with."""


class SettingsError(ValueError):
    """No usable way to an API server; the text says which file or variable is at fault."""


@dataclass(slots=True)
class Settings:
    """Where the API server is and how to be let in. `renew` brings the credentials up to date in place.

    `renew(True)` is for credentials that were just refused: it asks even what claims to be valid still.
    """

    server: str
    authorization: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers; one may stand more than once."""
    renew: Callable[[bool], Coroutine[Any, Any, None]] | None = None

    def headers(self) -> CIMultiDict[str]:
        """What every request says: who we are, as whom we come, and in which form we understand answers."""
        headers = CIMultiDict({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"})
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        headers.extend(self.impersonation)
        return headers


async def load_settings(
    kubeconfig: str | None = None, master: str | None = None, *, context: str | None = None
) -> Settings:
    """From a kubeconfig, from `master` alone (no credentials), from the service account, or from kubectl's default file.

    In this order; `master` also replaces the address that a kubeconfig names. May run an exec plugin. Raises
    `SettingsError`.
    """
    if kubeconfig is None and master is not None:
        try:
            settings = Settings(server=address(master), proxy=proxy_for(master))
        except ValueError as why:
            raise SettingsError(f"{master}: {why}") from why
        settings.tls = tls_for(None, None, None) if settings.server.startswith("https") else None
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
    """One of kubernetes_asyncio's loaders, behind the same three steps: read, copy into settings, renew."""

    name: str

    def __init__(self) -> None:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException

        self._configuration: Any = type.__call__(Configuration)
        self._configuration.host = ""
        self._trusted: tuple[Any, ...] | None = None
        # A malformed kubeconfig shows as any of these: the library looks keys up in whatever YAML gave it.
        self.failures = (
            ConfigException, OSError, AssertionError, AttributeError, KeyError, TypeError, ValueError, YAMLError,
            aiohttp.ClientError,
        )  # fmt: skip

    async def load(self, settings: Settings, *, force: bool) -> None:
        """Read anew and copy; the TLS context is rebuilt only if what is in its files changed or `force`."""
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
        if not settings.server.startswith("https"):
            return
        files = (read.ssl_ca_cert, read.cert_file, read.key_file)
        trusted = (*content_of(*files), read.verify_ssl)
        if force or trusted != self._trusted:
            settings.tls = tls_for(*files, verify=read.verify_ssl)
            self._trusted = trusted

    async def renew(self, settings: Settings, *, force: bool) -> None:
        """As `load`, but a failure keeps what there is: it may still be good, and the next renewal may work."""
        server, proxy = settings.server, settings.proxy
        try:
            async with asyncio.timeout(_ASKING_S):
                await self.load(settings, force=force)
        except self.failures as why:
            _log.warning("credentials could not be renewed", source=self.name, error=str(why) or type(why).__name__)
        settings.server, settings.proxy = server, proxy

    def _user(self) -> Mapping[str, Any]:
        """As a kubeconfig has it."""
        return {}

    @abc.abstractmethod
    async def _read(self, force: bool) -> None:
        """Have the loader read its files, or run its plugin; `force` renews what claims to be valid."""


class _ServiceAccount(_Source):
    name = "service account"

    async def _read(self, force: bool) -> None:
        from kubernetes_asyncio.config import load_incluster_config

        load_incluster_config(client_configuration=self._configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]


class _Kubeconfig(_Source):
    def __init__(self, path: str, context: str | None) -> None:
        from kubernetes_asyncio.config import kube_config
        from kubernetes_asyncio.config.openid import OpenIDRequestor

        super().__init__()
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
        await self._loader.load_and_set(self._configuration)

    def _made(self) -> Any:
        """What an issuer renews is written back where it may be: the old one may be of no use any more."""
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

        context = self._context or current_context(self._path)
        merged = KubeConfigMerger(self._path)
        keep = (lambda _: merged.save_changes()) if os.access(self._path, os.W_OK) else None
        return KubeConfigLoader(merged.config, active_context=context, config_base_path=None, config_persister=keep)

    def _user(self) -> Mapping[str, Any]:
        user = getattr(self._loader, "_user", None)
        return user.value if user is not None else {}

    def _runs_plugin_without_expiry(self) -> bool:
        """Such a plugin's answer is good until it is refused, as in client-go."""
        return "exec" in self._user() and not hasattr(self._loader, "exec_plugin_expiry")


class _Plugin:
    """In place of the library's ExecProvider, which reads the pipes one after the other and leaves processes behind."""

    def __init__(self, exec_config: Any) -> None:
        config = exec_config.value
        self._command = [str(part) for part in (config["command"], *(config.get("args") or ()))]
        self._env = os.environ | {str(item["name"]): str(item["value"]) for item in config.get("env") or ()}
        self._api_version = str(config["apiVersion"])
        self._hint = " ".join(str(config.get("installHint") or "").split())

    async def run(self) -> Any:
        return await run_plugin(self._command, self._env, api_version=self._api_version, hint=self._hint)


def _trusting(requestor: Any) -> aiohttp.TCPConnector:
    """The library's own believes any issuer whose authority is not in the kubeconfig, and fails where one is."""
    return aiohttp.TCPConnector(ssl=tls_for(requestor._ssl_ca_cert, None, None))  # noqa: SLF001
