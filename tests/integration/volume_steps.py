"""Steps of histories that change volumes, claims and their controllers.

Two racks have storage: `n1` and the shared node are in one, `n2` is in the other. Capacity is published four times a minute, so it is mostly old.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, NO_PROVISIONER
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.builders.core import PodBuilder
from simulator.controllers import (
    Actor,
    EphemeralVolumeController,
)
from simulator.controllers.persistent_volume import unbind
from simulator.controllers.protection import ProtectionController
from tests.actors.attach_detach import AttachDetachController
from tests.actors.mortal import MortalVolumeController
from tests.actors.provisioner import FaultyProvisioner, ProvisionCall
from tests.integration.daemon_laws import Object
from tests.integration.other_schedulers import GarbageCollector, OtherScheduler
from tests.integration.pod_steps import RACK, RACKS, SHARED, THEIRS, PodSteps
from tests.integration.volume_laws import StorageView, claims_of, is_bound, selected_node
from tests.support.invariants import segments_overdrawn
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_csi_driver, a_csi_node, a_pv

TRACKED: Final = "tracked.example"
"""The driver whose capacity is tracked per rack."""
PLAIN: Final = "plain.example"
"""The driver with unlimited capacity on every node."""
STORAGE_CLASSES: Final = {
    "local": (NO_PROVISIONER, True),
    "now": (NO_PROVISIONER, False),
    "fast": (TRACKED, True),
    "plain": (PLAIN, True),
    "eager": (PLAIN, False),
}
"""Class → its provisioner, and whether it waits for the first consumer."""
SPACE: Final = {"r1": 10 * 2**30, "r2": 8 * 2**30}
LIMIT: Final = 4
"""The number of volumes that each driver attaches to a node, until it is raised."""
CAPACITIES: Final = "csistoragecapacities"
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"


class Want(NamedTuple):
    """One volume of a pod. `how`: own claim, ephemeral volume, claim shared by pods, or ReadWriteOncePod claim ("alone")."""

    class_name: str
    size: int
    how: str = "own"


class VolumeSteps(PodSteps):
    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.actors: list[Actor] = []
        self._failing = 0
        self._code = ""
        self._is_to_die = False
        self._volumes_made = 0
        self._limits: dict[str, int] = {}
        self._robbed: set[str] = set()
        """Uids of pods whose claims were deleted."""

    def install_storage(self, clock: Clock, publishes_every_s: float) -> None:
        """Create drivers and classes, and the controllers, which act once they are entered."""
        server = self.server
        server.create("csidrivers", a_csi_driver(TRACKED).tracks_capacity().obj())
        for name, (provisioner, waits) in STORAGE_CLASSES.items():
            made = a_class(name, provisioner).reclaim("Delete" if provisioner != NO_PROVISIONER else "Retain")
            server.create("storageclasses", (made if waits else made.immediate()).obj())
        for name in RACKS:
            csi_node = a_csi_node(name).driver(TRACKED, LIMIT, topology_keys=(RACK,))
            server.create("csinodes", csi_node.driver(PLAIN, LIMIT, topology_keys=(HOSTNAME,)).obj())
            self._limits[name] = LIMIT
        self.provisioner = FaultyProvisioner(
            server,
            TRACKED,
            clock=clock,
            delay_s=3,
            topology_keys=(RACK,),
            space=SPACE,
            segment_key=RACK,
            fault=self._fails,
            publishes_every_s=publishes_every_s,
        )
        self.plain = FaultyProvisioner(
            server, PLAIN, clock=clock, delay_s=1, topology_keys=(HOSTNAME,), fault=self._fails
        )
        self.actors += [
            self.provisioner,
            self.plain,
            OtherScheduler(server, clock=clock, scheduler_name=THEIRS, node_name=SHARED),
            EphemeralVolumeController(server, clock=clock, delay_s=0.5),
            GarbageCollector(server, clock=clock),
            ProtectionController(server, clock=clock),
            AttachDetachController(server, clock=clock, attach_delay_s=1, detach_delay_s=2),
        ]

    def install_volume_controller(self, clock: Clock) -> None:
        self.volume_controller = MortalVolumeController(self.server, clock=clock, delay_s=0.3)
        self.actors.append(self.volume_controller)

    # -- volumes ---------------------------------------------------------------------------------------------------------

    def add_volume(self, class_name: str, size: int, where: str) -> None:
        """Create a volume on a node or in a rack; "" is everywhere."""
        self._volumes_made += 1
        made = a_pv(f"v{self._volumes_made:03}", f"{size}Gi", class_name)
        if where:
            made = made.where(RACK if where in SPACE else HOSTNAME, where)
        self.server.create(VOLUMES, made.obj())

    def replace_released(self) -> None:
        """Replace local volumes whose claims are deleted, as a static provisioner does after it has wiped them."""
        for volume in list(self.server.objects(VOLUMES)):
            if volume["status"].get("phase") in {"Released", "Failed"} and not volume["spec"].get("csi"):
                terms = (volume["spec"].get("nodeAffinity") or {}).get("required", {}).get("nodeSelectorTerms", ())
                where = next((each["matchExpressions"][0]["values"][0] for each in terms), "")
                self.server.delete(VOLUMES, volume["metadata"]["name"])
                size = int(volume["spec"]["capacity"]["storage"].removesuffix("Gi"))
                self.add_volume(volume["spec"]["storageClassName"], size, where)

    def raise_limit(self, n: int) -> None:
        """Raise the limit of each driver on a node by one."""
        for name in self._picked("csinodes", n):
            self._limits[name] += 1
            drivers = self.server.get("csinodes", name)["spec"]["drivers"]
            raised = [each | {"allocatable": {"count": self._limits[name]}} for each in drivers]
            self.server.patch("csinodes", name, {"spec": {"drivers": raised}})

    # -- claims ----------------------------------------------------------------------------------------------------------

    def with_volumes(self, built: PodBuilder, name: str, wants: Sequence[Want]) -> PodBuilder:
        """Return the pod with these volumes. Claims that exist are used as they are."""
        used = set[str]()
        for at, want in enumerate(wants):
            if want.how == "ephemeral":
                built = built.ephemeral(f"e{at}", f"{want.size}Gi", want.class_name)
                continue
            claim = f"{name}-{at}" if want.how == "own" else f"{want.how}-{want.class_name}"
            self.add_claim(claim, want.class_name, want.size if want.how == "own" else 2, is_alone=want.how == "alone")
            if claim not in used:
                built = built.pvc(claim)
            used.add(claim)
        return built

    def add_claim(self, name: str, class_name: str, size: int, is_alone: bool = False) -> None:
        """Create the claim unless it exists."""
        made = a_claim(name, f"{size}Gi", class_name)
        self._create(CLAIMS, made.modes("ReadWriteOncePod") if is_alone else made)

    def delete_claim(self, n: int) -> None:
        for name in self._picked(CLAIMS, n):
            self._robbed.update(o["metadata"]["uid"] for o in self.server.objects("pods") if name in dict(claims_of(o)))
            self.server.delete(CLAIMS, name)

    def add_missing_claims(self, class_name: str) -> None:
        """Create the claims that waiting pods name and that do not exist."""
        for waiting in self._waiting():
            for name, is_ephemeral in claims_of(waiting):
                if not is_ephemeral:
                    self.add_claim(name, class_name, 1)

    def label_all(self, value: str) -> None:
        """Label all claims and volumes, which changes nothing but their versions."""
        for resource in (CLAIMS, VOLUMES):
            for obj in self.server.list(resource):
                patch = {"metadata": {"labels": {"example.com/n": value}}}
                self.server.patch(resource, obj["metadata"]["name"], patch)

    def reserve_volume(self, n: int, m: int) -> None:
        """Reserve a free volume for a claim that has none, as a user."""
        named = {(volume["spec"].get("claimRef") or {}).get("name") for volume in self.server.objects(VOLUMES)}

        def is_open(claim: Object) -> bool:
            is_alone = "ReadWriteOncePod" in claim["spec"]["accessModes"]  # no volume made by hand would match
            return not is_alone and not claim["spec"].get("volumeName") and claim["metadata"]["name"] not in named

        for claim in self._picked(CLAIMS, m, is_open):
            for name in self._picked(VOLUMES, n, lambda o: not o["spec"].get("claimRef")):
                reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": claim}
                self.server.patch(VOLUMES, name, {"spec": {"claimRef": reference}})

    def select_as_another(self, n: int, node_name: str) -> None:
        """Select a node, as another scheduler, for a claim that waits for one."""
        for name in self._picked(CLAIMS, n, _is_to_be_selected):
            annotations = {"volume.kubernetes.io/selected-node": node_name}
            self.server.patch(CLAIMS, name, {"metadata": {"annotations": annotations}})

    def remove_selected_node(self, n: int) -> None:
        """Delete a node that is selected for a claim without a volume."""
        chosen = {selected_node(o) for o in self.server.objects(CLAIMS) if not o["spec"].get("volumeName")}
        for name in self._picked("nodes", n, lambda obj: obj["metadata"]["name"] in chosen):
            self.server.delete("nodes", name)

    # -- controllers -----------------------------------------------------------------------------------------------------

    def lose_binds(self, count: int) -> None:
        """Let the PV controller stop in the middle of this many bindings."""
        self.volume_controller.loses = count

    def unbind(self, n: int) -> None:
        """Let the PV controller release a volume that is reserved for a claim and not bound."""
        bound = {claim["metadata"]["name"] for claim in self.server.objects(CLAIMS) if is_bound(claim)}
        for name in self._picked(VOLUMES, n, lambda o: _is_reserved(o) and o["spec"]["claimRef"]["name"] not in bound):
            unbind(self.server, self.server.get(VOLUMES, name))

    def fail_provisioning(self, calls: int, keeps_trying: bool) -> None:
        """Let the next calls fail; a provisioner that keeps trying does not clear the selected node."""
        self._failing = calls
        self._code = "Unavailable" if keeps_trying else "ResourceExhausted"

    def kill_provisioner(self, in_a_call: bool) -> None:
        """Kill it now, or in the middle of the next call."""
        if in_a_call:
            self._is_to_die = True
        else:
            self.provisioner.die()

    def revive_provisioner(self) -> None:
        self._is_to_die = False
        for each in (self.provisioner, self.plain):
            if each.is_dead:
                each.revive()

    def repair_storage(self) -> None:
        """Let all controllers of volumes work without faults."""
        self._failing = 0
        self.revive_provisioner()
        self.volume_controller.loses = 0
        self.volume_controller.look_again()

    def drop_capacity(self, n: int) -> None:
        """Delete a capacity object; the provisioner creates it again when it publishes next."""
        for name in self._picked(CAPACITIES, n):
            self.server.delete(CAPACITIES, name, namespace="kube-system")

    def _fails(self, call: ProvisionCall) -> str:
        if self._is_to_die:
            self._is_to_die = False
            self.provisioner.die()
            self.plain.die()
            return ""
        if self._failing:
            self._failing -= 1
            return f"rpc error: code = {self._code} desc = planned"
        return ""

    # -- laws ------------------------------------------------------------------------------------------------------------

    def _overdrawn(self) -> list[str]:
        """Return the laws that a new volume has broken."""
        return [*segments_overdrawn(self.server, TRACKED, RACK, SPACE), *self.provisioner.overdrawn()]

    def _unpublished(self) -> list[str]:
        """Return the racks whose published capacity is not the free space."""
        view, space = StorageView(self.server), self.provisioner.space
        assert space is not None
        found = {rack: (view.capacity("fast", {RACK: rack}), space.free_bytes(rack)) for rack in SPACE}
        return [f"published is {shown} for {rack}" for rack, (shown, free) in found.items() if shown != free]

    def _broken_by_placing(self, placed: Object) -> list[str]:
        """Return the laws about volumes that this Binding of ours has broken."""
        view = StorageView(self.server)
        broken = [*self._overattached(view, placed), *self._not_alone(view, placed)]
        if placed["metadata"]["uid"] not in self._robbed:
            broken += [
                f"pod {placed['metadata']['name']} is placed, and claim {claim} has no volume"
                for claim, _ in claims_of(placed)
                if claim not in view.claims or not is_bound(view.claims[claim])
            ]
        return broken

    def _overattached(self, view: StorageView, placed: Object) -> Iterator[str]:
        node_name = placed["spec"]["nodeName"]
        used = [each for each in view.used(node_name) if each is not None]
        for driver, limit in view.limits(node_name).items() if node_name != SHARED else ():
            if sum(each[0] == driver for each in used) > limit:
                yield f"node {node_name}: {limit} volumes of {driver} can be attached, pods use {used}"

    def _not_alone(self, view: StorageView, placed: Object) -> Iterator[str]:
        for claim, is_ephemeral in claims_of(placed):
            found = view.claims.get(claim)
            if found is None or is_ephemeral or "ReadWriteOncePod" not in found["spec"]["accessModes"]:
                continue
            if len(users := view.users(claim)) > 1 and not any(map(self._is_foreign, users)):
                yield f"claim {claim} is ReadWriteOncePod, and {placed['metadata']['name']} is not its only pod"


def _is_to_be_selected(claim: Object) -> bool:
    provisioner, waits = STORAGE_CLASSES[claim["spec"]["storageClassName"]]
    has_none = not claim["spec"].get("volumeName") and not selected_node(claim)
    return waits and provisioner != NO_PROVISIONER and has_none


def _is_reserved(volume: Object) -> bool:
    """Return whether a scheduler or the controller has reserved it for a claim."""
    annotations = volume["metadata"].get("annotations") or {}
    return BOUND_BY_CONTROLLER in annotations and bool(volume["spec"].get("claimRef")) and not volume["spec"].get("csi")
