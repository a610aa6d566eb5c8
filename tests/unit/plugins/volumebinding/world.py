"""A cluster with volumes, VolumeBinding over it, and a scripted server: for the tests of this folder.

What is written shows on the server at once, and in the cache when the test says so (`relay`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

import pytest
from msgspec.structs import replace

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, Delta
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs, VolumeBindingArgs
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.errors import ApiError
from scheduler.core.nodeset import NodeSet
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.framework.handle import Handle, Uncounted
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Rejection, Skip
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumebinding.api_updates import WriteDeadline
from scheduler.plugins.volumebinding.plugin import STATE
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, PodVolumes, Reasons
from simulator.builders.core import Builder, PodBuilder, node, pod
from tests.support.clock import VirtualClock
from tests.support.ports import ListRecorder, ScriptedWriter
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_pv

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
NOT_EXISTING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
PARITY = KubestowArgs(parity=True)


@dataclass
class VolumeCounts(Uncounted):
    errors: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    waits: list[tuple[str, float]] = field(default_factory=list)
    long: list[int] = field(default_factory=list)

    def stage_error(self, operation: str) -> None:
        self.errors.append(operation)

    def write_conflict(self, resource: str) -> None:
        self.conflicts.append(resource)

    def bind_wait(self, kind: str, seconds: float) -> None:
        self.waits.append((kind, seconds))

    def long_wait(self, after_s: int) -> None:
        self.long.append(after_s)


class VolumeServer(ScriptedWriter):
    """Writes of volumes and claims may be held until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.write_hold: asyncio.Event | None = None

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        if self.write_hold is not None:
            await self.write_hold.wait()
        return await super().prebind_volume(volume, claim, marks=marks)

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim | Broken:
        if self.write_hold is not None:
            await self.write_hold.wait()
        return await super().select_node(claim, node_name)


class Decided(NamedTuple):
    """What one node would do: names of claims and volumes."""

    reasons: Reasons
    static: tuple[tuple[str, str], ...] = ()
    dynamic: tuple[str, ...] = ()


class Ended(NamedTuple):
    """How something that waits came to its end."""

    error: BaseException | None
    seconds: float
    is_cancelled: bool = False


