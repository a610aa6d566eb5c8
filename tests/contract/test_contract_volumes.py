"""Volumes, claims, and the kinds around them: defaults, refusals, changes, and what a scheduler writes."""

import pytest

from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.core.errors import Conflict, NotFound
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.conftest import Answer, Api, Object, denies, missing, modified, problems, without
from tests.contract.words import REQUIRED, SUBDOMAIN, unsupported

STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"
MARK = "pv.kubernetes.io/bound-by-controller"
VOLUME: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
CLAIM: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
NO_MODE = pytest.param(
    {"volumeMode": "X"}, "spec.volumeMode", unsupported("X", "Block", "Filesystem"), id="a mode that is none"
)
NO_NAME = f'Invalid value: "A_": {SUBDOMAIN}'
NO_CLASS = pytest.param({"storageClassName": "A_"}, "spec.storageClassName", NO_NAME, id="a class that cannot be")


def says(answer: Answer, field: str, why: str, *, starts: bool = False) -> None:
    """Check for a 422 with this one field. With `starts`, a real server appends the difference of the two objects."""
    ((found, told),) = problems(answer)
    assert found == field
    assert not answer.has_known_texts or (told[: len(why)] if starts else told) == why


def affinity(value: str) -> Object:
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": [value]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


async def made(api: Api, path: str, name: str, **rest: object) -> Answer:
    answer = await api("POST", path, {"metadata": {"name": name}} | rest)
    assert answer.status == 201, answer.body
    return answer


async def test_a_new_volume(api: Api) -> None:
    name = f"a-{api.ns}"
    created = await made(api, VOLUMES, name, spec=VOLUME, status={"phase": "Bound"})
    assert created.body["spec"] == VOLUME | {
        "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    since = created.stamped(created.body["status"]["lastPhaseTransitionTime"])
    assert created.body["status"] == {"phase": "Pending", "lastPhaseTransitionTime": since}


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
        **({"preventPodSchedulingIfMissing": False} if api.version >= "1.37" else {}),
    }
    assert "generation" not in created["metadata"]
    changed = (await api.merge(f"{drivers}/{name}", {"spec": {"storageCapacity": True}})).body
    assert (changed["metadata"]["generation"], changed["spec"]["storageCapacity"]) == (1, True)
    fixed = await api.merge(f"{drivers}/{name}", {"spec": {"attachRequired": False}})
    field = "spec.attachRequired" if api.version >= "1.38" else "spec.attachedRequired"
    says(fixed, field, "Invalid value: false: field is immutable")


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


@pytest.mark.parametrize(
    ("resource", "spec", "fields"),
    [
        pytest.param(
            "persistentvolumes",
            VOLUME | {"accessModes": ["X"], "hostPath": None, "storageClassName": "A_", "volumeMode": "X"},
            ["spec.accessModes", "spec", "spec.storageClassName", "spec.volumeMode"],
            id="a volume",
        ),
        pytest.param(
            "persistentvolumes",
            VOLUME | {"capacity": {"storage": "0"}, "hostPath": None, "csi": {"fsType": "ext4"}},
            ["spec.capacity[storage]", "spec.csi.driver", "spec.csi.volumeHandle"],
            id="a CSI volume",
        ),
        pytest.param(
            "persistentvolumes",
            {},
            ["spec.accessModes", "spec.capacity", "spec.capacity", "spec"],
            id="an empty volume",
        ),
        pytest.param(
            "persistentvolumeclaims",
            {"volumeMode": "X", "storageClassName": "A_"},
            ["spec.accessModes", "spec.resources[storage]", "spec.storageClassName", "spec.volumeMode"],
            id="a claim",
        ),
        pytest.param(
            "csinodes",
            {"drivers": [{}, {}]},
            [
                f"spec.drivers[{at}].{field}"
                for at, field in ((0, "name"), (0, "nodeID"), (1, "name"), (1, "nodeID"), (1, "name"))
            ],
            id="a CSINode",
        ),
        pytest.param("volumeattachments", {}, ["spec.attacher", "spec.source", "spec.nodeName"], id="an attachment"),
    ],
)
async def test_all_mistakes_at_once(api: Api, resource: str, spec: Object, fields: list[str]) -> None:
    base = STORAGE if resource in {"csinodes", "volumeattachments"} else "/api/v1"
    if resource == "persistentvolumeclaims":
        base += f"/namespaces/{api.ns}"
    refused = await api("POST", f"{base}/{resource}", {"metadata": {"name": "b"}, "spec": spec})
    if resource == "volumeattachments" and api.version >= "1.37":  # a declared rule, after those in code
        fields = [*fields[1:], fields[0]]
    assert [field for field, _ in problems(refused)] == fields


