"""The tests that are selected, and those left out with the reason."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """A part of Kubernetes' end-to-end tests. `specs` counts its tests in this version, including those left out."""

    name: str
    focus: str
    specs: int


SUITES = (
    Suite("[sig-scheduling]", r"\[sig-scheduling\]", 30),
    Suite("[DRA] control plane", r"\[DRA\] control plane", 31),
)

_WORKLOAD = (
    "[sig-scheduling] Workload [FeatureGate:GenericWorkload] [Alpha] [Feature:OffByDefault] CRUD Tests",
    "GenericWorkload is off by default, and the test writes objects that no scheduler acts on",
    ("PodGroup API availability", "Workload API availability"),
)
_POOL_STATUS = (
    "[sig-node] [DRA] control plane [FeatureGate:DRAResourcePoolStatus] [Alpha] [Feature:OffByDefault]",
    "DRAResourcePoolStatus is off by default, and kube-controller-manager answers the requests of the test",
    (
        "should clear NodeName when pool has slices on different nodes",
        "should filter by pool name",
        "should not reprocess after status is set",
        "should populate status for all matching pools",
        "should reflect allocated devices after pod is scheduled",
        "should report pool status with correct device counts",
        "should return empty pools for unknown driver",
        "should set NodeName when all slices share the same node",
        "should truncate results when limit is reached",
    ),
)

EXCLUDED: Mapping[str, str] = {
    f"{context} {test}": reason for context, reason, tests in (_WORKLOAD, _POOL_STATUS) for test in tests
}
"""Full name of a test to the reason why it is left out."""


def suite_of(name: str) -> Suite | None:
    return next((suite for suite in SUITES if re.search(suite.focus, name)), None)


def mistakes(names: Collection[str]) -> Iterator[str]:
    """Yield where this module and the tests of `e2e.test` do not agree."""
    for suite in SUITES:
        found = sum(suite_of(name) is suite for name in names)
        if found != suite.specs:
            yield f"{suite.name} has {found} tests instead of {suite.specs}: see what is new, and adapt the number"
    for name in EXCLUDED:
        if name not in names:
            yield f"excluded, but does not exist: {name}"
