"""Slices of devices, device classes and the rules that taint devices: defaults, what is refused, what may change."""

from typing import Any

import pytest

from tests.contract.conftest import Answer, Api, Object, problems
from tests.contract.words import IDENTIFIER, KEY, LABEL, REQUIRED, SUBDOMAIN, VALUE, Row, condition

ROOT = "/apis/resource.k8s.io"
SLICES, CLASSES = f"{ROOT}/v1/resourceslices", f"{ROOT}/v1/deviceclasses"
SLICE: Object = {"driver": "d.x", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
POOL: Object = {"name": "p", "generation": 0, "resourceSliceCount": 1}
ONE_COUNTER: Object = {"m": {"value": "1"}}
SET: Object = {"name": "c", "counters": ONE_COUNTER}
TAINT: Object = {"key": "k", "effect": "NoSchedule"}
NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
DEVICE_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
NO_EFFECT = 'Unsupported value: "X": supported values: "NoExecute", "NoSchedule", "None"'
FIXED = "field is immutable"


def device(**parts: Any) -> Object:
    return {"devices": [{"name": "d1", **parts}]}


def shared(**policy: Any) -> Object:
    return device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": policy}})


def present(change: Object) -> Object:
    """A slice with these parts changed; None takes one away."""
    return {key: value for key, value in (SLICE | change).items() if value is not None}


async def made(api: Api, path: str, spec: Object, name: str = "") -> Answer:
    return await api("POST", path, {"metadata": {"name": name or f"x-{api.ns}"}, "spec": spec})


# -- slices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            device(
                attributes={
                    "a": {"int": 1},
                    "d.x/b": {"string": "s"},
                    "c": {"version": "1.2.3-a.1+b"},
                    "e": {"bool": False},
                },
                capacity={"mem": {"value": "1Gi"}},
                consumesCounters=[{"counterSet": "c", "counters": ONE_COUNTER}],
                bindsToNode=True,
                bindingConditions=["a.b/Ready"],
                bindingFailureConditions=["Failed"],
            ),
            id="a device with all it may have",
        ),
        pytest.param({"nodeName": None, "allNodes": True}, id="for all nodes"),
        pytest.param(
            {
                "nodeName": None,
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                },
            },
            id="for some nodes",
        ),
        pytest.param(
            {"nodeName": None, "perDeviceNodeSelection": True} | device(nodeName="n"), id="each device for its own"
        ),
        pytest.param({"sharedCounters": [SET]}, id="counters"),
        pytest.param({"driver": "D.x"}, id="a driver may be written large"),
        pytest.param(shared(default="1", validRange={"min": "1", "max": "9", "step": "2"}), id="a capacity in steps"),
        pytest.param(shared(default="2", validValues=["1", "2"]), id="a capacity in portions"),
    ],
)
async def test_a_new_slice(api: Api, change: Object) -> None:
    """Kept as it is, with a generation of its own and one of its pool."""
    created = await made(api, SLICES, present(change))
    assert (created.status, created.body.get("spec")) == (201, present(change) | {"pool": POOL})
    assert created.metadata["generation"] == 1
    gone = await api("DELETE", f"{SLICES}/x-{api.ns}")
    assert (gone.body["kind"], gone.body["spec"]) == ("ResourceSlice", created.body["spec"])


