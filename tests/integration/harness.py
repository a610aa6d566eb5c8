"""A cluster under faults: one server, its controllers, replicas of the daemon, and the laws that hold in any history.

The daemon is the real one, over sockets, on a fast clock. After the faults, `Harness.settle` waits until no pod, claim or controller has work
left; `Harness.broken_laws` returns what must never have happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DynamicResourcesArgs, KnownArgs, KubestowArgs, RawArgs, VolumeBindingArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile, LeaderElection
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer, Fault, Refused
from simulator.builders.core import pod
from simulator.controllers.kubelet import Kubelet
from tests.integration.clocks import HastyClock
from tests.integration.daemon import until
from tests.integration.daemon_laws import OURS, Object, audited, leftovers, miscounted, nominations
from tests.integration.device_laws import device_differences, device_leftovers, nodes_serving
from tests.integration.device_steps import DEVICE_CLAIMS, DeviceSteps
from tests.integration.fresh_start import differences as differences_from_fresh, probes_of
from tests.integration.placement_laws import cache_differences, cached, fitting_nodes, lasting, obstacles
from tests.integration.pod_steps import SHARED, TEAM, THEIRS, ZONE, Rules, is_waiting, ruled
from tests.integration.preemption_laws import Plans
from tests.integration.replicas import Replica, Replicas, remembering_task_factory
from tests.integration.reservations import Reservations, observed
from tests.integration.volume_laws import StorageView, volume_differences, volume_leftovers
from tests.integration.volume_steps import CAPACITIES, VOLUMES, Want
from tests.support.deviceinvariants import claims_of_pods, reserved_for_the_gone
from tests.support.invariants import claimed_twice, overcommitted, stranded, unbound, volumes_of_pods
from tests.support.volumebuilders import HOSTNAME

ELECTION: Final = LeaderElection(True, lease_duration_s=40, renew_deadline_s=25, retry_period_s=4)
"""In virtual seconds. On a busy machine, a renewal that misses the deadline costs a fail-over."""
BIND_TIMEOUT_S: Final = 120
BINDING_TIMEOUT_S: Final = 60
_QUIET_TURNS: Final = 50
_TURNS_MAX: Final = 200
_PEACE_S: Final = 1800.0
"""Time within which a cluster without faults settles: a place in a pool is kept for ten minutes."""


class Harness(DeviceSteps):
    """One server, replicas of the daemon, and all steps. `daemon` is the leader; without one, any daemon that runs."""

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        *,
        volumes: bool,
        devices: bool,
        replicas: int,
        ours: KubestowArgs | None,
        election: LeaderElection,
        publishes_every_s: float,
    ) -> None:
        super().__init__(server)
        self.clock = clock
        self.pods_per_node = 30 if devices else 5
        self.broken: list[str] = []
        """Laws about each moment that did not hold."""
        self.refusals: list[tuple[str, str]] = []
        """Each change of a False PodScheduled condition: the pod's name, and the message."""
        self.plans = Plans(self.witness.preempted.__contains__)
        self.reservations = Reservations(self._on_binding)
        self._has_volumes, self._has_devices = volumes, devices
        self._zones: dict[str, set[str]] = {}
        self._pods_made = 0
        args: dict[str, KnownArgs | RawArgs] = {KubestowArgs.plugin: ours or KubestowArgs()}
        if volumes:
            args[VolumeBindingArgs.plugin] = VolumeBindingArgs(bind_timeout_s=BIND_TIMEOUT_S)
        if devices:
            args[DynamicResourcesArgs.plugin] = DynamicResourcesArgs(binding_timeout_s=BINDING_TIMEOUT_S)
        profile = KubeSchedulerProfile(OUR_NAME, args=args)
        self._config = Configuration(profiles=(profile,), leader_election=election)
        self.replicas = Replicas(server, clock, self._replica, replicas)
        if volumes or devices:
            self.install_volume_controller(clock)
        if volumes:
            self.install_storage(clock, publishes_every_s)
        if devices:
            self.install_devices(clock)
        server.subscribe(self._on_write)

    # -- pods ------------------------------------------------------------------------------------------------------------

    def add_pod_with(
        self, name: str, milli_cpu: int, volumes: Sequence[Want] = (), devices: Sequence[str] = ()
    ) -> None:
        """Create one of ours unless there is a pod of that name."""
        self._add_with(name, milli_cpu, volumes, devices, Rules())

    def add_mixed(
        self, count: int, milli_cpu: int, volumes: Sequence[Want], devices: Sequence[str], rules: Rules
    ) -> None:
        """Create several equal pods at once, with names that no pod had before."""
        for _ in range(count):
            self._pods_made += 1
            self._add_with(f"m{self._pods_made:02}", milli_cpu, volumes, devices, rules)

    def _add_with(
        self, name: str, milli_cpu: int, volumes: Sequence[Want], devices: Sequence[str], rules: Rules
    ) -> None:
        built = self.with_devices(self.with_volumes(pod(name).cpu(f"{milli_cpu}m"), name, volumes), devices)
        self._create("pods", ruled(built, rules))

    def add_foreign_pod_with(self, name: str, volumes: Sequence[Want], devices: Sequence[str]) -> None:
        """Create a pod for another scheduler, with volumes or with devices, never both."""
        built = pod(name).cpu("100m" if volumes else "0m").scheduler(THEIRS)
        self._create("pods", self.with_volumes(built, name, volumes) if volumes else self.with_devices(built, devices))

    def bind_assumed(self, n: int, elsewhere: bool) -> None:
        """Bind, as another scheduler, a pod that ours is about to bind: to the same node, or to the shared one."""
        for name, node_name in self.assumed(n):
            self._bind_foreign(name, SHARED if elsewhere else node_name)

    def delete_assumed(self, n: int, is_replaced: bool) -> None:
        """Delete a pod that ours is about to bind; another one of its name may be created."""
        for name, _ in self.assumed(n):
            stored = self.server.get("pods", name)
            self.delete(name, at_once=True)
            if is_replaced:
                spec = {key: value for key, value in stored["spec"].items() if key != "priority"}
                metadata = {"name": name, "labels": stored["metadata"].get("labels", {})}
                with contextlib.suppress(Refused):  # the first pod may still have a finalizer
                    self.server.create("pods", {"metadata": metadata, "spec": spec})

    def assumed(self, n: int) -> list[tuple[str, str]]:
        """Return the n-th pod that the leader has assumed and that is not bound, with its node; empty if there is none."""
        if self.daemon is None:
            return []
        where = {info.uid: info.node_name for info in self.daemon.scheduler.cluster.assumed()}
        names = self._picked("pods", n, lambda o: o["metadata"]["uid"] in where and is_waiting(o))
        return [(name, where[self.server.get("pods", name)["metadata"]["uid"]]) for name in names]

    def node_of(self, name: str) -> str:
        """Return the node of a pod; "" if it has none, or if there is no such pod."""
        found = (obj for obj in self.server.objects("pods") if obj["metadata"]["name"] == name)
        return next((str(obj["spec"].get("nodeName", "")) for obj in found), "")

    # -- faults ----------------------------------------------------------------------------------------------------------

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
        """Remove the history: a watch that resumes from before gets 410, and its events are lost."""
        self.server.compact()
        self.server.cut_watches(abruptly=True)

    async def restart_server(self) -> None:
        """Restart on the same port with the same objects."""
        await self.server.stop()
        await self.server.start(int(self.server.url.rpartition(":")[2]))

    def storm(self, what: str, rounds: int) -> None:
        """Make many writes that change nothing for us: heartbeats, labels of nodes, or annotations of pods."""
        for n in range(rounds):
            for obj in self.server.list("pods" if what == "pods" else "nodes"):
                name = obj["metadata"]["name"]
                if what == "pods":
                    self.server.patch("pods", name, {"metadata": {"annotations": {"n": str(n)}}})
                elif what == "labels":
                    self.server.patch("nodes", name, {"metadata": {"labels": {"rack": str(n)}}})
                else:
                    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{n % 60:02}Z"}
                    self.server.patch("nodes", name, {"status": {"conditions": [beat]}}, subresource="status")

    # -- time ------------------------------------------------------------------------------------------------------------

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def seconds(self, count: int) -> None:
        """Let seconds pass, each with its requests and writes: a busy machine changes nothing."""
        for _ in range(count):
            await self.clock.sleep(1)
            await self._rest()

    async def _rest(self) -> None:
        """Let the loop run until requests and writes pause; under some faults they never do."""
        quiet, before = 0, (-1, "")
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            now = len(self.server.log), self.server.resource_version
            quiet, before = (quiet + 1, before) if now == before else (0, now)
            if quiet == _QUIET_TURNS:
                return

    # -- the daemons -----------------------------------------------------------------------------------------------------

    def _replica(self) -> Replica:
        return Replica(self.clock, self._on_plan, self._config, self.reservations)

    @property
    def daemon(self) -> Daemon | None:
        found = self.replicas.foremost()
        return None if found is None else found.daemon

    def running(self) -> Daemon:
        assert self.daemon is not None
        return self.daemon

    async def start_daemon(self, port: int | None = None) -> None:
        await self.replicas.start(port)

    async def stop_daemon(self) -> None:
        """SIGTERM: it drains, and another replica takes over at once."""
        await self.replicas.stop()

    async def kill_daemon(self) -> None:
        """SIGKILL: another replica takes over when the lease has expired."""
        await self.replicas.kill()

    async def kill_all(self) -> None:
        await self.replicas.kill(everyone=True)

    async def crash_daemon(self) -> None:
        await self.kill_daemon()
        await self.start_daemon()

    def take_lease(self) -> None:
        """Let another process take the lease and never renew it."""
        self.replicas.take_lease(self._config.leader_election.lease_duration_s)

    def change_profile(self) -> None:
        for replica in self.replicas.all:
            replica.change_profile()

    # -- the end ---------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """End all faults and wait until no work is left. Raises AssertionError if that takes too long.

        With several replicas, compare each with a daemon that starts now.
        """
        await self._come_to_rest()
        if len(self.replicas.all) > 1:
            await self._compare_with_fresh()

    async def _come_to_rest(self) -> None:
        if self._has_devices:
            self.repair_devices()
        if self._has_volumes:
            self.repair_storage()
        self.server.faults.clear()
        self.server.forbidden.clear()
        self.server.release_watches()
        for obj in self.server.list("pods"):
            self.server.patch("pods", obj["metadata"]["name"], {"metadata": {"finalizers": None}})
        for obj in self.server.list("pods"):
            if obj["metadata"].get("deletionTimestamp"):
                self.delete(obj["metadata"]["name"], at_once=True)
        self.add_node(
            "last", 50, "z"
        )  # too small for all pods; without any node they would be retried permanently (§3.8)
        await self.start_daemon()
        await until(
            lambda: not self.unsettled(), lambda: "\n".join(self.unsettled()), clock=self.clock, lasts_s=_PEACE_S
        )

    async def _compare_with_fresh(self) -> None:
        """Start a candidate that reads everything and never leads."""
        probes = [*probes_of((ZONE, HOSTNAME), {TEAM: "red"}), *probes_of((ZONE,), {TEAM: "blue"})]
        fresh = self._replica()
        await fresh.start(self.server.url)
        try:
            started = fresh.daemon
            assert started is not None
            await until(lambda: _has_read(started), lambda: "a fresh daemon does not come to rest", clock=self.clock)
            for daemon in self.replicas.daemons():
                self.broken += differences_from_fresh(daemon, started, probes)
        finally:
            await fresh.kill()

    async def start_over(self) -> list[str]:
        """Replace all daemons of a settled cluster; return what the new ones did, which should be nothing."""
        evicted, before = set(self.witness.preempted), self._places()
        await self.kill_all()
        await self._come_to_rest()
        return [
            *(
                f"pod {name} waited, and daemons that began placed it on {where}"
                for name, where in self._places().items()
                if where and not before.get(name)
            ),
            *(
                f"daemons that began evicted {self.witness.preempted[uid]}, those before them had not"
                for uid in self.witness.preempted.keys() - evicted
            ),
        ]

    def _places(self) -> dict[str, str]:
        ours = (obj for obj in self.server.objects("pods") if obj["spec"]["schedulerName"] == OURS)
        return {obj["metadata"]["name"]: obj["spec"].get("nodeName", "") for obj in ours}

    def unsettled(self) -> list[str]:
        """Return what must become true in a cluster without faults and is not yet; cheap checks come first."""
        for replica in self.replicas.all:
            replica.check()
            assert replica.deaths == []
        daemons, leaders = self.replicas.daemons(), self.replicas.leaders()
        has_fallen = any(replica.has_fallen for replica in self.replicas.all)
        if len(daemons) < len(self.replicas.all) or len(leaders) != 1 or has_fallen:
            return [f"{len(daemons)} replicas run, {len(leaders)} lead"]
        leader = leaders[0].daemon
        assert leader is not None
        return [*self._busy(), *self._unfinished(leader)] or [
            *unbound(self.server, lambda obj: obj["spec"]["schedulerName"] == OURS and self._has_place(obj)),
            *(self._unpublished() if self._has_volumes else ()),
            *stranded(self.server),
            *reserved_for_the_gone(self.server),
            *self._stale_nominations(leader),
            *volume_leftovers(self.server, leader),
            *device_leftovers(leader),
            *(law for daemon in daemons for law in self._differences(daemon)),
        ]

    def _differences(self, daemon: Daemon) -> list[str]:
        return [
            *cache_differences(self.server, daemon.scheduler.cluster),
            *volume_differences(self.server, daemon),
            *device_differences(self.server, daemon),
        ]

    def _busy(self) -> list[str]:
        """Return what controllers have to do. With devices, a pod bound to a claim that is being deleted is retried permanently."""
        blind = {obj["metadata"]["name"] for obj in self.server.objects("pods") if self._is_foreign(obj)}
        return [
            f"{actor.component} will look at {key}"
            for actor in self.actors
            for key in actor._when
            if key[0] != CAPACITIES and not (self._has_devices and key[0] == "pods" and key[2] in blind)
        ]

    def _unfinished(self, daemon: Daemon) -> list[str]:
        """Return what the daemon has to do. A pod without its claims for devices may wait behind a gate or not."""
        left = leftovers(self.server, daemon)
        if not self._has_devices:
            return left
        counts, waiting = daemon.scheduler.queue.counts(), len(self._waiting())
        is_at_rest = counts["unschedulable"] + counts["gated"] == waiting and not counts["active"] + counts["backoff"]
        trying = [] if is_at_rest else [f"{waiting} pods wait, the queue has {counts}"]
        return [*trying, *(each for each in left if not each.startswith("counts: "))]

    def _stale_nominations(self, daemon: Daemon) -> list[str]:
        """As with kube-scheduler, a pod that PreFilter refuses keeps a nomination from before a restart.

        So does, after a fail-over, a pod that must not preempt (docs/spec/core.md §3.10, row 181).
        """
        view, may_fail_over = StorageView(self.server), len(self.replicas.all) > 1
        kept = tuple(
            f"pod default/{obj['metadata']['name']} "
            for obj in self._waiting()
            if not view.is_usable(obj) or (may_fail_over and obj["spec"].get("preemptionPolicy") == "Never")
        )
        return [left for left in nominations(self.server, daemon) if not left.startswith(kept)]

    def _has_place(self, waiting: Object) -> bool:
        """Return whether some node would take the pod with its claims; for pods without claims evictions count, too."""
        view, nodes = StorageView(self.server), {obj["metadata"]["name"]: obj for obj in self.server.objects("nodes")}
        has_claims = bool(waiting["spec"].get("volumes") or waiting["spec"].get("resourceClaims"))
        names = fitting_nodes(self.server, waiting)
        if not names and not has_claims and waiting["spec"].get("preemptionPolicy") != "Never":
            names = fitting_nodes(self.server, waiting, evicting=True)
        if not view.is_usable(waiting):
            return False
        return bool(nodes_serving(self.server, waiting, [name for name in names if view.serves(waiting, nodes[name])]))

    def broken_laws(self) -> list[str]:
        """Return what must never have happened. Call it while the daemons still run, after `settle`."""
        denied = [
            f"pod {obj['metadata']['name']} is bound and says that it is not"
            for obj in self.server.objects("pods")
            if obj["spec"].get("nodeName") and obj["metadata"]["uid"] not in self._bound_by_another
            for condition in obj["status"].get("conditions", [])
            if condition["type"] == "PodScheduled" and condition["status"] != "True"
        ]
        left = [law for each in self.replicas.daemons() for law in self.reservations.left(each.scheduler.cluster)]
        return [
            *(law for replica in self.replicas.all for law in (*replica.deaths, *replica.not_undone)),
            *(*self.broken, *self.witness.bound_twice(), *self.witness.lost(), *self.witness.wronged()),
            *(*self.plans.broken, *denied, *miscounted(self.running()), *claimed_twice(self.server)),
            *self._of_ours([*volumes_of_pods(self.server), *claims_of_pods(self.server)]),
            *(*self.bookings.broken, *self.reservations.broken, *left),
            *(law for daemon in self.replicas.daemons() for law in audited(daemon)),
        ]

    def _of_ours(self, laws: Sequence[str]) -> list[str]:
        """Return the laws about pods that a daemon has bound and whose claims were not deleted."""
        judged = tuple(
            f"pod {obj['metadata']['namespace']}/{obj['metadata']['name']} "
            for obj in self.server.objects("pods")
            if not self._is_foreign(obj) and obj["metadata"]["uid"] not in self._robbed
        )
        return [law for law in laws if law.startswith(judged)]

    # -- at every moment -------------------------------------------------------------------------------------------------

    def _on_plan(self, daemon: Daemon, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        self.witness.planned(preemptor.uid, (victim.uid for victim in victims))
        if not (self._has_volumes and self._has_devices):  # there pods have no rules that `Plans` does not know
            self.plans.judge(daemon, preemptor, node_name, victims)
            return
        view = cached(daemon.scheduler.cluster).without(victim.uid for victim in victims)
        says = f"for {preemptor.key} on {node_name} were to be evicted {[victim.key for victim in victims]}"
        self.broken += [f"{says}: {why} without them, too" for why in obstacles(view, preemptor.pod, node_name)]
        if any(victim.priority >= preemptor.priority for victim in victims):
            self.broken.append(f"{says}: one of them is not less important")

    def _on_binding(self, cluster: Cluster, info: PodInfo, node_name: str) -> None:
        view = cached(cluster).without([info.uid])
        self.broken += [
            f"the Binding of {info.key} to {node_name} leaves, and the daemon knows: {why}"
            for why in lasting(view, info.pod, node_name)
        ]

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if len(self.replicas.leaders()) > 1:
            self.broken.append("two daemons lead at once")
        if resource == "pods":
            self._on_pod(type_, obj)
        elif resource == "nodes" and type_ != "DELETED":
            zone = obj["metadata"].get("labels", {}).get(ZONE, "")
            self._zones.setdefault(obj["metadata"]["name"], set()).add(zone)
        elif resource == VOLUMES and type_ == "ADDED" and self._has_volumes:
            self.broken += self._overdrawn()
        elif resource == DEVICE_CLAIMS and type_ != "DELETED" and self._has_devices:
            self.broken += self._broken_by_claim(obj)

    def _on_pod(self, type_: str, obj: Object) -> None:
        name, node_name = obj["metadata"]["name"], obj["spec"].get("nodeName")
        if type_ == "ADDED":
            self._promises.pop(name, None)
        if obj["spec"]["schedulerName"] == THEIRS and not node_name:
            nominated = obj["status"].get("nominatedNodeName", "")
            if nominated != self._promises.get(name, ""):
                self.broken.append(f"pod {name} is not ours and was nominated to {nominated or 'nothing'}")
        refusal = name, _refusal(obj)
        if refusal[1] and refusal not in self.refusals:
            self.refusals.append(refusal)
        if not node_name or type_ == "DELETED":
            return
        self.broken += [law for law in overcommitted(self.server) if not law.startswith(f"node {SHARED}:")]
        wanted = obj["spec"].get("nodeSelector", {}).get(ZONE)
        if wanted and obj["metadata"]["uid"] not in self._bound_by_another and wanted not in self._zones[node_name]:
            self.broken.append(f"pod {name} is on {node_name}, which never was in zone {wanted}")
        if self._is_foreign(obj):
            return
        if self._has_volumes:
            self.broken += self._broken_by_placing(obj)
        if self._has_devices and type_ == "MODIFIED":
            self.bookings.placed(obj)


def _refusal(obj: Object) -> str:
    conditions = obj["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def _has_read(daemon: Daemon) -> bool:
    return daemon.is_synced and not len(daemon.scheduler.inbox)


@contextlib.asynccontextmanager
async def running_cluster(
    *,
    volumes: bool = False,
    devices: bool = False,
    replicas: int = 1,
    kubelets_grace_s: float | None = None,
    watch_list: bool = True,
    port: int | None = None,
    clock: Callable[[], Clock] = HastyClock,
    seed: int = 1,
    ours: KubestowArgs | None = None,
    election: LeaderElection | None = None,
    publishes_every_s: float = 15,
) -> AsyncIterator[Harness]:
    """Yield an empty cluster with running daemons. Leaving stops all, and fails if a task lives on.

    With volumes, devices, or a grace, there are kubelets: bound pods start, and deleted ones end after the grace. Several replicas elect a leader.
    """
    grace_s = 2.0 if volumes or devices else kubelets_grace_s
    elected = ELECTION if replicas > 1 else election or LeaderElection(leader_elect=False)
    asyncio.get_running_loop().set_task_factory(remembering_task_factory)
    before = asyncio.all_tasks()
    time, rng = clock(), random.Random(seed)
    async with ApiServer(clock=time, rng=rng, watch_list=watch_list, bookmark_interval_s=5) as server:
        cluster = Harness(
            server,
            time,
            volumes=volumes,
            devices=devices,
            replicas=replicas,
            ours=ours,
            election=elected,
            publishes_every_s=publishes_every_s,
        )
        async with contextlib.AsyncExitStack() as stack:
            if replicas > 1:
                stack.enter_context(observed(cluster.reservations))
            if grace_s is not None:
                await stack.enter_async_context(Kubelet(server, clock=time, grace_used_s=grace_s))
            for actor in cluster.actors:
                await stack.enter_async_context(actor)
            await cluster.start_daemon(port)
            stack.push_async_callback(cluster.replicas.stop, everyone=True)
            if replicas > 1:
                await stack.enter_async_context(cluster.replicas)
            yield cluster
    # Closing a connection takes turns of the loop, and more of them on a busy machine.
    await until(lambda: asyncio.all_tasks() <= before, lambda: f"tasks live on: {asyncio.all_tasks() - before}")
