"""Laws about a settled cluster with volumes: which pods would still fit, and what the daemon must not hold.

The rules for where a pod fits are written again here, on manifests, for the objects of `volume_steps`: sizes are whole `Gi`, volumes
name one label or none, and claims of a class differ only in size. Rules: docs/spec/volumes.md §3, §9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import BIND_COMPLETED, NO_PROVISIONER, SELECTED_NODE, WAIT_FOR_FIRST_CONSUMER
from scheduler.daemon.app import Daemon
from scheduler.plugins.volumebinding.assume import AssumedVolumes
from simulator.apiserver import ApiServer
from tests.integration.daemon_laws import OURS, Object
from tests.integration.other_schedulers import gibi, reaches

_OVER: Final = frozenset({"Succeeded", "Failed"})
_UNDER_WAY: Final = frozenset({"flying", "stranded"})


class StorageView:
    """The objects of one moment, by name."""

    def __init__(self, server: ApiServer) -> None:
        self._pods = [pod for pod in server.objects("pods") if pod["status"].get("phase") not in _OVER]
        self.claims = _named(server, "persistentvolumeclaims")
        self.volumes = _named(server, "persistentvolumes")
        self._classes = _named(server, "storageclasses")
        self._drivers = _named(server, "csidrivers")
        self._csi_nodes = _named(server, "csinodes")
        self._capacities = list(server.objects("csistoragecapacities"))
        self._attachments = list(server.objects("volumeattachments"))

    # -- pods ----------------------------------------------------------------------------------------------------------

    def is_usable(self, waiting: Object) -> bool:
        """Return whether its claims exist, stay, belong to it, and are not used by another pod alone."""
        for name, is_ephemeral in claims_of(waiting):
            claim = self.claims.get(name)
            if claim is None or claim["metadata"].get("deletionTimestamp") or claim["status"].get("phase") == "Lost":
                return False
            owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())}
            if is_ephemeral and waiting["metadata"]["uid"] not in owners:
                return False
            if not is_bound(claim) and (claim["spec"].get("volumeName") or not self._waits(claim)):
                return False
            if not is_ephemeral and "ReadWriteOncePod" in claim["spec"]["accessModes"] and self.users(name):
                return False
        return True

    def users(self, claim_name: str) -> list[Object]:
        """Return the pods on nodes that use the claim."""
        return [
            pod
            for pod in self._pods
            if pod["spec"].get("nodeName") and any(name == claim_name for name, _ in claims_of(pod))
        ]

    def serves(self, waiting: Object, node: Object) -> bool:
        """Return whether the volumes of a usable pod are on the node, or can be, together."""
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        claims = [self.claims[name] for name in dict.fromkeys(name for name, _ in claims_of(waiting))]
        for claim in claims:
            volume = self.volumes.get(claim["spec"].get("volumeName", ""))
            if is_bound(claim) and (volume is None or not reaches(volume, labels)):
                return False
            if not is_bound(claim) and selected_node(claim) not in {"", name}:
                return False
        delayed = [claim for claim in claims if not is_bound(claim)]
        return self._can_be_found(delayed, labels) and self._can_be_attached(claims, name)

    # -- volumes that are to come ----------------------------------------------------------------------------------------

    def _can_be_found(self, delayed: list[Object], labels: dict[str, str]) -> bool:
        """Give the smallest volume to the smallest claim first; claims without one are provisioned."""
        taken: set[str] = set()
        wanted = [claim for claim in delayed if selected_node(claim)]
        for claim in sorted((each for each in delayed if not selected_node(each)), key=request_of):
            meant = list(self._meant_for(claim))
            if meant:
                if not all(reaches(volume, labels) for volume in meant):
                    return False
                continue
            free = [volume for volume in self._free(claim) if reaches(volume, labels)]
            best = min(
                (_size_and_name(volume) for volume in free if _size_and_name(volume)[1] not in taken), default=None
            )
            if best is None:
                wanted.append(claim)
            else:
                taken.add(best[1])
        return self._can_be_provisioned(wanted, labels)

    def _meant_for(self, claim: Object) -> Iterator[Object]:
        metadata = claim["metadata"]
        for volume in self.volumes.values():
            reference = volume["spec"].get("claimRef") or {}
            is_meant = reference.get("name") == metadata["name"] and reference.get("uid", "") in {"", metadata["uid"]}
            if is_meant and _suits(volume, claim):
                yield volume

    def _free(self, claim: Object) -> Iterator[Object]:
        for volume in self.volumes.values():
            is_free = not volume["spec"].get("claimRef") and volume["status"].get("phase") == "Available"
            if is_free and _suits(volume, claim):
                yield volume

    def _can_be_provisioned(self, wanted: list[Object], labels: dict[str, str]) -> bool:
        requested: dict[str, int] = {}
        for claim in wanted:
            class_name = claim["spec"]["storageClassName"]
            provisioner = self._classes[class_name]["provisioner"]
            if provisioner == NO_PROVISIONER:
                return False
            driver = self._drivers.get(provisioner)
            if driver is not None and driver["spec"].get("storageCapacity"):
                requested[class_name] = requested.get(class_name, 0) + request_of(claim) * 2**30
                if requested[class_name] > self.capacity(class_name, labels):
                    return False
        return True

    def capacity(self, class_name: str, labels: dict[str, str]) -> int:
        """Return the published capacity for nodes with these labels; -1 for none."""
        return max(
            (
                parse(each["capacity"]).value
                for each in self._capacities
                if each["storageClassName"] == class_name
                and each["nodeTopology"].get("matchLabels", {}).items() <= labels.items()
            ),
            default=-1,
        )

    # -- volumes that are attached -------------------------------------------------------------------------------------

    def _can_be_attached(self, claims: Iterable[Object], node_name: str) -> bool:
        new, there = set(map(self._attachable, claims)) - {None}, self.attached(node_name)
        return all(
            len([each for each in there | new if each is not None and each[0] == driver]) <= limit
            for driver, limit in self.limits(node_name).items()
            if any(each is not None and each[0] == driver for each in new - there)
        )

    def limits(self, node_name: str) -> dict[str, int]:
        """Return driver → limit of volumes on the node."""
        drivers = self._csi_nodes.get(node_name, {}).get("spec", {}).get("drivers") or ()
        return {each["name"]: each["allocatable"]["count"] for each in drivers if each.get("allocatable")}

    def attached(self, node_name: str) -> set[tuple[str, str] | None]:
        """Return driver and handle of volumes that are attached to the node or used by its pods."""
        attached = {
            self._handle(each["spec"]["source"]["persistentVolumeName"])
            for each in self._attachments
            if each["spec"]["nodeName"] == node_name
        }
        return attached | self.used(node_name)

    def used(self, node_name: str) -> set[tuple[str, str] | None]:
        """Return driver and handle of the volumes of the pods on the node."""
        here = (pod for pod in self._pods if pod["spec"].get("nodeName") == node_name)
        claims = (self.claims[name] for pod in here for name, _ in claims_of(pod) if name in self.claims)
        return set(map(self._attachable, claims))

    def _attachable(self, claim: Object) -> tuple[str, str] | None:
        name = claim["spec"].get("volumeName", "")
        if name in self.volumes:
            return self._handle(name)
        provisioner = self._classes[claim["spec"]["storageClassName"]]["provisioner"]
        return None if provisioner == NO_PROVISIONER else (provisioner, f"claim {claim['metadata']['name']}")

    def _handle(self, volume_name: str) -> tuple[str, str] | None:
        csi = self.volumes.get(volume_name, {}).get("spec", {}).get("csi")
        return (csi["driver"], csi["volumeHandle"]) if csi else None

    def _waits(self, claim: Object) -> bool:
        found = self._classes.get(claim["spec"]["storageClassName"])
        return found is not None and found["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER


def claims_of(pod: Object) -> Iterator[tuple[str, bool]]:
    """Yield the claims of its volumes, and whether they are ephemeral."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("ephemeral"):
            yield f"{pod['metadata']['name']}-{volume['name']}", True
        elif volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"]["claimName"], False


