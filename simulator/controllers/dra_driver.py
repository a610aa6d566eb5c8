"""A DRA driver, which answers claims by the binding conditions of allocated devices (docs/spec/dra.md §3.11)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers.controller import Actor, Key, Object, key_of, read

_CLAIMS: Final = "resourceclaims"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class DRADriver(Actor):
    """The driver named `driver`. It sets all binding conditions of a device `delay_s` after the allocation."""

    component = "dra-driver"
    resources = (_CLAIMS,)

    def __init__(self, server: ApiServer, driver: str, *, clock: Clock | None = None, delay_s: float = 0) -> None:
        self.driver = driver
        self._delay_s = delay_s
        super().__init__(server, clock=clock)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _CLAIMS and type_ != "DELETED" and any(self._waiting(obj)):
            self._note(key_of(_CLAIMS, obj), self._delay_s)

    def _handle(self, key: Key) -> None:
        _, namespace, name = key
        claim = self._server.find(_CLAIMS, name, namespace)
        if claim is not None:
            self._answer(claim)

    def _waiting(self, claim: Object) -> Iterator[Object]:
        """Yield the results for devices of this driver that have binding conditions, and no condition yet."""
        if read(ResourceClaim, claim) is None:
            return
        status = claim.get("status") or {}
        told = [id_of(each) for each in status.get("devices") or () if each.get("conditions")]
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            if result["driver"] == self.driver and result.get("bindingConditions") and id_of(result) not in told:
                yield result

    def _answer(self, claim: Object) -> None:
        answers = ((result, self._conditions(claim, result)) for result in self._waiting(claim))
        said = [id_of(result) | {"conditions": conditions} for result, conditions in answers if conditions]
        if said:
            status, ids = claim["status"], [id_of(each) for each in said]
            others = [each for each in status.get("devices") or () if id_of(each) not in ids]
            claim["status"] = status | {"devices": [*others, *said]}
            self._server.update(_CLAIMS, claim, subresource="status")

    def _conditions(self, claim: Object, result: Object) -> list[Object]:
        """Return the conditions with which the driver answers for a device; none for no answer."""
        return self._true(result["bindingConditions"], "Prepared")

    def _true(self, types: Sequence[str], reason: str, message: str = "") -> list[Object]:
        now = dt.datetime.fromtimestamp(self._clock.wall(), dt.UTC).strftime(_TIME)
        rest = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        return [{"type": each} | rest for each in types]


def id_of(result: Object) -> Object:
    """Return the fields that name a device, in a result or in a status."""
    return {key: result[key] for key in ("driver", "pool", "device", "shareID") if result.get(key)}
