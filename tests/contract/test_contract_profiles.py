"""Our own kind, as a CustomResourceDefinition brings it: what is written to its objects, and what is not."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.apiserver import LIKE_1_36_WITH_OURS, ApiServer
from tests.contract.conftest import PATIENCE_S, STRATEGIC, Api, Object, modified
from tests.e2e.controlplane.harness import ControlPlane

CRD = Path(__file__).parents[2] / "deploy/helm/files/schedulerprofiles-crd.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROFILES = "/apis/kubestow.dev/v1alpha1/schedulerprofiles"
SPEC: Object = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}}


@pytest.fixture
async def api(plane: ControlPlane | None) -> AsyncIterator[Api]:
    """Yield a server that has the kind and no objects of it."""
    if plane is None:
        async with ApiServer(served=LIKE_1_36_WITH_OURS) as server, aiohttp.ClientSession(server.url) as http:
            yield Api(http, is_real=False)
        return
    async with plane.client() as http:
        api = Api(http, is_real=True)
        await served(api)
        yield api
        for item in (await api("GET", PROFILES)).body["items"]:
            await api("DELETE", f"{PROFILES}/{item['metadata']['name']}")


async def served(api: Api) -> None:
    """Create the definition of the chart and wait until the kind is served."""
    answer = await api("POST", CRDS, yaml.safe_load(CRD.read_text()))
    assert answer.status == 201 or answer.body["reason"] == "AlreadyExists", answer.body
    deadline = time.monotonic() + PATIENCE_S
    while (await api("GET", PROFILES)).status != 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def created(api: Api, name: str = "kubestow", spec: Object = SPEC) -> Object:
    body = {"apiVersion": "kubestow.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": name}, "spec": spec}
    answer = await api("POST", PROFILES, body)
    assert answer.status == 201, answer.body
    profile: Object = answer.body
    return profile


async def test_discovery_shows_the_kind_and_its_status(api: Api) -> None:
    groups = (await api("GET", "/apis")).body["groups"]
    (group,) = [group for group in groups if group["name"] == "kubestow.dev"]
    assert group["preferredVersion"] == {"groupVersion": "kubestow.dev/v1alpha1", "version": "v1alpha1"}
    listed = (await api("GET", "/apis/kubestow.dev/v1alpha1")).body["resources"]
    rows = [row for row in listed if row["kind"] == "SchedulerProfile"]
    assert [(row["name"], row["kind"], row["namespaced"]) for row in rows] == [
        ("schedulerprofiles", "SchedulerProfile", False),
        ("schedulerprofiles/status", "SchedulerProfile", False),
    ]
    assert rows[0]["singularName"] == "schedulerprofile"


async def test_a_generation_counts_specs_and_nothing_else(api: Api) -> None:
    profile = await created(api)
    assert (profile["metadata"]["generation"], profile["spec"], profile.get("status")) == (1, SPEC, None)
    path = f"{PROFILES}/kubestow"
    assert (await api.merge(path, {"spec": {"percentageOfNodesToScore": 50}})).metadata["generation"] == 2
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).metadata["generation"] == 2
    told = await api.merge(f"{path}/status", {"status": {"observedGeneration": 2}})
    assert (told.metadata["generation"], told.body["status"]) == (2, {"observedGeneration": 2})


async def test_spec_and_status_are_written_apart(api: Api) -> None:
    await created(api)
    path = f"{PROFILES}/kubestow"
    both: Object = {"spec": {"percentageOfNodesToScore": 7}, "status": {"changes": "x"}}
    body = (await api.merge(f"{path}/status", both | {"metadata": {"labels": {"a": "b"}}})).body
    assert (body["spec"], body["status"], "labels" in body["metadata"]) == (SPEC, {"changes": "x"}, False)
    body = (await api.merge(path, {"spec": {"percentageOfNodesToScore": 7}, "status": {"changes": "y"}})).body
    assert (body["spec"], body["status"]) == (SPEC | {"percentageOfNodesToScore": 7}, {"changes": "x"})


async def test_a_status_is_refused_once_anything_was_written(api: Api) -> None:
    seen = (await created(api))["metadata"]
    path = f"{PROFILES}/kubestow"
    await api.merge(path, {"spec": {"percentageOfNodesToScore": 7}})
    before = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
    late = await api.merge(f"{path}/status", {"metadata": before, "status": {"changes": "late"}})
    modified(late, "schedulerprofiles", "kubestow", "kubestow.dev")
    gone = await api.merge(f"{PROFILES}/other/status", {"status": {"changes": "late"}})
    assert (gone.status, gone.body["reason"]) == (404, "NotFound")


async def test_a_status_that_says_the_same_is_no_write(api: Api) -> None:
    await created(api)
    path = f"{PROFILES}/kubestow/status"
    first = await api.merge(path, {"status": {"changes": "x"}})
    assert (await api.merge(path, {"status": {"changes": "x"}})).rv == first.rv


async def test_a_strategic_merge_patch_is_not_known(api: Api) -> None:
    await created(api)
    answer = await api("PATCH", f"{PROFILES}/kubestow", {"spec": {}}, content=STRATEGIC)
    assert answer.status == 415


async def test_a_watch_shows_what_becomes_of_an_object(api: Api) -> None:
    version = (await api("GET", PROFILES)).metadata["resourceVersion"]
    async with api.watch(PROFILES, resourceVersion=version) as events:
        await created(api)
        await api.merge(f"{PROFILES}/kubestow/status", {"status": {"changes": "x"}})
        gone = await api("DELETE", f"{PROFILES}/kubestow")
        assert (gone.status, gone.body["kind"], gone.body["status"]) == (200, "Status", "Success")
        assert await events.take(3) == [("ADDED", "kubestow"), ("MODIFIED", "kubestow"), ("DELETED", "kubestow")]
