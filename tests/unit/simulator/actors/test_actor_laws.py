"""The volume controllers over random histories: whatever comes in whatever order, the laws of volumes hold in the end."""

import contextlib
from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.apiserver import ApiServer, Refused
from simulator.builders.core import node, pod
from simulator.controllers import ExternalProvisioner, PersistentVolumeController, ProtectionController
from tests.examples import examples
from tests.support.clock import VirtualClock
from tests.support.invariants import claimed_twice, segments_overdrawn, stranded
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.simulator.stage import add, server_with, settle

GI = 1 << 30
DRIVER = "d.example"
HOST = "kubernetes.io/hostname"
SPACE = {"n0": 5 * GI, "n1": 3 * GI}
NAMES = st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("claim"), NAMES, st.sampled_from(["static", "late", "dynamic"]), st.integers(1, 3)),
    st.tuples(st.just("volume"), NAMES, st.sampled_from(["static", "late"]), st.integers(1, 3)),
    st.tuples(st.just("meant"), NAMES, NAMES, st.booleans()),
    st.tuples(st.just("select"), NAMES, st.sampled_from(["n0", "n1", "gone"]), st.none()),
    st.tuples(
        st.just("delete"), st.sampled_from(["persistentvolumeclaims", "persistentvolumes", "nodes"]), NAMES, st.none()
    ),
    st.tuples(st.just("settle"), st.none(), st.none(), st.none()),
    st.tuples(st.just("death"), st.booleans(), st.none(), st.none()),
)


class Harness:
    """Two nodes, a class of each sort, and all controllers."""

    def __init__(self) -> None:
        clock = VirtualClock()
        classes = (a_class("static").immediate(), a_class("late"), a_class("dynamic", DRIVER))
        self.server = server = server_with(*map(node, SPACE), *classes, clock=clock)
        self.controller = PersistentVolumeController(server, clock=clock, reclaims=True)
        self.provisioner = ExternalProvisioner(server, DRIVER, clock=clock, space=SPACE, publishes_every_s=0)
        self.actors = (self.controller, self.provisioner, ProtectionController(server, clock=clock))

    def settle(self) -> None:
        settle(*self.actors)

    def take(self, step: tuple[object, ...]) -> None:
        """What a server refuses does not happen."""
        with contextlib.suppress(Refused):
            self._take(step)

    def _take(self, step: tuple[object, ...]) -> None:
        match step:
            case ("claim", int(name), str(class_name), size):
                add(self.server, a_claim(f"c{name}", f"{size}Gi", class_name))
            case ("volume", int(name), str(class_name), size):
                add(self.server, a_pv(f"v{name}", f"{size}Gi", class_name).reclaim("Delete"))
            case ("meant", int(volume), int(claim), bool(by_user)):
                self._mean(f"v{volume}", f"c{claim}", by_user=by_user)
            case ("select", int(name), str(where), _):
                patch = {"metadata": {"annotations": {SELECTED_NODE: where}}}
                self.server.patch("persistentvolumeclaims", f"c{name}", patch)
            case ("delete", "nodes", int(number), _):
                self.server.delete("nodes", f"n{number % 2}")
            case ("delete", str(kind), int(number), _):
                self.server.delete(kind, f"{'c' if kind.endswith('claims') else 'v'}{number}")
            case ("death", bool(comes_back), _, _):
                (self.provisioner.revive if comes_back else self.provisioner.die)()
            case _:
                self.settle()

    def _mean(self, volume: str, claim: str, *, by_user: bool) -> None:
        """As a user binds, or as a scheduler does; both only what is free."""
        if "claimRef" in self.server.get("persistentvolumes", volume)["spec"]:
            return
        uid = "" if by_user else self.server.get("persistentvolumeclaims", claim)["metadata"]["uid"]
        meant = a_pv(volume).claimed_by(claim, uid=uid, by_controller=not by_user).obj()
        patch = {"metadata": {"annotations": meant["metadata"].get("annotations", {})}}
        self.server.patch("persistentvolumes", volume, patch | {"spec": {"claimRef": meant["spec"]["claimRef"]}})


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(STEP, max_size=25))
def test_the_laws_hold_in_the_end(history: list[tuple[object, ...]]) -> None:
    """A volume has one claim, storage is not overdrawn, no claim waits for a deleted node, and phases are right."""
    harness = Harness()
    for step in history:
        harness.take(step)
        assert harness.provisioner.overdrawn() == []
    harness.provisioner.revive()
    harness.settle()
    server = harness.server
    assert claimed_twice(server) == []
    assert segments_overdrawn(server, DRIVER, HOST, SPACE) == []
    assert stranded(_only_dynamic(server)) == []
    claims = {claim["metadata"]["uid"]: claim for claim in server.objects("persistentvolumeclaims")}
    for volume in server.objects("persistentvolumes"):
        assert volume["status"]["phase"] in _phases(volume, claims), volume
    for claim in claims.values():
        assert claim["status"]["phase"] in ({"Bound", "Lost"} if claim["spec"].get("volumeName") else {"Pending"})


def _phases(volume: dict[str, Any], claims: dict[str, dict[str, Any]]) -> set[str]:
    """Which phases may be said of a volume."""
    reference = volume["spec"].get("claimRef") or {}
    if "uid" not in reference:
        return {"Available"}
    claim = claims.get(reference["uid"])
    if claim is None:
        return {"Released"}
    return {"Bound"} if claim["spec"].get("volumeName") == volume["metadata"]["name"] else {"Available", "Pending"}


def _only_dynamic(server: ApiServer) -> ApiServer:
    """Clear the selected node of claims without a provisioner."""
    for claim in server.objects("persistentvolumeclaims"):
        if claim["spec"]["storageClassName"] != "dynamic":
            cleared = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            server.patch("persistentvolumeclaims", claim["metadata"]["name"], cleared)
    return server


def test_unreadable_objects_do_not_stop_the_controllers() -> None:
    """The controllers ignore unreadable objects."""
    harness = Harness()
    harness.server.create("pods", pod("broken").cpu("many").pvc("c0").bound_to("n0").obj())
    odd = a_pv("odd", storage_class="static").label("x").set({"spec": {"claimRef": {"name": 7}}})
    harness.server.create("persistentvolumes", odd.obj())
    harness.take(("claim", 0, "static", 1))
    harness.take(("volume", 0, "static", 1))
    harness.settle()
    assert harness.server.get("persistentvolumeclaims", "c0")["status"]["phase"] == "Bound"
    assert harness.server.get("persistentvolumes", "odd")["status"]["phase"] == "Pending"
