"""Plugin arguments: defaults, and every rule of docs/spec/core.md §6.4."""

import dataclasses
import json
from typing import Any

import pytest

from scheduler.api.meta import NAME_RULE, label_key, label_value
from scheduler.config.args import (
    CAPACITY_SHAPE,
    SPELLED,
    UPSTREAM,
    DefaultConstraint,
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
    default_args,
)
from scheduler.config.dump import to_document
from scheduler.config.load import default
from scheduler.config.schema import spelled
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, DEVICE_GATES_ON, FILTER_TIMEOUT
from tests.unit.config.documents import mistakes, read, table, with_args

PATH = "profiles[0].pluginConfig[0].args"
SCORING = frozenset({"StorageCapacityScoring"})
NO_SEARCH_TIME = ".filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"
NO_BINDING_TIME = (
    ".bindingTimeout: Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
)


@pytest.mark.parametrize("args", default_args().values(), ids=lambda args: type(args).__name__)
def test_empty_arguments_are_the_defaults(args: KnownArgs) -> None:
    for document in ({}, with_args(args.plugin, None), with_args(args.plugin, {})):
        assert read(document).profiles[0].args[args.plugin] == args == type(args)()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(
            {"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": True},
            InterPodAffinityArgs(100, True),
            id="inter-pod affinity",
        ),
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
        pytest.param(
            {"filterTimeout": "0s", "bindingTimeout": "1s"}, DynamicResourcesArgs(0.0, 1.0), id="devices, at the limits"
        ),
        pytest.param(
            {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True},
            KubestowArgs(True),
            id="ours",
        ),
        pytest.param({"victims": "own"}, KubestowArgs(victims="own"), id="only our own pods may be victims"),
        pytest.param(
            {"parity": True, "deviceScoring": "firstFit", "requireCSINodeDrivers": []},
            KubestowArgs(parity=True),
            id="parity, and what it means anyway",
        ),
    ],
)
def test_given_arguments_arrive_typed(given: dict[str, Any], wanted: KnownArgs) -> None:
    assert read(with_args(wanted.plugin, given)).profiles[0].args_for(type(wanted)) == wanted


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
REQUIRED = f"addedAffinity.{HARD}"
TERM = f"{REQUIRED}.nodeSelectorTerms[0]"
SHAPE = "scoringStrategy.requestedToCapacityRatio.shape"
STRATEGIES = 'supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
OPERATORS = 'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
[KEY_RULE] = label_key("a b")
[VALUE_RULE] = label_value("x y")


