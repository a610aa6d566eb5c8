"""A world with devices and an API server. The server shows a write at once; the cache shows it when a test relays it.

The tests of the writes of DynamicResources use this module. The tests of its decisions use `world`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from scheduler.api.decode import Broken, Delta
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.api.resource_v1 import ConsumerReference, ResourceClaim
from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.cooperative import answered, finish
from scheduler.core.errors import Ambiguous, ApiError, Conflict, TooManyRequests
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.eventhandlers.devices import DeviceHandlers
from scheduler.framework.handle import Uncounted
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Groups, Rejection, Skip
from scheduler.plugins.dra.state import STATE
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, pod
from simulator.builders.devices import a_device, a_slice
from tests.support.ports import ScriptedWriter
from tests.unit.plugins.dra.world import FIRST_FIT, World

PARITY = KubestowArgs(parity=True, device_double_check="none", bind_poll="upstream", device_scoring="firstFit")
SLICES = tuple(a_slice(name, "a", a_device("d0"), a_device("d1")) for name in ("n1", "n2"))
ASKING = a_claim("c").request("r", "A")
HELD = ASKING.allocated(a_result("r", "a/n1/d0"))
OTHER = a_claim("o").request("r", "A")
LOST = Ambiguous("connection lost")
BUSY = TooManyRequests("busy", retry_after_s=3.0)
CHANGED = Conflict("the object has been modified")
DONE = ["protect c", "allocate c"]
UU, U, ERR = Code.UNRESOLVABLE, Code.UNSCHEDULABLE, Code.ERROR
NO_DEVICES = (UU, "cannot allocate all claims")


@dataclass
class DeviceCounts(Uncounted):
    """Metrics that keep every observation."""

    conflicts: int = 0
    collisions: int = 0
    waits: list[tuple[str, str, float]] = field(default_factory=list)
    allocations: list[tuple[str, str]] = field(default_factory=list)
    created: list[str] = field(default_factory=list)

    def claim_conflict(self) -> None:
        self.conflicts += 1

    def collision(self) -> None:
        self.collisions += 1

    def claim_created(self, status: str) -> None:
        self.created.append(status)

    def conditions_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        self.waits.append((driver, status, seconds))

    def conditions_allocation(self, profile: str, driver: str, status: str) -> None:
        self.allocations.append((driver, status))


class Slow:
    """A clock that advances by two seconds whenever it is read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._passed = 0.0

    def now(self) -> float:
        self._passed += 2.0
        return float(self._inner.now()) + self._passed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Under(NamedTuple):
    """A pod whose devices are reserved."""

    info: PodInfo
    state: CycleState


