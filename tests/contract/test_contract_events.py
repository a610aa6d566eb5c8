"""Events of one object, found by field selectors under both versions, and what the product reads of them."""

from urllib.parse import quote

import pytest

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.conftest import Api, Object, refusal
from tests.contract.words import new_event

CORE, NEW = "v1", "events.k8s.io/v1"
DRIVER = "disk.example"
FAILED = "failed to provision volume: out of space"


def about(api: Api, uid: str) -> Object:
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "name": "c", "namespace": api.ns, "uid": uid}
    return claim | {"resourceVersion": "7", "fieldPath": "spec"}


async def three_events(api: Api) -> None:
    """Create an Event as client-go writes it, one as events.k8s.io has it, and one about another claim of the same name."""
    classic: Object = {
        "metadata": {"name": "failed"},
        "involvedObject": about(api, "u-1"),
        "reason": "ProvisioningFailed",
        "message": FAILED,
        "type": "Warning",
        "source": {"component": f"{DRIVER}_host_1"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:09Z",
        "count": 2,
    }
    began = classic | {"metadata": {"name": "namesake"}, "involvedObject": about(api, "u-2"), "type": "Normal"}
    newer = new_event("newer", "2026-01-01T00:00:10.000000Z", about(api, "u-1")) | {"reason": "SelectedNodeCleared"}
    for version, event in ((CORE, classic), (CORE, began), (NEW, newer)):
        answer = await api("POST", api.at(version, "events"), event)
        assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("version", "selector", "names"),
    [
        (CORE, "involvedObject.uid=u-1", ["failed", "newer"]),
        (CORE, "involvedObject.uid!=u-1", ["namesake"]),
        (CORE, "involvedObject.uid=u-3", []),
        (CORE, "involvedObject.uid=u-1,type=Normal", []),
        (CORE, "involvedObject.name=c,involvedObject.kind=PersistentVolumeClaim,type=Normal", ["namesake"]),
        (CORE, "involvedObject.apiVersion=v1,reason=SelectedNodeCleared", ["newer"]),
        (CORE, "involvedObject.resourceVersion=7,involvedObject.fieldPath=spec,type=Normal", ["namesake"]),
        (CORE, "reportingComponent=kubestow", ["newer"]),
        (CORE, "source=kubestow", ["newer"]),
        (CORE, f"source={DRIVER}_host_1", ["failed", "namesake"]),
        (CORE, "metadata.name=newer", ["newer"]),
        (NEW, "regarding.uid=u-1", ["failed", "newer"]),
        (NEW, "regarding.uid=u-2,regarding.name=c", ["namesake"]),
        (NEW, "regarding.apiVersion=v1,regarding.resourceVersion=7,regarding.fieldPath=spec,type=Normal", ["namesake"]),
        (NEW, "reportingController=kubestow", ["newer"]),
    ],
)
async def test_events_are_selected_by_what_they_are_about(
    api: Api, version: str, selector: str, names: list[str]
) -> None:
    await three_events(api)
    answer = await api("GET", f"{api.at(version, 'events')}?fieldSelector={quote(selector)}")
    assert (answer.status, answer.names) == (200, names)


@pytest.mark.parametrize(
    ("version", "field"),
    [
        (CORE, "regarding.uid"),
        (CORE, "reportingController"),
        (CORE, "involvedObject"),
        (NEW, "involvedObject.uid"),
        (NEW, "reportingComponent"),
        (NEW, "source"),
    ],
)
async def test_each_version_knows_its_own_names_only(api: Api, version: str, field: str) -> None:
    answer = await api("GET", f"{api.at(version, 'events')}?fieldSelector={field}%3Dx")
    refusal(answer, 400, "BadRequest", f"field label not supported: {field}")


async def test_a_limit_counts_what_is_selected(api: Api) -> None:
    await three_events(api)
    answer = await api("GET", f"{api.at(CORE, 'events')}?fieldSelector=reason%3DSelectedNodeCleared&limit=1")
    assert answer.names == ["newer"]


@pytest.mark.parametrize(
    ("uid", "besides", "expected"),
    [
        pytest.param("u-1", {"kubestow"}, f"ProvisioningFailed at 2026-01-01T00:00:09Z: {FAILED}", id="the provisioner's"),
        pytest.param("u-1", set(), "SelectedNodeCleared at 2026-01-01T00:00:10Z: n", id="the newest of all"),
        pytest.param("u-2", {"kubestow"}, f"ProvisioningFailed at 2026-01-01T00:00:09Z: {FAILED}", id="though Normal"),
        pytest.param("u-3", set(), None, id="none"),
    ],
)  # fmt: skip
async def test_the_product_reads_what_was_said_last(
    api: Api, writer: ApiWriter, uid: str, besides: set[str], expected: str | None
) -> None:
    await three_events(api)
    claim = from_manifest(PersistentVolumeClaim, {"metadata": {"name": "c", "namespace": api.ns, "uid": uid}})
    assert await writer.last_event(claim, provisioner=DRIVER, besides=besides) == expected
