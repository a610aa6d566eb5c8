"""Slices of devices, device classes and the rules that taint devices: defaults, what is refused, what may change."""

import pytest

from tests.contract.claims import (
    CLASSES,
    CONSUMPTION,
    NO_EFFECT,
    ONE_COUNTER,
    POOL,
    ROOT,
    SET,
    SLICE,
    SLICES,
    TAINT,
    device,
    made,
    on_selected,
    present,
    shared,
)
from tests.contract.conftest import Api, Object, problems
from tests.contract.words import (
    IDENTIFIER,
    KEY,
    LABEL,
    REQUIRED,
    SUBDOMAIN,
    VALUE,
    Row,
    condition,
    too_long,
    too_many,
    within,
    wrong,
)

FIXED = "field is immutable"

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
                consumesCounters=[CONSUMPTION],
                bindsToNode=True,
                bindingConditions=["a.b/Ready"],
                bindingFailureConditions=["Failed"],
            ),
            id="a device with all it may have",
        ),
        pytest.param({"nodeName": None, "allNodes": True}, id="for all nodes"),
        pytest.param(on_selected({"key": "a", "operator": "In", "values": ["b"]}), id="for some nodes"),
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
    created = await made(api, SLICES, present(change))
    assert (created.status, created.body.get("spec")) == (201, present(change) | {"pool": POOL})
    assert created.metadata["generation"] == 1
    gone = await api("DELETE", f"{SLICES}/x-{api.ns}")
    assert (gone.body["kind"], gone.body["spec"]) == ("ResourceSlice", created.body["spec"])


async def test_a_taint_says_since_when(api: Api) -> None:
    told = TAINT | {"key": "old", "timeAdded": "2026-01-01T00:00:00Z"}
    created = await made(api, SLICES, SLICE | device(taints=[TAINT, told], capacity={"m": {}}))
    (found,) = created.body["spec"]["devices"]
    since = created.stamped(found["taints"][0]["timeAdded"])
    assert found == {"name": "d1", "taints": [TAINT | {"timeAdded": since}, told], "capacity": {"m": {"value": "0"}}}


async def test_what_may_change_of_a_slice(api: Api) -> None:
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


# -- slices that are refused ----------------------------------------------------------------------------------------

NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
DEVICE_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
EACH: Object = {"nodeName": None, "perDeviceNodeSelection": True}
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
    too_long("a long driver", {"driver": "a" * 64}, "driver", 63),
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
    *within(
        "nodeSelector.nodeSelectorTerms[0].matchExpressions",
        pytest.param(
            on_selected(
                {"key": "a", "operator": "X"},
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["b"]},
                {"key": "a", "operator": "Gt"},
            ),
            [
                ("[0].operator", 'Invalid value: "X": not a valid selector operator'),
                ("[1].values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"),
                ("[2].values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
                ("[3].values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"),
            ],
            id="a selector's operators",
        ),
    ),
    wrong("a device nowhere", EACH | device(), "devices[0]", f"Required value: {DEVICE_NODES}"),
    wrong(
        "a device on one and on all",
        EACH | device(nodeName="n", allNodes=True),
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
            device(consumesCounters=[CONSUMPTION] * 2),
            ".consumesCounters[1]",
            'Duplicate value: "c"',
        ),
        too_many("too much consumption", device(consumesCounters=[CONSUMPTION] * 3), ".consumesCounters", 3, 2),
        wrong(
            "an attribute without a value",
            device(attributes={"a": {}}),
            ".attributes[a]",
            'Invalid value: "": exactly one value must be specified',
        ),
        too_long("a long attribute", device(attributes={"a": {"string": "s" * 65}}), ".attributes[a].string", 64),
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
        too_long("an attribute's long name", device(attributes={"a" * 33: {"int": 1}}), ".attributes", 32),
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


# -- classes -------------------------------------------------------------------------------------------------------


async def test_a_device_class(api: Api) -> None:
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
        too_many("too many selectors", {"selectors": [{"cel": {"expression": "true"}}] * 33}, "selectors", 33, 32),
        *(
            wrong(f"resource {name}", {"extendedResourceName": name}, "extendedResourceName", f'Invalid value: "{name}": must be a valid extended resource name')
            for name in ("cpu", "kubernetes.io/c", "requests.a/c", "a.b/c d")
        ),
    ],
)  # fmt: skip
async def test_classes_that_cannot_be(api: Api, spec: Object, expected: list[Row]) -> None:
    assert problems(await made(api, CLASSES, spec)) == [(f"spec.{field}", why) for field, why in expected]


# -- rules that taint ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha3"])
async def test_a_taint_rule(api: Api, version: str) -> None:
    rules, name = f"{ROOT}/{version}/devicetaintrules", f"x-{api.ns}"
    spec: Object = {"deviceSelector": {"driver": "d.x", "pool": "p", "device": "d"}, "taint": TAINT}
    body = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition()]}}
    created = await api("POST", rules, body)
    since = created.stamped(created.body["spec"]["taint"]["timeAdded"])
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
    assert (await api("GET", f"{ROOT}/v1/devicetaintrules/{name}")).status == (200 if api.version >= "1.37" else 404)
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
        wrong("an effect that is none", {"taint": TAINT | {"effect": "X"}}, "taint.effect", NO_EFFECT),
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
    answer = await made(api, f"{ROOT}/v1beta2/devicetaintrules", spec)
    assert problems(answer) == [(f"spec.{field}", why) for field, why in expected]
