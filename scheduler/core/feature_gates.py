"""kube-scheduler's feature gates for devices, as in v1.36 (docs/spec/dra.md §6).

Upstream: pkg/features/kube_features.go defaultVersionedKubernetesFeatureGates
"""

from __future__ import annotations

from typing import Final

DYNAMIC_RESOURCE_ALLOCATION: Final = "DynamicResourceAllocation"
ADMIN_ACCESS: Final = "DRAAdminAccess"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"
PARTITIONABLE: Final = "DRAPartitionableDevices"
TAINTS: Final = "DRADeviceTaints"
TAINT_RULES: Final = "DRADeviceTaintRules"
CONSUMABLE: Final = "DRAConsumableCapacity"
BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
CLAIM_DEVICE_STATUS: Final = "DRAResourceClaimDeviceStatus"
EXTENDED_RESOURCE: Final = "DRAExtendedResource"
FILTER_TIMEOUT: Final = "DRASchedulerFilterTimeout"
LIST_TYPES: Final = "DRAListTypeAttributes"

DEVICE_GATES_ON: Final = frozenset(
    {
        DYNAMIC_RESOURCE_ALLOCATION,
        ADMIN_ACCESS,
        PRIORITIZED_LIST,
        PARTITIONABLE,
        TAINTS,
        CONSUMABLE,
        BINDING_CONDITIONS,
        CLAIM_DEVICE_STATUS,
        EXTENDED_RESOURCE,
        FILTER_TIMEOUT,
    }
)
"""Feature gates that are on by default."""
DEVICE_GATES_OFF: Final = frozenset({TAINT_RULES, LIST_TYPES})
"""Feature gates that are off by default."""
