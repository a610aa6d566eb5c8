"""The law of preemption for devices: the dry run decides as if the pods had never been there, and their claims had none.

The reference builds a new cluster for every question, in which a claim has its devices only if one of its users is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, event, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.core.nodeset import each
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Rejection
from scheduler.plugins import BUILT_IN
from scheduler.plugins.defaultpreemption import Candidate, Evaluator, VictimRule
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.unit import objects
from tests.unit.cache.picture import picture
from tests.unit.objects import handle
from tests.unit.plugins.preempting import PreemptionHarness, pod
from tests.unit.plugins.reference_preemption import FILTERS, Literal, Victims

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
NODES: Final = ("n1", "n2")
ODD: Final = "device.attributes['drv'].at == 1"
WISHES: Final = ((), (), (ODD,), ("device.attributes['drv'].at == 0",))


@dataclass
class Devices:
    """Claims, slices and classes."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: list[ResourceClaim] = field(default_factory=list)

    def put_into(self, cluster: Cluster, *, gone: frozenset[str]) -> None:
        """Claims whose users are all gone have nothing."""
        for one in self.slices:
            cluster.devices.set_slice(one)
        for known in self.classes:
            cluster.devices.classes.put(known.key, known)
        for claim in self.claims:
            users = {user.uid for user in claim.status.reserved_for}
            status = claim.status
            if users and users <= gone:
                status = msgspec.structs.replace(status, allocation=None, reserved_for=())
            cluster.devices.claims.set(msgspec.structs.replace(claim, status=status))


@dataclass(frozen=True)
class LiteralWithDevices(Literal):
    """Devices are free when no user is left."""

    devices: Devices = field(default_factory=Devices)

    def _cluster(self, pods: Iterable[PodInfo]) -> Cluster:
        left = list(pods)
        fresh = super()._cluster(left)
        gone = frozenset(pod.uid for pod in self.pods) - {pod.uid for pod in left}
        self.devices.put_into(fresh, gone=gone)
        return fresh

    def _plugins(self, fresh: Cluster) -> Iterator[tuple[str, Any]]:
        made = dataclasses.replace(handle(fresh), ours=self.ours, feature_gates=DEVICE_GATES_ON)
        return ((name, BUILT_IN[name](None, made)) for name in FILTERS)


@dataclass
class World:
    """Nodes with a few devices, some in a pool that all of them see, and pods that have some of them."""

    pods: list[PodInfo] = field(default_factory=list)
    devices: Devices = field(default_factory=Devices)
    incoming: Any = None

    def harness(self) -> PreemptionHarness:
        made = PreemptionHarness(*(objects.node(name) for name in NODES), *self.pods, gates=DEVICE_GATES_ON)
        self.devices.put_into(made.cluster, gone=frozenset())
        return made

    def literal(self) -> Literal:
        nodes = [objects.node(name) for name in NODES]
        return LiteralWithDevices(nodes, self.pods, (), {}, KubestowArgs(), self.devices)


def using(name: str, priority: int, claims: Sequence[str], **more: Any) -> PodInfo:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return pod(name, priority, resourceClaims=entries, **more)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Most devices are taken."""
    made = World()
    places: dict[str, list[str]] = {}
    slices = []
    for name in (*NODES, "shared"):
        devices = [f"d{at}" for at in range(draw(st.integers(0, 3)))]
        listed = [a_device(device).attr("drv/at", draw(st.integers(0, 1))) for device in devices]
        one = a_slice(name if name != "shared" else "n1", "drv", *listed)
        slices.append(one if name != "shared" else one.everywhere().pool("shared").named("shared"))
        for device in devices:
            places.setdefault(name, []).append(f"drv/{name}/{device}")
    held = [at for name in places for at in places[name] if draw(st.integers(0, 4))]
    names = [f"b{at}" for at in range(draw(st.integers(1, 6)))]
    where = {name: draw(st.sampled_from(NODES)) for name in names}
    claims_of: dict[str, list[str]] = {name: [] for name in names}
    while held:
        taken = [held.pop() for _ in range(min(draw(st.sampled_from((1, 1, 2))), len(held)))]
        claim = (
            a_claim(f"c{len(held)}").uid(f"c{len(held)}").request("r", "gpu", count=len(taken)).resource_version("1")
        )
        claim = claim.allocated(*(a_result("r", at) for at in taken))
        node = taken[0].split("/")[1]
        near = [name for name in names if where[name] == node or node not in NODES] or names
        users = draw(st.lists(st.sampled_from(near), min_size=1, max_size=2, unique=True))
        users += draw(st.sampled_from(([], [], [], [], ["stranger"], names[:1])))
        for user in dict.fromkeys(users):
            claim = claim.reserved_for(user, f"default/{user}")
            if user in claims_of:
                claims_of[user].append(f"c{len(held)}")
        made.devices.claims.append(claim.typed())
    for name in names:
        priority = draw(st.sampled_from((0, 0, 1, 1, 5, 10)))
        made.pods.append(using(name, priority, claims_of[name], on=where[name], started=draw(st.sampled_from("12"))))
    wanted = (
        a_claim("w")
        .uid("w")
        .request("r", "gpu", count=draw(st.sampled_from((1, 1, 2, 3))), cel=draw(st.sampled_from(WISHES)))
    )
    made.devices.claims.append(wanted.resource_version("1").typed())
    made.incoming = using("incoming", draw(st.sampled_from((5, 10, 10, 11))), ["w"])
    made.devices.slices = tuple(one.typed() for one in slices)
    made.devices.classes = (a_device_class("gpu").typed(),)
    return made


@settings(max_examples=examples(200, share=SLOW_SHARE), suppress_health_check=SLOW, deadline=None)
@given(world=worlds())
def test_each_node(world: World) -> None:
    """Equal victims in equal order, or equal refusals; and preemption looks where, and only where, it can help."""
    harness, literal, incoming = world.harness(), world.literal(), world.incoming
    before, revision = picture(harness.cluster), harness.cluster.devices.use.revision
    state = CycleState()
    assert harness.runner.pre_filter(state, incoming).rejection is None
    _, groups = finish(harness.runner.filter(state, incoming, harness.cluster.nodes.present, exact=True))
    relented = finish(harness.runner.relented(state, incoming, groups))
    codes = {slot: no.code for no, nodes in relented.items() for slot in each(nodes)}
    what_if = harness.runner.what_if(state, incoming)
    for name in NODES:
        fits = literal.fits(incoming, name, literal.pods) is None
        slot = harness.slot(name)
        assert fits == (slot not in codes)
        if fits:
            continue
        expected = literal.on(incoming, name)
        answer = finish(Evaluator(harness.cluster, VictimRule()).on(what_if, incoming, slot, None))
        if isinstance(expected, Victims):
            assert isinstance(answer, Candidate)
            assert harness.named(answer) == [victim.pod.metadata.name for victim in expected.pods]
        else:
            assert isinstance(answer, Rejection)
            assert (answer.code, answer.reasons) == expected
        helps = isinstance(expected, Victims)
        assert codes[slot] is (Code.UNSCHEDULABLE if helps else Code.UNRESOLVABLE)
        event(f"{len(expected.pods)} victims" if isinstance(expected, Victims) else expected[1][0])
    assert (picture(harness.cluster), harness.cluster.devices.use.revision) == (before, revision)
