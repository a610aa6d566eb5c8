"""Rows that guard one line: each is run with a mistake in that line, and has to fail.

The rows run in one session of pytest inside this one. A mistake lasts for the call of its row. It replaces the code of one
function, so nothing is written to disk.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Generator
from functools import reduce
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import pytest


class Mutant(NamedTuple):
    """A mistake: in the function at `place`, `old` reads `new`. `row` is the id of the test that fails then."""

    place: str
    old: str
    new: str
    row: str


MUTANTS: Final = {
    "a binding that is dropped does not unreserve": Mutant(
        "scheduler.binding:Binder._release",
        "binding.runner.unreserve(binding.state, binding.assumed)",
        "pass",
        "binding/test_binding.py::test_a_refused_bind_is_undone[200 another scheduler bound it: dropped]",
    ),
    "the SLI counts from the last attempt": Mutant(
        "scheduler.binding:Binder._succeeded",
        "now - first)",
        "now - binding.popped_at)",
        "binding/test_conflicts.py::test_the_time_that_scheduling_took_counts_from_the_first_attempt",
    ),
    "a pod that turns up on another node marks that node as unchanged": Mutant(
        "scheduler.cache.cluster:Cluster._replace",
        "self._disturb(info.node_name)",
        "pass",
        "binding/test_conflicts.py::test_a_pod_that_another_scheduler_bound_to_this_node_takes_the_capacity_of_ours",
    ),
    "the version of the node stays when a pod turns up there": Mutant(
        "scheduler.cache.cluster:Cluster._replace",
        "self._disturb(info.node_name)",
        "pass",
        "cache/test_cluster.py::test_73_assumed_here_bound_there",
    ),
    "a whole device is allocated while a share of it is in use": Mutant(
        "scheduler.plugins.dra.binding.device_conflicts:DeviceConflicts._elsewhere",
        "use.users(result.id) if result.share_id is None else use.holders(result.id)",
        "use.holders(result.id)",
        "plugins/dra/test_shared_beside.py::test_before_the_write[a share of the device that ours has whole]",
    ),
    "a pool with too many slices counts as complete": Mutant(
        "scheduler.cache.devices.pools:gather_pool",
        "len(equal) != count",
        "len(equal) < count",
        "plugins/dra/test_scenarios.py::test_scenario[17 two slices of a pool of one]",
    ),
    "blurring joins events of different pods": Mutant(
        "scheduler.queueing.in_flight_events:InFlightEvents._blur",
        "kind = (recorded.event, recorded.target)",
        "kind = (recorded.event, None)",
        "queueing/test_inflight.py::test_updates_of_two_pods_are_not_blurred_into_one",
    ),
    "the lease's duration is rounded down": Mutant(
        "scheduler.kube.leader_election:Elector._record",
        "math.ceil(",
        "int(",
        "kube/test_lease.py::test_a_lease_of_a_fraction_of_a_second_more_lasts_that_second",
    ),
    "a lease may be as short as its renewal deadline": Mutant(
        "scheduler.config.sections:_check_election",
        "lease_duration_s <= election",
        "lease_duration_s < election",
        "config/test_load.py::test_leader_election[a lease that ends with its renewal deadline]",
    ),
    "a renewal deadline may be 1.2 retry periods": Mutant(
        "scheduler.config.sections:_check_election",
        "renew_deadline_s <= election",
        "renew_deadline_s < election",
        "config/test_load.py::test_leader_election[a renewal deadline of exactly 1.2 retry periods]",
    ),
    "an index before the beginning of a list counts from its end": Mutant(
        "scheduler.cel.eval.attributes:find",
        "0 <= index < len(holder)",
        "index < len(holder)",
        "cel/libraries/test_patterns.py::test_answers[optionals: a key or index may be missing]",
    ),
    "the time of an evaluation is not limited": Mutant(
        "scheduler.cel.eval.running:Run.check",
        "elif now > self._ends_at:",
        "elif False:",
        "cache/devices/test_selectors.py::test_an_evaluation_that_takes_too_long_has_upstreams_error",
    ),
    "copies of long lists do not add up": Mutant(
        "scheduler.cel.eval.running:Run.made",
        "self._made += size",
        "self._made = size",
        "cel/test_deadline.py::test_all_that_calls_make_is_bounded_together[sums of lists]",
    ),
    "the first pod that leaves frees a host port for all": Mutant(
        "scheduler.plugins.nodeports:_Held.remove",
        "self._conflicts -= _conflicts(self._wanted, other.host_ports)",
        "self._conflicts = 0",
        "plugins/test_small_filters.py::test_ports_that_preemption_frees[one of two pods that hold it leaves]",
    ),
    "a pod with another host port that leaves counts": Mutant(
        "scheduler.plugins.nodeports:_Held.remove",
        "self._conflicts -= _conflicts(self._wanted, other.host_ports)",
        "self._conflicts -= 1",
        "plugins/test_small_filters.py::test_ports_that_preemption_frees[a pod with another port leaves, and it is free]",
    ),
    "the plan of a pod that uses a claim twice never ends": Mutant(
        "scheduler.cache.storage.claims_together:ClaimsTogether.remove",
        "tuple(dict.fromkeys(claim_keys))",
        "tuple(claim_keys)",
        "cache/storage/test_ledger_limits.py::test_the_plan_of_a_pod_that_uses_a_claim_twice",
    ),
    "counters are not given back on the way back of a search": Mutant(
        "scheduler.plugins.dra.structured.allocator:Allocator._give_back",
        "if undo.drawn_in >= 0:",
        "if False:",
        r"plugins/dra/test_scenarios.py::test_scenario[\xa74.7 what a share took is given back]",
    ),
    "claims of a class do not leave the smaller volumes to the smaller claims": Mutant(
        "scheduler.plugins.volumebinding.find:_Queue.served",
        "np.maximum(self._taken - (self._before - counts), 0)",
        "self._taken",
        "plugins/volumebinding/test_filter.py::test_f5_claims_of_a_class_leave_the_larger_volumes_to_the_larger_claims",
    ),
    "a pod's own claims in flight are in its way": Mutant(
        "scheduler.plugins.volumebinding.find:VolumeFinder.find",
        "for claim in claims.delayed):\n        dynamic",
        "for claim in ()):\n        dynamic",
        "plugins/volumebinding/test_room.py::test_a_pod_is_not_in_its_own_way",
    ),
    "a node beyond its attach limit takes no pod": Mutant(
        "scheduler.plugins.nodevolumelimits:RemainingAttachments.is_short",
        "0 < need >",
        "need >",
        "plugins/test_nodevolumelimits_preemption.py::"
        "test_a_node_with_more_volumes_than_its_limit_takes_pods_whose_volume_is_attached[attached-counted aside]",
    ),
}
_HERE: Final = "tests/unit"


def _found(place: str) -> FunctionType:
    module, _, path = place.partition(":")
    found: Any = reduce(getattr, path.split("."), import_module(module))
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), place
    return found


def _mutated(function: FunctionType, mutant: Mutant) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:  # an AssertionError would look like that of the row
        raise LookupError(f"{mutant.place} has {mutant.old!r} not once")
    made = compile(
        "from __future__ import annotations\n" + source.replace(mutant.old, mutant.new), function.__module__, "exec"
    )
    (code,) = (each for each in made.co_consts if isinstance(each, CodeType) and each.co_name == function.__name__)
    assert code.co_freevars == function.__code__.co_freevars
    return code


class Mutating:
    """A plugin for pytest: every item runs with the mistake that it guards against. `ends` has what each row raised."""

    def __init__(self) -> None:
        self.ends: dict[str, type[BaseException] | None] = {}
        self._mutants = {f"{_HERE}/{mutant.row}": mutant for mutant in MUTANTS.values()}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        mutant = self._mutants[item.nodeid]
        function = _found(mutant.place)
        right, function.__code__ = function.__code__, _mutated(function, mutant)
        try:
            return (yield)
        finally:
            function.__code__ = right

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "call":
            self.ends[item.nodeid] = call.excinfo.type if call.excinfo is not None else None


@pytest.fixture(scope="session")
def ends() -> dict[str, type[BaseException] | None]:
    """Id of a row → what it raised with its mistake."""
    mutating = Mutating()
    rows = [f"{_HERE}/{mutant.row}" for mutant in MUTANTS.values()]
    assert len(rows) == len(set(rows))
    plugins = [option for name in ("randomly", "cacheprovider") for option in ("-p", f"no:{name}")]
    # The time limit of this test is a signal: the inner session must not set another one.
    code = pytest.main([*rows, *plugins, "-o", "timeout=0", "--capture=no", "-q", "--tb=line"], plugins=[mutating])
    assert code == pytest.ExitCode.TESTS_FAILED, "a row was not found, or no row failed"
    return mutating.ends


@pytest.mark.parametrize("mistake", MUTANTS)
def test_the_row_fails(mistake: str, ends: dict[str, type[BaseException] | None]) -> None:
    assert ends[f"{_HERE}/{MUTANTS[mistake].row}"] is AssertionError
