"""The law of the self-audit: after any history of the cache it finds no difference."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from scheduler.audit.checks import cache_checks
from scheduler.audit.findings import Difference
from scheduler.cache.cluster import Cluster
from tests.examples import examples
from tests.unit.cache.pods.test_recount import apply, steps


def differences(cluster: Cluster) -> list[tuple[str, Difference]]:
    """Return what one pass over the cache finds. Each check ends, whatever it finds."""
    checks = cache_checks(cluster, lambda _: False)
    return [(index, each) for index, check in checks.items() for found in check() for each in found]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(steps, max_size=25))
def test_no_difference_after_a_history_of_nodes_and_pods(history: list[tuple[str, str, str, int, int]]) -> None:
    seen = Cluster()
    for step in history:
        apply(seen, step)
        assert [] == differences(seen)
