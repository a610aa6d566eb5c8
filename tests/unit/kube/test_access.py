"""The self-check at start: what is missing is one finding, said once, and gone once it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from scheduler.core.errors import ApiError, Forbidden, Unavailable
from scheduler.kube.resources import BUDGET, CAPACITY, KINDS, NODE, POD, RESOURCE_CLAIM, Discovery, KindSpec
from scheduler.kube.self_check import KINDS_SERVED, PERMISSIONS, REVIEWS, SelfCheck
from scheduler.kube.writes.permissions import (
    CLAIM_EVENT_RULES,
    CLIENT_CA_RULE,
    DEVICE_RULES,
    EVICTION_RULES,
    EXTENDED_RESOURCE_RULES,
    SERVING_RULES,
    VOLUME_RULES,
    WRITES,
    RbacRule,
    lease_rules,
)
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import ABSENT, RecordedRequest, ScriptedTransport, serves, until

BIND, CONDITION, EVENT, _ = WRITES
(EVICT,) = EVICTION_RULES
LEASE = ("kube-system", "kubestow")
SET = KINDS["ReplicaSet"]


@dataclass
class Reviewer(ScriptedTransport):
    """Allows what is not forbidden; `trouble` is what every review is answered with instead."""

    forbidden: set[tuple[str, str]] = field(default_factory=set)
    trouble: bytes | ApiError | None = None
    under_way: int = 0
    most_under_way: int = 0

    async def _answer(self, recorded: RecordedRequest) -> bytes:
        if recorded.path != REVIEWS:
            return await super()._answer(recorded)
        assert recorded.body["kind"] == "SelfSubjectAccessReview"
        self.recorded.append(recorded)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if isinstance(self.trouble, ApiError):
            raise self.trouble
        if self.trouble is not None:
            return self.trouble
        wanted = recorded.body["spec"]["resourceAttributes"]
        resource = "/".join(wanted[part] for part in ("resource", "subresource") if part in wanted)
        return msgspec.json.encode({"status": {"allowed": (wanted["verb"], resource) not in self.forbidden}})

    def reviewed(self) -> list[Any]:
        """The attributes that were reviewed."""
        return [recorded.body["spec"]["resourceAttributes"] for recorded in self.recorded if recorded.path == REVIEWS]


@dataclass
class Bench:
    """A self-check, and the server that it runs on."""

    server: Reviewer
    clock: VirtualClock
    check: SelfCheck
    log: Sequence[MutableMapping[str, Any]]
    running: asyncio.Task[None]

    async def completed(self) -> None:
        """Wait until all reviews are done."""
        await until(lambda: self.check.kinds_served() != "not checked yet")

    def problems(self) -> list[str]:
        return [finding.problem for finding in self.check.findings]

    def said(self) -> list[tuple[str, str]]:
        return [(line["log_level"], line["problem"]) for line in self.log if "problem" in line]


@asynccontextmanager
async def bench(
    *,
    kinds: Sequence[KindSpec] = (POD, NODE),
    writes: Sequence[RbacRule] = (BIND,),
    core: bytes | ApiError | None = None,
    apps: bytes | ApiError = ABSENT,
    policy: bytes | ApiError = ABSENT,
    storage: bytes | ApiError = ABSENT,
    devices: bytes | ApiError = ABSENT,
    **answers: Any,
) -> AsyncIterator[Bench]:
    """Discovery and self-check, running."""
    by_path = {"/api/v1": core or serves("pods", "nodes"), "/apis/apps/v1": apps, "/apis/policy/v1": policy}
    by_path |= {"/apis/storage.k8s.io/v1": storage}
    by_path |= {"/apis/resource.k8s.io/v1": devices, "/apis/resource.k8s.io/v1beta2": ABSENT}
    server, clock = Reviewer(by_path=by_path, **answers), VirtualClock()
    discovery = Discovery(server, clock, kinds=kinds)
    check = SelfCheck(server, clock, discovery, kinds=kinds, writes=writes)
    finding_kinds = asyncio.create_task(discovery.run(lambda spec, served: None))
    with capture_logs() as log:
        world = Bench(server, clock, check, log, asyncio.create_task(check.run()))
        try:
            yield world
        finally:
            for task in (finding_kinds, world.running):
                task.cancel()
            await asyncio.gather(finding_kinds, world.running, return_exceptions=True)


async def test_every_permission_is_reviewed_once() -> None:
    async with bench(writes=[BIND, EVENT]) as world:
        await asyncio.wait_for(world.running, 60)

        assert world.server.reviewed() == [
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


async def test_permissions_on_the_lease_are_reviewed_in_its_namespace() -> None:
    """In its namespace, and by name where RBAC supports names: a role as docs/spec/core.md §8.2 has it is enough."""
    async with bench(writes=lease_rules(*LEASE)) as world:
        await asyncio.wait_for(world.running, 60)

        here = {"namespace": "kube-system", "group": "coordination.k8s.io", "resource": "leases"}
        assert world.server.reviewed()[1:4] == [
            {**here, "verb": "create"},
            {**here, "verb": "get", "name": "kubestow"},
            {**here, "verb": "patch", "name": "kubestow"},
        ]


async def test_few_reviews_run_at_the_same_time() -> None:
    many = [RbacRule("", f"things{i}", "patch") for i in range(40)]
    async with bench(writes=many) as world:
        await asyncio.wait_for(world.running, 60)

        assert len(world.server.reviewed()) == 45
        assert world.server.most_under_way == 8


@pytest.mark.parametrize(("forbidden", "problem", "is_ready"), [
    pytest.param(("create", "pods/binding"), "create pods/binding", False, id="223 no bindings"),
    pytest.param(("list", "nodes"), "list nodes", False, id="a list that is waited for"),
    pytest.param(("watch", "pods"), "watch pods", False, id="a watch that is waited for"),
    pytest.param(("patch", "leases"), "patch leases in group coordination.k8s.io in namespace kube-system", False,
        id="no replica can lead"),
    pytest.param(("get", "pods"),
        "get pods: a Binding whose response is lost reserves its resources until the watch shows the pod", True,
        id="lost answers that cannot be settled"),
    pytest.param(("patch", "pods/status"), "patch pods/status", True, id="pods without conditions"),
    pytest.param(("create", "events"), "create events in group events.k8s.io", True, id="pods without events"),
])  # fmt: skip
async def test_a_missing_permission_is_named_once(forbidden: tuple[str, str], problem: str, is_ready: bool) -> None:
    async with bench(writes=[BIND, CONDITION, EVENT, *lease_rules(*LEASE)], forbidden={forbidden}) as world:
        await world.completed()
        first = len(world.server.reviewed())
        await world.clock.advance(300)

        text = f"missing permission: {problem}"
        assert world.problems() == [text]
        assert world.check.permissions() == (None if is_ready else text)
        assert world.said() == [("warning" if is_ready else "error", text)]
        assert len(world.server.reviewed()) == first + 5, "only missing permissions are reviewed again"


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
    rule: RbacRule, suffers: str, server: dict[str, Any]
) -> None:
    """The scheduler is ready, and pods without such needs are bound all the same; B-21 for events of claims."""
    async with bench(forbidden={(rule.verb, rule.resource)}, **server) as world:
        await world.completed()

        group = f" in group {rule.group}" if rule.group else ""
        problem = f"missing permission: {rule.verb} {rule.resource}{group}: {suffers}"
        assert world.problems() == [problem]
        assert (world.check.permissions(), world.check.minor(PERMISSIONS)) == (None, problem)
        assert world.said() == [("warning", problem)]


async def test_writes_of_kinds_that_are_not_served_are_not_reviewed() -> None:
    missing = {(rule.verb, rule.resource) for rule in DEVICE_RULES}
    async with bench(kinds=(POD, NODE, RESOURCE_CLAIM), writes=[BIND, *DEVICE_RULES], forbidden=missing) as world:
        await world.completed()

        problem = "not served: resourceclaims (resource.k8s.io/v1): pods that need devices stay pending"
        assert world.problems() == [problem]


async def test_permissions_of_the_endpoints_are_optional() -> None:
    """The ConfigMap of the client CA is reviewed by name, and the daemon is ready without these permissions."""
    rules = [*SERVING_RULES, CLIENT_CA_RULE]
    async with bench(writes=rules, forbidden={(rule.verb, rule.resource) for rule in rules}) as world:
        await world.completed()

        name = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
        assert world.server.reviewed()[1:4] == [
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


async def test_capacity_that_is_not_served_is_said_once() -> None:
    """D5: one warning, and the daemon is ready."""
    async with bench(kinds=(POD, NODE, CAPACITY)) as world:
        await world.completed()

        suffers = "volumes are placed without a check of the capacity"
        problem = f"not served: csistoragecapacities (storage.k8s.io/v1): {suffers}"
        assert (world.check.kinds_served(), world.check.minor(KINDS_SERVED)) == (None, problem)
        await world.clock.advance(300)
        assert world.said() == [("warning", problem)]


async def test_capacity_that_may_not_be_read_is_waited_for() -> None:
    """D8: it is served, and without it there would be overcommitment."""
    forbidden = {("list", "csistoragecapacities")}
    storage = serves("csistoragecapacities")
    async with bench(kinds=(POD, NODE, CAPACITY), storage=storage, forbidden=forbidden) as world:
        await world.completed()

        problem = "missing permission: list csistoragecapacities in group storage.k8s.io"
        assert world.check.permissions() == problem


async def test_a_missing_permission_stays_missing_while_the_server_is_away() -> None:
    async with bench(forbidden={("create", "pods/binding")}) as world:
        await world.completed()
        world.server.trouble = Unavailable("away")
        await world.clock.advance(60)

        assert world.check.permissions() == "missing permission: create pods/binding"
        assert len(world.said()) == 1


async def test_a_server_that_cannot_be_reached_is_logged_by_discovery_alone() -> None:
    away = Unavailable("cannot connect to 10.0.0.1:6443: Connection refused")
    async with bench(core=away, trouble=away) as world:
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
async def test_failed_reviews_are_one_finding_and_the_daemon_is_ready(trouble: bytes | ApiError, said: str) -> None:
    async with bench(trouble=trouble) as world:
        await world.completed()

        (problem,) = world.problems()
        assert problem.startswith(f"permissions could not be checked: {said}")
        assert world.check.permissions() is None
        assert [level for level, _ in world.said()] == ["warning"]

        world.server.trouble = None
        await world.clock.advance(60)
        await asyncio.wait_for(world.running, 60)
        assert world.problems() == []


async def test_a_kind_that_is_not_served_is_named_and_needs_no_permission() -> None:
    async with bench(kinds=[POD, NODE, SET], core=serves("pods")) as world:
        await world.completed()

        assert world.problems() == ["not served: nodes (v1)", "not served: replicasets (apps/v1)"]
        assert world.check.kinds_served() == "not served: nodes (v1)"
        assert world.check.permissions() is None
        assert world.said() == [("error", "not served: nodes (v1)"), ("warning", "not served: replicasets (apps/v1)")]
        assert {each["resource"] for each in world.server.reviewed()} == {"pods"}


async def test_a_kind_that_appears_is_reviewed_then() -> None:
    async with bench(kinds=[POD, NODE, SET], forbidden={("watch", "replicasets")}) as world:
        await world.completed()
        world.server.by_path["/apis/apps/v1"] = serves("replicasets")
        await world.clock.advance(120)

        assert world.problems() == ["missing permission: watch replicasets in group apps"]


async def test_until_discovery_has_answered_nothing_is_known() -> None:
    async with bench(core=Unavailable("connection refused")) as world:
        await world.clock.advance(5)

        assert world.check.kinds_served() == "connection refused"
        assert world.check.permissions() == "not checked yet"
        assert len(world.server.reviewed()) == 2


async def test_a_standby_without_informers_reports_the_lease() -> None:
    """Discovery waits for the lead, and the lead for a permission: that must not be a riddle. Given, it is noticed."""
    forbidden = {("create", "leases")}
    async with bench(core=Unavailable("not called"), writes=[BIND, *lease_rules(*LEASE)], forbidden=forbidden) as world:
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
