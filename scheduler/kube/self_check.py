"""Check at start which permissions and kinds are missing.

Each missing one is a finding, in the log once and in /readyz while it lasts, as a failure if no pod can be bound
without it. Missing ones are checked again once a minute, so that a later permission is noticed. Granted ones are not
checked again: their users report a refusal. The reviews are POSTs that store nothing and that every authenticated
user may send, so they need no RBAC rule. Rules: docs/spec/core.md §8.2, row 223.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import ApiError, Unavailable
from scheduler.kube.authz import ACCESS_REVIEW, CLIENT_CA_NAME, CLIENT_CA_NAMESPACE, CLIENT_CA_RULES, SERVING_RULES
from scheduler.kube.resources import LACKING, NEEDED, RESOURCE_CLAIM, SPARED, Discovery, KindSpec
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import (
    CLAIM_EVENT_RULES,
    DEVICE_RULES,
    EVICTION_RULES,
    EXTENDED_RESOURCE_RULES,
    LEASE_RULES,
    OTHER_LEASE_RULES,
    VOLUME_RULES,
    RbacRule,
)

_log = structlog.get_logger(__name__)

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PERMISSIONS: Final = "permissions"
KINDS_SERVED: Final = "kinds-served"
AGAIN_S: Final = 60.0
_AT_ONCE: Final = 8
_NEEDED_WRITES: Final = frozenset({"pods/binding"})
"""Without these no pod is bound. Any other missing permission costs an event, a condition, or one type of pod."""
_READ_POD: Final = RbacRule("", "pods", "get")
"""Settles a binding whose answer was lost (`ApiWriter.read_pod`); a list permission does not include it."""
_SUFFERS: Final[Mapping[RbacRule, str]] = {
    _READ_POD: "a Binding whose response is lost reserves its resources until the watch shows the pod",
    **dict.fromkeys(EVICTION_RULES, "preemption evicts no pods"),
    **dict.fromkeys(VOLUME_RULES, "pods whose volumes are yet to be bound stay pending"),
    **dict.fromkeys(DEVICE_RULES, "pods whose devices are yet to be allocated stay pending"),
    **dict.fromkeys(EXTENDED_RESOURCE_RULES, "pods with extended resources of device classes stay pending"),
    **dict(zip(SERVING_RULES, ("the endpoints accept no bearer tokens", "the endpoints admit only system:masters"))),
    **dict.fromkeys(CLIENT_CA_RULES, "the endpoints accept no client certificates"),
    **dict.fromkeys(OTHER_LEASE_RULES, "another scheduler of the same name is not noticed"),
    **dict.fromkeys(CLAIM_EVENT_RULES, "events of provisioners are not quoted when a volume takes long"),
}
_PLACES: Final[Mapping[RbacRule, tuple[str, str]]] = dict.fromkeys(
    CLIENT_CA_RULES, (CLIENT_CA_NAMESPACE, CLIENT_CA_NAME)
)
"""Namespace and name of the object of a rule, if it concerns one object."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something missing. `is_needed`: without it no pod can be bound, and the daemon is not ready."""

    check: str
    problem: str
    is_needed: bool
    is_unreachable: bool = False
    """Whether the API server could not be reached, which discovery logs."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A permission to check, in all namespaces and for any object unless given."""

    rule: RbacRule
    is_needed: bool
    namespace: str = ""
    name: str = ""
    suffers: str = ""
    """The effect of a missing permission, if it is not obvious."""

    @property
    def missing(self) -> Finding:
        rule = self.rule
        where = f" in group {rule.group}" if rule.group else ""
        where += f" in namespace {self.namespace}" if self.namespace else ""
        where += _colon(self.suffers)
        return Finding(PERMISSIONS, f"missing permission: {rule.verb} {rule.resource}{where}", self.is_needed)

    @property
    def body(self) -> bytes:
        resource, _, subresource = self.rule.resource.partition("/")
        asked = {
            "namespace": self.namespace,
            "verb": self.rule.verb,
            "group": self.rule.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
        }
        return msgspec.json.encode(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
            }
        )


def _colon(text: str) -> str:
    return f": {text}" if text else ""