class VolumeWorld:
    """Nodes n1 and n2, labelled `k` with their names, classes W, I, D and T, and what else is shown (§11)."""

    def __init__(
        self, *things: Any, ours: KubestowArgs | None = None, args: VolumeBindingArgs | None = None, bare: bool = False
    ) -> None:
        """`bare`: nothing but `things`."""
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock)
        self.moves: list[tuple[ClusterEvent, Any, Any]] = []
        self.writer, self.recorder, self.metrics = VolumeServer(), ListRecorder(), VolumeCounts()
        self.storage = StorageHandlers(self.cluster, lambda event, old, new: self.moves.append((event, old, new)))
        self._shown: dict[tuple[str, str], Any] = {}
        self.handle = Handle(
            self.cluster,
            self.writer,
            self.recorder,
            self.clock,
            "kubestow",
            ours=ours or KubestowArgs(),
            rng=random.Random(1),
            volume_metrics=self.metrics,
        )
        self.show(*(() if bare else FIXTURES), *things)
        self.plugin = VolumeBinding(args, self.handle)

    # -- what the watch shows ------------------------------------------------------------------------------------------

    def show(self, *things: Any) -> None:
        """They came or changed, with a newer version unless they say which, and a uid that is their name."""
        for thing in things:
            shown = thing.typed() if isinstance(thing, Builder) else thing
            if isinstance(shown, PodInfo):
                self.cluster.add_pod(shown)
            elif isinstance(shown, Pod):
                self.cluster.add_pod(pod_info(replace(shown, metadata=self._stamped(shown.metadata))))
            elif isinstance(shown, Node):
                self.cluster.set_node(shown)
                self.cluster.volumes.notify("Node", shown.metadata.name)
            else:
                self._apply(type(shown).__name__, replace(shown, metadata=self._stamped(shown.metadata)))

    def withdraw(self, kind: str, key: str) -> None:
        """It is gone, from the server as well."""
        old = self._shown.pop((kind, key))
        self.writer.volumes.pop(key, None) if kind == "PersistentVolume" else self.writer.claims.pop(key, None)
        self.storage.handlers()[kind](Delta(old, None))

    def relay(self) -> None:
        """The watch shows what was written."""
        for obj in (*self.writer.volumes.values(), *self.writer.claims.values()):
            kind = type(obj).__name__
            known = self._shown.get((kind, obj.key))
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._apply(kind, obj)

    def _stamped(self, metadata: Any) -> Any:
        self.writer.newest += 1
        uid, version = metadata.uid or metadata.name, metadata.resource_version or str(self.writer.newest)
        return replace(metadata, uid=uid, resource_version=version)

    def _apply(self, kind: str, obj: Any) -> None:
        if kind == "PersistentVolume":
            self.writer.volumes[obj.key] = obj
        elif kind == "PersistentVolumeClaim":
            self.writer.claims[obj.key] = obj
        old, self._shown[kind, obj.key] = self._shown.get((kind, obj.key)), obj
        self.storage.handlers()[kind](Delta(old, obj))

    # -- results --------------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> int:
        found = self.cluster.nodes.present_slot(name)
        assert found is not None
        return found

    def claim(self, name: str) -> Any:
        """As decisions see it."""
        return self.cluster.volumes.claims.need(f"default/{name}")

    def volume(self, name: str) -> Any:
        """As decisions see it."""
        return self.cluster.volumes.volumes.need(name)

    def pre_filtered(self, info: PodInfo) -> tuple[CycleState, Rejection | Skip | None]:
        state = CycleState()
        return state, self.plugin.pre_filter(state, info, self.cluster.nodes.present)

    def judged(self, info: PodInfo, *nodes: str, state: CycleState | None = None) -> dict[str, Reasons]:
        """Filter's answer per node, all of them unless named. Checks that nothing but Unresolvable comes of it."""
        if state is None:
            state, no = self.pre_filtered(info)
            assert no is None, no
        asked: NodeSet = self.cluster.nodes.present
        if nodes:
            asked = sum(1 << self.slot(name) for name in nodes)
        groups = self.plugin.filter(state, info, asked)
        out: dict[str, Reasons] = {}
        for no, slots in groups.items():
            assert no.code.value == "UnschedulableAndUnresolvable", no
            out |= {self.cluster.nodes.name(at): no.reasons for at in range(64) if slots >> at & 1}
        return out

    def decide(self, info: PodInfo, *, on: str = "n1") -> Decided:
        """What the node would do. Checks that Filter, Verify and the choice of volumes agree."""
        state, no = self.pre_filtered(info)
        assert no is None, no
        slot = self.slot(on)
        groups = self.plugin.filter(state, info, 1 << slot)
        found = self.plugin._binder.find_pod_volumes(state.get(STATE).claims, slot)
        verified = next(iter(groups), None) or self.plugin.verify(state, info, slot)
        if not isinstance(found, PodVolumes):
            assert verified is not None
            assert found == verified.reasons
            return Decided(found)
        assert verified is None
        static = tuple((binding.claim.metadata.name, binding.volume.key) for binding in found.static)
        return Decided((), static, tuple(provision.claim.metadata.name for provision in found.dynamic))

    async def ends(self, doing: Coroutine[Any, Any, Any], *, within_s: float = 700.0) -> Ended:
        """What it came to and when, on a clock that goes on by tenths of a second."""
        began = self.clock.now()
        task = asyncio.ensure_future(doing)
        await self.clock.settle()
        while not task.done() and self.clock.now() - began < within_s:
            await self.clock.advance(0.1)
        assert task.done(), "it never ends"
        seconds = round(self.clock.now() - began, 3)
        return Ended(None if task.cancelled() else task.exception(), seconds, is_cancelled=task.cancelled())

    # -- doing ---------------------------------------------------------------------------------------------------------

    def reserved(self, info: PodInfo, *, on: str = "n1") -> tuple[CycleState, PodInfo]:
        """The pod through PreFilter, Filter and Reserve, assumed on the node."""
        state, no = self.pre_filtered(info)
        assert not isinstance(no, Rejection), no
        if no is None:
            assert on not in self.judged(info, on, state=state)
        assumed = placed(info, on)
        self.cluster.assume(assumed)
        assert self.plugin.reserve(state, assumed, on) is None
        return state, assumed

    def plan(self, info: PodInfo, *, on: str = "n1") -> BindingPlan:
        """What Reserve has assumed for it."""
        state, _ = self.reserved(info, on=on)
        plan = state.get(STATE).plan
        assert plan is not None
        return plan

    @property
    def binder(self) -> Any:
        """The plugin's own."""
        return cast("Any", self.plugin._binder)


