"""Builders of volumes: what is said arrives in the typed object, and an API server takes the manifest."""

import pytest

from scheduler.core.volumes import BOUND_BY_CONTROLLER, is_for
from scheduler.testing.apiserver import ApiServer
from scheduler.testing.apiserver.patches import strategic
from scheduler.testing.builders import Builder, pod
from tests.support.volumebuilders import (
    a_capacity,
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_pv,
    an_attachment,
)


def test_a_volume_with_everything_decodes() -> None:
    """All of it arrives."""
    typed = (
        a_pv("a", "5Gi", "fast")
        .on("n1", "n2")
        .term(("zone", "In", "z"), ("disk", "Exists"))
        .modes("ReadWriteMany")
        .volume_mode("Block")
        .attributes_class("gold")
        .claimed_by("c", "ns", uid="u", by_controller=True)
        .csi("d", "h")
        .phase("Bound")
        .typed()
    )
    spec = typed.spec
    assert (typed.capacity.value, typed.storage_class, spec.access_modes) == (5 << 30, "fast", ("ReadWriteMany",))
    assert (spec.volume_mode, spec.volume_attributes_class_name, typed.status.phase) == ("Block", "gold", "Bound")
    assert is_for(typed, a_claim("c", ns="ns").uid("u").typed())
    assert BOUND_BY_CONTROLLER in typed.metadata.annotations
    assert spec.csi is not None
    assert (spec.csi.driver, spec.csi.volume_handle) == ("d", "h")
    assert spec.node_affinity is not None
    assert spec.node_affinity.required is not None
    assert len(spec.node_affinity.required.node_selector_terms) == 2


def test_a_claim_with_everything_decodes() -> None:
    """All of it arrives."""
    typed = a_claim("c", "2Gi", "fast").modes("ReadWriteOncePod").selected("n1").bound_to("a").typed()
    assert typed.request is not None
    assert (typed.request.value, typed.storage_class, typed.selected_node) == (2 << 30, "fast", "n1")
    assert typed.is_fully_bound
    assert not a_claim("c").wants("a").typed().is_fully_bound
    owned = a_claim("p-v").owned_by("p", "u").typed()
    assert [(owner.uid, owner.controller) for owner in owned.metadata.owner_references] == [("u", True)]
    chosen = a_claim("c").matching({"a": "b"}).matching_expression("c", "In", "d").typed().spec.selector
    assert chosen is not None
    assert (chosen.match_labels, chosen.match_expressions[0].values) == ({"a": "b"}, ("d",))
    assert a_claim("c").request(None).typed().request is None


def test_the_neighbours_decode() -> None:
    """Class, CSINode, CSIDriver, capacity, attachment."""
    assert a_class("w", "p").allowed("k", "n1").typed().allowed_topologies[0].match_label_expressions[0].key == "k"
    assert a_class("w").binding_mode(None).typed().volume_binding_mode is None
    csi_node = a_csi_node("n1").driver("d", 3).driver("e").migrated("kubernetes.io/cinder").typed()
    assert (csi_node.limits, csi_node.migrated_plugins) == ({"d": 3}, frozenset({"kubernetes.io/cinder"}))
    assert a_csi_driver("d").tracks_capacity().typed().tracks_capacity
    capacity = a_capacity("c", "w", "5Gi").where("k", "v").maximum("1Gi").typed()
    assert capacity.limit is not None
    assert capacity.limit.value == 1 << 30
    assert a_capacity("c", "w").typed().limit is None
    assert an_attachment("a", "n1", "d").typed().spec.source.persistent_volume_name == "a"


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(a_pv("a").on("n1"), id="a volume on a node"),
        pytest.param(a_pv("a").csi("d"), id="a CSI volume"),
        pytest.param(a_claim("c", storage_class="w"), id="a claim"),
        pytest.param(a_class("w").immediate(), id="a class"),
        pytest.param(a_csi_node("n1").driver("d", 0), id="a CSINode"),
        pytest.param(a_csi_driver("d").tracks_capacity(), id="a CSIDriver"),
        pytest.param(a_capacity("x", "w", "1Gi").everywhere(), id="a capacity"),
        pytest.param(an_attachment("a", "n1", "d"), id="an attachment"),
        pytest.param(pod("p").ephemeral("v", "1Gi", "w").pvc("c").volume("s", emptyDir={}), id="a pod with volumes"),
    ],
)
def test_a_server_takes_them(built: Builder[object]) -> None:
    """With their status, where they have one; it only adds to what they say."""
    manifest = built.obj()
    stored = ApiServer().apply(manifest)
    assert strategic(stored, {"metadata": {}} | {key: manifest[key] for key in manifest if key != "metadata"}) == stored
