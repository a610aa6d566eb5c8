"""Ways to know that kube-scheduler has seen what was last written of storage: one more of each kind, after the rest.

A pod that could use them is refused in one way until they are seen, and in another then. It is refused in any case: one of
its claims is bound to a PV that no node reaches.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tests.parity.api import ScenarioApi, create_whole, wipe
from tests.parity.devices import claim, device_class, rule, slice_
from tests.parity.scenario import node
from tests.parity.storage import Storage, pod_volumes, storage
from tests.parity.words import Json

Probe = Callable[[str, Json], Awaitable[str]]
"""(profile, spec) → the message about a pod with this spec."""
Until = Callable[[Callable[[], Awaitable[bool]], str], Awaitable[bool]]

VOLUMES_ALONE: Final = "volume-probes"
LIMITS_FIRST: Final = "limit-probes"


def only(*plugins: str) -> Json:
    """Return a profile with these plugins, besides those that each profile needs."""
    enabled = [{"name": name} for name in ("PrioritySort", *plugins, "DefaultBinder")]
    return {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}


PROFILES: Final[Mapping[str, Json]] = {
    VOLUMES_ALONE: only("VolumeBinding"),
    LIMITS_FIRST: only("NodeVolumeLimits", "VolumeBinding"),
}
_NO_ROOM: Final = "node(s) did not have enough free storage"
_NO_WAY: Final = "node(s) didn't match PersistentVolume's node affinity"
_TOO_MANY: Final = "node(s) exceed max volume count"
_NODE: Final = "probed"


class Seen:
    """`probe` tries a pod, `until` waits."""

    def __init__(self, api: ScenarioApi, probe: Probe, until: Until) -> None:
        self._api = api
        self._probe = probe
        self._until = until
        self._last = 0

    async def volumes(self) -> None:
        """Claims and PVs. There must be nodes."""
        name = self._next()
        await self._put(storage({"claims": _claim_out_of_reach(name), "pvs": _out_of_reach(name)}))
        await self._until_reported(VOLUMES_ALONE, [name], lambda said: _NO_WAY in said, "the last claim and PV")

    async def settings(self) -> None:
        """All other kinds. There must be no nodes; leaves none."""
        name = self._next()
        await self._api.create(node(_NODE, {}))
        small, big, attached = f"{name}-small", f"{name}-big", f"{name}-attached"
        await self._put(
            storage(
                {
                    "classes": {name: {"provisioner": name}},
                    "csi_drivers": {name: {"capacity": True}},
                    "csi_nodes": {_NODE: {"drivers": {name: 1}}},
                    "capacities": {name: {"class": name, "size": "1Gi", "from": {}}},
                    "attachments": {name: {"attacher": name, "node": _NODE, "pv": attached}},
                    "claims": _claim_out_of_reach(name) | {small: {"class": name}, big: {"class": name, "size": "2Gi"}},
                    "pvs": _out_of_reach(name) | {attached: {"csi": name}},
                }
            )
        )
        await self._until_reported(
            VOLUMES_ALONE, [name, big], lambda said: _NO_ROOM in said, "the last class and driver"
        )
        await self._until_reported(VOLUMES_ALONE, [name, small], _is_roomy, "the last capacity")
        await self._until_reported(
            LIMITS_FIRST, [name, small], lambda said: _TOO_MANY in said, "the last CSINode and attachment"
        )
        await wipe(self._api, ("Node",))

    def _next(self) -> str:
        self._last += 1
        return f"last-stored-{self._last}"

    async def _put(self, wanted: Storage) -> None:
        for item in (*wanted.settings, *wanted.volumes, *wanted.claims):
            await create_whole(self._api, item)

    async def _until_reported(self, profile: str, claims: list[str], wanted: Callable[[str], bool], what: str) -> None:
        async def is_reported() -> bool:
            return wanted(await self._probe(profile, {"volumes": pod_volumes(claims, ())}))

        await self._until(is_reported, what)


def _is_roomy(said: str) -> bool:
    return _NO_WAY in said and _NO_ROOM not in said


def _claim_out_of_reach(name: str) -> Json:
    return {name: {"bound": name}}


def _out_of_reach(name: str) -> Json:
    return {name: {"from": {"parity.test/nowhere": "no"}}}


# -- devices -----------------------------------------------------------------------------------------------------------


DEVICES_FIRST: Final = "device-probes"
_DRIVER: Final = "0.last"
"""Of all drivers the first: a search for its device looks at no other."""
_LONELY: Final = "didn't match pod affinity rules"
_TOLERANT: Final = {"operator": "Exists", "effect": "NoSchedule"}
"""Of taints that a scenario may put on everything; not of the last one."""

DEVICE_PROFILE: Final[Json] = only("DynamicResources", "InterPodAffinity")


class SeenDevices:
    """`probe` tries a pod that fits nowhere for its affinity; `until` waits."""

    def __init__(self, api: ScenarioApi, probe: Probe, until: Until, alone: Json) -> None:
        self._api = api
        self._probe = probe
        self._wait = until
        self._alone = alone
        self._last = 0
        self._last_claim = 0

    async def claims(self) -> None:
        """A pod whose claim is not seen is not tried."""
        name = await self._claimed(self._class_name)
        await self._probe(DEVICES_FIRST, self._pod(name))

    async def settings(self, *, with_rules: bool) -> None:
        """Classes, slices and, if a scheduler reads them, rules. There must be no nodes; leaves none, and no devices."""
        self._last += 1
        name = self._class_name
        await self._api.create(node(_NODE, {}))
        await self._api.create(device_class(name, {"when": f'device.driver == "{_DRIVER}"'}))
        await self._api.create(slice_(name, {"pool": f"{_DRIVER}/p", "everywhere": True, "devices": "d"}))
        wants_one = self._pod(await self._claimed(name))
        await self._until(wants_one, "the last class and slice", gets_it=True)
        if with_rules:
            await self._api.create(rule(name, {"driver": _DRIVER, "taint": "last:NoExecute"}))
            await self._until(wants_one, "the last rule", gets_it=False)
            await self._api.delete("DeviceTaintRule", name, "")
            await self._until(wants_one, "that the last rule is gone", gets_it=True)
        await self._api.delete("ResourceSlice", name, "")
        await self._until(wants_one, "that the last slice is gone", gets_it=False)
        resource = f"deviceclass.resource.kubernetes.io/{name}"
        resources = {"requests": {resource: "1"}, "limits": {resource: "1"}}
        extended = self._alone | {"containers": [{"name": "main", "image": "i", "resources": resources}]}
        await self._until(extended, "the last class as a resource", gets_it=False)
        await wipe(self._api, ("Node", "ResourceClaim"))

    @property
    def _class_name(self) -> str:
        return f"last-seen-{self._last}"

    async def _claimed(self, class_name: str) -> str:
        self._last_claim += 1
        name = f"last-claim-{self._last_claim}"
        wanted = {"class": class_name, "tolerates": [_TOLERANT]}
        await create_whole(self._api, claim(name, {"r0": wanted}))
        return name

    def _pod(self, name: str) -> Json:
        wanted: Any = [{"name": "e0", "resourceClaimName": name}]
        return self._alone | {"resourceClaims": wanted}

    async def _until(self, spec: Json, what: str, *, gets_it: bool) -> None:
        """Until nothing but its affinity is in the pod's way, or until something else is."""

        async def is_reported() -> bool:
            return (_LONELY in await self._probe(DEVICES_FIRST, spec)) == gets_it

        await self._wait(is_reported, what)