MISTAKES = table(
    """
# a list for arguments
{"VolumeBinding": []}
- : must be a mapping, got a list
# another kind
{"NodeAffinity": {"kind": "X"}}
- .kind: must be NodeAffinityArgs, got "X"
# upstream's version for our arguments
{"Kubestow": {"apiVersion": "kubescheduler.config.k8s.io/v1"}}
- .apiVersion: must be kubestow.dev/v1alpha1, got "kubescheduler.config.k8s.io/v1"
# victims in other words
{"Kubestow": {"victims": "own-first"}}
- .victims: Unsupported value: "own-first": supported values: "all", "own", "ownFirst"
# switches of volumes in other words
{"Kubestow": {"storageCapacityReservation": "off", "requireCSINodeDrivers": ["ebs/csi",
"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"], "storagePoolSharing": true}}
- .storageCapacityReservation: Unsupported value: "off": supported values: "ledger", "none"
- .requireCSINodeDrivers[0]: Invalid value: "ebs/csi": <NAME_RULE>
- .requireCSINodeDrivers[1]: Invalid value: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": must be no more than 63 characters
- .storagePoolSharing: must be a string, got true
# switches of devices in other words
{"Kubestow": {"deviceScoring": "first", "devicePreemption": false, "derivedNominations": "off"}}
- .deviceScoring: Unsupported value: "first": supported values: "pack", "firstFit", "leastFragmentation"
- .devicePreemption: must be a string, got false
- .derivedNominations: Unsupported value: "off": supported values: "on", "none"
# parity, and otherwise than upstream all the same
{"Kubestow": {"parity": true, "storageCapacityReservation": "ledger", "storagePoolSharing": "all",
"requireCSINodeDrivers": ["a"], "deviceScoring": "pack", "devicePreemption": "on", "derivedNominations": "on"}}
- .storageCapacityReservation: must be "none" where parity is true
- .storagePoolSharing: must be "none" where parity is true
- .requireCSINodeDrivers: must be absent where parity is true
- .deviceScoring: must be "firstFit" where parity is true
- .devicePreemption: must be "none" where parity is true
- .derivedNominations: must be "none" where parity is true
# fields of earlier versions, one of them without a value
{"Kubestow": {"bindPoll": "upstream", "volumeWriteRetries": 3, "zoneEphemeral": null, "boundClaimCapacity": "score"}}
- .bindPoll: unknown field
- .volumeWriteRetries: unknown field
- .zoneEphemeral: unknown field
- .boundClaimCapacity: unknown field
# a typo
{"Kubestow": {"paritty": true}}
- .paritty: unknown field, did you mean "parity"?
# preemption out of range
{"DefaultPreemption": {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1}}
- .minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]
- .minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)
# preemption without candidates
{"DefaultPreemption": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}}
- .minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute
- .minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage
# affinity weight out of range
{"InterPodAffinity": {"hardPodAffinityWeight": 101}}
- .hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]
# In nothing
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}}}
- .<TERM>.matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty
# Exists with values
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]}}}}
- .<TERM>.matchExpressions[0].values: Invalid value: ["b"]: values set must be empty for exists and does not exist
# a bad operator, and nothing about the rest
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchExpressions": [{"key": "a b", "operator": "Like", "values": ["x y"]}]}]}}}}
- .<TERM>.matchExpressions[0].operator: Unsupported value: "Like": <OPERATORS>
# a bad key, and too many values of which one is bad
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchExpressions": [{"key": "a b", "operator": "Lt", "values": ["x y", "2"]}]}]}}}}
- .<TERM>.matchExpressions[0].key: Invalid value: "a b": <KEY_RULE>
- .<TERM>.matchExpressions[0].values: Invalid value: ["x y","2"]: for 'Gt', 'Lt' operators, exactly one value is required
- .<TERM>.matchExpressions[0].values[0]: Invalid value: "x y": for 'Gt', 'Lt' operators, the value must be an integer
- .<TERM>.matchExpressions[0].values[0][a b]: Invalid value: "x y": <VALUE_RULE>
# a field that is no field
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchFields": [{"key": "metadata.uid", "operator": "Exists"}]}]}}}}
- .<TERM>.matchFields[0].key: Unsupported value: "metadata.uid": supported values: "metadata.name"
- .<TERM>.matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"
# a node without a name
{"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
[{"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]}]}}}}
- .<TERM>.matchFields[0].values: Invalid value: []: must have one element
# a wish that pods fail for
{"NodeAffinity": {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": -1}]}}}
- .addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: -1: not in valid range [0, inf)
# bad resource names
{"NodeResourcesFit": {"ignoredResources": ["ok", "a/b/c", 5]}}
- .ignoredResources[1]: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
- .ignoredResources[2]: must be a string, got 5
# a group with a slash
{"NodeResourcesFit": {"ignoredResourceGroups": ["example.com/"]}}
- .ignoredResourceGroups[0]: Invalid value: "example.com/": resource group name can't contain '/'
- .ignoredResourceGroups[0]: Invalid value: "example.com/": name part must be non-empty
- .ignoredResourceGroups[0]: Invalid value: "example.com/": <KEY_RULE>
# no such strategy
{"NodeResourcesFit": {"scoringStrategy": {"type": "Least"}}}
- .scoringStrategy.type: Unsupported value: "Least": <STRATEGIES>
# an empty strategy
{"NodeResourcesFit": {"scoringStrategy": {}}}
- .scoringStrategy.type: Unsupported value: "": <STRATEGIES>
# weights out of range and a missing name
{"NodeResourcesFit": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101},
{"name": "memory", "weight": -1}, {"weight": 1}]}}}
- .scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]
- .scoringStrategy.resources[1].weight: Invalid value: -1: resource weight of memory not in valid range (0, 100]
- .scoringStrategy.resources[2].name: Required value
# a curve for another strategy
{"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {"shape":
[{"utilization": 0, "score": 0}]}}}}
- .scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio
# no ratio
{"NodeResourcesFit": {"scoringStrategy": {"type": "RequestedToCapacityRatio"}}}
- .scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio
# no curve
{"NodeResourcesFit": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape":
[]}}}}
- .<SHAPE>: Required value: at least one point must be specified
# a descending curve is reported once
{"NodeResourcesFit": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape":
[{"utilization": 100, "score": 0}, {"utilization": 50, "score": 5}, {"utilization": 0, "score": 10}]}}}}
- .<SHAPE>[1].utilization: Invalid value: 50: values must be sorted in increasing order
# a curve out of range
{"NodeResourcesFit": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape":
[{"utilization": -1, "score": 11}, {"utilization": 101, "score": -1}]}}}}
- .<SHAPE>[0].utilization: Invalid value: -1: not in valid range [0, 100]
- .<SHAPE>[0].score: Invalid value: 11: not in valid range [0, 10]
- .<SHAPE>[1].utilization: Invalid value: 101: not in valid range [0, 100]
- .<SHAPE>[1].score: Invalid value: -1: not in valid range [0, 10]
# balance with a weight and a double
{"NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu", "weight": 1}]}}
- .resources[0].weight: Invalid value: 2: must be 1
- .resources[1].name: Duplicate value: "cpu"
# constraints with the system's defaults
{"PodTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable":
"DoNotSchedule"}]}}
- .defaultingType: Invalid value: "System": when .defaultConstraints are not empty
# no such defaulting
{"PodTopologySpread": {"defaultingType": "Mine"}}
- .defaultingType: Unsupported value: "Mine": supported values: "System", "List"
# a constraint with nothing right
{"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0, "topologyKey": "",
"whenUnsatisfiable": "Never"}]}}
- .defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)
- .defaultConstraints[0].topologyKey: Required value: can not be empty
- .defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"
# an empty constraint
{"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [{}]}}
- .defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)
- .defaultConstraints[0].topologyKey: Required value: can not be empty
- .defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty
# a selector
{"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone",
"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}]}}
- .defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod
# a constraint twice
{"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone",
"whenUnsatisfiable": "DoNotSchedule"}, {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}}
- .defaultConstraints[1]: Duplicate value: "{zone, DoNotSchedule}"
# a word for minDomains, and an unknown policy
{"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone",
"whenUnsatisfiable": "DoNotSchedule", "minDomains": "2", "nodeAffinityPolicy": "Maybe"}]}}
- .defaultConstraints[0].minDomains: must be an integer, got "2"
- .defaultConstraints[0].nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"
# negative time
{"VolumeBinding": {"bindTimeoutSeconds": -10}}
- .bindTimeoutSeconds: Invalid value: -10: invalid BindTimeoutSeconds, should not be a negative value
# a shape, even an empty one, while its gate is off
{"VolumeBinding": {"shape": []}}
- .shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring
# and one with a point
{"VolumeBinding": {"shape": [{"utilization": 5}]}}
- .shape: Invalid value: [{"Utilization":5,"Score":0}]: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring
# times too short
{"DynamicResources": {"filterTimeout": "-1s", "bindingTimeout": "999ms"}}
- .filterTimeout: Invalid value: "-1s": must be zero or positive
- .bindingTimeout: Invalid value: "999ms": must be at least 1 second
# a bare number
{"DynamicResources": {"filterTimeout": 10}}
- .filterTimeout: must be a string, got 10
""",
    NAME_RULE=NAME_RULE,
    KEY_RULE=KEY_RULE,
    VALUE_RULE=VALUE_RULE,
    TERM=TERM,
    SHAPE=SHAPE,
    STRATEGIES=STRATEGIES,
    OPERATORS=OPERATORS,
)


