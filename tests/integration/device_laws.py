"""Laws about a cluster with devices: which pods would still fit, which claim had a device first, and what the daemon must not hold.

The rules for where a pod fits are written again here, on manifests, for the objects of `device_steps`: claims have one request, and
devices of a class differ only in size. Rules: docs/spec/dra.md §3, §4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set as AbstractSet
from typing import Any, Final

from scheduler.api.decode import from_manifest
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer
from simulator.builders.devices import on_node
from simulator.controllers.resource_claim import is_controlled_by, name_of
from tests.integration.daemon_laws import Object

_CLAIMS: Final = "resourceclaims"
Device = tuple[str, str, str]


def entries_of(pod: Object) -> list[str]:
    """Return the names of its claims, "" for one that does not exist yet."""
    return [name_of(pod, entry) or "" for entry in pod["spec"].get("resourceClaims") or ()]


def results_of(claim: Object) -> list[Object]:
    allocation: Object = (claim.get("status") or {}).get("allocation") or {}
    results: list[Object] = allocation.get("devices", {}).get("results") or []
    return results


def device_of(result: Object) -> Device:
    return result["driver"], result["pool"], result["device"]


# -- which nodes fit -------------------------------------------------------------------------------------------------------------


def nodes_serving(server: ApiServer, waiting: Object, names: Iterable[str]) -> list[str]:
    """Return those of the nodes that have devices for all claims of the pod.

    Devices of claims that no other pod has reserved count as free: they are deallocated when they are needed.
    """
    view = _View(server, waiting)
    if view.claims is None:
        return []
    return [name for name in names if view.serves(name, freed=False) or view.serves(name, freed=True)]


class _View:
    """The objects of one moment, for one pod. `claims` is None if one of them cannot be used."""

    def __init__(self, server: ApiServer, waiting: Object) -> None:
        self._server = server
        self._uid = waiting["metadata"]["uid"]
        self._stored = {obj["metadata"]["name"]: obj for obj in server.objects(_CLAIMS)}
        self.claims = self._usable(waiting)
        self._is_all_idle = all(self._is_idle(claim) for claim in self.claims or ())

    def _usable(self, waiting: Object) -> list[Object] | None:
        found = []
        for entry, name in zip(waiting["spec"].get("resourceClaims") or (), entries_of(waiting), strict=True):
            claim = self._stored.get(name)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                return None
            if entry.get("resourceClaimTemplateName") and not is_controlled_by(claim, waiting):
                return None
            found.append(claim)
        return found

    def _is_idle(self, claim: Object) -> bool:
        users = (claim.get("status") or {}).get("reservedFor") or ()
        return all(user["uid"] == self._uid for user in users)

    def serves(self, node: str, *, freed: bool) -> bool:
        """With `freed`, the pod's claims are deallocated first; that is possible if no other pod uses any of them."""
        claims = self.claims or []
        if freed and not self._is_all_idle:
            return False
        wanted = [claim for claim in claims if freed or not results_of(claim)]
        for claim in claims:
            if not freed and results_of(claim):
                selector = claim["status"]["allocation"].get("nodeSelector")
                if selector not in (None, on_node(node)) or _has_failed(claim):
                    return False
        return self._can_be_allocated(wanted, node)

    def _can_be_allocated(self, wanted: list[Object], node: str) -> bool:
        mine = {claim["metadata"]["name"] for claim in wanted}
        given = [result for name, claim in self._stored.items() if name not in mine for result in results_of(claim)]
        taken = {device_of(result) for result in given}
        requested = Counter[tuple[str, int]]()
        shared = 0
        for claim in wanted:
            exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
            name = exactly["deviceClassName"]
            if name == "memory":
                shared += int(exactly["capacity"]["requests"]["share"])
                continue
            size = int(exactly["selectors"][0]["cel"]["expression"].rpartition(" ")[2]) if name == "part" else 0
            requested[name, size] += exactly["count"]
        there = list(self._devices(node))
        free = Counter((each["class"], each["size"]) for each in there if each["id"] not in taken)
        drawn = sum(each["size"] for each in there if each["id"] in taken)
        drawn += sum(size * count for (_, size), count in requested.items())
        units = 4 if any(each["size"] for each in there) else 0
        if any(requested[kind] > free[kind] for kind in requested) or (
            any(size for _, size in requested) and drawn > units
        ):
            return False
        consumed = sum(
            int(each["consumedCapacity"]["share"])
            for each in given
            if each.get("consumedCapacity") and each["pool"] == node
        )
        has_shared = any(each["class"] == "memory" for each in there)
        return not shared or (has_shared and consumed + shared <= 8)

    def _devices(self, node: str) -> Iterator[Object]:
        """Yield the devices of complete pools, in their newest generation."""
        specs = [obj["spec"] for obj in self._server.objects("resourceslices")]
        specs = [spec for spec in specs if spec.get("allNodes") or spec["pool"]["name"] == node]
        for driver in {spec["driver"] for spec in specs}:
            pool = [spec for spec in specs if spec["driver"] == driver]
            newest = max(spec["pool"]["generation"] for spec in pool)
            pool = [spec for spec in pool if spec["pool"]["generation"] == newest]
            if len(pool) < pool[0]["pool"]["resourceSliceCount"]:
                continue
            for spec in pool:
                for each in spec.get("devices") or ():
                    yield {
                        "id": (driver, spec["pool"]["name"], each["name"]),
                        "class": driver.removesuffix(".example"),
                        "size": (each.get("attributes") or {}).get("size", {}).get("int", 0),
                    }


