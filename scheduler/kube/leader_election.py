"""Leader election on one Lease, and the search for other installations with the same scheduler names.

Protocol and timings are upstream's (docs/spec/core.md §7.4). There are never two leaders while clocks run equally
fast: a leader stops `renewDeadline` after it *sent* the last renewal that was answered, and a candidate waits for the
longer `leaseDuration` after it last *saw* the record change. No clock is compared with another; the times in the
record are for people. Deleting the lease or editing its holder breaks this: it is free at once, and the old leader
notices at its next renewal.

Stricter than upstream: the deadline counts from the renewal, not from the first failure, and a leader that sees
another holder stops at once. Knows nothing of what a leader does.

A leader marks its Lease with a label and with its scheduler names. Before a daemon acts, it lists the marked Leases,
because two daemons with one scheduler name would take the same pods. A Lease is alive if its record changes within
its duration. Tenants may write Leases in their namespaces, so a daemon in a cluster trusts only those in
`kube-system` and in the namespace of its Lease, and reports the rest. A daemon outside of a cluster trusts all of
them. The two namespaces are listed by themselves, so that no number of Leases elsewhere hides one there.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from scheduler.api.meta import micros
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Invalid, NotFound, Unauthorized, Unavailable
from scheduler.kube.wire import Transport, page_of
from scheduler.kube.writes.api_writer import LABEL, Lease, LeaseSpec, LeaseWriter, names_in, one_of_many

_log = structlog.get_logger(__name__)

T = TypeVar("T")

WATCHDOG_S: Final = 20.0
"""A process that still claims to lead this long after the lease expired is not healthy."""
_JITTER: Final = 1.2
"""As client-go: a candidate waits for one retry period and up to this factor."""
_RELEASED_S: Final = 1
_RELEASE_TRIES: Final = 3
_LEAST_WAIT_S: Final = 0.01
_NEVER: Final = -math.inf
_LASTING: Final = (Forbidden, Unauthorized, Invalid)
"""Errors that need a person."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The configuration ensures leaseDuration > renewDeadline > 1.2 * retryPeriod."""

    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    @property
    def request_s(self) -> float:
        """As client-go: one hanging request must not cost the lead."""
        return max(1.0, self.renew_deadline_s / 2)


class LeaseLost(Exception):
    """This process led and no longer does. The message has the reason."""


