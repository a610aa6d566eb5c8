"""Answers that differ between versions of Kubernetes: the in-process server gives those of the version that it emulates."""

from typing import Any

import pytest

from scheduler.core.feature_gates import VERSIONS
from tests.contract.claims import (
    ROOT,
    SLICES,
    a_claim,
    allocation,
    device,
    exactly,
    first,
    made,
    post,
    present,
    write,
)
from tests.contract.conftest import REAL, Answer, Api, Object, pod, refusal
from tests.contract.words import KEY, SUBDOMAIN, VALUE, Row
from tests.e2e.controlplane.harness import ControlPlane


@pytest.fixture(params=[*VERSIONS, pytest.param(REAL, marks=pytest.mark.e2e)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """Return the real server, or None for the in-process one."""
    if request.param != REAL:
        return None
    found: ControlPlane = request.getfixturevalue("real")
    return found


@pytest.fixture
def emulated(request: pytest.FixtureRequest, plane: ControlPlane | None) -> str:
    """Return the version of the in-process server."""
    return str(request.node.callspec.params["plane"])


def outcome(answer: Answer) -> list[Row]:
    """Return field and message of each cause of a 422, none for a write that the server accepts."""
    if answer.status in {200, 201}:
        return []
    assert (answer.status, answer.body.get("reason")) == (422, "Invalid"), answer.body
    return [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


def expected(api: Api, before: list[Row], now: list[Row]) -> list[Row]:
    """Return the answer of the version: `now` is that of 1.38."""
    return now if api.version == "1.38" else before


def differs(what: str, given: Any, now: list[Row], before: list[Row] | None = None) -> Any:
    """Return a row: 1.38 answers `now`, older versions answer `before` and accept it by default."""
    return pytest.param(given, before or [], now, id=what)


NEGATIVE = 'Invalid value: "{}": must be greater than or equal to 0'
SLASHES = 'Invalid value: "{}": must not contain more than one slash'
LONG = "Too long: may not be more than 32 bytes"
MANY = {f"m{number}": "1" for number in range(33)}


AMOUNTS = [
    ("a negative amount", {"m": "-1"}, ("[m]", NEGATIVE.format("-1"))),
    ("a negative fraction", {"d.x/m": "-1m"}, ("[d.x/m]", NEGATIVE.format("-1m"))),
    ("two slashes", {"d.x/m/n": "1"}, ("", SLASHES.format("d.x/m/n"))),
    ("a long name", {"m" * 33: "1"}, ("", LONG)),
    ("an empty domain", {"/m": "1"}, ("", 'Invalid value: "": the domain must not be empty')),
    ("33 amounts", MANY, ("", "Too many: 33: must have at most 32 items")),
]


def amounts_at(path: str) -> list[Any]:
    return [differs(what, given, [(path + place, why)]) for what, given, (place, why) in AMOUNTS]


REQUESTS = "devices.requests[0].exactly.capacity.requests"


@pytest.mark.parametrize(("amounts", "before", "now"), amounts_at(f"spec.{REQUESTS}"))
async def test_requested_capacities(api: Api, amounts: Object, before: list[Row], now: list[Row]) -> None:
    answer = await post(api, exactly(capacity={"requests": amounts}))
    assert outcome(answer) == expected(api, before, now)


@pytest.mark.parametrize(
    ("amounts", "before", "now"), amounts_at("spec.devices.requests[0].firstAvailable[0].capacity.requests")
)
async def test_capacities_of_alternatives(api: Api, amounts: Object, before: list[Row], now: list[Row]) -> None:
    option = {"name": "s", "deviceClassName": "x", "capacity": {"requests": amounts}}
    answer = await post(api, first(option))
    assert outcome(answer) == expected(api, before, now)


@pytest.mark.parametrize(("amounts", "before", "now"), amounts_at(f"spec.spec.{REQUESTS}"))
async def test_capacities_of_templates(api: Api, amounts: Object, before: list[Row], now: list[Row]) -> None:
    path = api.at("resource.k8s.io/v1", "resourceclaimtemplates")
    answer = await made(api, path, {"spec": {"devices": exactly(capacity={"requests": amounts})}})
    assert outcome(answer) == expected(api, before, now)


@pytest.mark.parametrize(
    ("amounts", "before", "now"), amounts_at("status.allocation.devices.results[0].consumedCapacity")
)
async def test_consumed_capacities(api: Api, amounts: Object, before: list[Row], now: list[Row]) -> None:
    path = await a_claim(api)
    answer = await write(api, path, allocation=allocation(consumedCapacity=amounts))
    assert outcome(answer) == expected(api, before, now)


def on(*terms: Object) -> Object:
    return {"perDeviceNodeSelection": True, "nodeName": None} | device(nodeSelector={"nodeSelectorTerms": list(terms)})


TERM: Object = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
TERMS = "spec.devices[0].nodeSelector.nodeSelectorTerms"
TWO_TERMS = (
    '[{"MatchExpressions":null,"MatchFields":[{"Key":"metadata.name","Operator":"In","Values":["n"]}]},'
    '{"MatchExpressions":null,"MatchFields":null}]'
)
OF_SLICE = [
    ("spec.nodeSelector.nodeSelectorTerms", f"Invalid value: {TWO_TERMS}: must have exactly one node selector term")
]
SEMVER = "must be a string compatible with semver.org spec 2.0.0"
SEMVER_38 = f"{SEMVER}, with at most 18 digits in numbers"
ATTRIBUTE = "spec.devices[0].attributes"


def versioned(text: str) -> Object:
    return device(attributes={"v": {"version": text}})


@pytest.mark.parametrize(
    ("change", "before", "now"),
    [
        differs("one term of a device", on(TERM), []),
        differs(
            "two terms of a device",
            on(TERM, {}),
            [(TERMS, f"Invalid value: {TWO_TERMS}: must have exactly one node selector term")],
        ),
        differs(
            "no term of a device",
            on(),
            [
                (TERMS, "Required value: must have at least one node selector term"),
                (TERMS, "Invalid value: []: must have exactly one node selector term"),
            ],
            [(TERMS, "Required value: must have at least one node selector term")],
        ),
        differs(
            "two terms of a slice",
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [TERM, {}]}},
            OF_SLICE,
            OF_SLICE,
        ),
        differs("18 digits", versioned(f"1.2.{'9' * 18}"), []),
        differs(
            "19 digits",
            versioned(f"1.2.1{'0' * 18}"),
            [(f"{ATTRIBUTE}[v].version", f'Invalid value: "1.2.1{"0" * 18}": {SEMVER_38}')],
        ),
        differs(
            "19 digits of a pre-release",
            versioned(f"1.2.3-1{'0' * 18}"),
            [(f"{ATTRIBUTE}[v].version", f'Invalid value: "1.2.3-1{"0" * 18}": {SEMVER_38}')],
        ),
        differs("19 digits in a text of a pre-release", versioned(f"1.2.3-a1{'0' * 18}+1{'0' * 18}"), []),
        differs(
            "no version",
            versioned("v1"),
            [(f"{ATTRIBUTE}[v].version", f'Invalid value: "v1": {SEMVER_38}')],
            [(f"{ATTRIBUTE}[v].version", f'Invalid value: "v1": {SEMVER}')],
        ),
        differs(
            "two slashes of an attribute",
            device(attributes={"d.x/v/w": {"int": 1}}),
            [(ATTRIBUTE, SLASHES.format("d.x/v/w"))],
        ),
        differs(
            "two slashes of a capacity",
            device(capacity={"d.x/m/n": {"value": "1"}}),
            [("spec.devices[0].capacity", SLASHES.format("d.x/m/n"))],
        ),
        differs("a negative capacity", device(capacity={"m": {"value": "-1"}}), []),
        differs("a negative counter", {"sharedCounters": [{"name": "c", "counters": {"m": {"value": "-1"}}}]}, []),
    ],
)
async def test_slices(api: Api, change: Object, before: list[Row], now: list[Row]) -> None:
    assert outcome(await made(api, SLICES, present(change))) == expected(api, before, now)


@pytest.mark.parametrize("attribute", ["matchAttribute", "distinctAttribute"])
async def test_two_slashes_of_a_constraint(api: Api, attribute: str) -> None:
    answer = await post(api, exactly() | {"constraints": [{attribute: "d.x/v/w"}]})
    field = f"spec.devices.constraints[0].{attribute}"
    assert outcome(answer) == expected(api, [], [(field, SLASHES.format("d.x/v/w"))])


async def test_version_v1beta1_of_devices(api: Api) -> None:
    """It is gone in 1.38, also where `--runtime-config` names it."""
    codes = [(await api("GET", f"{ROOT}/v1beta1{path}")).status for path in ("", "/resourceslices")]
    served = [each["version"] for each in (await api("GET", ROOT)).body["versions"]]
    is_gone = api.version == "1.38"
    assert (codes, "v1beta1" in served) == ([404, 404] if is_gone else [200, 200], not is_gone)


def badly(names: str, of: str, given: str, rule: str) -> Any:
    text = f'metadata.{names}: Invalid value: "{given}": {rule}'
    return pytest.param(
        {"metadata": {names: {of: "y"} if of == given else {of: given}}}, {"1.38": text}, id=f"{names}: {of}={given}"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"metadata": {"annotations": {"x/Y": "y"}, "labels": {"x": "y"}}}, {}, id="good ones"),
        badly("annotations", "a b", "a b", KEY),
        badly("labels", "a b", "a b", KEY),
        badly("labels", "x", "a b", VALUE),
        pytest.param(
            {"metadata": {"annotations": {"x": "y" * (256 * 1024)}}},
            {"1.38": "metadata.annotations: Too long: may not be more than 262144 bytes"},
            id="more than 256 KiB of annotations",
        ),
        pytest.param(
            {"target": {"name": "A"}},
            dict.fromkeys(("1.37", "1.38"), f'target.name: Invalid value: "A": {SUBDOMAIN}'),
            id="a bad name of a node",
        ),
        pytest.param(
            {"target": {"name": "A"}, "metadata": {"labels": {"x": "a b"}}},
            {
                "1.37": f'target.name: Invalid value: "A": {SUBDOMAIN}',
                "1.38": f'[target.name: Invalid value: "A": {SUBDOMAIN}, metadata.labels: Invalid value: "a b": {VALUE}]',
            },
            id="several mistakes",
        ),
    ],
)
async def test_bindings(api: Api, change: Object, why: dict[str, str]) -> None:
    """A mistake in a Binding is answered with 500, not with 422."""
    await api.pod("a")
    metadata, target = {"name": "a"} | change.get("metadata", {}), {"name": "n"} | change.get("target", {})
    answer = await api("POST", f"{api.pods}/a/binding", {"metadata": metadata, "target": target})
    refused = why.get(api.version, "")
    assert (answer.status, answer.body.get("message", "")) == (500 if refused else 201, refused)


