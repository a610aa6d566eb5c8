"""The real kube-scheduler with a log of every score, and ways to know what it has seen.

Its watches of different kinds are not ordered, and nothing shows how far they are. So it is probed with pods whose
message or choice gives that away. Pods need no such question: they come in the order in which they were written, and the
tried pod comes last.
"""

import json
import re
from collections import defaultdict
from typing import Final

from tests.e2e.controlplane.harness import ControlPlane
from tests.parity.admission import PRIORITIES
from tests.parity.api import WORKLOADS, ScenarioApi, create_whole, wipe
from tests.parity.scenario import DEFAULT_PROFILE, Scenario, budget, named, node, pod as scenario_pod, workload
from tests.parity.seen import DEVICE_PROFILE, DEVICES_FIRST, PROFILES, Seen, SeenDevices, only
from tests.parity.side import Side
from tests.parity.suite import scheduler_configuration
from tests.parity.verdict import Scores, Verdict
from tests.parity.words import Json

_PROBES: Final = "probes"
_RULES: Final = "DRADeviceTaintRules"
_GATES: Final = "SchedulingGates"
_MISLED: Final = "it was held before it was complete"
_ASIDE: Final = "kube-system"
"""A namespace in which no scenario has anything."""
_LOUD: Final = "schedule_one=10,preemption=5,executor=5,default_preemption=5,binder=4,scheduling_queue=4"
_SERVED: Final = (
    "--feature-gates=DRADeviceTaintRules=true,DRAListTypeAttributes=true,VolumeLimitScaling=true",
    "--runtime-config=resource.k8s.io/v1beta2=true",
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,RuntimeClass",
)
"""What the API server lets in, whether or not the scheduler knows of it; overhead needs no class."""
_HEADED: Final = re.compile(r'"BindPodVolumes" pod="([^"]*)" node="([^"]*)"')
_PICKED: Final = re.compile(r'"Pod is a potential preemption victim on node" pod="([^"]*)" node="([^"]*)"')
_PICKED_1_37: Final = re.compile(
    r'"Pods are potential preemption victims on node" (?:pod="[^"]*" )?'
    r'pods=\[\{"name":"([^"]*)","namespace":"([^"]*)"\}\] node="([^"]*)"'
)
_AIMED: Final = '"the target node for the preemption is determined" pod="{}" node="{}"'
_SPARED: Final = '"Victim Pod is already being deleted, skipping the API call for it" preemptor="{}"'
_DONE: Final = '"Async Preemption finished completely" preemptor="{}"'
_HELD: Final = '"Status after running PreEnqueue plugin" pod="{}" plugin="([^"]*)" status="(.*)"'
_SCORED: Final = re.compile(r'"Plugin scored node for pod" pod="([^"]*)" plugin="([^"]*)" node="([^"]*)" score=(-?\d+)')
# A pod of this profile meets only these two filters, in this order. It is refused by the spread constraint if a Service
# or an owner gives it a selector, otherwise by its affinity to a pod that does not exist.
_PROBING: Final[Json] = only("PodTopologySpread", "InterPodAffinity") | {
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
    ]
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
    """A control plane whose kube-scheduler logs the scores of every attempt, and every step of a preemption.

    Batching is off: it reuses the nodes that were found for the pod before, and that pod is not there any more.
    """

    def __init__(self) -> None:
        super().__init__(apiserver_flags=_SERVED)
        self.gates: tuple[str, ...] = ()
        """Further ones, of a scheduler that is started from now on."""

    async def _start_client(self, name: str, flags: tuple[str, ...]) -> None:
        gates = ",".join(("OpportunisticBatching=false", *self.gates))
        loud = (f"--vmodule={_LOUD}", f"--feature-gates={gates}")
        await super()._start_client(name, flags + (loud if name == "kube-scheduler" else ()))


