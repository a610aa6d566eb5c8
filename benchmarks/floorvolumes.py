"""The floor client's claims: which volumes they get on a node, the writes that say so, and the wait for the PV controller.

Mirrors volumes and claims with the project's own reflectors, as the scheduler does; every pod waits on that one mirror.
Of a static class it takes the smallest free volume of the node for each claim, of any other it selects the node.
"""

import asyncio
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from scheduler.api.apps_and_policy import started_at
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, claim_uses
from scheduler.kube.writes.api_writer import ApiWriter

_WAITING_AT_ONCE = 64
"""Pods whose claims are being bound; more would only keep the API server from the PV controller."""
_YOUNG_S = 2.0
"""The scheduler reads the bound claims of a pod that is no older, in case its mirror is behind."""
_Size = tuple[int, str]
"""Capacity and name of a volume: sorted by them, the first that is large enough is the best."""


class Plan(NamedTuple):
    """What to write for a pod on its node."""

    node_name: str
    bound: Sequence[PersistentVolumeClaim]
    static: Sequence[tuple[PersistentVolumeClaim, PersistentVolume]]
    dynamic: Sequence[PersistentVolumeClaim]


class FloorVolumes:
    """The state of one floor client."""

    def __init__(self, writer: ApiWriter) -> None:
        self._writer = writer
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._free: dict[str, list[_Size]] = defaultdict(list)
        """By node name, the free local volumes."""
        self._turns = asyncio.Semaphore(_WAITING_AT_ONCE)
        self._waits: dict[str, asyncio.Event] = {}
        """By claim, the pod that waits for it to be bound."""

    # -- events of watches -------------------------------------------------------------------------------------------

    def on_volumes(self, deltas: Sequence[Delta[PersistentVolume]]) -> None:
        for delta in deltas:
            volume = delta.new
            if not isinstance(volume, PersistentVolume):
                continue
            self._volumes[volume.key] = volume
            affinity = volume.spec.node_affinity
            if delta.old is None and volume.spec.claim_ref is None and affinity and affinity.required:
                (node_name,) = affinity.required.node_selector_terms[0].match_expressions[0].values
                insort(self._free[node_name], (volume.capacity.value, volume.key))

    def on_claims(self, deltas: Sequence[Delta[PersistentVolumeClaim]]) -> None:
        for delta in deltas:
            claim = delta.new
            if isinstance(claim, PersistentVolumeClaim):
                self._claims[claim.key] = claim
                if claim.is_fully_bound and (waits := self._waits.get(claim.key)):
                    waits.set()

    # -- a pod -------------------------------------------------------------------------------------------------------

    def plan(self, pod: Pod, node_name: str) -> Plan | None:
        """Take what the pod's claims need on this node; None if it has too little."""
        claims = [self._claims[use.key] for use in claim_uses(pod)]
        unbound = [claim for claim in claims if not claim.is_fully_bound]
        if not unbound or not self._free:
            return Plan(node_name, [claim for claim in claims if claim.is_fully_bound], [], unbound)
        left, taken = list(self._free[node_name]), []
        for claim in sorted(unbound, key=_request):
            at = bisect_left(left, (_request(claim), ""))
            if at == len(left):
                return None
            taken.append((claim, self._volumes[left.pop(at)[1]]))
        self._free[node_name] = left
        return Plan(node_name, [], taken, [])

    async def carry_out(self, pod: Pod, plan: Plan) -> None:
        """Write the plan and wait until all its claims are bound."""
        if not plan.static and not plan.dynamic:
            await self._confirm(pod, plan)
            return
        async with self._turns:
            for claim, volume in plan.static:
                await self._writer.prebind_volume(volume, claim, marks=True)
            for claim in plan.dynamic:
                await self._writer.select_node(claim, plan.node_name)
            for claim in (*(claim for claim, _ in plan.static), *plan.dynamic):
                await self._until_bound(claim.key)

    async def _until_bound(self, key: str) -> None:
        waits = self._waits[key] = asyncio.Event()
        if not self._claims[key].is_fully_bound:
            await waits.wait()
        del self._waits[key]

    async def _confirm(self, pod: Pod, plan: Plan) -> None:
        if time.time() - started_at(pod.metadata.creation_timestamp) < _YOUNG_S:
            for claim in plan.bound:
                await self._writer.read_claim(claim.metadata.namespace, claim.metadata.name)


def _request(claim: PersistentVolumeClaim) -> int:
    return 0 if claim.request is None else claim.request.value
