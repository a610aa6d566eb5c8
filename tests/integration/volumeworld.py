"""A cluster in trouble whose pods have volumes: the world of `world`, and the controllers that act on volumes.

Two racks have storage of their own: `n1` and the shared node are in one, `n2` is in the other. Capacity is published every
quarter of a minute, so that it is old most of the time. Everything is done by name or by count, as in `World`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, NO_PROVISIONER
from scheduler.config.args import KnownArgs, KubestowArgs, RawArgs, VolumeBindingArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile, LeaderElection
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer, Refused
from simulator.builders.core import node, pod
from simulator.controllers import (
    AttachDetachController,
    EphemeralVolumeController,
    ExternalProvisioner,
    PersistentVolumeController,
    ProtectionController,
    ProvisionCall,
)
from simulator.controllers.persistent_volume import unbind
from tests.integration.judging import OURS, Object, leftovers, nominations
from tests.integration.mortal import HastyClock, Mortal
from tests.integration.otheractors import GarbageCollector, OtherScheduler
from tests.integration.placementjudging import cache_differences
from tests.integration.volumejudging import (
    View,
    claims_of,
    has_place,
    is_bound,
    selected_node,
    volume_differences,
    volume_leftovers,
)
from tests.integration.world import SHARED, THEIRS, ZONE, World, hosted
from tests.support.invariants import claimed_twice, segments_overdrawn, stranded, unbound, volumes_of_pods
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_csi_driver, a_csi_node, a_pv

RACK: Final = "example.com/rack"
RACKS: Final = {"n1": "r1", SHARED: "r1", "n2": "r2"}
"""A node that is not named has a rack of its own, without storage."""
TRACKED: Final = "tracked.example"
"""The driver whose capacity is tracked: room per rack."""
PLAIN: Final = "plain.example"
"""The driver that has room for everything, on every node by itself."""
CLASSES: Final = {
    "local": (NO_PROVISIONER, True),
    "now": (NO_PROVISIONER, False),
    "fast": (TRACKED, True),
    "plain": (PLAIN, True),
    "eager": (PLAIN, False),
}
"""Class → its provisioner, and whether it waits for the first consumer."""
SPACE: Final = {"r1": 10 * 2**30, "r2": 8 * 2**30}
LIMIT: Final = 4
"""How many volumes either driver attaches to a node, until it is raised."""
BIND_TIMEOUT_S: Final = 120
_CAPACITIES: Final = "csistoragecapacities"
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"


class Want(NamedTuple):
    """One volume of a pod. `how`: a claim of its own, an ephemeral volume, one it shares with others, or one for it alone."""

    class_name: str
    size: int
    how: str = "own"


class VolumeWorld(World):
    """As `World`, with claims, volumes, and who acts on them."""

    def __init__(
        self,
        server: ApiServer,
        clock: HastyClock,
        *,
        ours: KubestowArgs | None = None,
        election: LeaderElection | None = None,
        publishes_every_s: float = 15,
    ) -> None:
        """Without an election there is one daemon, and it leads."""
        super().__init__(server, clock)
        args: dict[str, KnownArgs | RawArgs] = {
            VolumeBindingArgs.plugin: VolumeBindingArgs(bind_timeout_s=BIND_TIMEOUT_S),
            KubestowArgs.plugin: ours or KubestowArgs(),
        }
        elected = election or LeaderElection(leader_elect=False)
        config = Configuration(profiles=(KubeSchedulerProfile(OUR_NAME, args=args),), leader_election=elected)
        self._mortal = Mortal(clock, self._on_plan, config)
        self._failing = 0
        self._is_to_die = False
        self._volumes_made = 0
        self._limits: dict[str, int] = {}
        self.refusals: list[tuple[str, str]] = []
        """Each time that a pod was told why it is not placed: its name, and why."""
        server.create("csidrivers", a_csi_driver(TRACKED).tracks_capacity().obj())
        for name, (provisioner, waits) in CLASSES.items():
            made = a_class(name, provisioner).reclaim("Delete" if provisioner != NO_PROVISIONER else "Retain")
            server.create("storageclasses", (made if waits else made.immediate()).obj())
        for name in RACKS:
            csi_node = a_csi_node(name).driver(TRACKED, LIMIT, topology_keys=(RACK,))
            server.create("csinodes", csi_node.driver(PLAIN, LIMIT, topology_keys=(HOSTNAME,)).obj())
            self._limits[name] = LIMIT
        self.controller = PersistentVolumeController(server, clock=clock, delay_s=0.3)
        self.provisioner = ExternalProvisioner(
            server,
            TRACKED,
            clock=clock,
            delay_s=3,
            topology_keys=(RACK,),
            space=SPACE,
            fault=self._fails,
            publishes_every_s=publishes_every_s,
        )
        self.plain = ExternalProvisioner(server, PLAIN, clock=clock, delay_s=1, fault=self._fails)
        self.others = OtherScheduler(server, clock=clock, scheduler_name=THEIRS, node_name=SHARED)
        self.actors += [
            self.controller,
            self.provisioner,
            self.plain,
            self.others,
            EphemeralVolumeController(server, clock=clock, delay_s=0.5),
            GarbageCollector(server, clock=clock),
            ProtectionController(server, clock=clock),
            AttachDetachController(server, clock=clock, attach_delay_s=1, detach_delay_s=2),
        ]
        server.subscribe(self._on_volume_write)

    # -- nodes and volumes ---------------------------------------------------------------------------------------------

    def add_node(self, name: str, milli_cpu: int, zone: str) -> None:
        """With the rack that it always has."""
        with contextlib.suppress(Refused):
            size = self._sized(name, milli_cpu)
            made = node(name).cpu(f"{size}m").pods(5).label(ZONE, zone).label(RACK, RACKS.get(name, f"of {name}"))
            self.server.create("nodes", made.obj())

    def add_volume(self, class_name: str, size: int, where: str) -> None:
        """By hand, on a node or in a rack; "" is everywhere."""
        self._volumes_made += 1
        made = a_pv(f"v{self._volumes_made:03}", f"{size}Gi", class_name)
        if where:
            made = made.where(RACK if where in SPACE else HOSTNAME, where)
        self.server.create(_VOLUMES, made.obj())

    def replace_released(self) -> None:
        """Whoever made the local volumes wipes those whose claims have gone, and offers them anew."""
        for volume in list(self.server.objects(_VOLUMES)):
            if volume["status"].get("phase") in {"Released", "Failed"} and not volume["spec"].get("csi"):
                terms = (volume["spec"].get("nodeAffinity") or {}).get("required", {}).get("nodeSelectorTerms", ())
                where = next((each["matchExpressions"][0]["values"][0] for each in terms), "")
                self.server.delete(_VOLUMES, volume["metadata"]["name"])
                size = int(volume["spec"]["capacity"]["storage"].removesuffix("Gi"))
                self.add_volume(volume["spec"]["storageClassName"], size, where)

    def raise_limit(self, n: int) -> None:
        """One more volume of each driver may be attached to some node."""
        for name in self._picked("csinodes", n):
            self._limits[name] += 1
            drivers = self.server.get("csinodes", name)["spec"]["drivers"]
            raised = [each | {"allocatable": {"count": self._limits[name]}} for each in drivers]
            self.server.patch("csinodes", name, {"spec": {"drivers": raised}})

    # -- pods and claims -----------------------------------------------------------------------------------------------

    def add_pod_with(self, name: str, milli_cpu: int, wants: Sequence[Want], is_ours: bool = True) -> None:
        """Nothing if there is a pod of that name. Claims that are there are taken as they are."""
        built = pod(name).cpu(f"{milli_cpu}m").scheduler(OURS if is_ours else THEIRS)
        for i, want in enumerate(wants):
            if want.how == "ephemeral":
                built = built.ephemeral(f"e{i}", f"{want.size}Gi", want.class_name)
                continue
            claim = f"{name}-{i}" if want.how == "own" else f"{want.how}-{want.class_name}"
            self.add_claim(claim, want.class_name, want.size if want.how == "own" else 2, is_alone=want.how == "alone")
            if all(claim != used for used, _ in claims_of(built.obj())):
                built = built.pvc(claim)
        with contextlib.suppress(Refused):
            self.server.create("pods", built.obj())

    def add_claim(self, name: str, class_name: str, size: int, is_alone: bool = False) -> None:
        """Nothing if there is one."""
        made = a_claim(name, f"{size}Gi", class_name)
        with contextlib.suppress(Refused):
            self.server.create(_CLAIMS, (made.modes("ReadWriteOncePod") if is_alone else made).obj())

    def add_set(self, name: str, count: int, wants: Sequence[Want]) -> None:
        """Several pods at once, with the same wishes."""
        for i in range(count):
            self.add_pod_with(f"{name}{i}", 100, wants)

    def delete_claim(self, n: int) -> None:
        """Pods that are not on a node yet lose it at once."""
        for name in self._picked(_CLAIMS, n):
            self._robbed.update(o["metadata"]["uid"] for o in self.server.objects("pods") if name in dict(claims_of(o)))
            self.server.delete(_CLAIMS, name)

    def add_missing_claims(self, class_name: str) -> None:
        """Somebody makes the claims that waiting pods name and nobody has made, or somebody has deleted."""
        for waiting in self._waiting():
            for name, is_ephemeral in claims_of(waiting):
                if not is_ephemeral:
                    self.add_claim(name, class_name, 1)

    def label(self, resource: str, n: int, value: str) -> None:
        """Somebody labels a claim or a volume: that changes nothing but its version."""
        for name in self._picked(resource, n):
            self.server.patch(resource, name, {"metadata": {"labels": {"example.com/n": value}}})

    def label_all(self, value: str) -> None:
        """All claims and volumes."""
        for resource in (_CLAIMS, _VOLUMES):
            for n in range(len(list(self.server.objects(resource)))):
                self.label(resource, n, value)

    def reserve_volume(self, n: int, m: int) -> None:
        """A user means a free volume for a claim that has none."""
        named = {(volume["spec"].get("claimRef") or {}).get("name") for volume in self.server.objects(_VOLUMES)}

        def is_open(claim: Object) -> bool:
            is_alone = "ReadWriteOncePod" in claim["spec"]["accessModes"]  # no volume by hand would do
            return not is_alone and not claim["spec"].get("volumeName") and claim["metadata"]["name"] not in named

        for claim in self._picked(_CLAIMS, m, is_open):
            for name in self._picked(_VOLUMES, n, lambda o: not o["spec"].get("claimRef")):
                reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": claim}
                self.server.patch(_VOLUMES, name, {"spec": {"claimRef": reference}})

    def select_by_others(self, n: int, node_name: str) -> None:
        """Another scheduler chooses a node for a claim that waits for one and has none."""
        for name in self._picked(_CLAIMS, n, _is_to_be_selected):
            annotations = {"volume.kubernetes.io/selected-node": node_name}
            self.server.patch(_CLAIMS, name, {"metadata": {"annotations": annotations}})

    def remove_selected_node(self, n: int) -> None:
        """A node that a claim without a volume has been given."""
        chosen = {selected_node(o) for o in self.server.objects(_CLAIMS) if not o["spec"].get("volumeName")}
        for name in self._picked("nodes", n, lambda obj: obj["metadata"]["name"] in chosen):
            self.server.delete("nodes", name)

    # -- controllers ---------------------------------------------------------------------------------------------------

    def lose_binds(self, count: int) -> None:
        """The PV controller forgets so many bindings in the middle."""
        self.controller.loses = count

    def resync(self) -> None:
        """It looks at everything again."""
        self.controller.look_again()

    def unbind(self, n: int) -> None:
        """It parts a volume again that was to be a claim's, and is not yet."""
        bound = {claim["metadata"]["name"] for claim in self.server.objects(_CLAIMS) if is_bound(claim)}
        for name in self._picked(_VOLUMES, n, lambda o: _is_reserved(o) and o["spec"]["claimRef"]["name"] not in bound):
            unbind(self.server, self.server.get(_VOLUMES, name))

    def fail_provisioning(self, calls: int, keeps_trying: bool) -> None:
        """The next calls fail; whoever keeps trying does not give the claim back to the scheduler."""
        self._failing = calls
        self.provisioner.keeps_trying = self.plain.keeps_trying = keeps_trying

    def kill_provisioner(self, in_a_call: bool) -> None:
        """Now, or in the middle of the next call."""
        if in_a_call:
            self._is_to_die = True
        else:
            self.provisioner.die()

    def revive_provisioner(self) -> None:
        """Whichever has died."""
        self._is_to_die = False
        for each in (self.provisioner, self.plain):
            if each.is_dead:
                each.revive()

    def drop_capacity(self, n: int) -> None:
        """Deleted; the provisioner makes another one when it publishes next."""
        for name in self._picked(_CAPACITIES, n):
            self.server.delete(_CAPACITIES, name, namespace="kube-system")

    def _fails(self, call: ProvisionCall) -> str:
        if self._is_to_die:
            self._is_to_die = False
            self.provisioner.die()
            self.plain.die()
            return ""
        if self._failing:
            self._failing -= 1
            return "rpc error: code = ResourceExhausted desc = told to"
        return ""

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """As ever; and the controllers are well again."""
        self._failing = 0
        self.provisioner.keeps_trying = self.plain.keeps_trying = False
        self.revive_provisioner()
        self.controller.loses = 0
        self.resync()
        await super().settle()

    def unsettled(self) -> list[str]:
        """What must become true of a quiet world and is not yet."""
        assert self.daemon is not None
        self._mortal.check()
        assert self._mortal.deaths == []
        idle = [*self._busy(), *leftovers(self.server, self.daemon)]
        return idle or [
            *unbound(self.server, lambda o: o["spec"]["schedulerName"] == OURS and has_place(self.server, o)),
            *self._outdated(),
            *stranded(self.server),
            *self._promises_left(self.daemon),
            *cache_differences(self.server, self.daemon.decisions.cluster),
            *volume_differences(self.server, self.daemon),
            *volume_leftovers(self.server, self.daemon),
        ]

    def _promises_left(self, daemon: Daemon) -> list[str]:
        """A pod that PreFilter refuses keeps a nomination from before a restart, as with kube-scheduler: see DynamicResources."""
        view = View(self.server)
        refused = [f"pod default/{o['metadata']['name']} " for o in self._waiting() if not view.is_usable(o)]
        return [left for left in nominations(self.server, daemon) if not left.startswith(tuple(refused))]

    def _busy(self) -> list[str]:
        return [
            f"{actor.component} will look at {key}"
            for actor in self.actors
            for key in actor._when
            if key[0] != _CAPACITIES
        ]

    def _outdated(self) -> list[str]:
        view, space = View(self.server), self.provisioner.space
        assert space is not None
        return [
            f"published is {view.room('fast', {RACK: rack})} for {rack}"
            for rack in SPACE
            if view.room("fast", {RACK: rack}) != space.free_bytes(rack)
        ]

    def broken_laws(self) -> list[str]:
        """What must never have happened. While the daemon still runs, after `settle`."""
        return [*super().broken_laws(), *claimed_twice(self.server), *self._of_ours(volumes_of_pods(self.server))]

    def _on_volume_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _VOLUMES and type_ == "ADDED":
            self.broken += segments_overdrawn(self.server, TRACKED, RACK, SPACE)
            self.broken += self.provisioner.overdrawn()
        if resource == "pods":
            told = (obj["metadata"]["name"], _refusal(obj))
            if told[1] and told not in self.refusals:
                self.refusals.append(told)
        is_placed = resource == "pods" and type_ != "DELETED" and bool(obj["spec"].get("nodeName"))
        if is_placed and not self._is_others(obj):
            view = View(self.server)
            self.broken += [*self._overattached(view, obj), *self._not_alone(view, obj)]
            if obj["metadata"]["uid"] not in self._robbed:
                self.broken += [
                    f"pod {obj['metadata']['name']} is placed, and claim {claim} has no volume"
                    for claim, _ in claims_of(obj)
                    if claim not in view.claims or not is_bound(view.claims[claim])
                ]

    def _overattached(self, view: View, placed: Object) -> Iterator[str]:
        node_name = placed["spec"]["nodeName"]
        used = [each for each in view.used(node_name) if each is not None]
        for driver, limit in view.limits(node_name).items() if node_name != SHARED else ():
            if sum(each[0] == driver for each in used) > limit:
                yield f"node {node_name}: {limit} volumes of {driver} can be attached, pods use {used}"

    def _not_alone(self, view: View, placed: Object) -> Iterator[str]:
        for claim, is_ephemeral in claims_of(placed):
            found = view.claims.get(claim)
            if found is None or is_ephemeral or "ReadWriteOncePod" not in found["spec"]["accessModes"]:
                continue
            if len(users := view.users(claim)) > 1 and not any(map(self._is_others, users)):
                yield f"claim {claim} is for one pod alone, and {placed['metadata']['name']} is not the only one"