def is_bound(claim: Object) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def selected_node(claim: Object) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


def request_of(claim: Object) -> int:
    """Return the request in Gi."""
    return gibi(claim["spec"]["resources"]["requests"]["storage"])


def _suits(volume: Object, claim: Object) -> bool:
    """Return whether the volume stays, has the claim's class, and is large enough."""
    is_of_class = volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
    is_large = gibi(volume["spec"]["capacity"]["storage"]) >= request_of(claim)
    return is_of_class and is_large and not volume["metadata"].get("deletionTimestamp")


def _size_and_name(volume: Object) -> tuple[int, str]:
    return gibi(volume["spec"]["capacity"]["storage"]), volume["metadata"]["name"]


def _named(server: ApiServer, resource: str) -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj for obj in server.objects(resource)}


# -- what the daemon holds ---------------------------------------------------------------------------------------------


def volume_differences(server: ApiServer, daemon: Daemon) -> list[str]:
    """Return the kinds of which the cache has other objects or versions than the server."""
    volumes = daemon.scheduler.cluster.volumes
    cached: dict[str, Iterable[Any]] = {
        "persistentvolumeclaims": volumes.claims,
        "persistentvolumes": volumes.volumes,
        "storageclasses": [known.obj for known in volumes.classes.values()],
        "csistoragecapacities": [pool.obj for pool in volumes.capacities.objects.values()],
        "volumeattachments": volumes.attachments.values(),
        "csinodes": volumes.csi_nodes.values(),
        "csidrivers": volumes.drivers.values(),
    }
    wrong = []
    for resource, objects in cached.items():
        has = {obj.metadata.name: obj.metadata.resource_version for obj in objects}
        stored = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in server.objects(resource)}
        if has != stored:
            wrong.append(f"{resource}: the cache has {sorted(has.items() ^ stored.items())} as differences")
    return wrong


