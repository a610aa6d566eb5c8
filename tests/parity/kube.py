"""The real kube-scheduler, told to log every score, and ways to know what it has seen.

Its watches of different kinds are not ordered, and nothing tells how far they are. So it is asked with pods whose
message gives that away. Pods need no such question: they come in the order in which they were written, and the pod that
is asked comes last.
"""

import re
from collections import defaultdict
from typing import Final

from tests.e2e.controlplane.harness import ControlPlane
from tests.parity.api import WORKLOADS, Api
from tests.parity.scenario import Json, Scenario, workload
from tests.parity.side import Side
from tests.parity.suite import scheduler_configuration
from tests.parity.verdict import Scores, Verdict

_PROBES: Final = "probes"
_SCORED: Final = re.compile(r'"Plugin scored node for pod" pod="([^"]*)" plugin="([^"]*)" node="([^"]*)" score=(-?\d+)')
# A pod of this profile meets no filter but these two, in this order: it is refused by the spread constraint if a Service
# or an owner gives it a selector, and by its affinity to a pod that is not there if nothing does.
_PROBING: Final[Json] = {
    "plugins": {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [
                {"name": name} for name in ("PrioritySort", "PodTopologySpread", "InterPodAffinity", "DefaultBinder")
            ],
        }
    },
    "pluginConfig": [
        {
            "name": "PodTopologySpread",
            "args": {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "parity.test/nowhere", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            },
        }
    ],
}
_ALONE: Final = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"no": "where"}}}
            ]
        }
    }
}


class LoudPlane(ControlPlane):
    """A control plane whose kube-scheduler logs the scores of every attempt.

    Batching is off: it reuses the nodes that were found for the pod before, and that pod is not there any more.
    """

    async def _start_client(self, name: str, flags: tuple[str, ...]) -> None:
        loud = ("--vmodule=schedule_one=10", "--feature-gates=OpportunisticBatching=false")
        await super()._start_client(name, flags + (loud if name == "kube-scheduler" else ()))


class Kube(Side):
    """kube-scheduler on a plane."""

    def __init__(self, api: Api, plane: LoudPlane) -> None:
        super().__init__(api, "kube", pause_s=0.01)
        self._log = plane.logs / "kube-scheduler.log"
        self._heard = 0
        self._last = 0
        self._are_workloads_old = False
        """What was seen of them last is of another scenario."""

    @staticmethod
    async def start(plane: LoudPlane) -> None:
        """With every profile of the suite; returns when it is healthy."""
        await plane.start_scheduler(scheduler_configuration("kube", **{_PROBES: _PROBING}))

    async def see_nothing(self) -> None:
        """Return when the cluster was seen without nodes."""
        await self._until_told("no nodes available")

    async def see(self, scenario: Scenario) -> None:
        """Call `see_nothing` before the scenario's nodes are made: else those of the last one may be counted."""
        if not scenario.nodes:
            self._are_workloads_old |= bool(scenario.workloads)
            return
        await self._until_told(f"0/{len(scenario.nodes)} nodes are available: ")
        if scenario.workloads or self._are_workloads_old:
            for kind in WORKLOADS:
                await self._see_workloads(kind)
        self._are_workloads_old = bool(scenario.workloads)

    async def ask(self, pod: Json, profile: str) -> Verdict:
        """Fails if what was heard of the scores does not explain the choice."""
        verdict = await super().ask(pod, profile)
        assert not verdict.node or verdict.node in verdict.best(), f"it chose against its own scores: {verdict}"
        return verdict

    async def _until_told(self, wanted: str, metadata: Json | None = None) -> None:
        async def is_told() -> bool:
            return wanted in await self.probe(_PROBES, _ALONE, metadata)

        await self.until(is_told, f'"{wanted}"')

    async def _see_workloads(self, kind: str) -> None:
        """One more of the kind, after all others: a scheduler whose pod it gives a selector has seen them."""
        self._last += 1
        name = f"last-{self._last}"
        last = workload(name, {"kind": kind, "selector": {"last": name}})
        await self.api.create(last)
        owner = {"apiVersion": last["apiVersion"], "kind": kind, "name": name, "uid": name, "controller": True}
        metadata = {"labels": {"last": name}} if kind == "Service" else {"ownerReferences": [owner]}
        await self._until_told("topology spread", metadata)
        await self.api.delete(kind, name, "default")

    # -- scores ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._heard = self._log.stat().st_size

    def _scores(self, pod: Json) -> Scores:
        with self._log.open("rb") as log:
            log.seek(self._heard)
            text = log.read().decode()
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        scores: dict[str, dict[str, int]] = defaultdict(dict)
        for who, plugin, node, score in _SCORED.findall(text):
            if who == key:
                scores[plugin][node] = int(score)
        return dict(scores)
