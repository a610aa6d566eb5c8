"""Rules on volumes, claims and capacity objects (docs/spec/volumes.md §0.3, §1.1, §2.1, §2.3, §3.3.2, §3.4); in-tree volumes as CSI has them (§A, rows T1–T12 of §11.16)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import Volume
from scheduler.api.csi_translation import (
    BETA_REGION,
    BETA_ZONE,
    KINDS,
    MIGRATABLE,
    REGION,
    TRANSLATABLE,
    ZONE,
    TranslationError,
    driver_of,
    kind_of,
    translate_inline,
    translate_volume,
)
from scheduler.api.decode import Broken, ObjectDecoder, from_manifest
from scheduler.api.storage_v1 import (
    ClaimUse,
    CSISource,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeNodeAffinity,
    claim_uses,
    not_owned,
)
from tests.support.volumebuilders import PersistentVolumeBuilder, a_claim, a_csi_driver, a_csi_node, a_pv
from tests.unit.objects import pod

GCE_KEY, EBS_KEY = "topology.gke.io/zone", "topology.ebs.csi.aws.com/zone"
GCE: dict[str, Any] = {"gcePersistentDisk": {"pdName": "d"}}
EBS: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
VSPHERE: dict[str, Any] = {"vsphereVolume": {"volumePath": "[ds] a.vmdk", "storagePolicyName": "gold"}}
Terms = list[list[tuple[str, ...]]]


def volume(source: dict[str, Any], *, labels: dict[str, str] | None = None, terms: Terms | None = None) -> Any:
    """A builder: this source, these labels, these terms of (key, operator, values…)."""
    built: PersistentVolumeBuilder = a_pv("v").source(**source).set({"metadata": {"labels": labels or {}}})
    for term in terms or ():
        built = built.term(*term)
    return built


def terms_of(affinity: VolumeNodeAffinity | None) -> Terms | None:
    """As `volume` takes them; None for no affinity."""
    if affinity is None or affinity.required is None:
        return None
    return [
        [(r.key, r.operator, *r.values) for r in term.match_expressions]
        for term in affinity.required.node_selector_terms
    ]


@pytest.mark.parametrize(("source", "labels", "terms", "after"), [
    pytest.param(GCE, {ZONE: "z"}, None, [[(GCE_KEY, "In", "z")]], id="T1 and so does a GA label"),
    pytest.param(GCE, {}, [[(BETA_ZONE, "In", "z")]], [[(GCE_KEY, "In", "z")]], id="T2 a beta key is renamed"),
    pytest.param(GCE, {ZONE: "z1"}, [[(ZONE, "In", "z2")]], [[(GCE_KEY, "In", "z2")]],
        id="T4 the affinity beats the label"),
    pytest.param(GCE, {ZONE: "us-central1-b__us-central1-a"}, None,
        [[(GCE_KEY, "In", "us-central1-a", "us-central1-b")]], id="T5 several zones of a label, sorted"),
    pytest.param(GCE, {}, [[(ZONE, "In", "z1")], [("disk", "Exists"), (ZONE, "In", "z2")]],
        [[(GCE_KEY, "In", "z1")], [("disk", "Exists"), (GCE_KEY, "In", "z2")]], id="T6 every term is renamed in"),
    pytest.param(GCE, {}, [[(BETA_ZONE, "In", "z"), (BETA_REGION, "In", "r")]],
        [[(GCE_KEY, "In", "z"), (REGION, "In", "r")]], id="T7 a beta region becomes a GA region"),
    pytest.param(EBS, {ZONE: "__ __"}, None, None, id="T8 nor does one of empty pieces"),
    pytest.param(EBS, {ZONE: "b__ a __a__"}, None, [[(EBS_KEY, "In", "a", "b")]], id="pieces are trimmed, once each"),
    pytest.param({"azureDisk": {"diskURI": "u", "kind": "Managed"}}, {ZONE: "z"}, [[(ZONE, "In", "z")]],
        [[(ZONE, "In", "z")]], id="T12 an Azure disk keeps its affinity"),
    pytest.param(EBS, {ZONE: "z1"}, [[("disk", "Exists")], [("rack", "Exists")]],
        [[("disk", "Exists"), (EBS_KEY, "In", "z1")], [("rack", "Exists"), (EBS_KEY, "In", "z1")]],
        id="a label is added to every term"),
    pytest.param(EBS, {BETA_ZONE: "z"}, [[(ZONE, "Exists")]], [[(ZONE, "Exists")]],
        id="the affinity's words decide which label is read, with values or without"),
    pytest.param(EBS, {BETA_ZONE: "old", ZONE: "new"}, None, [[(EBS_KEY, "In", "new")]], id="GA before beta"),
    pytest.param(EBS, {BETA_ZONE: "z"}, [[(BETA_REGION, "In", "r")]], [[(REGION, "In", "r"), (EBS_KEY, "In", "z")]],
        id="the region is renamed where the zone is a label, too"),
    pytest.param({"portworxVolume": {"volumeID": "p"}}, {ZONE: "z"}, None, None, id="Portworx knows no zones"),
])  # fmt: skip
def test_topology(source: dict[str, Any], labels: dict[str, str], terms: Terms | None, after: Terms | None) -> None:
    given: PersistentVolume = volume(source, labels=labels, terms=terms).typed()
    translated = translate_volume(given)

    assert after == terms_of(translated.spec.node_affinity)
    assert terms == terms_of(given.spec.node_affinity)
    assert (given.metadata, given.spec.capacity) == (translated.metadata, translated.spec.capacity)
    assert kind_of(translated.spec) is None


GCE_ZONES = "projects/UNSPECIFIED/zones"


@pytest.mark.parametrize(("source", "labels", "handle"), [
    pytest.param({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, "vol-1", id="T9 a bare id"),
    pytest.param({"awsElasticBlockStore": {"volumeID": "aws://az/vol-1"}}, {}, "vol-1", id="T9 with a zone"),
    pytest.param({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, {}, "vol-1", id="T9 without one"),
    pytest.param({"awsElasticBlockStore": {"volumeID": "aws://az//vol%2D1/?q#f"}}, {}, "vol-1",
        id="T9 only the path counts"),
    pytest.param({"awsElasticBlockStore": {"volumeID": "any"}}, {}, "any", id="a bare id is not looked at"),
    pytest.param(GCE, {ZONE: "ga", BETA_ZONE: "beta"}, f"{GCE_ZONES}/beta/disks/d", id="T10 the beta label first"),
    pytest.param(GCE, {ZONE: "ga", BETA_ZONE: ""}, f"{GCE_ZONES}/ga/disks/d", id="T10 unless it is empty"),
    pytest.param(GCE, {ZONE: "us-a-1__us-a-2"}, "projects/UNSPECIFIED/regions/us-a/disks/d",
        id="T10 two zones of one region"),
    pytest.param(GCE, {}, f"{GCE_ZONES}/UNSPECIFIED/disks/d", id="T10 no zone"),
    pytest.param({"azureDisk": {"diskURI": "/d/1", "kind": "managed"}}, {}, "/d/1", id="T12 in any letter case"),
    pytest.param({"azureDisk": {"diskURI": "/d/1", "kind": None}}, {}, "/d/1", id="no kind is said"),
    pytest.param({"cinder": {}}, {}, "", id="an id that is not there is empty"),
])  # fmt: skip
def test_handles(source: dict[str, Any], labels: dict[str, str], handle: str) -> None:
    given: PersistentVolume = volume(source, labels=labels).typed()
    kind = kind_of(given.spec)
    assert kind is not None

    assert translate_volume(given).spec.csi == CSISource(kind.driver, handle)


@pytest.mark.parametrize(("source", "labels", "message"), [
    pytest.param({"awsElasticBlockStore": {"volumeID": "aws://az/x"}}, {},
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://az/x)",
        id="T9 no vol- in it"),
    pytest.param({"awsElasticBlockStore": {"volumeID": "aws://vol-1"}}, {},
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://vol-1)",
        id="T9 a zone and no id"),
    pytest.param(GCE, {ZONE: "us-b-1__us-a-1"},
        "failed to get region from zones: multiple or no regions gotten from zones, got: map[us-a:{} us-b:{}]",
        id="T10 two regions"),
    pytest.param(GCE, {ZONE: "us-a-1__z"},
        "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: z",
        id="T10 a zone of another form"),
    pytest.param({"azureDisk": {"diskURI": "u", "kind": "Dedicated"}}, {},
        "kind(Dedicated) is not supported in csi migration", id="T12 a dedicated disk"),
    pytest.param({"azureFile": {"shareName": "s", "secretName": "x"}}, {},
        'could not find in-tree plugin translation logic for "v"', id="a kind that is never migrated"),
    pytest.param({"hostPath": {"path": "/"}}, {}, 'could not find in-tree plugin translation logic for "v"',
        id="another kind"),
    pytest.param({"cinder": {"volumeID": 5}}, {}, "cinder.volumeID: expected a string, got 5",
        id="a field of another type"),
])  # fmt: skip
def test_what_cannot_be_translated(source: dict[str, Any], labels: dict[str, str], message: str) -> None:
    """Upstream's texts; what upstream could not have decoded is named by its field."""
    with pytest.raises(TranslationError) as caught:
        translate_volume(volume(source, labels=labels).typed())

    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        pytest.param("aws://a%zz/vol-1", 'invalid URL escape "%zz"', id="an escape"),
        pytest.param("aws://a/vol-\x7f", "net/url: invalid control character in URL", id="a control character"),
    ],
)
def test_an_id_that_is_no_url(written: str, problem: str) -> None:
    """Go's words for it."""
    with pytest.raises(TranslationError) as caught:
        translate_volume(volume({"awsElasticBlockStore": {"volumeID": written}}).typed())

    assert str(caught.value).endswith(f": {problem}")
    assert f"Invalid disk name ({written})" in str(caught.value)


