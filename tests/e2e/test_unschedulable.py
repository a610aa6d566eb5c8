"""A pod that fits nowhere is told so in kube-scheduler's words: a real one judges the same pod on the same nodes.

Compared are the pod's condition and the event, whole.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.e2e.cluster import PODS, Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

THEIRS = "default-scheduler"
BOTH = {"theirs": THEIRS, "ours": SCHEDULER_NAME}


@dataclass(frozen=True)
class Situation:
    """The nodes, the pods on them, and a pod that fits nowhere."""

    nodes: Sequence[Json]
    spec: Json = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    bound: Sequence[Json] = ()


def taint(key: str, effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": "v", "effect": effect}


def port(number: int, **more: str) -> Json:
    ports = [{"containerPort": 80, "hostPort": number, **more}]
    return {"containers": [{"name": "main", "image": "i", "ports": ports}]}


def required(*terms: Json) -> Json:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def pinned(*names: str) -> Json:
    """What the DaemonSet controller writes."""
    return required({"matchFields": [expression("metadata.name", "In", *names)]})


def restarting_all(**requests: str) -> Json:
    """A pod whose container restarts all others: not every kubelet can do that."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    rules = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    return {"containers": [{"name": "main", "image": "i", "resources": {"requests": requests}, **rules}]}


def declaring(declared: Json, *features: str) -> Json:
    return declared | {"status": declared["status"] | {"declaredFeatures": list(features)}}


TWO = [node("a"), node("b")]
CORDONED = {"unschedulable": True}
SITUATIONS = {
    "neither cpu nor memory": Situation(TWO, requests={"cpu": "100", "memory": "1000Gi"}),
    "different taints": Situation(
        [
            node("a", spec={"taints": [taint("kept")]}),
            node("b", spec={"taints": [taint("leaving", "NoExecute")]}),
            node("c", spec={"taints": [taint("kept"), taint("other")]}),
        ],
        {"tolerations": [{"key": "other", "operator": "Exists"}]},
    ),
    "a host port in use": Situation(
        TWO, port(8080), bound=[pod(f"on-{name}", "nobody", {"nodeName": name, **port(8080)}) for name in ("a", "b")]
    ),
    "every node for a reason of its own": Situation(
        [
            node("a", labels={"disk": "fast"}, cpu="1"),
            node("b", labels={"disk": "fast"}, memory="1Gi"),
            node("c", labels={"disk": "fast"}, spec={"taints": [taint("kept")]}),
            node("d", labels={"disk": "fast"}, spec=CORDONED),
            node("e", labels={"disk": "slow"}),
            node("f", labels={"disk": "fast"}, pods="0"),
            *(node(f"g-{i}") for i in range(10)),
        ],
        {"nodeSelector": {"disk": "fast"}},
        {"cpu": "2", "memory": "2Gi"},
    ),
    "a daemon's pod whose node is missing": Situation(TWO, pinned("elsewhere")),
    "a feature that only the full node declares": Situation(
        [declaring(node("a", cpu="1"), "RestartAllContainersOnContainerExits"), node("b")], restarting_all(cpu="2")
    ),
    "no nodes at all": Situation([]),
}


@pytest.fixture(scope="module")
def both(control_plane: ControlPlane) -> Iterator[Server]:
    """A kube-scheduler and ours, each for pods of its own name."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner, daemon(control_plane) as ours:
        runner.run(control_plane.start_scheduler(scheduler_config(THEIRS)))
        yield ours
        runner.run(control_plane.stop_server("kube-scheduler"))


@pytest.fixture
async def cluster(control_plane: ControlPlane, both: Server) -> AsyncIterator[Cluster]:
    """An empty cluster that both schedulers know to be empty; left empty."""
    async with control_plane.client() as http:
        cluster = Cluster(http)
        await cluster.wipe()
        await _both_see_nodes(cluster, 0, both)
        yield cluster
        await cluster.wipe()


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS.keys())
async def test_condition_and_event_are_kube_schedulers(both: Server, cluster: Cluster, situation: Situation) -> None:
    """The same pod under either name gets the same condition and the same event."""
    await cluster.create(*situation.nodes)
    await cluster.create(*situation.bound)
    await _both_see_nodes(cluster, len(situation.nodes), both)

    await cluster.create(*(pod(who, name, situation.spec, **situation.requests) for who, name in BOTH.items()))
    theirs, ours = [await _verdict(cluster, who, both) for who in BOTH]

    assert theirs["condition"]["reason"] == "Unschedulable"
    assert ours == theirs


async def test_a_gated_pod_is_left_alone(both: Server, cluster: Cluster) -> None:
    """A pod behind a gate keeps the API server's condition and gets no event from either scheduler."""
    gated = {"schedulingGates": [{"name": "example.com/ready"}]}
    await cluster.create(node("a"))
    await cluster.create(*(pod(who, name, gated) for who, name in BOTH.items()))
    await _both_see_nodes(cluster, 1, both)  # later pods have been judged

    theirs, ours = [(await cluster.condition(who), await cluster.events(who)) for who in BOTH]

    assert theirs[0] is not None
    assert theirs[0]["reason"] == "SchedulingGated"
    assert _without_times(theirs[0]) == _without_times(ours[0] or {})
    assert theirs[1] == ours[1] == []


async def _both_see_nodes(cluster: Cluster, count: int, server: Server) -> None:
    """Watches of different kinds are not ordered: ask with a pod that fits nowhere until the answer counts right."""
    wanted = f"0/{count} nodes are available:" if count else "no nodes available to schedule pods"

    async def sees(scheduler_name: str) -> None:
        probe = f"probe-{scheduler_name}"

        async def answer() -> str | None:
            condition = await cluster.condition(probe)
            return str(condition["message"]) if condition is not None else None

        message = ""
        while not message.startswith(wanted):
            await cluster.create(pod(probe, scheduler_name, {"nodeSelector": {"no": "where"}}))
            message = await until(answer, f"a verdict of {scheduler_name}", server=server)
            await cluster.delete(f"{PODS}/{probe}")

    await asyncio.gather(*(sees(name) for name in BOTH.values()))


async def _verdict(cluster: Cluster, who: str, server: Server) -> Json:
    """Condition and event of a refused pod, without what differs by nature: times, names, and who reports."""

    async def both_written() -> tuple[Json, list[Json]] | None:
        condition, events = await cluster.condition(who), await cluster.events(who)
        return (condition, events) if condition is not None and events else None

    condition, events = await until(both_written, f"condition and event of {who}", server=server)
    (event,) = events
    assert event["reportingController"] == BOTH[who]
    assert event["reportingInstance"]
    told = {key: event[key] for key in ("reason", "action", "type", "note")}
    regarding = {key: event["regarding"].get(key) for key in ("kind", "apiVersion", "namespace", "fieldPath")}
    return {"condition": _without_times(condition), "event": told, "regarding": regarding}


def _without_times(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if key not in {"lastTransitionTime", "lastProbeTime"}}