async def test_a_taint_says_since_when(api: Api) -> None:
    """The time of the write, unless it is told."""
    told = TAINT | {"key": "old", "timeAdded": "2026-01-01T00:00:00Z"}
    created = await made(api, SLICES, SLICE | device(taints=[TAINT, told], capacity={"m": {}}))
    (found,) = created.body["spec"]["devices"]
    since = created.metadata["creationTimestamp"]
    assert found == {"name": "d1", "taints": [TAINT | {"timeAdded": since}, told], "capacity": {"m": {"value": "0"}}}


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
    pytest.param({"driver": "a" * 64}, [("driver", "Too long: may not be more than 63 bytes")], id="a long driver"),
    pytest.param(
        {"pool": POOL | {"generation": -1}},
        [("pool.generation", "Invalid value: -1: must be greater than or equal to zero")],
        id="a generation before the first",
    ),
    pytest.param({"nodeName": None}, [("", f"Required value: {NODES}")], id="nowhere"),
    pytest.param(
        {"nodeName": ""},
        [
            ("nodeName", 'Invalid value: "": must be either unset or set to a non-empty string'),
            ("", f"Required value: {NODES}"),
        ],
        id="on a node without a name",
    ),
    pytest.param(
        {"nodeName": "A_"}, [("nodeName", f'Invalid value: "A_": {SUBDOMAIN}')], id="on a node that cannot be"
    ),
    pytest.param(
        {"allNodes": True},
        [("", f'Invalid value: "{{`nodeName`, `allNodes`}}": {NODES}, but multiple fields are set')],
        id="on one and on all",
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
    pytest.param(
        {"nodeName": None, "perDeviceNodeSelection": True} | device(),
        [("devices[0]", f"Required value: {DEVICE_NODES}")],
        id="a device nowhere",
    ),
    pytest.param(
        {"nodeName": None, "perDeviceNodeSelection": True} | device(nodeName="n", allNodes=True),
        [("devices[0]", f'Invalid value: "{{`nodeName`, `allNodes`}}": {DEVICE_NODES}')],
        id="a device on one and on all",
    ),
    pytest.param(
        device(nodeName="n"),
        [
            (
                "devices[0]",
                "Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            )
        ],
        id="a device with a node of its own",
    ),
    pytest.param(
        {"sharedCounters": [SET], "devices": []},
        [("", 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed')],
        id="counters and devices",
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
    pytest.param(
        {"sharedCounters": [SET] * 9},
        [("sharedCounters", "Too many: 9: must have at most 8 items")],
        id="too many counter sets",
    ),
    pytest.param(
        device(consumesCounters=[{"counters": ONE_COUNTER}, {"counterSet": "c", "counters": {}}]),
        [
            ("devices[0].consumesCounters[0].counterSet", REQUIRED),
            ("devices[0].consumesCounters[1].counters", REQUIRED),
        ],
        id="consumption of nothing",
    ),
    pytest.param(
        device(consumesCounters=[{"counterSet": "c", "counters": ONE_COUNTER}] * 2),
        [("devices[0].consumesCounters[1]", 'Duplicate value: "c"')],
        id="consumption twice",
    ),
    pytest.param(
        device(consumesCounters=[{"counterSet": "c", "counters": ONE_COUNTER}] * 3),
        [("devices[0].consumesCounters", "Too many: 3: must have at most 2 items")],
        id="too much consumption",
    ),
    pytest.param(
        {"devices": [{"name": f"d{i}"} for i in range(129)]},
        [("devices", "Too many: 129: must have at most 128 items")],
        id="too many devices",
    ),
    pytest.param(
        {"devices": [{"name": f"d{i}", "taints": [TAINT]} for i in range(65)]},
        [("devices", "Too many: 65: must have at most 64 items")],
        id="too many devices with taints",
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
    pytest.param(
        device(attributes={"a": {}}),
        [("devices[0].attributes[a]", 'Invalid value: "": exactly one value must be specified')],
        id="an attribute without a value",
    ),
    pytest.param(
        device(attributes={"a": {"string": "s" * 65}}),
        [("devices[0].attributes[a].string", "Too long: may not be more than 64 bytes")],
        id="a long attribute",
    ),
    pytest.param(
        device(attributes={"a": {"version": "1.2"}}),
        [
            (
                "devices[0].attributes[a].version",
                'Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0',
            )
        ],
        id="a version that is none",
    ),
    pytest.param(
        device(attributes={"a-b": {"int": 1}}),
        [("devices[0].attributes", f'Invalid value: "a-b": {IDENTIFIER}')],
        id="an attribute's name",
    ),
    pytest.param(
        device(attributes={"/b": {"int": 1}}),
        [("devices[0].attributes", 'Invalid value: "": the domain must not be empty')],
        id="an attribute of no domain",
    ),
    pytest.param(
        device(attributes={"a.b/": {"int": 1}}),
        [("devices[0].attributes", 'Invalid value: "": the name must not be empty')],
        id="an attribute of no name",
    ),
    pytest.param(
        device(attributes={"a" * 33: {"int": 1}}),
        [("devices[0].attributes", "Too long: may not be more than 32 bytes")],
        id="an attribute's long name",
    ),
    pytest.param(
        device(attributes={f"a{i}": {"int": i} for i in range(32)}, capacity={"m": {"value": "1"}}),
        [("devices[0]", "Invalid value: 33: the total number of attributes and capacities must not exceed 32")],
        id="too much to tell of a device",
    ),
    pytest.param(
        device(taints=[{"key": "", "value": "a b"}, TAINT | {"effect": "X"}]),
        [
            ("devices[0].taints[0].key", 'Invalid value: "": name part must be non-empty'),
            ("devices[0].taints[0].key", f'Invalid value: "": {KEY}'),
            ("devices[0].taints[0].value", f'Invalid value: "a b": {VALUE}'),
            ("devices[0].taints[0].effect", REQUIRED),
            ("devices[0].taints[1].effect", NO_EFFECT),
        ],
        id="taints",
    ),
    pytest.param(
        device(taints=[TAINT] * 17),
        [("devices[0].taints", "Too many: 17: must have at most 16 items")],
        id="too many taints",
    ),
    pytest.param(
        device(bindingFailureConditions=["a"]),
        [
            (
                "devices[0].bindingConditions",
                "Invalid value: null: bindingConditions are required to use bindingFailureConditions",
            )
        ],
        id="only failures",
    ),
    pytest.param(
        device(capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}}),
        [("devices[0].capacity[m].requestPolicy", "Forbidden: allowMultipleAllocations must be true")],
        id="portions for one user",
    ),
    pytest.param(
        shared(default="1", validRange={"min": "1"}, validValues=["1"]),
        [
            (
                "devices[0].capacity[m].requestPolicy",
                'Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time',
            )
        ],
        id="two policies",
    ),
    pytest.param(
        shared(validValues=["1"]),
        [("devices[0].capacity[m].requestPolicy.default", "Required value: required when validValues is defined")],
        id="portions without a default",
    ),
    pytest.param(
        shared(validRange={"min": "1"}),
        [("devices[0].capacity[m].requestPolicy.default", "Required value: required when validRange is defined")],
        id="a range without a default",
    ),
    pytest.param(
        shared(default="3", validValues=["2", "1", "11"]),
        [
            (
                "devices[0].capacity[m].requestPolicy.validValues[1]",
                'Invalid value: "1": values must be sorted in ascending order',
            ),
            (
                "devices[0].capacity[m].requestPolicy.validValues[2]",
                'Invalid value: "11": option is larger than capacity value: 10',
            ),
            (
                "devices[0].capacity[m].requestPolicy.validValues",
                'Invalid value: "3": default value is not valid according to the requestPolicy',
            ),
        ],
        id="portions",
    ),
    pytest.param(
        shared(default="1", validRange={"max": "9"}),
        [
            (
                "devices[0].capacity[m].requestPolicy.validRange.min",
                "Required value: required when validRange is defined",
            )
        ],
        id="a range without a beginning",
    ),
    pytest.param(
        shared(default="1", validRange={"min": "2", "max": "11", "step": "9"}),
        [
            ("devices[0].capacity[m].requestPolicy.validRange.min", 'Invalid value: "1": default is less than min: 2'),
            (
                "devices[0].capacity[m].requestPolicy.validRange.max",
                'Invalid value: "11": max is larger than capacity value: 10',
            ),
            (
                "devices[0].capacity[m].requestPolicy.validRange.step",
                'Invalid value: "9": one step 11 is larger than capacity value: 10',
            ),
            (
                "devices[0].capacity[m].requestPolicy.validRange.step",
                'Invalid value: "1": value is not a multiple of a given step (9) from (2)',
            ),
        ],
        id="a range",
    ),
]


@pytest.mark.parametrize(("change", "expected"), BAD_SLICES)
async def test_slices_that_cannot_be(api: Api, change: Object, expected: list[Row]) -> None:
    """422 that names every field."""
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
    """400, for they cannot be read."""
    answer = await made(api, SLICES, SLICE | change)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_what_may_change_of_a_slice(api: Api) -> None:
    """Its devices and its pool's generation, which its own generation counts; never its driver, pool and node."""
    path = f"{SLICES}/x-{api.ns}"
    await made(api, SLICES, SLICE)
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).metadata["generation"] == 1
    fixed: list[tuple[Object, list[Row]]] = [
        ({"pool": {"name": "q"}}, [("spec.pool.name", f'Invalid value: "q": {FIXED}')]),
        ({"driver": "e.x"}, [("spec.driver", f'Invalid value: "e.x": {FIXED}')]),
        ({"nodeName": "m"}, [("spec.nodeName", f'Invalid value: "m": {FIXED}')]),
        ({"nodeName": None, "allNodes": True}, [("spec.nodeName", f"Invalid value: null: {FIXED}")]),
    ]
    for change, expected in fixed:
        assert problems(await api.merge(path, {"spec": change})) == expected
    changed = await api.merge(path, {"spec": {"pool": {"generation": 2}} | device(taints=[TAINT])})
    assert (changed.metadata["generation"], changed.body["spec"]["pool"]["generation"]) == (2, 2)
    since = changed.body["spec"]["devices"][0]["taints"][0]["timeAdded"]
    kept = device(taints=[TAINT | {"timeAdded": since}])
    again = await api.merge(path, {"spec": kept})
    assert (again.status, again.rv) == (200, changed.rv)


async def test_slices_are_found_by_node_and_driver(api: Api) -> None:
    """Field selectors on the two, and no others."""
    node = f"n-{api.ns}"
    for name, change in (("a", {"nodeName": node}), ("b", {"nodeName": node, "driver": "e.x"}), ("c", {})):
        assert (await made(api, SLICES, SLICE | change, f"{name}-{api.ns}")).status == 201
    both = await api("GET", f"{SLICES}?fieldSelector=spec.nodeName={node}")
    assert both.names == [f"a-{api.ns}", f"b-{api.ns}"]
    one = await api("GET", f"{SLICES}?fieldSelector=spec.nodeName={node},spec.driver=e.x")
    assert one.names == [f"b-{api.ns}"]
    other = await api("GET", f"{SLICES}?fieldSelector=spec.pool=p")
    message = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool"
    assert (other.status, other.body["message"]) == (400, message)


# -- classes -------------------------------------------------------------------------------------------------------


async def test_a_device_class(api: Api) -> None:
    """May be empty, may change in all, and counts its changes."""
    path = f"{CLASSES}/x-{api.ns}"
    created = await api("POST", CLASSES, {"metadata": {"name": f"x-{api.ns}"}})
    assert (created.body["spec"], created.metadata["generation"]) == ({}, 1)
    spec: Object = {
        "selectors": [{"cel": {"expression": "true"}}],
        "config": [{"opaque": {"driver": "d.x", "parameters": {"a": 1}}}],
        "extendedResourceName": "a.b/c",
    }
    changed = await api.merge(path, {"spec": spec})
    assert (changed.body["spec"], changed.metadata["generation"]) == (spec, 2)
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).metadata["generation"] == 2
    whole = await api("PUT", path, {"metadata": {"name": f"x-{api.ns}"}})
    assert (whole.body["spec"], whole.metadata["generation"]) == ({}, 3)
    assert problems(await api.merge(path, {"spec": {"selectors": [{}]}})) == [("spec.selectors[0].cel", REQUIRED)]
    assert (await api("DELETE", path)).body["kind"] == "DeviceClass"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"selectors": [{}], "config": [{}]}, [("selectors[0].cel", REQUIRED), ("config[0].opaque", REQUIRED)], id="nothing said"),
        pytest.param({"selectors": [{"cel": {"expression": "true"}}] * 33}, [("selectors", "Too many: 33: must have at most 32 items")], id="too many selectors"),
        *(
            pytest.param({"extendedResourceName": name}, [("extendedResourceName", f'Invalid value: "{name}": must be a valid extended resource name')], id=f"resource {name}")
            for name in ("cpu", "kubernetes.io/c", "requests.a/c", "a.b/c d")
        ),
    ],
)  # fmt: skip
async def test_classes_that_cannot_be(api: Api, spec: Object, expected: list[Row]) -> None:
    """422 that names the field."""
    assert problems(await made(api, CLASSES, spec)) == [(f"spec.{field}", why) for field, why in expected]


