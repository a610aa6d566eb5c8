"""Our daemon on some API server, watched while it chooses, and without one of its plugins."""

import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import yaml

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.config.args import KubestowArgs
from scheduler.config.load import parse
from scheduler.config.types import KubeSchedulerProfile, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.core.decision_record import DecisionRecord
from scheduler.core.feature_gates import defaults
from scheduler.cycle import Cycle, Unschedulable
from scheduler.daemon.app import Daemon
from scheduler.failure import SCHEDULER_ERROR, UNSCHEDULABLE
from scheduler.framework.interface import CycleState, Scored
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError
from scheduler.manifests.defaults import with_pod_defaults
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.dra.state import STATE as DEVICES
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumebinding.plugin import STATE, VolumeState
from scheduler.queueing.types import QueuedPodInfo
from simulator.apiserver.kinds.defaults import GATED as BLOCKED
from tests.parity.admission import admitted
from tests.parity.api import KINDS, ScenarioApi
from tests.parity.deviceplans import given_back, held, planned_devices
from tests.parity.recordings import PREFIXES, Mode
from tests.parity.scenario import Scenario, named
from tests.parity.side import Side
from tests.parity.storage import uid_to_come
from tests.parity.suite import scheduler_configuration
from tests.parity.verdict import GATED, HELD, Scores, Verdict, Way, heard
from tests.parity.volumes import will_be_for, will_be_for_node, will_be_marked
from tests.parity.words import Json

_POINTS: Final = (
    *("pre_enqueue", "pre_filter", "pre_filter_extensions", "filter", "post_filter", "pre_score", "score"),
    "reserve",
)
_DONE: Final = frozenset({"Succeeded", "Failed"})
_PARITY_ARGS: Final[Json] = {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True}


class Hooks:
    """What the replay reads from a running daemon while it decides, and the one thing that it keeps the daemon from.

    One per daemon, however many profiles are used."""

    def __init__(self, daemon: Daemon) -> None:
        self.scores: Scores = {}
        """The scores of the newest pod whose nodes were scored."""
        self.tries_early = True
        """Whether an idle queue tries pods again before their back-off is over."""
        self._nodes = daemon.scheduler.cluster.nodes
        self.cycle: Cycle = daemon.scheduler.cycle
        self._choose = self.cycle._choose
        self.cycle._choose = self._read_scores  # type: ignore[method-assign]
        backoff = daemon.scheduler.queue.places.backoff
        self._first_rejected = backoff.first_rejected
        backoff.first_rejected = self._first_to_try_early  # type: ignore[method-assign]
        # A long search in vain makes pods of its kind wait nine times as long: on a slow machine, longer than a replay waits.
        daemon.scheduler.queue.fair_share.charge = lambda *_: None  # type: ignore[method-assign]

    def _read_scores(self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, scored: Scored) -> int:
        names = {int(slot): self._nodes.name(int(slot)) for slot in scored.slots}
        self.scores = {
            plugin: {name: int(column[slot]) for slot, name in names.items()} for plugin, column in scored.parts.items()
        }
        return self._choose(runner, state, pod, scored)

    def _first_to_try_early(self) -> QueuedPodInfo | None:
        return self._first_rejected() if self.tries_early else None


