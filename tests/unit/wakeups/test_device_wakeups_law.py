"""A law of the queue and of DynamicResources: a pod that fits by now does not wait for something else.

A small cluster with devices, and a pod with claims that fits nowhere. Then things happen, and the pod is tried again only
when one of them wakes it. Left waiting at the end, it is tried by force: it must be refused, and there must be nothing
that it could have given back (docs/spec/dra.md §7).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.config.types import KubeSchedulerProfile
from scheduler.core.errors import Forbidden, Unavailable
from scheduler.kube.resources import KINDS
from scheduler.plugins.dra.plugin import DynamicResources
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder
from simulator.builders.devices import (
    DeviceBuilder,
    DeviceClassBuilder,
    SliceBuilder,
    a_device,
    a_device_class,
    a_slice,
)
from tests.examples import SLOW_SHARE, examples
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import DEFAULT, WAITS, harness_of, node, pod, requesting
from tests.unit.wakeups.happenings import (
    PARITY,
    UID,
    Thing,
    deliver,
    ended,
    forced,
    is_left_waiting,
    known,
    leaves,
    once,
    passes,
    place,
    refusers,
    refusing,
    some,
)

GPU: Final = "example.com/gpu"
OWN: Final = f"{WAITS}-e"
"""The claim that is made for the pod."""
WRITTEN_LONG_AGO: Final = "2020-01-01T00:00:00Z"


# -- what the watch shows ----------------------------------------------------------------------------------------------


def comes(builder: Builder[Any]) -> Thing:
    """It comes or changes, with a newer version. A claim with another spec is another one with that name."""
    raw = builder.obj()
    kind, name = raw["kind"], raw["metadata"]["name"]
    typ = KINDS[kind].typ
    assert typ is not None

    def happens(sched: SchedulerHarness) -> None:
        version = sched.writer.next_version(builder.typed().metadata)
        raw["metadata"] |= {"uid": f"{name}-{version}", "resourceVersion": version}
        new: Any = ObjectDecoder(kind, typ).decode(msgspec.json.encode(raw))
        if kind == "ResourceClaim":
            there = sched.writer.resource_claims.get(new.key)
            if isinstance(there, ResourceClaim) and _may_become(there, new):
                new = msgspec.structs.replace(
                    new, metadata=msgspec.structs.replace(new.metadata, uid=there.metadata.uid)
                )
            else:
                deliver(sched, kind, name, None)
            sched.writer.resource_claims[new.key] = new
        deliver(sched, kind, name, new)

    metadata = {key: value for key, value in raw["metadata"].items() if key not in {"name", "namespace"}}
    return Thing(f"comes({kind} {name} {metadata} {raw.get('spec')} {raw.get('status')})", happens)


def _may_become(there: ResourceClaim, new: ResourceClaim) -> bool:
    """The spec of a claim never changes, and neither does a deletion."""
    stays = there.metadata.deletion_timestamp is None or new.metadata.deletion_timestamp is not None
    return stays and (there.spec, there.metadata.owner_references) == (new.spec, new.metadata.owner_references)


def goes(kind: str, name: str) -> Thing:
    """It is deleted, if it is there."""

    def happens(sched: SchedulerHarness) -> None:
        if kind == "ResourceClaim":
            sched.writer.resource_claims.pop(f"default/{name}", None)
        deliver(sched, kind, name, None)

    return Thing(f"goes({kind} {name})", happens)


def relays(sched: SchedulerHarness) -> None:
    """The watch shows what was written."""
    there = {claim.metadata.name: claim for claim in sched.writer.resource_claims.values()}
    for kind, name in list(known(sched)):
        if kind == "ResourceClaim" and name not in there:
            deliver(sched, kind, name, None)
    for name, claim in there.items():
        seen = known(sched).get(("ResourceClaim", name))
        if seen is None or seen.metadata.resource_version != claim.metadata.resource_version:
            deliver(sched, "ResourceClaim", name, claim)


def breaks(sched: SchedulerHarness) -> None:
    """The server takes no writes from now on."""
    sched.writer.on_claim = refusing(Forbidden("no"))


def hangs(sched: SchedulerHarness) -> None:
    """It may take them some time."""
    sched.writer.on_claim = refusing(Unavailable("busy"))


def fails(sched: SchedulerHarness) -> None:
    """The server refuses the writes that are retried."""
    breaks(sched)
    sched.clock.move(11.0)


def mends(sched: SchedulerHarness) -> None:
    """It takes them again."""
    sched.writer.on_claim = None


# -- what there can be -------------------------------------------------------------------------------------------------

NODES = ["n1", "n2"]
CLASSES = ["w", "x"]
CLAIMS = ["c", "d", "e", OWN]
ZONES = ["a", "b"]
DEVICES = ["d0", "d1"]
SLICES = ["s1", "s2", "s3"]


def _node(name: str, zone: str, room: str, gpus: str) -> Thing:
    own = {GPU: gpus} if gpus else {}
    shown = node(name, labels={"zone": zone} if zone else {}, pods=room, **own)
    return Thing(f"node({name} {zone} {room} {own})", shown)


nodes = st.builds(_node, some(NODES), some(["", *ZONES]), some(["110", "110", "0"]), some(["", "", "", "0", "1"]))


@st.composite
def classes(draw: st.DrawFn) -> DeviceClassBuilder:
    found = a_device_class(draw(some(CLASSES)), *draw(some([(), (), ("false",), ('device.driver == "drv"',)])))
    found = found.created(draw(some(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])))
    return found.extended_resource(GPU) if draw(st.booleans()) else found


@st.composite
def devices(draw: st.DrawFn) -> DeviceBuilder:
    found = a_device(draw(some(DEVICES)))
    match draw(some(["", "", "", "tainted", "binding"])):
        case "tainted":
            found = found.taint("broken")
        case "binding":
            found = found.binding("ready").binding_failure("failed")
    return found.attr("color", draw(some(["red", "blue"])))


@st.composite
def slices(draw: st.DrawFn) -> SliceBuilder:
    found = a_slice(draw(some(NODES)), draw(some(["drv", "drv", "other"])), *draw(st.lists(devices(), max_size=2)))
    found = found.named(draw(some(SLICES))).pool(draw(some(["p1", "p1", "p2"])))
    found = found.generation(draw(some([1, 1, 1, 2]))).of(draw(some([1, 1, 2])))
    match draw(some(["", "", "everywhere", "where"])):
        case "everywhere":
            found = found.everywhere()
        case "where":
            found = found.where("zone", draw(some(ZONES)))
    return found


def with_request(claim: ClaimBuilder, kind: str, name: str) -> ClaimBuilder:
    match kind:
        case "all":
            return claim.request("r", name, every=True)
        case "two":
            return claim.request("r", name, count=2).match("drv/color")
        case "first":
            return claim.first_available("r", an_option("s", name, count=2), an_option("t", "x"))
        case "admin":
            return claim.request("r", name, admin=True)
    return claim.request("r", name)


KINDS_OF_REQUESTS = ["one", "one", "one", "all", "two", "first", "admin"]


@st.composite
def claims(draw: st.DrawFn, name: str = "") -> ClaimBuilder:
    name = name or draw(some(CLAIMS))
    found = with_request(a_claim(name), draw(some(KINDS_OF_REQUESTS)), draw(some(["w", "w", "w", "x"])))
    if name == OWN:
        found = found.owned_by(WAITS, draw(some([UID, UID, UID, "another"])))
    if draw(some([False, False, True])):
        device = f"drv/{draw(some(['p1', 'p2']))}/{draw(some(DEVICES))}"
        conditions: dict[str, Any] = {"binding": ("ready",), "binding_failure": ("failed",)}
        is_bound = draw(st.booleans())
        found = found.allocated(a_result("r", device, **({} if is_bound else conditions)), on=draw(some(["", *NODES])))
        found = found.allocated_at(draw(some([WRITTEN_LONG_AGO, "2023-11-14T22:29:00Z"])))
        for user in draw(st.lists(some(["q", "r", WAITS]), max_size=2, unique=True)):
            found = found.reserved_for(user, f"uid-{user}")
        for condition in draw(st.lists(some(["ready", "failed"]), max_size=1)):
            found = found.condition(device, condition)
    return found.deleting() if draw(some([False] * 7 + [True])) else found


def uses(*names: str) -> dict[str, Any]:
    """A pod with these claims: the one that is made for it comes from a template. "": an extended resource."""
    entries = [
        {"name": "e", "resourceClaimTemplateName": "t"} if name == OWN else {"name": name, "resourceClaimName": name}
        for name in names
        if name
    ]
    made = {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": OWN}]} if OWN in names else {}
    return {
        "resourceClaims": entries,
        "status": made,
        **({"containers": requesting(**{GPU: "1"})} if "" in names else {}),
    }


def _rival(name: str, claim: str) -> Thing:
    return Thing(f"rival({name} with {claim or GPU})", once(name, **uses(claim)))


def _nominated(claim: str, on: str) -> Thing:
    """`s` of another scheduler, more important, is to have its device there; "": nowhere any more."""

    def happens(sched: SchedulerHarness) -> None:
        seen = sched.seen.get("s")
        used = _used_by(seen) if isinstance(seen, Pod) else claim
        if not (isinstance(seen, Pod) and seen.spec.node_name):
            pod("s", scheduler="another", priority=1, nominated=on, **uses(used))(sched)

    return Thing(f"nominated(s with {claim or GPU} to {on})", happens)


def _bound(on: str, device: str = "drv/p9/d0") -> Thing:
    """`s` is, with this device, which no slice has, or with none."""

    def happens(sched: SchedulerHarness) -> None:
        seen = sched.seen.get("s")
        if not isinstance(seen, Pod) or seen.spec.node_name or on not in sched.nodes:
            return
        claim = _used_by(seen)
        there = sched.writer.resource_claims.get(f"default/{claim}")
        if isinstance(there, ResourceClaim) and not there.is_allocated:
            given = with_request(a_claim(claim), "one", "w").allocated(a_result("r", device), on=on)
            comes(given.reserved_for("s", "uid-s")).happens(sched)
        pod("s", scheduler="another", priority=1, on=on, **uses(claim))(sched)

    return Thing(f"bound(s on {on} with {device})", happens)


def _used_by(seen: Pod) -> str:
    return next((entry.resource_claim_name or "" for entry in seen.spec.resource_claims), "")


stored = st.one_of(*(kind.map(comes) for kind in (claims(), claims(), slices(), slices(), slices(), classes())))
rivals = st.builds(_rival, some(["q", "r"]), some(["c", "d", "d", ""]))
nominations = st.one_of(
    st.builds(_nominated, some(["d", "e", ""]), some([*NODES, ""])),
    st.builds(_bound, some(NODES), some(["drv/p9/d0", "drv/p1/d0"])),
)
removals = st.one_of(
    st.builds(leaves, some(["q", "r", "q", "r", "s", *NODES])),
    nominations,
    *(
        st.builds(goes, st.just(kind), some(names))
        for kind, names in (("ResourceClaim", CLAIMS), ("ResourceSlice", SLICES), ("DeviceClass", CLASSES))
    ),
)
acts = some([Thing(act.__name__, act) for act in (relays, relays, breaks, fails, hangs, mends)])
before = st.one_of(stored, stored, stored, nodes, rivals, acts)
things = st.one_of(stored, stored, nodes, rivals, removals, removals, acts, some([1.0, 11.0, 130.0, 610.0]).map(passes))

SLICE: Final = a_slice("n1", "drv", a_device("d0")).named("s1").pool("p1")
HELD: Final = with_request(a_claim("c"), "one", "w").allocated(a_result("r", "drv/p1/d0"), on="n2")
START: Final = (
    _node("n1", "a", "110", ""),
    comes(a_device_class("w").extended_resource(GPU)),
    comes(with_request(a_claim("c"), "one", "w")),
    comes(with_request(a_claim("d"), "one", "x")),
    comes(with_request(a_claim("e"), "one", "w")),
    comes(with_request(a_claim(OWN), "one", "w").owned_by(WAITS, UID)),
)
"""There are no devices, and no class for the second claim, unless something else is there."""
ON_ITS_WAY: Final = (
    comes(SLICE),
    comes(with_request(a_claim("d"), "one", "w")),
    Thing("hangs", hangs),
    _rival("q", "d"),
)
"""The only device is being allocated to another claim."""
SHARED: Final = (comes(SLICE), Thing("hangs", hangs), _rival("q", "c"))
"""The claim is being allocated for another pod."""
WATCHED: Final = (
    comes(SLICE.device(a_device("d1"))),
    comes(with_request(a_claim("c"), "admin", "w")),
    Thing("hangs", hangs),
    _rival("q", "c"),
)
"""As before, without taking any device."""
STANDS_IN: Final = (comes(SLICE), Thing("hangs", hangs), _rival("q", ""))
"""The only device is on its way to a claim that has to be made first."""
FAR: Final = (comes(SLICE), comes(HELD.reserved_for("q", "uid-q").reserved_for("r", "uid-r")))
"""The claim has a device on another node, and two pods use it there."""
UNREADY: Final = (
    comes(SLICE),
    comes(
        with_request(a_claim("c"), "one", "w")
        .allocated(a_result("r", "drv/p1/d0", binding=("ready",)))
        .allocated_at(WRITTEN_LONG_AGO)
        .reserved_for("q", "uid-q")
    ),
)
"""The claim's device has not become ready in time, and another pod uses it."""
HALF: Final = (comes(SLICE.of(2)),)
"""The pool is not complete."""
KEPT: Final = (comes(SLICE), _node("n2", "b", "110", ""), _nominated("e", "n1"))
"""The only device is kept for a pod that is nominated."""
KEPT_AFAR: Final = (comes(SLICE.everywhere()), _node("n2", "b", "110", ""), _nominated("e", "n2"))
"""As before, and it can be used on any node."""
KEPT_AS: Final = (comes(SLICE), _node("n2", "b", "110", ""), _nominated("", "n1"))
"""As before, in place of a resource."""
KEPT_AFAR_AS: Final = (*KEPT_AFAR[:-1], _nominated("", "n2"))
BY_ANOTHER_CLASS: Final = (comes(a_device_class("x")), comes(with_request(a_claim("c"), "one", "x")))
KEPT_BY_ANOTHER: Final = (*BY_ANOTHER_CLASS, *KEPT)
KEPT_AFAR_BY_ANOTHER: Final = (*BY_ANOTHER_CLASS, *KEPT_AFAR)
KEPT_AS_BY_ANOTHER: Final = (*BY_ANOTHER_CLASS, *KEPT_AS)
STARTS: Final = [
    *((), (), ON_ITS_WAY, SHARED, WATCHED, STANDS_IN, FAR, UNREADY, HALF, KEPT, KEPT_AFAR, KEPT_AS, KEPT_AFAR_AS),
    *(KEPT_BY_ANOTHER, KEPT_AFAR_BY_ANOTHER, KEPT_AS_BY_ANOTHER),
]
HELP: Final = [
    *(leaves("q"), Thing("mends", mends), Thing("relays", relays), Thing("fails", fails), passes(11.0)),
    *(comes(SLICE), comes(SLICE.of(2).named("s2")), goes("ResourceClaim", "d"), _node("n2", "b", "110", "")),
    *(comes(HELD), comes(a_device_class("x")), _node("n1", "a", "110", "1")),
    *(leaves("s"), leaves("n2"), _nominated("e", ""), _bound("n2"), goes("ResourceClaim", "e")),
]
"""What lets a pod pass that would wait in one of these for long otherwise."""

