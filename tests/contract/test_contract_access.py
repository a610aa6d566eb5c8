"""Reviews of permissions and tokens.

The self-check at start relies on SelfSubjectAccessReviews, the endpoints on TokenReviews and SubjectAccessReviews.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from simulator.apiserver import ApiServer
from tests.contract.conftest import PATIENCE_S, Api, Object, missing
from tests.e2e.cluster import a_user, account, allow
from tests.e2e.controlplane.harness import ControlPlane

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
USER = "reader"
EVENTS = ("events.k8s.io", "events")
ALLOWED = [("", "pods", "list"), ("", "pods", "create"), (*EVENTS, "patch")]
DENIED = [("", "pods", "watch"), ("", "pods/binding", "create"), ("", "nodes", "list"), (*EVENTS, "create")]


@asynccontextmanager
async def user_session(plane: ControlPlane | None) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of a user with these rights: by RBAC and impersonation, or by the `forbidden` set of the in-process server."""
    if plane is None:
        async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
            server.forbidden.update((verb, resource) for _, resource, verb in DENIED)
            yield http
        return
    async with plane.client() as http:
        await grant_user(http, USER, ALLOWED)
        http.headers["Impersonate-User"] = USER
        deadline = time.monotonic() + PATIENCE_S
        while not (await review(http, *ALLOWED[0]))["status"]["allowed"]:  # the role takes effect some moments later
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        yield http


async def grant_user(http: aiohttp.ClientSession, user: str, allowed: Iterable[tuple[str, str, str]]) -> None:
    """Grant a user the rights, each a group, a resource and a verb."""
    rules = [{"apiGroups": [group], "resources": [name], "verbs": [verb]} for group, name, verb in allowed]
    await allow(http, user, rules, a_user(user))


async def review(http: aiohttp.ClientSession, group: str, resource: str, verb: str) -> Object:
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    async with http.post(REVIEWS, json=kind | {"spec": spec(group, resource, verb)}) as answer:
        assert answer.status == 201, await answer.text()
        found: Object = await answer.json()
        return found


def spec(group: str, resource: str, verb: str) -> Object:
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


@pytest.mark.parametrize(
    ("group", "resource", "verb", "allowed"),
    [(*rule, True) for rule in ALLOWED] + [(*rule, False) for rule in DENIED],
    ids=lambda value: str(value) or "core",
)
async def test_a_review_answers_for_each_permission(
    plane: ControlPlane | None, group: str, resource: str, verb: str, allowed: bool
) -> None:
    async with user_session(plane) as http:
        answer = await review(http, group, resource, verb)

    assert (answer["kind"], answer["spec"]) == ("SelfSubjectAccessReview", spec(group, resource, verb))
    assert answer["status"]["allowed"] is allowed


# -- TokenReview and SubjectAccessReview ----------------------------------------------------------------------------------


TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ACCOUNT = "system:serviceaccount:default:scraper"
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]


@dataclass
class Place:
    """A server, and the token of a service account that may get /metrics and paths below /debug."""

    http: aiohttp.ClientSession
    token: str

    async def __call__(self, path: str, spec: Object) -> Object:
        group, version = path.split("/")[2:4]
        kind = "TokenReview" if path == TOKENS else "SubjectAccessReview"
        review = {"apiVersion": f"{group}/{version}", "kind": kind, "spec": spec}
        async with self.http.post(path, json=review) as answer:
            assert answer.status == 201, await answer.text()
            found: Object = await answer.json()
        assert (found["kind"], found["apiVersion"]) == (kind, review["apiVersion"])
        status: Object = found["status"]
        return status

    async def may(self, verb: str, path: str, *, user: str = ACCOUNT, groups: tuple[str, ...] = ()) -> bool:
        spec = {"user": user, "nonResourceAttributes": {"verb": verb, "path": path}}
        return bool((await self(ACCESS, spec | ({"groups": list(groups)} if groups else {})))["allowed"])


@asynccontextmanager
async def place(plane: ControlPlane | None) -> AsyncIterator[Place]:
    if plane is None:
        async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
            server.people.tokens["t"] = {"username": ACCOUNT, "uid": "u", "groups": GROUPS[:2]}
            server.people.sees |= {(ACCOUNT, "get", "/metrics"), (ACCOUNT, "get", "/debug/*")}
            yield Place(http, "t")
        return
    async with plane.client() as http:
        rules = [{"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]}]
        found = Place(http, await account(http, "scraper", rules))
        deadline = time.monotonic() + PATIENCE_S
        while not await found.may("get", "/metrics"):  # the role takes effect some moments later
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        yield found


async def test_a_token_that_is_known(plane: ControlPlane | None) -> None:
    async with place(plane) as ask:
        status = await ask(TOKENS, {"token": ask.token})

    assert (status["authenticated"], status["user"]["username"]) == (True, ACCOUNT)
    assert status["user"]["groups"] == GROUPS
    assert status["user"]["uid"]
    assert "error" not in status


@pytest.mark.parametrize("token", ["unknown", "a.b.c", "e30.e30.e30"])
async def test_a_token_that_is_not(plane: ControlPlane | None, token: str) -> None:
    async with place(plane) as ask:
        status = await ask(TOKENS, {"token": token})

    assert not status.get("authenticated", False)
    assert status["user"] == {}
    assert "invalid bearer token" in status["error"]


async def test_a_token_that_was_tampered_with(plane: ControlPlane | None) -> None:
    async with place(plane) as ask:
        token = _renamed(ask.token) if plane is not None else "t2"
        status = await ask(TOKENS, {"token": token})

    assert not status.get("authenticated", False)


def _renamed(token: str) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    claims["sub"] = "system:serviceaccount:kube-system:intruder"
    return ".".join((head, base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("="), signature))


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("get", "/metrics", True),
        ("get", "/debug/pod/a/b", True),
        ("get", "/debug", False),
        ("get", "/metrics/slis", False),
        ("get", "/configz", False),
        ("head", "/metrics", False),
        ("post", "/metrics", False),
    ],
)
async def test_access_by_verb_and_path(plane: ControlPlane | None, verb: str, path: str, allowed: bool) -> None:
    async with place(plane) as ask:
        assert await ask.may(verb, path) is allowed
        assert not await ask.may(verb, path, user="stranger")
        assert await ask.may(verb, path, user="stranger", groups=("system:masters",))


async def test_a_configmap(api: Api) -> None:
    path, name = api.at("v1", "configmaps"), "extension-apiserver-authentication"
    missing(await api("GET", f"{path}/{name}"), "configmaps", name)
    created = await api("POST", path, {"metadata": {"name": name}, "data": {"client-ca-file": "PEM"}})
    assert created.status == 201
    read = (await api("GET", f"{path}/{name}")).body
    assert read["data"] == {"client-ca-file": "PEM"}
    assert set(read) == {"kind", "apiVersion", "metadata", "data"}
    changed = (await api.merge(f"{path}/{name}", {"data": {"client-ca-file": "other"}})).body
    assert changed["data"] == {"client-ca-file": "other"}