@pytest.mark.parametrize(("source", "expected"), [
    pytest.param(GCE, ("pd.csi.storage.gke.io", f"{GCE_ZONES}/UNSPECIFIED/disks/d"), id="GCE"),
    pytest.param({"azureDisk": {"diskURI": "u"}}, ("disk.csi.azure.com", "u"), id="Azure disk"),
    pytest.param(VSPHERE, ("csi.vsphere.vmware.com", "[ds] a.vmdk"), id="Q-15 vSphere with a storage policy"),
])  # fmt: skip
def test_inline(source: dict[str, Any], expected: tuple[str, str]) -> None:
    inline = from_manifest(Volume, {"name": "data", **source})
    kind = kind_of(inline)

    assert kind is not None
    assert expected == (kind.driver, translate_inline(inline).volume_handle)


def test_inline_of_another_kind() -> None:
    inline = from_manifest(Volume, {"name": "data", "configMap": {"name": "c"}})

    assert kind_of(inline) is None
    with pytest.raises(TranslationError, match='could not find in-tree plugin translation logic for "data"'):
        translate_inline(inline)


def test_which_plugins_there_are() -> None:
    assert {"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"} == TRANSLATABLE - MIGRATABLE
    assert len(TRANSLATABLE) == len(KINDS) == 7
    assert driver_of("kubernetes.io/aws-ebs") == "ebs.csi.aws.com"
    assert driver_of("ebs.csi.aws.com") == ""


