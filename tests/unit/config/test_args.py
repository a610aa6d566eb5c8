"""Plugin arguments: defaults, and every rule of docs/spec/core.md §6.4."""

import dataclasses
from typing import Any

import pytest

from scheduler.config.args import (
    CAPACITY_SHAPE,
    SPELLED,
    UPSTREAM,
    DefaultConstraint,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    KnownArgs,
    KubestowArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    VolumeBindingArgs,
)
from scheduler.config.load import default
from scheduler.core.devicegates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, DEVICE_GATES_ON, FILTER_TIMEOUT
from scheduler.core.names import NAME_RULE, label_key, label_value
from tests.unit.config.documents import mistakes, read, with_args

PATH = "profiles[0].pluginConfig[0].args"
SCORING = frozenset({"StorageCapacityScoring"})
NO_SEARCH_TIME = ".filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"
NO_BINDING_TIME = (
    ".bindingTimeout: Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
)
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [ZONE, {"key": "n", "operator": "Gt", "values": ["5"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
        ]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions": [ZONE]}}],
}


@pytest.mark.parametrize(
    "kind",
    [
        DefaultPreemptionArgs,
        InterPodAffinityArgs,
        NodeAffinityArgs,
        NodeResourcesFitArgs,
        NodeResourcesBalancedAllocationArgs,
        PodTopologySpreadArgs,
        VolumeBindingArgs,
        DynamicResourcesArgs,
        KubestowArgs,
    ],
)
def test_empty_arguments_are_the_defaults(kind: type[KnownArgs]) -> None:
    """Nothing, null, and an empty mapping are the same."""
    for document in ({}, with_args(kind.plugin, None), with_args(kind.plugin, {})):
        assert read(document).profiles[0].args[kind.plugin] == kind()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 7},
            DefaultPreemptionArgs(0, 7),
            id="preemption",
        ),
        pytest.param(
            {"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": True},
            InterPodAffinityArgs(100, True),
            id="inter-pod affinity",
        ),
        pytest.param({"addedAffinity": AFFINITY}, NodeAffinityArgs(AFFINITY), id="added affinity stays as written"),
        pytest.param(
            {
                "ignoredResources": ["example.com/a"],
                "ignoredResourceGroups": ["example.com"],
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 0}, {"name": "a.b/c", "weight": 9}],
                },
            },
            NodeResourcesFitArgs(
                ("example.com/a",),
                ("example.com",),
                ScoringStrategy("MostAllocated", (ResourceWeight("cpu", 1), ResourceWeight("a.b/c", 9))),
            ),
            id="fit; weight 0 means 1",
        ),
        pytest.param(
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {"shape": [{"utilization": 0}, {"utilization": 100, "score": 10}]},
                }
            },
            NodeResourcesFitArgs(
                scoring_strategy=ScoringStrategy(
                    "RequestedToCapacityRatio", shape=(ShapePoint(0, 0), ShapePoint(100, 10))
                )
            ),
            id="fit by a curve; a missing number is 0",
        ),
        pytest.param(
            {"resources": [{"name": "memory"}]},
            NodeResourcesBalancedAllocationArgs((ResourceWeight("memory", 1),)),
            id="balance",
        ),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "nodeTaintsPolicy": "Honor",
                    },
                    {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3},
                ],
            },
            PodTopologySpreadArgs(
                (
                    DefaultConstraint(1, "zone", "ScheduleAnyway", node_taints_policy="Honor"),
                    DefaultConstraint(2, "zone", "DoNotSchedule", min_domains=3),
                ),
                "List",
            ),
            id="spread",
        ),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": -1},
                ],
            },
            PodTopologySpreadArgs(
                (
                    DefaultConstraint(1, "zone", "ScheduleAnyway", min_domains=2),
                    DefaultConstraint(1, "zone", "DoNotSchedule", min_domains=-1),
                ),
                "List",
            ),
            id="minDomains where it counts for nothing",
        ),
        pytest.param({"addedAffinity": {}}, NodeAffinityArgs({}), id="an affinity that adds nothing"),
        pytest.param(
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
            NodeAffinityArgs({"requiredDuringSchedulingIgnoredDuringExecution": {}}),
            id="an added affinity without terms, which no node has",
        ),
        pytest.param(
            {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101}, {}]}},
            NodeAffinityArgs({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101}, {}]}),
            id="wishes of any weight, none is 0",
        ),
        pytest.param({"scoringStrategy": None}, NodeResourcesFitArgs(), id="no strategy is the default one"),
        pytest.param({"bindTimeoutSeconds": 0}, VolumeBindingArgs(0.0), id="volumes: do not wait"),
        pytest.param(
            {"filterTimeout": "0s", "bindingTimeout": "1s"}, DynamicResourcesArgs(0.0, 1.0), id="devices, at the limits"
        ),
        pytest.param(
            {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True},
            KubestowArgs(True),
            id="ours",
        ),
        pytest.param({"victims": "all"}, KubestowArgs(victims="all"), id="everybody's pods may be victims"),
        pytest.param({"victims": "own"}, KubestowArgs(victims="own"), id="only our own pods may be victims"),
        pytest.param(
            {"parity": True, "victims": "ownFirst"}, KubestowArgs(True, "ownFirst"), id="our own pods first, and parity"
        ),
        pytest.param(
            {
                "preemptionFairShare": "none",
                "busyNodes": "none",
                "storageCapacityReservation": "none",
                "storagePoolSharing": "none",
                "clearStaleSelectedNode": "none",
                "requireCSINodeDrivers": ["ebs.csi.aws.com", "Upper.example.com"],
                "volumeWriteRetries": 0,
                "bindPoll": "upstream",
                "treatBindingAsUnbound": True,
                "countAttachedTwice": True,
                "zoneEphemeral": "none",
                "preBindLiveCheck": "none",
                "deviceScoring": "firstFit",
                "devicePreemption": "none",
                "deviceDoubleCheck": "none",
                "derivedNominations": "none",
            },
            KubestowArgs(
                preemption_fair_share="none",
                busy_nodes="none",
                storage_capacity_reservation="none",
                storage_pool_sharing="none",
                clear_stale_selected_node="none",
                require_csi_node_drivers=("ebs.csi.aws.com", "Upper.example.com"),
                volume_write_retries=0,
                bind_poll="upstream",
                treat_binding_as_unbound=True,
                count_attached_twice=True,
                zone_ephemeral="none",
                pre_bind_live_check="none",
                device_scoring="firstFit",
                device_preemption="none",
                device_double_check="none",
                derived_nominations="none",
            ),
            id="as upstream, one switch at a time",
        ),
        pytest.param(
            {"parity": True, "bindPoll": "upstream", "requireCSINodeDrivers": []},
            KubestowArgs(parity=True),
            id="parity, and what it means anyway",
        ),
    ],
)
def test_given_arguments_arrive_typed(given: dict[str, Any], wanted: KnownArgs) -> None:
    """Every field under its name, with its unit."""
    assert read(with_args(wanted.plugin, given)).profiles[0].args_for(type(wanted)) == wanted


