"""The self-check at start: what is missing is one finding, said once, and gone once it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from structlog.testing import CapturingLogger

from scheduler.core.errors import ApiError, Forbidden, NotFound, Unavailable
from scheduler.kube import self_check as access
from scheduler.kube.authz import CLIENT_CA_RULES, SERVING_RULES
from scheduler.kube.resources import BUDGET, CAPACITY, KINDS, NODE, POD, RESOURCE_CLAIM, Discovery, KindSpec
from scheduler.kube.self_check import KINDS_SERVED, PERMISSIONS, REVIEWS, LeaseName, SelfCheck
from scheduler.kube.writes.api_writer import (
    CLAIM_EVENT_RULES,
    DEVICE_RULES,
    EXTENDED_RESOURCE_RULES,
    VOLUME_RULES,
    WRITES,
    RbacRule,
)
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import Asked, ScriptedTransport, until
from tests.unit.kube.test_kinds import serves

BIND = RbacRule("", "pods/binding", "create")
CONDITION = RbacRule("", "pods/status", "patch")
EVENT = RbacRule("events.k8s.io", "events", "create")
EVICT = RbacRule("", "pods", "delete")
LEASE = LeaseName("kube-system", "kubestow")
SET = KINDS["ReplicaSet"]
ABSENT = NotFound("the server could not find the requested resource", status=404)


@dataclass
class Reviewer(ScriptedTransport):
    """Allows what is not forbidden; `trouble` is what every review is answered with instead."""

    forbidden: set[tuple[str, str]] = field(default_factory=set)
    trouble: bytes | ApiError | None = None
    under_way: int = 0
    most_under_way: int = 0

    async def _answer(self, asked: Asked) -> bytes:
        if asked.path != REVIEWS:
            return await super()._answer(asked)
        self.asked.append(asked)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if isinstance(self.trouble, ApiError):
            raise self.trouble
        if self.trouble is not None:
            return self.trouble
        wanted = asked.body["spec"]["resourceAttributes"]
        resource = "/".join(wanted[part] for part in ("resource", "subresource") if part in wanted)
        return msgspec.json.encode({"status": {"allowed": (wanted["verb"], resource) not in self.forbidden}})

    def reviewed(self) -> list[Any]:
        return [asked.body for asked in self.asked if asked.path == REVIEWS]


@dataclass
class Bench:
    """A self-check on a server that serves what it is told."""

    server: Reviewer
    clock: VirtualClock
    check: SelfCheck
    log: CapturingLogger
    running: asyncio.Task[None]

    async def asked(self) -> None:
        """Everything has been asked."""
        await until(lambda: self.check.kinds_served() != "not checked yet")

    def problems(self) -> list[str]:
        return [finding.problem for finding in self.check.findings]

    def said(self) -> list[tuple[str, str]]:
        return [(call.method_name, call.kwargs["problem"]) for call in self.log.calls]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(access, "_log", logger)
    return logger


@asynccontextmanager
async def bench(
    log: CapturingLogger,
    *,
    kinds: Sequence[KindSpec] = (POD, NODE),
    writes: Sequence[RbacRule] = (BIND,),
    lease: LeaseName | None = None,
    core: bytes | ApiError | None = None,
    apps: bytes | ApiError = ABSENT,
    policy: bytes | ApiError = ABSENT,
    storage: bytes | ApiError = ABSENT,
    devices: bytes | ApiError = ABSENT,
    **answers: Any,
) -> AsyncIterator[Bench]:
    """Discovery and self-check, running."""
    by_path = {"/api/v1": core or serves("pods", "nodes"), "/apis/apps/v1": apps, "/apis/policy/v1": policy}
    by_path |= {"/apis/storage.k8s.io/v1": storage, "/apis/storage.k8s.io/v1beta1": ABSENT}
    by_path |= {"/apis/resource.k8s.io/v1": devices}
    by_path |= {f"/apis/resource.k8s.io/{version}": ABSENT for version in ("v1beta2", "v1beta1")}
    server, clock = Reviewer(by_path=by_path, **answers), VirtualClock()
    discovery = Discovery(server, clock, kinds=kinds)
    check = SelfCheck(server, clock, discovery, kinds=kinds, writes=writes, lease=lease)
    finding_kinds = asyncio.create_task(discovery.run(lambda spec, served: None))
    world = Bench(server, clock, check, log, asyncio.create_task(check.run()))
    try:
        yield world
    finally:
        for task in (finding_kinds, world.running):
            task.cancel()
        await asyncio.gather(finding_kinds, world.running, return_exceptions=True)


async def test_every_right_is_asked_for_and_then_it_is_over(log: CapturingLogger) -> None:
    """List and watch of each kind, get of pods, each write; in all namespaces, subresources apart, no empty field."""
    async with bench(log, writes=[BIND, EVENT]) as world:
        await asyncio.wait_for(world.running, 60)

        assert all(body["kind"] == "SelfSubjectAccessReview" for body in world.server.reviewed())
        assert [body["spec"]["resourceAttributes"] for body in world.server.reviewed()] == [
            {"resource": "pods", "verb": "get"},
            {"resource": "pods", "subresource": "binding", "verb": "create"},
            {"group": "events.k8s.io", "resource": "events", "verb": "create"},
            {"resource": "pods", "verb": "list"},
            {"resource": "pods", "verb": "watch"},
            {"resource": "nodes", "verb": "list"},
            {"resource": "nodes", "verb": "watch"},
        ]
        assert (world.check.findings, world.check.permissions(), world.check.kinds_served()) == ((), None, None)
        assert world.said() == []


async def test_the_rights_on_the_lease_are_asked_for_where_they_are_given(log: CapturingLogger) -> None:
    """In its namespace, and by name where RBAC can tell: a role as docs/spec/core.md §8.2 has it is enough."""
    async with bench(log, writes=[], lease=LEASE) as world:
        await asyncio.wait_for(world.running, 60)

        here = {"namespace": "kube-system", "group": "coordination.k8s.io", "resource": "leases"}
        assert [body["spec"]["resourceAttributes"] for body in world.server.reviewed()][1:4] == [
            {**here, "verb": "create"},
            {**here, "verb": "get", "name": "kubestow"},
            {**here, "verb": "patch", "name": "kubestow"},
        ]


async def test_questions_are_asked_side_by_side_but_not_all_at_once(log: CapturingLogger) -> None:
    """A server that starts is not met with forty requests at a time."""
    many = [RbacRule("", f"things{i}", "patch") for i in range(40)]
    async with bench(log, writes=many) as world:
        await asyncio.wait_for(world.running, 60)

        assert len(world.server.reviewed()) == 45
        assert world.server.most_under_way == 8


@pytest.mark.parametrize(
    ("forbidden", "problem", "is_ready"),
    [
        pytest.param(("create", "pods/binding"), "create pods/binding", False, id="223 no bindings"),
        pytest.param(("list", "nodes"), "list nodes", False, id="a list that is waited for"),
        pytest.param(("watch", "pods"), "watch pods", False, id="a watch that is waited for"),
        pytest.param(
            ("patch", "leases"),
            "patch leases in group coordination.k8s.io in namespace kube-system",
            False,
            id="nobody would lead",
        ),
        pytest.param(
            ("get", "pods"),
            "get pods: a Binding whose response is lost reserves its resources until the watch shows the pod",
            True,
            id="lost answers that cannot be settled",
        ),
        pytest.param(("patch", "pods/status"), "patch pods/status", True, id="pods without conditions"),
        pytest.param(("create", "events"), "create events in group events.k8s.io", True, id="pods without events"),
    ],
)
async def test_a_missing_permission_is_named_once(
    log: CapturingLogger, forbidden: tuple[str, str], problem: str, is_ready: bool
) -> None:
    """Verb, resource and group, in the log once however often it is asked, in /readyz if nothing works without it."""
    async with bench(log, writes=[BIND, CONDITION, EVENT], lease=LEASE, forbidden={forbidden}) as world:
        await world.asked()
        first = len(world.server.reviewed())
        await world.clock.advance(300)

        text = f"missing permission: {problem}"
        assert world.problems() == [text]
        assert world.check.permissions() == (None if is_ready else text)
        assert world.said() == [("warning" if is_ready else "error", text)]
        assert len(world.server.reviewed()) == first + 5, "only what is missing is asked again"


_BUDGETS = {"kinds": (POD, NODE, BUDGET), "policy": serves("poddisruptionbudgets"), "writes": [BIND, EVICT]}
_DEVICES = {
    "kinds": (POD, NODE, RESOURCE_CLAIM), "devices": serves("resourceclaims"), "writes": [BIND, *DEVICE_RULES, *EXTENDED_RESOURCE_RULES]
}  # fmt: skip
_QUOTE = "events of provisioners are not quoted when a volume takes long"
MINOR = [
    (EVICT, "preemption evicts no pods", _BUDGETS),
    *((RbacRule("policy", "poddisruptionbudgets", verb), "preemption goes on without budgets", _BUDGETS) for verb in ("list", "watch")),
    *((rule, "pods whose volumes are yet to be bound stay pending", {"writes": [BIND, *VOLUME_RULES]}) for rule in VOLUME_RULES),
    *((rule, "pods whose devices are yet to be allocated stay pending", _DEVICES) for rule in DEVICE_RULES),
    *((rule, "pods with extended resources of device classes stay pending", _DEVICES) for rule in EXTENDED_RESOURCE_RULES),
    *((rule, _QUOTE, {"writes": [BIND, *CLAIM_EVENT_RULES]}) for rule in CLAIM_EVENT_RULES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "suffers", "server"), MINOR, ids=[f"{each.verb} {each.resource}" for each, *_ in MINOR]
)
async def test_a_permission_that_only_some_pods_need_is_named_with_what_suffers(
    log: CapturingLogger, rule: RbacRule, suffers: str, server: dict[str, Any]
) -> None:
    """The scheduler is ready, and pods without such needs are bound all the same; B-21 for events of claims."""
    async with bench(log, forbidden={(rule.verb, rule.resource)}, **server) as world:
        await world.asked()

        group = f" in group {rule.group}" if rule.group else ""
        problem = f"missing permission: {rule.verb} {rule.resource}{group}: {suffers}"
        assert world.problems() == [problem]
        assert (world.check.permissions(), world.check.minor(PERMISSIONS)) == (None, problem)
        assert world.said() == [("warning", problem)]


async def test_nobody_asks_to_write_claims_that_are_not_served(log: CapturingLogger) -> None:
    """A role may leave out what such a server does not have."""
    missing = {(rule.verb, rule.resource) for rule in DEVICE_RULES}
    async with bench(log, kinds=(POD, NODE, RESOURCE_CLAIM), writes=[BIND, *DEVICE_RULES], forbidden=missing) as world:
        await world.asked()

        problem = "not served: resourceclaims (resource.k8s.io/v1): pods that need devices stay pending"
        assert world.problems() == [problem]


async def test_what_the_endpoints_ask_is_asked_for_where_it_is_given(log: CapturingLogger) -> None:
    """The client CA is the one object of its kind that is read, by name, and none of it keeps anybody from being ready."""
    rules = [*SERVING_RULES, *CLIENT_CA_RULES]
    async with bench(log, writes=rules, forbidden={(rule.verb, rule.resource) for rule in rules}) as world:
        await world.asked()

        name = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
        assert [body["spec"]["resourceAttributes"] for body in world.server.reviewed()][1:4] == [
            {"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"},
            {"verb": "create", "group": "authorization.k8s.io", "resource": "subjectaccessreviews"},
            {"verb": "get", "resource": "configmaps", **name},
        ]
        assert [problem.rpartition(": ")[2] for problem in world.problems()] == [
            "the endpoints accept no bearer tokens",
            "the endpoints admit only system:masters",
            "the endpoints accept no client certificates",
        ]
        assert world.check.permissions() is None


async def test_capacity_that_is_not_served_is_said_once(log: CapturingLogger) -> None:
    """D5: one warning, and nobody is unready."""
    async with bench(log, kinds=(POD, NODE, CAPACITY)) as world:
        await world.asked()

        suffers = "volumes are placed without a check of the capacity"
        problem = f"not served: csistoragecapacities (storage.k8s.io/v1): {suffers}"
        assert (world.check.kinds_served(), world.check.minor(KINDS_SERVED)) == (None, problem)
        await world.clock.advance(300)
        assert world.said() == [("warning", problem)]


async def test_capacity_that_may_not_be_read_is_waited_for(log: CapturingLogger) -> None:
    """D8: it is served, and without it there would be overcommitment."""
    forbidden = {("list", "csistoragecapacities")}
    storage = serves("csistoragecapacities")
    async with bench(log, kinds=(POD, NODE, CAPACITY), storage=storage, forbidden=forbidden) as world:
        await world.asked()

        problem = "missing permission: list csistoragecapacities in group storage.k8s.io"
        assert world.check.permissions() == problem


async def test_nobody_asks_to_delete_pods_who_will_not(log: CapturingLogger) -> None:
    """Without a plugin that evicts, the permission is not even a question."""
    async with bench(log, forbidden={("delete", "pods")}) as world:
        await asyncio.wait_for(world.running, 60)

        assert world.problems() == []


async def test_budgets_that_are_not_served_keep_nobody_from_being_ready(log: CapturingLogger) -> None:
    """Named with what suffers."""
    async with bench(log, kinds=(POD, NODE, BUDGET)) as world:
        await world.asked()

        problem = "not served: poddisruptionbudgets (policy/v1): preemption goes on without budgets"
        assert (world.check.kinds_served(), world.check.minor(KINDS_SERVED)) == (None, problem)
        assert world.said() == [("warning", problem)]


async def test_everything_missing_is_named(log: CapturingLogger) -> None:
    """One line each, all of them in /readyz."""
    async with bench(log, forbidden={("list", "pods"), ("create", "pods/binding")}) as world:
        await world.asked()

        assert world.check.permissions() == "missing permission: list pods; missing permission: create pods/binding"
        assert len(world.said()) == 2


async def test_a_permission_given_later_clears_its_finding(log: CapturingLogger) -> None:
    """Within a minute; the check ends when nothing is missing."""
    async with bench(log, forbidden={("create", "pods/binding")}) as world:
        await world.asked()
        world.server.forbidden.clear()
        await world.clock.advance(59)
        assert world.check.permissions() is not None

        await world.clock.advance(1)
        await asyncio.wait_for(world.running, 60)

        assert (world.check.findings, world.check.permissions()) == ((), None)
        assert [level for level, _ in world.said()] == ["error", "info"]


async def test_a_missing_permission_stays_missing_while_nobody_answers(log: CapturingLogger) -> None:
    """A server that is away for a moment has not granted anything."""
    async with bench(log, forbidden={("create", "pods/binding")}) as world:
        await world.asked()
        world.server.trouble = Unavailable("away")
        await world.clock.advance(60)

        assert world.check.permissions() == "missing permission: create pods/binding"
        assert len(world.said()) == 1


async def test_a_server_that_cannot_be_reached_is_logged_by_discovery_alone(log: CapturingLogger) -> None:
    """Until it has answered once; reviews that fail after that are news."""
    away = Unavailable("cannot connect to 10.0.0.1:6443: Connection refused")
    async with bench(log, core=away, trouble=away) as world:
        await until(lambda: bool(world.problems()))
        assert world.problems() == [
            "permissions could not be checked: cannot connect to 10.0.0.1:6443: Connection refused"
        ]
        assert world.said() == []

        world.server.by_path["/api/v1"] = serves("pods", "nodes")
        await world.clock.advance(60)
        await until(lambda: bool(world.said()))
        assert [level for level, _ in world.said()] == ["warning"]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        pytest.param(ABSENT, "the server could not find the requested resource", id="no such API"),
        pytest.param(Forbidden("not you", status=403), "not you", id="reviews forbidden"),
        pytest.param(Unavailable("webhook down", status=500), "webhook down", id="the authorizer fails"),
        pytest.param(b"<html>", "JSON is malformed", id="a proxy's page"),
    ],
)
async def test_what_cannot_be_asked_is_one_finding_and_stops_nobody(
    log: CapturingLogger, trouble: bytes | ApiError, said: str
) -> None:
    """Ready all the same; asked again until there is an answer."""
    async with bench(log, trouble=trouble) as world:
        await world.asked()

        (problem,) = world.problems()
        assert problem.startswith(f"permissions could not be checked: {said}")
        assert world.check.permissions() is None
        assert [level for level, _ in world.said()] == ["warning"]

        world.server.trouble = None
        await world.clock.advance(60)
        await asyncio.wait_for(world.running, 60)
        assert world.problems() == []


async def test_a_kind_that_is_not_served_is_named_and_needs_no_permission(log: CapturingLogger) -> None:
    """Without pods or nodes nothing is bound; without any other kind only what needs it suffers."""
    async with bench(log, kinds=[POD, NODE, SET], core=serves("pods")) as world:
        await world.asked()

        assert world.problems() == ["not served: nodes (v1)", "not served: replicasets (apps/v1)"]
        assert world.check.kinds_served() == "not served: nodes (v1)"
        assert world.check.permissions() is None
        assert world.said() == [("error", "not served: nodes (v1)"), ("warning", "not served: replicasets (apps/v1)")]
        assert {body["spec"]["resourceAttributes"]["resource"] for body in world.server.reviewed()} == {"pods"}


async def test_a_kind_that_appears_is_asked_for_then(log: CapturingLogger) -> None:
    """An upgrade brings it, without the permission."""
    async with bench(log, kinds=[POD, NODE, SET], forbidden={("watch", "replicasets")}) as world:
        await world.asked()
        world.server.by_path["/apis/apps/v1"] = serves("replicasets")
        await world.clock.advance(120)

        assert world.problems() == ["missing permission: watch replicasets in group apps"]


async def test_until_discovery_has_answered_nothing_is_known(log: CapturingLogger) -> None:
    """Its own error is what is shown; what we want to write and get can be asked all the same."""
    async with bench(log, core=Unavailable("connection refused")) as world:
        await world.clock.advance(5)

        assert world.check.kinds_served() == "connection refused"
        assert world.check.permissions() == "not checked yet"
        assert len(world.server.reviewed()) == 2


async def test_a_standby_that_mirrors_nothing_yet_is_told_of_the_lease(log: CapturingLogger) -> None:
    """Discovery waits for the lead, and the lead for a permission: that must not be a riddle. Given, it is noticed."""
    forbidden = {("create", "leases")}
    async with bench(log, core=Unavailable("not asked"), lease=LEASE, forbidden=forbidden) as world:
        await until(lambda: world.check.findings)

        text = "missing permission: create leases in group coordination.k8s.io in namespace kube-system"
        assert world.check.permissions() == text
        world.server.forbidden.clear()
        await world.clock.advance(60)
        assert world.check.permissions() == "not checked yet"
        assert world.said() == [("error", text), ("info", text)]


def test_what_is_needed_is_among_the_writes() -> None:
    """A write that is renamed must not become optional by that."""
    assert "pods/binding" in {rule.resource for rule in WRITES}