# -- what a scheduler writes: merge patches with preconditions, and the owners of fields after them --------------------


async def volume(api: Api) -> Answer:
    return await made(api, VOLUMES, f"v-{api.ns}", spec=VOLUME | {"mountOptions": ["ro"]})


async def claim(api: Api) -> Answer:
    spec = CLAIM | {"dataSourceRef": {"apiGroup": "example.com", "kind": "Thing", "name": "t"}}
    metadata = {"name": "c", "annotations": {"x": "y"}}
    return await made(api, api.at("v1", "persistentvolumeclaims"), "c", metadata=metadata, spec=spec)


def as_seen(answer: Answer, **rest: object) -> Object:
    return {"uid": answer.metadata["uid"], "resourceVersion": answer.metadata["resourceVersion"], **rest}


def prebinding(volume: Answer, claim: Answer) -> Object:
    names = {field: claim.metadata[field] for field in ("namespace", "name", "uid", "resourceVersion")}
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **names}
    return {"metadata": as_seen(volume, annotations={MARK: "yes"}), "spec": {"claimRef": ref}}


def selection(claim: Answer, node: str | None) -> Object:
    return {"metadata": as_seen(claim, annotations={SELECTED: node})}


async def test_a_volume_is_prebound(api: Api) -> None:
    before, wanting = await volume(api), await claim(api)
    patch = prebinding(before, wanting)
    after = await api.merge(f"{VOLUMES}/v-{api.ns}", patch)
    assert after.status == 200, after.body
    assert after.body["spec"] == before.body["spec"] | patch["spec"]
    assert after.metadata["annotations"] == {MARK: "yes"}
    assert after.rv > before.rv
    again = await api.merge(f"{VOLUMES}/v-{api.ns}", prebinding(after, wanting))
    assert (again.status, again.rv) == (200, after.rv)  # nothing changed: no new version


async def test_a_claim_gets_and_loses_its_node(api: Api) -> None:
    before = await claim(api)
    path = f"{api.at('v1', 'persistentvolumeclaims')}/c"
    after = await api.merge(path, selection(before, "n1"))
    assert (after.status, after.metadata["annotations"]) == (200, {"x": "y", SELECTED: "n1"})
    assert after.body["spec"] == before.body["spec"]
    cleared = await api.merge(path, selection(after, None))
    assert (cleared.status, cleared.metadata["annotations"]) == (200, {"x": "y"})


@pytest.mark.parametrize("kind", ["persistentvolumes", "persistentvolumeclaims"])
async def test_a_patch_from_an_old_version_is_refused(api: Api, kind: str) -> None:
    own, wanting = await volume(api), await claim(api)
    is_volume = kind == "persistentvolumes"
    path = f"{VOLUMES}/v-{api.ns}" if is_volume else f"{api.at('v1', kind)}/c"
    await api.merge(path, {"metadata": {"labels": {"new": "1"}}})
    answer = await api.merge(path, prebinding(own, wanting) if is_volume else selection(wanting, "n1"))
    modified(answer, kind, path.rpartition("/")[2])


@pytest.mark.parametrize("kind", ["persistentvolumes", "persistentvolumeclaims"])
async def test_a_patch_for_a_namesake_is_refused(api: Api, kind: str) -> None:
    """The version is checked first. With the current version, the server refuses to change the uid."""
    own, wanting = await volume(api), await claim(api)
    is_volume = kind == "persistentvolumes"
    path = f"{VOLUMES}/v-{api.ns}" if is_volume else f"{api.at('v1', kind)}/c"
    assert (await api("DELETE", path)).status == 200
    await _gone(api, path)
    now = await (volume(api) if is_volume else claim(api))
    patch = prebinding(own, wanting) if is_volume else selection(wanting, "n1")
    modified(await api.merge(path, patch), kind, path.rpartition("/")[2])
    patch["metadata"]["resourceVersion"] = now.metadata["resourceVersion"]
    answer = await api.merge(path, patch)
    assert answer.status in {409, 422}, answer.body
    assert (await api("GET", path)).rv == now.rv


@pytest.mark.parametrize("kind", ["persistentvolumes", "persistentvolumeclaims"])
async def test_a_patch_of_nothing(api: Api, kind: str) -> None:
    path = f"{VOLUMES}/missing-{api.ns}" if kind == "persistentvolumes" else f"{api.at('v1', kind)}/missing"
    answer = await api.merge(path, {"metadata": {"uid": "u", "resourceVersion": "1"}})
    denies(answer, 404, f'{kind} "{path.rpartition("/")[2]}" not found')


async def _gone(api: Api, path: str) -> None:
    """Delete the finalizer that a real server adds; no controller runs here that removes it."""
    for _ in range(60):
        answer = await api("GET", path)
        if answer.status == 404:
            return
        await api.merge(path, {"metadata": {"finalizers": None}})
    raise AssertionError(f"{path} does not go")


