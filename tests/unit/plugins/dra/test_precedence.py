"""Which of two claims was allocated first, and daemons that use the same devices (docs/spec/dra.md §10.5)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from scheduler.api.decode import Delta
from scheduler.api.podinfo import placed
from scheduler.api.resource_v1 import AllocationResult, DeviceId, ResourceClaim
from scheduler.core.errors import ApiError, Forbidden, Gone, Unavailable
from scheduler.plugins.dra.binding.device_conflicts import UNKNOWN, Precedence
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.support.clock import VirtualClock
from tests.support.ports import ClaimHistory, ScriptedWriter
from tests.unit.plugins.dra.served import OTHER, Served, Under, begun, taken_by_other, using
from tests.unit.plugins.dra.world import FIRST_FIT

DEVICE = a_result("r", "a/n1/d0")
OURS, THEIRS = a_claim("c").uid("c").request("r", "A"), a_claim("o").uid("o").request("r", "A")


def at(version: int, claim: ClaimBuilder, *, stamp: str = "", has: bool = True) -> ResourceClaim:
    claim = claim.allocated(DEVICE) if has else claim
    typed = (claim.allocated_at(stamp) if stamp else claim).resource_version(str(version)).typed()
    assert isinstance(typed, ResourceClaim)
    return typed


@pytest.mark.parametrize(("writes", "allocated_at", "was_first", "reads"), [
    pytest.param([at(5, THEIRS), at(7, OURS)], 7, True, 0, id="its last write was before"),
    pytest.param([at(7, OURS), at(9, THEIRS)], 7, False, 1, id="it had none then"),
    pytest.param([at(5, THEIRS), at(7, OURS), at(9, THEIRS)], 7, True, 1, id="it was written again since"),
    pytest.param([at(7, OURS), at(9, THEIRS)], UNKNOWN, False, 1, id="nothing is known of ours, which was first"),
    pytest.param([at(5, THEIRS), at(7, OURS)], UNKNOWN, True, 1, id="nothing is known of ours, which came later"),
    pytest.param([at(3, OURS), at(5, THEIRS), at(7, OURS), at(9, THEIRS), at(11, OURS)], UNKNOWN, False, 4,
        id="nothing is known of ours, and both were written again and again"),
    pytest.param([at(3, THEIRS), at(5, OURS), at(7, THEIRS), at(9, OURS), at(11, THEIRS)], UNKNOWN, True, 4,
        id="the same, and it was first"),
    pytest.param([at(3, THEIRS, stamp="2026-01-01T00:00:00Z"), at(7, OURS), at(9, THEIRS,
        stamp="2026-01-01T00:00:05Z")], 7, False, 1, id="it had the device before, gave it back, and has it again"),
    pytest.param([at(7, OURS), at(9, THEIRS, has=False)], 7, False, 0, id="it has none any more"),
    pytest.param([at(0, THEIRS), at(7, OURS)], 7, True, 0, id="its version is no number"),
    pytest.param([at(9, THEIRS), at(0, OURS)], UNKNOWN, True, 0, id="our version is no number"),
])  # fmt: skip
async def test_the_claim_that_was_allocated_first(
    writes: list[ResourceClaim], allocated_at: int, *, was_first: bool, reads: int
) -> None:
    """The result follows from the state of each claim at the resource version of the other claim."""
    writer, asked = ScriptedWriter(), list[None]()
    for each in (at(1, OURS, has=False), at(2, THEIRS, has=False), *writes):
        writer.resource_claims[each.key] = each
    writer.on_read = lambda: asked.append(None)
    newest = {each.metadata.name: each for each in writes}

    found = await Precedence(writer, VirtualClock()).was_first(newest["o"], newest["c"], allocated_at=allocated_at)

    assert (was_first, reads) == (found, len(asked))


@pytest.mark.parametrize(
    "error", [Gone("compacted"), Forbidden("no")], ids=["the version is compacted", "the read is forbidden"]
)
async def test_giving_way_is_safe_where_the_order_is_unknown(error: ApiError) -> None:
    writer = ScriptedWriter()

    def refuse() -> None:
        raise error

    writer.on_read = refuse

    assert await Precedence(writer, VirtualClock()).was_first(at(9, THEIRS), at(7, OURS), allocated_at=7)


async def test_a_read_from_a_busy_server_is_retried() -> None:
    writer, clock, left = ScriptedWriter(), VirtualClock(), [Unavailable("busy"), Unavailable("busy")]

    def busy() -> None:
        if left:
            raise left.pop()

    writer.on_read = busy
    world = Served()
    world.clock = clock
    task = asyncio.ensure_future(Precedence(writer, clock).was_first(at(9, THEIRS), at(7, OURS), allocated_at=7))
    await world.passes(task)

    assert task.result() is False


def _seen_before_the_look(world: Served, then: Callable[[], None]) -> None:
    def written(what: str, claim: ResourceClaim) -> None:
        if what == "allocate" and claim.metadata.name in {"c", "e"}:
            then()

    world.writer.on_claim_written = written


async def test_the_other_one_came_later_and_is_seen_before_we_look() -> None:
    """The watch shows the written claim before the response to the write arrives."""
    world, under = begun(a_claim("c").request("r", "A"), OTHER)

    def then() -> None:
        world.relay()
        taken_by_other(world)
        world.relay()

    _seen_before_the_look(world, then)

    assert (await world.bound(under), world.devices_of("c")) == ("", ["n1/d0"])


async def test_the_other_one_came_between_two_claims_of_the_pod() -> None:
    """The first claim was written and shown before; the second claim has another device."""
    world = Served(a_claim("c").request("r", "A"), a_claim("e").request("r", "A"), OTHER)
    under = world.reserved(using("c", "e"))

    def written(what: str, claim: ResourceClaim) -> None:
        if what == "allocate" and claim.metadata.name == "e":
            world.relay("default/c")
            taken_by_other(world)
            world.relay("default/o")

    world.writer.on_claim_written = written

    assert (await world.bound(under), world.devices_of("c"), world.metrics.collisions) == ("", ["n1/d0"], 0)


# -- laws: the first allocation of a device stays, in whatever order two daemons see the events ------------------------

DEVICES: Final = 2
PODS: Final = {"p": ("c", "e"), "q": ("o",), "r": ("s",), "t": ("u", "v")}
CLAIMS_OF_OURS: Final = tuple(claim for claims in PODS.values() for claim in claims)
FOREIGN: Final = ("x", "y")


def devices(count: int) -> SliceBuilder:
    return a_slice("n1", "a", *(a_device(f"d{at}") for at in range(count)))


class Daemon(Served):
    """A daemon with a separate watch. Events come in the order of their versions, or a list replaces them."""

    def __init__(self, server: Server, pods: tuple[str, ...]) -> None:
        super().__init__(devices(server.devices), ours=FIRST_FIT, bare=True)
        self.source, self.pods = server, pods
        self.seen_until = 0
        self.writer.resource_claims = server.claims
        self.writer.next_version = server.next_version
        self.writer.claim_hold = asyncio.Event()
        self.tasks: dict[str, tuple[Under, asyncio.Task[Any]]] = {}
        for name in server.bound:
            self.cluster.add_pod(placed(using(*server.pods[name], name=name), "n1"))
        self.list()

    def list(self) -> None:
        """Show every current claim, sorted by name. The order of the writes is lost."""
        for key, claim in sorted(self.source.claims.items()):
            self._receive(key, claim)
        self.seen_until = self.source.newest

    def watch(self, events: int) -> None:
        for version, key, claim in self.source.since(self.seen_until)[:events]:
            self._receive(key, claim)
            self.seen_until = version

    def _receive(self, key: str, claim: Any) -> None:
        old = self._seen.get(key)
        if old is not claim:
            self._seen[key] = claim
            assert self.event_handlers is not None
            self.event_handlers.handlers()["ResourceClaim"](Delta(old, claim))

    def begin(self, name: str) -> None:
        """Run an attempt for the pod, and start its binding if a node fits."""
        info = using(*self.source.pods[name], name=name)
        slot = self.cluster.nodes.present_slot("n1")
        if name in self.tasks or name in self.source.bound or slot is None:
            return
        _, said = self.filter(info)
        if isinstance(said, dict) and not any(out >> slot & 1 for out in said.values()):
            under = self.reserved(info)
            self.tasks[name] = under, asyncio.ensure_future(self.pre_bind(under))

    def collect(self) -> None:
        """Record the pods of finished bindings as bound, and undo failed bindings."""
        for name, (under, task) in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if task.result() is None:
                    self.source.bound.add(name)
                    self.cluster.add_pod(under.info)
                else:
                    self.unreserve(under)

    @property
    def is_busy(self) -> bool:
        return bool(self.tasks) or len(self.plugin._binder._background) > 0


@dataclass
class Server:
    devices: int = DEVICES
    pods: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PODS)
    claims: ClaimHistory = field(default_factory=ClaimHistory)
    newest: int = 0
    bound: set[str] = field(default_factory=set)

    def next_version(self, _: Any) -> str:
        self.newest += 1
        return str(self.newest)

    def since(self, version: int) -> list[tuple[int, str, Any]]:
        return [event for event in self.claims.events() if event[0] > version]

    def make(self, name: str) -> None:
        made = a_claim(name).uid(name).request("r", "A").resource_version(self.next_version(None)).typed()
        assert isinstance(made, ResourceClaim)
        self.claims[made.key] = made

    def take(self, name: str, device: int) -> None:
        """Allocate the device as the foreign scheduler, which checks nothing."""
        given = a_claim(name).uid(name).request("r", "A").allocated(a_result("r", f"a/n1/d{device}"))
        claim = given.resource_version(self.next_version(None)).typed()
        assert isinstance(claim, ResourceClaim)
        self.claims[claim.key] = claim

    # -- the allocations -----------------------------------------------------------------------------------------------

    def allocations(self) -> list[Allocated]:
        """Return every allocation in the history, with its first version and the version that ended it."""
        found: dict[str, Allocated] = {}
        done: list[Allocated] = []
        for version, key, claim in self.claims.events():
            assert isinstance(claim, ResourceClaim)
            held = found.get(key)
            now = claim.status.allocation
            if held is not None and now is None:
                held.until = version
                done.append(found.pop(key))
            elif held is None and now is not None:
                found[key] = Allocated(claim.metadata.name, _devices(now), version)
        return [*done, *found.values()]


@dataclass
class Allocated:
    claim: str
    devices: frozenset[DeviceId]
    since: int
    until: int | None = None

    def stood_at(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


def _devices(allocation: AllocationResult) -> frozenset[DeviceId]:
    return frozenset(result.id for result in allocation.devices.results)


async def _round(seed: int) -> Server:
    rng, server = random.Random(seed), Server()
    names = [*CLAIMS_OF_OURS, *FOREIGN]
    rng.shuffle(names)
    for name in names:
        server.make(name)
    daemons = [Daemon(server, ("p", "q")), Daemon(server, ("r", "t"))]
    left = list(FOREIGN)
    for _ in range(rng.randint(10, 60)):
        at = rng.randrange(2)
        daemons[at].collect()
        if rng.random() < 0.02:
            daemons[at] = await _died(daemons[at])
        elif left and rng.random() < 0.05:
            server.take(left.pop(), rng.randrange(DEVICES))
        elif rng.random() < 0.1:
            _touch(server, rng)
        else:
            await _goes_on(daemons[at], rng)
    for _ in range(2):
        for daemon in daemons:
            await _ends(daemon)
            for name in daemon.pods:  # these pods may be left from a daemon that died
                daemon.begin(name)
    for daemon in daemons:
        await _ends(daemon)
    return server


ANYTHING: Final = ("watch", "watch", "list", "begin", "begin", "write", "write", "time")


async def _goes_on(daemon: Daemon, rng: random.Random, whats: Sequence[str] = ANYTHING) -> None:
    """Let the daemon receive events, begin an attempt, or write for some time."""
    what = rng.choice(whats)
    if what == "watch":
        daemon.watch(rng.randint(1, 4))
    elif what == "list":
        daemon.list()
    elif what == "begin":
        daemon.begin(rng.choice(daemon.pods))
    elif what == "time":
        await daemon.clock.advance(0.1)
    else:
        assert daemon.writer.claim_hold is not None
        daemon.writer.claim_hold.set()
        for _ in range(rng.randint(1, 30)):
            await asyncio.sleep(0)
        daemon.writer.claim_hold.clear()


def _touch(server: Server, rng: random.Random) -> None:
    """Change only the version of a claim, as a write that does not concern its devices."""
    key = rng.choice(sorted(server.claims))
    claim = server.claims[key]
    assert isinstance(claim, ResourceClaim)
    version = server.next_version(None)
    server.claims[key] = replace(claim, metadata=replace(claim.metadata, resource_version=version))


async def _died(daemon: Daemon) -> Daemon:
    """Restart the daemon. Writes in flight still reach the server, and nothing is undone."""
    tasks = [task for _, task in daemon.tasks.values()]
    for task in tasks:
        task.cancel()
    assert daemon.writer.claim_hold is not None
    daemon.writer.claim_hold.set()
    while not all(task.done() for task in tasks):
        await daemon.clock.advance(0.1)
    return Daemon(daemon.source, daemon.pods)


async def _ends(daemon: Daemon) -> None:
    """Run all bindings of the daemon to their end, with every event shown."""
    assert daemon.writer.claim_hold is not None
    daemon.writer.claim_hold.set()
    until = daemon.clock.now() + 600.0
    while daemon.is_busy and daemon.clock.now() < until:
        daemon.watch(10_000)
        await daemon.clock.advance(0.1)
        daemon.collect()
    assert not daemon.is_busy, "the daemon never ends"
    daemon.watch(10_000)


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_ours_gives_way_to_earlier_allocations_only_and_always(seed: int) -> None:
    """No wanted device stays free, and at most one of our pods runs with it.

    If a daemon dies, the devices of a pod that does not run stay with its claim until the next attempt.
    """
    check(asyncio.run(_round(seed)))


def check(server: Server) -> None:
    allocations = server.allocations()
    running = {claim for name in server.bound for claim in server.pods[name]}
    ours = {claim for claims in server.pods.values() for claim in claims}
    for each in allocations:
        before = [a for a in allocations if a is not each and a.devices & each.devices and a.stood_at(each.since)]
        if each.claim not in ours:
            continue
        assert each.until is None or before, f"{each} gave way without an earlier allocation"
        if each.until is None and each.claim in running:
            assert not [a for a in before if a.until is None], f"{each} was not first, and its pod runs"


async def _fifty_rounds(seed: int) -> Server:
    """Run fifty rounds. In each round all three schedulers allocate before they see each other's writes."""
    rng = random.Random(seed)
    pods = {f"p{at}": (f"c{at}",) for at in range(300)}
    server = Server(devices=200, pods=pods)
    for claim in (*(c for claims in pods.values() for c in claims), *(f"x{at}" for at in range(50))):
        server.make(claim)
    names = list(pods)
    daemons = [Daemon(server, tuple(names[::2])), Daemon(server, tuple(names[1::2]))]
    for turn in range(50):
        taken = {device for each in server.allocations() if each.until is None for device in each.devices}
        free = [at for at in range(200) if DeviceId("a", "n1", f"d{at}") not in taken]
        for daemon in daemons:
            for name in [name for name in daemon.pods if name not in server.bound][:5]:
                daemon.begin(name)
        foreign_at = rng.randrange(12)
        for moment in range(12):
            if moment == foreign_at and free:
                server.take(f"x{turn}", free[0])
            await _goes_on(daemons[rng.randrange(2)], rng, ("watch", "list", "write", "write", "time"))
        for daemon in daemons:
            await _ends(daemon)
        for daemon in daemons:
            daemon.watch(10_000)
    return server


@pytest.mark.parametrize("seed", range(2))
def test_fifty_rounds_of_two_daemons_and_a_foreign_scheduler_on_two_hundred_devices(seed: int) -> None:
    """Each wanted device ends with one claim. Only a later claim of the foreign scheduler may share it."""
    server = asyncio.run(_fifty_rounds(seed))

    check(server)
    allocations = server.allocations()
    standing = [each for each in allocations if each.until is None]
    wanted = {device for each in allocations for device in each.devices}
    assert {device for each in standing for device in each.devices} == wanted
    for device in wanted:
        first, *later = sorted((each for each in standing if device in each.devices), key=lambda each: each.since)
        assert [each.claim[0] for each in later] in ([], ["x"]), (device, first, later)
    gave_way = [each for each in allocations if each.until is not None]
    assert len(gave_way) > 50, "the schedulers never collided"
    assert len(wanted) == 200
