"""Claims for devices, their templates and the pods that name them: defaults, what is refused, what may change."""

import pytest

from tests.contract.claims import (
    ADMIN,
    GROUP,
    NO_EFFECT,
    NO_REQUEST,
    a_claim,
    allocation,
    exactly,
    first,
    kept,
    post,
    write,
)
from tests.contract.conftest import Answer, Api, Object, pod, problems
from tests.contract.words import IDENTIFIER, KEY, LABEL, REQUIRED, SUBDOMAIN, Row, too_many, unsupported, wrong

ONE: Object = exactly()
TEXT: Object = {"driver": "d.x", "parameters": "s"}
ONE_ATTRIBUTE = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
OPTION: Object = {"name": "s", "deviceClassName": "x"}
ONE_DEVICE: Object = {"allocationMode": "ExactCount", "count": 1}
CONSTRAINTS = [{"matchAttribute": "a.b/c"}, {"distinctAttribute": "a.b/c", "requests": ["a"]}]
CONFIG = [{"opaque": {"driver": "d.x", "parameters": {"a": {"b": [], "c": None}}}}]
REST: Object = exactly(allocationMode="All", capacity={"requests": {"mem": "1Gi"}})
REST |= {"constraints": CONSTRAINTS, "config": CONFIG}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"requests": None}, id="no request"),
        pytest.param(exactly(), exactly(**ONE_DEVICE), id="one of a class"),
        pytest.param(exactly(count=0), exactly(**ONE_DEVICE), id="none is one"),
        pytest.param(exactly(allocationMode="All"), exactly(allocationMode="All"), id="all have no count"),
        pytest.param(
            exactly(tolerations=[{"key": "k", "value": "v"}, {"operator": "Exists"}], adminAccess=False),
            exactly(
                **ONE_DEVICE,
                tolerations=[{"key": "k", "operator": "Equal", "value": "v"}, {"operator": "Exists"}],
                adminAccess=False,
            ),
            id="tolerations are Equal",
        ),
        pytest.param(
            first(OPTION | {"tolerations": [{"key": "k"}]}),
            first(OPTION | ONE_DEVICE | {"tolerations": [{"key": "k", "operator": "Equal"}]}),
            id="each option",
        ),
        pytest.param(REST, REST, id="the rest as it is"),
    ],
)
async def test_a_new_claim(api: Api, given: Object, expected: Object) -> None:
    body: Object = {"metadata": {"name": "a"}, "spec": {"devices": given}, "status": {"allocation": allocation()}}
    created = await api("POST", api.at(GROUP, "resourceclaims"), body)
    assert (created.status, created.body["spec"], created.body["status"]) == (201, {"devices": expected}, {})
    assert "generation" not in created.metadata
    template = {"metadata": {"name": "a"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": given}}}
    made = await api("POST", api.at(GROUP, "resourceclaimtemplates"), template)
    assert made.body["spec"] == {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": expected}}
    assert "status" not in made.body


CLAIMS = [
    wrong(
        "a request's name",
        {"requests": [{"name": "A_", "exactly": {"deviceClassName": "x"}}]},
        "requests[0].name",
        f'Invalid value: "A_": {LABEL}',
    ),
    wrong("neither one thing nor several", {"requests": [{"name": "a"}]}, "requests[0]", f"Required value: {ONE_OF}"),
    wrong(
        "one thing and several",
        {"requests": [ONE["requests"][0] | {"firstAvailable": [OPTION]}]},
        "requests[0]",
        f"Invalid value: null: {ONE_OF}, but multiple fields are set",
    ),
    wrong("no class", exactly(deviceClassName=""), "requests[0].exactly.deviceClassName", REQUIRED),
    wrong(
        "a class that cannot be",
        exactly(deviceClassName="A_"),
        "requests[0].exactly.deviceClassName",
        f'Invalid value: "A_": {SUBDOMAIN}',
    ),
    wrong(
        "a mode that is none",
        exactly(allocationMode="X"),
        "requests[0].exactly.allocationMode",
        unsupported("X", "All", "ExactCount"),
    ),
    wrong(
        "all two",
        exactly(allocationMode="All", count=2),
        "requests[0].exactly.count",
        "Invalid value: 2: must not be specified when allocationMode is 'All'",
    ),
    pytest.param(
        exactly(deviceClassName="", count=-1),
        [
            ("requests[0].exactly.deviceClassName", REQUIRED),
            ("requests[0].exactly.count", "Invalid value: -1: must be greater than zero"),
        ],
        id="two things at once",
    ),
    wrong("two requests of one name", {"requests": ONE["requests"] * 2}, "requests[1]", 'Duplicate value: "a"'),
    too_many("too many requests", {"requests": ONE["requests"] * 33}, "requests", 33, 32),
    too_many("too many options", first(*[OPTION] * 9), "requests[0].firstAvailable", 9, 8),
    pytest.param(
        first(OPTION, {"name": "s"}),
        [
            ("requests[0].firstAvailable[1].deviceClassName", REQUIRED),
            ("requests[0].firstAvailable[1]", 'Duplicate value: "s"'),
        ],
        id="two options of one name, and one without a class",
    ),
    wrong("an empty selector", exactly(selectors=[{}]), "requests[0].exactly.selectors[0].cel", REQUIRED),
    wrong(
        "a selector without end",
        exactly(selectors=[{"cel": {"expression": "true" + " " * 10240}}]),
        "requests[0].exactly.selectors[0].cel.expression",
        "Too long: may not be more than 10240 bytes",
    ),
    too_many(
        "too many selectors",
        exactly(selectors=[{"cel": {"expression": "true"}}] * 33),
        "requests[0].exactly.selectors",
        33,
        32,
    ),
    pytest.param(
        exactly(tolerations=[{"key": "A B", "operator": "Exists", "value": "v", "effect": "X"}, {"operator": "X"}]),
        [
            ("requests[0].exactly.tolerations[0].key", f'Invalid value: "A B": {KEY}'),
            ("requests[0].exactly.tolerations[0].value", 'Invalid value: "v": must be empty for operator `Exists`'),
            ("requests[0].exactly.tolerations[0].effect", NO_EFFECT),
            ("requests[0].exactly.tolerations[1].operator", unsupported("X", "Equal", "Exists")),
        ],
        id="tolerations",
    ),
    pytest.param(
        ONE
        | {"constraints": [{}, {"matchAttribute": "c"}, {"distinctAttribute": "a.b/c-d", "requests": ["z", "a/b/c"]}]},
        [
            ("constraints[0]", f"Required value: {ONE_ATTRIBUTE}, but multiple fields are set"),
            (
                "constraints[1].matchAttribute",
                'Invalid value: "c": a fully qualified name must be a domain and a name separated by a slash',
            ),
            ("constraints[2].requests[0]", f'Invalid value: "z": {NO_REQUEST}'),
            ("constraints[2].requests[1]", f'Invalid value: "a/b/c": {NO_REQUEST}'),
            ("constraints[2].distinctAttribute", f'Invalid value: "c-d": {IDENTIFIER}'),
        ],
        id="constraints",
    ),
    too_many("too many constraints", ONE | {"constraints": [{"matchAttribute": "a.b/c"}] * 33}, "constraints", 33, 32),
    pytest.param(
        ONE | {"config": [{}, {"opaque": {"driver": ""}}, {"opaque": TEXT, "requests": ["a", "a"]}]},
        [
            ("config[0].opaque", REQUIRED),
            ("config[1].opaque.driver", REQUIRED),
            ("config[1].opaque.parameters", REQUIRED),
            ("config[2].requests[1]", 'Duplicate value: "a"'),
            ("config[2].opaque.parameters", 'Invalid value: "<value omitted>": must be a valid JSON object'),
        ],
        id="configurations",
    ),
    too_many(
        "too many configurations", {"config": [{"opaque": {"driver": "d.x", "parameters": {}}}] * 33}, "config", 33, 32
    ),
]


@pytest.mark.parametrize(("given", "expected"), CLAIMS)
async def test_claims_that_cannot_be(api: Api, given: Object, expected: list[Row]) -> None:
    assert problems(await post(api, given)) == [(f"spec.devices.{field}", why) for field, why in expected]
    template: Object = {"metadata": {"name": "a"}, "spec": {"spec": {"devices": given}}}
    answer = await api("POST", api.at(GROUP, "resourceclaimtemplates"), template)
    assert problems(answer) == [(f"spec.spec.devices.{field}", why) for field, why in expected]


async def test_amounts_that_are_none(api: Api) -> None:
    answer = await post(api, exactly(capacity={"requests": {"mem": "x"}}))
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_admin_access_needs_its_namespace(api: Api) -> None:
    template: Object = {"metadata": {"name": "a"}, "spec": {"spec": {"devices": exactly(adminAccess=True)}}}
    refused = [("spec.devices.requests[0].adminAccess", ADMIN)]
    assert problems(await post(api, exactly(adminAccess=True))) == refused
    assert problems(await api("POST", api.at(GROUP, "resourceclaimtemplates"), template)) == refused
    path = await a_claim(api)
    answer = await write(api, path, allocation=allocation(adminAccess=True))
    assert problems(answer) == [("status.allocation.devices.results[0].adminAccess", ADMIN)]
    label = {"resource.kubernetes.io/admin-access": "true"}
    assert (await api.merge(f"/api/v1/namespaces/{api.ns}", {"metadata": {"labels": label}})).status == 200
    assert (await post(api, exactly(adminAccess=True), "b")).status == 201
    assert (await api("POST", api.at(GROUP, "resourceclaimtemplates"), template)).status == 201
    given = allocation(adminAccess=True)
    assert await kept(api, path, allocation=given) == {"allocation": given}


async def test_the_spec_of_a_claim_is_immutable(api: Api) -> None:
    path = await a_claim(api)
    before = await api("GET", path)
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).metadata["labels"] == {"a": "b"}
    ((field, why),) = problems(await api.merge(path, {"spec": {"devices": {"requests": []}}}))
    assert (field, why[:15], why[-20:]) == ("spec", "Invalid value: ", ": field is immutable")
    bare: Object = {"name": "f", "firstAvailable": [OPTION]}
    same: Object = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [*exactly()["requests"], bare]}}}
    assert (await api("PUT", path, same)).body["spec"] == before.body["spec"]
    same["spec"]["devices"] |= {"constraints": [], "config": []}
    assert (await api("PUT", path, same)).body["spec"] == before.body["spec"]
    templates = api.at(GROUP, "resourceclaimtemplates")
    await api("POST", templates, {"metadata": {"name": "t"}, "spec": {"spec": {"devices": exactly()}}})
    ((field, why),) = problems(await api.merge(f"{templates}/t", {"spec": {"spec": {"devices": {"requests": []}}}}))
    assert (field, why[-20:]) == ("spec", ": field is immutable")


