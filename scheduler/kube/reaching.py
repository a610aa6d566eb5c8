"""How an address is reached: is it one, through which proxy, trusting whom.

Environment and kubeconfigs are read as Go's programs read them, because they are written for those. Knows no credentials
and sends nothing.
"""

from __future__ import annotations

import ipaddress
import os
import pathlib
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

import yaml

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def address(text: str) -> str:
    """Of an API server, without a slash at its end. Raises ValueError, also for a password in it: addresses are shown."""
    if _parts(text, "the server's address").username is not None:
        raise ValueError("the server's address must not name a user")
    return text.rstrip("/")


def proxy_for(server: str) -> str | None:
    """By HTTPS_PROXY, HTTP_PROXY and NO_PROXY; never for this machine. Raises ValueError for what is no proxy."""
    parts = _parts(server, "the server's address")
    name = f"{parts.scheme}_proxy"
    proxy = os.environ.get(name.upper()) or os.environ.get(name)
    spared = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    if not proxy or _is_here(host) or any(_spares(entry.strip().lower(), host, port) for entry in spared.split(",")):
        return None
    return as_proxy(proxy)


def as_proxy(text: str) -> str:
    """With its scheme. Raises ValueError for other kinds than HTTP's, without the password that may be in it."""
    proxy = text if "://" in text else f"http://{text}"
    _parts(proxy, "the proxy's address")
    return proxy


def tls_for(ca_file: str | None, cert_file: str | None, key_file: str | None, verify: bool = True) -> ssl.SSLContext:
    """Trusting this authority, or the machine's; with our certificate if there is one."""
    context = ssl.create_default_context(cafile=ca_file)
    # Clusters' own authorities often lack what strict X.509 checking (on since Python 3.13) wants; Go does not ask.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cert_file:
        context.load_cert_chain(cert_file, keyfile=key_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def content_of(*files: str | None) -> tuple[bytes | None, ...]:
    """What is in them now: a file that is replaced keeps its name."""
    return tuple(pathlib.Path(file).read_bytes() if file else None for file in files)


def current_context(paths: str) -> str | None:
    """Of several kubeconfigs the first that names one counts, as for kubectl. Raises OSError or TypeError where one is none."""
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
    """Headers by which a kubeconfig's user acts as somebody else; none if it does not. Raises ValueError."""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not user.get("as"):
        if groups or extra or user.get("as-uid"):
            raise ValueError("as-uid, as-groups and as-user-extra want to know as whom: `as`")
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
    _ = parts.port, parts.hostname.encode("idna")  # each raises ValueError for what is none
    if parts.query or parts.fragment:
        raise ValueError(f"{what} must end with the path")
    return parts


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _spares(entry: str, host: str, port: int) -> bool:
    """Whether this entry of NO_PROXY means the host: a name and what is below it, an address, a network, `*`."""
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