class Elector:
    """Candidate for one Lease: `acquire`, then `hold`, in one task.

    Call `is_leading` anywhere on the loop, and `resign` after that task.

    Upstream: staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go LeaderElector
    """

    def __init__(
        self, leases: LeaseWriter, clock: Clock, rng: random.Random, *, identity: str, timing: LeaseTiming
    ) -> None:
        self.identity = identity
        self.lease: Lease | None = None
        """The lease as the last answer to a write showed it."""
        self.refused = ""
        """The reason why the lease cannot be acquired, if it needs a person."""
        self._leases = leases
        self._clock = clock
        self._rng = rng
        self._timing = timing
        self._until = _NEVER
        self._renewed_at: float | None = None
        self._has_led = False
        self._is_over = False
        self._has_written = False
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0
        self._trouble = ""
        self._log = _log.bind(lease=leases.key)

    def is_leading(self) -> bool:
        """Return whether this process leads now. It reads the clock, so it is right even if no timer could run."""
        return self._clock.now() < self._until

    def is_overdue(self) -> bool:
        """Return upstream's watchdog: whether this process should have renewed its lease, or ended."""
        if self._renewed_at is None or (self._is_over and not self._has_led):
            return False
        return self._clock.now() - self._renewed_at > self._timing.lease_duration_s + WATCHDOG_S

    async def acquire(self) -> None:
        """Wait until the lease is acquired. Never gives up; cancelling may leave a lease that `resign` releases."""
        period_s = self._timing.retry_period_s
        while not await self._try():
            await self._clock.sleep(period_s * (1 + _JITTER * self._rng.random()))

    async def hold(self) -> None:
        """Renew until that fails. Always raises LeaseLost; afterwards this elector never leads again."""
        assert self._renewed_at is not None
        tried_at = self._renewed_at
        while self.is_leading():
            # The interval counts from sending, unlike client-go: slow answers must not cost time for retries.
            due = min(tried_at + self._timing.retry_period_s, self._until)
            await self._clock.sleep(max(due - self._clock.now(), _LEAST_WAIT_S))
            tried_at = self._clock.now()
            if self.is_leading():
                await self._try()
        why = f": {self._trouble}" if self._trouble else ""
        raise self._lost(f"was not renewed within {self._timing.renew_deadline_s:g} s{why}")

    async def resign(self, *, gives_back: bool = True) -> None:
        """Stop leading, and release the lease so that the next leader need not wait. Never raises.

        Nothing is written if leadership was lost before, or without `gives_back`. Takes at most the renew deadline.
        """
        was_lost, self._is_over, self._until = self._is_over, True, _NEVER
        self._has_led = False
        if was_lost or not self._has_written or not gives_back:
            return
        end = self._clock.now() + self._timing.renew_deadline_s
        try:
            for _ in range(_RELEASE_TRIES):
                if await self._release(end):
                    return
        except ApiError as error:
            self._log.warning("lease not given back", error=error.message)

    # -- one try -----------------------------------------------------------------------------------------------------

    async def _try(self) -> bool:
        """Renew, take or create the lease; return whether it is ours now. Raises only LeaseLost."""
        try:
            is_ours = await self._renew_or_take()
        except ApiError as error:
            self._note(error)
            return False
        self.refused = self._trouble = ""
        return is_ours

    async def _renew_or_take(self) -> bool:
        """Write as client-go: a leader overwrites its last record, and reads only if that fails."""
        end = self._until if self._has_led else math.inf
        if self._has_led and self.lease is not None:
            try:
                return await self._put(self.lease, end)
            except ApiError as error:
                self._log.debug("lease not renewed at once", error=error.message)
        seen = await self._within(self._leases.read_lease(), end)
        if seen is None:
            return await self._make(end)
        self._observe(seen.record)
        return self._may_take() and await self._put(seen, end)

    def _may_take(self) -> bool:
        """Return whether the record is free, ours, or expired. Raises LeaseLost if it was ours."""
        assert self._seen is not None
        holder = self._seen.holder
        if self._has_led and holder != self.identity:
            raise self._lost(f"is held by {holder}" if holder else "was released by another client")
        if holder in {"", self.identity}:
            return True
        lasts_s = self._seen.lease_duration_seconds or self._timing.lease_duration_s
        return self._clock.now() - self._seen_at >= lasts_s

    async def _make(self, end: float) -> bool:
        sent_at, wall = self._clock.now(), micros(self._clock.wall())
        self._has_written = True
        try:
            lease = await self._within(self._leases.create_lease(self._record(wall, wall, 0)), end)
        except NotFound as error:  # the namespace was not found
            raise Invalid(f"it cannot be created: {error.message}", status=error.status) from error
        return self._won(lease, sent_at)

    async def _put(self, seen: Lease, end: float) -> bool:
        sent_at, wall = self._clock.now(), micros(self._clock.wall())
        before = seen.record
        if before.holder == self.identity:
            record = self._record(wall, before.acquire_time or wall, before.transitions)
        else:
            record = self._record(wall, wall, before.transitions + 1)
        self._has_written = True
        return self._won(await self._within(self._leases.patch_lease(seen, record), end), sent_at)

    def _record(self, renewed: str, acquired: str, transitions: int) -> LeaseSpec:
        """Return the record. For other candidates it must not end before our deadline: the duration is rounded up."""
        lasts_s = math.ceil(self._timing.lease_duration_s)
        return LeaseSpec(self.identity, lasts_s, acquired, renewed, transitions)

    def _won(self, lease: Lease, sent_at: float) -> bool:
        """Take over the answer to our write, unless it came too late."""
        if self._has_led and not self.is_leading():
            raise self._lost("was renewed too late")
        until = sent_at + self._timing.renew_deadline_s
        if self._is_over or self._clock.now() >= until:
            return False
        self.lease, self._until, self._renewed_at = lease, until, sent_at
        self._has_led = True
        self._observe(lease.record)
        return True

    def _observe(self, record: LeaseSpec) -> None:
        """Store a record. Any change makes it new; the time without changes is measured here, not read from it."""
        if record == self._seen:
            return
        if self._seen is None or record.holder != self._seen.holder:
            self._log.info("leader seen", holder=record.holder or "none", is_us=record.holder == self.identity)
        self._seen, self._seen_at = record, self._clock.now()

    # -- what can go wrong ---------------------------------------------------------------------------------------------

    async def _within(self, request: Coroutine[Any, Any, T], end: float) -> T:
        """Return the answer before `end`; otherwise raise `Ambiguous` and abandon the request."""
        limit_s = min(self._timing.request_s, end - self._clock.now())
        if limit_s <= 0:
            request.close()
            raise Unavailable("no time is left for a request")
        asking = asyncio.ensure_future(request)
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # it may be abandoned
        if not await done_within(self._clock, asking, limit_s):
            self._leases.reconnect()  # the connection may be dead
            raise Ambiguous(f"no answer within {limit_s:.1f} s")
        return asking.result()

    def _note(self, error: ApiError) -> None:
        """Log an error once. Transient errors are no refusal."""
        self.refused = error.message if isinstance(error, _LASTING) else ""
        if error.message == self._trouble:
            return
        self._trouble = error.message
        say = self._log.error if self.refused else self._log.debug if isinstance(error, Conflict) else self._log.warning
        say("lease neither renewed nor acquired", error=error.message, leads=self.is_leading())

    def _lost(self, why: str) -> LeaseLost:
        self._until = _NEVER
        self._is_over = True
        return LeaseLost(f"lease {self._leases.key} {why}")

    async def _release(self, end: float) -> bool:
        """Release the lease; return False if a renewal of ours came in between."""
        seen = await self._within(self._leases.read_lease(), end)
        if seen is None or seen.record.holder != self.identity:
            return True
        wall = micros(self._clock.wall())
        try:
            free = LeaseSpec("", _RELEASED_S, wall, wall, seen.record.transitions)
            await self._within(self._leases.patch_lease(seen, free), end)
        except Conflict:
            return False
        self._log.info("lease given back")
        return True


