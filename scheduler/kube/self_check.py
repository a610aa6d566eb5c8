"""Check at start which permissions and kinds are missing.

Each missing one is a finding, in the log once and in /readyz while it lasts, as a failure if no pod can be bound
without it. Missing ones are checked again once a minute, so that a later permission is noticed. Granted ones are not
checked again: their users report a refusal. The reviews are POSTs that store nothing and that every authenticated
user may send, so they need no RBAC rule. Rules: docs/spec/core.md §8.2, row 223.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import ApiError, Unavailable
from scheduler.kube.resources import RESOURCE_CLAIM, Discovery, KindSpec
from scheduler.kube.wire import Transport
from scheduler.kube.writes.permissions import DEVICE_RULES, EXTENDED_RESOURCE_RULES, READ_POD_RULE, RbacRule

_log = structlog.get_logger(__name__)

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PERMISSIONS: Final = "permissions"
KINDS_SERVED: Final = "kinds-served"
AGAIN_S: Final = 60.0
_AT_ONCE: Final = 8


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


ACCESS_REVIEW: Final = msgspec.json.Decoder(_AccessReview)
"""Answers of access reviews: of this process here, of callers of the endpoints in `server.reviews`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something missing. `is_needed`: without it no pod can be bound, and the daemon is not ready."""

    check: str
    problem: str
    is_needed: bool
    is_unreachable: bool = False
    """Whether the API server could not be reached, which discovery logs."""


def _missing(rule: RbacRule) -> Finding:
    where = f" in group {rule.group}" if rule.group else ""
    where += f" in namespace {rule.namespace}" if rule.namespace else ""
    return Finding(
        PERMISSIONS, f"missing permission: {rule.verb} {rule.resource}{where}{_colon(rule.effect)}", rule.is_needed
    )


def _review(rule: RbacRule) -> bytes:
    resource, _, subresource = rule.resource.partition("/")
    asked = {
        "namespace": rule.namespace,
        "verb": rule.verb,
        "group": rule.group,
        "resource": resource,
        "subresource": subresource,
        "name": rule.name,
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

    def __post_init__(self) -> None:
        self._granted: set[RbacRule] = set()
        self._denied: set[RbacRule] = set()
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
        # Groups, for example, are in few clusters, and nothing suffers without them.
        missed = [spec for spec in self.kinds if spec.effect or not spec.is_optional]
        absent = [spec for spec in missed if spec.name in self.discovery.missing]
        return [
            Finding(
                KINDS_SERVED,
                f"not served: {spec.plural} ({spec.group_versions[0]}){_colon(spec.effect)}",
                spec.is_needed,
            )
            for spec in absent
        ]

    async def _forbidden(self) -> list[Finding]:
        """Return one finding per missing permission, and one per cause of unanswered checks."""
        rules = [rule for rule in self._rules() if rule not in self._granted]
        answers = await asyncio.gather(*(self._checked(rule) for rule in rules))
        return [finding for finding in answers if finding is not None]

    def _rules(self) -> list[RbacRule]:
        """Return the permissions to check. A server without device claims needs no permission to write them.

        Every served kind that is not spared must be listed before the first decision.
        """
        served = [spec for spec in self.kinds if spec.name in self.discovery.served]
        claims = set() if RESOURCE_CLAIM.name in self.discovery.served else {*DEVICE_RULES, *EXTENDED_RESOURCE_RULES}
        return [
            *(spec.permission(verb) for spec in served for verb in ("list", "watch")),
            *(rule for rule in (READ_POD_RULE, *self.writes) if rule not in claims),
        ]

    async def _checked(self, rule: RbacRule) -> Finding | None:
        async with self._room:
            try:
                review = ACCESS_REVIEW.decode(await self.transport.write("POST", REVIEWS, _review(rule)))
            except ApiError as error:
                is_unreachable = isinstance(error, Unavailable) and not error.status
                return self._unasked(rule, error.message, is_unreachable=is_unreachable)
            except (msgspec.DecodeError, ValueError) as error:
                return self._unasked(rule, str(error))
        if not review.status.allowed:
            self._denied.add(rule)
            return _missing(rule)
        self._granted.add(rule)
        return None

    def _unasked(self, rule: RbacRule, why: str, *, is_unreachable: bool = False) -> Finding:
        """Return the finding for an unanswered check. A denied permission stays denied until an answer."""
        if rule in self._denied:
            return _missing(rule)
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