class Served(World):
    """Two devices of class A on each node, and the objects passed to `show`."""

    def __init__(
        self,
        *things: Builder[Any],
        ours: KubestowArgs = FIRST_FIT,
        args: DynamicResourcesArgs | None = None,
        gates: frozenset[str] = DEVICE_GATES_ON,
        bare: bool = False,
    ) -> None:
        """Create the world. With `bare` it has only the slices in `things`."""
        self.moves: list[tuple[ClusterEvent, Any, Any]] = []
        self.event_handlers: DeviceHandlers | None = None
        self._seen: dict[str, ResourceClaim | Broken] = {}
        super().__init__(
            gates=gates, ours=ours, args=args or DynamicResourcesArgs(), writer=ScriptedWriter(), metrics=DeviceCounts()
        )
        self.event_handlers = DeviceHandlers(
            self.cluster, lambda event, old, new: self.moves.append((event, old, new)), self.handle.preempting
        )
        self.show(*(() if bare else SLICES), *things)
        self.moves.clear()

    # -- what the watch shows ------------------------------------------------------------------------------------------

    def show(self, *builders: Builder[Any]) -> None:
        """Put the objects into the caches, and claims on the server too. The default uid of a claim is its name."""
        for builder in builders:
            if isinstance(builder, ClaimBuilder):
                claim = builder.typed()
                known = self.writer.resource_claims.get(claim.key)
                uid = claim.metadata.uid or (known.metadata.uid if known is not None else claim.metadata.name)
                metadata = replace(claim.metadata, uid=uid, resource_version=self.writer.next_version(claim.metadata))
                self.put(replace(claim, metadata=metadata))
                self.relay(claim.key)
            else:
                super().show(builder)

    def put(self, claim: ResourceClaim | Broken) -> None:
        """Write the claim as another client: to the server, not yet to the cache."""
        self.writer.resource_claims[claim.key] = claim

    def rewrite(self, name: str, **status: Any) -> ResourceClaim:
        """Write the status of the claim as another client."""
        now = self.server(name)
        metadata = replace(now.metadata, resource_version=self.writer.next_version(now.metadata))
        written = replace(now, metadata=metadata, status=replace(now.status, **status))
        self.put(written)
        return written

    def relay(self, *keys: str) -> None:
        """Relay claims from the server to the cache, in the order of their writes. Without keys, relay all claims."""
        assert self.event_handlers is not None
        there = {key: claim for key, claim in self.writer.resource_claims.items() if not keys or key in keys}
        for key in [key for key in self._seen if key not in self.writer.resource_claims and (not keys or key in keys)]:
            self.event_handlers.handlers()["ResourceClaim"](Delta(self._seen.pop(key), None))
        for key, claim in sorted(there.items(), key=lambda item: int(item[1].metadata.resource_version or "0")):
            old = self._seen.get(key)
            if old is not claim:
                self._seen[key] = claim
                self.event_handlers.handlers()["ResourceClaim"](Delta(old, claim))

    def withdraw(self, name: str) -> None:
        """Delete the claim on the server and relay the deletion."""
        del self.writer.resource_claims[f"default/{name}"]
        self.relay()

    # -- reading -------------------------------------------------------------------------------------------------------

    def server(self, name: str) -> ResourceClaim:
        claim = self.writer.resource_claims[f"default/{name}"]
        assert isinstance(claim, ResourceClaim)
        return claim

    def cached(self, name: str) -> ResourceClaim:
        """Return the claim that decisions read."""
        return self.cluster.devices.claims.need(f"default/{name}")

    @property
    def writes(self) -> list[str]:
        """Return the writes that the server received, as `allocate c`."""
        return [f"{what} {key.partition('/')[2]}" for what, key in self.writer.claim_writes]

    @property
    def in_flight(self) -> list[str]:
        """Return the names of claims whose allocation may not be written yet."""
        return [claim.metadata.name for claim in self.cluster.devices.claims.in_flight()]

    @property
    def used(self) -> list[str]:
        """Return the devices in use, as `pool/device`."""
        return sorted(f"{device.pool}/{device.device}" for device in self.cluster.devices.use.devices())

    def users(self, name: str) -> list[str]:
        """Return the names in `reservedFor` of the claim on the server."""
        return [user.name for user in self.server(name).status.reserved_for]

    def devices_of(self, name: str) -> list[str]:
        """Return the devices of the claim on the server, as `pool/device`."""
        allocation = self.server(name).status.allocation
        return [f"{r.pool}/{r.device}" for r in allocation.devices.results] if allocation is not None else []

    # -- acting --------------------------------------------------------------------------------------------------------

    def reserved(self, info: PodInfo, node_name: str = "n1") -> Under:
        """Run PreFilter, Filter, Verify and Reserve for the pod, and assume it on the node."""
        state, said = self.filter(info)
        assert isinstance(said, dict), said
        slot = self.slot(node_name)
        assert not any(out >> slot & 1 for out in said.values()), said
        assumed = placed(info, node_name)
        self.cluster.assume(assumed)
        assert self.plugin.reserve(state, assumed, node_name) is None
        return Under(assumed, state)

    def unreserve(self, under: Under) -> None:
        """Run Unreserve and forget the pod, as a failed binding does."""
        self.plugin.unreserve(under.state, under.info, under.info.node_name)
        if self.cluster.is_assumed(under.info.uid):
            self.cluster.forget(under.info)
        assert self.event_handlers is not None
        self.event_handlers.tick()

    async def undo(self, under: Under) -> None:
        """Run Unreserve after a failed binding and finish its writes."""
        self.unreserve(under)
        await self.background()

    def tried(self, *claims: str, name: str = "p") -> tuple[PodInfo, CycleState]:
        """Return a pod with these claims, and its state after Filter."""
        info = using(*claims, name=name)
        return info, self.filter(info)[0]

    def post_filter(self, state: CycleState, info: PodInfo, refused: Groups | None = None) -> Rejection:
        """Run PostFilter for a pod without a nominated node. The default of `refused` is the result of Filter."""
        what_if: Any = SimpleNamespace(nominated_to="")
        if refused is None:
            present = self.cluster.nodes.present
            refused = finish(answered(self.plugin.filter(state, info, present))) if state.has(STATE) else {}
        answer = finish(self.plugin.post_filter(state, info, refused, what_if))
        assert isinstance(answer, Rejection)
        return answer

    def pre_bind(self, under: Under) -> Coroutine[Any, Any, Rejection | None]:
        """Return the coroutine of PreBind, which has not started."""
        return self.plugin.pre_bind(under.state, under.info, under.info.node_name)

    async def bound(self, under: Under, *, relays: bool = True, within_s: float = 700.0) -> str:
        """Return the message of a failed PreBind, else "". With `relays` the watch shows a write after 0.1 s."""
        task = asyncio.ensure_future(self.pre_bind(under))
        await self.passes(task, relays=relays, within_s=within_s)
        no = task.result()
        return "" if no is None else no.message

    async def passes(self, task: asyncio.Future[Any], *, relays: bool = True, within_s: float = 700.0) -> None:
        """Advance the clock by tenths of a second until the task has ended."""
        until = self.clock.now() + within_s
        await self.clock.settle()
        while not task.done() and self.clock.now() < until:
            if relays:
                self.relay()
            await self.clock.advance(0.1)
        assert task.done(), "the task never ends"

    async def background(self) -> None:
        """Finish the background tasks and relay their writes."""
        task = asyncio.ensure_future(self._background_ends())
        await self.passes(task)
        self.relay()

    async def _background_ends(self) -> None:
        while len(self.plugin._binder._background):
            await self.clock.sleep(0.1)