@pytest.mark.parametrize(("mistaken", "said"), MISTAKES)
def test_mistakes(mistaken: dict[str, Any], said: list[str]) -> None:
    """216: each mistake is found at load, and its text begins with the full path."""
    ((plugin, args),) = mistaken.items()

    assert sorted(mistakes(with_args(plugin, args))) == sorted(PATH + line for line in said)


@pytest.mark.parametrize(("off", "args", "said"), [
    pytest.param(FILTER_TIMEOUT, {"filterTimeout": "1s"}, [NO_SEARCH_TIME], id="a time to search"),
    pytest.param(FILTER_TIMEOUT, {"bindingTimeout": "1s"}, [], id="the other time is not concerned"),
    pytest.param(BINDING_CONDITIONS, {"bindingTimeout": "1s"}, [NO_BINDING_TIME], id="a time to bind"),
    pytest.param(CLAIM_DEVICE_STATUS, {"bindingTimeout": "0s"}, [NO_BINDING_TIME], id="without a status to look at"),
    pytest.param(BINDING_CONDITIONS, {"filterTimeout": "1s", "bindingTimeout": None}, [], id="none is given"),
])  # fmt: skip
def test_times_for_devices_while_their_gates_are_off(off: str, args: Any, said: list[str]) -> None:
    """In upstream's words (docs/spec/dra.md §3.1): a setting that would count for nothing is a mistake."""
    found = mistakes(with_args("DynamicResources", args), feature_gates=DEVICE_GATES_ON - {off})

    assert found == [PATH + line for line in said]


