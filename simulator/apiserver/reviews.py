"""Questions that store nothing: what may I do, whose token is this, may they see that path.

There are no users here, so a test sets the tokens, and the paths that each user may see.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.apiserver.resources import ApiResource

Object = dict[str, Any]

SELF: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SUBJECT: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 (a path)
PATHS: Final = (SELF, SUBJECT, TOKEN)
KINDS: Final = {SELF: "SelfSubjectAccessReview", SUBJECT: "SubjectAccessReview", TOKEN: "TokenReview"}
_MASTERS: Final = "system:masters"
_UNKNOWN: Final = "invalid bearer token"


@dataclass
class People:
    """The users that the server knows. A test may change them."""

    tokens: dict[str, Object] = field(default_factory=dict)
    """Token → `username`, and `uid`, `groups`, `extra` as a TokenReview shows them."""
    sees: set[tuple[str, str, str]] = field(default_factory=set)
    """(user or group, verb, path that is no resource); a `*` at the path's end stands for anything."""


def group_version(path: str) -> str:
    """Of one of `PATHS`."""
    return "/".join(path.split("/")[2:4])


def resource(path: str) -> ApiResource:
    """How messages and the log name one of `PATHS`."""
    group, _, version = group_version(path).partition("/")
    return ApiResource(group, version, path.rpartition("/")[2], KINDS[path], namespaced=False)


def answer(path: str, review: Object, people: People, forbidden: AbstractSet[tuple[str, str]]) -> Object:
    """Return the review with its status. `forbidden` has the rights that the caller lacks."""
    spec = review.get("spec") or {}
    head: Object = {"kind": KINDS[path], "apiVersion": group_version(path), "metadata": {}, "spec": review.get("spec")}
    if path == TOKEN:
        return head | {"status": _of_token(spec.get("token", ""), people)}
    if path == SELF:
        return head | {"status": {"allowed": _may(spec, forbidden)}}
    return head | {"status": {"allowed": _sees(spec, people)}}


def _may(spec: Object, forbidden: AbstractSet[tuple[str, str]]) -> bool:
    asked = spec.get("resourceAttributes") or {}
    sub = asked.get("subresource", "")
    return (asked.get("verb", ""), asked.get("resource", "") + (f"/{sub}" if sub else "")) not in forbidden


def _of_token(token: str, people: People) -> Object:
    user = people.tokens.get(token)
    if user is None:
        return {"user": {}, "error": _UNKNOWN}
    groups = [*user.get("groups", ()), "system:authenticated"]
    return {"authenticated": True, "user": user | {"groups": list(dict.fromkeys(groups))}}


def _sees(spec: Object, people: People) -> bool:
    """Of what is no resource; a SubjectAccessReview about a resource is denied."""
    asked = spec.get("nonResourceAttributes")
    if asked is None:
        return False
    who = {spec.get("user", ""), *(spec.get("groups") or ())}
    verb, path = asked.get("verb", ""), asked.get("path", "")
    return _MASTERS in who or any(
        name in who and allowed == verb and (path == below or (below.endswith("*") and path.startswith(below[:-1])))
        for name, allowed, below in people.sees
    )