def begun(*things: Builder[Any], ours: KubestowArgs = FIRST_FIT) -> tuple[Served, Under]:
    """Return a world and a pod with claim c, whose devices are reserved on n1."""
    world = Served(*(things or (ASKING,)), ours=ours)
    return world, world.reserved(using("c"))


def said(no: Rejection | Skip | None) -> Any:
    """Return `(code, text)`, Skip or None."""
    return (no.code, no.message) if isinstance(no, Rejection) else no


def claim_for_two(name: str = "c") -> ClaimBuilder:
    return a_claim(name).request("r", "A", count=2)


Step: TypeAlias = Callable[[Served], None]
"""A change on the server before or after a write. The step `nothing` changes nothing, so that the write succeeds."""


def using(*claims: str, name: str = "p") -> PodInfo:
    """Return a pod that uses the claims with these names. Its uid is its name."""
    builder = pod(name).uid(name)
    for at, claim in enumerate(claims):
        builder = builder.claim(f"e{at}", claim=claim)
    return pod_info(builder.typed())


def steps(world: Served, *before: Step, only: str = "") -> None:
    """Run one step before each write. `only` limits the steps to one kind of write; later writes succeed."""
    left = list(before)

    def next_step(what: str, _: ResourceClaim) -> None:
        if left and (not only or what == only):
            left.pop(0)(world)

    world.writer.on_claim = next_step


def loses_answers(world: Served, *lost: ApiError | None, only: str = "") -> None:
    """Apply the writes on the server and lose these answers. None stands for an answer that arrives."""
    left = list(lost)

    def next_answer(what: str, _: ResourceClaim) -> None:
        if left and (not only or what == only):
            error = left.pop(0)
            if error is not None:
                raise error

    world.writer.on_claim_written = next_answer


def fails_first(world: Served, write: str, *errors: ApiError) -> None:
    """Make this method of the port raise these errors in order, and then succeed."""
    works, left = getattr(world.writer.device_claims, write), list(errors)

    async def sometimes(*what: Any) -> Any:
        if left:
            raise left.pop(0)
        return await works(*what)

    setattr(world.writer.device_claims, write, sometimes)


def fails(error: ApiError) -> Step:
    """Return a step in which the server raises the error."""

    def step(_: Served) -> None:
        raise error

    return step


def nothing(_: Served) -> None:
    """Change nothing."""


def taken_by_other(world: Served) -> None:
    """Allocate d0 of n1 to claim o, as another scheduler does."""
    allocation = HELD.typed().status.allocation
    world.rewrite("o", allocation=allocation, reserved_for=(ConsumerReference("", "pods", "x", "x"),))


def touched(world: Served) -> None:
    """Write claim c as another client does, without a change to its devices."""
    world.rewrite("c")
