"""kube-scheduler and Kubestow fill the same nodes at the same time (docs/spec/core.md §2.6).

Neither sees the other's last binding in time, so a node sometimes gets too full, and its kubelet refuses the later pod.
Kubestow must not exceed a node by the state that its watch had shown when the binding left. And it must notice conflicts
and refusals, and bind all its pods that fit in the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.e2e.cluster import EVENTS, PODS, Cluster, Json, each, node, pod, pod_events, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess, free_port
from tests.e2e.sandbox import THEIRS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

NODES = [f"n-{i}" for i in range(100)]
ROOM = 4000
"""Milli-CPU of a node."""
ASKED = int(0.97 * ROOM * len(NODES))
SIZES = (200, 500, 800, 300, 1000)
LIAR = "liar"
"""A node whose kubelet has less than it reports; only pods that tolerate its taint go there."""
TAINT = {"key": "kept", "value": "free", "effect": "NoSchedule"}
PATIENCE_S = 120.0
TOO_FULL = "0/1 nodes are available: 1 Insufficient cpu."
"""The second look at the chosen node said no."""


class Kubelets:
    """All kubelets: they admit in the order in which one watch shows bindings, and refuse for lack of cpu."""

    def __init__(self, cluster: Cluster) -> None:
        self.writes: list[Write] = []
        """Every write of a pod since the start, in order."""
        self.refused: Counter[str] = Counter()
        self._cluster = cluster
        self._newest: dict[str, Write] = {}
        self._held: dict[str, dict[str, int]] = {name: {} for name in NODES}
        self._refusing: set[asyncio.Task[None]] = set()

    async def follow(self, http: ClientSession, version: str) -> None:
        """Read until cancelled."""
        async for event in pod_events(http, version):
            write = as_write(event)
            before = self._newest.get(write.pod)
            self.writes.append(write)
            self._newest[write.pod] = write
            if write.is_over:
                self._held.get(write.node, {}).pop(write.pod, None)
            elif write.node and (before is None or not before.node):
                self._admit(write)

    def _admit(self, write: Write) -> None:
        held = self._held.get(write.node, {})
        room = 0 if write.node == LIAR else ROOM
        if sum(held.values()) + write.milli_cpu <= room:
            held[write.pod] = write.milli_cpu
            return
        self.refused[write.scheduler] += 1
        task = asyncio.create_task(self._refuse(write.pod))
        self._refusing.add(task)
        task.add_done_callback(self._refusing.discard)

    async def _refuse(self, name: str) -> None:
        message = "Pod was rejected: Node didn't have enough resource: cpu"
        status = {"phase": "Failed", "reason": "OutOfcpu", "message": message}
        await self._cluster.merge(f"{PODS}/{name}/status", {"status": status})

    def overlooked(self, names: Iterable[str]) -> list[str]:
        """Of these pods, those that wait although a node has enough cpu, or that do not exist yet."""
        room = ROOM - min(sum(held.values()) for held in self._held.values())
        newest = [(name, self._newest.get(name)) for name in names]
        return [name for name, write in newest if write is None or (not write.node and write.milli_cpu <= room)]


def as_write(event: Json) -> Write:
    seen = event["object"]
    cpu = seen["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return Write(
        version=int(seen["metadata"]["resourceVersion"]),
        pod=seen["metadata"]["name"],
        scheduler=seen["spec"]["schedulerName"],
        milli_cpu=int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu),  # 1000m comes back as 1
        node=seen["spec"].get("nodeName", ""),
        is_over=event["type"] == "DELETED" or seen["status"].get("phase") in {"Succeeded", "Failed"},
    )


class Daemon:
    """The HTTP endpoints of Kubestow."""

    def __init__(self, http: ClientSession) -> None:
        self._http = http
        self.seen: dict[str, int] = {}
        """Pod → how far the watch was when its Binding left."""
        self.yielded: set[str] = set()
        """Pods whose node no longer took them at the second look."""

    async def is_ready(self) -> bool:
        try:
            async with self._http.get("/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:  # not listening yet
            return False

    async def count(self, metric: str) -> int:
        """The sum over all series of this counter."""
        async with self._http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(metric + "{"))

    async def read(self, name: str) -> None:
        async with self._http.get(f"/debug/pod/default/{name}") as answer:
            assert answer.status == 200, await answer.text()
            attempts = (await answer.json())["attempts"]
        if attempts[0]["result"] in {"binding", "scheduled"} and attempts[0]["seen_resource_version"]:
            self.seen[name] = int(attempts[0]["seen_resource_version"])
        if any(attempt["message"] == TOO_FULL for attempt in attempts):
            self.yielded.add(name)


def stream(scheduler: str) -> list[Json]:
    """Pods of mixed sizes that request half of the total."""
    pods: list[Json] = []
    asked = 0
    for i, size in enumerate(itertools.cycle(SIZES)):
        asked += size
        if asked > ASKED // 2:
            return pods
        pods.append(pod(f"{scheduler}-{i}", scheduler, cpu=f"{size}m"))
    raise AssertionError


def packing(scheduler: str, **connection: float) -> Json:
    """A profile that prefers the fullest node, so that both schedulers prefer the same one."""
    fullest = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": fullest}}
    profile = {"schedulerName": scheduler, "pluginConfig": [fit]}
    return scheduler_config(scheduler, **connection) | {"profiles": [profile]}  # type: ignore[arg-type]


@pytest.mark.parametrize("is_packed", [False, True], ids=["both spread", "both pack, and Kubestow is held up"])
async def test_two_schedulers_fill_the_same_nodes(control_plane_binaries: Path, is_packed: bool) -> None:
    """To 97 %. Where our bindings are delayed, many of them are too old."""
    config = packing(SCHEDULER_NAME, qps=60, burst=1) if is_packed else scheduler_config(SCHEDULER_NAME)
    streams = {scheduler: stream(scheduler) for scheduler in (SCHEDULER_NAME, THEIRS)}
    names, theirs = ([item["metadata"]["name"] for item in pods] for pods in streams.values())
    port = free_port()
    async with (
        ControlPlane(high_load=True) as plane,
        plane.client() as http,
        ClientSession(f"http://127.0.0.1:{port}") as endpoints,
    ):
        cluster, ours = Cluster(http), Daemon(endpoints)
        kubelets = Kubelets(cluster)
        await cluster.create(*(node(name, cpu=f"{ROOM}m") for name in NODES))
        await plane.start_scheduler(packing(THEIRS) if is_packed else scheduler_config(THEIRS))
        version = (await cluster.get(PODS))["metadata"]["resourceVersion"]
        following = asyncio.create_task(kubelets.follow(http, version))
        if is_packed:  # so that everything is decided in the first second and then waits
            await cluster.create(*streams.pop(SCHEDULER_NAME))
        with daemon(plane, config=config, flags=[f"--plain-port={port}"]) as server:
            await until(ours.is_ready, "a ready Kubestow", server=server, within_s=PATIENCE_S)
            await asyncio.gather(*(cluster.create(*pods) for pods in streams.values()))

            async def all_that_fit_are_bound() -> bool:
                assert not following.done(), following.exception()
                return not kubelets.overlooked([*names, *theirs])

            await until(all_that_fit_are_bound, "a node for each pod that fits", server=server, within_s=PATIENCE_S)
            writes = list(kubelets.writes)
            await each(names, ours.read)
            await refused_by_a_liar(cluster)
            await noticed(ours, kubelets, server)
            conflicts = await ours.count("kubestow_binding_conflicts_total")
            await reported(cluster, ours.yielded, server)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    found = replay(writes, cpu_of=dict.fromkeys(NODES, ROOM), ours=SCHEDULER_NAME, seen=ours.seen)
    print(  # noqa: T201 (the result of the race)
        f"{len(found.bound)} bindings; one too many: {len(found.by_us)} of ours, {len(found.by_others)} of theirs; "
        f"refused by kubelets: {dict(kubelets.refused)}; {conflicts} times we yielded"
    )
    assert found.avoidable == []
    for name in set(names) & found.bound.keys():
        assert found.created[name] <= ours.seen[name] < found.bound[name], "how far our watch was is not to be believed"
    assert conflicts >= len(ours.yielded)
    if is_packed:
        assert ours.yielded
        assert found.by_us or found.by_others


async def refused_by_a_liar(cluster: Cluster) -> None:
    """Every run has a refusal of one of our pods."""
    await cluster.create(node(LIAR, spec={"taints": [TAINT]}, cpu=f"{ROOM}m", labels={"is": LIAR}))
    spec = {"nodeSelector": {"is": LIAR}, "tolerations": [{"key": "kept", "operator": "Exists"}]}
    await cluster.create(pod("deceived", SCHEDULER_NAME, spec, cpu="100m"))

    async def refused() -> bool:
        return bool((await cluster.get(f"{PODS}/deceived"))["status"].get("reason") == "OutOfcpu")

    await until(refused, "a pod on the node whose kubelet has too little")


async def noticed(ours: Daemon, kubelets: Kubelets, server: ServerProcess) -> None:
    """Every refusal of our pods is counted and logged, and none of the other scheduler's pods."""

    async def as_many() -> bool:
        count = await ours.count("kubestow_admission_rejections_total")
        lines = server.output().splitlines()
        said = sum("pod refused by its kubelet" in line for line in lines)
        refused = kubelets.refused[SCHEDULER_NAME]
        assert max(count, said) <= refused
        return count == said == refused

    await until(as_many, "as many refusals as the kubelets know of", server=server)


