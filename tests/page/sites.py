"""Servers of the page for browser tests: the real endpoints over a scheduler in this process, filled by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduler.api.decode import Delta, from_manifest
from scheduler.api.resource_v1 import ResourceClaim, ResourceSlice
from scheduler.api.storage_v1 import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.explain.fixes import Steps
from scheduler.explain.what_if import WhatIfRequest
from scheduler.server.endpoints import Endpoints
from scheduler.server.ui.answers import Facts, HistoryPoint, Problem
from scheduler.server.ui.data import UiData
from scheduler.server.ui.kept import LoopQuestions
from scheduler.server.ui.page import answer
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_slice
from tests.unit.harness import SchedulerHarness
from tests.unit.server.test_listening import listening, sources

HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>&amp;</script>\u2028\u202e'
REASONS = (
    "0/5000 nodes are available: {n} Insufficient cpu, {m} node(s) had untolerated taint {{dedicated: batch}}.",
    '0/5000 nodes are available: persistentvolumeclaim "data-{n}" not found.',
    "0/5000 nodes are available: {m} Insufficient memory. preemption: 0/5000 nodes are available: {m} No preemption victims found.",
    "0/5000 nodes are available: {m} node(s) didn't match Pod's node affinity/selector.",
    "0/5000 nodes are available: 5000 cannot allocate all claims.",
)


class AtOnce:
    """Questions that are answered within the call."""

    async def answer_to(self, begin: Callable[[], Steps[Any]]) -> Any:
        return finish(begin())


def refused(message: str) -> list[dict[str, str]]:
    """Return the conditions of a pod with this message."""
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def ui_data(
    sched: SchedulerHarness,
    *problems: Problem,
    questions: LoopQuestions | None = None,
    leads: bool = True,
    history: Iterable[HistoryPoint] = (),
) -> UiData:
    parts = sched.parts
    facts = Facts(
        version="kubestow 0.1.0",
        schedulers=tuple(parts.profiles),
        leads=leads,
        lease="kubestow",
        bindings=0,
        problems=problems,
        audit_passes=7,
        audit_differences=1,
    )
    return UiData(
        parts.cluster,
        parts.queue,
        questions or AtOnce(),
        sched.clock,
        newest=parts.shared.pending.get,
        counts=parts.pending,
        facts=lambda: facts,
        states=parts.group_states,
        history=history,
        stored=lambda key: sched.seen.get(key.partition("/")[2]),
    )


@contextlib.asynccontextmanager
async def serving(
    sched: SchedulerHarness, *problems: Problem, leads: bool = True, history: Iterable[HistoryPoint] = ()
) -> AsyncIterator[str]:
    """Serve the page of this scheduler; yield its URL."""
    data = ui_data(sched, *problems, leads=leads, history=history)

    async def explain(key: str) -> Explanation | None:
        return finish(sched.parts.explainer.explain(key))

    async def what_if(request: WhatIfRequest) -> WhatIfAnswer:
        return finish(sched.parts.what_if.answer(request))

    async def found(query: Mapping[str, str]) -> object | None:
        return await answer(data, query)

    pages = replace(sources(), explain=explain, what_if=what_if, ui_data=found)
    async with listening(Endpoints(pages)) as crowd:
        yield f"http://127.0.0.1:{crowd.listener.port}/ui"


def few() -> SchedulerHarness:
    """Three nodes; pods that are bound, too large, gated, and not tried yet."""
    sched = SchedulerHarness()
    sched.node("node-a", cpu="4")
    sched.node("node-b", cpu="4", taints=[{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}])
    sched.node("node-c", cpu="8", unschedulable=True)
    sched.pod("web-0", cpu="3", on="node-a")
    sched.pod("batch-0", cpu="4500m", on="node-b")
    short = refused(
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: batch}, 1 node(s) were unschedulable."
    )
    for at in range(3):
        sched.pod(f"db-{at}", cpu="2", conditions=short)
    sched.pod("model-0", cpu="1", gates=["example.com/quota"])
    return sched


def grouped() -> SchedulerHarness:
    """A node; a group that runs, one of 60 pods that waits, and pods whose group has no object."""
    sched = SchedulerHarness()
    sched.served()
    sched.node("node-a", cpu="4")
    for name, least in (("runs", 2), ("waits", 60)):
        sched.group(name, least)
    for at in range(2):
        sched.pod(f"runs-{at}", cpu="1", on="node-a", schedulingGroup={"podGroupName": "runs"})
    for at in range(60):
        sched.pod(f"waits-{at:02}", cpu="1", schedulingGroup={"podGroupName": "waits"})
    sched.pod("lost-0", cpu="1", schedulingGroup={"podGroupName": "lost"})
    return sched


def many(nodes: int = 5000, pods: int = 20_000) -> SchedulerHarness:
    """A large cluster: nodes that differ in use, and pods with five causes, whose numbers and names differ."""
    sched = SchedulerHarness()
    for at in range(nodes):
        sched.node(f"node-{at:04}", cpu="32", memory="128Gi", unschedulable=at % 40 == 0)
        sched.pod(f"used-{at}", cpu=str(1 + at * 31 // nodes), on=f"node-{at:04}")
    for at in range(pods):
        text = REASONS[at % 7 % len(REASONS)].format(n=at, m=at % 97)
        sched.pod(f"app-{at:05}", cpu="64", conditions=refused(text))
    return sched


def seen(sched: SchedulerHarness, kind: type[Any], manifest: dict[str, Any]) -> None:
    """Let the scheduler see a new object."""
    sched.parts.event_handlers.apply(kind.__name__, [Delta(None, from_manifest(kind, manifest))])


def put_storage(sched: SchedulerHarness, name: str, node: str, storage_class: str = "fast") -> None:
    """Add a capacity object of 20Gi for one node."""
    topology = {"matchLabels": {"kubernetes.io/hostname": node}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    capacity = {"metadata": metadata, "storageClassName": storage_class, "nodeTopology": topology, "capacity": "20Gi"}
    seen(sched, CSIStorageCapacity, capacity)


def put_class(sched: SchedulerHarness, name: str, provisioner: str) -> None:
    """Add a storage class."""
    binding = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    seen(sched, StorageClass, {"metadata": {"name": name}, **binding})


def with_pools() -> SchedulerHarness:
    """30 nodes, each with two devices and local storage; two with attach limits, and one with a device plugin."""
    sched = SchedulerHarness()
    sched.node("fpga", **{"vendor.example/fpga": "2"})
    requests = {"cpu": "1", "vendor.example/fpga": "1"}
    sched.pod("uses-fpga", on="fpga", containers=[{"name": "c", "resources": {"requests": requests}}])
    put_class(sched, "fast", "d.csi")
    for at in range(30):
        node = f"node-{at:02}"
        labels = {"kubernetes.io/hostname": node, "topology.kubernetes.io/zone": f"zone-{at % 3}"}
        sched.node(node, cpu="32", labels=labels)
        seen(sched, ResourceSlice, a_slice(node, "gpu.example.com", a_device("d0"), a_device("d1")).obj())
        put_storage(sched, f"c-{at:02}", node)
        if at < 2:
            driver = {"name": "d.csi", "nodeID": node, "allocatable": {"count": 4}}
            seen(sched, CSINode, {"metadata": {"name": node}, "spec": {"drivers": [driver]}})
    return sched


def with_uses() -> SchedulerHarness:
    """A pod on a node with a volume and a device."""
    sched = with_pools()
    claim = {"metadata": {"name": "data", "namespace": "default", "uid": "uid-data"}, "spec": {"volumeName": "pv-1"}}
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-1"]}
    volume = {
        "storageClassName": "fast",
        "capacity": {"storage": "5Gi"},
        "csi": {"driver": "d.csi", "volumeHandle": "h"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    seen(sched, PersistentVolumeClaim, claim)
    seen(sched, PersistentVolume, {"metadata": {"name": "pv-1"}, "spec": volume})
    result = a_result("gpu", "gpu.example.com/node-01/d0")
    seen(sched, ResourceClaim, a_claim("cards").request("gpu", "gpu").allocated(result, on="node-01").obj())
    sched.pod(
        "user",
        cpu="1",
        on="node-01",
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        resourceClaims=[{"name": "cards", "resourceClaimName": "cards"}],
    )
    return sched


def hostile() -> SchedulerHarness:
    """Names, messages and taints with markup. Names of an API server cannot have it, those of a dump can."""
    sched = SchedulerHarness()
    taint = {"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}
    sched.node(f"node{HOSTILE}", taints=[taint])
    sched.node("node-b" * 40, labels={"kubernetes.io/hostname": "node-b" * 40, HOSTILE: HOSTILE})
    for at in range(60):
        letters = chr(97 + at // 26) + chr(97 + at % 26)
        sched.pod(f"pod-{at}{HOSTILE}", conditions=refused(f"{HOSTILE} {letters} {HOSTILE * 20}"))
    sched.pod("a" * 253, conditions=refused("x" * 30_000))
    driver = {"name": HOSTILE, "nodeID": "n", "allocatable": {"count": 4}}
    seen(sched, CSINode, {"metadata": {"name": "node-b" * 40}, "spec": {"drivers": [driver]}})
    put_class(sched, HOSTILE, HOSTILE)
    put_storage(sched, HOSTILE * 3, "node-b" * 40, HOSTILE)
    seen(sched, ResourceSlice, a_slice("node-b" * 40, HOSTILE, a_device(HOSTILE)).pool(HOSTILE).obj())
    sched.served()
    sched.group("g" * 200, 3)
    sched.pod("in-group", schedulingGroup={"podGroupName": "g" * 200})
    return sched