async def test_the_product_writes_both(api: Api, writer: ApiWriter) -> None:
    await volume(api)
    await claim(api)
    own, wanting = await writer.read_volume(f"v-{api.ns}"), await writer.read_claim(api.ns, "c")
    assert isinstance(own, PersistentVolume)
    assert isinstance(wanting, PersistentVolumeClaim)
    bound = await writer.prebind_volume(own, wanting, marks=True)
    selected = await writer.select_node(wanting, "n1")
    assert bound == await writer.read_volume(f"v-{api.ns}")
    assert selected == await writer.read_claim(api.ns, "c")
    assert isinstance(selected, PersistentVolumeClaim)
    assert selected.selected_node == "n1"
    with pytest.raises(Conflict):
        await writer.prebind_volume(own, wanting, marks=True)
    with pytest.raises(Conflict):
        await writer.select_node(wanting, "n2")
    await api("DELETE", f"{api.at('v1', 'persistentvolumeclaims')}/c")
    await _gone(api, f"{api.at('v1', 'persistentvolumeclaims')}/c")
    with pytest.raises(NotFound):
        await writer.select_node(selected, None)
    assert await writer.read_claim(api.ns, "c") is None


async def test_whose_the_selected_node_is(api: Api, writer: ApiWriter) -> None:
    """The owner is the last client that changed the value."""
    path = f"{api.at('v1', 'persistentvolumeclaims')}/c"
    await claim(api)
    wanting = await writer.read_claim(api.ns, "c")
    assert isinstance(wanting, PersistentVolumeClaim)
    assert await writer.claim_written_by(api.ns, "c") is None
    await writer.select_node(wanting, "n1")
    assert await writer.claim_written_by(api.ns, "c") == "kubestow"
    await api.merge(f"{path}?fieldManager=another", {"metadata": {"annotations": {SELECTED: "n2"}}})
    assert await writer.claim_written_by(api.ns, "c") == "another"
    await api.merge(path, {"metadata": {"annotations": {SELECTED: None}}})
    assert await writer.claim_written_by(api.ns, "c") is None


def owners(answer: Answer) -> dict[str, set[tuple[str, str, str]]]:
    """Return for each annotation (manager, operation, subresource) of its owners."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for entry in answer.metadata.get("managedFields") or []:
        for field in entry["fieldsV1"].get("f:metadata", {}).get("f:annotations", {}):
            if field != ".":
                who = (entry["manager"], entry["operation"], entry.get("subresource", ""))
                found.setdefault(field.removeprefix("f:"), set()).add(who)
    return found


def by(manager: str, subresource: str = "") -> set[tuple[str, str, str]]:
    return {(manager, "Update", subresource)}


async def test_whose_an_annotation_is(api: Api) -> None:
    """The last client that changed the value owns it. Writing the same value again does not count."""
    path = f"{api.at('v1', 'persistentvolumeclaims')}/c"
    made = await claim(api)
    (creator,) = owners(made)["x"]
    assert creator[1:] == ("Update", "")

    async def write(manager: str, **annotations: str | None) -> Answer:
        return await api.merge(f"{path}?fieldManager={manager}", {"metadata": {"annotations": annotations}})

    assert owners(await write("one", a="1", b="1")) == {"x": {creator}, "a": by("one"), "b": by("one")}
    assert owners(await write("two", a="1", x="z")) == {"x": by("two"), "a": by("one"), "b": by("one")}
    assert owners(await write("two", a="2", x=None)) == {"a": by("two"), "b": by("one")}
    last = await write("three", b=None, c="1")
    assert owners(last) == {"a": by("two"), "c": by("three")}
    last.metadata["annotations"]["d"] = "1"
    del last.metadata["managedFields"]
    put = await api("PUT", f"{path}?fieldManager=four", last.body)
    assert owners(put) == {"a": by("two"), "c": by("three"), "d": by("four")}
    status = {"metadata": {"annotations": {"e": "1"}}, "status": {"phase": "Bound"}}
    sub = await api.merge(f"{path}/status?fieldManager=four", status)
    assert owners(sub) == owners(put) | {"e": by("four", "status")}


async def test_a_field_manager_is_the_client_by_default(api: Api) -> None:
    await claim(api)
    path = f"{api.at('v1', 'persistentvolumeclaims')}/c"
    headers = {"User-Agent": "some-tool/v1.2 (linux)", "Content-Type": "application/merge-patch+json"}
    async with api.http.patch(path, json={"metadata": {"annotations": {"a": "1"}}}, headers=headers) as response:
        assert response.status == 200
    assert owners(await api("GET", path))["a"] == by("some-tool")