def using(name: str = "p", *claims: str, ephemeral: Iterable[str] = ()) -> PodInfo:
    """A pod with these claims; its uid is its name."""
    return pod_info(_using(name, *claims, ephemeral=ephemeral).typed())


def _using(name: str, *claims: str, ephemeral: Iterable[str]) -> PodBuilder:
    made = pod(name).uid(name)
    for claim in claims:
        made = made.pvc(claim)
    for volume in ephemeral:
        made = made.ephemeral(volume)
    return made


def tracking(does: bool | None) -> tuple[Any, ...]:
    """Driver P as the three runs of a row want it: none, one that says no, one that says yes."""
    return () if does is None else (a_csi_driver("P").tracks_capacity(does),)


FIXTURES = (
    node("n1").label("k", "n1"),
    node("n2").label("k", "n2"),
    a_class("W"),
    a_class("I").immediate(),
    a_class("D", "P").allowed("k", "n1", "ref"),
    a_class("T", "P").allowed("k", "ref"),
)
A = a_pv("a", "5G", "W").where("k", "n1")
B = a_pv("b", "10G", "W").where("k", "n1")
PB = a_pv("pb", "1G", "W").where("k", "n1").claimed_by("bnd", uid="bnd").phase("Bound")
PI = a_pv("pi", "1G", "I").where("k", "n1").claimed_by("ib", uid="ib").phase("Bound")
U1 = a_claim("u1", "1G", "W")
U2 = a_claim("u2", "5G", "W")
BND = a_claim("bnd", "1G", "W").bound_to("pb")
IMM = a_claim("i", "1G", "I")
IB = a_claim("ib", "1G", "I").bound_to("pi")
D1 = a_claim("d1", "1Gi", "D")
D2 = a_claim("d2", "1Gi", "D")

# -- plans, and servers that do something else with what is written first ----------------------------------------------

CHANGED = "Operation cannot be fulfilled on {}: the object has been modified"
Step: TypeAlias = Callable[[VolumeWorld], None]
"""What the server does with one write; nothing: it carries it out."""

VOLUME, CLAIM = "volume", "claim"
KINDS = pytest.mark.parametrize("kind", [VOLUME, CLAIM], ids=["a volume", "a claim"])


def written(world: VolumeWorld, *claims: str, steps: dict[str, list[Step]] | None = None) -> BindingPlan:
    """A plan for n1, and a server that does these things first with writes of each kind."""
    plan = world.plan(using("p", *claims))
    left = steps or {}

    def next_of(kind: str) -> None:
        if left.get(kind):
            left[kind].pop(0)(world)

    world.writer.on_prebind = lambda volume, claim: next_of(VOLUME)
    world.writer.on_select = lambda claim, node_name: next_of(CLAIM)
    return plan


def write(world: VolumeWorld, plan: BindingPlan, *, within_s: float = 600.0) -> Any:
    world.binder._assumptions.begin(plan)
    return world.binder._writer.write(plan, WriteDeadline(world.clock.now() + within_s, lambda: None))


def case(kind: str, *steps: Step, ours: KubestowArgs | None = None) -> tuple[VolumeWorld, BindingPlan]:
    """One object of this kind to be written."""
    things, claim = ((U1, A), "u1") if kind == VOLUME else ((D1,), "d1")
    world = VolumeWorld(*things, ours=ours)
    return world, written(world, claim, steps={kind: list(steps)})


def writes(world: VolumeWorld) -> int:
    return len(world.writer.prebinds) + len(world.writer.selections)


def fails(error: ApiError) -> Step:
    def step(world: VolumeWorld) -> None:
        raise error

    return step
