"""Rows of the table of hints: devices that claims are to get (docs/spec/dra.md §7)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, a_toleration
from simulator.builders.devices import DeviceBuilder, a_device, a_device_class, a_slice
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import (
    CAME,
    GONE,
    LABELLED,
    POD_CAME,
    POD_GONE,
    RESIZED_NODE,
    Thing,
    gone,
    leaves,
    news,
    node,
    node_gone,
    pod,
    requesting,
    wakes,
)
from tests.unit.hints.hint_rows_limits import removed, stored

PLUGIN: Final = "DynamicResources"
OWN_GENERATED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
CLAIM_CAME, CLAIM_CHANGED, CLAIM_GONE = news(Resource.RESOURCE_CLAIM)
CLASS_CAME, CLASS_CHANGED, CLASS_GONE = news(Resource.DEVICE_CLASS)
SLICE_CAME, SLICE_CHANGED, SLICE_GONE = news(Resource.RESOURCE_SLICE)
GPU: Final = "example.com/gpu"


def uses(*names: str) -> dict[str, Any]:
    """`resourceClaims` of these claims."""
    return {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in names]}


def claimed(name: str, device_class: str = "gpu", version: int = 1) -> ClaimBuilder:
    return a_claim(name).uid(name).request("r", device_class).resource_version(str(version))


def held(name: str, device: str = "drv/n1/d0", version: int = 1, *, on: str = "") -> ClaimBuilder:
    return claimed(name, version=version).allocated(a_result("r", device), on=on)


def plans(claim: ClaimBuilder) -> Thing:
    """A binding of ours is about to write the allocation."""
    return lambda sched: sched.cluster.devices.claims.signal(claim.typed().uid, claim.typed())


def drops(claim: ClaimBuilder) -> Thing:
    """The binding gives up before it writes."""

    def happens(sched: SchedulerHarness) -> None:
        sched.cluster.devices.claims.drop_pending(claim.typed().uid)
        sched.parts.event_handlers.devices.tick()

    return happens


def overtaken(claim: ClaimBuilder) -> Thing:
    """Another scheduler allocates the claim first."""

    def happens(sched: SchedulerHarness) -> None:
        stored(claim)[0](sched)
        sched.parts.event_handlers.devices.tick()

    return happens


def generated(claim: str, **metadata: Any) -> Thing:
    """The status of the waiting pod names the claim that was generated for it."""
    status = {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": claim}]}
    return pod("p", **TEMPLATE, status=status, **metadata)


def nominated(on: str = "n1", *, name: str = "q", **spec: Any) -> Thing:
    """A more important pod of another scheduler is to go there."""
    return pod(name, scheduler="another", nominated=on, priority=1, **spec)


def situation(*given: Thing, waits: dict[str, Any] | None = None) -> dict[str, Any]:
    """Our pod waits for a device for its claim, or for something else, while there is this."""
    return {"given": given, "waits": uses("c") if waits is None else waits}


def _part(name: str, units: str, size: str = "half") -> DeviceBuilder:
    return a_device(name).attr("size", size).consumes("card", {"units": units})


HERE = node("n1")
CLASS = a_device_class("gpu")
D0 = a_device("d0")
ONE = a_slice("n1", "drv", D0)
NONE = situation(HERE, *stored(CLASS, claimed("c"), claimed("idle"), held("other")))
"""There are no devices."""
TAKEN = situation(*NONE["given"], *stored(ONE))
"""There is one, and another claim has it."""
PLANNED = situation(HERE, *stored(CLASS, ONE, claimed("c"), claimed("other")), plans(held("other")))
"""Another claim is about to get it."""
LEAVING = situation(*NONE["given"], pod("q", on="n1", **uses("idle")), pod("r", on="n1"))
AWAY = held("c", "drv/n2/d0", on="n2")
FAR = situation(HERE, *stored(CLASS, AWAY.reserved_for("q").reserved_for("r"), held("other")))
"""The claim has a device on another node, and two pods use it there."""
MISSING = situation(HERE, waits=uses("late"))
LATE = situation(HERE, *stored(claimed("c", "late")))
TEMPLATE: dict[str, Any] = {"resourceClaims": [{"name": "e", "resourceClaimTemplateName": "t"}]}
MADE = situation(HERE, *stored(CLASS, ONE, claimed("p-e").owned_by("p", "uid-p")), waits=TEMPLATE)
SERVED = CLASS.extended_resource(GPU).created("2026-01-01T00:00:00Z")
NEWER = a_device_class("newer", "false").extended_resource(GPU).created("2026-01-02T00:00:00Z")
GPUS: dict[str, Any] = {"containers": requesting(**{GPU: "1"})}
STANDS_IN = situation(HERE, *stored(SERVED, NEWER, ONE), waits=GPUS)
"""A class serves what no node has, and takes no device."""
TAINTED = a_slice("n1", "drv", D0.taint("broken"))
WORN = situation(HERE, *stored(CLASS, TAINTED, claimed("c")))
D1 = a_device("d1")
FIRST, SECOND = ONE.of(2).named("first"), a_slice("n1", "drv", D1).of(2).named("second")
NEXT = a_slice("n1", "drv", D1).generation(2).of(2).named("next")
RENEWED = situation(HERE, *stored(CLASS, ONE, NEXT, claimed("c")))
"""The newest generation of the pool is not complete."""
EVERY = a_claim("c").uid("c").request("r", "gpu", every=True).resource_version("1")
ALL = situation(HERE, *stored(CLASS, a_slice("n1", "drv", D0, D1), EVERY, held("other")))
TO_HAVE_IT = nominated(**uses("other"))
KEPT = situation(HERE, *stored(CLASS, ONE, claimed("c"), claimed("other")), TO_HAVE_IT)
"""There is a free one, kept for another pod."""
KEPT_AS = situation(HERE, *stored(SERVED, ONE, claimed("c")), nominated(**GPUS))
KEPT_NOTHING = situation(*KEPT["given"], nominated(name="r"))
KEPT_AFAR = situation(HERE, node("n2"), node("n3"), *stored(CLASS, ONE.everywhere(), claimed("c"), claimed("other")),
    nominated("n2", **uses("other")))  # fmt: skip
"""It can be used on any node."""
CLASSES = (CLASS, a_device_class("by"), a_device_class("late"))
KEPT_BY = situation(HERE, *stored(*CLASSES, ONE, claimed("c"), claimed("other", "by")), TO_HAVE_IT)
"""The other pod's claim is of another class."""
TWO = a_claim("other").uid("other").request("r", "gpu", count=2).resource_version("1")
RUNS = pod("r", on="n1", **uses("idle"))
KEPT_TWO = situation(HERE, *stored(CLASS, a_slice("n1", "drv", D0, D1), claimed("c"), claimed("idle"), TWO), RUNS, TO_HAVE_IT)  # fmt: skip
"""Both devices are for another pod."""
KEPT_WHOLE = situation(
    HERE,
    *stored(CLASS, a_device_class("whole", 'device.attributes["drv"].size == "whole"')),
    *stored(a_slice("n1", "drv").named("set").counters("card", {"units": "4"}).of(2)),
    *stored(a_slice("n1", "drv", _part("all", "4", "whole"), _part("one", "2"), _part("two", "2")).of(2)),
    *stored(claimed("c"), claimed("idle"), claimed("other", "whole")),
    RUNS,
    TO_HAVE_IT,
)
"""All of a card is for another pod."""
TOLERATES = a_claim("c").uid("c").request("r", "gpu", tolerations=[a_toleration("broken")]).resource_version("1")
TOLERANT = situation(HERE, *stored(CLASS, ONE, claimed("other"), TOLERATES), TO_HAVE_IT)
USED = held("other").reserved_for("q", "uid-q")
RUNNING = situation(HERE, *stored(CLASS, ONE, claimed("c"), USED), pod("q", on="n1", **uses("other")))

