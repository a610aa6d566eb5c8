"""What the ledger promises to pods that wait, over random histories of two zones (docs/spec/volumes.md §12.1 B-1).

A pod that would fit if nothing were booked fits within ten minutes; of pods that exclude each other one holds capacity; a
restart changes nothing; and no more is promised than there is. Provisioners succeed, refuse for good, never answer, or
answer late; nodes go and come back elsewhere; two classes may draw from one pool.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import example, given, strategies as st

from scheduler.api.storage_v1 import PROVISIONED_BY, STORAGE_PROVISIONERS
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity_reservations import CapacityReservations
from scheduler.cache.storage.reservation import HOLD_S, Reservation
from scheduler.cache.storage.volumes import Volumes
from simulator.builders.core import node
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv

GI: Final = 2**30
SIZE: Final = 10
ZONES: Final = "ab"
SLICE_S: Final = 50.0
LATE_S: Final = 700.0


@dataclass
class Claim:
    """A claim on the server. `how`: what its provisioner does."""

    name: str
    storage_class: str
    size: int
    how: str
    node: str = ""
    volume: str = ""
    since: float = 0.0


class History:
    """Server, driver and scheduler; and a ledger that sees what they write."""

    def __init__(self, pods: list[list[tuple[str, int, str]]], probe: int) -> None:
        self.clock = VirtualClock()
        self.pods = [
            [Claim(f"p{at}-{no}", *requirements) for no, requirements in enumerate(wishes)]
            for at, wishes in enumerate(pods)
        ]
        self.claims = {claim.name: claim for claims in self.pods for claim in claims}
        self.zones: dict[str, str] = {"n0": "a", "n1": "b", "n2": "a"}
        self.volumes: dict[str, tuple[str, int, Any]] = {}
        self.objects: dict[str, Any] = {}
        self.version = 0
        self.probe = probe
        self.unfit_since: dict[str, float] = {}
        self.promised: set[str] = set()
        self.publish_first()
        self.start()

    # -- the process ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process that has listed everything."""
        self.nodes = Nodes()
        self.cache = Volumes(self.nodes, self.clock)
        self.reservations: CapacityReservations = self.cache.reservations
        self.reservations.pools_share("all")
        for name in "DE":
            self.cache.set_class(name, a_class(name, "p").typed())
        for name, zone in self.zones.items():
            self.nodes.set_node(node(name).label("zone", zone).typed())
        self.reservations.users.add("pod", [f"default/{name}" for name in self.claims])
        for obj in self.objects.values():
            self.show_capacity(obj)
        for _, _, volume in self.volumes.values():
            self.cache.set_volume(volume)
        for claim in self.claims.values():
            self.show(claim)
        for claims in self.pods:
            if len(claims) > 1:
                self.reservations.plan(f"default/{claim.name}" for claim in claims)
        self.unfit_since.clear()
        self.reservations.catch_up()

    def restart(self) -> None:
        before = self.charged()
        has_expired = any(entry.is_over for entry in self.reservations) or any(
            self.clock.now() - began >= HOLD_S for began in self.reservations._began.values()
        )
        self.start()
        assert has_expired or before == self.charged()

    def charged(self) -> dict[str, tuple[str, str]]:
        """Return state and pool of each reservation, without pools that no node can use: a restart forgets those."""
        zones = set(self.zones.values())
        return {
            entry.claim.metadata.uid: (entry.state, entry.pool.key)
            for entry in self.reservations
            if entry.pool is not None and entry.pool.key[-1] in zones
        }

    # -- what is written -----------------------------------------------------------------------------------------------

    def newer(self) -> str:
        self.version += 1
        return str(self.version)

    def stamp(self) -> str:
        return dt.datetime.fromtimestamp(self.clock.wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def show(self, claim: Claim) -> None:
        built = a_claim(claim.name, f"{claim.size}Gi", claim.storage_class).uid(claim.name)
        built = built.annotation(STORAGE_PROVISIONERS[0], "p").resource_version(self.newer())
        if claim.node:
            built = built.selected(claim.node)
        self.cache.claims.set((built.bound_to(claim.volume) if claim.volume else built).typed())

    def show_capacity(self, obj: Any) -> None:
        old = self.cache.capacities.pool(obj.key)
        self.reservations.pool_changed(old, self.cache.capacities.put(obj))

    def free(self, zone: str) -> int:
        return SIZE - sum(size for at, size, _ in self.volumes.values() if at == zone)

    def publish_first(self) -> None:
        for name in "DE":
            for zone in ZONES:
                self.objects[f"{name}{zone}"] = self.capacity(name, zone)

    def capacity(self, name: str, zone: str) -> Any:
        built = a_capacity(f"{name.lower()}{zone}", name, f"{self.free(zone)}Gi").where("zone", zone)
        return built.resource_version(self.newer()).typed()

    def publish(self) -> None:
        """Of both classes; an object is written if its capacity has changed."""
        for key, old in self.objects.items():
            if old.capacity.value != self.free(key[1]) * GI:
                self.objects[key] = self.capacity(*key)
                self.show_capacity(self.objects[key])

    # -- steps ---------------------------------------------------------------------------------------------------------

    def take(self, what: str, more: Any) -> None:
        match what:
            case "pass":
                self.pass_(more)
            case "try":
                self.schedule(self.pods[more % len(self.pods)])
            case "provision":
                self.provision(list(self.claims.values())[more % len(self.claims)])
            case "node":
                self.move(*more)
            case _:
                self.restart()
        self.check()

    def pass_(self, seconds: float) -> None:
        while seconds > 0:
            asyncio.run(self.clock.advance(min(seconds, SLICE_S)))
            seconds -= SLICE_S
            self.publish()
            self.check()

    def schedule(self, claims: list[Claim]) -> None:
        """Select the first node that serves the whole pod."""
        open_ = [claim for claim in claims if not claim.volume]
        tied = {self.volumes[claim.volume][0] for claim in claims if claim.volume}
        picked = {claim.node for claim in open_ if claim.node}
        if not open_ or len(tied) > 1 or len(picked) > 1:
            return
        self.reservations.catch_up()
        for name, zone in sorted(self.zones.items()):
            if tied <= {zone} and picked <= {name} and self.fits(open_, zone):
                for claim in open_:
                    if not claim.node:
                        claim.node, claim.since = name, self.clock.now()
                        self.show(claim)
                return

    def fits(self, claims: list[Claim], zone: str) -> bool:
        before = 0
        with self.reservations.without([claim.name for claim in claims]):
            for claim in claims:
                pool = self.cache.capacities.pool(f"default/{claim.storage_class.lower()}{zone}")
                assert pool is not None
                if not pool.takes(claim.size * GI, before=before):
                    return False
                before += claim.size * GI
        others = sum(
            entry.size for entry in self.booked(zone) if entry.claim.metadata.uid not in {c.name for c in claims}
        )
        assert before + others <= self.free(zone) * GI
        return True

    def booked(self, zone: str) -> list[Reservation]:
        """What is promised there and not made."""
        return [e for e in self.reservations if e.pool is not None and e.pool.key[-1] == zone and e.state != "settling"]

    def provision(self, claim: Claim) -> None:
        zone = self.zones.get(claim.node)
        if claim.volume or zone is None or claim.how == "silent":
            return
        if claim.how == "late" and self.clock.now() - claim.since < LATE_S:
            return
        if claim.how == "refused" or self.free(zone) < claim.size:
            claim.node = ""
        else:
            claim.volume = f"v-{claim.name}"
            built = a_pv(claim.volume, f"{claim.size}Gi", claim.storage_class).where("zone", zone)
            built = built.claimed_by(claim.name, uid=claim.name).annotation(PROVISIONED_BY, "p")
            made = {"metadata": {"creationTimestamp": self.stamp()}}
            volume = built.resource_version(self.newer()).set(made).typed()
            self.volumes[claim.volume] = zone, claim.size, volume
            self.cache.set_volume(volume)
        self.show(claim)

    def move(self, name: str, zone: str) -> None:
        """A node goes, or comes back."""
        if zone:
            self.zones[name] = zone
            self.nodes.set_node(node(name).label("zone", zone).typed())
        elif self.zones.pop(name, None):
            self.nodes.remove_node(name)

    # -- laws ----------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.reservations.catch_up()
        assert self.reservations.drift_bytes() == 0
        self.check_holds()
        now = self.clock.now()
        known = {entry.claim.metadata.uid for entry in self.reservations}
        if known - self.promised:  # a rival with its first reservation: its ten minutes begin
            self.unfit_since.clear()
            self.promised |= known
        for zone in ZONES:
            pool = self.cache.capacities.pool(f"default/d{zone}")
            assert pool is not None
            size = self.probe * GI
            fits_without = size <= min(pool.capacity, self.free(zone) * GI)
            if pool.takes(size) or not fits_without:
                self.unfit_since.pop(zone, None)
            else:
                assert now - self.unfit_since.setdefault(zone, now) < HOLD_S

    def check_holds(self) -> None:
        """A pod holds capacity for all its stranded claims or for none. All holders fit together."""
        for claims in self.pods:
            found = [e for e in self.reservations if e.wanted and e.claim.metadata.uid in {c.name for c in claims}]
            assert len({entry.pool is None for entry in found}) <= 1
        for entry in self.reservations:
            if entry.state == "stranded" and entry.pool is not None:
                assert entry.pool.in_flight <= max(entry.pool.capacity, entry.size)


_hows = st.sampled_from(["good", "good", "refused", "silent", "late"])
_requirements = st.tuples(st.sampled_from("DDE"), st.integers(1, 6), _hows)
_step = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([3.0, 30.0, 100.0, 300.0, 650.0])),
    st.tuples(st.just("try"), st.integers(0, 3)),
    st.tuples(st.just("try"), st.integers(0, 3)),
    st.tuples(st.just("provision"), st.integers(0, 7)),
    st.tuples(st.just("provision"), st.integers(0, 7)),
    st.tuples(st.just("node"), st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.sampled_from(["a", "b", ""]))),
    st.tuples(st.just("restart"), st.none()),
)


NO_NODE_LEFT_IN_THE_ZONE_OF_A_NEW_VOLUME: Final = [
    *[("pass", 3.0)] * 4,
    ("try", 0),
    ("provision", 0),
    ("node", ("n0", "b")),
    ("node", ("n2", "b")),
    ("restart", None),
]


@example(pods=[[("D", 1, "good")]] * 2, probe=1, history=NO_NODE_LEFT_IN_THE_ZONE_OF_A_NEW_VOLUME)
@given(
    pods=st.lists(st.lists(_requirements, min_size=1, max_size=3), min_size=2, max_size=4),
    probe=st.integers(1, 8),
    history=st.lists(_step, min_size=10, max_size=70),
)
def test_promises_are_kept_and_end(
    pods: list[list[tuple[str, int, str]]], probe: int, history: list[tuple[str, Any]]
) -> None:
    world = History(pods, probe)
    for what, more in history:
        world.take(what, more)