@dataclass(eq=False, repr=False)
class SelfCheck:
    """Check until nothing is missing. Never fails: an unanswered check is a finding too."""

    transport: Transport
    clock: Clock
    discovery: Discovery
    kinds: Collection[KindSpec]
    writes: Collection[RbacRule]
    lease: tuple[str, str] | None
    """Namespace and name of the Lease of leader election. Its permissions are granted in its namespace only."""

    def __post_init__(self) -> None:
        self._granted: set[_Question] = set()
        self._denied: set[_Question] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._has_asked = False
        """Whether all was checked: until discovery has answered, the permissions for its kinds are unknown."""
        self._logged: tuple[Finding, ...] = ()
        self.findings: tuple[Finding, ...] = ()

    async def run(self) -> None:
        """Return when nothing is missing. Checks without discovery run first, because a standby may wait for it."""
        while True:
            is_complete = self.discovery.answered.is_set()
            found = tuple(dict.fromkeys([*self._absent(), *await self._forbidden()]))
            self._conclude(found)
            self._has_asked = is_complete
            if is_complete and not found:
                return
            if is_complete:
                await self.clock.sleep(AGAIN_S)
            else:
                await done_within(self.clock, self.discovery.answered.wait(), AGAIN_S)

    def change(self, *, kinds: Collection[KindSpec], writes: Collection[RbacRule]) -> None:
        """Check these from the next round on; if `run` has returned, start it again."""
        self.kinds, self.writes = kinds, writes

    def permissions(self) -> str | None:
        """Return text for /readyz: missing permissions without which no pod can be bound."""
        return self._wrong(PERMISSIONS)

    def kinds_served(self) -> str | None:
        """Return text for /readyz: missing kinds without which no pod can be bound."""
        if not self.discovery.answered.is_set():
            return self.discovery.last_error or "not checked yet"
        return self._wrong(KINDS_SERVED)

    def minor(self, check: str) -> str:
        """Return what is missing without an effect on readiness; "" if nothing is."""
        return "; ".join(f.problem for f in self.findings if f.check == check and not f.is_needed)

    def _wrong(self, check: str) -> str | None:
        problems = "; ".join(f.problem for f in self.findings if f.check == check and f.is_needed)
        return problems or (None if self._has_asked else "not checked yet")

    # -- what is missing ---------------------------------------------------------------------------------------------

    def _absent(self) -> list[Finding]:
        if not self.discovery.answered.is_set():
            return []
        absent = [spec for spec in self.kinds if spec.name in self.discovery.missing]
        return [
            Finding(
                KINDS_SERVED,
                f"not served: {spec.plural} ({spec.group_versions[0]}){_colon(LACKING.get(spec.name, ''))}",
                spec.name in NEEDED,
            )
            for spec in absent
        ]

    async def _forbidden(self) -> list[Finding]:
        """Return one finding per missing permission, and one per cause of unanswered checks."""
        questions = [question for question in self._questions() if question not in self._granted]
        answers = await asyncio.gather(*(self._checked(question) for question in questions))
        return [finding for finding in answers if finding is not None]

    def _questions(self) -> list[_Question]:
        """Return the permissions to check. A server without device claims needs no permission to write them.

        Every served kind that is not spared must be listed before the first decision.
        """
        served = [spec for spec in self.kinds if spec.name in self.discovery.served]
        return [
            *(
                _Question(
                    RbacRule(spec.group, spec.plural, verb), spec.name not in SPARED, suffers=SPARED.get(spec.name, "")
                )
                for spec in served
                for verb in ("list", "watch")
            ),
            *(
                _Question(
                    rule, rule.resource in _NEEDED_WRITES, *_PLACES.get(rule, ("", "")), suffers=_SUFFERS.get(rule, "")
                )
                for rule in (_READ_POD, *self.writes)
                if rule not in (*DEVICE_RULES, *EXTENDED_RESOURCE_RULES) or RESOURCE_CLAIM.name in self.discovery.served
            ),
            *self._lease_questions(),
        ]

    def _lease_questions(self) -> list[_Question]:
        """Return the permissions for the lease. A permission to create cannot be limited to a name; the rest can."""
        if self.lease is None:
            return []
        namespace, name = self.lease
        return [_Question(rule, True, namespace, "" if rule.verb == "create" else name) for rule in LEASE_RULES]

    async def _checked(self, question: _Question) -> Finding | None:
        async with self._room:
            try:
                review = ACCESS_REVIEW.decode(await self.transport.write("POST", REVIEWS, question.body))
            except ApiError as error:
                is_unreachable = isinstance(error, Unavailable) and not error.status
                return self._unasked(question, error.message, is_unreachable=is_unreachable)
            except (msgspec.DecodeError, ValueError) as error:
                return self._unasked(question, str(error))
        if not review.status.allowed:
            self._denied.add(question)
            return question.missing
        self._granted.add(question)
        return None

    def _unasked(self, question: _Question, why: str, *, is_unreachable: bool = False) -> Finding:
        """Return the finding for an unanswered check. A denied permission stays denied until an answer."""
        if question in self._denied:
            return question.missing
        return Finding(PERMISSIONS, f"permissions could not be checked: {why}", False, is_unreachable)

    def _conclude(self, found: tuple[Finding, ...]) -> None:
        self.findings = found
        if not self.discovery.answered.is_set():
            found = tuple(finding for finding in found if not finding.is_unreachable)
        before, self._logged = self._logged, found
        for finding in found:
            if finding not in before:
                say = _log.error if finding.is_needed else _log.warning
                say("self-check", check=finding.check, problem=finding.problem)
        for finding in before:
            if finding not in found:
                _log.info("self-check: resolved", check=finding.check, problem=finding.problem)
