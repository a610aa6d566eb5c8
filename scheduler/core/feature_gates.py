"""kube-scheduler's feature gates that have an effect here, with their defaults in each Kubernetes version.

Some changes between two versions have no gate upstream. Each has a name here as well, so that no plugin reads a version
(docs/spec/changes-1.37.md).

Upstream: pkg/features/kube_features.go defaultVersionedKubernetesFeatureGates
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

VERSIONS: Final = ("1.36", "1.37", "1.38")
"""The versions of kube-scheduler whose behaviour Kubestow has, oldest first."""
DEFAULT_VERSION: Final = "1.36"
"""The version of commands that read no API server."""

CAPACITY_SCORING: Final = "StorageCapacityScoring"
VOLUME_LIMIT_SCALING: Final = "VolumeLimitScaling"
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
FRACTIONAL_RANGE: Final = "DRAFractionalCapacityRange"


class Stage(NamedTuple):
    """What a gate is in one version. A locked gate cannot be set to another value."""

    is_on: bool
    is_locked: bool = False
    on_from: str = ""
    """The gate is also on if the control plane need not be compatible with versions before this one.

    It is upstream's FeatureSpec.MinCompatibilityVersion.
    """


_ON: Final = Stage(is_on=True)
_OFF: Final = Stage(is_on=False)
_LOCKED: Final = Stage(is_on=True, is_locked=True)

GATES: Final[Mapping[str, Mapping[str, Stage]]] = {
    CAPACITY_SCORING: {"1.36": _OFF, "1.37": _ON, "1.38": _ON},
    VOLUME_LIMIT_SCALING: {"1.36": _OFF, "1.37": _ON, "1.38": _ON},
    ADMIN_ACCESS: {"1.36": _LOCKED, "1.37": _LOCKED, "1.38": _LOCKED},
    CONSUMABLE: {"1.36": _ON, "1.37": _ON, "1.38": _ON},
    BINDING_CONDITIONS: {"1.36": _ON, "1.37": _ON, "1.38": _LOCKED},
    TAINTS: {"1.36": _ON, "1.37": _ON, "1.38": _LOCKED},
    EXTENDED_RESOURCE: {"1.36": _ON, "1.37": _LOCKED, "1.38": _LOCKED},
    PARTITIONABLE: {"1.36": _ON, "1.37": _ON, "1.38": _LOCKED},
    PRIORITIZED_LIST: {"1.36": _ON, "1.37": _LOCKED, "1.38": _LOCKED},
    CLAIM_DEVICE_STATUS: {"1.36": _ON, "1.37": _LOCKED, "1.38": _LOCKED},
    FILTER_TIMEOUT: {"1.36": _ON, "1.37": _ON, "1.38": _ON},
    DYNAMIC_RESOURCE_ALLOCATION: {"1.36": _LOCKED, "1.37": _LOCKED, "1.38": _LOCKED},
    TAINT_RULES: {"1.36": _OFF, "1.37": _ON, "1.38": _LOCKED},
    FRACTIONAL_RANGE: {"1.36": _OFF, "1.37": Stage(is_on=False, on_from="1.37"), "1.38": _ON},
}
"""Gate → version → stage. A gate that a version lacks is off there. Gates that are off in every version are not built."""

_LOCKED_IN_ALL: Final = frozenset(
    {
        "MutableCSINodeAllocatableCount",
        "NodeInclusionPolicyInPodTopologySpread",
        "VolumeAttributesClass",
    }
)
LOCKED_WITHOUT_EFFECT: Final[Mapping[str, frozenset[str]]] = {
    "1.36": _LOCKED_IN_ALL | {"InPlacePodVerticalScaling", "SchedulerQueueingHints", "SidecarContainers"},
    "1.37": _LOCKED_IN_ALL | {"InPlacePodVerticalScaling", "NodeDeclaredFeatures"},
    "1.38": _LOCKED_IN_ALL | {"NodeDeclaredFeatures"},
}
"""Version → gates of kube-scheduler that are on, cannot be turned off, and switch nothing here."""

_REMOVED_IN_1_37: Final = frozenset(
    {
        "APIServerTracing",
        "AnonymousAuthConfigurableEndpoints",
        "AnyVolumeDataSource",
        "AuthorizeNodeWithSelectors",
        "AuthorizeWithSelectors",
        "BtreeWatchCache",
        "ConsistentListFromCache",
        "GangScheduling",
        "JobBackoffLimitPerIndex",
        "JobPodReplacementPolicy",
        "JobSuccessPolicy",
        "LogarithmicScaleDown",
        "OrderedNamespaceDeletion",
        "PodLifecycleSleepAction",
        "PodLifecycleSleepActionAllowZero",
        "PreventStaticPodAPIReferences",
        "RelaxedDNSSearchValidation",
        "ResilientWatchCacheInitialization",
        "RetryGenerateName",
        "SchedulerQueueingHints",
        "SidecarContainers",
        "StreamingCollectionEncodingToJSON",
        "StreamingCollectionEncodingToProtobuf",
        "StructuredAuthenticationConfiguration",
        "WorkloadAwarePreemption",
    }
)
_REMOVED_IN_1_38: Final = frozenset(
    {
        "AggregatedDiscoveryRemoveBetaType",
        "AllowOverwriteTerminationGracePeriodSeconds",
        "DisableAllocatorDualWrite",
        "DynamicResourceAllocation",
        "ExecProbeTimeout",
        "InPlacePodVerticalScaling",
        "JobManagedBy",
        "KubeletTracing",
        "MatchLabelKeysInPodAffinity",
        "MultiCIDRServiceAllocator",
        "NFTablesProxyMode",
        "NodeSwap",
        "PodGroupPreemptionPolicy",
        "PodSchedulingReadiness",
        "PreferSameTrafficDistribution",
        "RecoverVolumeExpansionFailure",
        "SeparateTaintEvictionController",
        "ServiceAccountTokenJTI",
        "ServiceAccountTokenNodeBinding",
        "ServiceAccountTokenNodeBindingValidation",
        "ServiceAccountTokenPodNodeInfo",
        "SupplementalGroupsPolicy",
        "SystemdWatchdog",
        "WinDSR",
        "WinOverlay",
        "WindowsHostNetwork",
    }
)
REMOVED: Final[Mapping[str, frozenset[str]]] = {
    "1.36": frozenset(),
    "1.37": _REMOVED_IN_1_37,
    "1.38": _REMOVED_IN_1_37 | _REMOVED_IN_1_38,
}
"""Version → gates that its kube-scheduler refuses, and that an older one accepts."""

DEVICE_GATES_ON: Final = frozenset(
    gate for gate, stages in GATES.items() if gate.startswith("D") and stages[DEFAULT_VERSION].is_on
)
"""The gates for devices that are on by default in DEFAULT_VERSION."""

SHORT_POST_FILTER: Final = "PostFilterOfDevicesWithoutReasons"
"""Pods for which DynamicResources cannot free a claim get no text about it."""
PREEMPTOR_TEXT: Final = "PreemptorNamesItsNode"
"""The condition of a preemptor says which node it waits for, and the number of victims."""
IMAGE_VOLUMES: Final = "ImageVolumesRaiseTheFullScore"
"""ImageLocality counts image volumes like containers when it computes the amount for the full score."""
NAMESPACES_BY_LABELS: Final = "NamespaceSelectorsByLabelsOnly"
"""A namespaceSelector of the incoming pod with `NotIn` or `DoesNotExist` selects by labels; it selected all."""
NODE_NAME_FIRST: Final = "NodeNameBeforeNodeUnschedulable"
"""NodeName comes before NodeUnschedulable in the default plugins."""
RESIZE_TOTALS: Final = "InPlaceResizeByTotals"
"""During an in-place resize the greatest of three totals of the pod counts; it was the sum of each container's greatest."""
BINDING_RETRIES: Final = "BindingsAreRetried"
"""A Binding that the API server could not carry out is sent again, up to three times within a third of a second."""
BIND_MOUNT_OPTIONS: Final = "BindMountOptionsAreDeclared"
"""NodeDeclaredFeatures knows VolumeBindMountOptions: a node must declare it for pods with `bindMountOptions`."""
POD_EVENTS: Final = "PodEventsOfThreeKinds"
"""Metrics have separate labels for events of the waiting pod itself, of other pods without a node, and of raised requests."""
ENTITY_METRICS: Final = "QueueMetricsOfEntities"
"""The queue has metrics of entities, which are pods or groups of pods; here all are pods."""
ENTITY_LABEL: Final = "QueueMetricsAreLabelledEntity"
"""The queue's metrics of entities have the label `entity`; it was `type`."""
WHOLE_LIMITS: Final = "LimitsOfAllContainers"
"""/metrics/resources shows limits of cpu and memory of containers only if all containers set one; it showed the sum of some."""

