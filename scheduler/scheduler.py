"""Compose everything that decides, and run the scheduling loop.

`Scheduler` is created from a configuration and the ports. It runs in the daemon, in tests and in benchmarks, and
knows no socket and no kube (law 1); `app` connects those. The loop applies changes, pops a pod, attempts it and hands
it over. It owns cache and queue. /debug/pod shows the last decisions about a pod and, while it waits, current
numbers. The numbers may be newer than the decision.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.audit.checks import all_checks
from scheduler.audit.self_audit import SelfAudit
from scheduler.audit.stored import ObjectStore
from scheduler.binding import Binder
from scheduler.binding_state import PodWatch
from scheduler.cache.cluster import Cluster
from scheduler.config.types import RunOptions
from scheduler.context import Inbox, Shared, UnboundPods
from scheduler.controllers.derived_nominations import DerivedNominations
from scheduler.controllers.kubelet_rejections import KubeletRejections
from scheduler.controllers.node_name_pods import NodeNamePods
from scheduler.controllers.stale_volumes import StaleVolumes
from scheduler.core.clock import Clock
from scheduler.core.cluster_events import ALL, ClusterEvent, Resource
from scheduler.core.decision_record import DecisionRecords
from scheduler.core.errors import UnforeseenErrors
from scheduler.core.feature_gates import BINDING_RETRIES, RESIZE_TOTALS
from scheduler.cycle import Cycle
from scheduler.eventhandlers.event_handlers import EventHandlers
from scheduler.explain.explainer import Explainer
from scheduler.explain.groups.explainer import GroupExplainer
from scheduler.explain.questions import Questions
from scheduler.explain.what_if import WhatIf
from scheduler.extenders.consultations import Consultations
from scheduler.failure import FailureHandler, PodStatusUpdater
from scheduler.framework.extender import Extender
from scheduler.framework.handle import Handle, Recorder, Writer
from scheduler.framework.interface import ExplainPlugin
from scheduler.framework.nominator import Nominator
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.wait import WaitingPodsMap
from scheduler.groups.cycle import GroupCycle
from scheduler.groups.incomplete import IncompleteGroups
from scheduler.groups.states import GroupStates
from scheduler.groups.status import GroupStatus
from scheduler.groups.verdicts import GroupVerdicts
from scheduler.loop import SchedulingLoop, SchedulingLoopParts
from scheduler.metrics.metrics import Metrics
from scheduler.preemption import PreemptionExecutor
from scheduler.profiles.build import build_profiles, profile_builder
from scheduler.profiles.reconciler import ProfileReconciler, ProfileUsers, clearing, pool_sharing, queue_profile
from scheduler.queue import SchedulingQueue

CACHE_CORRECTED: Final = ClusterEvent(Resource.WILDCARD, ALL, "CacheCorrected")
"""Our own event: the self-audit corrected the cache, so any pod may have been refused wrongly."""


class Scheduler:
    """Everything that decides, created from a configuration and the ports.

    Upstream: pkg/scheduler/scheduler.go New, Scheduler
    """

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        options: RunOptions,
        *,
        writer: Writer,
        recorder: Recorder,
        clock: Clock,
        metrics: Metrics,
        errors: UnforeseenErrors | None = None,
        pod_watch: PodWatch | None = None,
        extenders: Iterable[Extender] = (),
        stores: Callable[[], Mapping[str, ObjectStore]] = dict,
    ) -> None:
        """Create the parts. Without `pod_watch` bindings wait for no watch.

        `stores` returns the synced stores of the informers by kind, for the self-audit.
        """
        # The state: the cache, and the inbox through which alone it changes.
        self.rng = random.Random(options.seed)
        self.cluster = Cluster(clock, options.config.feature_gates)
        self.errors = errors = errors or UnforeseenErrors(clock)
        self.inbox = Inbox(errors)
        # What plugins may use. The queue does not exist yet, so that `to_activate` looks it up when it is called.
        waiting_pods = WaitingPodsMap(clock)
        pending = UnboundPods()
        nominator = Nominator(pending.get)
        preempting = Preempting(metrics.preemption_attempt, nominator.pods, pending.get)
        handle = Handle(
            self.cluster,
            writer,
            recorder,
            clock,
            preempting=preempting,
            rng=self.rng,
            volume_metrics=metrics.volumes,
            device_metrics=metrics.devices,
            errors=errors,
            waiting_pods=waiting_pods,
            to_activate=lambda pods: self.inbox.put(partial(self.queue.activate, pods)),
        )
        self.drain_plugins = handle.drain
        self.profiles = build_profiles(options.config, handle)
        """The profiles in force, by scheduler name; `reloading` replaces them between two attempts."""
        # A pod waits in the queue, which the first attempt and each event about it change.
        self.queue = SchedulingQueue(
            {name: queue_profile(profile) for name, profile in self.profiles.items()},
            clock=clock,
            initial_backoff_s=options.config.pod_initial_backoff_s,
            max_backoff_s=options.config.pod_max_backoff_s,
            max_in_unschedulable_s=options.max_in_unschedulable_s,
            nominator=nominator,
            metrics=metrics,
            on_ready=self.inbox.wake,
            errors=errors,
        )
        self.shared = Shared(self.cluster, self.queue, self.inbox, writer, recorder, clock, metrics, pending, errors)

        def runner(profile: Profile) -> FrameworkRunner:
            return FrameworkRunner(profile, self.cluster, nominator, clock=clock, metrics=metrics, errors=errors)

        runners = {name: runner(profile) for name, profile in self.profiles.items()}
        # What an attempt may end in: a condition, a call of an extender, a Binding, evictions.
        self.patches, self.group_status = PodStatusUpdater(writer), GroupStatus(writer, recorder)
        self.failures = FailureHandler(self.shared, self.patches, preempting)
        self.consultations = Consultations(extenders, self.shared)
        self.refusals = KubeletRejections(self.cluster, clock=clock, metrics=metrics)
        derive = partial(pod_info, resize_by_totals=RESIZE_TOTALS in options.config.feature_gates)
        self.binder = Binder(
            self.shared,
            self.failures,
            refusals=self.refusals,
            pod_watch=pod_watch or PodWatch(),
            waiting_pods=waiting_pods,
            binder_for=self.consultations.binder_for,
            retries=BINDING_RETRIES in options.config.feature_gates,
        )
        self.group_states = GroupStates(self.cluster.pod_groups, self.binder.groups)
        self.evictions = PreemptionExecutor(self.shared, self.failures, self.binder, preempting, profiles=self.profiles)
        # What brings changes: events of the watches.
        self.event_handlers = EventHandlers(
            self.shared,
            self.failures,
            is_binding=self.binder.has,
            waiting_pods=self.binder.waiting_pods,
            derive=derive,
            preempting=preempting,
        )
        # What reads the same state between attempts: questions of users, and the self-audit.
        self.questions = Questions(self.inbox, clock, errors)
        self.explainer = Explainer(
            self.cluster,
            pending,
            nominator,
            self.profiles,
            clock,
            derive=derive,
            held_back=self.refusals.held_back,
            trial_s=options.trial_s,
        )
        self.group_verdicts = GroupVerdicts(
            self.cluster,
            clock,
            options.config.feature_gates,
            has_extender=self.consultations.is_consulted,
            is_given_up=self.binder.barriers.given_up.__contains__,
        )
        self.group_explainer = GroupExplainer(self.explainer, self.group_verdicts, preempting, self.queue.get)
        self.what_if = WhatIf(self.explainer, self.group_explainer)
        self.audit = SelfAudit(
            all_checks(self.shared, self.event_handlers, self.binder.has, stores) if options.audits else {},
            clock,
            errors,
            is_current=lambda: not len(self.inbox),
            on_healed=lambda: self.queue.move_all(CACHE_CORRECTED, None, None),
        )
        # Controllers: small rules that run once per turn of the loop.
        self.stale = StaleVolumes(self.shared, names=clearing(options.config))
        self.node_name_pods = NodeNamePods(self.shared, profiles=self.profiles)
        self.cluster.volumes.reservations.pools_share(pool_sharing(options.config))
        self.derived = DerivedNominations(self.shared, profiles=self.profiles, runners=runners)
        # The attempt itself, and the loop that drives everything above.
        self.records = DecisionRecords(pods=sys.maxsize) if options.keeps_choices else DecisionRecords()
        self.cycle = Cycle(
            runners,
            self.cluster,
            clock=clock,
            rng=self.rng,
            metrics=metrics,
            held_back=self.refusals.held_back,
            records_runner_up=options.keeps_choices,
        )
        self.loop = SchedulingLoop(
            SchedulingLoopParts(
                self.shared,
                self.event_handlers,
                self.cycle,
                GroupCycle(self.cycle, self.cluster, nominator, clock, metrics, preempting),
                self.group_verdicts,
                self.group_status,
                IncompleteGroups(self.cluster.pod_groups, recorder, clock),
                self.consultations,
                self.binder,
                self.failures,
                self.evictions,
                self.derived,
                self.stale,
                self.node_name_pods,
                self.questions,
                self.audit,
                self.records,
                self.profiles,
            )
        )
        # Changed profiles replace those in force between two attempts.
        self.reloading = ProfileReconciler(
            options.config,
            profile_builder(options.config, handle),
            ProfileUsers(
                self.profiles,
                runners,
                runner,
                self.queue.adopt,
                self.stale.serve,
                self.cluster.volumes.reservations.pools_share,
            ),
            metrics=metrics.shell,
        )

    def shown(self, key: str) -> Mapping[str, Any] | None:
        """Return what /debug/pod shows of a pod."""
        return shown(key, self.records, waiting=self.shared.pending.get, profiles=self.profiles)

    def pending(self) -> dict[str, int]:
        """Return the pending_pods gauge: label → pods. Pods that wait for an extender are active."""
        counts = self.queue.counts()
        counts["active"] += self.consultations.held_count()
        return counts

    def is_idle(self) -> bool:
        """Return whether all changes are applied, no pod can be tried, and no binding and no patch is running."""
        return not self.queue.counts()["backoff"] and self._is_quiet(0)

    def is_at_rest(self, since: float, waiting: int = 0) -> bool:
        """Return whether it is idle, but for pods that back off after an error, and for `waiting` bindings.

        Each of these pods was tried after `since`, the last change (`Clock.now()`), and would have the same error again.
        The bindings wait for volumes that are never made.
        """
        return self._is_quiet(waiting) and (not self.queue.counts()["backoff"] or self.queue.all_failed_since(since))

    def _is_quiet(self, waiting: int) -> bool:
        active = self.queue.counts()["active"] + self.queue.in_flight_events().get("PodPopped", 0)
        return (
            len(self.inbox) + active + len(self.patches) + len(self.group_status) + len(self.evictions) == 0
            and len(self.binder) <= waiting
        )


def shown(
    key: str, records: DecisionRecords, *, waiting: Callable[[str], PodInfo | None], profiles: Mapping[str, Profile]
) -> Mapping[str, Any] | None:
    """Return the answer for the pod `namespace/name`; None if no attempt is recorded."""
    remembered = records.to_dict(key)
    pod = waiting(key)
    if remembered is None or pod is None or pod.pod.spec.scheduler_name not in profiles:
        return remembered
    asked = (plugin for plugin in profiles[pod.pod.spec.scheduler_name].pre_filter if isinstance(plugin, ExplainPlugin))
    facts = {plugin.name: found for plugin in asked if (found := plugin.explain(pod))}
    return {**remembered, "facts": facts} if facts else remembered
