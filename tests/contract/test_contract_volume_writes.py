"""What a scheduler writes to volumes and claims: merge patches with preconditions, and the owners of fields after them."""

import pytest

from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.core.errors import Conflict, NotFound
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.conftest import Answer, Api, Object, denies, modified

VOLUMES = "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"
MARK = "pv.kubernetes.io/bound-by-controller"


async def volume(api: Api, name: str = "") -> Answer:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "mountOptions": ["ro"],
    }
    answer = await api("POST", VOLUMES, {"metadata": {"name": name or f"v-{api.ns}"}, "spec": spec})
    assert answer.status == 201, answer.body
    return answer


async def claim(api: Api, name: str = "c") -> Answer:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"apiGroup": "example.com", "kind": "Thing", "name": "t"},
    }
    body = {"metadata": {"name": name, "annotations": {"x": "y"}}, "spec": spec}
    answer = await api("POST", api.at("v1", "persistentvolumeclaims"), body)
    assert answer.status == 201, answer.body
    return answer


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
        await writer.clear_selected_node(selected)
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