class Ours(Side):
    """A running daemon. `see` before `judge`: that one looks at the daemon's cache and sends no request."""

    def __init__(
        self, api: ScenarioApi, daemon: Daemon, hooks: Hooks, *, version: str, pause_s: float, mode: Mode = Mode.PARITY
    ) -> None:
        super().__init__(api, PREFIXES[mode], pause_s=pause_s)
        self.version = version
        self.mode = mode
        self.daemon = daemon
        self._hooks = hooks
        self._clock = SystemClock()
        self._metrics = Metrics(process=False)

    def by_default(self) -> "Ours":
        """The same daemon, with pods of the profiles that leave every switch at its default."""
        return Ours(self.api, self.daemon, self._hooks, version=self.version, pause_s=self._pause_s, mode=Mode.DEFAULT)

    async def begin(self) -> None:
        """The first pictures are complete."""

        async def is_idle() -> bool:
            return self.daemon.idle()

        await self.until(is_idle, "its start")

    async def see(self, scenario: Scenario) -> None:
        """Every mirror holds what the server holds, and nothing is left to do. With devices no pod is tried again at once."""
        self._hooks.tries_early = not scenario.devices

        async def has_seen() -> bool:
            are_alike = [await self._is_like_the_server(mirror) for mirror in self._informers()]
            return all(are_alike) and self.daemon.idle()

        await self.until(has_seen, f"the cluster of {scenario.key}")
        self._settle_claims()

    def _settle_claims(self) -> None:
        """End the reservations of deleted claims: here no provisioner makes their volumes.

        Let a pod use each claim with a selected node. The clusters were recorded without these pods.
        """
        volumes = self.daemon.scheduler.cluster.volumes
        for entry in tuple(volumes.reservations):
            if entry.is_gone:
                volumes.reservations._drop(entry.claim.metadata.uid)
        for mirror in self._informers():
            for claim in mirror.store if mirror.spec.name == "PersistentVolumeClaim" else ():
                if isinstance(claim, PersistentVolumeClaim) and claim.selected_node:
                    volumes.reservations.users.add(f"{claim.metadata.namespace}/in-flight", [claim.key])
                    volumes.reservations.claim_used(claim.key)

    def _informers(self) -> list[Any]:
        """Of the kinds that a scenario has; which of them there are follows from the profiles' plugins."""
        return [mirror for name, mirror in self.daemon.informers.reflectors.items() if name in KINDS]

    async def _is_like_the_server(self, mirror: Any) -> bool:
        there = {
            item["metadata"]["uid"]: item["metadata"]["resourceVersion"]
            for item in await self.api.items(mirror.spec.name)
            if mirror.spec.name != "Pod" or item["status"].get("phase") not in _DONE  # no scheduler watches these
        }
        return there == {seen.metadata.uid: seen.metadata.resource_version for seen in mirror.store}

    def _headed(self, pod: Json) -> str:
        metadata = pod["metadata"]
        record = self.daemon.scheduler.records.of(f"{metadata['namespace']}/{metadata['name']}")[-1]
        return record.node

    async def _settle(self, pod: Json, nominated: str) -> None:
        decisions = self.daemon.scheduler

        async def is_settled() -> bool:
            return not (len(decisions.evictions) + len(decisions.patches) + len(decisions.inbox))

        await self.until(is_settled, f"the evictions for {pod['metadata']['name']}")

    async def _finish(self) -> None:
        """What DynamicResources gives back, it gives back in the background."""
        profiles = self.daemon.scheduler.profiles.values()
        plugins = {plugin for one in profiles for plugin in one.post_filter if isinstance(plugin, DynamicResources)}

        async def is_done() -> bool:
            return not any(plugin._binder._background._tasks for plugin in plugins)

        await self.until(is_done, "what is given back")

    def _held(self, pod: Json) -> str:
        """The queue holds it once it is there and nothing is left to do."""
        if not self.daemon.idle():
            return ""
        profile = self.daemon.scheduler.profiles[pod["spec"]["schedulerName"]]
        return _refusal(profile, pod_info(from_manifest(Pod, pod)))

    # -- scores ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._hooks.scores = {}

    def _scores(self, pod: Json) -> Scores:
        return self._hooks.scores

    # -- without the API server --------------------------------------------------------------------------------------

    def plugins(self, profile: str) -> list[str]:
        """Every plugin that may have a say in a verdict of this profile."""
        found = self._profile(profile)
        return list(dict.fromkeys(plugin.name for point in _POINTS for plugin in getattr(found, point)))

    def judge(self, pod: Json, profile: str, *, without: str = "") -> Verdict:
        """One attempt on the cluster as the daemon knows it, with one plugin switched off; nothing is held or written.

        Nominations that an eviction would take are not reported: writes show them.
        """
        decisions = self.daemon.scheduler
        used = _without(self._profile(profile), without)
        manifest = named(admitted(pod, self.version), used.name)
        manifest |= {"spec": with_pod_defaults(manifest["spec"])}
        metadata = manifest["metadata"] | {"uid": uid_to_come(manifest["metadata"]["name"])}
        info = pod_info(from_manifest(Pod, manifest | {"metadata": metadata}))
        if pod["spec"].get("schedulingGates") and any(plugin.pre_enqueue(info) for plugin in used.pre_enqueue):
            return Verdict(reason=GATED, message=BLOCKED)  # the API server's condition stands
        if said := _refusal(used, info):
            return Verdict(reason=HELD, message=said)
        self._listen()
        nominator, clock, metrics = decisions.queue.nominator, self._clock, self._metrics
        runner = FrameworkRunner(used, decisions.cluster, nominator, clock=clock, metrics=metrics)
        record = DecisionRecord(pod=info.key, uid=info.uid, profile=used.name, attempt=1, started_wall=clock.wall())
        state = CycleState()
        try:
            with held(used) as notes:
                found = _drive(self._hooks.cycle._schedule_pod(runner, state, info, record))
        except AttemptError as error:
            return Verdict(reason=SCHEDULER_ERROR, message=error.message)
        if isinstance(found, Unschedulable):
            ways, writes = (_way(runner, info, found),), given_back(notes, info)
            return heard(Verdict(reason=UNSCHEDULABLE, message=found.message, ways=ways, writes=writes))
        node = decisions.cluster.nodes.name(found)
        return Verdict(node=node, scores=self._hooks.scores, writes=planned(used, state, info, node=node))

    def _profile(self, name: str) -> Profile:
        return self.daemon.scheduler.profiles[f"{self.prefix}-{name}"]