async def test_what_is_deleted_is_answered_whole(api: Api) -> None:
    path = await a_claim(api)
    before = await api("GET", path)
    gone = await api("DELETE", path)
    assert (gone.status, gone.body["kind"], gone.body["spec"]) == (200, "ResourceClaim", before.body["spec"])
    assert gone.rv > before.rv
    assert (await api("GET", path)).status == 404


# -- pods ----------------------------------------------------------------------------------------------------------

C: Object = {"name": "x", "resourceClaimName": "c"}
EXTENDED = "status.extendedResourceClaimStatus"


def with_claims(*claims: Object, used: list[Object] | None = None) -> Object:
    container: Object = {"name": "c", "image": "x", "resources": {"claims": used} if used else {}}
    return pod("a", resourceClaims=list(claims), containers=[container])


async def test_a_pod_with_claims(api: Api) -> None:
    claims = [C, {"name": "y", "resourceClaimTemplateName": "t"}]
    used = [{"name": "x"}, {"name": "y", "request": "r"}]
    created = await api("POST", api.pods, with_claims(*claims, used=used))
    assert created.body["spec"]["resourceClaims"] == claims
    assert created.body["spec"]["containers"][0]["resources"] == {"claims": used}
    assert "resourceClaimStatuses" not in created.body["status"]
    more = await api.merge(f"{api.pods}/a", {"spec": {"resourceClaims": [*claims, C | {"name": "z"}]}})
    ((field, why),) = problems(more)
    assert (field, why[:54]) == ("spec", "Forbidden: pod updates may not change fields other tha")


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        wrong("no name", with_claims({"resourceClaimName": "c"}), "resourceClaims[0].name", REQUIRED),
        wrong("one name twice", with_claims(C, C), "resourceClaims[1].name", 'Duplicate value: "x"'),
        wrong("a name", with_claims(C | {"name": "X_"}), "resourceClaims[0].name", f'Invalid value: "X_": {LABEL}'),
        wrong(
            "a claim and a template",
            with_claims(C | {"resourceClaimTemplateName": "t"}),
            "resourceClaims[0]",
            'Invalid value: {"Name":"x","ResourceClaimName":"c","ResourceClaimTemplateName":"t"}: at most one of '
            "`resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        wrong(
            "neither",
            with_claims({"name": "x"}),
            "resourceClaims[0]",
            'Invalid value: {"Name":"x","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify '
            "one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ),
        pytest.param(
            with_claims(C | {"resourceClaimName": "C_"}, {"name": "y", "resourceClaimTemplateName": "T_"}),
            [
                ("resourceClaims[0].resourceClaimName", f'Invalid value: "C_": {SUBDOMAIN}'),
                ("resourceClaims[1].resourceClaimTemplateName", f'Invalid value: "T_": {SUBDOMAIN}'),
            ],
            id="names of what cannot be",
        ),
        wrong(
            "a container with a claim that the pod has not",
            with_claims(C, used=[{"name": "z"}]),
            "containers[0].resources.claims[0]",
            'Not found: "z": must be one of the names in pod.spec.resourceClaims: x',
        ),
        wrong(
            "a container with a claim, the pod without",
            with_claims(used=[{"name": "z"}]),
            "containers[0].resources.claims[0]",
            'Not found: "z": must be one of the names in pod.spec.resourceClaims which is empty',
        ),
        wrong(
            "a part, then the whole",
            with_claims(C, used=[{"name": "x", "request": "a"}, {"name": "x"}]),
            "containers[0].resources.claims[1]",
            'Duplicate value: "x"',
        ),
        wrong(
            "the whole, then a part",
            with_claims(C, used=[{"name": "x"}, {"name": "x", "request": "a"}]),
            "containers[0].resources.claims[1]",
            'Duplicate value: "x"',
        ),
        pytest.param(
            with_claims(C, used=[{"name": "x", "request": "A_"}, {"name": ""}]),
            [
                ("containers[0].resources.claims[0].request", f'Invalid value: "A_": {LABEL}'),
                ("containers[0].resources.claims[1]", REQUIRED),
            ],
            id="a request's name",
        ),
    ],
)
async def test_pods_with_claims_that_cannot_be(api: Api, manifest: Object, expected: list[Row]) -> None:
    assert problems(await api("POST", api.pods, manifest)) == [(f"spec.{field}", why) for field, why in expected]


