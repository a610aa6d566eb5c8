"""The conflict check accepts the result of a search while no other scheduler writes (§4.8, §4.9, §10.5).

Otherwise the pod would never run.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings, strategies as st
from msgspec.structs import replace

from scheduler.api.resource_v1 import ResourceClaim
from scheduler.plugins.dra.binding.device_conflicts import DeviceConflicts
from scheduler.plugins.dra.structured.allocation_result import results
from scheduler.plugins.dra.structured.allocator import AllocationError, FailedOnNode
from simulator.builders.claims import a_claim
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup
from tests.unit.plugins.dra.random_devices import NODES, Case, Maker

cases = st.builds(
    lambda seed, is_rich: Maker(random.Random(seed), is_rich=is_rich).case(), st.integers(0, 2**64), st.booleans()
)
RUNNING = a_claim("x").reserved_for("x").typed()


@settings(
    max_examples=examples(400, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(cases, st.sampled_from(sorted(NODES)))
def test_a_search_gives_away_what_the_second_look_lets_pass(case: Case, node: str) -> None:
    """Counters may be overdrawn, pools incomplete, objects contradictory. Conflicts over whole devices are ignored."""
    setup = AllocatorSetup(case)
    search = setup.search(node)
    try:
        picked = search.run()
    except (AllocationError, FailedOnNode):
        picked = None
    assume(picked)
    assert picked is not None
    names = [claim.metadata.name for claim in case.claims]
    got = results(setup.demand, picked, search._node_devices, node_name=node, names=names, chance=random.Random(1))
    claims = SimpleNamespace(by_uid=lambda uid: RUNNING if uid.startswith("u") else None)
    devices: Any = SimpleNamespace(use=setup.use, on_nodes=setup.on_nodes, claims=claims)
    conflicts = DeviceConflicts(devices, runs=lambda _: True)
    for claim, allocation in zip(case.claims, got, strict=True):
        setup.use.hold(f"ours-{claim.key}", allocation)

    for claim, allocation in zip(case.claims, got, strict=True):
        ours = ResourceClaim(metadata=replace(claim.metadata, uid=f"ours-{claim.key}"))
        problem = conflicts.ahead(ours, allocation)
        assert not problem or ": device " in problem, problem