async def test_annotations_that_a_binding_may_not_add(api: Api) -> None:
    """The limit of 256 KiB is for all annotations of the pod."""
    parts = {name: {name: "y" * (200 * 1024)} for name in ("of-pod", "more")}
    limit = ("metadata.annotations", "Too long: may not be more than 262144 bytes")
    mirror = "metadata.annotations[kubernetes.io/config.mirror]"
    rows: list[tuple[Object, list[Row]]] = [
        ({"kubernetes.io/config.mirror": "y"}, [(mirror, "Forbidden: may not add mirror pod annotation")]),
        (parts["more"], [limit]),
    ]
    for number, (added, now) in enumerate(rows):
        body = pod(name := f"p{number}")
        body["metadata"]["annotations"] = parts["of-pod"]
        assert (await api("POST", api.pods, body)).status == 201
        binding = {"metadata": {"name": name, "annotations": added}, "target": {"name": "n"}}
        answer = await api("POST", f"{api.pods}/{name}/binding", binding)
        assert outcome(answer) == expected(api, [], now)
        if api.version == "1.38":
            refusal(
                answer,
                422,
                "Invalid",
                f'Binding "" is invalid: {now[0][0]}: {now[0][1]}',
                {"kind": "Binding", "causes": answer.body["details"]["causes"]},
            )


