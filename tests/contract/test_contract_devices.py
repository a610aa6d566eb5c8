"""Slices of devices, device classes and the rules that taint devices: defaults, what is refused of the latter two, what may change."""

import pytest

from tests.contract.claims import (
    CLASSES,
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
    present,
    shared,
)
from tests.contract.conftest import Api, Object, problems
from tests.contract.words import KEY, LABEL, REQUIRED, SUBDOMAIN, Row, condition, too_many, wrong

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
    created = await made(api, SLICES, present(change))
    assert (created.status, created.body.get("spec")) == (201, present(change) | {"pool": POOL})
    assert created.metadata["generation"] == 1
    gone = await api("DELETE", f"{SLICES}/x-{api.ns}")
    assert (gone.body["kind"], gone.body["spec"]) == ("ResourceSlice", created.body["spec"])


async def test_a_taint_says_since_when(api: Api) -> None:
    told = TAINT | {"key": "old", "timeAdded": "2026-01-01T00:00:00Z"}
    created = await made(api, SLICES, SLICE | device(taints=[TAINT, told], capacity={"m": {}}))
    (found,) = created.body["spec"]["devices"]
    since = created.metadata["creationTimestamp"]
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
    assert (await api("GET", f"{ROOT}/v1/devicetaintrules/{name}")).status == (200 if api.version == "1.37" else 404)
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