EMPTY_BUDGETS: Final = "BudgetsProtectBySelectorAlone"
"""A budget with an empty selector protects all pods of its namespace, and budgets protect pods without labels."""
EMPTY_SPREAD: Final = "SpreadByEmptySelectorsCountsAllPods"
"""A spread constraint with an empty selector counts all pods of the namespace; it counted none."""
POD_LEVEL_SCORES: Final = "PodLevelRequestsAreScored"
"""NodeResourcesFit scores the pod-level requests of the pod to place; only those of its containers counted."""
TIES_BY_UID: Final = "VictimTiesByUid"
"""Of victims of equal priority and start time the one with the lower UID is more important; the order was open."""
NO_VICTIMS_NEEDED: Final = "NodesWithoutVictimsAreRejected"
"""A node where preemption needs no victim is sent to extenders or rejected; it was an error."""
MLDSA_CERTIFICATES: Final = "MLDSACertificatesAreDeclared"
"""NodeDeclaredFeatures knows PodCertificateMLDSA: a node must declare it for pods with certificates of such keys."""

LIMIT_NAMES_REQUEST: Final = "DeviceLimitNamesTheRequest"
"""The text for a claim with too many devices names the request that exceeds the limit."""
ERROR_NAMES_DEVICE: Final = "SelectorErrorNamesTheDevice"
"""The text for a selector that fails names the device, and how to guard a missing key."""
LISTS_IN_SELECTORS: Final = "ListAttributesInAllSelectors"
"""Selectors may read list attributes; they failed on devices with any."""
CONFIG_FOR_ALL: Final = "ConfigurationForAllRequestsNamesNone"
"""An allocated configuration that is for each request of its claim names no requests."""
DEVICE_CHANGES: Final = frozenset({LIMIT_NAMES_REQUEST, ERROR_NAMES_DEVICE, LISTS_IN_SELECTORS, CONFIG_FOR_ALL})
"""The changes of device allocation in 1.37."""

