"""Shared values of the extension point tests of DynamicResources: claims in all states, and short verdicts."""

from __future__ import annotations

from typing import Any

from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.framework.status import Code, Rejection, Skip
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from tests.unit.plugins.dra.served import ASKING

UU, U, ERR = Code.UNRESOLVABLE, Code.UNSCHEDULABLE, Code.ERROR
NO_DEVICES = (UU, "cannot allocate all claims")
NOT_HERE = (UU, "resourceclaim not available on the node")
HELD_ON_N1 = ASKING.allocated(a_result("r", "a/n1/d0"), on="n1")


def gates(*without: str) -> frozenset[str]:
    return DEVICE_GATES_ON - set(without)


def said(no: Rejection | Skip | None) -> Any:
    """Return `(code, text)`, Skip or None."""
    return (no.code, no.message) if isinstance(no, Rejection) else no


def claim_for_two(name: str = "c") -> ClaimBuilder:
    return a_claim(name).request("r", "A", count=2)