async def test_the_answer_to_a_binding(api: Api) -> None:
    await api.pod("a")
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    answer = await api("POST", f"{api.pods}/a/binding", body)
    stored = (await api("GET", f"{api.pods}/a")).metadata["resourceVersion"]
    assert answer.body["metadata"] == ({"resourceVersion": stored} if api.version == "1.38" else {})


async def test_the_answer_to_a_deletion(api: Api) -> None:
    """From 1.38 on it names the version of the deletion, also that of an object whose last finalizer goes."""
    budgets = api.at("policy/v1", "poddisruptionbudgets")
    created = await made(api, budgets, {"minAvailable": 1}, "a")
    gone = await api("DELETE", f"{budgets}/a")
    api.succeeded(gone)
    if api.version >= "1.38":
        assert int(gone.body["metadata"]["resourceVersion"]) > created.rv

    body = {"metadata": {"name": "b", "finalizers": ["x.y/z"]}, "spec": {"minAvailable": 1}}
    assert (await api("POST", budgets, body)).status == 201
    marked = await api("DELETE", f"{budgets}/b")
    last = await api.merge(f"{budgets}/b", {"metadata": {"finalizers": None}})
    assert (last.status, last.rv > marked.rv) == (200, api.version >= "1.38")
    assert (await api("GET", f"{budgets}/b")).status == 404


