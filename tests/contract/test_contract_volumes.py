"""Volumes, claims, and the kinds around them: defaults, what is refused, what may change."""

import pytest

from tests.contract.conftest import Answer, Api, Object, missing, problems, without
from tests.contract.words import REQUIRED, SUBDOMAIN, unsupported

STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
VOLUME: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
CLAIM: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
NO_MODE = pytest.param(
    {"volumeMode": "X"}, "spec.volumeMode", unsupported("X", "Block", "Filesystem"), id="a mode that is none"
)
NO_CLASS = pytest.param(
    {"storageClassName": "A_"},
    "spec.storageClassName",
    f'Invalid value: "A_": {SUBDOMAIN}',
    id="a class that cannot be",
)


def says(answer: Answer, field: str, why: str, *, starts: bool = False) -> None:
    """Check for a 422 with this one field. With `starts`, a real server appends the difference of the two objects."""
    ((found, told),) = problems(answer)
    assert found == field
    assert not answer.has_known_texts or (told[: len(why)] if starts else told) == why


def affinity(value: str) -> Object:
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": [value]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


async def made(api: Api, path: str, name: str, **rest: object) -> Answer:
    answer = await api("POST", path, {"metadata": {"name": name}, **rest})
    assert answer.status == 201, answer.body
    return answer


async def test_a_new_volume(api: Api) -> None:
    name = f"a-{api.ns}"
    created = (await made(api, VOLUMES, name, spec=VOLUME, status={"phase": "Bound"})).body
    assert created["spec"] == VOLUME | {
        "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    since = created["metadata"]["creationTimestamp"]
    assert created["status"] == {"phase": "Pending", "lastPhaseTransitionTime": since}


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        pytest.param({"accessModes": []}, "spec.accessModes", REQUIRED, id="no access mode"),
        pytest.param(
            {"accessModes": ["X"]}, "spec.accessModes", unsupported("X", *MODES), id="an access mode that is none"
        ),
        pytest.param(
            {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
            "spec.accessModes",
            "Forbidden: may not use ReadWriteOncePod with other access modes",
            id="ReadWriteOncePod and another mode",
        ),
        NO_MODE,
        pytest.param(
            {"persistentVolumeReclaimPolicy": "X"},
            "spec.persistentVolumeReclaimPolicy",
            unsupported("X", "Delete", "Recycle", "Retain"),
            id="a reclaim policy that is none",
        ),
        pytest.param({"hostPath": None}, "spec", "Required value: must specify a volume type", id="no source"),
        pytest.param(
            {"nfs": {"server": "s", "path": "/"}},
            "spec.nfs",
            "Forbidden: may not specify more than 1 volume type",
            id="two sources",
        ),
        pytest.param(
            {"hostPath": None, "local": {"path": "/x"}},
            "spec.nodeAffinity",
            "Required value: Local volume requires node affinity",
            id="local without node affinity",
        ),
        pytest.param(
            {"hostPath": None, "csi": {"driver": "d.x", "volumeHandle": ""}},
            "spec.csi.volumeHandle",
            REQUIRED,
            id="a CSI volume without a handle",
        ),
        NO_CLASS,
    ],
)
async def test_volumes_that_cannot_be(api: Api, change: Object, field: str, why: str) -> None:
    says(await api("POST", VOLUMES, {"metadata": {"name": "b"}, "spec": VOLUME | change}), field, why)