def fit(**strategy: Any) -> dict[str, Any]:
    return {"scoringStrategy": strategy}


def curve(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": u, "score": s} for u, s in points]
    return fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})


def spread(*constraints: dict[str, Any]) -> dict[str, Any]:
    good = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"defaultingType": "List", "defaultConstraints": [good | c for c in constraints]}


def requires(expression: dict[str, Any], kind: str = "matchExpressions") -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{kind: [expression]}]}
    return {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = f"addedAffinity.{HARD}"
TERM = f"{REQUIRED}.nodeSelectorTerms[0]"
SHAPE = "scoringStrategy.requestedToCapacityRatio.shape"
STRATEGIES = 'supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
OPERATORS = 'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
[KEY_RULE] = label_key("a b")
[VALUE_RULE] = label_value("x y")


@pytest.mark.parametrize(
    ("plugin", "args", "said"),
    [
        pytest.param("VolumeBinding", [], [": must be a mapping, got a list"], id="a list for arguments"),
        pytest.param("NodeAffinity", {"kind": "X"}, ['.kind: must be NodeAffinityArgs, got "X"'], id="another kind"),
        pytest.param(
            "NodeAffinity",
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            ['.apiVersion: must be kubescheduler.config.k8s.io/v1, got "kubescheduler.config.k8s.io/v1beta3"'],
            id="an older version",
        ),
        pytest.param(
            "Kubestow",
            {"apiVersion": "kubescheduler.config.k8s.io/v1"},
            ['.apiVersion: must be kubestow.dev/v1alpha1, got "kubescheduler.config.k8s.io/v1"'],
            id="upstream's version for our arguments",
        ),
        pytest.param(
            "Kubestow", {"parity": "true"}, ['.parity: must be true or false, got "true"'], id="parity as text"
        ),
        pytest.param(
            "Kubestow",
            {"victims": "own-first"},
            ['.victims: Unsupported value: "own-first": supported values: "all", "own", "ownFirst"'],
            id="victims in other words",
        ),
        pytest.param(
            "Kubestow",
            {
                "storageCapacityReservation": "off",
                "requireCSINodeDrivers": ["ebs/csi", "a" * 64],
                "volumeWriteRetries": -1,
                "zoneEphemeral": True,
            },
            [
                '.storageCapacityReservation: Unsupported value: "off": supported values: "ledger", "none"',
                f'.requireCSINodeDrivers[0]: Invalid value: "ebs/csi": {NAME_RULE}',
                f'.requireCSINodeDrivers[1]: Invalid value: "{"a" * 64}": must be no more than 63 characters',
                ".volumeWriteRetries: must be between 0 and 10, got -1",
                ".zoneEphemeral: must be a string, got true",
            ],
            id="switches of volumes in other words",
        ),
        pytest.param(
            "Kubestow",
            {
                "deviceScoring": "first",
                "devicePreemption": False,
                "deviceDoubleCheck": "off",
                "derivedNominations": "off",
            },
            [
                '.deviceScoring: Unsupported value: "first": supported values: "pack", "firstFit"',
                ".devicePreemption: must be a string, got false",
                '.deviceDoubleCheck: Unsupported value: "off": supported values: "on", "none"',
                '.derivedNominations: Unsupported value: "off": supported values: "on", "none"',
            ],
            id="switches of devices in other words",
        ),
        pytest.param(
            "Kubestow",
            {
                "parity": True,
                "volumeWriteRetries": 3,
                "bindPoll": "events",
                "countAttachedTwice": False,
                "requireCSINodeDrivers": ["a"],
                "deviceScoring": "pack",
                "deviceDoubleCheck": "on",
                "derivedNominations": "on",
                "preemptionFairShare": "on",
                "busyNodes": "avoid",
            },
            [
                '.preemptionFairShare: must be "none" where parity is true',
                '.busyNodes: must be "none" where parity is true',
                ".volumeWriteRetries: must be 0 where parity is true",
                '.bindPoll: must be "upstream" where parity is true',
                ".countAttachedTwice: must be true where parity is true",
                ".requireCSINodeDrivers: must be absent where parity is true",
                '.deviceScoring: must be "firstFit" where parity is true',
                '.deviceDoubleCheck: must be "none" where parity is true',
                '.derivedNominations: must be "none" where parity is true',
            ],
            id="parity, and otherwise than upstream all the same",
        ),
        pytest.param(
            "Kubestow", {"victims": ["own"]}, [".victims: must be a string, got a list"], id="victims as a list"
        ),
        pytest.param("Kubestow", {"paritty": True}, ['.paritty: unknown field, did you mean "parity"?'], id="a typo"),
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
            [
                ".minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
                ".minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ],
            id="preemption out of range",
        ),
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            [
                ".minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
                ".minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage",
            ],
            id="preemption without candidates",
        ),
        pytest.param(
            "InterPodAffinity",
            {"hardPodAffinityWeight": 101},
            [".hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
            id="affinity weight out of range",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "a", "operator": "In"}),
            [
                f".{TERM}.matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
            ],
            id="In nothing",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "a", "operator": "Exists", "values": ["b"]}),
            [
                f'.{TERM}.matchExpressions[0].values: Invalid value: ["b"]: values set must be empty for exists and does not exist'
            ],
            id="Exists with values",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "a", "operator": "Gt", "values": ["x"]}),
            [
                (
                    f".{TERM}.matchExpressions[0].values[0]: "
                    "Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            ],
            id="greater than a word",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "a b", "operator": "Like", "values": ["x y"]}),
            [f'.{TERM}.matchExpressions[0].operator: Unsupported value: "Like": {OPERATORS}'],
            id="a bad operator, and nothing about the rest",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "a b", "operator": "Lt", "values": ["x y", "2"]}),
            [
                f'.{TERM}.matchExpressions[0].key: Invalid value: "a b": {KEY_RULE}',
                (
                    f".{TERM}.matchExpressions[0].values: "
                    "Invalid value: [\"x y\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required"
                ),
                (
                    f".{TERM}.matchExpressions[0].values[0]: "
                    "Invalid value: \"x y\": for 'Gt', 'Lt' operators, the value must be an integer"
                ),
                f'.{TERM}.matchExpressions[0].values[0][a b]: Invalid value: "x y": {VALUE_RULE}',
            ],
            id="a bad key, and too many values of which one is bad",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "metadata.uid", "operator": "Exists"}, "matchFields"),
            [
                f'.{TERM}.matchFields[0].key: Unsupported value: "metadata.uid": supported values: "metadata.name"',
                f'.{TERM}.matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
            ],
            id="a field that is no field",
        ),
        pytest.param(
            "NodeAffinity",
            requires({"key": "metadata.name", "operator": "In", "values": []}, "matchFields"),
            [f".{TERM}.matchFields[0].values: Invalid value: []: must have one element"],
            id="a node without a name",
        ),
        pytest.param(
            "NodeAffinity",
            {"addedAffinity": {SOFT: [{"weight": -1}]}},
            [f".addedAffinity.{SOFT}[0].weight: Invalid value: -1: not in valid range [0, inf)"],
            id="a wish that pods fail for",
        ),
        pytest.param(
            "NodeResourcesFit",
            {"ignoredResources": ["ok", "a/b/c", 5]},
            [
                f'.ignoredResources[1]: Invalid value: "a/b/c": {label_key("a/b/c")[0]}',
                ".ignoredResources[2]: must be a string, got 5",
            ],
            id="bad resource names",
        ),
        pytest.param(
            "NodeResourcesFit",
            {"ignoredResourceGroups": ["example.com/"]},
            [
                ".ignoredResourceGroups[0]: Invalid value: \"example.com/\": resource group name can't contain '/'",
                '.ignoredResourceGroups[0]: Invalid value: "example.com/": name part must be non-empty',
                f'.ignoredResourceGroups[0]: Invalid value: "example.com/": {KEY_RULE}',
            ],
            id="a group with a slash",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(type="Least"),
            [f'.scoringStrategy.type: Unsupported value: "Least": {STRATEGIES}'],
            id="no such strategy",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(resources=[{"name": "cpu"}]),
            [f'.scoringStrategy.type: Unsupported value: "": {STRATEGIES}'],
            id="a strategy without a type, which has no default",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(),
            [f'.scoringStrategy.type: Unsupported value: "": {STRATEGIES}'],
            id="an empty strategy",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(
                type="LeastAllocated",
                resources=[{"name": "cpu", "weight": 101}, {"name": "memory", "weight": -1}, {"weight": 1}],
            ),
            [
                (
                    ".scoringStrategy.resources[0].weight: "
                    "Invalid value: 101: resource weight of cpu not in valid range (0, 100]"
                ),
                (
                    ".scoringStrategy.resources[1].weight: "
                    "Invalid value: -1: resource weight of memory not in valid range (0, 100]"
                ),
                ".scoringStrategy.resources[2].name: Required value",
            ],
            id="weights out of range and a missing name",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(type="MostAllocated", requestedToCapacityRatio={"shape": [{"utilization": 0, "score": 0}]}),
            [
                (
                    ".scoringStrategy.requestedToCapacityRatio: "
                    "Forbidden: must be nil when type is not RequestedToCapacityRatio"
                )
            ],
            id="a curve for another strategy",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(type="RequestedToCapacityRatio"),
            [
                (
                    ".scoringStrategy.requestedToCapacityRatio: "
                    "Required value: must be specified when type is RequestedToCapacityRatio"
                )
            ],
            id="no ratio",
        ),
        pytest.param(
            "NodeResourcesFit",
            fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": []}),
            [f".{SHAPE}: Required value: at least one point must be specified"],
            id="no curve",
        ),
        pytest.param(
            "NodeResourcesFit",
            curve((100, 0), (50, 5), (0, 10)),
            [f".{SHAPE}[1].utilization: Invalid value: 50: values must be sorted in increasing order"],
            id="216 a descending curve, told once",
        ),
        pytest.param(
            "NodeResourcesFit",
            curve((-1, 11), (101, -1)),
            [
                f".{SHAPE}[0].utilization: Invalid value: -1: not in valid range [0, 100]",
                f".{SHAPE}[0].score: Invalid value: 11: not in valid range [0, 10]",
                f".{SHAPE}[1].utilization: Invalid value: 101: not in valid range [0, 100]",
                f".{SHAPE}[1].score: Invalid value: -1: not in valid range [0, 10]",
            ],
            id="a curve out of range",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu", "weight": 1}]},
            [".resources[0].weight: Invalid value: 2: must be 1", '.resources[1].name: Duplicate value: "cpu"'],
            id="balance with a weight and a double",
        ),
        pytest.param(
            "PodTopologySpread",
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
            ['.defaultingType: Invalid value: "System": when .defaultConstraints are not empty'],
            id="constraints with the system's defaults",
        ),
        pytest.param(
            "PodTopologySpread",
            {"defaultingType": "Mine"},
            ['.defaultingType: Unsupported value: "Mine": supported values: "System", "List"'],
            id="no such defaulting",
        ),
        pytest.param(
            "PodTopologySpread",
            spread({"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never"}),
            [
                ".defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                ".defaultConstraints[0].topologyKey: Required value: can not be empty",
                (
                    ".defaultConstraints[0].whenUnsatisfiable: "
                    'Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"'
                ),
            ],
            id="a constraint with nothing right",
        ),
        pytest.param(
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": [{}]},
            [
                ".defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                ".defaultConstraints[0].topologyKey: Required value: can not be empty",
                ".defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            ],
            id="an empty constraint",
        ),
        pytest.param(
            "PodTopologySpread",
            spread({"labelSelector": {"matchLabels": {"a": "b"}}}),
            [
                (
                    ".defaultConstraints[0].labelSelector: "
                    "Forbidden: constraint must not define a selector, as they deduced for each pod"
                )
            ],
            id="a selector",
        ),
        pytest.param(
            "PodTopologySpread",
            spread({}, {"maxSkew": 2}),
            ['.defaultConstraints[1]: Duplicate value: "{zone, DoNotSchedule}"'],
            id="a constraint twice",
        ),
        pytest.param(
            "PodTopologySpread",
            spread({"minDomains": "2", "nodeAffinityPolicy": "Maybe"}),
            [
                '.defaultConstraints[0].minDomains: must be an integer, got "2"',
                '.defaultConstraints[0].nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"',
            ],
            id="a word for minDomains, and an unknown policy",
        ),
        pytest.param(
            "VolumeBinding",
            {"bindTimeoutSeconds": -10},
            [".bindTimeoutSeconds: Invalid value: -10: invalid BindTimeoutSeconds, should not be a negative value"],
            id="negative time",
        ),
        pytest.param(
            "VolumeBinding",
            {"shape": []},
            [
                (
                    ".shape: Invalid value: []: "
                    "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
                )
            ],
            id="a shape, even an empty one, while its gate is off",
        ),
        pytest.param(
            "VolumeBinding",
            {"shape": [{"utilization": 5}]},
            [
                (
                    '.shape: Invalid value: [{"Utilization":5,"Score":0}]: '
                    "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
                )
            ],
            id="and one with a point",
        ),
        pytest.param(
            "DynamicResources",
            {"filterTimeout": "-1s", "bindingTimeout": "999ms"},
            [
                '.filterTimeout: Invalid value: "-1s": must be zero or positive',
                '.bindingTimeout: Invalid value: "999ms": must be at least 1 second',
            ],
            id="times too short",
        ),
        pytest.param(
            "DynamicResources", {"filterTimeout": 10}, [".filterTimeout: must be a string, got 10"], id="a bare number"
        ),
    ],
)
def test_mistakes(plugin: str, args: Any, said: list[str]) -> None:
    """Found at load, each with its full path."""
    assert sorted(mistakes(with_args(plugin, args))) == sorted(PATH + line for line in said)