async def reported(cluster: Cluster, names: set[str], server: ServerProcess) -> None:
    """Each pod that was refused has an event for it."""

    async def all_have_an_event() -> bool:
        events = (await cluster.get(EVENTS))["items"] or []
        failed = [event for event in events if event["reason"] == "FailedScheduling"]
        return names <= {event["regarding"]["name"] for event in failed if event["note"] == TOO_FULL}

    await until(all_have_an_event, f"an event on each of {len(names)} pods", server=server)


# -- a replay of both schedulers' writes, in the order of one watch: which binding exceeded a node, and was it avoidable -----


@dataclass(frozen=True, slots=True)
class Write:
    """One version of a pod. `is_over`: finished or deleted, so that it uses nothing."""

    version: int
    pod: str
    scheduler: str
    milli_cpu: int
    node: str = ""
    is_over: bool = False


@dataclass(slots=True)
class Replay:
    """Bindings that exceeded a node, by scheduler; and the avoidable ones of Kubestow."""

    by_us: list[str] = field(default_factory=list)
    by_others: list[str] = field(default_factory=list)
    avoidable: list[str] = field(default_factory=list)
    created: dict[str, int] = field(default_factory=dict)
    """Pod → the version at which it was there first."""
    bound: dict[str, int] = field(default_factory=dict)
    """Pod → the version of its binding."""


