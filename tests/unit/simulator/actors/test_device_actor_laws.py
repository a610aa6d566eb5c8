"""The device actors over random histories: whatever comes in whatever order, the laws of devices hold in the end."""

import contextlib
from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.resource_v1 import FINALIZER
from simulator.apiserver import ApiServer, Refused
from simulator.builders.claims import a_claim, a_claim_template, a_result
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_slice
from simulator.controllers import DRADriver, ResourceClaimController
from simulator.controllers.resource_claim import is_done, name_of
from tests.examples import examples
from tests.support.clock import VirtualClock
from tests.support.deviceinvariants import (
    claims_of_pods,
    devices_taken_twice,
    out_of_reach,
    reserved_for_the_gone,
    reserved_unallocated,
)
from tests.unit.simulator.stage import add, server_with, settle

DRIVER = "d.example"
CLAIMS = "resourceclaims"
NOTHING: dict[str, Any] = {"devices": {}}
NAMES = st.integers(0, 3)
SORTS = st.sampled_from(["template", "claim", "both"])
STEP = st.one_of(
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


class Harness:
    """One node with four devices, and both actors; a scheduler stands in that gives each claim the first free device."""

    def __init__(self) -> None:
        clock = VirtualClock()
        claims = (a_claim(f"c{i}").request("r", "gpu") for i in range(2))
        objects = (node("n1"), a_claim_template("t").request("r", "gpu"), *claims)
        self.server = server = server_with(*objects, clock=clock)
        self.controller = ResourceClaimController(server, clock=clock)
        self.driver = DRADriver(server, DRIVER, clock=clock)
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
                add(self.server, a_claim(f"c{name}").request("r", "gpu"))
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
            status = a_claim("c").allocated(a_result("r", device), on="n1").obj()["status"]
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
@given(st.lists(STEP, max_size=30))
def test_the_laws_hold_in_the_end(history: list[tuple[object, ...]]) -> None:
    """No device is taken twice, nothing is kept for pods that have ended, pods have their claims, pools are whole."""
    harness = Harness()
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