@pytest.mark.parametrize(
    ("off", "args", "said"),
    [
        pytest.param(FILTER_TIMEOUT, {"filterTimeout": "1s"}, [NO_SEARCH_TIME], id="a time to search"),
        pytest.param(FILTER_TIMEOUT, {"filterTimeout": "-1s"}, [NO_SEARCH_TIME], id="told once"),
        pytest.param(FILTER_TIMEOUT, {"bindingTimeout": "1s"}, [], id="the other time is not concerned"),
        pytest.param(BINDING_CONDITIONS, {"bindingTimeout": "1s"}, [NO_BINDING_TIME], id="a time to bind"),
        pytest.param(
            CLAIM_DEVICE_STATUS, {"bindingTimeout": "0s"}, [NO_BINDING_TIME], id="without a status to look at"
        ),
        pytest.param(BINDING_CONDITIONS, {"filterTimeout": "1s", "bindingTimeout": None}, [], id="none is given"),
    ],
)
def test_times_for_devices_while_their_gates_are_off(off: str, args: Any, said: list[str]) -> None:
    """In upstream's words (docs/spec/dra.md §3.1): a setting that would count for nothing is a mistake."""
    found = mistakes(with_args("DynamicResources", args), feature_gates=DEVICE_GATES_ON - {off})

    assert found == [PATH + line for line in said]


