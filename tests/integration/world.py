"""A cluster in trouble: one server, at most one daemon, and everything that a history may do to them.

The daemon is the real one, over sockets, on a clock whose seconds last eight milliseconds, and longer while there is work. When trouble stops,
`World.settle` waits until nothing is left to do; `World.broken_laws` says what should never have happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer, Fault, Refused
from simulator.builders.core import node, pod
from simulator.controllers import Actor
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import until
from tests.integration.judging import OURS, Object, leftovers, miscounted, nominations
from tests.integration.mortal import HastyClock, Mortal, remembered
from tests.integration.placementjudging import cache_differences, has_place
from tests.integration.plans import Plans
from tests.support.invariants import Witness, overcommitted, unbound

THEIRS: Final = "default-scheduler"
ZONE: Final = "zone"
_QUIET_TURNS: Final = 50
_TURNS_MAX: Final = 200
_PEACE_S: Final = 1800.0
"""In which a world in peace has come to rest: a place in a pool is kept for ten minutes."""
SHARED: Final = "shared"
"""The node that others bind to, blindly, and that may shrink: that it is over-committed proves nothing."""
CLASSES: Final[dict[str, Object]] = {
    "mid": {"value": 100},
    "high": {"value": 1000},
    "meek": {"value": 1000, "preemptionPolicy": "Never"},
}
"""Pods that name none have priority 0."""
TEAM: Final = "team"
_CLINGING: Final = "example.com/clings"


class World:
    """One server, at most one daemon on it, and what has been done to them."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self.witness = Witness(server)
        self.plans = Plans(self.witness.preempted.__contains__)
        self.broken: list[str] = []
        """Laws that must hold at every moment and did not."""
        self._largest: dict[str, int] = {}
        self._bursts = 0
        self._zones: dict[str, set[str]] = {}
        self._promises: dict[str, str] = {}
        self._bound_by_others: set[str] = set()
        self._robbed: set[str] = set()
        """Pods whose claims somebody deleted: by uid."""
        self._mortal = Mortal(clock, self._on_plan)
        self.actors: list[Actor] = []
        """They act as long as the world is."""
        server.subscribe(self._on_write)
        for name, more in CLASSES.items():
            server.create("priorityclasses", {"metadata": {"name": name}, **more})

    # -- nodes: `n` counts through those that are there ------------------------------------------------------------------

    def add_node(self, name: str, milli_cpu: int, zone: str) -> None:
        """Nothing if it is there. One that comes back may have another size."""
        with contextlib.suppress(Refused):
            size = self._sized(name, milli_cpu)
            self.server.create("nodes", node(name).cpu(f"{size}m").pods(5).label(ZONE, zone).obj())

    def remove_node(self, n: int) -> None:
        """Its pods stay, as they do until somebody collects them."""
        for name in self._picked("nodes", n):
            self.server.delete("nodes", name)

    def remove_promised_node(self, n: int) -> None:
        """One that a pod of ours is nominated to."""
        promised = {obj["status"].get("nominatedNodeName") for obj in self._waiting()}
        for name in self._picked("nodes", n, lambda obj: obj["metadata"]["name"] in promised):
            self.server.delete("nodes", name)

    def cordon_node(self, n: int, is_cordoned: bool) -> None:
        for name in self._picked("nodes", n):
            self.server.patch("nodes", name, {"spec": {"unschedulable": is_cordoned or None}})

    def relabel_node(self, n: int, zone: str) -> None:
        for name in self._picked("nodes", n):
            self.server.patch("nodes", name, {"metadata": {"labels": {ZONE: zone}}})

    def resize_node(self, n: int, milli_cpu: int) -> None:
        for name in self._picked("nodes", n):
            size = self._sized(name, milli_cpu)
            patch = {"status": {"allocatable": {"cpu": f"{size}m"}}}
            self.server.patch("nodes", name, patch, subresource="status")

    # -- pods: `n` counts through those that are there and can be meant ---------------------------------------------------

    def add_pod(
        self,
        name: str,
        milli_cpu: int,
        zone: str = "",
        port: int = 0,
        is_gated: bool = False,
        class_name: str = "",
        team: str = "",
    ) -> None:
        """One of ours; nothing if there is one of that name."""
        built = pod(name).cpu(f"{milli_cpu}m")
        built = built.priority_class(class_name) if class_name else built
        built = built.label(TEAM, team) if team else built
        built = built.node_selector({ZONE: zone}) if zone else built
        built = built.host_port(port) if port else built
        built = built.gate("example.com/wait") if is_gated else built
        with contextlib.suppress(Refused):
            self.server.create("pods", built.obj())

    def add_burst(self, count: int, milli_cpu: int, class_name: str = "", team: str = "") -> None:
        """Names of their own."""
        self._bursts += 1
        for i in range(count):
            self.add_pod(f"b{self._bursts}-{i}", milli_cpu, class_name=class_name, team=team)

    def add_foreign_pod(self, name: str, milli_cpu: int, class_name: str = "") -> None:
        built = pod(name).cpu(f"{milli_cpu}m").scheduler(THEIRS)
        with contextlib.suppress(Refused):
            self.server.create("pods", (built.priority_class(class_name) if class_name else built).obj())

    def promise(self, n: int, node_name: str) -> None:
        """Another scheduler nominates a pod of its own; "" takes it back."""
        for name in self._picked("pods", n, lambda o: o["spec"]["schedulerName"] == THEIRS and _is_waiting(o)):
            self._promises[name] = node_name
            status = {"status": {"nominatedNodeName": node_name or None}}
            self.server.patch("pods", name, status, subresource="status")

    def delete(self, name: str, *, at_once: bool) -> None:
        """Somebody deletes this pod, and not for a preemption."""
        self.witness.excuse(self.server.get("pods", name)["metadata"]["uid"])
        self.server.delete("pods", name, grace_s=0 if at_once else None)

    def delete_pod(self, n: int, at_once: bool) -> None:
        """A bound pod that is not deleted at once holds its place until the world settles."""
        for name in self._picked("pods", n):
            self.delete(name, at_once=at_once)

    def delete_preemptor(self, n: int) -> None:
        """A pod of ours that is nominated somewhere: whom is it that its victims die for?"""
        nominated = {o["metadata"]["name"] for o in self._waiting() if o["status"].get("nominatedNodeName")}
        for name in self._picked("pods", n, lambda obj: obj["metadata"]["name"] in nominated):
            self.delete(name, at_once=True)

    def cling(self, n: int, is_clinging: bool) -> None:
        """A pod that is deleted stays for as long as it clings."""
        for name in self._picked("pods", n):
            finalizers = [_CLINGING] if is_clinging else None
            with contextlib.suppress(Refused):  # one that is leaving gets no more finalizers
                self.server.patch("pods", name, {"metadata": {"finalizers": finalizers}})

    def protect(self, team: str, allowed: int | None) -> None:
        """So many of the team may be evicted; None: nobody protects it any more."""
        with contextlib.suppress(Refused):
            if allowed is None:
                self.server.delete("poddisruptionbudgets", team)
                return
            selector = {"matchLabels": {TEAM: team}}
            self.server.create("poddisruptionbudgets", {"metadata": {"name": team}, "spec": {"selector": selector}})
        if allowed is not None:
            status = {"status": {"disruptionsAllowed": allowed}}
            self.server.patch("poddisruptionbudgets", team, status, subresource="status")

    def replace_pod(self, n: int, milli_cpu: int) -> None:
        """Another pod of the same name, at once."""
        for name in self._picked("pods", n):
            self.delete(name, at_once=True)
            self.add_pod(name, milli_cpu)

    def finish_pod(self, n: int) -> None:
        """It has run and is done."""
        for name in self._picked("pods", n, lambda obj: bool(obj["spec"].get("nodeName"))):
            self.server.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")

    def open_gate(self, n: int) -> None:
        for name in self._picked("pods", n, lambda obj: bool(obj["spec"].get("schedulingGates"))):
            self.server.patch("pods", name, {"spec": {"schedulingGates": None}})

    def bind_by_others(self, n: int, node_name: str = SHARED) -> None:
        """Another scheduler binds, blindly, be the pod its own or ours."""
        for name in self._picked("pods", n, _is_waiting):
            with contextlib.suppress(Refused):  # gated
                self._bound_by_others.add(self.server.get("pods", name)["metadata"]["uid"])
                self.server.bind(name, node_name)

    # -- trouble -------------------------------------------------------------------------------------------------------

    def fault(self, where: Object, harm: Object, times: int | None) -> None:
        self.server.faults.add(Fault(**where, **harm, times=times))

    def end_faults(self) -> None:
        self.server.faults.clear()

    def forbid(self, rules: Iterable[tuple[str, str]]) -> None:
        self.server.forbidden.update(rules)

    def allow_all(self) -> None:
        self.server.forbidden.clear()

    def hold_watches(self, resource: str) -> None:
        self.server.hold_watches(resource)

    def release_watches(self) -> None:
        self.server.release_watches()

    def cut_watches(self, resource: str, abruptly: bool) -> None:
        self.server.cut_watches(resource, abruptly=abruptly)

    def compact(self) -> None:
        """Whoever resumes or continues from before this gets a 410, and what it has not been told yet it never will be."""
        self.server.compact()
        self.server.cut_watches(abruptly=True)

    async def restart_server(self) -> None:
        """The same port, the same objects."""
        await self.server.stop()
        await self.server.start(int(self.server.url.rpartition(":")[2]))

    def storm(self, what: str, rounds: int) -> None:
        """Many writes at once that change nothing for us: heartbeats, labels of nodes, annotations of pods."""
        for n in range(rounds):
            if what == "pods":
                for obj in self.server.list("pods"):
                    self.server.patch("pods", obj["metadata"]["name"], {"metadata": {"annotations": {"n": str(n)}}})
                continue
            for obj in self.server.list("nodes"):
                name = obj["metadata"]["name"]
                if what == "labels":
                    self.server.patch("nodes", name, {"metadata": {"labels": {"rack": str(n)}}})
                else:
                    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{n % 60:02}Z"}
                    self.server.patch("nodes", name, {"status": {"conditions": [beat]}}, subresource="status")

    # -- time ----------------------------------------------------------------------------------------------------------

    async def turns(self, count: int) -> None:
        """The event loop goes round, sockets included."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def seconds(self, count: int) -> None:
        """So many seconds, and whatever they set going comes to rest: a busy machine changes nothing."""
        for _ in range(count):
            await self.clock.sleep(1)
            await self._rest()

    async def _rest(self) -> None:
        """Turns, until neither requests nor writes have come for a while; under some faults they never end."""
        quiet, before = 0, (-1, "")
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            now = len(self.server.log), self.server.resource_version
            quiet, before = (quiet + 1, before) if now == before else (0, now)
            if quiet == _QUIET_TURNS:
                return

    # -- the daemon ----------------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> Daemon | None:
        return self._mortal.daemon

    async def start_daemon(self, port: int | None = None) -> None:
        """Nothing if it runs."""
        await self._mortal.start(self.server.url, port)

    async def stop_daemon(self) -> None:
        """SIGTERM: it drains."""
        await self._mortal.stop()

    async def kill_daemon(self) -> None:
        """SIGKILL."""
        await self._mortal.kill()

    async def crash_daemon(self) -> None:
        """Killed, and started again by whoever looks after it."""
        await self.kill_daemon()
        await self.start_daemon()

    def change_profile(self) -> None:
        """What runs begins again with plugins that remember nothing."""
        self._mortal.change_profile()

    def forgive_deaths(self) -> None:
        """Daemons that have ended by themselves were right to."""
        self._mortal.deaths.clear()

    def _on_plan(self, daemon: Daemon, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        self.plans.judge(daemon, preemptor, node_name, victims)
        self.witness.planned(preemptor.uid, (victim.uid for victim in victims))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Trouble stops; wait until everything that can be done is done. Raises AssertionError if that takes too long."""
        self.server.faults.clear()
        self.server.forbidden.clear()
        self.server.release_watches()
        for obj in self.server.list("pods"):
            self.server.patch("pods", obj["metadata"]["name"], {"metadata": {"finalizers": None}})
        for obj in self.server.list("pods"):
            if obj["metadata"].get("deletionTimestamp"):
                self.delete(obj["metadata"]["name"], at_once=True)
        self.add_node("last", 50, "z")  # too small for all; without any node pods would be retried for ever (§3.8)
        await self.start_daemon()
        await until(
            lambda: not self.unsettled(), lambda: "\n".join(self.unsettled()), clock=self.clock, lasts_s=_PEACE_S
        )

    def unsettled(self) -> list[str]:
        """What must become true of a quiet world and is not yet."""
        assert self.daemon is not None
        self._mortal.check()
        assert self._mortal.deaths == []
        return leftovers(self.server, self.daemon) or [
            *unbound(self.server, lambda obj: obj["spec"]["schedulerName"] == OURS and has_place(self.server, obj)),
            *nominations(self.server, self.daemon),
            *cache_differences(self.server, self.daemon.decisions.cluster),
        ]

    def broken_laws(self) -> list[str]:
        """What must never have happened. While the daemon still runs, after `settle`."""
        assert self.daemon is not None
        denied = [
            f"pod {obj['metadata']['name']} is bound and says that it is not"
            for obj in self.server.objects("pods")
            if obj["spec"].get("nodeName") and obj["metadata"]["uid"] not in self._bound_by_others
            for condition in obj["status"].get("conditions", [])
            if condition["type"] == "PodScheduled" and condition["status"] != "True"
        ]
        counts = miscounted(self.daemon)
        witnessed = [*self.witness.bound_twice(), *self.witness.lost(), *self.witness.wronged()]
        return [*self._mortal.deaths, *self.broken, *witnessed, *self.plans.broken, *denied, *counts]

    def _is_others(self, obj: Object) -> bool:
        """Whether another scheduler serves the pod or has bound it."""
        return obj["spec"]["schedulerName"] != OURS or obj["metadata"]["uid"] in self._bound_by_others

    def _of_ours(self, laws: Sequence[str]) -> list[str]:
        """The laws about pods that the daemon has bound, and whose claims were not deleted."""
        judged = tuple(
            f"pod {obj['metadata']['namespace']}/{obj['metadata']['name']} "
            for obj in self.server.objects("pods")
            if not self._is_others(obj) and obj["metadata"]["uid"] not in self._robbed
        )
        return [law for law in laws if law.startswith(judged)]

    def _trying(self, daemon: Daemon) -> list[str]:
        """All pods that wait are at rest; a pod whose claims are not there may wait behind a gate or not."""
        counts, waiting = daemon.decisions.queue.counts(), len(self._waiting())
        is_at_rest = counts["unschedulable"] + counts["gated"] == waiting and not counts["active"] + counts["backoff"]
        return [] if is_at_rest else [f"{waiting} pods wait, the queue has {counts}"]

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "nodes" and type_ != "DELETED":
            self._zones.setdefault(obj["metadata"]["name"], set()).add(obj["metadata"]["labels"][ZONE])
        if resource == "pods" and type_ == "ADDED":
            self._promises.pop(obj["metadata"]["name"], None)
        if resource == "pods" and obj["spec"]["schedulerName"] == THEIRS and _is_waiting(obj):
            name, told = obj["metadata"]["name"], obj["status"].get("nominatedNodeName", "")
            if told != self._promises.get(name, ""):
                self.broken.append(f"pod {name} is not ours and was nominated to {told or 'nothing'}")
        node_name = obj["spec"].get("nodeName") if resource == "pods" else None
        if not node_name or type_ == "DELETED":
            return
        self.broken += [law for law in overcommitted(self.server) if not law.startswith(f"node {SHARED}:")]
        wanted = obj["spec"].get("nodeSelector", {}).get(ZONE)
        if wanted and obj["metadata"]["uid"] not in self._bound_by_others and wanted not in self._zones[node_name]:
            self.broken.append(f"pod {obj['metadata']['name']} is on {node_name}, which never was in zone {wanted}")

    def _waiting(self) -> list[Object]:
        """Pods of ours without a node."""
        return [o for o in self.server.objects("pods") if o["spec"]["schedulerName"] == OURS and _is_waiting(o)]

    def _sized(self, name: str, milli_cpu: int) -> int:
        """The size it gets: a node that only we bind to never shrinks, so that to over-commit it is our fault."""
        size = milli_cpu if name == SHARED else max(milli_cpu, self._largest.get(name, 0))
        self._largest[name] = size
        return size

    def _picked(self, resource: str, n: int, wanted: Callable[[Object], bool] = lambda _: True) -> list[str]:
        """The name of the n-th that is wanted, counted round and round; none if there is none."""
        names = [obj["metadata"]["name"] for obj in self.server.objects(resource) if wanted(obj)]
        return [names[n % len(names)]] if names else []


