"""A pod that fits on no node has the condition and the event of kube-scheduler, which judges the same pod on the same nodes.

The texts of other refusals are in the recordings of `tests/parity`.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from tests.e2e.cluster import PODS, Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess
from tests.e2e.karpenter.build import provisionable
from tests.e2e.sandbox import THEIRS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BOTH = {"theirs": THEIRS, "ours": SCHEDULER_NAME}


FAST = {"disk": "fast"}
NODES = [
    node("a", labels=FAST, cpu="1"),
    node("b", labels=FAST, memory="1Gi"),
    node("c", labels=FAST, spec={"taints": [{"key": "kept", "value": "v", "effect": "NoSchedule"}]}),
    node("d", labels=FAST, spec={"unschedulable": True}),
    node("e", labels={"disk": "slow"}),
    node("f", labels=FAST, pods="0"),
    *(node(f"g-{i}") for i in range(10)),
]
"""A different reason on each of the first six, for a pod of 2 CPU and 2 GiB."""


@pytest.fixture(scope="module")
def both(control_plane: ControlPlane) -> Iterator[ServerProcess]:
    """A kube-scheduler and Kubestow, each for the pods that name it."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner, daemon(control_plane) as ours:
        runner.run(control_plane.start_scheduler(scheduler_config(THEIRS)))
        yield ours
        runner.run(control_plane.stop_server("kube-scheduler"))


@pytest.fixture
async def cluster(control_plane: ControlPlane, both: ServerProcess) -> AsyncIterator[Cluster]:
    """An empty cluster that both schedulers know to be empty; left empty."""
    async with control_plane.client() as http:
        cluster = Cluster(http)
        await cluster.wipe()
        await _both_see_nodes(cluster, 0, both)
        yield cluster
        await cluster.wipe()


async def test_condition_and_event_are_kube_schedulers(both: ServerProcess, cluster: Cluster) -> None:
    await cluster.create(*NODES)
    await _both_see_nodes(cluster, len(NODES), both)

    await cluster.create(*(pod(of, name, {"nodeSelector": FAST}, cpu="2", memory="2Gi") for of, name in BOTH.items()))
    theirs, ours = [await _verdict(cluster, of, both) for of in BOTH]

    assert theirs["condition"]["reason"] == "Unschedulable"
    assert ours == theirs


async def test_a_gated_pod_is_left_alone(both: ServerProcess, cluster: Cluster) -> None:
    gated = {"schedulingGates": [{"name": "example.com/ready"}]}
    await cluster.create(node("a"))
    await cluster.create(*(pod(of, name, gated) for of, name in BOTH.items()))
    await _both_see_nodes(cluster, 1, both)  # later pods have been judged

    theirs, ours = [(await cluster.condition(of), await cluster.events(of)) for of in BOTH]

    assert theirs[0] is not None
    assert theirs[0]["reason"] == "SchedulingGated"
    assert _without_times(theirs[0]) == _without_times(ours[0] or {})
    assert theirs[1] == ours[1] == []


async def test_karpenter_adds_nodes_for_the_same_pods(both: ServerProcess, cluster: Cluster) -> None:
    """Karpenter's rule reads conditions and nominations: a refused pod counts, a bound and a gated pod do not."""
    await cluster.create(node("a"))
    await _both_see_nodes(cluster, 1, both)
    gated = {"schedulingGates": [{"name": "example.com/ready"}]}
    names = {who: {kind: f"{kind}-{who}" for kind in ("refused", "bound", "gated")} for who in BOTH}
    for who, scheduler_name in BOTH.items():
        await cluster.create(pod(names[who]["refused"], scheduler_name, cpu="100"))
        await cluster.create(pod(names[who]["bound"], scheduler_name), pod(names[who]["gated"], scheduler_name, gated))
    for who in BOTH:
        await until(partial(cluster.condition, names[who]["refused"]), "a condition", server=both)
        await until(partial(cluster.node_of, names[who]["bound"]), "a node", server=both)

    pods = [await cluster.get(f"{PODS}/{name}") for of_one in names.values() for name in of_one.values()]
    lines = "\n".join(json.dumps(each) for each in pods)
    program = await asyncio.to_thread(provisionable)
    said = await asyncio.to_thread(subprocess.run, [program], input=lines, capture_output=True, text=True, check=True)

    assert said.stdout.split() == [names[who]["refused"] for who in BOTH]


async def _both_see_nodes(cluster: Cluster, count: int, server: ServerProcess) -> None:
    """Watches of different kinds are not ordered: try pods that fit on no node until the message has this count."""
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


async def _verdict(cluster: Cluster, of: str, server: ServerProcess) -> Json:
    """Condition and event of a refused pod, without times, names and reporter."""

    async def both_written() -> tuple[Json, list[Json]] | None:
        condition, events = await cluster.condition(of), await cluster.events(of)
        return (condition, events) if condition is not None and events else None

    condition, events = await until(both_written, f"condition and event of {of}", server=server)
    (event,) = events
    assert event["reportingController"] == BOTH[of]
    assert event["reportingInstance"]
    written_event = {key: event[key] for key in ("reason", "action", "type", "note")}
    regarding = {key: event["regarding"].get(key) for key in ("kind", "apiVersion", "namespace", "fieldPath")}
    return {"condition": _without_times(condition), "event": written_event, "regarding": regarding}


def _without_times(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if key not in {"lastTransitionTime", "lastProbeTime"}}
