"""Faults on demand: what can go wrong between a client and its server, scripted and counted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from scheduler.testing.apiserver.status import Refused

Reset = Literal["", "before", "after"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule matches: `verb` as in RBAC (`create`, `watch` …), `resource` as in paths (`pods`)."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(slots=True)
class Fault:
    """One rule. Empty fields match everything; `times` None means always. `hits` counts how often it struck.

    `status` answers with that code before anything happens (`retry_after_s` with a 429); `reset` closes the connection
    before the request is carried out, or after it is and before the answer; `delay_s` waits first, on the clock.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    subresource: str | None = None
    status: int = 0
    retry_after_s: int = 1
    reset: Reset = ""
    delay_s: float = 0
    times: int | None = 1
    probability: float = 1
    hits: int = 0

    def matches(self, request: Request) -> bool:
        """Whether it is meant, leaving chance aside."""
        return (
            (self.times is None or self.hits < self.times)
            and self.verb in {"", request.verb}
            and self.resource in {"", request.resource}
            and self.name in {"", request.name}
            and self.subresource in {None, request.subresource}
        )


class Faults:
    """The rules of one server, in the order they were added; the first that matches strikes."""

    def __init__(self, rng: random.Random) -> None:
        self.rules: list[Fault] = []
        self._random = rng

    def add(self, fault: Fault) -> Fault:
        """From the next request on. Returns the rule, to read its `hits`."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """No more faults."""
        self.rules.clear()

    def strike(self, request: Request) -> Fault | None:
        """The rule that strikes this request, counted."""
        for rule in self.rules:
            if rule.matches(request) and (rule.probability >= 1 or self._random.random() < rule.probability):
                rule.hits += 1
                return rule
        return None


def refusal(fault: Fault) -> Refused:
    """The answer of a rule with a status."""
    if fault.status == 429:
        why = "the server has received too many requests and has asked us to try again later"
        details = {"retryAfterSeconds": fault.retry_after_s}
        return Refused(429, "TooManyRequests", why, details=details, retry_after_s=fault.retry_after_s)
    if fault.status == 409:
        return Refused(409, "Conflict", "Operation cannot be fulfilled: injected fault", details={})
    reason = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 403: "Forbidden", 401: "Unauthorized"}
    return Refused(fault.status, reason.get(fault.status, ""), "injected fault", details={})
