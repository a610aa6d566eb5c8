"""Decide which caller may read a page: public paths, authentication, and the API server's authorization.

Order and texts are upstream's (docs/spec/core.md §7.3): a client certificate names the caller, otherwise a bearer
token, otherwise `system:anonymous`, which may have permissions too. A token that cannot be checked is a 401, a
permission that cannot be checked a 500. Knows no paths by name, and of HTTP only the codes.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog

from scheduler.core.caching import LogOnce
from scheduler.core.errors import ApiError
from scheduler.kube.authz import Reviews, User

_log = structlog.get_logger(__name__)

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
EXPIRED: Final = User("")
"""The user of an expired certificate."""
ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))
_HARMLESS: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
_UID_OID: Final = "1.3.6.1.4.1.57683.2"


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """Attributes of a request. `certificate` is the user of a verified client certificate, or EXPIRED."""

    verb: str
    path: str
    authorization: str = ""
    certificate: User | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a refused request."""

    status: int
    text: str
    is_json: bool = True


class RequestGate:
    """Authentication and authorization of all requests. It stores no user."""

    def __init__(self, reviews: Reviews, always_allow_paths: Iterable[str]) -> None:
        self._reviews = reviews
        paths = tuple(always_allow_paths)
        self._open = frozenset(path for path in paths if not path.endswith("*"))
        self._open_below = tuple(path[:-1] for path in paths if path.endswith("*"))
        self._logged = LogOnce()

    async def refuses(self, asked: RequestAttributes) -> Refusal | None:
        """Return the refusal; None if the caller may read the page. Public paths send no review."""
        if asked.path in self._open or asked.path.startswith(self._open_below):
            return None
        user = await self._user(asked)
        if user is None:
            return _status(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
        if MASTERS in user.groups:
            return None
        try:
            answer = await self._reviews.may(user, verb=asked.verb, path=asked.path)
        except ApiError as error:
            self._complain(error)
            text = f"Internal Server Error: {_quoted(asked.path)}: {error.message}".translate(_HARMLESS)
            return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, text + "\n", is_json=False)
        return None if answer.allowed else _forbidden(user, asked, answer.reason)

    async def _user(self, asked: RequestAttributes) -> User | None:
        """Return the user; None if the credentials are invalid. Credentials of an unknown type count as none."""
        if asked.certificate not in (None, EXPIRED):
            return _with_group(asked.certificate)
        token = bearer_token(asked.authorization)
        if token is None:
            return ANONYMOUS if asked.certificate is None else None
        if not token.isascii():
            return None
        try:
            user = await self._reviews.user_of(token)
        except ApiError as error:
            self._complain(error)
            return None
        return None if user is None else _with_group(user)

    def _complain(self, error: ApiError) -> None:
        """Log once per text, because any client can cause reviews."""
        if self._logged.is_new("review", error.message):
            _log.warning(
                "TokenReview or SubjectAccessReview failed; callers of the endpoints are refused", error=error.message
            )


def bearer_token(authorization: str) -> str | None:
    """Return the token of an Authorization header; None without a token, and for another type."""
    scheme, _, rest = authorization.strip().partition(" ")
    token = rest.partition(" ")[0]
    return token if scheme.lower() == "bearer" and token else None


def certified(tls: ssl.SSLObject | None, wall_s: float) -> User | None:
    """Return the user of a verified certificate: CN → user, O → groups. None without a name.

    EXPIRED if it has expired: connections may last long.
    """
    shown: Mapping[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    names = [pair for part in shown.get("subject", ()) for pair in part]
    common = [value for key, value in names if key == "commonName"]
    if tls is None or not common or not common[-1]:
        return None
    if ssl.cert_time_to_seconds(shown["notAfter"]) < wall_s:
        return EXPIRED
    uids = [value for key, value in names if key == _UID_OID]
    if len(uids) > 1 or "" in uids:
        return None
    groups = tuple(value for key, value in names if key == "organizationName")
    fingerprint = hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()
    return User(common[-1], "".join(uids), groups, ((_CREDENTIAL_ID, (f"X509SHA256={fingerprint}",)),))


def _with_group(user: User) -> User:
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or set(ANONYMOUS.groups) & set(user.groups):
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


def _forbidden(user: User, asked: RequestAttributes, reason: str) -> Refusal:
    who = f"User {_quoted(user.name)} cannot {asked.verb} path {_quoted(asked.path)}".translate(_HARMLESS)
    message = f"forbidden: {who}" + (f": {reason}" if reason else "")
    return _status(HTTPStatus.FORBIDDEN, "Forbidden", message, details={})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _status(code: int, reason: str, message: str, **more: object) -> Refusal:
    """Return a metav1.Status."""
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = head | {"message": message, "reason": reason} | more | {"code": int(code)}
    return Refusal(int(code), json.dumps(body, indent=2) + "\n")