ROWS: Final[list[Any]] = [
    wakes(PLUGIN, POD_GONE, "the pod goes that a device was kept for", **KEPT, then=gone("q")),
    wakes(PLUGIN, POD_GONE, "the pod is bound elsewhere that a device was kept for", given=(*KEPT["given"], node("n2")),
        waits=KEPT["waits"], then=pod("q", scheduler="another", on="n2", priority=1, **uses("other"))),
    wakes(PLUGIN, POD_CAME, "the pod is bound without the device that was kept for it", **KEPT_AS,
        then=pod("q", scheduler="another", on="n1", priority=1, **GPUS)),
    leaves(PLUGIN, POD_CAME, "the pod is bound with the device that was kept for it", **KEPT,
        while_waiting=stored(held("other", version=2).reserved_for("q", "uid-q")),
        then=pod("q", scheduler="another", on="n1", priority=1, **uses("other"))),
    wakes(PLUGIN, POD_GONE, "the pod goes that a device was kept for instead of its resource", **KEPT_AS, then=gone("q")),
    leaves(PLUGIN, POD_GONE, "a pod goes whose claim has not given back its device yet", **RUNNING, then=gone("q")),
    leaves(PLUGIN, POD_GONE, "a pod goes that was nominated and needs no devices", **KEPT_NOTHING, then=gone("r")),
    wakes(PLUGIN, GONE, "the node goes where a pod is nominated that a device was kept for", **KEPT_AFAR, then=node_gone("n2")),
    leaves(PLUGIN, GONE, "a node goes to which no pod is nominated", **KEPT_AFAR, then=node_gone("n3")),
    wakes(PLUGIN, CLAIM_GONE, "the claim goes of a pod that a device was kept for", **KEPT,
        then=removed(claimed("other"))),
    wakes(PLUGIN, CLAIM_CHANGED, "the claim of a pod that a device was kept for gets another one", **KEPT,
        then=stored(held("other", "drv/n2/d0", 2).reserved_for("r", "uid-r"))),
    wakes(PLUGIN, CLAIM_CHANGED, "a pod gets another device than was kept for it", **KEPT,
        then=stored(held("other", "drv/n2/d0", 2).reserved_for("q", "uid-q"))),
    wakes(PLUGIN, CLAIM_CHANGED,
        "a pod is bound where it was nominated, with another device than was kept for it, which all nodes see",
        **KEPT_AFAR, then=(*stored(held("other", "drv/n9/d0", 2).reserved_for("q", "uid-q")),
        pod("q", scheduler="another", on="n2", priority=1, **uses("other")))),
    wakes(PLUGIN, CLAIM_CHANGED, "one of two devices is taken that were kept for a pod, which needs both", **KEPT_TWO,
        then=stored(held("idle", "drv/n1/d1", 2).reserved_for("r", "uid-r"))),
    wakes(PLUGIN, CLAIM_CHANGED, "half of a card is taken that was kept for a pod, which needs all of it", **KEPT_WHOLE,
        then=stored(held("idle", "drv/n1/one", 2).reserved_for("r", "uid-r"))),
    leaves(PLUGIN, CLAIM_CHANGED, "a device is taken that was kept for no pod", **KEPT_TWO,
        then=stored(held("idle", "drv/n2/d0", 2).reserved_for("r", "uid-r"))),
    wakes(PLUGIN, CLASS_GONE, "the class goes that a device was kept by", **KEPT_BY, then=removed(a_device_class("by"))),
    wakes(PLUGIN, CLASS_GONE, "a class goes that no device was kept by, in vain", **KEPT_BY, then=removed(a_device_class("late"))),
    wakes(PLUGIN, CLASS_CHANGED, "a device is kept by a class no more", **KEPT_BY, then=stored(a_device_class("by", "false"))),
    wakes(PLUGIN, CLASS_CHANGED, "a device is kept by a class that changes, in vain", **KEPT_BY, then=stored(a_device_class("by", "true"))),
    wakes(PLUGIN, SLICE_CHANGED, "a device that is kept for a pod gets a taint, and only the waiting pod tolerates it",
        **TOLERANT, then=stored(TAINTED)),
    wakes(PLUGIN, RESIZED_NODE, "the node has what a device was kept for instead of", **KEPT_AS,
        then=node("n1", **{GPU: "1"})),
    leaves(PLUGIN, RESIZED_NODE, "a node grows where a device is kept", **KEPT_AS, then=node("n1", cpu="64")),
    leaves(PLUGIN, CLAIM_CHANGED, "a pod gets the device that was kept for it", **KEPT,
        then=stored(held("other", version=2).reserved_for("q", "uid-q"))),
    wakes(PLUGIN, CAME, "a node comes", **NONE, then=node("n2")),
    leaves(PLUGIN, CAME, "a node comes and its claim is not there", **MISSING, then=node("n2")),
    wakes(PLUGIN, LABELLED, "a node gets another label", **NONE, then=node("n1", labels={"k": "v"})),
    leaves(PLUGIN, LABELLED, "a node is labelled and its claim is not there", **MISSING, then=node("n1", labels={"k": "v"})),
    wakes(PLUGIN, RESIZED_NODE, "a node has what devices stood in for", **STANDS_IN, then=node("n1", **{GPU: "1"})),
    leaves(PLUGIN, RESIZED_NODE, "a node grows and it only has claims", **NONE, then=node("n1", cpu="64")),
    wakes(PLUGIN, CLAIM_CAME, "its claim comes", **MISSING, then=stored(claimed("late"))),
    leaves(PLUGIN, CLAIM_CAME, "another claim comes", **MISSING, then=stored(claimed("later"))),
    wakes(PLUGIN, CLAIM_CHANGED, "its claim is allocated", **NONE, then=stored(held("c", version=2))),
    wakes(PLUGIN, CLAIM_CHANGED, "its claim has another user less", **FAR,
        then=stored(held("c", "drv/n2/d0", 2, on="n2").reserved_for("q"))),
    wakes(PLUGIN, CLAIM_CHANGED, "another claim gives its device back", **TAKEN, then=stored(claimed("other", version=2))),
    leaves(PLUGIN, CLAIM_CHANGED, "another claim gives its device back and it has one", **FAR,
        then=stored(claimed("other", version=2))),
    leaves(PLUGIN, CLAIM_CHANGED, "its claim is labelled", **NONE, then=stored(claimed("c", version=2).label("a", "b"))),
    leaves(PLUGIN, CLAIM_CHANGED, "another claim is allocated", **NONE, then=stored(held("idle", "drv/n2/d0", 2))),
    wakes(PLUGIN, CLAIM_GONE, "another claim goes with its device", **TAKEN, then=removed(held("other"))),
    leaves(PLUGIN, CLAIM_GONE, "another claim goes that had none", **TAKEN, then=removed(claimed("idle"))),
    wakes(PLUGIN, DEVICES_GIVEN_BACK, "another claim is not to get the device after all", **PLANNED, then=drops(held("other"))),
    wakes(PLUGIN, DEVICES_GIVEN_BACK, "another claim was to get the device, and gets another one from another scheduler",
        **PLANNED, then=overtaken(held("other", "drv/n2/d0", 2))),
    leaves(PLUGIN, DEVICES_GIVEN_BACK, "another claim is not to get a device, and it has one", given=(*FAR["given"],
        *stored(claimed("idle")), plans(held("idle", "drv/n1/d1"))), waits=FAR["waits"], then=drops(held("idle"))),
    wakes(PLUGIN, DEVICES_GIVEN_BACK, "its claim was to be allocated for another pod, and is not",
        given=(*PLANNED["given"], plans(held("c", "drv/n2/d0"))), waits=uses("c"), then=drops(held("c"))),
    leaves(PLUGIN, POD_GONE, "a pod goes that nothing was kept for", **LEAVING, then=gone("q")),
    leaves(PLUGIN, POD_GONE, "a pod goes that had nothing to do with devices", **LEAVING, then=gone("r")),
    wakes(PLUGIN, OWN_GENERATED, "its claim was made", **MADE, then=generated("p-e")),
    leaves(PLUGIN, OWN_GENERATED, "its claim was made and has not been seen", **MADE, then=generated("p-e-2")),
    wakes(PLUGIN, CLASS_CAME, "its class comes", **LATE, then=stored(a_device_class("late"))),
    leaves(PLUGIN, CLASS_CAME, "another class comes", **LATE, then=stored(a_device_class("later"))),
    wakes(PLUGIN, CLASS_CHANGED, "its class takes other devices", **TAKEN, then=stored(a_device_class("gpu", "true"))),
    leaves(PLUGIN, CLASS_CHANGED, "its class is labelled", **TAKEN, then=stored(CLASS.label("a", "b"))),
    wakes(PLUGIN, CLASS_CHANGED, "another class serves its resource", **STANDS_IN, then=stored(NEWER.extended_resource("x/y"))),
    wakes(PLUGIN, CLASS_GONE, "the class goes that served its resource", **STANDS_IN, then=removed(NEWER)),
    leaves(PLUGIN, CLASS_GONE, "its class goes", **TAKEN, then=removed(CLASS)),
    wakes(PLUGIN, SLICE_CAME, "devices come", **NONE, then=stored(ONE)),
    leaves(PLUGIN, SLICE_CAME, "the first half of a pool comes", **NONE, then=stored(FIRST)),
    wakes(PLUGIN, SLICE_CAME, "the second half comes", **NONE, while_waiting=stored(FIRST), then=stored(SECOND)),
    leaves(PLUGIN, SLICE_CAME, "devices come and its claim is not there", **MISSING, then=stored(ONE)),
    leaves(PLUGIN, SLICE_CAME, "devices come and it has one", **FAR, then=stored(ONE)),
    wakes(PLUGIN, SLICE_CHANGED, "a device is whole again", **WORN, then=stored(ONE)),
    wakes(PLUGIN, SLICE_CHANGED, "the pool is smaller than its driver had said", **NONE, while_waiting=stored(FIRST),
        then=stored(FIRST.of(1))),
    wakes(PLUGIN, SLICE_CHANGED, "a device is tainted, and it wants all", **ALL, then=stored(a_slice("n1", "drv", D0.taint("x"), D1))),
    leaves(PLUGIN, SLICE_CHANGED, "a device is tainted", **TAKEN, then=stored(TAINTED)),
    leaves(PLUGIN, SLICE_CHANGED, "a slice is labelled", **TAKEN, then=stored(ONE.label("a", "b"))),
    wakes(PLUGIN, SLICE_GONE, "what was new in the pool goes", **RENEWED, then=removed(NEXT)),
    leaves(PLUGIN, SLICE_GONE, "the last slice of a pool goes", **TAKEN, then=removed(ONE)),
    wakes("NodeResourcesFit", CLASS_CAME, "a class serves what no node has", given=HERE, waits=GPUS,
        then=stored(SERVED)),
    leaves("NodeResourcesFit", CLASS_CAME, "a class comes", given=HERE, waits=GPUS, then=stored(CLASS)),
    wakes("NodeResourcesFit", CLASS_CHANGED, "a class serves what no node has from now on",
        given=(HERE, *stored(CLASS)), waits=GPUS, then=stored(SERVED)),
    leaves("NodeResourcesFit", CLASS_CHANGED, "a class is labelled", given=(HERE, *stored(CLASS)), waits=GPUS,
        then=stored(CLASS.label("a", "b"))),
]  # fmt: skip