def _is_waiting(obj: Object) -> bool:
    return not obj["spec"].get("nodeName")


W = TypeVar("W", bound=World)


@contextlib.asynccontextmanager
async def inhabited(
    *,
    watch_list: bool = True,
    port: int | None = None,
    kubelets_grace_s: float | None = None,
    clock: Callable[[], Clock] = HastyClock,
    seed: int = 1,
) -> AsyncIterator[World]:
    """An empty world with a daemon, in a loop of its own. Leaving stops both, and fails if a task of theirs lives on.

    With a grace that kubelets give, there are kubelets: bound pods start, and deleted ones end after so many seconds.
    """
    async with hosted(
        World, watch_list=watch_list, port=port, kubelets_grace_s=kubelets_grace_s, clock=clock, seed=seed
    ) as world:
        yield world


@contextlib.asynccontextmanager
async def hosted(
    make: Callable[[ApiServer, Any], W],
    *,
    watch_list: bool = True,
    port: int | None = None,
    kubelets_grace_s: float | None = None,
    clock: Callable[[], Clock] = HastyClock,
    seed: int = 1,
) -> AsyncIterator[W]:
    """As `inhabited`, for any kind of world, with the actors that it has."""
    asyncio.get_running_loop().set_task_factory(remembered)
    before = asyncio.all_tasks()
    time, chance = clock(), random.Random(seed)
    async with ApiServer(clock=time, rng=chance, watch_list=watch_list, bookmark_interval_s=5) as server:
        world = make(server, time)
        async with contextlib.AsyncExitStack() as stack:
            if kubelets_grace_s is not None:
                await stack.enter_async_context(Kubelet(server, clock=time, grace_used_s=kubelets_grace_s))
            for actor in world.actors:
                await stack.enter_async_context(actor)
            await world.start_daemon(port)
            stack.push_async_callback(world.stop_daemon)
            yield world
    for _ in range(5):  # closing a connection takes a turn or two
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