async def test_a_path_that_is_no_api(api: Api) -> None:
    answer = await api("GET", "/apis/foo.example/v1")
    if api.version >= "1.38":
        refusal(answer, 404, "NotFound", "404 page not found")
    else:
        assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize("resource", ["pods", "poddisruptionbudgets", "resourceclaims"])
async def test_another_uid_in_a_patch(api: Api, resource: str) -> None:
    """It is named once from 1.37 on, and not shown from 1.38 on."""
    spec: Object = {"pods": pod("a")["spec"], "poddisruptionbudgets": {"minAvailable": 1}}.get(
        resource, {"devices": exactly()}
    )
    group = {"pods": "v1", "poddisruptionbudgets": "policy/v1"}.get(resource, "resource.k8s.io/v1")
    path = api.at(group, resource)
    assert (await made(api, path, spec, "a")).status == 201
    causes = outcome(await api.merge(f"{path}/a", {"metadata": {"uid": "u"}}))
    count = 1 if api.version >= "1.37" or resource == "poddisruptionbudgets" else 2
    shown = "null" if api.version >= "1.38" else '"u"'
    assert causes == [("metadata.uid", f"Invalid value: {shown}: field is immutable")] * count

    await api.merge(f"{path}/a", {"metadata": {"finalizers": ["x.y/z"]}})
    await api("DELETE", f"{path}/a")
    causes = outcome(await api.merge(f"{path}/a", {"metadata": {"finalizers": ["x.y/z", "x.y/w"]}}))
    assert [field for field, _ in causes] == ["metadata.finalizers"] * count


async def test_a_label_of_a_claim_with_opaque_parameters(api: Api) -> None:
    """Strategic patches bring parameters into the form of Go, which changes the spec. From 1.38 on they do so where they patch."""
    config = {"opaque": {"driver": "d.x", "parameters": {"kind": "X", "apiVersion": "v1"}}}
    assert (await post(api, exactly() | {"config": [config]})).status == 201
    path = f"{api.at('resource.k8s.io/v1', 'resourceclaims')}/a"
    answer = await api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert answer.status == (200 if api.version >= "1.38" else 422)