def volume_leftovers(server: ApiServer, daemon: Daemon) -> list[str]:
    """Return what an idle daemon must not hold: assumptions, waits, and reservations of volumes in flight."""
    scheduler = daemon.scheduler
    volumes = scheduler.cluster.volumes
    plugins = {plugin.name: plugin for profile in scheduler.profiles.values() for plugin in profile.pre_bind}
    binder: Any = plugins["VolumeBinding"]
    assumptions: AssumedVolumes = binder._binder._assumptions
    found = {
        "assumed claims": volumes.claims.assumed_keys(),
        "assumed volumes": volumes.volumes.assumed_keys(),
        "held by plans": tuple(assumptions._holders),
        "claims of plans": tuple(assumptions.under_way),
        "waited for": tuple(volumes._watchers),
        "in flight": tuple(
            f"{e.claim.key} {e.state} {e.node_name}" for e in volumes.reservations if e.state in _UNDER_WAY
        ),
        "being cleared": tuple(scheduler.stale._tasks),
    }
    left = [f"{what}: {there}" for what, there in found.items() if there]
    return [*left, *_wrong_totals(daemon), *_wrong_plans(server, daemon)]


def _wrong_totals(daemon: Daemon) -> Iterator[str]:
    volumes = daemon.scheduler.cluster.volumes
    for pool in volumes.capacities.objects.values():
        drawn = sum(entry.size for entry in volumes.reservations if entry.pool is pool)
        if drawn != pool.in_flight:
            yield f"pool {pool.key}: {pool.in_flight} bytes in flight, {drawn} reserved"


def _wrong_plans(server: ApiServer, daemon: Daemon) -> list[str]:
    waiting = [
        tuple(dict.fromkeys(f"default/{name}" for name, _ in claims_of(pod)))
        for pod in server.objects("pods")
        if pod["spec"]["schedulerName"] == OURS and not pod["spec"].get("nodeName") and len(list(claims_of(pod))) > 1
    ]
    expected: dict[str, dict[tuple[str, ...], int]] = {}
    for keys in waiting:
        for key in keys:
            plans = expected.setdefault(key, {})
            plans[keys] = plans.get(keys, 0) + 1
    planned = daemon.scheduler.cluster.volumes.reservations.together.snapshot()
    return [] if planned == expected else [f"claims of waiting pods: {planned}, not {expected}"]
