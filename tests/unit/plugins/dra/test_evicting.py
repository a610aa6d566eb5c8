"""A field of a device refusal says whether an eviction may help, whatever its text is (docs/spec/dra.md §10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.api.podinfo import placed, pod_info
from scheduler.cycle import Unschedulable, run
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder, pod
from simulator.builders.devices import a_device, a_slice
from tests.unit.plugins.dra.trying import Trying

ASKS = a_claim("c").request("r", "A")
HELD = a_claim("h").request("r", "A").allocated(a_result("r", "a/n1/d")).reserved_for("lesser", "lesser")
TWICE = (a_device("nic"), a_device("nic"))


@pytest.mark.parametrize(("things", "says", "helps"), [
    pytest.param([], "cannot allocate all claims", True, id="the device is in use"),
    pytest.param([a_slice("n1", "b", *TWICE)], "invalid resource pools were encountered", True,
        id="another driver names a device twice"),
    pytest.param([a_slice("n9", "b", *TWICE).everywhere()], "invalid resource pools were encountered", True,
        id="another driver, whose pool all nodes see, names a device twice"),
    pytest.param([a_slice("n1", "b", a_device("nic")).of(2)], "cannot allocate all claims", True,
        id="another driver's pool is being updated"),
    pytest.param([a_slice("n1", "b", *TWICE), ASKS.request("s", "B")], "invalid resource pools were encountered", False,
        id="the claim also requests a device of the invalid pool"),
])  # fmt: skip
def test_a_pod_is_evicted_for_its_device(things: Sequence[Builder[Any]], says: str, *, helps: bool) -> None:
    """An eviction helps only if no other device is missing."""
    world = Trying(a_slice("n1", "a", a_device("d")), HELD, ASKS, *things)
    world.cluster.add_pod(placed(pod_info(pod("lesser").uid("lesser").claim("e", claim="h").typed()), "n1"))

    outcome = run(world.attempt("c"))

    assert isinstance(outcome, Unschedulable)
    assert [no.message for no in outcome.diagnosis.groups] == [says]
    assert ("n1" if helps else "") == (outcome.nominate or "")
    assert [victim.pod.metadata.name for victim in outcome.victims] == (["lesser"] if helps else [])
