"""The daemon's own state: gauges of its parts, health checks, configuration and debug pages.

Only wires things together: paths and formats are those of `server.endpoints`, names of metrics those of `metrics.metrics`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from scheduler import __version__
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken
from scheduler.api.pod_group import API_GROUPS
from scheduler.cache.pod_groups import joined
from scheduler.config.dump import to_document, without_keys
from scheduler.config.types import RunOptions
from scheduler.core.clock import Clock
from scheduler.core.errors import UnforeseenErrors
from scheduler.core.feature_gates import GATES, WHOLE_LIMITS
from scheduler.customresources.kopf_watch import Operator
from scheduler.daemon.leadership import Leadership
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.explain.explainer import outside
from scheduler.explain.groups.answer import GroupExplanation
from scheduler.explain.what_if import WhatIfRequest
from scheduler.kube.events import EventRecorder
from scheduler.kube.informers import Informers
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.resources import POD
from scheduler.kube.self_check import KINDS_SERVED, PERMISSIONS, SelfCheck
from scheduler.kube.server_version import KUBERNETES_VERSION, ServerVersion
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.scraped import pod_resource_pages
from scheduler.scheduler import Scheduler
from scheduler.server.cache_dump import cache_page
from scheduler.server.endpoints import Check, Checks, EndpointSources, NotReady, Remark, checked
from scheduler.server.ui.answers import Facts, Problem
from scheduler.server.ui.data import UiData
from scheduler.server.ui.history import History
from scheduler.server.ui.page import UiPages, answer, pages
from scheduler.server.ui.shortened import shortened

PROFILES: Final = "scheduler-profiles"
UNFORESEEN: Final = "unforeseen-errors"
BINDINGS: Final = "bindings"
_TEXT_MAX: Final = 300
_PODS_AT_ONCE: Final = 2000
HEARTBEAT_S: Final = 60.0
"""/livez fails when the scheduling loop has made no progress for this long."""


@dataclass(frozen=True, slots=True)
class Introspection:
    """The parts of one daemon whose state is shown."""

    options: RunOptions
    scheduler: Scheduler
    informers: Informers
    leadership: Leadership
    self_check: SelfCheck
    server_version: ServerVersion
    recorder: EventRecorder
    metrics: Metrics
    clock: Clock
    throttle: Throttle
    is_synced: Callable[[], bool]
    """Whether the informers are synced and the cache has their objects."""
    is_stopping: Callable[[], bool]
    shell: Operator
    errors: UnforeseenErrors
    history: History

    def bind_metrics(self) -> None:
        """Connect the gauges to the parts. Call once."""
        scheduler, shown = self.scheduler, self.metrics.sources
        cluster, queue, binder = scheduler.cluster, scheduler.queue, scheduler.binder
        reservations, stats = cluster.volumes.reservations, self.recorder.stats
        self.metrics.expect(scheduler.profiles)
        shown.pending, shown.inflight_events = scheduler.pending, queue.in_flight_events
        shown.cache, shown.healed = cluster.sizes, lambda: cluster.healed
        shown.bindings_in_flight = binder.__len__
        shown.assumed_oldest_s = lambda: {"binding": binder.oldest_s(), "bound": cluster.unconfirmed_s()}
        shown.groups = scheduler.group_states.counts
        shown.may_write = self.leadership.may_write
        shown.lease = self.leadership.lease
        shown.missing = lambda: self.self_check.findings
        shown.bytes_in_flight = cluster.volumes.bytes_in_flight
        shown.in_flight_oldest_s, shown.in_flight_expired = reservations.oldest_s, lambda: reservations.expired
        shown.ledger_drift = reservations.drift_bytes
        shown.capacity_version, shown.device_kinds = self.informers.capacity_version, self.informers.device_kinds
        shown.devices_in_use = cluster.devices.use.counts
        shown.compiled_selector_bytes = lambda: cluster.devices.compiled_bytes
        shown.reflectors = lambda: {kind: r.stats for kind, r in self.informers.reflectors.items()}
        shown.synced = self._synced
        shown.audit_differences = scheduler.audit.counts
        shown.recorder = lambda: {"sent": stats.sent, "failed": stats.failed, "dropped": stats.dropped}
        shown.unforeseen_errors = lambda: self.errors.counts
        shown.recorder_queued, shown.writes_waiting = lambda: stats.queued, lambda: self.throttle.waiting

    def sources(self) -> EndpointSources:
        scheduler = self.scheduler
        return EndpointSources(
            livez=lambda: {"scheduling-loop": self._heartbeat, **self.leadership.livez()},
            readyz=self._readyz,
            metrics=self.metrics.render,
            sample=self.metrics.sample,
            configz=self._configz,
            debug_queue=lambda: {
                "leads": self.leadership.may_write,
                "counts": scheduler.pending,
                "entries": scheduler.queue.entries,
            },
            debug_cache=partial(cache_page, scheduler.cluster),
            debug_pod=scheduler.shown,
            explain=self.explain,
            explain_group=self.explain_group,
            what_if=self.what_if,
            audit=scheduler.audit.page,
            pod_resources=self._pod_resources,
            ui_data=self._ui_answers() if self.options.serves_ui else None,
            on_error=partial(self.errors.record, "endpoint"),
        )

    def _pod_resources(self) -> Iterator[bytes]:
        """Return the pieces of /metrics/resources; nothing on a replica that does not lead, as upstream."""
        if not self.leadership.may_write():
            return iter(())
        infos = {info.uid: info for info in (*self.scheduler.queue.pods(), *self.scheduler.cluster.pods())}
        whole_limits = WHOLE_LIMITS in self.scheduler.reloading.configuration.feature_gates
        return pod_resource_pages([info.pod for info in infos.values()], whole_limits=whole_limits)

    async def explain(self, key: str) -> Explanation | None:
        """Answer why a pod is pending; None if it does not exist. Raises NotReady and TooManyQuestions."""
        self._need_cache()
        scheduler = self.scheduler
        found = await scheduler.questions.answer_to(partial(scheduler.group_explainer.pod, key))
        if found is not None:
            return msgspec.structs.replace(found, remark=self.server_version.remark)
        pod = self._stored_pod(key)
        return None if pod is None else outside(pod)

    def _stored_pod(self, key: str) -> Pod | Broken | None:
        pods = self.informers.reflectors.get(POD.name)
        return pods.store.get(key) if pods is not None else None

    async def explain_group(self, key: str, api_group: str) -> GroupExplanation | None:
        """Answer why a group does not start; None if it does not exist. Raises NotReady, TooManyQuestions and ClusterChanged."""
        self._need_cache()
        scheduler = self.scheduler
        found = await scheduler.questions.answer_to(partial(scheduler.group_explainer.group, key, api_group))
        if found is None:
            return None
        others = await self._other_schedulers(key, found.api_group)
        return msgspec.structs.replace(found, other_schedulers=others, remark=self.server_version.remark)

    async def _other_schedulers(self, key: str, api_group: str) -> dict[str, int]:
        """Return scheduler name → pods without a node that name the group and this scheduler, which is not ours. O(pods), in pieces."""
        pods, found = self.informers.reflectors.get(POD.name), Counter[str]()
        for at, pod in enumerate(list(pods.store) if pods is not None else ()):
            if at % _PODS_AT_ONCE == _PODS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if not isinstance(pod, Pod) or pod.spec.node_name or pod.spec.scheduler_name in self.scheduler.profiles:
                continue
            group = joined(pod)
            if group is not None and (group.key, API_GROUPS[group.kind]) == (key, api_group):
                found[pod.spec.scheduler_name] += 1
        return dict(found)

    async def ui_pages(self) -> UiPages:
        """Return all data of the page /ui. Raises NotReady and TooManyQuestions."""
        self._need_cache()
        return await pages(self._ui_data())

    def _ui_answers(self) -> Callable[[Mapping[str, str]], Awaitable[object | None]]:
        data = self._ui_data()

        async def answered(query: Mapping[str, str]) -> object | None:
            self._need_cache()
            return await answer(data, query)

        return answered

    def _ui_data(self) -> UiData:
        scheduler = self.scheduler
        return UiData(
            scheduler.cluster,
            scheduler.queue,
            scheduler.questions,
            self.clock,
            newest=scheduler.shared.pending.get,
            counts=scheduler.pending,
            facts=self._facts,
            states=scheduler.group_states,
            history=self.history.points,
            stored=self._stored_pod,
        )

    def _facts(self) -> Facts:
        record = partial(self.errors.record, "endpoint")
        checks = {name: checked(check, record) for name, check in self._readyz().items()}
        problems = (
            Problem(check=name, text=shortened(text, _TEXT_MAX), fails=not isinstance(text, Remark))
            for name, text in checks.items()
            if text
        )
        return Facts(
            version=f"kubestow {__version__}",
            schedulers=tuple(self.scheduler.profiles),
            leads=self.leadership.may_write(),
            lease=self.leadership.lease,
            bindings=len(self.scheduler.binder),
            problems=tuple(problems),
            audit_passes=self.scheduler.audit.passes,
            audit_differences=self.scheduler.audit.differences,
        )

    async def what_if(self, request: WhatIfRequest) -> WhatIfAnswer:
        """Answer whether pods would fit. Raises NotReady, TooManyQuestions and Refused."""
        self._need_cache()
        scheduler = self.scheduler
        return await scheduler.questions.answer_to(partial(scheduler.what_if.answer, request))

    def _need_cache(self) -> None:
        if not self.is_synced():
            raise NotReady(self._handlers_synced() or "the cache is not filled yet")

    def _readyz(self) -> Checks:
        """Return the checks. They are built for each request, because a change of profiles can add kinds."""
        mirrored = {f"informer-sync-{spec.plural}": partial(self._kind_lag, spec.name) for spec in self.informers.kinds}
        return {
            **mirrored,
            **self.leadership.readyz(),
            PERMISSIONS: self._with_minor(self.self_check.permissions, PERMISSIONS),
            KINDS_SERVED: self._with_minor(self.self_check.kinds_served, KINDS_SERVED),
            KUBERNETES_VERSION: lambda: Remark(self.server_version.remark) or None,
            PROFILES: self._profiles,
            UNFORESEEN: lambda: self.errors.down() or Remark(self.errors.recent()) or None,
            BINDINGS: lambda: Remark(self.scheduler.binder.remark()) or None,
            "sched-handler-sync": self._handlers_synced,
            "shutdown": lambda: "shutting down" if self.is_stopping() else None,
        }

    def _configz(self) -> object:
        """Return the configuration in force, and under `kubestow` the emulated version with its feature gates."""
        resolved = {name: profile.resolved for name, profile in self.scheduler.profiles.items()}
        configuration = self.scheduler.reloading.configuration
        return {
            "componentconfig": to_document(without_keys(configuration), resolved=resolved),
            "kubestow": {
                "emulatedVersion": self.options.emulated_version,
                "featureGates": {gate: gate in configuration.feature_gates for gate in sorted(GATES)},
            },
        }

    def _profiles(self) -> Remark | None:
        """Return why SchedulerProfiles are not in force. This does not affect readiness."""
        wrong = filter(None, (self.shell.remark(), *self.scheduler.reloading.remarks()))
        return Remark("; ".join(wrong)) or None

    def _synced(self) -> Mapping[str, int]:
        """Return the sync state by kind; empty on a standby that fills its cache only once it leads."""
        waits = self.options.config.delay_cache_until_active and not self.leadership.begun.is_set()
        return {} if waits else self.informers.synced()

    def _handlers_synced(self) -> str | None:
        """Return what the cache still lacks, by kind."""
        if self.is_synced():
            return None
        missing = sorted(kind for kind, is_synced in self._synced().items() if not is_synced)
        return f"informers are not synced: {', '.join(missing)}" if missing else "the cache is not filled yet"

    def _heartbeat(self) -> str | None:
        silent_s = self.clock.now() - self.scheduler.loop.beat
        if self.is_synced() and silent_s > HEARTBEAT_S:
            return f"the scheduling loop has made no progress for {silent_s:.0f} s"
        return None

    def _with_minor(self, check: Check, name: str) -> Check:
        """Add what is missing without an effect on readiness."""
        return lambda: check() or Remark(self.self_check.minor(name)) or None

    def _kind_lag(self, kind: str) -> str | None:
        lag = self.informers.lag(kind)
        return lag and (lag.why if lag.matters else Remark(lag.why))
