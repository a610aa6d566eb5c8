"""URLs as parsed by Go's net/url: `url("https://example.com/a?b=c")`.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/urls.go URLs
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from scheduler.cel.check.types import BOOL, STRING, URL, Overload, list_of, map_of
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.running import work
from scheduler.cel.go_format import quoted
from scheduler.cel.libraries.declaring import Remembered, function, member
from scheduler.cel.libraries.networks import BadAddress, parse_address

_UNRESERVED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_IN_HOST: Final = _UNRESERVED | frozenset(b"!$&'()*+,;=:[]<>\"")
_IN_PATH: Final = _UNRESERVED | frozenset(b"$&+,/:;=@")
_ALREADY_ESCAPED: Final = _IN_PATH | frozenset(b"!'()*[]%")
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)?:")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_HEX: Final = re.compile(rb"%[0-9a-fA-F]{2}")
_MOST_PARAMETERS: Final = 10_000


class BadURL(ValueError):
    """The text is not a URL. The message is Go's."""


class URLValue(Struct, frozen=True, gc=False):
    """The parts of a URL. `path` is escaped, `query` is as it was written, and the other parts are unescaped."""

    cel_type: ClassVar[str] = "kubernetes.URL"

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: str = ""
    query: str = ""
    has_empty_query: bool = False
    fragment: str = ""


class _Escaping(NamedTuple):
    is_host: bool = False
    is_zone: bool = False
    plus_is_space: bool = False


_PLAIN: Final = _Escaping()
_HOST: Final = _Escaping(is_host=True)
_ZONE: Final = _Escaping(is_zone=True)
_QUERY: Final = _Escaping(plus_is_space=True)


def parse_request(text: str) -> URLValue:
    """Parse an absolute URL or an absolute path, as Go does for requests; a fragment is part of the text before it."""
    try:
        return _parsed(text, via_request=True)
    except BadURL as error:
        raise BadURL(f"parse {quoted(text)}: {error}") from None


def parse(text: str) -> URLValue:
    """Parse any URL; raise BadURL."""
    parse_request(text)
    before, _, fragment = text.partition("#")
    try:
        found = _parsed(before, via_request=False)
        unescaped = _unescaped(fragment, _PLAIN)
    except BadURL as error:
        raise BadURL(f"parse {quoted(text)}: {error}") from None
    return replace(found, fragment=unescaped)