def test_the_capacity_curve_with_its_gate_on() -> None:
    """A given curve is checked and kept; none or an empty one is the default: most free space first."""
    usual = VolumeBindingArgs(shape=(ShapePoint(0, 10), ShapePoint(100, 0)))

    for document in ({}, with_args("VolumeBinding", {}), with_args("VolumeBinding", {"shape": []})):
        assert read(document, feature_gates=SCORING).profiles[0].args_for(VolumeBindingArgs) == usual
    tight = with_args("VolumeBinding", {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]})
    assert read(tight, feature_gates=SCORING).profiles[0].args_for(VolumeBindingArgs).shape[1] == ShapePoint(100, 10)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        pytest.param(
            [(3, 3), (1, 1), (1, 1)],
            ["[1].utilization: Invalid value: 1: values must be sorted in increasing order"],
            id="out of order, told once",
        ),
        pytest.param(
            [(-1, 1), (101, -1), (102, 11)],
            [
                "[0].utilization: Invalid value: -1: not in valid range [0, 100]",
                "[1].utilization: Invalid value: 101: not in valid range [0, 100]",
                "[1].score: Invalid value: -1: not in valid range [0, 10]",
                "[2].utilization: Invalid value: 102: not in valid range [0, 100]",
                "[2].score: Invalid value: 11: not in valid range [0, 10]",
            ],
            id="out of range",
        ),
        pytest.param(
            [(5, 1), (-1, 1)],
            [
                "[1].utilization: Invalid value: -1: values must be sorted in increasing order",
                "[1].utilization: Invalid value: -1: not in valid range [0, 100]",
            ],
            id="both",
        ),
    ],
)
def test_mistakes_in_the_capacity_curve(points: list[tuple[int, int]], said: list[str]) -> None:
    """In upstream's words (docs/spec/volumes.md §6.6)."""
    shape = [{"utilization": u, "score": s} for u, s in points]
    found = mistakes(with_args("VolumeBinding", {"shape": shape}), feature_gates=SCORING)

    assert sorted(found) == sorted(f"{PATH}.shape{line}" for line in said)


def test_without_a_file_gates_count_too() -> None:
    """The curve is there and plugins can ask; a gate that is not known is not kept."""
    configuration = default(feature_gates=SCORING | {"VolumeLimitScaling", "Foo"})

    assert configuration.profiles[0].args_for(VolumeBindingArgs).shape == CAPACITY_SHAPE
    assert configuration.feature_gates == {"StorageCapacityScoring", "VolumeLimitScaling"}
    assert read({}, feature_gates=SCORING | {"VolumeLimitScaling", "Foo"}) == configuration
    assert default().feature_gates == read({}).feature_gates == DEVICE_GATES_ON


def test_parity_sets_every_switch() -> None:
    """Also where it is made by hand; each switch is upstream's under parity and ours without, and none is forgotten."""
    switches = {field.name for field in dataclasses.fields(KubestowArgs)} - {"parity", "victims"}

    assert switches == UPSTREAM.keys() == SPELLED.keys()
    for name, upstream in UPSTREAM.items():
        assert getattr(KubestowArgs(parity=True, bind_poll="events"), name) == upstream
        assert getattr(KubestowArgs(), name) != upstream or name == "require_csi_node_drivers"
