"""Validation of manifests by `kubestow simulate` and by the real API server: the same schema and the same verdicts."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.simulate.input import schema
from simulator.simulate.input.manifests import load
from tests.e2e.controlplane.harness import ControlPlane, started
from tests.tools.api_schema import EVERYTHING, fetch, merged, packed, reduced
from tests.unit.simulator.simulate.manifest_cases import BAD, GOOD, ManifestCase, Object, refusal

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def everything(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """A control plane that serves each group version it has."""
    with started(ControlPlane(apiserver_flags=EVERYTHING)) as plane:
        yield plane


async def test_the_shipped_schema_has_all_of_the_server_s(everything: ControlPlane) -> None:
    async with everything.client() as http:
        served = reduced(await fetch(http))

    expected = merged(schema.read(), served)
    assert schema.read() == expected
    assert gzip.decompress(schema.FILE.read_bytes()) == gzip.decompress(packed(expected))


def test_a_merged_schema_accepts_what_one_of_the_two_accepts() -> None:
    one = {"fields": {"a": {"enum": ["x"]}, "b": "string"}, "required": ["a", "b"], "nested": []}
    other = {"fields": {"a": {"enum": ["y"]}, "b": "integer", "c": "any"}, "required": ["b", "c"], "nested": []}

    made = merged(
        {"kinds": {"v1": {"A": ["A", True]}}, "types": {"A": one}},
        {"kinds": {"v1": {"B": ["B", True]}, "v2": {}}, "types": {"A": other, "B": one}},
    )

    both = {"fields": {"a": {"enum": ["x", "y"]}, "b": "string", "c": "any"}, "required": ["b"], "nested": []}
    kinds = {"v1": {"A": ["A", True], "B": ["B", True]}, "v2": {}}
    assert made == {"kinds": kinds, "types": {"A": both, "B": one}}


async def test_what_a_server_stores_passes(everything: ControlPlane, tmp_path: Path) -> None:
    for number, manifest in enumerate(case.manifest for case in GOOD if not isinstance(case.manifest, str)):
        value = copy.deepcopy(manifest)
        value["metadata"]["name"] = f"good-{number}"
        status, said = await answer(everything, value, dry=False)
        assert status == 201, said
    async with everything.client() as http:
        lists = [each for path in await _list_paths(http) for each in [await _get(http, path)] if each["items"]]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.dump_all(lists, Dumper=GoDumper))

    loaded = load([str(file)], level="strict")

    assert len(loaded.objects) == sum(len(each["items"]) for each in lists)
    kinds = {"APIService", "ClusterRole", "FlowSchema", "Lease", "Pod", "PriorityClass", "Service", "StatefulSet"}
    assert {found.kind for found in loaded.objects} >= kinds


class GoDumper(yaml.CSafeDumper):
    """Quotes texts that Go's reader takes for something else, as Go's writer does."""


def _quoted(dumper: GoDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


GoDumper.add_representer(str, _quoted)


async def _get(http: aiohttp.ClientSession, path: str) -> Object:
    async with http.get(path) as response:
        response.raise_for_status()
        body: Object = await response.json()
        return body


async def _list_paths(http: aiohttp.ClientSession) -> list[str]:
    """The paths of all kinds that can be listed."""
    groups = (await _get(http, "/apis"))["groups"]
    bases = ["/api/v1", *(f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"])]
    return [
        f"{base}/{resource['name']}"
        for base in bases
        for resource in (await _get(http, base))["resources"]
        if "list" in resource["verbs"]
    ]


async def answer(plane: ControlPlane, manifest: Object | str, *, dry: bool = True) -> tuple[int, str]:
    """Status and message of the API server, which stores nothing in a dry run."""
    value = yaml.safe_load(manifest) if isinstance(manifest, str) else manifest
    group, _, version = value["apiVersion"].rpartition("/")
    kind = schema.find(value["apiVersion"], value["kind"])
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    place = "/namespaces/default" if kind is not None and kind.is_namespaced else ""
    plural = value["kind"].lower() + ("es" if value["kind"].endswith("s") else "s")
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    headers = {"Content-Type": "application/yaml" if isinstance(manifest, str) else "application/json"}
    query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry else {})
    async with (
        plane.client() as http,
        http.post(f"{base}{place}/{plural}", params=query, data=text, headers=headers) as response,
    ):
        body = await response.text()
        said = json.loads(body).get("message", "") if body.startswith("{") else body
        return response.status, said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in (*GOOD, *BAD)])
async def test_both_say_the_same(control_plane: ControlPlane, tmp_path: Path, case: ManifestCase) -> None:
    status, said = await answer(control_plane, case.manifest)
    ours = refusal(tmp_path, case.manifest)

    assert (status in {200, 201}) is (ours == "") is (case in GOOD), (status, said, ours)
    for part in case.fields:
        assert part.lower() in said.lower()