# -- rules that taint ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha3"])
async def test_a_taint_rule(api: Api, version: str) -> None:
    """Under both versions the same: since when it has its effect, how often it changed, a status of its own."""
    rules, name = f"{ROOT}/{version}/devicetaintrules", f"x-{api.ns}"
    spec: Object = {"deviceSelector": {"driver": "d.x", "pool": "p", "device": "d"}, "taint": TAINT}
    body = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition()]}}
    created = await api("POST", rules, body)
    since = created.metadata["creationTimestamp"]
    assert created.body["spec"] == spec | {"taint": TAINT | {"timeAdded": since}}
    assert (created.body["status"], created.metadata["generation"]) == ({}, 1)
    told = TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}
    back = await api.merge(f"{rules}/{name}", {"spec": {"taint": told}})
    assert (back.body["spec"]["taint"], back.metadata["generation"]) == (told, 2)
    moved = (await api.merge(f"{rules}/{name}", {"spec": {"taint": {"effect": "NoExecute"}}})).body["spec"]["taint"]
    assert (moved["effect"], moved["timeAdded"] >= since) == ("NoExecute", True)
    unheard = await api.merge(f"{rules}/{name}", {"status": {"conditions": [condition()]}})
    assert unheard.body["status"] == {}
    status: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"taint": {"key": "z"}}}
    for type_, seen in (("A", ["A"]), ("B", ["B", "A"])):
        told = status | {"status": {"conditions": [condition(type_)]}}
        answer = await api.patch(f"{rules}/{name}/status", told)
        assert [each["type"] for each in answer.body["status"]["conditions"]] == seen
        assert (answer.body["spec"], "labels" in answer.metadata) == (unheard.body["spec"], False)
    bare = await api.merge(f"{rules}/{name}/status", {"status": {"conditions": [{"type": "A", "status": "X"}]}})
    assert [field.rpartition(".")[2] for field, _ in problems(bare)] == ["status", "lastTransitionTime", "reason"]
    other = "v1alpha3" if version == "v1beta2" else "v1beta2"
    shown = (await api("GET", f"{ROOT}/{other}/devicetaintrules/{name}")).body
    assert (shown["apiVersion"], shown["spec"]) == (f"resource.k8s.io/{other}", unheard.body["spec"])
    assert (await api("GET", f"{ROOT}/v1/devicetaintrules/{name}")).status == 404
    assert (await api("DELETE", f"{rules}/{name}")).body["kind"] == "DeviceTaintRule"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {},
            [
                ("taint.key", 'Invalid value: "": name part must be non-empty'),
                ("taint.key", f'Invalid value: "": {KEY}'),
                ("taint.effect", REQUIRED),
            ],
            id="no taint",
        ),
        pytest.param({"taint": TAINT | {"effect": "X"}}, [("taint.effect", NO_EFFECT)], id="an effect that is none"),
        pytest.param(
            {"taint": TAINT, "deviceSelector": {"driver": "D_", "pool": "", "device": "A"}},
            [
                ("deviceSelector.driver", f'Invalid value: "D_": {SUBDOMAIN}'),
                ("deviceSelector.pool", REQUIRED),
                ("deviceSelector.device", f'Invalid value: "A": {LABEL}'),
            ],
            id="a selector of what cannot be",
        ),
    ],
)
async def test_rules_that_cannot_be(api: Api, spec: Object, expected: list[Row]) -> None:
    """422 that names every field."""
    answer = await made(api, f"{ROOT}/v1beta2/devicetaintrules", spec)
    assert problems(answer) == [(f"spec.{field}", why) for field, why in expected]