async def test_what_may_change_of_a_volume(api: Api) -> None:
    path = f"{VOLUMES}/a-{api.ns}"
    await made(api, VOLUMES, f"a-{api.ns}", spec=VOLUME)
    fixed = "Forbidden: spec.persistentvolumesource is immutable after creation"
    moved = await api.merge(path, {"spec": {"hostPath": {"path": "/y"}}})
    says(moved, "spec.persistentvolumesource", fixed, starts=True)
    block = await api.merge(path, {"spec": {"volumeMode": "Block"}})
    says(block, "volumeMode", 'Invalid value: "Block": field is immutable')
    near = await api.merge(path, {"spec": {"nodeAffinity": affinity("v")}})
    assert near.body["spec"]["nodeAffinity"] == affinity("v")
    other = await api.merge(path, {"spec": {"nodeAffinity": affinity("w")}})
    says(other, "nodeAffinity", "Invalid value: ", starts=True)
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "n", "name": "c", "uid": "u"}
    assert (await api.merge(path, {"spec": {"claimRef": reference}})).body["spec"]["claimRef"] == reference
    assert "uid" not in (await api.merge(path, {"spec": {"claimRef": {"uid": None}}})).body["spec"]["claimRef"]
    assert "claimRef" not in (await api.merge(path, {"spec": {"claimRef": None}})).body["spec"]


async def test_a_volume_says_since_when_it_has_its_phase(api: Api) -> None:
    path = f"{VOLUMES}/a-{api.ns}/status"
    await made(api, VOLUMES, f"a-{api.ns}", spec=VOLUME)
    long_ago = "2020-01-01T00:00:00Z"
    told = {"phase": "Available", "lastPhaseTransitionTime": long_ago}
    assert (await api.merge(path, {"status": told})).body["status"] == told
    kept = (await api.merge(path, {"status": {"message": "m", "lastPhaseTransitionTime": None}})).body["status"]
    assert kept["lastPhaseTransitionTime"] == long_ago
    moved = (await api.merge(path, {"status": {"phase": "Bound"}})).body["status"]
    assert moved["lastPhaseTransitionTime"] > long_ago


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        pytest.param(
            {"accessModes": []},
            "spec.accessModes",
            "Required value: at least 1 access mode is required",
            id="no access mode",
        ),
        pytest.param({"resources": {}}, "spec.resources[storage]", REQUIRED, id="no size"),
        pytest.param(
            {"resources": {"requests": {"storage": "0"}}},
            "spec.resources[storage]",
            'Invalid value: "0": must be greater than zero',
            id="nothing",
        ),
        NO_MODE,
        NO_CLASS,
    ],
)
async def test_claims_that_cannot_be(api: Api, change: Object, field: str, why: str) -> None:
    claims = api.at("v1", "persistentvolumeclaims")
    says(await api("POST", claims, {"metadata": {"name": "b"}, "spec": CLAIM | change}), field, why)


async def test_what_may_change_of_a_claim(api: Api) -> None:
    claims = api.at("v1", "persistentvolumeclaims")
    await made(api, claims, "c", spec=CLAIM)
    fixed = (
        "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound"
    )
    for spec in ({"accessModes": ["ReadWriteMany"]}, {"resources": {"requests": {"storage": "2Gi"}}}):
        says(await api.merge(f"{claims}/c", {"spec": spec}), "spec", fixed, starts=True)
    for once in ("storageClassName", "volumeName"):
        assert (await api.merge(f"{claims}/c", {"spec": {once: "x"}})).body["spec"][once] == "x"
        again = await api.merge(f"{claims}/c", {"spec": {once: "y"}})
        says(again, "spec", fixed, starts=True)
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    assert (await api.merge(f"{claims}/c/status", {"status": status})).body["status"] == status
    smaller = await api.merge(f"{claims}/c", {"spec": {"resources": {"requests": {"storage": "500Mi"}}}})
    why = "Forbidden: field can not be less than status.capacity"
    says(smaller, "spec.resources.requests.storage", why)


async def test_deleted_claims_wait_for_their_finalizer(api: Api) -> None:
    path = f"{api.at('v1', 'persistentvolumeclaims')}/c"
    await made(api, api.at("v1", "persistentvolumeclaims"), "c", spec=CLAIM)
    first = await api("DELETE", path)
    assert (first.status, first.metadata["deletionGracePeriodSeconds"]) == (200, 0)
    assert (await api("DELETE", path)).body == first.body
    assert (await api.merge(path, {"metadata": {"finalizers": None}})).status == 200
    missing(await api("GET", path), "persistentvolumeclaims", "c")


