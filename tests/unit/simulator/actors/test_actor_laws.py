"""The volume controllers and device actors over random histories: the laws of volumes and devices hold in the end."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.resource_v1 import FINALIZER
from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.apiserver import ApiServer, Refused
from simulator.builders.claims import a_claim as a_device_claim, a_claim_template, a_result
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_slice
from simulator.controllers import (
    PersistentVolumeController,
)
from simulator.controllers.protection import ProtectionController
from simulator.controllers.resource_claim import is_done, name_of
from tests.actors.dra_driver import PublishingDriver
from tests.actors.mortal import MortalClaimController
from tests.actors.provisioner import FaultyProvisioner
from tests.examples import examples
from tests.support.clock import VirtualClock
from tests.support.deviceinvariants import (
    claims_of_pods,
    devices_taken_twice,
    out_of_reach,
    reserved_for_the_gone,
    reserved_unallocated,
)
from tests.support.invariants import claimed_twice, segments_overdrawn, stranded
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv
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
        csi_nodes = (a_csi_node(name).driver(DRIVER, topology_keys=(HOST,)) for name in SPACE)
        self.server = server = server_with(*map(node, SPACE), *csi_nodes, *classes, clock=clock)
        self.controller = PersistentVolumeController(server, clock=clock, reclaims=True)
        self.provisioner = FaultyProvisioner(server, DRIVER, clock=clock, space=SPACE, publishes_every_s=0)
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
                for kind in ("nodes", "csinodes"):  # the Node owns its CSINode
                    self.server.delete(kind, f"n{number % 2}")
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
    harness = Harness()
    harness.server.create("pods", pod("broken").cpu("many").pvc("c0").bound_to("n0").obj())
    odd = a_pv("odd", storage_class="static").label("x").set({"spec": {"claimRef": {"name": 7}}})
    harness.server.create("persistentvolumes", odd.obj())
    harness.take(("claim", 0, "static", 1))
    harness.take(("volume", 0, "static", 1))
    harness.settle()
    assert harness.server.get("persistentvolumeclaims", "c0")["status"]["phase"] == "Bound"
    assert harness.server.get("persistentvolumes", "odd")["status"]["phase"] == "Pending"


CLAIMS = "resourceclaims"
NOTHING: dict[str, Any] = {"devices": {}}
SORTS = st.sampled_from(["template", "claim", "both"])
DEVICE_STEP = st.one_of(
    st.tuples(st.just("pod"), NAMES, SORTS),
    st.tuples(st.just("run"), NAMES, SORTS),
    st.tuples(st.just("run"), NAMES, SORTS),
    st.tuples(st.just("claim"), st.integers(0, 1), st.none()),
    st.tuples(st.just("schedule"), NAMES, NAMES),
    st.tuples(st.just("end"), NAMES, st.none()),
    st.tuples(st.just("delete"), st.sampled_from(["pods", CLAIMS, "resourceslices"]), NAMES),
    st.tuples(st.just("publish"), st.integers(0, 3), st.booleans()),
    st.tuples(st.sampled_from(["template", "untemplate"]), st.none(), st.none()),
    st.tuples(st.just("settle"), st.none(), st.none()),
    st.tuples(st.just("death"), st.booleans(), st.none()),
)


class DeviceHarness:
    """One node with four devices, and both actors; a scheduler stands in that gives each claim the first free device."""

    def __init__(self) -> None:
        clock = VirtualClock()
        claims = (a_device_claim(f"c{i}").request("r", "gpu") for i in range(2))
        objects = (node("n1"), a_claim_template("t").request("r", "gpu"), *claims)
        self.server = server = server_with(*objects, clock=clock)
        self.controller = MortalClaimController(server, clock=clock)
        self.driver = PublishingDriver(server, DRIVER, clock=clock)
        self.driver.publish(a_slice("n1", DRIVER, *(a_device(f"d{i}") for i in range(4))))

    def settle(self) -> None:
        settle(self.controller, self.driver)

    def take(self, step: tuple[object, ...]) -> None:
        """What a server refuses does not happen."""
        with contextlib.suppress(Refused):
            self._take(step)

    def _take(self, step: tuple[object, ...]) -> None:
        match step:
            case ("pod", int(name), str(sort)):
                self._add_pod(name, sort)
            case ("run", int(name), str(sort)):
                for each in (("pod", name, sort), ("settle", None, None), ("schedule", name, name)):
                    self.take(each)
            case ("claim", int(name), _):
                add(self.server, a_device_claim(f"c{name}").request("r", "gpu"))
            case ("schedule", int(name), int(first)):
                self._schedule(f"p{name}", first)
            case ("end", int(name), _):
                self.server.patch("pods", f"p{name}", {"status": {"phase": "Succeeded"}}, subresource="status")
            case ("delete", str(kind), int(number)):
                self._delete(kind, number)
            case ("publish", int(count), bool(halfway)):
                self._publish(count, writes=1 if halfway else 99)
            case ("template", _, _):
                add(self.server, a_claim_template("t").request("r", "gpu"))
            case ("untemplate", _, _):
                self.server.delete("resourceclaimtemplates", "t")
            case ("death", bool(comes_back), _):
                self._bury(comes_back=comes_back)
            case _:
                self.settle()

    def _bury(self, *, comes_back: bool) -> None:
        for actor in (self.controller, self.driver):
            (actor.revive if comes_back else actor.die)()

    def _add_pod(self, name: int, sort: str) -> None:
        built = pod(f"p{name}")
        built = built if sort == "claim" else built.claim("own", template="t")
        add(self.server, built if sort == "template" else built.claim("shared", f"c{name % 2}"))

    def _publish(self, count: int, *, writes: int) -> None:
        self.driver.stall_after(writes)
        self.driver.publish(*(a_slice("n1", DRIVER, a_device(f"d{i}"), a_device(f"e{i}-{count}")) for i in range(4)))

    def _delete(self, kind: str, number: int) -> None:
        found = self.server.objects(kind)
        if found:
            metadata = found[number % len(found)]["metadata"]
            self.server.delete(kind, metadata["name"], metadata.get("namespace", ""), grace_s=number % 2)

    def _schedule(self, name: str, first: int) -> None:
        """Its claims are allocated where they are not, and reserved for it; then it is bound, if all of them could be."""
        found = self.server.get("pods", name)
        names = [name_of(found, entry) for entry in found["spec"].get("resourceClaims") or ()]
        claims = [self.server.get(CLAIMS, each) for each in names if each]
        if len(claims) < len(names) or found["spec"].get("nodeName") or found["metadata"].get("deletionTimestamp"):
            return
        if is_done(found) or any(claim["metadata"].get("deletionTimestamp") for claim in claims):
            return
        user = {"resource": "pods", "name": name, "uid": found["metadata"]["uid"]}
        if all(self._reserve(claim, user, first) for claim in claims):
            self.server.bind(name, "n1")

    def _reserve(self, claim: dict[str, Any], user: dict[str, str], first: int) -> bool:
        """The finalizer before the allocation; False if no device is free."""
        status = claim.get("status") or {}
        if "allocation" not in status:
            device = self._free(first)
            if not device:
                return False
            claim["metadata"]["finalizers"] = [FINALIZER]
            claim = self.server.update(CLAIMS, claim)
            status = a_device_claim("c").allocated(a_result("r", device), on="n1").obj()["status"]
        claim["status"] = status | {"reservedFor": [*(status.get("reservedFor") or []), user]}
        self.server.update(CLAIMS, claim, subresource="status")
        return True

    def _free(self, first: int) -> str:
        taken = {
            result["device"]
            for claim in self.server.objects(CLAIMS)
            for result in ((claim.get("status") or {}).get("allocation") or NOTHING)["devices"].get("results", ())
        }
        free = [name for i in range(4) if (name := f"d{(first + i) % 4}") not in taken]
        return f"{DRIVER}/n1/{free[0]}" if free else ""


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(DEVICE_STEP, max_size=30))
def test_the_laws_of_devices_hold_in_the_end(history: list[tuple[object, ...]]) -> None:
    """No device is taken twice, nothing is kept for pods that have ended, pods have their claims, pools are whole."""
    harness = DeviceHarness()
    server = harness.server
    for step in history:
        harness.take(step)
        assert devices_taken_twice(server) == []
        assert reserved_unallocated(server) == []
        assert out_of_reach(server) == []
        assert claims_of_pods(server) == []
    harness.take(("template", None, None))
    harness.driver.go_on()
    harness.controller.revive()
    harness.driver.revive()
    harness.settle()
    assert reserved_for_the_gone(server) == []
    assert devices_taken_twice(server) == []
    assert claims_of_pods(server) == []
    pods = {each["metadata"]["uid"]: each for each in server.objects("pods")}
    for claim in server.objects(CLAIMS):
        _judge(claim, pods)
    for each in pods.values():
        if not is_done(each) and not each["metadata"].get("deletionTimestamp"):
            assert "" not in {name_of(each, entry) for entry in each["spec"].get("resourceClaims") or ()}
    generations = {(s["pool"]["generation"], s["pool"]["resourceSliceCount"]) for s in _slices(server)}
    assert len(generations) == 1
    assert generations.pop()[1] == len(_slices(server))


def _judge(claim: dict[str, Any], pods: dict[str, dict[str, Any]]) -> None:
    """Of a pod that is, and held by its finalizer only while it is allocated."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    for owner in metadata.get("ownerReferences") or ():
        assert owner["uid"] in pods, claim
        assert not is_done(pods[owner["uid"]]), claim
    if "allocation" not in status:
        assert not metadata.get("deletionTimestamp"), claim
        assert FINALIZER not in (metadata.get("finalizers") or []), claim


def _slices(server: ApiServer) -> list[dict[str, Any]]:
    return [each["spec"] for each in server.objects("resourceslices")]