def _refusal(pod: Object) -> str:
    """What the condition says of a pod that is not placed."""
    conditions = pod["status"].get("conditions", [])
    told = (c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")
    return next(told, "")


def _is_to_be_selected(claim: Object) -> bool:
    """It is made for a node, and has neither one nor a volume."""
    provisioner, waits = CLASSES[claim["spec"]["storageClassName"]]
    has_none = not claim["spec"].get("volumeName") and not selected_node(claim)
    return waits and provisioner != NO_PROVISIONER and has_none


def _is_reserved(volume: Object) -> bool:
    """A scheduler or the controller has meant it for a claim."""
    annotations = volume["metadata"].get("annotations") or {}
    return BOUND_BY_CONTROLLER in annotations and bool(volume["spec"].get("claimRef")) and not volume["spec"].get("csi")


@contextlib.asynccontextmanager
async def with_volumes(
    *,
    watch_list: bool = True,
    ours: KubestowArgs | None = None,
    election: LeaderElection | None = None,
    publishes_every_s: float = 15,
) -> AsyncIterator[VolumeWorld]:
    """An empty world with a daemon, kubelets and controllers."""

    def make(server: ApiServer, clock: HastyClock) -> VolumeWorld:
        return VolumeWorld(server, clock, ours=ours, election=election, publishes_every_s=publishes_every_s)

    async with hosted(make, watch_list=watch_list, kubelets_grace_s=2) as world:
        yield world
