"""Faults on demand: what can go wrong between a client and its server, scripted and counted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from simulator.apiserver.status import Refused

Reset = Literal["", "before", "after"]
End = Literal["end", "reset", "gone"]
"""How a watch is cut: the response ends, the connection is reset, or an ERROR event with code 410 ends the stream."""
ENDS: Final[tuple[End, ...]] = ("end", "reset", "gone")


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule matches: `verb` as in RBAC (`create`, `watch` …), `resource` as in paths (`pods`)."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class WatchFault:
    """Watches live for a time between the two of `lives_s`, then end in one of `ends`, with what is queued left unsent.

    A share of the events, `late`, is sent after a delay between the two of `late_s`; all later events wait behind them.
    """

    lives_s: tuple[float, float]
    ends: tuple[End, ...] = ENDS
    late: float = 0.0
    late_s: tuple[float, float] = (1.0, 4.0)


@dataclass(slots=True)
class Fault:
    """One rule. Empty fields match everything; `times` None means always. `hits` counts how often it struck.

    `status` answers with that code before anything happens (`retry_after_s` with a 429); `reset` closes the connection
    before the request is carried out, or after it is and before the answer; `delay_s` waits first, on the clock.
    `body` is answered with code 200 and nothing is carried out; `watch` is what a watch suffers once it is open.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    subresource: str | None = None
    status: int = 0
    retry_after_s: int = 1
    reset: Reset = ""
    delay_s: float = 0
    body: bytes | None = None
    watch: WatchFault | None = None
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
        self.rng = rng

    def add(self, fault: Fault) -> Fault:
        """From the next request on. Returns the rule, to read its `hits`."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """No more faults."""
        self.rules.clear()

    def strike(self, request: Request) -> Fault | None:
        """Return the rule that strikes this request, counted."""
        for rule in self.rules:
            if rule.matches(request) and (rule.probability >= 1 or self.rng.random() < rule.probability):
                rule.hits += 1
                return rule
        return None


def refusal(fault: Fault) -> Refused:
    """Return the answer of a rule with a status."""
    if fault.status == 429:
        why = "the server has received too many requests and has asked us to try again later"
        details = {"retryAfterSeconds": fault.retry_after_s}
        return Refused(429, "TooManyRequests", why, details=details, retry_after_s=fault.retry_after_s)
    if fault.status == 409:
        return Refused(409, "Conflict", "Operation cannot be fulfilled: injected fault", details={})
    reason = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 403: "Forbidden", 401: "Unauthorized"}
    return Refused(fault.status, reason.get(fault.status, ""), "injected fault", details={})