def _has_failed(claim: Object) -> bool:
    reported = (claim["status"].get("devices") or ()) if claim.get("status") else ()
    return any(each["type"] == "failed" for device in reported for each in device.get("conditions") or ())


# -- which claim was first --------------------------------------------------------------------------------------------------------


class Bookings:
    """Since when each claim has had its devices. `others` are the uids of claims that another allocator has allocated."""

    def __init__(self, server: ApiServer, others: AbstractSet[str]) -> None:
        self.broken: list[str] = []
        self._server = server
        self._others = others
        self._count = 0
        self._since: dict[str, dict[Device, int]] = {}

    def written(self, claim: Object) -> None:
        """Note a claim that was created or changed."""
        self._count += 1
        before = self._since.get(claim["metadata"]["uid"], {})
        whole = [device_of(each) for each in results_of(claim) if not each.get("shareID")]
        self._since[claim["metadata"]["uid"]] = {each: before.get(each, self._count) for each in whole}

    def taken_twice(self, laws: list[str]) -> list[str]:
        """Return the sentences about claims that only our daemons have allocated."""
        if not laws:
            return []
        theirs = {
            f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            for obj in self._server.objects(_CLAIMS)
            if obj["metadata"]["uid"] in self._others
        }
        return [law for law in laws if not theirs & set(law.split())]

    def placed(self, pod: Object) -> None:
        """Check a pod that we have bound: no other claim had its devices first."""
        names = entries_of(pod)
        self.broken += [
            f"pod {pod['metadata']['name']} is placed, and {law}"
            for claim in self._server.objects(_CLAIMS)
            if claim["metadata"]["name"] in names
            for law in self._seconded(claim)
        ]

    def _seconded(self, claim: Object) -> Iterator[str]:
        uid = claim["metadata"]["uid"]
        if uid in self._others:
            return
        for device, since in self._since.get(uid, {}).items():
            for other in self._server.objects(_CLAIMS):
                first = self._since.get(other["metadata"]["uid"], {}).get(device, since)
                if first < since:
                    yield (
                        f"claim {claim['metadata']['name']} has {'/'.join(device)} that "
                        f"{other['metadata']['name']} had before it"
                    )


# -- what the daemon holds ------------------------------------------------------------------------------------------------


def device_differences(server: ApiServer, daemon: Daemon) -> list[str]:
    """Return differences of caches and server: claims, slices, and devices in use."""
    devices = daemon.scheduler.cluster.devices
    stored = [from_manifest(ResourceClaim, obj) for obj in server.objects(_CLAIMS)]
    fresh = AllocationState()
    for claim in stored:
        fresh.hold(claim.uid, claim.status.allocation)
    use = devices.use
    pairs: dict[str, tuple[Any, Any]] = {
        "claims": (_versions(devices.claims), _versions(stored)),
        "claims of the watch": (_versions(devices.claims.watched.values()), _versions(stored)),
        "slices": (
            sorted(each.key for each in devices.slices()),
            sorted(o["metadata"]["name"] for o in server.objects("resourceslices")),
        ),
        "held": (sorted(use._held), sorted(fresh._held)),
        "holders": (use._holders, fresh._holders),
        "shares": (_shares(use), _shares(fresh)),
        "consumed": (use._consumed, fresh._consumed),
    }
    return [f"{what}: the cache has {have}, the server {want}" for what, (have, want) in pairs.items() if have != want]


def device_leftovers(daemon: Daemon) -> list[str]:
    """Return what an idle daemon must not hold: claims in flight, background writes, waits, and changes that were not delivered."""
    devices = daemon.scheduler.cluster.devices
    plugins = {plugin.name: plugin for profile in daemon.scheduler.profiles.values() for plugin in profile.pre_bind}
    plugin: Any = plugins["DynamicResources"]
    found = {
        "in flight": [claim.key for claim in devices.claims.in_flight()],
        "undelivered": (*devices.claims.changes, *devices.claims.given_back),
        "watched": tuple(devices._watchers),
        "background": (
            *plugin._binder._background._tasks,
            *plugin._binder._background._about,
        ),
    }
    return [f"{what}: {there}" for what, there in found.items() if there]


def _versions(claims: Any) -> dict[str, tuple[str, str]]:
    return {claim.key: (claim.uid, claim.metadata.resource_version) for claim in claims}


def _shares(use: AllocationState) -> dict[Any, list[Any]]:
    return {device: sorted((s.claim_uid, s.share_id) for s in shares) for device, shares in use._shares.items()}
