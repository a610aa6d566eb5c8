"""Ways to answer as before 1.38: the scenarios of its changes must notice each.

docs/spec/changes-1.38.md §7 has the inputs. A change that Kubestow has on 1.38 alone is switched off. One that it has in all
versions is undone where it is made.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from scheduler.api.quantity import INT64_MAX, int64
from scheduler.api.resource_v1 import Device
from scheduler.cache.storage.capacity_pools import CapacityPool
from scheduler.core import feature_gates
from scheduler.core.caching import Interner
from scheduler.core.feature_gates import CHANGES
from scheduler.plugins.dra.structured import constraints
from tests.parity.device_mutants import drop_results

VERSION: Final = "1.38"
_NANO: Final = 10**9
GROUPS: Final = ("Changes", "DeviceChanges", "DeviceGates")
"""The groups of scenarios that are to notice."""
SWITCHED_OFF: Final[Mapping[str, str]] = {
    "a budget with an empty selector protects nothing": feature_gates.EMPTY_BUDGETS,
    "a spread constraint with an empty selector counts nothing": feature_gates.EMPTY_SPREAD,
    "pod-level requests do not score": feature_gates.POD_LEVEL_SCORES,
    "a bad pool stops all nodes": feature_gates.BAD_POOL_REJECTS_NODE,
    "a device with an unsupported value is passed over": feature_gates.UNSUPPORTED_VALUES,
}
UNSEEN: Final[Mapping[str, str]] = {
    feature_gates.TIES_BY_UID: "the UIDs of victims differ in each recording",
    feature_gates.NO_VICTIMS_NEEDED: "only an extender makes such a node, and the scenarios have none",
    feature_gates.MLDSA_CERTIFICATES: "the API server refuses such pods",
    feature_gates.ENTITY_LABEL: "it is about metrics",
    feature_gates.WHOLE_LIMITS: "it is about metrics",
    feature_gates.CAPACITY_ERRORS: "the API server refuses negative amounts, and no scenario rounds beyond int64",
    feature_gates.NEGATIVE_CONSUMPTION: "the API server refuses such claims",
    feature_gates.GROUP_TEXTS: "the recordings have no groups (tests/unit/groups/test_groups.py has the texts)",
    feature_gates.ATTRIBUTES_WHEN_READ: "no selector in a scenario of these groups depends on it",
}
"""Change of 1.38 → why no recorded verdict depends on it."""


def _nothing_beyond(nano: int, unit: int) -> int:
    amount = int64(nano, unit)
    return 0 if amount in {INT64_MAX, -INT64_MAX - 1} else amount


def _with_metadata(driver: str, device: Device, name: str) -> Any:
    found = constraints._attribute(driver, device, name)
    return None if found is None else frozenset((("version", found.version),))


def _whole_bytes(pool: CapacityPool, size: int, nano: int | None = None) -> bool:
    wanted = size if nano is None else _nothing_beyond(nano, _NANO)
    return wanted <= int64(pool._limit_nano, _NANO)


_UNDONE: Final[Mapping[str, Mapping[str, Any]]] = {
    "amounts beyond the largest integer are nothing": {
        "scheduler.api.podinfo.int64": _nothing_beyond,
        "scheduler.api.podinfo._sums": Interner[bytes, object](1000),  # those that are known have the right amounts
    },
    "capacities differ by the driver's domain": {
        "scheduler.plugins.dra.structured.node_devices.bare_name": lambda _, name: name
    },
    "versions differ by their build metadata": {
        "scheduler.plugins.dra.structured.constraints.attribute_values": _with_metadata
    },
    "free capacity is compared in whole bytes": {
        "scheduler.cache.storage.capacity_pools.CapacityPool.holds": _whole_bytes
    },
}
CHANGE_MUTANTS: Final = (*SWITCHED_OFF, *_UNDONE)


@contextmanager
def mutated_changes(name: str) -> Iterator[None]:
    """As long as the block lasts."""
    with ExitStack() as until_then:
        if name in SWITCHED_OFF:
            without = CHANGES[VERSION] - {SWITCHED_OFF[name]}
            until_then.enter_context(patch.dict(feature_gates.CHANGES, {VERSION: without}))
        for place, instead in _UNDONE.get(name, {}).items():
            until_then.enter_context(patch(place, instead))
        # What is known of devices has been found with the right answers.
        drop_results()
        until_then.callback(drop_results)
        yield