class Kube(Side):
    def __init__(self, api: ScenarioApi, plane: LoudPlane) -> None:
        super().__init__(api, "kube", pause_s=0.01)
        self._plane = plane
        self._log = plane.logs / "kube-scheduler.log"
        self._heard = 0
        self._asked_at = 0
        """End of the log when a scenario's pod was last tried."""
        self._last = 0
        self._are_workloads_old = False
        """What was seen of them last is of another scenario."""
        self._are_settings_old = False
        self._seen = Seen(api, self.probe, self.until)
        self._are_budgets_old = False
        self._seen_devices = SeenDevices(api, self.probe, self.until, _ALONE)
        self._are_devices_old = False

    @staticmethod
    async def start(plane: LoudPlane) -> None:
        """With every profile of the suite; returns when it is healthy."""
        more = {_PROBES: _PROBING, **PROFILES, DEVICES_FIRST: DEVICE_PROFILE}
        gates = [gate.removesuffix("=true") for gate in plane.gates]
        await plane.start_scheduler(scheduler_configuration("kube", more=more, gates=gates))

    async def serve(self, scenario: Scenario) -> None:
        """Another scheduler if this one has other gates than the scenario wants.

        With devices, a pod that could be tried again at once has to wait, because its first verdict counts.
        """
        patient = ("SchedulerPopFromBackoffQ=false",) if scenario.devices else ()
        gates = (*patient, *(f"{gate}=true" for gate in scenario.feature_gates))
        if gates != self._plane.gates:
            self._plane.gates = gates
            await self.start(self._plane)

    async def see_nothing(self) -> None:
        """Return when the cluster was seen without nodes."""
        await self._until_reported("no nodes available")

    async def see(self, scenario: Scenario) -> None:
        """Claims and PVs. Pods need not be waited for: they come in order, and the tried one comes last."""
        if scenario.nodes and (scenario.storage.claims or scenario.storage.volumes):
            await self._seen.volumes()
        if scenario.devices.claims:
            await self._seen_devices.claims()

    async def see_settings(self, scenario: Scenario) -> None:
        """While there are no nodes: what no trial changes of storage and devices, and that older ones are gone."""
        if scenario.devices or self._are_devices_old:
            await self._seen_devices.settings(with_rules=_RULES in scenario.feature_gates)
            await self.see_nothing()
        self._are_devices_old = bool(scenario.devices)
        if scenario.uses_volumes or self._are_settings_old:
            await self._seen.settings()
            await self.see_nothing()
        self._are_settings_old = scenario.uses_volumes

    async def see_cluster(self, scenario: Scenario) -> None:
        """All but pods and budgets. `see_nothing` came before the nodes were made: else those of the last one may count."""
        if not scenario.nodes:
            self._are_workloads_old |= bool(scenario.workloads)
            return
        await self._until_reported(f"0/{len(scenario.nodes)} nodes are available: ")
        if scenario.workloads or self._are_workloads_old:
            for kind in WORKLOADS:
                await self._see_workloads(kind)
        self._are_workloads_old = bool(scenario.workloads)

    async def try_pod(self, pod: Json, profile: str, *, among: Scenario | None = None) -> Verdict:
        """Fails if what was heard of the scores does not explain the choice."""
        if among is not None:
            self._asked_at = self._log.stat().st_size
        verdict = await super().try_pod(pod, profile, among=among)
        while verdict.message == _MISLED:
            self._asked_at = self._log.stat().st_size
            verdict = await super().try_pod(pod, profile, among=among)
        assert not verdict.node or verdict.node in verdict.best(), f"it chose against its own scores: {verdict}"
        return verdict

    async def _until_reported(self, wanted: str, metadata: Json | None = None) -> None:
        async def is_reported() -> bool:
            return wanted in await self.probe(_PROBES, _ALONE, metadata)

        await self.until(is_reported, f'"{wanted}"')

    async def _see_workloads(self, kind: str) -> None:
        """One more of the kind, after the rest: a scheduler whose pod gets a selector from it has seen them."""
        self._last += 1
        name = f"last-{self._last}"
        last = workload(name, {"kind": kind, "selector": {"last": name}})
        await self.api.create(last)
        owner = {"apiVersion": last["apiVersion"], "kind": kind, "name": name, "uid": name, "controller": True}
        metadata = {"labels": {"last": name}} if kind == "Service" else {"ownerReferences": [owner]}
        await self._until_reported("topology spread", metadata)
        await self.api.delete(kind, name, "default")

    # -- budgets -----------------------------------------------------------------------------------------------------

    async def see_budgets(self, scenario: Scenario) -> None:
        """While there are no nodes: those of the scenario, which are there already, and that older ones are gone.

        Of two pods on a node the younger one is the victim, unless a budget protects it: one more, made after the rest.
        """
        if not (scenario.budgets or self._are_budgets_old):
            return
        self._are_budgets_old = bool(scenario.budgets)
        self._last += 1
        name = f"last-{self._last}"
        await self.api.create(node("probed", {"room": {"cpu": "2"}}))
        half = {"at": "probed", "requests": {"cpu": "1"}, "namespace": _ASIDE}
        for second, victim in enumerate(("older", "younger")):
            pod = scenario_pod(victim, half | {"labels": {"last": f"{name}-{victim}"}, "started": second})
            await create_whole(self.api, named(pod, "nobody"))
            await self.api.delete("Pod", victim, _ASIDE, gracefully=True)  # so that it need not be evicted
        await self.api.create(budget(name, {"match": {"last": f"{name}-younger"}, "namespace": _ASIDE}))
        preemptor = scenario_pod("preemptor", {"priority": max(PRIORITIES), "requests": {"cpu": "1"}})

        async def is_spared() -> bool:
            await self.try_pod(preemptor, DEFAULT_PROFILE)
            return [who for who, _ in _picked(self._heard_since())] == [f"{_ASIDE}/older"]

        await self.until(is_spared, "the last budget")
        await wipe(self.api, ("Pod", "Node"))
        await self.see_nothing()

    # -- what it logs ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._heard = self._log.stat().st_size

    def _heard_since(self, place: int | None = None) -> str:
        with self._log.open("rb") as log:
            log.seek(self._heard if place is None else place)
            return log.read().decode()

    def _scores(self, pod: Json) -> Scores:
        key = _key(pod)
        scores: dict[str, dict[str, int]] = defaultdict(dict)
        for who, plugin, place, score in _SCORED.findall(self._heard_since()):
            if who == key:
                scores[plugin][place] = int(score)
        return dict(scores)

    async def _finish(self) -> None:
        """Its verdict comes last."""

    def _held(self, pod: Json) -> str:
        """Which plugin runs first is random; a plugin that held the pod while its gate was there does not run again later."""
        told = re.findall(_HELD.format(re.escape(_key(pod))), self._heard_since(self._asked_at))
        said = [text for plugin, text in told if plugin != _GATES]
        if not said:
            return ""
        was_gated = "resourceClaimStatuses" in pod["status"]
        is_misled = was_gated and all(plugin != _GATES for plugin, _ in told)
        return _MISLED if is_misled else str(json.loads(f'"{said[-1]}"'))

    def _headed(self, pod: Json) -> str:
        (place,) = {str(place) for who, place in _HEADED.findall(self._heard_since()) if who == _key(pod)}
        return place

    async def _settle(self, pod: Json, nominated: str) -> None:
        key = _key(pod)
        dry_run, aimed, after = self._heard_since().partition(_AIMED.format(key, nominated))
        if not aimed:
            return  # nominated before, and it stays that
        victims = [who for who, place in _picked(dry_run) if place == nominated]
        if after.count(_SPARED.format(key)) >= len(victims):
            return  # all of them are leaving already

        async def is_done() -> bool:
            return _DONE.format(key) in self._heard_since()

        await self.until(is_done, f"the evictions for {key}")


def _picked(log: str) -> list[tuple[str, str]]:
    """Return the victims of dry runs, as namespace/name, with their nodes."""
    as_groups = [(f"{namespace}/{name}", place) for name, namespace, place in _PICKED_1_37.findall(log)]
    return [*_PICKED.findall(log), *as_groups]


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