async def test_generated_claims_of_a_pod(api: Api) -> None:
    await api("POST", api.pods, with_claims(C, {"name": "y", "resourceClaimTemplateName": "t"}))
    path, at = f"{api.pods}/a/status", "status.resourceClaimStatuses"

    async def write(*entries: Object) -> list[Object]:
        answer = await api.patch(path, {"status": {"resourceClaimStatuses": list(entries)}})
        assert answer.status == 200, answer.body
        found: list[Object] = answer.body["status"]["resourceClaimStatuses"]
        return found

    generated = {"name": "y", "resourceClaimName": "a-y-1"}
    assert await write(generated) == [generated]
    assert await write({"name": "x"}) == [{"name": "x"}, generated]
    assert await write({"name": "x", "$patch": "delete"}) == [generated]
    entries = [{"name": "q"}, {"name": "y", "resourceClaimName": "A_"}, {"name": "y"}]
    answer = await api.merge(path, {"status": {"resourceClaimStatuses": entries}})
    assert problems(answer) == [
        (f"{at}[0].name", 'Invalid value: "q": must match the name of an entry in `spec.resourceClaims`'),
        (f"{at}[1].resourceClaimName", f'Invalid value: "A_": {SUBDOMAIN}'),
        (f"{at}[2].name", 'Duplicate value: "y"'),
    ]