BAD_POOL_REJECTS_NODE: Final = "BadPoolRejectsTheNodeAlone"
"""A request for all devices rejects a node with an incomplete or invalid pool; it ended the attempt."""
CAPACITY_ERRORS: Final = "CapacityErrorsHaveFullNames"
"""Errors about capacities name them with their domain, and a negative request is refused before it is rounded."""
NEGATIVE_CONSUMPTION: Final = "NegativeConsumedCapacityIsAnError"
"""A negative `consumedCapacity` of any claim stops all pods that need devices allocated; it lowered the sum."""
UNSUPPORTED_VALUES: Final = "UnsupportedAttributeValuesAreErrors"
"""A constraint ends the attempt at a device whose attribute has an unsupported value; it passed over the device."""
ATTRIBUTES_WHEN_READ: Final = "AttributesAreConvertedWhenRead"
"""An attribute with an unsupported value fails only selectors that read it; it failed all selectors on its device."""
DEVICE_CHANGES_1_38: Final = frozenset(
    {BAD_POOL_REJECTS_NODE, CAPACITY_ERRORS, NEGATIVE_CONSUMPTION, UNSUPPORTED_VALUES, ATTRIBUTES_WHEN_READ}
)
"""The changes of device allocation in 1.38."""

GROUP_TEXTS: Final = "GroupTextsCountAllPods"
"""Texts about groups name the group, and count what fits, what does not and what was not tried; there was one number."""

_CHANGES_1_37: Final = DEVICE_CHANGES | {
    SHORT_POST_FILTER,
    PREEMPTOR_TEXT,
    IMAGE_VOLUMES,
    NAMESPACES_BY_LABELS,
    NODE_NAME_FIRST,
    RESIZE_TOTALS,
    BINDING_RETRIES,
    BIND_MOUNT_OPTIONS,
    POD_EVENTS,
    ENTITY_METRICS,
}
_CHANGES_1_38: Final[frozenset[str]] = DEVICE_CHANGES_1_38 | {
    EMPTY_BUDGETS,
    EMPTY_SPREAD,
    POD_LEVEL_SCORES,
    TIES_BY_UID,
    NO_VICTIMS_NEEDED,
    MLDSA_CERTIFICATES,
    ENTITY_LABEL,
    WHOLE_LIMITS,
    GROUP_TEXTS,
}

CHANGES: Final[Mapping[str, frozenset[str]]] = {
    "1.36": frozenset(),
    "1.37": _CHANGES_1_37,
    "1.38": _CHANGES_1_37 | _CHANGES_1_38,
}
"""Version → the changes since 1.36 that no gate of upstream switches. Users cannot set them one by one."""


def defaults(version: str) -> frozenset[str]:
    """Return the gates that are on by default in the version, and its changes. Raises KeyError for other versions."""
    return CHANGES[version] | {gate for gate, stages in GATES.items() if stages[version].is_on}


def minor_version(text: str) -> tuple[int, int] | None:
    """Return the major and minor number of `1.37` or `v1.37.2`; None for other texts."""
    parts = text.removeprefix("v").split(".")
    if len(parts) < 2 or not parts[0].isdecimal() or not parts[1].isdecimal():
        return None
    return int(parts[0]), int(parts[1])


def closest_version(git_version: str) -> str:
    """Return the version of VERSIONS for an API server's `gitVersion`: the newest that is not newer, else the oldest.

    An unreadable text gives DEFAULT_VERSION.
    """
    server = minor_version(git_version)
    if server is None:
        return DEFAULT_VERSION
    not_newer = [version for version in VERSIONS if (minor_version(version) or server) <= server]
    return not_newer[-1] if not_newer else VERSIONS[0]