def test_drivers() -> None:
    """Only reported limits count; migrated plugins are split and not trimmed (F29)."""
    told = a_csi_node("n").driver("a", 3).driver("b").driver("c", 0).migrated("x", " y").typed()

    assert {"a": 3, "c": 0} == told.limits
    assert {"x", " y"} == told.migrated_plugins
    assert frozenset() == a_csi_node("n").typed().migrated_plugins
    assert [False, False, True] == [
        each.typed().tracks_capacity
        for each in (a_csi_driver("d"), a_csi_driver("d").tracks_capacity(False), a_csi_driver("d").tracks_capacity())
    ]


@pytest.mark.parametrize(
    ("kind", "typ", "raw", "is_broken"),
    [
        pytest.param("PersistentVolume", PersistentVolume, '"spec": {"nodeAffinity": null}', False, id="nulls"),
        pytest.param(
            "PersistentVolume",
            PersistentVolume,
            '"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", '
            '"operator": "Never"}]}]}}}',
            False,
            id="a term that cannot be parsed is a matter of the term",
        ),
        pytest.param(
            "PersistentVolumeClaim",
            PersistentVolumeClaim,
            '"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "Never"}]}}',
            False,
            id="M19 a claim's wrong selector is reported by Filter",
        ),
        pytest.param(
            "CSIStorageCapacity",
            CSIStorageCapacity,
            '"nodeTopology": {"matchExpressions": [{"key": "k", "operator": "Never"}]}',
            True,
            id="K11 a capacity object's wrong selector",
        ),
    ],
)
def test_what_can_be_read(kind: str, typ: type[Any], raw: str, is_broken: bool) -> None:
    read = ObjectDecoder(kind, typ).decode(f'{{"metadata": {{"name": "o"}}, {raw}}}'.encode())

    assert is_broken is isinstance(read, Broken)


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.mark.parametrize(("volumes", "used"), [
    pytest.param([{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}], [], id="G1 other sources"),
    pytest.param([{"name": "b", **claim("y")}, {"name": "s", "emptyDir": {}}, {"name": "a", **claim("x")}],
        ["y b", "x a"], id="in the order of the volumes"),
    pytest.param([{"name": "v", **claim("c")}, {"name": "w", **claim("c")}], ["c v", "c w"], id="one claim twice"),
    pytest.param([{"name": "v", **claim("")}], [" v"], id="a claim without a name"),
])  # fmt: skip
def test_claims_of_a_pod(volumes: list[dict[str, Any]], used: list[str]) -> None:
    """Claims and ephemeral volumes, nothing else; an ephemeral claim is named after pod and volume."""
    expected = []
    for text in used:
        name, volume, *ephemeral = text.split(" ")
        expected.append(ClaimUse(f"default/{name}", name, bool(ephemeral), volume))

    assert tuple(expected) == claim_uses(pod("p", volumes=volumes))


TEXT = "PVC {ns}/p-v was not created for pod default/p (pod is not owner)"


@pytest.mark.parametrize(("owned", "problem"), [
    pytest.param(a_claim("p-v").owned_by("p", "p"), "", id="G14 its controller is the pod"),
    pytest.param(a_claim("p-v").owned_by("p", "other"), TEXT.format(ns="default"), id="G15 of an earlier pod"),
    pytest.param(a_claim("p-v").owned_by("p", "p", controller=False), TEXT.format(ns="default"),
        id="G15 not as controller"),
    pytest.param(a_claim("p-v").owned_by("x", "x", controller=False).owned_by("p", "p"), "", id="two owners"),
    pytest.param(a_claim("p-v", ns="other").owned_by("p", "p"), TEXT.format(ns="other"), id="G16 in another namespace"),
])  # fmt: skip
def test_ownership(owned: Any, problem: str) -> None:
    """By uid; the text is upstream's and shows both namespaces."""
    assert problem == not_owned(pod("p"), owned.typed())
