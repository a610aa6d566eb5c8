"""Slices of devices that the server refuses, and the texts of the refusals."""

import pytest

from tests.contract.claims import NO_EFFECT, ONE_COUNTER, POOL, SET, SLICE, SLICES, TAINT, device, made, present, shared
from tests.contract.conftest import Api, Object, problems
from tests.contract.words import IDENTIFIER, KEY, LABEL, REQUIRED, SUBDOMAIN, VALUE, Row, too_many, within, wrong

NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
DEVICE_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
BAD_SLICES = [
    pytest.param(
        {"driver": "", "pool": {}},
        [
            ("driver", REQUIRED),
            ("pool.name", REQUIRED),
            ("pool.resourceSliceCount", "Invalid value: 0: must be greater than zero"),
        ],
        id="no driver and no pool",
    ),
    wrong("a long driver", {"driver": "a" * 64}, "driver", "Too long: may not be more than 63 bytes"),
    wrong(
        "a generation before the first",
        {"pool": POOL | {"generation": -1}},
        "pool.generation",
        "Invalid value: -1: must be greater than or equal to zero",
    ),
    wrong("nowhere", {"nodeName": None}, "", f"Required value: {NODES}"),
    pytest.param(
        {"nodeName": ""},
        [
            ("nodeName", 'Invalid value: "": must be either unset or set to a non-empty string'),
            ("", f"Required value: {NODES}"),
        ],
        id="on a node without a name",
    ),
    wrong("on a node that cannot be", {"nodeName": "A_"}, "nodeName", f'Invalid value: "A_": {SUBDOMAIN}'),
    wrong(
        "on one and on all",
        {"allNodes": True},
        "",
        f'Invalid value: "{{`nodeName`, `allNodes`}}": {NODES}, but multiple fields are set',
    ),
    pytest.param(
        {"allNodes": False, "perDeviceNodeSelection": False},
        [
            ("allNodes", "Invalid value: false: must be either unset or set to true"),
            ("perDeviceNodeSelection", "Invalid value: false: must be either unset or set to true"),
        ],
        id="said to be false",
    ),
    pytest.param(
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}},
        [
            ("nodeSelector.nodeSelectorTerms", "Required value: must have at least one node selector term"),
            ("nodeSelector.nodeSelectorTerms", "Invalid value: []: must have exactly one node selector term"),
        ],
        id="a selector of nothing",
    ),
    pytest.param(
        {
            "nodeName": None,
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "a", "operator": "X"},
                            {"key": "a", "operator": "In"},
                            {"key": "a", "operator": "Exists", "values": ["b"]},
                            {"key": "a", "operator": "Gt"},
                        ]
                    }
                ]
            },
        },
        [
            (
                "nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator",
                'Invalid value: "X": not a valid selector operator',
            ),
            (
                "nodeSelector.nodeSelectorTerms[0].matchExpressions[1].values",
                "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                "nodeSelector.nodeSelectorTerms[0].matchExpressions[2].values",
                "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                "nodeSelector.nodeSelectorTerms[0].matchExpressions[3].values",
                "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
        ],
        id="a selector's operators",
    ),
    wrong(
        "a device nowhere",
        {"nodeName": None, "perDeviceNodeSelection": True} | device(),
        "devices[0]",
        f"Required value: {DEVICE_NODES}",
    ),
    wrong(
        "a device on one and on all",
        {"nodeName": None, "perDeviceNodeSelection": True} | device(nodeName="n", allNodes=True),
        "devices[0]",
        f'Invalid value: "{{`nodeName`, `allNodes`}}": {DEVICE_NODES}',
    ),
    wrong(
        "a device with a node name",
        device(nodeName="n"),
        "devices[0]",
        "Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
    ),
    wrong(
        "counters and devices",
        {"sharedCounters": [SET], "devices": []},
        "",
        'Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
    ),
    pytest.param(
        {
            "sharedCounters": [
                SET,
                SET | {"counters": {}},
                {"name": "C_", "counters": {"M_": {"value": "1"}}},
                {"name": "many", "counters": {f"m{i}": {"value": "1"} for i in range(33)}},
            ]
        },
        [
            ("sharedCounters[1].counters", REQUIRED),
            ("sharedCounters[2].name", f'Invalid value: "C_": {LABEL}'),
            ("sharedCounters[2].counters", f'Invalid value: "M_": {LABEL}'),
            ("sharedCounters[3].counters", "Too many: 33: must have at most 32 items"),
            ("sharedCounters[1]", 'Duplicate value: "c"'),
        ],
        id="counter sets",
    ),
    too_many("too many counter sets", {"sharedCounters": [SET] * 9}, "sharedCounters", 9, 8),
    too_many("too many devices", {"devices": [{"name": f"d{i}"} for i in range(129)]}, "devices", 129, 128),
    too_many(
        "too many devices with taints",
        {"devices": [{"name": f"d{i}", "taints": [TAINT]} for i in range(65)]},
        "devices",
        65,
        64,
    ),
    pytest.param(
        {"devices": [{"name": "D"}, {"name": "D"}]},
        [
            ("devices[0].name", f'Invalid value: "D": {LABEL}'),
            ("devices[1].name", f'Invalid value: "D": {LABEL}'),
            ("devices[1]", 'Duplicate value: "D"'),
        ],
        id="devices' names",
    ),
    *within(
        "devices[0]",
        pytest.param(
            device(consumesCounters=[{"counters": ONE_COUNTER}, {"counterSet": "c", "counters": {}}]),
            [(".consumesCounters[0].counterSet", REQUIRED), (".consumesCounters[1].counters", REQUIRED)],
            id="consumption of nothing",
        ),
        wrong(
            "consumption twice",
            device(consumesCounters=[{"counterSet": "c", "counters": ONE_COUNTER}] * 2),
            ".consumesCounters[1]",
            'Duplicate value: "c"',
        ),
        too_many(
            "too much consumption",
            device(consumesCounters=[{"counterSet": "c", "counters": ONE_COUNTER}] * 3),
            ".consumesCounters",
            3,
            2,
        ),
        wrong(
            "an attribute without a value",
            device(attributes={"a": {}}),
            ".attributes[a]",
            'Invalid value: "": exactly one value must be specified',
        ),
        wrong(
            "a long attribute",
            device(attributes={"a": {"string": "s" * 65}}),
            ".attributes[a].string",
            "Too long: may not be more than 64 bytes",
        ),
        wrong(
            "a version that is none",
            device(attributes={"a": {"version": "1.2"}}),
            ".attributes[a].version",
            'Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0',
        ),
        wrong(
            "an attribute's name",
            device(attributes={"a-b": {"int": 1}}),
            ".attributes",
            f'Invalid value: "a-b": {IDENTIFIER}',
        ),
        wrong(
            "an attribute of no domain",
            device(attributes={"/b": {"int": 1}}),
            ".attributes",
            'Invalid value: "": the domain must not be empty',
        ),
        wrong(
            "an attribute of no name",
            device(attributes={"a.b/": {"int": 1}}),
            ".attributes",
            'Invalid value: "": the name must not be empty',
        ),
        wrong(
            "an attribute's long name",
            device(attributes={"a" * 33: {"int": 1}}),
            ".attributes",
            "Too long: may not be more than 32 bytes",
        ),
        wrong(
            "too many attributes and capacities",
            device(attributes={f"a{i}": {"int": i} for i in range(32)}, capacity={"m": {"value": "1"}}),
            "",
            "Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        ),
        pytest.param(
            device(taints=[{"key": "", "value": "a b"}, TAINT | {"effect": "X"}]),
            [
                (".taints[0].key", 'Invalid value: "": name part must be non-empty'),
                (".taints[0].key", f'Invalid value: "": {KEY}'),
                (".taints[0].value", f'Invalid value: "a b": {VALUE}'),
                (".taints[0].effect", REQUIRED),
                (".taints[1].effect", NO_EFFECT),
            ],
            id=".taints",
        ),
        too_many("too many taints", device(taints=[TAINT] * 17), ".taints", 17, 16),
        wrong(
            "only failures",
            device(bindingFailureConditions=["a"]),
            ".bindingConditions",
            "Invalid value: null: bindingConditions are required to use bindingFailureConditions",
        ),
        wrong(
            "portions for one user",
            device(capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}}),
            ".capacity[m].requestPolicy",
            "Forbidden: allowMultipleAllocations must be true",
        ),
    ),
    *within(
        "devices[0].capacity[m].requestPolicy",
        wrong(
            "two policies",
            shared(default="1", validRange={"min": "1"}, validValues=["1"]),
            "",
            'Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time',
        ),
        wrong(
            "portions without a default",
            shared(validValues=["1"]),
            ".default",
            "Required value: required when validValues is defined",
        ),
        wrong(
            "a range without a default",
            shared(validRange={"min": "1"}),
            ".default",
            "Required value: required when validRange is defined",
        ),
        pytest.param(
            shared(default="3", validValues=["2", "1", "11"]),
            [
                (".validValues[1]", 'Invalid value: "1": values must be sorted in ascending order'),
                (".validValues[2]", 'Invalid value: "11": option is larger than capacity value: 10'),
                (".validValues", 'Invalid value: "3": default value is not valid according to the requestPolicy'),
            ],
            id="portions",
        ),
        wrong(
            "a range without a beginning",
            shared(default="1", validRange={"max": "9"}),
            ".validRange.min",
            "Required value: required when validRange is defined",
        ),
        pytest.param(
            shared(default="1", validRange={"min": "2", "max": "11", "step": "9"}),
            [
                (".validRange.min", 'Invalid value: "1": default is less than min: 2'),
                (".validRange.max", 'Invalid value: "11": max is larger than capacity value: 10'),
                (".validRange.step", 'Invalid value: "9": one step 11 is larger than capacity value: 10'),
                (".validRange.step", 'Invalid value: "1": value is not a multiple of a given step (9) from (2)'),
            ],
            id="a range",
        ),
    ),
]


@pytest.mark.parametrize(("change", "expected"), BAD_SLICES)
async def test_slices_that_cannot_be(api: Api, change: Object, expected: list[Row]) -> None:
    answer = await made(api, SLICES, present(change))
    assert problems(answer) == [(f"spec.{field}".rstrip("."), why) for field, why in expected]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(device(capacity={"m": {"value": "x"}}), id="a capacity"),
        pytest.param({"sharedCounters": [{"name": "c", "counters": {"m": {"value": "x"}}}]}, id="a counter"),
        pytest.param(
            device(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "x"}}}]), id="a consumption"
        ),
    ],
)
async def test_amounts_that_are_none(api: Api, change: Object) -> None:
    answer = await made(api, SLICES, SLICE | change)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
