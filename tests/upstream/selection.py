"""The tests that are selected, and those left out with the reason."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tests.e2e.controlplane.build import MINOR


@dataclass(frozen=True)
class Suite:
    """A part of Kubernetes' end-to-end tests. `specs` counts its tests in this version, including those left out."""

    name: str
    focus: str
    specs: int


_SPECS = {"1.36": (30, 31), "1.37": (35, 34), "1.38": (50, 34)}
SUITES = (
    Suite("[sig-scheduling]", r"\[sig-scheduling\]", _SPECS[MINOR][0]),
    Suite("[DRA] control plane", r"\[DRA\] control plane", _SPECS[MINOR][1]),
)

_CRUD = ("PodGroup API availability", "Workload API availability")
_POOL_STATUS = (
    "should clear NodeName when pool has slices on different nodes",
    "should filter by pool name",
    "should not reprocess after status is set",
    "should populate status for all matching pools",
    "should reflect allocated devices after pod is scheduled",
    "should report pool status with correct device counts",
    "should return empty pools for unknown driver",
    "should set NodeName when all slices share the same node",
    "should truncate results when limit is reached",
)
_VIEWS = (
    (
        "partitionable pool without a partition type [FeatureGate:DRAPartitionableDevices]"
        " should report no partition summary when no partition type is declared"
    ),
    (
        "partitionable typed view [FeatureGate:DRAPartitionableDevices] [FeatureGate:DRAPartitionableDevicesType]"
        " should report partitionSummary for a partitionable pool"
    ),
    (
        "shareable view [FeatureGate:DRAConsumableCapacity]"
        " should report shareableSummary for a pool with shareable devices"
    ),
)
_OF_GROUPS = (
    "[sig-scheduling] GangScheduling ",
    "[sig-scheduling] TopologyAwareScheduling ",
    "[sig-scheduling] WorkloadAwarePreemption ",
)
_GANG = ("should schedule pods only when quorum is reached", "should schedule pods with basic scheduling policy")
_GROUP_PREEMPTION = (
    "should preempt entire group with All disruption mode by a pod group",
    "should preempt partial group with Single disruption mode by a pod group",
    "should preempt partial group with Single disruption mode by an individual pod",
)
_COMPOSITE = (
    "should keep a CompositePodGroup pending if it doesn't fit a single topology domain",
    "should keep a hierarchy pending when not all of its gangs fit",
    "should preempt lower-priority pods to schedule a CompositePodGroup",
    "should schedule a CompositePodGroup into a single topology domain",
    "should schedule a CompositePodGroup with multi-level topology constraints",
    "should schedule a hierarchy",
    "should schedule the child PodGroups of a basic CompositePodGroup independently",
)
_TOPOLOGY = (
    "should keep a gang pending rather than place it on nodes without the topology label",
    "should keep a gang pending rather than split it across topology domains",
    "should preempt lower-priority pods in only one topology domain to keep a gang together",
    "should schedule all pods of a basic PodGroup into a single topology domain",
    "should schedule each PodGroup into a single topology domain",
)
_GROUP_POLICIES = (
    "should not preempt group when preemptor pod group has PreemptNever preemption policy",
    "should preempt group when preemptor pod group explicitly sets PreemptLowerPriority preemption policy",
)
_NO_GROUPS = "GenericWorkload is off by default, and the test is about groups of pods"
_NO_STATUS = "DRAResourcePoolStatus is off by default, and kube-controller-manager answers the requests of the test"
_OFF = "[Alpha] [Feature:OffByDefault]"
_POOLS = "[sig-node] [DRA] control plane"
_BETA = " [Beta] [Feature:OffByDefault]"
_GENERIC = " [FeatureGate:GenericWorkload]"
_TAS = " [FeatureGate:TopologyAwareWorkloadScheduling]"
_DRA = " [Feature:OffByDefault] [FeatureGate:DynamicResourceAllocation]"
_LEFT_OUT = {
    "1.36": (
        (f"[sig-scheduling] Workload [FeatureGate:GenericWorkload] {_OFF} CRUD Tests", _CRUD, "", _NO_GROUPS),
        (f"{_POOLS} [FeatureGate:DRAResourcePoolStatus] {_OFF}", _POOL_STATUS, "", _NO_STATUS),
    ),
    "1.37": (
        ("[sig-scheduling] Workload [FeatureGate:GenericWorkload] CRUD Tests", _CRUD, _BETA, _NO_GROUPS),
        ("[sig-scheduling] GangScheduling [FeatureGate:GenericWorkload]", _GANG, _BETA, _NO_GROUPS),
        (
            "[sig-scheduling] WorkloadAwarePreemption [FeatureGate:GenericWorkload] workload-aware preemption",
            _GROUP_PREEMPTION,
            _BETA,
            _NO_GROUPS,
        ),
        (f"{_POOLS} [FeatureGate:DRAResourcePoolStatus]", _POOL_STATUS, f" [Alpha]{_DRA}", _NO_STATUS),
        (f"{_POOLS} views [FeatureGate:DRAResourcePoolStatus]", _VIEWS, f" [Alpha] [Beta]{_DRA}", _NO_STATUS),
    ),
    "1.38": (
        ("[sig-scheduling] Workload [FeatureGate:GenericWorkload] CRUD Tests", _CRUD, _BETA, _NO_GROUPS),
        (
            "[sig-scheduling] Workload [FeatureGate:GenericWorkload] CRUD Tests",
            ("CompositePodGroup API availability [FeatureGate:CompositePodGroup]",),
            f"{_BETA}{_TAS}",
            _NO_GROUPS,
        ),
        ("[sig-scheduling] GangScheduling [FeatureGate:GenericWorkload]", _GANG, _BETA, _NO_GROUPS),
        (
            "[sig-scheduling] WorkloadAwarePreemption [FeatureGate:GenericWorkload] workload-aware preemption",
            (*_GROUP_PREEMPTION, *_GROUP_POLICIES),
            _BETA,
            _NO_GROUPS,
        ),
        (f"[sig-scheduling] TopologyAwareScheduling{_TAS}", _TOPOLOGY, f"{_BETA}{_GENERIC}", _NO_GROUPS),
        (
            "[sig-scheduling] CompositePodGroup [FeatureGate:CompositePodGroup]",
            _COMPOSITE,
            f"{_BETA}{_GENERIC}{_TAS}",
            _NO_GROUPS,
        ),
        (f"{_POOLS} [FeatureGate:DRAResourcePoolStatus]", _POOL_STATUS, f" {_OFF}", _NO_STATUS),
        (f"{_POOLS} views [FeatureGate:DRAResourcePoolStatus]", _VIEWS, f" {_OFF}", _NO_STATUS),
    ),
}

EXCLUDED: Mapping[str, str] = {
    f"{context} {test}{labels}": reason for context, tests, labels, reason in _LEFT_OUT[MINOR] for test in tests
}
"""Full name of a test to the reason why it is left out."""


def suite_of(name: str) -> Suite | None:
    return next((suite for suite in SUITES if re.search(suite.focus, name)), None)


def is_of_groups(name: str) -> bool:
    """Return whether the test is about groups, apart from composite ones."""
    return name.startswith(_OF_GROUPS)


def mistakes(names: Collection[str]) -> Iterator[str]:
    """Yield where this module and the tests of `e2e.test` do not agree."""
    for suite in SUITES:
        found = sum(suite_of(name) is suite for name in names)
        if found != suite.specs:
            yield f"{suite.name} has {found} tests instead of {suite.specs}: see what is new, and adapt the number"
    for name in EXCLUDED:
        if name not in names:
            yield f"excluded, but does not exist: {name}"