BAD_MAPPINGS = ({"containerName": "q"}, {"resourceName": "q"}, {"requestName": "Q_"})


async def test_the_claim_for_extended_resources(api: Api) -> None:
    resources = {"requests": {"a.b/c": "1"}, "limits": {"a.b/c": "1"}}
    await api.pod("a", containers=[{"name": "c", "image": "x", "resources": resources}])
    path = f"{api.pods}/a/status"
    mapping = {"containerName": "c", "resourceName": "a.b/c", "requestName": "container-0-request-0"}

    async def write(name: str, *mappings: Object) -> Answer:
        status = {"resourceClaimName": name, "requestMappings": list(mappings)}
        return await api.patch(path, {"status": {"extendedResourceClaimStatus": status}})

    written = (await write("z", mapping)).body["status"]["extendedResourceClaimStatus"]
    assert written == {"resourceClaimName": "z", "requestMappings": [mapping]}
    assert problems(await write("")) == [
        (f"{EXTENDED}.requestMappings", "Required value: at least one request mapping is required"),
        (f"{EXTENDED}.resourceClaimName", REQUIRED),
    ]
    wrong = [*({**mapping, **each} for each in BAD_MAPPINGS), mapping, mapping]
    at, unmatched = f"{EXTENDED}.requestMappings", 'Invalid value: "q": must match the'
    requests = "spec.initContainers.resources.requests or spec.containers.resources.requests"
    assert problems(await write("Z_", *wrong)) == [
        (f"{at}[0].containerName", f"{unmatched} name of an entry in spec.initContainers.name or spec.containers.name"),
        (f"{at}[1].resourceName", f"{unmatched} extended resource name of an entry in {requests}"),
        (f"{EXTENDED}.requestName", f'Invalid value: "Q_": {LABEL}'),
        *((f"{at}[4].{name}", f'Duplicate value: "{value}"') for name, value in mapping.items()),
        (f"{EXTENDED}.resourceClaimName", f'Invalid value: "Z_": {SUBDOMAIN}'),
    ]
    cleared = await api.patch(path, {"status": {"extendedResourceClaimStatus": None}})
    assert ("extendedResourceClaimStatus" in cleared.body["status"]) is (api.version >= "1.37")
