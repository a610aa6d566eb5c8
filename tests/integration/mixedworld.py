"""A cluster in trouble in which all comes together: pods with volumes and devices, placement rules, two replicas, fail-over.

The world of `volumeworld` with the devices of `nodedevices`; nodes also have memory, an extended resource and taints, and
pods rules about each other. Another scheduler moves and deletes pods that ours has assumed. Laws are those of both worlds,
and: what was reserved is bound or undone; no Binding leaves where the daemon knows that the pod must not be; the caches of a
daemon that has run for long equal those of one that has just started.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DynamicResourcesArgs, VolumeBindingArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer, Refused
from simulator.builders.core import PodBuilder, node, pod
from simulator.controllers.resource_claim import ResourceClaimController
from tests.integration.daemon import until
from tests.integration.devicejudging import Bookings, device_differences, device_leftovers, entries_of, nodes_serving
from tests.integration.freshjudging import differences as differences_from_fresh, probes_of
from tests.integration.judging import OURS, Object, leftovers
from tests.integration.mortal import HastyClock
from tests.integration.nodedevices import CLASSES, GPU, GPUS, NET, NodeDevices
from tests.integration.otherallocator import OtherAllocator
from tests.integration.placementjudging import cache_differences, cached, fitting_nodes, lasting, obstacles
from tests.integration.replicas import COUNT, ELECTION, Replica, Replicas
from tests.integration.reservations import Reservations, observed
from tests.integration.volumejudging import View, volume_differences, volume_leftovers
from tests.integration.volumeworld import BIND_TIMEOUT_S, RACK, RACKS, VolumeWorld, Want
from tests.integration.world import SHARED, TEAM, THEIRS, ZONE, hosted
from tests.support.deviceinvariants import claims_of_pods, reserved_for_the_gone
from tests.support.invariants import stranded, unbound
from tests.support.volumebuilders import HOSTNAME

NODES: Final = tuple(RACKS)
WIDGET: Final = "example.com/widget"
"""An extended resource that no driver serves: nodes count it."""
WIDGETS: Final = 4
MEMORY_GI: Final = 8
BINDING_TIMEOUT_S: Final = 60
APART, TOGETHER, SPREAD, SPREAD_HOSTS, ZONED = "apart", "together", "spread", "spread over hosts", "zoned"
_CLAIMS: Final = "resourceclaims"


class Rules(NamedTuple):
    """What a pod asks of nodes and of other pods; its team is whom its rule is about."""

    rule: str = ""
    team: str = ""
    memory_gi: int = 0
    widgets: int = 0
    overhead_milli_cpu: int = 0
    tolerates: bool = False
    class_name: str = ""


class MixedWorld(NodeDevices, VolumeWorld):
    """As `VolumeWorld`, with devices, rules, and two replicas of the daemon. `daemon` is the leader, if there is one."""

    def __init__(self, server: ApiServer, clock: HastyClock) -> None:
        super().__init__(server, clock)
        self.reservations = Reservations(self._on_binding)
        self._config = Configuration(
            profiles=(
                KubeSchedulerProfile(
                    OUR_NAME,
                    args={
                        VolumeBindingArgs.plugin: VolumeBindingArgs(bind_timeout_s=BIND_TIMEOUT_S),
                        DynamicResourcesArgs.plugin: DynamicResourcesArgs(binding_timeout_s=BINDING_TIMEOUT_S),
                    },
                ),
            ),
            leader_election=ELECTION,
        )
        self._pods_made = 0
        self.replicas = Replicas(server, clock, self._replica)
        self.install_drivers(server, clock)
        self.claims = ResourceClaimController(server, clock=clock, delay_s=0.3, releases_after_s=0.5)
        self.allocator = OtherAllocator(
            server, clock=clock, scheduler_name=THEIRS, drivers={"gpu": GPU, "net": NET}, writes_after_s=1.5
        )
        self.bookings = Bookings(server, self.allocator.allocated)
        self.actors += [self.claims, *self.drivers.values(), self.allocator]
        for name in NODES:
            self.publish(name, GPUS)
        server.subscribe(self._on_any_write)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add_node(self, name: str, milli_cpu: int, zone: str) -> None:
        """With the rack that it always has, memory and widgets. The other allocator does not count the pods of a node."""
        with contextlib.suppress(Refused):
            count = 8 if name == SHARED else 30
            made = node(name).cpu(f"{self._sized(name, milli_cpu)}m").pods(count).label(ZONE, zone)
            made = made.label(RACK, RACKS.get(name, f"of {name}"))
            self.server.create("nodes", made.memory(f"{MEMORY_GI}Gi").resource(WIDGET, str(WIDGETS)).obj())

    def taint_node(self, n: int, effect: str) -> None:
        """No effect: the node's taints are taken away."""
        for name in self._picked("nodes", n):
            taints = [{"key": "example.com/taint", "effect": effect}] if effect else None
            self.server.patch("nodes", name, {"spec": {"taints": taints}})

    # -- pods ----------------------------------------------------------------------------------------------------------

    def add_mixed(
        self, count: int, milli_cpu: int, volumes: Sequence[Want], devices: Sequence[str], rules: Rules
    ) -> None:
        """So many pods of ours at once that ask for the same; each has a name that no pod had before."""
        for _ in range(count):
            self._pods_made += 1
            self._add_mixed(f"m{self._pods_made:02}", milli_cpu, volumes, devices, rules)

    def _add_mixed(
        self, name: str, milli_cpu: int, volumes: Sequence[Want], devices: Sequence[str], rules: Rules
    ) -> None:
        built = self.with_devices(self._with_volumes(pod(name).cpu(f"{milli_cpu}m"), name, volumes), devices)
        with contextlib.suppress(Refused):
            self.server.create("pods", ruled(built, rules).obj())

    def finish_all(self) -> None:
        """All pods on nodes have run and are done, and are deleted: there is room for others."""
        for obj in self.server.list("pods"):
            if obj["spec"].get("nodeName"):
                name = obj["metadata"]["name"]
                self.server.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
                self.delete(name, at_once=True)

    def add_pod_of_others(self, name: str, volumes: Sequence[Want], devices: Sequence[str]) -> None:
        """For another scheduler: with volumes or with devices, never both."""
        built = pod(name).cpu("100m" if volumes else "0m").scheduler(THEIRS)
        built = self._with_volumes(built, name, volumes) if volumes else self.with_devices(built, devices)
        with contextlib.suppress(Refused):
            self.server.create("pods", built.obj())

    def _with_volumes(self, built: PodBuilder, name: str, wants: Sequence[Want]) -> PodBuilder:
        used = set[str]()
        for at, want in enumerate(wants):
            if want.how == "ephemeral":
                built = built.ephemeral(f"e{at}", f"{want.size}Gi", want.class_name)
                continue
            claim = f"{name}-{at}" if want.how == "own" else f"{want.how}-{want.class_name}"
            size = want.size if want.how == "own" else 2
            self.add_claim(claim, want.class_name, size, is_alone=want.how == "alone")
            if claim not in used:
                built = built.pvc(claim)
            used.add(claim)
        return built

    def add_missing_device_claims(self) -> None:
        """Make the shared claims that waiting pods name and that are not there."""
        for waiting in self._waiting():
            for name in entries_of(waiting):
                if name.startswith("shared-"):
                    self.add_device_claim(f"{name.removeprefix('shared-')}+")

    def delete_device_claim(self, n: int) -> None:
        """At once, or when no pod has reserved it any more."""
        for name in self._picked(_CLAIMS, n):
            users = (obj for obj in self.server.objects("pods") if name in entries_of(obj))
            self._robbed.update(obj["metadata"]["uid"] for obj in users)
            self.server.delete(_CLAIMS, name)

    def label_device_claims(self, value: str) -> None:
        """That changes nothing but their versions: writes of others meet a conflict."""
        for claim in self.server.list(_CLAIMS):
            patch = {"metadata": {"labels": {"example.com/n": value}}}
            self.server.patch(_CLAIMS, claim["metadata"]["name"], patch)

    def lose_names(self, times: int) -> None:
        """The claim controller dies so often before it writes the names of a pod's claims to its status."""
        self.claims.loses = times

    # -- in-place resize -----------------------------------------------------------------------------------------------

    def grow_pod(self, n: int, milli_cpu: int) -> None:
        """The kubelet has given a pod so much more than its spec asks for by now: a resize up and down again, not yet done.

        Only on the node that may be over-committed: a kubelet resizes whether or not a Binding is on its way.
        """
        for name in self._picked("pods", n, lambda obj: obj["spec"].get("nodeName") == SHARED):
            requests = self.server.get("pods", name)["spec"]["containers"][0]["resources"]["requests"]
            grown = requests | {"cpu": f"{int(requests['cpu'].removesuffix('m')) + milli_cpu}m"}
            self._resized(name, {"allocatedResources": grown, "resources": {"requests": grown}})

    def shrink_pod(self, n: int) -> None:
        """A resize is done: the pod holds what its spec asks for."""
        for name in self._picked("pods", n, lambda obj: bool(obj["status"].get("containerStatuses"))):
            requests = self.server.get("pods", name)["spec"]["containers"][0]["resources"]["requests"]
            self._resized(name, {"allocatedResources": requests, "resources": {"requests": requests}})

    def _resized(self, name: str, status: Object) -> None:
        told = {"name": "main", "image": "registry.example/app:1", "imageID": "", "ready": True, "restartCount": 0}
        self.server.patch("pods", name, {"status": {"containerStatuses": [told | status]}}, subresource="status")

    # -- another scheduler, and pods that ours has assumed ---------------------------------------------------------------

    def bind_assumed(self, n: int, elsewhere: bool) -> None:
        """Another scheduler binds a pod that ours is about to bind: where ours has put it, or on the shared node."""
        for name, node_name in self._assumed(n):
            self._bound_by_others.add(self.server.get("pods", name)["metadata"]["uid"])
            with contextlib.suppress(Refused):
                self.server.bind(name, SHARED if elsewhere else node_name)

    def delete_assumed(self, n: int, is_replaced: bool) -> None:
        """A pod that ours is about to bind is deleted at once; another of its name may come."""
        for name, _ in self._assumed(n):
            stored = self.server.get("pods", name)
            self.delete(name, at_once=True)
            if is_replaced:
                spec = {key: value for key, value in stored["spec"].items() if key != "priority"}
                metadata = {"name": name, "labels": stored["metadata"].get("labels", {})}
                with contextlib.suppress(Refused):  # the first pod may still have a finalizer
                    self.server.create("pods", {"metadata": metadata, "spec": spec})

    def _assumed(self, n: int) -> list[tuple[str, str]]:
        """Return the n-th pod that the leader has assumed and that is not bound, with its node; nothing if there is none."""
        if self.daemon is None:
            return []
        where = {info.uid: info.node_name for info in self.daemon.decisions.cluster.assumed()}
        names = self._picked("pods", n, lambda o: o["metadata"]["uid"] in where and not o["spec"].get("nodeName"))
        return [(name, where[self.server.get("pods", name)["metadata"]["uid"]]) for name in names]

    # -- the daemons ---------------------------------------------------------------------------------------------------

    def _replica(self) -> Replica:
        return Replica(self.clock, self._on_plan, self._config, self.reservations)

    @property
    def daemon(self) -> Daemon | None:
        found = self.replicas.foremost()
        return None if found is None else found.daemon

    async def start_daemon(self, port: int | None = None) -> None:
        assert port is None
        await self.replicas.start()

    async def stop_daemon(self) -> None:
        """All of them, for the end."""
        await self.replicas.stop(everyone=True)

    async def stop_leader(self) -> None:
        """SIGTERM: the other takes over at once."""
        await self.replicas.stop()

    async def kill_leader(self) -> None:
        """SIGKILL: the other takes over when the lease has run out."""
        await self.replicas.kill()

    async def crash_daemon(self) -> None:
        """The leader is killed and begins again, as a candidate."""
        await self.replicas.kill()
        await self.replicas.start()

    async def kill_both(self) -> None:
        await self.replicas.kill(everyone=True)

    def take_lease(self) -> None:
        """Another process takes the lease, and is never heard of again."""
        self.replicas.take_lease()

    def change_profile(self) -> None:
        for replica in self.replicas.all:
            replica.change_profile()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """As ever, and drivers and the claim controller are well again; then a fresh start is compared with both daemons."""
        await self._rest_in_peace()
        await self._compare_with_fresh()

    async def _rest_in_peace(self) -> None:
        for name in CLASSES:
            self.add_class(name)
        self.revive_drivers()
        self.claims.loses = 0
        self.claims.look_again()
        await super().settle()

    async def _compare_with_fresh(self) -> None:
        """A candidate begins, reads everything, and never leads."""
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
        """Both daemons are killed in a quiet world, and others begin. What these found to do."""
        evicted, before = set(self.witness.preempted), self._places()
        await self.replicas.kill(everyone=True)
        await self._rest_in_peace()
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
        """Of ours."""
        return {
            obj["metadata"]["name"]: obj["spec"].get("nodeName", "")
            for obj in self.server.objects("pods")
            if obj["spec"]["schedulerName"] == OURS
        }

    def unsettled(self) -> list[str]:
        """What must become true of a quiet world and is not yet; what is cheap to ask comes first."""
        for replica in self.replicas.all:
            replica.check()
            assert replica.deaths == []
        daemons, leaders = self.replicas.daemons(), self.replicas.leaders()
        if len(daemons) < COUNT or len(leaders) != 1 or any(replica.has_fallen for replica in self.replicas.all):
            return [f"{len(daemons)} replicas run, {len(leaders)} lead"]
        leader = leaders[0].daemon
        assert leader is not None
        idle = [*self._busy(), *self._trying(leader), *_without_counts(leftovers(self.server, leader))]
        return idle or [
            *unbound(self.server, lambda obj: obj["spec"]["schedulerName"] == OURS and self._has_place(obj)),
            *self._outdated(),
            *stranded(self.server),
            *reserved_for_the_gone(self.server),
            *self._promises_left(leader),
            *volume_leftovers(self.server, leader),
            *device_leftovers(leader),
            *(law for daemon in daemons for law in self._read_otherwise(daemon)),
        ]

    def _read_otherwise(self, daemon: Daemon) -> list[str]:
        return [
            *cache_differences(self.server, daemon.decisions.cluster),
            *volume_differences(self.server, daemon),
            *device_differences(self.server, daemon),
        ]

    def _busy(self) -> list[str]:
        blind = {obj["metadata"]["name"] for obj in self.server.objects("pods") if self._is_others(obj)}
        return [
            f"{actor.component} will look at {key}"
            for actor in self.actors
            for key in actor._when
            if key[0] != "csistoragecapacities" and (key[0] != "pods" or key[2] not in blind)
        ]

    def _promises_left(self, daemon: Daemon) -> list[str]:
        """As with kube-scheduler, a pod that must not preempt keeps a nomination from before a fail-over, too (§3.10, row 181)."""
        never = [
            f"pod default/{obj['metadata']['name']} "
            for obj in self._waiting()
            if obj["spec"].get("preemptionPolicy") == "Never"
        ]
        return [left for left in super()._promises_left(daemon) if not left.startswith(tuple(never))]

    def _has_place(self, waiting: Object) -> bool:
        """Whether some node would take the pod with all that it asks for; for pods without claims evictions count, too."""
        view, nodes = View(self.server), {obj["metadata"]["name"]: obj for obj in self.server.objects("nodes")}
        has_claims = bool(waiting["spec"].get("volumes") or waiting["spec"].get("resourceClaims"))
        may_evict = not has_claims and waiting["spec"].get("preemptionPolicy") != "Never"
        names = fitting_nodes(self.server, waiting)
        if may_evict and not names:
            names = fitting_nodes(self.server, waiting, evicting=True)
        if not view.is_usable(waiting):
            return False
        return bool(nodes_serving(self.server, waiting, [name for name in names if view.serves(waiting, nodes[name])]))

    def broken_laws(self) -> list[str]:
        """What must never have happened. While the daemons still run, after `settle`."""
        of_pods = self._of_ours(claims_of_pods(self.server))
        of_replicas = [law for replica in self.replicas.all for law in (*replica.deaths, *replica.not_undone)]
        left = [law for each in self.replicas.daemons() for law in self.reservations.left(each.decisions.cluster)]
        return [*super().broken_laws(), *self.bookings.broken, *of_pods, *of_replicas, *self.reservations.broken, *left]

    # -- at every moment -----------------------------------------------------------------------------------------------

    def _on_binding(self, cluster: Cluster, info: PodInfo, node_name: str) -> None:
        view = cached(cluster).without([info.uid])
        self.broken += [
            f"the Binding of {info.key} to {node_name} leaves, and the daemon knows: {why}"
            for why in lasting(view, info.pod, node_name)
        ]

    def _on_plan(self, daemon: Daemon, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        self.witness.planned(preemptor.uid, (victim.uid for victim in victims))
        view = cached(daemon.decisions.cluster).without(victim.uid for victim in victims)
        says = f"for {preemptor.key} on {node_name} were to be evicted {[victim.key for victim in victims]}"
        self.broken += [f"{says}: {why} without them, too" for why in obstacles(view, preemptor.pod, node_name)]
        if any(victim.priority >= preemptor.priority for victim in victims):
            self.broken.append(f"{says}: one of them is not less important")

    def _on_any_write(self, type_: str, resource: str, obj: Object) -> None:
        if len(self.replicas.leaders()) > 1:
            self.broken.append("two daemons lead at once")
        if resource == _CLAIMS and type_ != "DELETED":
            self.broken += self.broken_by_claim(obj, self.bookings)
        elif resource == "pods" and type_ == "MODIFIED" and obj["spec"].get("nodeName") and not self._is_others(obj):
            self.bookings.placed(obj)


def ruled(built: PodBuilder, rules: Rules) -> PodBuilder:
    """The pod with what it asks of nodes and of other pods."""
    selector = {"matchLabels": {TEAM: rules.team}}
    built = built.label(TEAM, rules.team) if rules.team else built
    built = built.memory(f"{rules.memory_gi}Gi") if rules.memory_gi else built
    built = built.extended(WIDGET, str(rules.widgets)) if rules.widgets else built
    built = built.overhead(cpu=f"{rules.overhead_milli_cpu}m") if rules.overhead_milli_cpu else built
    built = built.toleration("example.com/taint") if rules.tolerates else built
    built = built.priority_class(rules.class_name) if rules.class_name else built
    match rules.rule:
        case "apart" | "together":
            key = HOSTNAME if rules.rule == APART else ZONE
            term = {"labelSelector": selector, "topologyKey": key}
            kind = "podAntiAffinity" if rules.rule == APART else "podAffinity"
            return built.affinity({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
        case "spread" | "spread over hosts":
            key = ZONE if rules.rule == SPREAD else HOSTNAME
            constraint: dict[str, Any] = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            return built.set({"spec": {"topologySpreadConstraints": [constraint | {"labelSelector": selector}]}})
        case "zoned":
            return built.node_selector({ZONE: "a"})
    return built


def _has_read(daemon: Daemon) -> bool:
    return daemon._is_synced and not len(daemon.decisions.inbox)


def _without_counts(left: list[str]) -> list[str]:
    """Pods whose claims are not there may wait behind a gate or not: `_trying` knows."""
    return [each for each in left if not each.startswith("counts: ")]


@contextlib.asynccontextmanager
async def with_all(*, watch_list: bool = True) -> AsyncIterator[MixedWorld]:
    """An empty world with two daemons, kubelets, controllers and drivers."""
    async with contextlib.AsyncExitStack() as stack:

        def make(server: ApiServer, clock: HastyClock) -> MixedWorld:
            world = MixedWorld(server, clock)
            stack.enter_context(observed(world.reservations))
            return world

        world = await stack.enter_async_context(hosted(make, watch_list=watch_list, kubelets_grace_s=2))
        await stack.enter_async_context(world.replicas)
        yield world