def _refusal(profile: Profile, pod: PodInfo) -> str:
    """With which words a plugin keeps the pod out of the queue; "" if none does."""
    said = (plugin.pre_enqueue(pod) for plugin in profile.pre_enqueue)
    return next((no.message for no in said if no is not None), "")


def _without(profile: Profile, name: str) -> Profile:
    kept: dict[str, Any] = {
        point: tuple(plugin for plugin in getattr(profile, point) if plugin.name != name) for point in _POINTS
    }
    return dataclasses.replace(profile, **kept)


def _way(runner: FrameworkRunner, pod: PodInfo, unfit: Unschedulable) -> Way:
    nominated = runner.ahead.nominated_to(pod) if unfit.nominate is None else unfit.nominate
    victims = (victim.pod.metadata for victim in unfit.victims)
    return Way(nominated, tuple(sorted(metadata.name for metadata in victims if metadata.deletion_timestamp is None)))


def _drive(attempt: Any) -> Any:
    while True:
        try:
            next(attempt)
        except StopIteration as done:
            return done.value


def configuration(gates: Iterable[str] = (), modes: Iterable[Mode] = Mode) -> Json:
    """Every profile of the suite once per mode."""
    gates, profiles = tuple(gates), []
    whole: Json = {}
    for mode in modes:
        arguments = [{"name": "Kubestow", "args": _PARITY_ARGS}] if mode is Mode.PARITY else []
        whole = scheduler_configuration(PREFIXES[mode], arguments=arguments, gates=gates)
        profiles += whole["profiles"]
    return whole | {"profiles": profiles}


def _switched(profile: KubeSchedulerProfile, switches: Mapping[str, Any]) -> KubeSchedulerProfile:
    args = dataclasses.replace(profile.args_for(KubestowArgs), **switches)
    return dataclasses.replace(profile, args={**profile.args, KubestowArgs.plugin: args})


@asynccontextmanager
async def running(
    api: ScenarioApi,
    *,
    version: str,
    pause_s: float,
    master: str = "",
    kubeconfig: str = "",
    gates: Iterable[str] = (),
    modes: Sequence[Mode] = tuple(Mode),
    switches: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Ours]:
    """A daemon with every profile of the suite, and the version's and further feature gates, on the server of `api`.

    It has the profiles of all `modes`, and runs in the first of them. Those without `parity` have these `switches`.
    """
    text = yaml.safe_dump(configuration(gates, modes))
    config = parse(text, source="parity", feature_gates=defaults(version) | frozenset(gates))
    config = dataclasses.replace(config, profiles=tuple(_switched(each, switches) for each in config.profiles))
    options = RunOptions(config=config, kubeconfig=kubeconfig, master=master, port=None, drain_timeout_s=5)
    daemon = Daemon(dataclasses.replace(options, emulated_version=version))
    try:
        await daemon.start()
        we = Ours(api, daemon, Hooks(daemon), version=version, pause_s=pause_s, mode=modes[0])
        await we.begin()
        yield we
    finally:
        await daemon.stop()


# -- what ours would write for a pod on its node, also to claims for devices, without writing it -----------------------


def planned(profile: Profile, state: CycleState, pod: PodInfo, *, node: str) -> tuple[str, ...]:
    """In the words of `volumes.changes` and `device_changes`. Nothing stays reserved."""
    lines: list[str] = []
    of_devices: tuple[str, ...] = ()
    for plugin in profile.reserve:
        if isinstance(plugin, VolumeBinding):
            assert plugin.reserve(state, pod, node) is None, f"{pod.key} was to go to {node}"
            lines += _lines(state.get(STATE), node)
            plugin.unreserve(state, pod, node)
        if isinstance(plugin, DynamicResources) and state.has(DEVICES):
            of_devices = planned_devices(plugin, state, pod, node=node)
    return (*sorted(lines), *of_devices)


def _lines(known: VolumeState, node: str) -> Iterator[str]:
    if known.plan is None:
        return
    for static in known.plan.static:
        if static.is_dirty:
            yield will_be_for(static.volume.key, static.claim.key)
        if static.marks:
            yield will_be_marked(static.volume.key)
    selected_before = {claim.key for claim in known.claims.delayed if claim.selected_node is not None}
    for dynamic in known.plan.dynamic:
        if dynamic.claim.key not in selected_before:
            yield will_be_for_node(dynamic.claim.key, node)
