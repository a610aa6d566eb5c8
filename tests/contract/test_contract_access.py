"""SelfSubjectAccessReview of a user with few permissions: the self-check at start relies on it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from simulator.apiserver import ApiServer
from tests.contract.conftest import PATIENCE_S, Object
from tests.e2e.controlplane.harness import ControlPlane

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "reader"
ALLOWED = [("", "pods", "list"), ("", "pods", "create"), ("events.k8s.io", "events", "patch")]
DENIED = [
    ("", "pods", "watch"),
    ("", "pods/binding", "create"),
    ("", "nodes", "list"),
    ("events.k8s.io", "events", "create"),
]


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


async def ensure(http: aiohttp.ClientSession, path: str, body: Object) -> None:
    async with http.post(path, json=body) as answer:
        assert answer.status in {201, 409}, await answer.text()


async def grant(http: aiohttp.ClientSession, name: str, subject: Object, rules: list[Object]) -> None:
    """Create a role with these rules, and bind it to the subject."""
    head: Object = {"metadata": {"name": name}}
    await ensure(http, f"{RBAC}/clusterroles", head | {"rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await ensure(http, f"{RBAC}/clusterrolebindings", head | {"roleRef": role, "subjects": [subject]})


async def grant_user(http: aiohttp.ClientSession, user: str, allowed: Iterable[tuple[str, str, str]]) -> None:
    """Grant a user the rights, each a group, a resource and a verb."""
    rules = [{"apiGroups": [group], "resources": [name], "verbs": [verb]} for group, name, verb in allowed]
    await grant(http, user, {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}, rules)


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