# -- the law -----------------------------------------------------------------------------------------------------------


def being_given_back(sched: SchedulerHarness) -> set[str]:
    """Return claims with a deallocation or release that the server has not answered."""
    plugins = sched.parts.profiles["kubestow"].reserve
    return {
        key for plugin in plugins if isinstance(plugin, DynamicResources) for key in plugin._binder._background._about
    }


async def look(sched: SchedulerHarness, there: list[Thing], wants: tuple[str, ...], then: list[Thing]) -> None:
    """A pod that is left waiting is tried by force."""
    if not await is_left_waiting(sched, there, uses(*wants), then):
        return
    plugins = refusers(sched)
    said = sched.message(WAITS) if place(sched) == "unschedulable" else "gated"
    asked, under_way = len(sched.writer.claim_writes), being_given_back(sched)

    await forced(sched)

    assert place(sched) != "placed", f"refused by {plugins}: {said}"
    assert [] == [(what, key) for what, key in sched.writer.claim_writes[asked:] if key not in under_way], (
        f"refused by {plugins}: {said}"
    )


@settings(max_examples=examples(200, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    one=some([DEFAULT, PARITY]),
    start=some(STARTS),
    there=st.lists(before, max_size=4),
    wants=some([("c",), ("c",), ("c", "d"), (OWN,), (OWN, "c"), ("",), ("", "c")]),
    then=st.lists(st.one_of(things, some(HELP)), min_size=1, max_size=5),
)
async def test_a_waiting_pod_would_be_refused(
    one: KubeSchedulerProfile, start: tuple[Thing, ...], there: list[Thing], wants: tuple[str, ...], then: list[Thing]
) -> None:
    """Whatever is there, and whatever happens."""
    sched = harness_of(one)
    try:
        await look(sched, [*START, *start, *there], wants, then)
    finally:
        await ended(sched)
