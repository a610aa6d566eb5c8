"""Rows of the table of hints: resources, ports, gates and groups (docs/spec/core.md §5.1–§5.5, §5.10, docs/spec/groups.md §3).

Also nominations that end: to pods of equal or lower priority a pod has left that node (§1.12, §1.13).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from scheduler.core.cluster_events import ASSIGNED_POD_ADD, UNSCHEDULED_POD_ADD, Action, ClusterEvent, Resource
from scheduler.eventhandlers.pod_groups import GROUPS_SERVED
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import (
    CAME,
    LABELLED,
    OWN_GATES,
    OWN_OTHER,
    OWN_SHRANK,
    POD_GONE,
    POD_OTHERWISE,
    POD_SHRANK,
    Thing,
    gone,
    leaves,
    listens,
    node,
    pod,
    requesting,
    wakes,
)

# -- pods go -----------------------------------------------------------------------------------------------------------

FIT: Final = "NodeResourcesFit"
PORTS: Final = "NodePorts"
GATES: Final = "SchedulingGates"
FULL = (node("n1"), pod("q", on="n1", cpu="4"))
WANTS_2: dict[str, Any] = {"cpu": "2"}
TAKEN = (node("n1"), pod("q", on="n1", containers=listens(80)), pod("r", on="n1", containers=listens(81)))
WANTS_80: dict[str, Any] = {"containers": listens(80)}


def nominee(**more: Any) -> Thing:
    """A pod of ours that is to come to n1, is gated, and needs it all."""
    return pod(
        "q", **{"cpu": "4", "containers": requesting(cpu="4"), "gates": ["g"], "nominated": "n1", "priority": 5, **more}
    )


def foreigner(**more: Any) -> Thing:
    """The same, of another scheduler."""
    return pod("q", **{"cpu": "4", "scheduler": "theirs", "nominated": "n1", "priority": 5, **more})


def in_memory(sched: SchedulerHarness) -> None:
    """The pod `q` is nominated to n1, and the watch has not shown it yet."""
    info = sched.parts.shared.pending.get("default/q")
    assert info is not None
    sched.parts.queue.nominator.add(info, "n1")


def gives_way(sched: SchedulerHarness) -> None:
    """A pod of higher priority is nominated to the node of `q`."""
    info = sched.parts.shared.pending.get("default/q")
    assert info is not None
    sched.parts.failures.clear_nomination(info)


HELD = (node("n1"), node("n2", cordoned=True), nominee())
HELD_BY_OTHERS = (node("n1"), node("n2", cordoned=True), foreigner())
HELD_SILENTLY = (node("n1"), node("n2", cordoned=True), nominee(nominated=""), in_memory)
LESS: dict[str, Any] = {"cpu": "2", "priority": 4}
CORDON = frozenset({"NodeUnschedulable"})


def held_back(text: str, then: Any, given: tuple[Thing, ...] = HELD) -> list[Any]:
    """Two pods wait because of the nomination that ends, of equal and of lower priority."""
    row: dict[str, Any] = {"given": given, "then": then, "also_refused_by": CORDON}
    return [
        wakes(FIT, POD_GONE, f"{text}, and it is less important", waits=LESS, **row),
        wakes(FIT, POD_GONE, f"{text}, and it is as important", waits={"cpu": "2", "priority": 5}, **row),
    ]


NOMINATIONS = [
    *held_back("a pod that was nominated to the node is deleted", gone("q")),
    *held_back("the nomination of a pod to the node is removed", nominee(nominated="")),
    *held_back("a pod is nominated to another node instead", nominee(nominated="n2")),
    *held_back("a pod that was nominated to the node is bound elsewhere", nominee(gates=(), on="n2")),
    *held_back("a foreign pod that was nominated to the node is deleted", gone("q"), HELD_BY_OTHERS),
    *held_back("the nomination of a foreign pod to the node is removed", foreigner(nominated=""), HELD_BY_OTHERS),
    *held_back("a foreign pod is nominated to another node instead", foreigner(nominated="n2"), HELD_BY_OTHERS),
    *held_back("a foreign nominated pod is bound elsewhere", foreigner(nominated="", on="n2"), HELD_BY_OTHERS),
    *held_back("a foreign nominated pod fails", foreigner(phase="Failed"), HELD_BY_OTHERS),
    *held_back(
        "a foreign nominated pod becomes unreadable", foreigner(containers=requesting(cpu="bad!")), HELD_BY_OTHERS
    ),
    *held_back("a pod is deleted whose nomination the watch has not shown", gone("q"), HELD_SILENTLY),
    *held_back("a pod goes elsewhere whose nomination the watch has not shown", nominee(nominated="n2"), HELD_SILENTLY),
    *held_back("a nominated pod gives way to a more important one", gives_way, HELD),
    *held_back("a pod gives way whose nomination the watch has not shown", gives_way, HELD_SILENTLY),
    leaves(FIT, POD_GONE, "the nomination of a pod of lower priority is removed",
        (*FULL, pod("s", cpu="1", gates=["g"], nominated="n1", priority=5)),
        {"cpu": "2", "priority": 6, "preemptionPolicy": "Never"}, gone("s")),
    leaves(PORTS, POD_GONE, "the nomination of a pod of lower priority with its port is removed",
        (*TAKEN, pod("s", containers=listens(80), gates=["g"], nominated="n1", priority=5)),
        {**WANTS_80, "priority": 6, "preemptionPolicy": "Never"}, gone("s")),
    wakes(PORTS, POD_GONE, "the nomination of a pod with its port is removed",
        (node("n1"), pod("s", containers=listens(80), gates=["g"], nominated="n1")), WANTS_80, gone("s")),
    wakes(PORTS, POD_GONE, "the nomination of a foreign pod with its port is removed",
        (node("n1"), pod("s", containers=listens(80), scheduler="theirs", nominated="n1")), WANTS_80, gone("s")),
]  # fmt: skip

NODE_PORTS = [
    wakes(PORTS, CAME, "any node comes", TAKEN, WANTS_80, node("n2")),
    wakes(PORTS, POD_GONE, "the pod with its port goes", TAKEN, WANTS_80, gone("q")),
    wakes(PORTS, POD_GONE, "the pod with its port is over",
        TAKEN, WANTS_80, pod("q", on="n1", containers=listens(80), phase="Succeeded")),
    wakes(PORTS, POD_GONE, "a pod goes whose sidecar has its port",
        (node("n1"), pod("q", on="n1", initContainers=[{**listens(80)[0], "restartPolicy": "Always"}])), WANTS_80,
        gone("q")),
    leaves(PORTS, POD_GONE, "a pod with another port goes", TAKEN, WANTS_80, gone("r")),
    leaves(PORTS, POD_GONE, "a pod without host ports goes", (*TAKEN, pod("s", on="n1")), WANTS_80, gone("s")),
]  # fmt: skip

# -- pods shrink -------------------------------------------------------------------------------------------------------


def running(
    spec: dict[str, str], *, given: dict[str, str] | None = None, used: dict[str, str] | None = None, **more: Any
) -> Thing:
    """A pod on n1 in the middle of an in-place resize: its request, its allocation and its use."""
    state = {"name": "c", "allocatedResources": given or spec, "resources": {"requests": used or spec}}
    status = {"containerStatuses": [state], **more.pop("status", {})}
    return pod("q", on="n1", containers=requesting(**spec), status=status, **more)


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
FOUR, ONE = {"cpu": "4"}, {"cpu": "1"}
BUSY = (node("n1"), running(FOUR))
SHARED = (node("n1"), pod("q", on="n1", cpu="2", priority=9), pod("r", on="n1", cpu="2", priority=5))


NODE_RESOURCES_FIT = [
    leaves(FIT, POD_GONE, "a pod goes that requests nothing", (*FULL, pod("r", on="n1")), WANTS_2, gone("r")),
    wakes(FIT, POD_GONE, "a pod goes and enough is free", SHARED, WANTS_2, gone("q")),
    leaves(FIT, POD_GONE, "a pod goes and too little is free", SHARED, {"cpu": "4"}, gone("q")),
    wakes(FIT, POD_GONE, "a pod goes and it may evict the rest",
        SHARED, {"cpu": "4", "priority": 6}, gone("q")),
    leaves(FIT, POD_GONE, "a pod goes and it may evict none",
        SHARED, {"cpu": "4", "priority": 6, "preemptionPolicy": "Never"}, gone("q")),
    leaves(FIT, POD_GONE, "a pod goes and its node is too small at all",
        (node("n2", cpu="1"), pod("s", cpu="1", on="n2"), *FULL), WANTS_2, gone("s")),
    leaves(FIT, POD_GONE, "a pod goes and the node has too many pods still",
        (node("n1", pods="1"), pod("q", on="n1"), pod("r", on="n1")), WANTS_2, gone("r")),
    leaves(FIT, POD_SHRANK, "a pod has become smaller and too little is free", BUSY, {"cpu": "4"}, running(ONE)),
    wakes(FIT, POD_GONE, "a pod is over", FULL, WANTS_2, pod("q", on="n1", cpu="4", phase="Failed")),
    wakes(FIT, POD_SHRANK, "a pod has become smaller", BUSY, WANTS_2, running(ONE)),
    wakes(FIT, POD_SHRANK, "a resize that it waited for turns out infeasible",
        (node("n1"), running(FOUR, given=ONE, used=ONE)), WANTS_2,
        running(FOUR, given=ONE, used=ONE, status=INFEASIBLE)),
    leaves(FIT, POD_SHRANK, "a pod has become smaller in something else",
        (node("n1"), running({"cpu": "4", "memory": "2Gi"})), WANTS_2, running({"cpu": "4", "memory": "1Gi"})),
    leaves(FIT, POD_OTHERWISE, "the request of a pod shrinks and its use does not",
        BUSY, WANTS_2, running(ONE, given=FOUR, used=FOUR)),
    leaves(FIT, POD_OTHERWISE, "a pod begins to be deleted and holds its place until it is gone",
        FULL, WANTS_2, pod("q", on="n1", cpu="4", deleting=True)),
    wakes(FIT, OWN_SHRANK, "its request shrinks", FULL, WANTS_2, pod("p", cpu="1")),
    leaves(FIT, OWN_SHRANK, "the request of another waiting pod shrinks",
        (*FULL, pod("s", cpu="3")), WANTS_2, pod("s", cpu="1")),
]  # fmt: skip

# -- pods go that were to go -------------------------------------------------------------------------------------------


def unanswered(sched: SchedulerHarness) -> None:
    """Deletions land, and their answers do not come."""
    sched.writer.delete_hold = asyncio.Event()


VICTIM = pod("v", on="n1", cpu="4", scheduler="theirs")
BESIDE = tuple(pod(name, on="n2", cpu=cpu, priority=9) for name, cpu in (("r", "2"), ("s", "1")))
EVICTING: dict[str, Any] = {
    "given": (unanswered, node("n1"), node("n2", cpu="3"), VICTIM, *BESIDE),
    "waits": {"cpu": "2", "priority": 7},
    "while_waiting": (gone("r"),),
}
"""It was worth another try when `r` went, and is held back until its victim is gone."""
HELD_BACK = frozenset({"DefaultPreemption"})

DEFAULT_PREEMPTION = [
    leaves("DefaultPreemption", POD_GONE, "a pod goes that is none of its victims",
        **EVICTING, then=gone("s"), also_refused_by=frozenset({"NodeResourcesFit"})),
    wakes(FIT, POD_GONE, "its victim goes", **EVICTING, then=gone("v"), also_refused_by=HELD_BACK),
    leaves(FIT, CAME, "a node comes while its victim is being evicted", **EVICTING, then=node("n3"), also_refused_by=HELD_BACK),
]  # fmt: skip

# -- gates and what cannot be judged -----------------------------------------------------------------------------------

GATED: dict[str, Any] = {"gates": ["g", "h"]}

SCHEDULING_GATES = [
    wakes(GATES, OWN_GATES, "its last gates go", (), GATED, pod("p")),
    leaves(GATES, OWN_GATES, "the gates of another pod go", pod("q", gates=["g"]), GATED, pod("q")),
    leaves(GATES, OWN_OTHER, "one of its gates goes", (), GATED, pod("p", gates=["g"])),
    leaves(GATES, CAME, "a node comes", (), GATED, node("n1")),
    leaves(GATES, POD_GONE, "a pod goes", FULL, GATED, gone("q")),
]

GROUPED: dict[str, Any] = {"schedulingGroup": {"podGroupName": "together"}}

GANGS: Final = "GangScheduling"


def group(name: str, least: int, **more: Any) -> Thing:
    """A group of this size comes or changes."""
    return lambda sched: sched.group(name, least, **more)


def served(sched: SchedulerHarness) -> None:
    sched.served()


def not_served(sched: SchedulerHarness) -> None:
    sched.served(is_served=False)


def mate(name: str, of: str = "together", **more: Any) -> Thing:
    return pod(name, schedulingGroup={"podGroupName": of}, **more)


ONE_OF_TWO = (served, group("together", 2))
GROUP_CAME: Final = ClusterEvent(Resource.POD_GROUP, Action.ADD)
GROUP_CHANGED: Final = ClusterEvent(Resource.POD_GROUP, Action.UPDATE_OTHER)

IN_ONE_RACK = (served, group("together", 1, schedulingConstraints={"topology": [{"key": "rack"}]}))
R1: dict[str, Any] = {"labels": {"rack": "r1"}}
R2: dict[str, Any] = {"labels": {"rack": "r2"}}
TIED_TO_R1 = (*IN_ONE_RACK, node("n1", **R1), node("n2", **R2), mate("q", on="n1"), mate("r", "others", on="n1"))
ELSEWHERE: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}, **GROUPED}
BY_AFFINITY: dict[str, Any] = {"also_refused_by": frozenset({"NodeAffinity"})}

GANG_SCHEDULING = [
    wakes(GANGS, CAME, "a node of a domain comes", (*IN_ONE_RACK, node("n1")), GROUPED, node("n2", **R1)),
    wakes(GANGS, LABELLED, "a node gets a domain", (*IN_ONE_RACK, node("n1")), GROUPED, node("n1", **R1)),
    wakes(GANGS, LABELLED, "a node changes its domain",
        (*IN_ONE_RACK, node("n1", **R1)), ELSEWHERE, node("n1", **R2), **BY_AFFINITY),
    wakes(GANGS, POD_GONE, "the pod goes that decided about the domain", TIED_TO_R1, ELSEWHERE, gone("q"), **BY_AFFINITY),
    leaves(GANGS, CAME, "a node without a domain comes", (*IN_ONE_RACK, node("n1")), GROUPED, node("n2")),
    leaves(GANGS, LABELLED, "a node loses its domain",
        (*IN_ONE_RACK, node("n1", **R1)), ELSEWHERE, node("n1", labels={"rack": ""}), **BY_AFFINITY),
    leaves(GANGS, LABELLED, "a node gets another label",
        (*IN_ONE_RACK, node("n1", **R1)), ELSEWHERE, node("n1", labels={"rack": "r1", "zone": "a"}), **BY_AFFINITY),
    leaves(GANGS, POD_GONE, "a pod of another group goes", TIED_TO_R1, ELSEWHERE, gone("r"), **BY_AFFINITY),
    leaves(GANGS, POD_GONE, "a pod of a group without a domain goes",
        (*ONE_OF_TWO, node("n1"), mate("q", "others", on="n1")), GROUPED, gone("q")),
    wakes(GANGS, UNSCHEDULED_POD_ADD, "the last pod of its group comes", ONE_OF_TWO, GROUPED, mate("q")),
    wakes(GANGS, ASSIGNED_POD_ADD, "a pod of its group comes with a node",
        (*ONE_OF_TWO, node("n1")), GROUPED, mate("q", on="n1", scheduler="theirs")),
    wakes(GANGS, GROUP_CAME, "its group comes", served, GROUPED, group("together", 1)),
    wakes(GANGS, GROUP_CHANGED, "its group needs fewer pods", ONE_OF_TWO, GROUPED, group("together", 1)),
    wakes(GANGS, GROUPS_SERVED, "the server has no groups any more", ONE_OF_TWO, GROUPED, not_served),
    leaves(GANGS, UNSCHEDULED_POD_ADD, "a pod of another group comes",
        (*ONE_OF_TWO, group("others", 1)), GROUPED, mate("q", "others")),
    leaves(GANGS, UNSCHEDULED_POD_ADD, "one of two missing pods comes", (served, group("together", 3)), GROUPED, mate("q")),
    leaves(GANGS, GROUP_CAME, "another group comes", ONE_OF_TWO, GROUPED, group("others", 1)),
    leaves(GANGS, GROUP_CHANGED, "its group needs more pods", ONE_OF_TWO, GROUPED, group("together", 3)),
    leaves(GANGS, CAME, "a node comes", ONE_OF_TWO, GROUPED, node("n1")),
]  # fmt: skip

ROWS = [*NOMINATIONS, *NODE_PORTS, *NODE_RESOURCES_FIT, *DEFAULT_PREEMPTION, *SCHEDULING_GATES, *GANG_SCHEDULING]