_API: Final = "/apis/coordination.k8s.io/v1"
_TRUSTED_NAMESPACE: Final = "kube-system"
_ALL_NAMESPACES: Final = ""
_LOOK_EVERY_S: Final = 2.0
_REQUEST_S: Final = 5.0
_TRIES: Final = 3
_USUAL_DURATION_S: Final = 15
_LONGEST_LOOK_S: Final = 60.0
_MANY: Final = "50"
"""Limit of marked Leases that one list returns: tenants may create any number."""
_LONGEST_TEXT: Final = 1024


class AnotherScheduler(LeaseLost):
    """Another process serves one of our scheduler names."""


@dataclass(slots=True)
class OtherLeases:
    """Other installations; call `check` before acting."""

    transport: Transport
    clock: Clock
    names: Collection[str]
    """The scheduler names that this daemon serves."""
    own: tuple[str, str] | None
    """Namespace and name of our Lease; None without leader election."""
    is_forced: bool = False
    """Whether to continue next to a live holder."""
    remark: str = ""
    """For /readyz: how many Leases with one of our scheduler names are not trusted. The log names them."""
    waits_for: str = ""
    """For /readyz: how many Leases are being checked for a renewal. The log names them."""

    async def check(self) -> None:
        """Raise AnotherScheduler if one is alive. Waits at most a minute, and only if a Lease may be alive.

        Without permission to list Leases, or without an answer, it logs that and returns.
        """
        trusted = {_TRUSTED_NAMESPACE, *(self.own[:1] if self.own is not None else ())}
        found = await self._lists({*trusted, _ALL_NAMESPACES})
        everywhere = found.pop(_ALL_NAMESPACES) or {}
        elsewhere = {key: lease for key, lease in everywhere.items() if lease.metadata.namespace not in trusted}
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            self._report(elsewhere)
        else:
            found[_ALL_NAMESPACES] = elsewhere
        believed = {namespace: leases for namespace, leases in found.items() if leases}
        try:
            alive = await self._alive(believed) if believed else ""
        finally:
            self.waits_for = ""
        if alive and not self.is_forced:
            raise AnotherScheduler(f"{alive}; stop one of them, give them different names, or start with --force")
        if alive:
            _log.warning("another scheduler serves the same names", why=alive)

    async def _alive(self, found: Mapping[str, Mapping[str, Lease]]) -> str:
        """Return which Lease is renewed within its duration; "" if none is. `found` has the namespace of each list."""
        began = self.clock.now()
        leases = {key: (lease, namespace) for namespace, some in found.items() for key, lease in some.items()}
        durations = {key: lease.record.lease_duration_seconds for key, (lease, _) in leases.items()}
        ends = {key: began + min(float(each or _USUAL_DURATION_S), _LONGEST_LOOK_S) for key, each in durations.items()}
        self.waits_for = f"looking whether other Leases with our scheduler names are renewed; number: {len(leases)}"
        _log.info("looking whether another scheduler is alive", leases=_shown(leases))
        while ends:
            await self.clock.sleep(_LOOK_EVERY_S)
            lists = await self._lists({leases[key][1] for key in ends})
            for key in list(ends):
                before, namespace = leases[key]
                now = lists[namespace]
                if now is not None and key in now and now[key].record != before.record:
                    names = ", ".join(sorted(names_in(now[key]) & set(self.names)))
                    return f"Lease {key} is held by {now[key].record.holder[:253]}, which serves {names}"
                if (now is not None and key not in now) or self.clock.now() >= ends[key]:
                    del ends[key]
        return ""

    async def _lists(self, namespaces: Collection[str]) -> dict[str, dict[str, Lease] | None]:
        """Return the answers of `_list` by namespace. The requests run concurrently."""
        return dict(zip(namespaces, await asyncio.gather(*map(self._list, namespaces)), strict=True))

    async def _list(self, namespace: str) -> dict[str, Lease] | None:
        """Return held Leases of other daemons with one of our names, by key; None if they cannot be listed."""
        query = {"labelSelector": LABEL, "limit": _MANY}
        path = f"{_API}/namespaces/{namespace}/leases" if namespace else f"{_API}/leases"
        for tries_left in reversed(range(_TRIES)):
            try:
                page = page_of(await self.transport.get(path, query=query, timeout_s=_REQUEST_S))
                break
            except ApiError as error:
                if not tries_left or isinstance(error, (Forbidden, Unauthorized)):
                    _log.warning(
                        "leases not listed: another scheduler of the same name is not noticed",
                        namespace=namespace or "all",
                        error=error.message,
                    )
                    return None
                await self.clock.sleep(_LOOK_EVERY_S)
        leases = filter(None, map(one_of_many, page.items or ()))
        return {lease.metadata.key: lease for lease in leases if self._concerns(lease)}

    def _concerns(self, lease: Lease) -> bool:
        is_own = (lease.metadata.namespace, lease.metadata.name) == self.own
        return not is_own and bool(lease.record.holder) and not names_in(lease).isdisjoint(self.names)

    def _report(self, keys: Collection[str]) -> None:
        self.remark = f"other Leases name our scheduler names, and are not trusted; number: {len(keys)}" if keys else ""
        if keys:
            _log.warning("another scheduler may serve the same names", leases=_shown(keys))


def _shown(keys: Collection[str]) -> str:
    return ", ".join(sorted(keys))[:_LONGEST_TEXT]