@dataclass(frozen=True, slots=True)
class _Held:
    milli_cpu: int
    since: int
    is_ours: bool


def replay(writes: Iterable[Write], *, cpu_of: Mapping[str, int], ours: str, seen: Mapping[str, int]) -> Replay:
    """`cpu_of` is each node's cpu, `seen` the version that our watch had shown when we bound the pod.

    A binding of ours is avoidable if the pod exceeded the node even without those other pods that our watch had not shown
    yet. Our own pods need no watch: the cache has them."""
    found = Replay()
    held: defaultdict[str, dict[str, _Held]] = defaultdict(dict)
    for write in writes:
        found.created.setdefault(write.pod, write.version)
        if write.is_over:
            held[write.node].pop(write.pod, None)
            continue
        if not write.node or write.pod in found.bound:
            continue
        found.bound[write.pod] = write.version
        is_ours = write.scheduler == ours
        before = held[write.node]
        excess = sum(pod.milli_cpu for pod in before.values()) + write.milli_cpu - cpu_of[write.node]
        if excess > 0:
            (found.by_us if is_ours else found.by_others).append(write.pod)
        if excess > 0 and is_ours:
            known = seen.get(write.pod, write.version)
            hidden = sum(p.milli_cpu for p in before.values() if not p.is_ours and p.since > known)
            if excess > hidden:
                found.avoidable.append(
                    f"{write.pod} on {write.node}: {excess} m too much, {hidden} m of it unseen at version {known}"
                )
        before[write.pod] = _Held(write.milli_cpu, write.version, is_ours)
    return found


def bound(version: int, pod: str, milli_cpu: int, node: str = "n", *, by: str = "") -> Write:
    """Pods whose names begin with `o` are ours."""
    return Write(version, pod, by or (SCHEDULER_NAME if pod.startswith("o") else THEIRS), milli_cpu, node)


def over(version: int, pod: str, node: str = "n") -> Write:
    return Write(version, pod, "", 0, node, is_over=True)


@pytest.mark.parametrize(
    ("writes", "seen", "too_many", "avoidable"),
    [
        pytest.param([bound(1, "t", 500), bound(2, "o", 500)], {"o": 1}, [], [], id="it fits exactly"),
        pytest.param([bound(1, "o", 600), bound(2, "t", 600)], {"o": 0}, ["t"], [], id="they came later"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {"o": 0}, ["o"], [], id="we came later, unseeing"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {"o": 1}, ["o"], ["o"], id="we came later, seeing"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {}, ["o"], ["o"], id="without a record we saw it all"),
        pytest.param([bound(1, "o1", 600), bound(2, "o2", 600)], {"o1": 0, "o2": 0}, ["o2"], ["o2"], id="twice ours"),
        pytest.param(
            [bound(1, "t", 600), over(2, "t"), bound(3, "o", 600)], {"o": 1}, [], [], id="what is over holds nothing"
        ),
        pytest.param(
            [bound(1, "t", 600, "m"), bound(2, "o", 600)], {"o": 1}, [], [], id="another node is another matter"
        ),
        pytest.param(
            [bound(1, "t1", 300), bound(2, "t2", 300), bound(3, "o", 600)], {"o": 1}, ["o"], [], id="the one seen left enough"
        ),
        pytest.param(
            [bound(1, "t1", 500), bound(2, "t2", 300), bound(3, "o", 600)], {"o": 1}, ["o"], ["o"], id="the one seen left none"
        ),
        pytest.param(
            [bound(1, "t", 600), bound(2, "o", 300), bound(3, "o", 300), bound(4, "o2", 300)],
            {"o": 1, "o2": 3},
            ["o2"],
            ["o2"],
            id="later writes of a bound pod change nothing",
        ),
        pytest.param(
            [Write(1, "o", SCHEDULER_NAME, 600), bound(2, "t", 600), bound(3, "o", 600)], {"o": 1}, ["o"], [], id="from its creation on"
        ),
    ],
)  # fmt: skip
def test_replay(writes: list[Write], seen: dict[str, int], too_many: list[str], avoidable: list[str]) -> None:
    found = replay(writes, cpu_of={"n": 1000, "m": 1000}, ours=SCHEDULER_NAME, seen=seen)

    assert found.by_us + found.by_others == too_many
    assert [sentence.split()[0] for sentence in found.avoidable] == avoidable
    assert found.created == {write.pod: write.version for write in reversed(writes)}
