"""Ways to know that kube-scheduler has seen what was last written of storage: one more of each kind, after the rest.

A pod that could use them is refused in one way until they are seen, and in another then. It is refused in any case: one of
its claims is bound to a PV that no node reaches.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tests.parity.api import Api, create_whole, wipe
from tests.parity.scenario import node
from tests.parity.storage import Storage, pod_volumes, storage
from tests.parity.words import Json

Probe = Callable[[str, Json], Awaitable[str]]
"""(profile, spec) → the message about a pod with this spec."""
Until = Callable[[Callable[[], Awaitable[bool]], str], Awaitable[bool]]

VOLUMES_ALONE: Final = "volume-probes"
LIMITS_FIRST: Final = "limit-probes"


def _only(*plugins: str) -> Json:
    enabled = [{"name": name} for name in ("PrioritySort", *plugins, "DefaultBinder")]
    return {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}


PROFILES: Final[Mapping[str, Json]] = {
    VOLUMES_ALONE: _only("VolumeBinding"),
    LIMITS_FIRST: _only("NodeVolumeLimits", "VolumeBinding"),
}
_NO_ROOM: Final = "node(s) did not have enough free storage"
_NO_WAY: Final = "node(s) didn't match PersistentVolume's node affinity"
_TOO_MANY: Final = "node(s) exceed max volume count"
_NODE: Final = "probed"


class Seen:
    """`probe` tries a pod, `until` waits."""

    def __init__(self, api: Api, probe: Probe, until: Until) -> None:
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