def _parsed(text: str, *, via_request: bool) -> URLValue:
    if _CONTROL.search(text):
        raise BadURL("net/url: invalid control character in URL")
    if not text and via_request:
        raise BadURL("empty url")
    if text == "*":
        return URLValue(path="*")
    scheme, rest = _scheme(text)
    rest, mark, query = rest.partition("?")
    has_empty_query = bool(mark) and not query
    if not rest.startswith("/"):
        if scheme:
            return URLValue(scheme, rest, query=query, has_empty_query=has_empty_query)
        if via_request:
            raise BadURL("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise BadURL("first path segment in URL cannot contain colon")
    user, host = None, ""
    if rest.startswith("//") and (scheme or (not via_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(scheme, authority)
    return URLValue(scheme, "", user, host, _escaped_path(rest), query, has_empty_query)


def _scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    if match is None:
        return "", text
    if match[1] is None:
        raise BadURL("missing protocol scheme")
    return match[1].lower(), text[match.end() :]


def _authority(scheme: str, text: str) -> tuple[str | None, str]:
    userinfo, at, host_text = text.rpartition("@")
    host = _host(scheme, host_text)
    if not at:
        return None, host
    if not _USERINFO.fullmatch(userinfo):
        raise BadURL("net/url: invalid userinfo")
    return ":".join(_unescaped(each, _PLAIN) for each in userinfo.split(":", 1)), host


def _host(scheme: str, text: str) -> str:
    if "[" in text:
        if not text.startswith("[") or text.rfind("[") > 0:
            raise BadURL("invalid IP-literal")
        return _bracketed_host(text)
    colon = text.find(":") if scheme in {"http", "https"} else text.rfind(":")
    if colon >= 0:
        _check_port(text[colon:])
    return _unescaped(text, _HOST)


def _bracketed_host(text: str) -> str:
    inside, bracket, port = text[1:].rpartition("]")
    if not bracket:
        raise BadURL("missing ']' in host")
    _check_port(port)
    address, percent, zone = inside.partition("%25")
    host = _unescaped(address, _HOST) + _unescaped(percent + zone, _ZONE)
    try:
        found, _ = parse_address(host)
    except BadAddress as error:
        raise BadURL(f"invalid host: {error}") from None
    if found.version == 4:
        raise BadURL("invalid IP-literal")
    return f"[{host}]{port}"


def _check_port(text: str) -> None:
    if not _PORT.fullmatch(text):
        raise BadURL(f"invalid port {quoted(text)} after host")


def _unescaped(text: str, mode: _Escaping) -> str:
    if not mode.is_host and not mode.is_zone and "%" not in text:
        return text.replace("+", " ") if mode.plus_is_space else text
    work(len(text))
    source = text.encode()
    made = bytearray()
    at = 0
    while at < len(source):
        byte = source[at]
        if byte == 0x25:
            made.append(_escape_at(source, at, mode))
            at += 3
            continue
        if (mode.is_host or mode.is_zone) and byte < 0x80 and byte not in _IN_HOST:
            raise BadURL(f"invalid character {quoted(chr(byte))} in host name")
        made.append(0x20 if byte == 0x2B and mode.plus_is_space else byte)
        at += 1
    return made.decode(errors="replace")


def _escape_at(source: bytes, at: int, mode: _Escaping) -> int:
    """Return the escaped byte. In a host, only bytes that are not ASCII may be escaped; in a zone, only harmless ones."""
    written = source[at : at + 3]
    value = int(written[1:], 16) if _HEX.fullmatch(written) else -1
    is_percent = written == b"%25"
    if (
        value < 0
        or (mode.is_host and value < 0x80 and not is_percent)
        or (mode.is_zone and not is_percent and value != 0x20 and value not in _IN_HOST)
    ):
        raise BadURL(f"invalid URL escape {quoted(written.decode(errors='surrogateescape'))}")
    return value


def _escaped_path(text: str) -> str:
    """Return the path as written if it is validly escaped, else escape it again."""
    plain = _unescaped_bytes(text)
    work(len(text))
    if text == "*" or (text.isascii() and all(each in _ALREADY_ESCAPED for each in text.encode())):
        return text
    return "".join(chr(each) if each in _IN_PATH else f"%{each:02X}" for each in plain)


def _unescaped_bytes(text: str) -> bytes:
    _unescaped(text, _PLAIN)
    return _HEX.sub(lambda match: bytes([int(match[0][1:], 16)]), text.encode())


@Remembered
def _url(text: str) -> URLValue:
    try:
        return parse(text)
    except BadURL as error:
        raise EvalError(f"URL parse error during conversion from string: {error}") from None


_request: Final = Remembered(parse_request)


def _name_and_port(url: URLValue) -> tuple[str, str]:
    name, colon, port = url.host.rpartition(":")
    if not colon or not _PORT.fullmatch(f":{port}"):
        name, port = url.host, ""
    return (name[1:-1] if name.startswith("[") and name.endswith("]") else name), port


def _query(url: URLValue) -> dict[str, list[str]]:
    return _values(url.query)


@Remembered
def _values(query: str) -> dict[str, list[str]]:
    """Return name → values. Malformed parameters are left out."""
    values: dict[str, list[str]] = {}
    parameters = query.split("&")
    for each in parameters if len(parameters) <= _MOST_PARAMETERS else ():
        if not each or ";" in each:
            continue
        name, _, value = each.partition("=")
        try:
            values.setdefault(_unescaped(name, _QUERY), []).append(_unescaped(value, _QUERY))
        except BadURL:
            continue
    return {name: found for name, found in values.items() if found}


_TEXT_OF: Final = ((URL,), STRING)

URLS: Final[tuple[Overload, ...]] = (
    function("url", "string_to_url", ((STRING,), URL), _url),
    function("isURL", "is_url_string", ((STRING,), BOOL), _request.accepts),
    member("getScheme", "url_get_scheme", _TEXT_OF, attrgetter("scheme")),
    member("getHost", "url_get_host", _TEXT_OF, attrgetter("host")),
    member("getHostname", "url_get_hostname", _TEXT_OF, lambda url: _name_and_port(url)[0]),
    member("getPort", "url_get_port", _TEXT_OF, lambda url: _name_and_port(url)[1]),
    member("getEscapedPath", "url_get_escaped_path", _TEXT_OF, attrgetter("path")),
    member("getQuery", "url_get_query", ((URL,), map_of(STRING, list_of(STRING))), _query),
)
