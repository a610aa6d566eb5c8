"""Leases under which another Kubestow serves the same scheduler names: two of them would take the same pods.

A leader marks its Lease with a label and with the names that it serves. Before a daemon acts it lists the marked Leases. The
clocks of two machines are not compared: a Lease is alive if its record changes within its own duration.

Tenants may write Leases in their namespaces, so a daemon in a cluster believes only those in `kube-system` and beside its own.
Others are reported. A daemon outside, which a person has started, believes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Forbidden, Unauthorized
from scheduler.kube.envelopes import page_of
from scheduler.kube.lease import LeaseLost
from scheduler.kube.leasebody import LABEL, Lease, names_in, one_of_many
from scheduler.kube.wire import Transport

_log = structlog.get_logger(__name__)

_PATH: Final = "/apis/coordination.k8s.io/v1/leases"
_TRUSTED_NAMESPACE: Final = "kube-system"
_LOOK_EVERY_S: Final = 2.0
_REQUEST_S: Final = 5.0
_TRIES: Final = 3
_USUAL_DURATION_S: Final = 15
_LONGEST_LOOK_S: Final = 60.0
_MANY: Final = "50"
"""Marked Leases that are looked at: tenants may make any number."""
_LONGEST_TEXT: Final = 1024


class AnotherScheduler(LeaseLost):
    """Another process serves one of our scheduler names."""


@dataclass(slots=True)
class OtherLeases:
    """`check` before acting."""

    transport: Transport
    clock: Clock
    names: Collection[str]
    """The scheduler names that this daemon serves."""
    own: tuple[str, str] | None
    """Namespace and name of our Lease; None without leader election."""
    is_forced: bool = False
    """Go on beside a live holder."""
    remark: str = ""
    """For /readyz: Leases that name one of our scheduler names and are not believed."""
    waits_for: str = ""
    """While it is looked at whether a Lease is renewed: that, for /readyz."""

    async def check(self) -> None:
        """Raise AnotherScheduler if one is alive. Waits, for at most a minute, only where a Lease may be alive.

        Without the right to list Leases, or without an answer, it logs that and returns.
        """
        found = await self._list() or {}
        believed = {key: lease for key, lease in found.items() if self._is_believed(key)}
        self._report([key for key in found if key not in believed])
        try:
            alive = await self._alive(believed) if believed else ""
        finally:
            self.waits_for = ""
        if alive and not self.is_forced:
            raise AnotherScheduler(f"{alive}; stop one of them, give them different names, or start with --force")
        if alive:
            _log.warning("another scheduler serves the same names", why=alive)

    async def _alive(self, leases: Mapping[str, Lease]) -> str:
        """Say which of them changes while it is looked at; "" if none does within its duration."""
        began = self.clock.now()
        ends = {key: began + _duration_s(lease) for key, lease in leases.items()}
        self.waits_for = f"looking whether it is renewed: Lease {_shown(leases)}"
        _log.info("looking whether another scheduler is alive", leases=_shown(leases))
        while ends:
            await self.clock.sleep(_LOOK_EVERY_S)
            now = await self._list()
            for key in list(ends):
                if now is not None and key in now and now[key].record != leases[key].record:
                    names = ", ".join(sorted(names_in(now[key]) & set(self.names)))
                    return f"Lease {key} is held by {now[key].record.holder[:253]}, which serves {names}"
                if (now is not None and key not in now) or self.clock.now() >= ends[key]:
                    del ends[key]
        return ""

    async def _list(self) -> dict[str, Lease] | None:
        """Marked Leases of others that are held and name one of ours, by `namespace/name`; None if they cannot be had."""
        query = {"labelSelector": LABEL, "limit": _MANY}
        for left in reversed(range(_TRIES)):
            try:
                page = page_of(await self.transport.get(_PATH, query=query, timeout_s=_REQUEST_S))
                break
            except ApiError as error:
                if not left or isinstance(error, (Forbidden, Unauthorized)):
                    _log.warning(
                        "leases not listed: another scheduler of the same name is not noticed", error=error.message
                    )
                    return None
                await self.clock.sleep(_LOOK_EVERY_S)
        leases = filter(None, map(one_of_many, page.items or ()))
        return {lease.metadata.key: lease for lease in leases if self._concerns(lease)}

    def _concerns(self, lease: Lease) -> bool:
        is_own = (lease.metadata.namespace, lease.metadata.name) == self.own
        return not is_own and bool(lease.record.holder) and not names_in(lease).isdisjoint(self.names)

    def _is_believed(self, key: str) -> bool:
        namespace = key.partition("/")[0]
        trusted = {_TRUSTED_NAMESPACE, self.own[0] if self.own is not None else ""}
        return namespace in trusted or "KUBERNETES_SERVICE_HOST" not in os.environ

    def _report(self, keys: Collection[str]) -> None:
        self.remark = f"Leases that name our scheduler names: {_shown(keys)}" if keys else ""
        if keys:
            _log.warning("another scheduler may serve the same names", leases=_shown(keys))


def _shown(keys: Collection[str]) -> str:
    return ", ".join(sorted(keys))[:_LONGEST_TEXT]


def _duration_s(lease: Lease) -> float:
    return min(float(lease.record.lease_duration_seconds or _USUAL_DURATION_S), _LONGEST_LOOK_S)
