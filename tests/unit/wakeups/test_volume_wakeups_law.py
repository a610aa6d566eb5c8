"""A law of the queue and of the plugins for volumes: a pod that fits by now does not wait for something else.

A small cluster with volumes, and a pod with claims that fits nowhere. Then things happen, and the pod is tried again only
when one of them wakes it. Left waiting at the end, it is tried by force: it must be refused (docs/spec/volumes.md §7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.decode import ObjectDecoder
from scheduler.api.storage_v1 import CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from scheduler.config.types import KubeSchedulerProfile
from scheduler.core.errors import Forbidden, Unavailable
from scheduler.kube.resources import KINDS
from simulator.builders.core import Builder
from tests.examples import SLOW_SHARE, examples
from tests.support.volumebuilders import (
    CapacityBuilder,
    ClaimBuilder,
    CSIDriverBuilder,
    CSINodeBuilder,
    PersistentVolumeBuilder,
    StorageClassBuilder,
    a_capacity,
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_pv,
    an_attachment,
)
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import DEFAULT, WAITS, harness_of, node
from tests.unit.wakeups import happenings
from tests.unit.wakeups.happenings import (
    PARITY,
    UID,
    Thing,
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

DRIVER, OTHER = "ebs.csi.aws.com", "other.example.com"
IN_TREE: Final = "kubernetes.io/aws-ebs"
ZONE, CSI_ZONE = "topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"


# -- what the watch shows ----------------------------------------------------------------------------------------------


def deliver(sched: SchedulerHarness, kind: str, name: str, new: Any) -> None:
    """It is now like this, on the server too; None: it is gone."""
    old = known(sched).get((kind, name))
    if old is not None and new is not None and _fixed(old) != _fixed(new):
        happenings.deliver(sched, kind, name, None)
    happenings.deliver(sched, kind, name, new)
    where: Any = {"PersistentVolume": sched.writer.volumes, "PersistentVolumeClaim": sched.writer.claims}.get(kind)
    if where is not None and new is None and old is not None:
        where.pop(old.key, None)
    elif where is not None and new is not None:
        where[new.key] = new


def _fixed(of: Any) -> tuple[object, ...]:
    """What never changes: what has it otherwise is another object by that name, and comes when the first has gone."""
    match of:
        case StorageClass():
            return of.provisioner, of.volume_binding_mode
        case CSIStorageCapacity():
            return of.storage_class_name, of.node_topology
        case PersistentVolumeClaim():
            return of.storage_class, of.spec.access_modes
    return ()


def comes(builder: Builder[Any]) -> Thing:
    """It comes or changes, with a newer version, and a uid that is its name."""
    raw = builder.obj()
    kind, name = raw["kind"], raw["metadata"]["name"]
    typ = KINDS[kind].typ
    assert typ is not None

    def happens(sched: SchedulerHarness) -> None:
        sched.writer.newest += 1
        raw["metadata"] |= {"uid": name, "resourceVersion": str(sched.writer.newest)}
        deliver(sched, kind, name, ObjectDecoder(kind, typ).decode(msgspec.json.encode(raw)))

    return Thing(f"comes({_spoken(raw)})", happens, f"{kind} {name}")


def goes(kind: str, name: str) -> Thing:
    """It is deleted, if it is there."""
    return Thing(f"goes({kind} {name})", lambda sched: deliver(sched, kind, name, None), f"{kind} {name} goes")


def _spoken(raw: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in raw.items() if key not in {"kind", "apiVersion", "metadata"}}
    more = {key: value for key, value in raw["metadata"].items() if key not in {"name", "namespace", "uid"}}
    return f"{raw['kind']} {raw['metadata']['name']} {more} {rest}"


def relays(sched: SchedulerHarness) -> None:
    """The watch shows what was written."""
    for obj in (*sched.writer.volumes.values(), *sched.writer.claims.values()):
        seen = known(sched).get((type(obj).__name__, obj.metadata.name))
        if seen is not None and seen.metadata.resource_version != obj.metadata.resource_version:
            deliver(sched, type(obj).__name__, obj.metadata.name, obj)


def breaks(sched: SchedulerHarness) -> None:
    """The server takes no writes from now on."""
    sched.writer.on_prebind = sched.writer.on_select = refusing(Forbidden("no"))


def hangs(sched: SchedulerHarness) -> None:
    """It may take them some time."""
    sched.writer.on_prebind = sched.writer.on_select = refusing(Unavailable("busy"))


def mends(sched: SchedulerHarness) -> None:
    """It takes them again."""
    sched.writer.on_prebind = sched.writer.on_select = None


# -- what there can be -------------------------------------------------------------------------------------------------

NODES = ["n1", "n2"]
CLASSES = ["w", "x"]
CLAIMS = ["c", "d", f"{WAITS}-e"]
VOLUMES = ["u", "v"]
ZONES = ["a", "b"]
SIZES = ["1Gi", "3Gi", "9Gi"]


def _node(name: str, zone: str, room: str) -> Thing:
    shown = node(name, labels={ZONE: zone, CSI_ZONE: zone} if zone else {}, pods=room)
    return Thing(f"node({name} {zone} {room})", shown, f"Node {name}")


nodes = st.builds(_node, some(NODES), some(["", *ZONES]), some(["110", "110", "0"]))


@st.composite
def classes(draw: st.DrawFn) -> StorageClassBuilder:
    provisioner = draw(some([None, DRIVER, DRIVER, OTHER]))
    found = a_class(draw(some(CLASSES)), *([provisioner] if provisioner else []))
    found = found.binding_mode(draw(some(["WaitForFirstConsumer"] * 4 + ["Immediate", None])))
    zone = draw(some(["", "", *ZONES]))
    return found.allowed(ZONE, zone) if zone else found


@st.composite
def volumes(draw: st.DrawFn) -> PersistentVolumeBuilder:
    name = draw(some(VOLUMES))
    found = a_pv(name, draw(some(SIZES)), draw(some(["", *CLASSES, *CLASSES])))
    match draw(some(["", "", "csi", "in tree"])):
        case "csi":
            found = found.csi(DRIVER)
        case "in tree":
            found = found.source(awsElasticBlockStore={"volumeID": f"aws://a/vol-{name}"})
    match draw(some(["", "", "label", "affinity"])):
        case "label":
            found = found.label(ZONE, draw(some(ZONES)))
        case "affinity":
            found = found.where(ZONE, draw(some(ZONES)))
    claim = draw(some(["", "", "", *CLAIMS, "else"]))
    if claim:
        found = found.claimed_by(claim, uid=draw(some(["", claim, "another"])))
    found = found.phase(draw(some(["Available", "Available", "Available", "Bound", "Released"])))
    return found.deleting() if draw(some([False] * 7 + [True])) else found


@st.composite
def claims(draw: st.DrawFn) -> ClaimBuilder:
    name = draw(some(CLAIMS))
    found = a_claim(name, draw(some(SIZES)), draw(some(["", *CLASSES, *CLASSES, *CLASSES])))
    match draw(some(["", "", "", "bound", "bound", "wants", "selected", "selected", "lost", "deleting"])):
        case "bound":
            found = found.bound_to(draw(some(VOLUMES)))
        case "wants":
            found = found.wants(draw(some(VOLUMES)))
        case "selected":
            found = found.selected(draw(some([*NODES, "n3"])))
        case "lost":
            found = found.phase("Lost")
        case "deleting":
            found = found.deleting()
    if draw(some([False, False, True])):
        found = found.modes("ReadWriteOncePod")
    if name not in {"c", "d"} and draw(some([True, True, True, False])):
        found = found.owned_by(WAITS, UID)
    return found


@st.composite
def csi_nodes(draw: st.DrawFn) -> CSINodeBuilder:
    found = a_csi_node(draw(some(NODES)))
    if draw(st.booleans()):
        found = found.driver(DRIVER, draw(some([None, 0, 1])))
    return found.migrated(IN_TREE) if draw(st.booleans()) else found


@st.composite
def drivers(draw: st.DrawFn) -> CSIDriverBuilder:
    found = a_csi_driver(draw(some([DRIVER, DRIVER, OTHER])))
    if draw(some([True, True, False])):
        found = found.tracks_capacity()
    return found.must_be_registered() if draw(some([False, False, True])) else found


@st.composite
def capacities(draw: st.DrawFn) -> CapacityBuilder:
    found = a_capacity(draw(some(["k", "l"])), draw(some(CLASSES)), draw(some([None, *SIZES])))
    where = draw(some(["", *ZONES]))
    found = found.where(ZONE, where) if where else found.everywhere()
    maximum = draw(some([None, None, *SIZES]))
    return found.maximum(maximum) if maximum else found


attachments = st.builds(an_attachment, some(VOLUMES), some(NODES), some([DRIVER]))


def uses(*names: str) -> dict[str, Any]:
    """`volumes` of these claims; the last of the three is an ephemeral one."""
    return {
        "volumes": [
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
            if name.endswith("-e")
            else {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in names
        ]
    }


def _bound(name: str, on: str, claim: str) -> Thing:
    return Thing(f"bound({name} on {on} with {claim})", once(name, on=on, **uses(claim)))


def _rival(name: str, claim: str) -> Thing:
    return Thing(f"rival({name} with {claim})", once(name, **uses(claim)))


stored = st.one_of(
    *(kind.map(comes) for kind in (claims(), claims(), volumes(), volumes(), classes(), classes())),
    *(kind.map(comes) for kind in (csi_nodes(), drivers(), drivers(), capacities(), capacities(), attachments)),
)
pods = st.one_of(
    st.builds(_bound, some(["b1", "b2"]), some(NODES), some(["c", "d", "else"])),
    st.builds(_rival, some(["q", "r"]), some(["c", "d", "else"])),
)
removals = st.one_of(
    st.builds(leaves, some(["b1", "b2", "q", "r", "q", "r", *NODES])),
    *(
        st.builds(goes, st.just(kind), some(names))
        for kind, names in (
            ("PersistentVolumeClaim", CLAIMS),
            ("PersistentVolume", VOLUMES),
            ("StorageClass", CLASSES),
            ("CSINode", NODES),
            ("CSIDriver", [DRIVER, OTHER]),
            ("CSIStorageCapacity", ["k", "l"]),
            ("VolumeAttachment", [f"{volume}-{name}" for volume in VOLUMES for name in NODES]),
        )
    ),
)
acts = some([Thing(act.__name__, act) for act in (relays, relays, breaks, hangs, mends)])
before = st.one_of(stored, stored, stored, nodes, pods, acts)
things = st.one_of(stored, stored, nodes, pods, removals, removals, acts, some([1.0, 11.0, 130.0, 610.0]).map(passes))

START: Final = (
    _node("n1", "a", "110"),
    comes(a_class("w", DRIVER)),
    comes(a_csi_driver(DRIVER).tracks_capacity()),
    comes(a_csi_node("n1")),
    comes(a_claim("c", storage_class="w")),
    comes(a_claim("d", storage_class="x")),
    comes(a_claim(f"{WAITS}-e", storage_class="w").owned_by(WAITS, UID)),
)
"""There is no capacity for the first claim, and no class for the second, unless something else is there."""

LOCAL: Final = (
    comes(a_class("w")),
    comes(a_pv("u", storage_class="w")),
    comes(a_claim("d", storage_class="w")),
    Thing("hangs", hangs),
    _rival("q", "d"),
)
"""The only volume of the class is being bound to another claim."""
SHARED: Final = (
    comes(a_capacity("k", "w", "3Gi").everywhere()),
    Thing("hangs", hangs),
    _rival("q", "c"),
    _node("n1", "a", "1"),
    _node("n2", "b", "110"),
)
"""The claim is on its way to a node that is full."""
IN_FLIGHT: Final = (
    comes(a_claim("d", storage_class="w").selected("n1")),
    comes(a_capacity("k", "w", "1Gi").everywhere()),
)
"""The capacity is for a volume of another claim."""
MEANT: Final = (
    comes(a_class("w")),
    comes(a_pv("u", storage_class="w").where(ZONE, "b").claimed_by("c")),
    comes(a_pv("v", storage_class="w")),
)
"""There is a volume, but the claim is to have another one that is elsewhere."""
BETA: Final = "failure-domain.beta.kubernetes.io/zone"
IN_TREE_VOLUME: Final = (
    comes(a_claim("c").bound_to("u")),
    comes(a_pv("u").source(awsElasticBlockStore={"volumeID": "aws://a/vol-u"}).where(BETA, "a")),
)
"""Its volume says in old words where it is."""
FEW: Final = (
    comes(a_csi_node("n1").driver(DRIVER, 1)),
    comes(a_claim("c").bound_to("u")),
    comes(a_pv("u").csi(DRIVER)),
    comes(a_claim("d").bound_to("v")),
    comes(a_pv("v").csi(DRIVER)),
    _bound("b1", "n1", "d"),
)
"""The node attaches one volume, and has it."""
ALONE: Final = (comes(a_claim("c").bound_to("u").modes("ReadWriteOncePod")), comes(a_pv("u")), _bound("b1", "n1", "c"))
"""Only one pod may have the claim, and one has it."""
STARTS: Final = [(), (), LOCAL, SHARED, IN_FLIGHT, MEANT, IN_TREE_VOLUME, FEW, ALONE]
HELP: Final = [
    *(leaves("q"), leaves("b1"), Thing("mends", mends), Thing("relays", relays)),
    *(comes(a_pv("v", storage_class="w")), goes("PersistentVolume", "u"), comes(a_csi_node("n1").migrated(IN_TREE))),
    *(comes(a_claim("d", storage_class="w")), comes(a_capacity("k", "w").everywhere().maximum("1Gi"))),
    *(comes(a_csi_driver(DRIVER)), comes(a_class("x", DRIVER)), comes(a_csi_node("n1").driver(DRIVER, 2))),
]
"""What lets a pod pass that would wait in one of these for long otherwise."""

# -- the law -----------------------------------------------------------------------------------------------------------


def is_out_of_hearing(plugins: tuple[str, ...], wants: tuple[str, ...], then: list[Thing], *, is_parity: bool) -> bool:
    """NodeVolumeLimits has no hints for nodes and for the claims and volumes of other pods; upstream has fewer.

    No plugin has a hint for drivers and topologies that are taken back with a CSINode.
    """
    if "NodeVolumeLimits" not in plugins:
        return any(thing.about.startswith("CSINode") and thing.about.endswith("goes") for thing in then)
    heard = {f"PersistentVolumeClaim {claim}" for claim in wants} | {f"CSINode {name}" for name in NODES}
    return is_parity or any(thing.about and thing.about not in heard for thing in then)


async def look(sched: SchedulerHarness, there: list[Thing], wants: tuple[str, ...], then: list[Thing]) -> None:
    """A pod that is left waiting is tried by force."""
    if not await is_left_waiting(sched, there, uses(*wants), then):
        return
    plugins = refusers(sched)
    if is_out_of_hearing(plugins, wants, then, is_parity=sched.parts.profiles["kubestow"].ours.parity):
        return

    await forced(sched)

    assert place(sched) != "placed", f"refused by {plugins}: {sched.message(WAITS)}"


@settings(max_examples=examples(200, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    one=some([DEFAULT, PARITY]),
    start=some(STARTS),
    there=st.lists(before, max_size=4),
    wants=some([("c",), ("c",), ("c", "d"), (f"{WAITS}-e",), (f"{WAITS}-e", "c")]),
    then=st.lists(st.one_of(things, some(HELP)), min_size=1, max_size=5),
)
async def test_a_waiting_pod_would_be_refused(
    one: KubeSchedulerProfile, start: tuple[Thing, ...], there: list[Thing], wants: tuple[str, ...], then: list[Thing]
) -> None:
    sched = harness_of(one)
    try:
        await look(sched, [*START, *start, *there], wants, then)
    finally:
        await ended(sched)