def test_the_capacity_curve_with_its_gate_on() -> None:
    usual = VolumeBindingArgs(shape=(ShapePoint(0, 10), ShapePoint(100, 0)))

    for document in ({}, with_args("VolumeBinding", {}), with_args("VolumeBinding", {"shape": []})):
        assert read(document, feature_gates=SCORING).profiles[0].args_for(VolumeBindingArgs) == usual
    tight = with_args("VolumeBinding", {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]})
    assert read(tight, feature_gates=SCORING).profiles[0].args_for(VolumeBindingArgs).shape[1] == ShapePoint(100, 10)


def test_mistakes_in_the_capacity_curve() -> None:
    """In upstream's words (docs/spec/volumes.md §6.6), as for the curve of the ratio above."""
    shape = [{"utilization": 5, "score": 1}, {"utilization": -1, "score": 11}]

    assert sorted(mistakes(with_args("VolumeBinding", {"shape": shape}), feature_gates=SCORING)) == [
        f"{PATH}.shape[1].score: Invalid value: 11: not in valid range [0, 10]",
        f"{PATH}.shape[1].utilization: Invalid value: -1: not in valid range [0, 100]",
        f"{PATH}.shape[1].utilization: Invalid value: -1: values must be sorted in increasing order",
    ]


def test_without_a_file_gates_count_too() -> None:
    configuration = default(feature_gates=SCORING | {"VolumeLimitScaling", "Foo"})

    assert configuration.profiles[0].args_for(VolumeBindingArgs).shape == CAPACITY_SHAPE
    assert configuration.feature_gates == {"StorageCapacityScoring", "VolumeLimitScaling"}
    assert read({}, feature_gates=SCORING | {"VolumeLimitScaling", "Foo"}) == configuration
    assert default().feature_gates == read({}).feature_gates == DEVICE_GATES_ON


def test_parity_sets_every_switch() -> None:
    """Also where it is made by hand; each switch is upstream's under parity and ours without, and none is forgotten."""
    switches = {field.name for field in dataclasses.fields(KubestowArgs)} - {"parity", "victims"}

    assert switches == UPSTREAM.keys() >= SPELLED.keys()
    for name, upstream in UPSTREAM.items():
        assert getattr(KubestowArgs(parity=True, bind_poll="events"), name) == upstream
        assert getattr(KubestowArgs(), name) != upstream or name == "require_csi_node_drivers"
    for name, spelling in SPELLED.items():
        given = read(with_args(KubestowArgs.plugin, {spelling: UPSTREAM[name]})).profiles[0].args_for(KubestowArgs)
        assert getattr(given, name) == UPSTREAM[name]


@pytest.mark.parametrize("name", sorted(UPSTREAM.keys() - SPELLED.keys()))
def test_what_only_parity_sets_is_in_no_file(name: str) -> None:
    """Neither read nor written."""
    (said,) = mistakes(with_args(KubestowArgs.plugin, {spelled(name): UPSTREAM[name]}))

    assert said.startswith(f"{PATH}.{spelled(name)}: unknown field")
    assert spelled(name) not in json.dumps(to_document(default()))
