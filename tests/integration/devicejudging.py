"""Judging a world with devices: who would still fit, who had a device first, and what the daemon holds that it must not.

Where a pod could go is written here once more, on manifests, for the worlds of `deviceworld`: claims have one request, and
devices of a class differ in nothing but their sizes. Rules: docs/spec/dra.md §3, §4.
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
from tests.integration.judging import Object
from tests.integration.placementjudging import fitting_nodes

_CLAIMS: Final = "resourceclaims"
_OVER: Final = frozenset({"Succeeded", "Failed"})
Device = tuple[str, str, str]


def entries_of(pod: Object) -> list[str]:
    """Names of its claims, "" for one that was not made yet."""
    return [name_of(pod, entry) or "" for entry in pod["spec"].get("resourceClaims") or ()]


def results_of(claim: Object) -> list[Object]:
    """What it has been given."""
    allocation: Object = (claim.get("status") or {}).get("allocation") or {}
    results: list[Object] = allocation.get("devices", {}).get("results") or []
    return results


def device_of(result: Object) -> Device:
    return result["driver"], result["pool"], result["device"]


# -- who fits -------------------------------------------------------------------------------------------------------------


def has_place(server: ApiServer, waiting: Object) -> bool:
    """Whether some node would take the pod and its claims, by what the server holds and nothing else.

    Devices of claims that nobody else has reserved count as free: they are given back if they are in the way.
    """
    return bool(nodes_serving(server, waiting, fitting_nodes(server, waiting)))


def nodes_serving(server: ApiServer, waiting: Object, names: Iterable[str]) -> list[str]:
    """Of these nodes, those that have devices for all claims of the pod."""
    view = _View(server, waiting)
    if view.claims is None:
        return []
    return [name for name in names if view.serves(name, freed=False) or view.serves(name, freed=True)]


class _View:
    """The objects of one moment, for one pod. `claims` is None if they cannot be used."""

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
        """`freed`: the pod's claims have been given back; that is done if nobody else uses any of them."""
        claims = self.claims or []
        if freed and not self._is_all_idle:
            return False
        wanted = [claim for claim in claims if freed or not results_of(claim)]
        for claim in claims:
            if not freed and results_of(claim):
                selector = claim["status"]["allocation"].get("nodeSelector")
                if selector not in (None, on_node(node)) or _has_failed(claim):
                    return False
        return self._can_be_had(wanted, node)

    def _can_be_had(self, wanted: list[Object], node: str) -> bool:
        mine = {claim["metadata"]["name"] for claim in wanted}
        given = [result for name, claim in self._stored.items() if name not in mine for result in results_of(claim)]
        taken = {device_of(result) for result in given}
        asked = Counter[tuple[str, int]]()
        shared = 0
        for claim in wanted:
            exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
            name = exactly["deviceClassName"]
            if name == "memory":
                shared += int(exactly["capacity"]["requests"]["room"])
                continue
            size = int(exactly["selectors"][0]["cel"]["expression"].rpartition(" ")[2]) if name == "part" else 0
            asked[name, size] += exactly["count"]
        there = list(self._devices(node))
        free = Counter((each["class"], each["size"]) for each in there if each["id"] not in taken)
        drawn = sum(each["size"] for each in there if each["id"] in taken)
        drawn += sum(size * count for (_, size), count in asked.items())
        units = 4 if any(each["size"] for each in there) else 0
        if any(asked[kind] > free[kind] for kind in asked) or (any(size for _, size in asked) and drawn > units):
            return False
        consumed = sum(
            int(each["consumedCapacity"]["room"])
            for each in given
            if each.get("consumedCapacity") and each["pool"] == node
        )
        has_shared = any(each["class"] == "memory" for each in there)
        return not shared or (has_shared and consumed + shared <= 8)

    def _devices(self, node: str) -> Iterator[Object]:
        """Of complete pools, in their newest generation."""
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
    told = (claim["status"].get("devices") or ()) if claim.get("status") else ()
    return any(each["type"] == "failed" for device in told for each in device.get("conditions") or ())


# -- who was first --------------------------------------------------------------------------------------------------------


class Bookings:
    """Which claim has had a device since when. `others` are the uids of claims that somebody else gave devices to."""

    def __init__(self, server: ApiServer, others: AbstractSet[str]) -> None:
        self.broken: list[str] = []
        self._server = server
        self._others = others
        self._count = 0
        self._since: dict[str, dict[Device, int]] = {}

    def written(self, claim: Object) -> None:
        """One claim came or changed."""
        self._count += 1
        before = self._since.get(claim["metadata"]["uid"], {})
        whole = [device_of(each) for each in results_of(claim) if not each.get("shareID")]
        self._since[claim["metadata"]["uid"]] = {each: before.get(each, self._count) for each in whole}

    def taken_twice(self, told: list[str]) -> list[str]:
        """Of these sentences those about claims that we gave devices to, and nobody else."""
        if not told:
            return []
        theirs = {
            f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            for obj in self._server.objects(_CLAIMS)
            if obj["metadata"]["uid"] in self._others
        }
        return [law for law in told if not theirs & set(law.split())]

    def placed(self, pod: Object) -> None:
        """We have bound it: nobody must have had a device of its before it had it."""
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
    """What the caches hold otherwise than the server: claims, slices, classes, and which devices are in use."""
    devices = daemon.decisions.cluster.devices
    stored = [from_manifest(ResourceClaim, obj) for obj in server.objects(_CLAIMS)]
    fresh = AllocationState()
    for claim in stored:
        fresh.hold(claim.uid, claim.status.allocation)
    use = devices.use
    pairs: dict[str, tuple[Any, Any]] = {
        "claims": (_versions(devices.claims), _versions(stored)),
        "claims of the watch": (_versions(devices.claims._watched.values()), _versions(stored)),
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
    """What a daemon with nothing to do must not hold: claims in flight, errands, waits, changes that nobody was told of."""
    devices = daemon.decisions.cluster.devices
    plugins = {plugin.name: plugin for profile in daemon.decisions.profiles.values() for plugin in profile.pre_bind}
    plugin: Any = plugins["DynamicResources"]
    found = {
        "in flight": [claim.key for claim in devices.claims.in_flight()],
        "untold": (*devices.claims.changes, *devices.claims.given_back),
        "watched": tuple(devices._watchers),
        "errands": (
            *plugin._binder._background._tasks,
            *plugin._binder._background._about,
            *plugin._binder._background._failed,
        ),
    }
    return [f"{what}: {there}" for what, there in found.items() if there]


def _versions(claims: Any) -> dict[str, tuple[str, str]]:
    return {claim.key: (claim.uid, claim.metadata.resource_version) for claim in claims}


def _shares(use: AllocationState) -> dict[Any, list[Any]]:
    return {device: sorted((s.claim_uid, s.share_id) for s in shares) for device, shares in use._shares.items()}