async def test_classes(api: Api) -> None:
    classes, name = f"{STORAGE}/storageclasses", f"s-{api.ns}"
    says(await api("POST", classes, {"metadata": {"name": name}}), "provisioner", REQUIRED)
    for field, value, known in (
        ("volumeBindingMode", "X", ("Immediate", "WaitForFirstConsumer")),
        ("reclaimPolicy", "Recycle", ("Delete", "Retain")),
    ):
        wrong = await api("POST", classes, {"metadata": {"name": name}, "provisioner": "d.x", field: value})
        says(wrong, field, unsupported(value, *known))
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    created = await api("POST", classes, {"metadata": {"name": name, "annotations": default}, "provisioner": "d.x"})
    rest = {"provisioner": "d.x", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    assert without(created.body, "metadata", "kind", "apiVersion") == rest
    try:
        late = {"provisioner": "e", "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
        for field, value in late.items():
            why = f'Invalid value: "{value}": field is immutable'
            says(await api.merge(f"{classes}/{name}", {field: value}), field, why)
        changed = await api.merge(f"{classes}/{name}", {"parameters": {"a": "b"}})
        says(changed, "parameters", 'Invalid value: {"a":"b"}: field is immutable')
        topologies = [{"matchLabelExpressions": [{"key": "k", "values": ["v"]}]}]
        widened = await api.merge(f"{classes}/{name}", {"allowedTopologies": topologies})
        assert widened.body["allowedTopologies"] == topologies
        claims = api.at("v1", "persistentvolumeclaims")
        for claim, wanted, got in (("none", {}, name), ("empty", {"storageClassName": ""}, "")):
            spec = await _claim_once_known(api, claims, claim, CLAIM | wanted, expected=got)
            assert spec["storageClassName"] == got
    finally:
        await api("DELETE", f"{classes}/{name}")


async def _claim_once_known(api: Api, claims: str, name: str, spec: Object, *, expected: str) -> Object:
    """Create claims until admission, whose cache may lag, knows the class."""
    for attempt in range(2000):
        made_spec: Object = (await made(api, claims, f"{name}-{attempt}", spec=spec)).body["spec"]
        if made_spec.get("storageClassName") == expected:
            break
    return made_spec


async def test_drivers(api: Api) -> None:
    drivers, name = f"{STORAGE}/csidrivers", f"d-{api.ns}"
    created = (await made(api, drivers, name, spec={})).body
    assert created["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        **({"preventPodSchedulingIfMissing": False} if api.version == "1.37" else {}),
    }
    assert "generation" not in created["metadata"]
    changed = (await api.merge(f"{drivers}/{name}", {"spec": {"storageCapacity": True}})).body
    assert (changed["metadata"]["generation"], changed["spec"]["storageCapacity"]) == (1, True)
    fixed = await api.merge(f"{drivers}/{name}", {"spec": {"attachRequired": False}})
    says(fixed, "spec.attachedRequired", "Invalid value: false: field is immutable")


async def test_csi_nodes(api: Api) -> None:
    nodes, name = f"{STORAGE}/csinodes", f"n-{api.ns}"
    driver: Object = {"name": "d.x", "nodeID": "n", "allocatable": {"count": 3}}
    negative = driver | {"allocatable": {"count": -3}}
    for wrong, field, why in (
        ({"name": "d.x"}, "nodeID", REQUIRED),
        (negative, "allocatable.count", "Invalid value: -3: must be greater than or equal to 0"),
    ):
        answer = await api("POST", nodes, {"metadata": {"name": name}, "spec": {"drivers": [wrong]}})
        says(answer, f"spec.drivers[0].{field}", why)
    assert (await made(api, nodes, name, spec={})).body["spec"] == {"drivers": None}
    path = f"{nodes}/{name}"
    first = (await api.merge(path, {"spec": {"drivers": [driver]}})).body["spec"]
    assert first == {"drivers": [driver | {"topologyKeys": None}]}
    more = driver | {"allocatable": {"count": 5}}
    changed = (await api.merge(path, {"spec": {"drivers": [more]}})).body["spec"]["drivers"][0]["allocatable"]
    assert changed == {"count": 5}
    moved = await api.merge(path, {"spec": {"drivers": [driver | {"nodeID": "other"}]}})
    says(moved, "spec.drivers", "Invalid value: ", starts=True)
    assert (await api.merge(path, {"spec": {"drivers": []}})).body["spec"] == {"drivers": None}


async def test_capacities(api: Api) -> None:
    path = api.at("storage.k8s.io/v1", "csistoragecapacities")
    wrong = await api("POST", path, {"metadata": {"name": "c"}, "capacity": "5Gi"})
    says(wrong, "storageClassName", f'Invalid value: "": {SUBDOMAIN}')
    below = await api("POST", path, {"metadata": {"name": "c"}, "storageClassName": "s", "capacity": "-5Gi"})
    says(below, "capacity", 'Invalid value: "-5Gi": must be greater than or equal to 0')
    topology = {"matchLabels": {"a": "b"}}
    await made(api, path, "c", storageClassName="s", capacity="5Gi", nodeTopology=topology)
    changed = (await api.merge(f"{path}/c", {"capacity": "7Gi", "maximumVolumeSize": "1Gi"})).body
    rest = {"storageClassName": "s", "capacity": "7Gi", "maximumVolumeSize": "1Gi", "nodeTopology": topology}
    assert without(changed, "metadata", "kind", "apiVersion") == rest
    other = await api.merge(f"{path}/c", {"storageClassName": "o"})
    says(other, "storageClassName", 'Invalid value: "o": field is immutable')
    nowhere = await api.merge(f"{path}/c", {"nodeTopology": None})
    says(nowhere, "nodeTopology", "Invalid value: null: field is immutable")


async def test_attachments(api: Api) -> None:
    path, name = f"{STORAGE}/volumeattachments", f"a-{api.ns}"
    spec: Object = {"attacher": "d.x", "nodeName": "n", "source": {"persistentVolumeName": "a"}}
    body: Object = {"metadata": {"name": name}, "spec": spec, "status": {"attached": True}}
    why = "Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    nothing = await api("POST", path, body | {"spec": spec | {"source": {}}})
    says(nothing, "spec.source", why)
    says(await api("POST", path, body | {"spec": without(spec, "attacher")}), "spec.attacher", REQUIRED)
    created = (await api("POST", path, body)).body
    assert (created["spec"], created["status"]) == (spec, {"attached": False})
    moved = await api.merge(f"{path}/{name}", {"spec": {"nodeName": "m"}})
    says(moved, "spec", "Invalid value: ", starts=True)
    labelled = {"metadata": {"labels": {"a": "b"}}, "status": {"attached": True}}
    attached = (await api.merge(f"{path}/{name}/status", labelled)).body
    assert (attached["status"], "labels" in attached["metadata"]) == ({"attached": True}, False)


async def test_volumes_of_a_pod(api: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM}
    volumes = [
        {"name": "e", "ephemeral": {"volumeClaimTemplate": template}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "h", "hostPath": {"path": "/"}},
        {"name": "m", "configMap": {"name": "q"}},
    ]
    stored = (await api.pod("p", volumes=volumes)).body
    filled = [
        {"name": "e", "ephemeral": {"volumeClaimTemplate": template | {"spec": CLAIM | {"volumeMode": "Filesystem"}}}},
        volumes[1],
        {"name": "h", "hostPath": {"path": "/", "type": ""}},
        {"name": "m", "configMap": {"name": "q", "defaultMode": 420}},
    ]
    assert stored["spec"]["volumes"] == filled
    assert (await api("PUT", f"{api.pods}/p", stored | {"spec": stored["spec"] | {"volumes": volumes}})).status == 200
