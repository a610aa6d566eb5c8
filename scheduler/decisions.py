"""Everything that decides, made from a configuration and the ports: what runs in the daemon, in tests and in benchmarks.

Knows no socket and no kube (law 1); `app` plugs those in.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler.binding import Binder
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.config.plugins import check_common_queue_sort
from scheduler.config.types import Configuration, Profile as ProfileConfig
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.unforeseen import UnforeseenErrors
from scheduler.cycle import Cycle
from scheduler.derived import DerivedNominations
from scheduler.failure import Failures, StatusPatches
from scheduler.framework.ports import Handle, Recorder, Unplugged, Writer
from scheduler.framework.preempting import Preempting
from scheduler.framework.profile import Profile, build
from scheduler.framework.runner import Runner
from scheduler.inbox import Inbox
from scheduler.insight.explaining import shown
from scheduler.insight.records import DecisionRecords
from scheduler.intake import Intake
from scheduler.loop import SchedulingLoop
from scheduler.nodenamepods import NodeNamePods
from scheduler.obs.metrics import Metrics
from scheduler.options import RunOptions
from scheduler.permit import Permits
from scheduler.plugins import registry
from scheduler.preemption import Evictions
from scheduler.queue import SchedulingQueue
from scheduler.queueing.nominator import Nominator
from scheduler.refusals import Refusals
from scheduler.reload import Parts, Reloading, clearing, pool_sharing, queue_profile
from scheduler.shared import Pending, Shared
from scheduler.stale import StaleVolumes
from scheduler.underway import PodWatch


def build_profiles(config: Configuration, handle: Handle | None = None) -> dict[str, Profile]:
    """Scheduler name → its plugins, made and in order. Raises ConfigErrors.

    Without a handle the plugins are made for inspection only: an empty cluster and no way to write.
    """
    handle = handle or Handle(Cluster(device_gates=config.feature_gates), Unplugged(), Unplugged(), SystemClock())
    build_one = profile_builder(config, handle)
    profiles = {profile.scheduler_name: build_one(profile) for profile in config.profiles}
    check_common_queue_sort([(profile, profiles[profile.scheduler_name].resolved) for profile in config.profiles])
    return profiles


def profile_builder(config: Configuration, handle: Handle) -> Callable[[ProfileConfig], Profile]:
    """Makes the plugins of one profile of this configuration, or of one in its place. What it makes raises ConfigErrors."""
    known = registry()
    names = frozenset(profile.scheduler_name for profile in config.profiles)

    def build_one(profile: ProfileConfig) -> Profile:
        own = dataclasses.replace(
            handle,
            scheduler_name=profile.scheduler_name,
            scheduler_names=names,
            ours=profile.args_for(KubestowArgs),
            feature_gates=config.feature_gates,
        )
        return build(profile, known, own, percentage=config.percentage_of_nodes_to_score)

    return build_one


class Decisions:
    """Everything that decides, made from a configuration and the ports; nothing here knows a socket."""

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
    ) -> None:
        """Without `pod_watch` no watch is waited for."""
        self.chance = random.Random()
        self.cluster = Cluster(clock, options.config.feature_gates)
        self.errors = errors = errors or UnforeseenErrors(clock)
        self.inbox = Inbox(errors)
        permits = Permits(clock)
        pending = Pending()
        nominator = Nominator(pending.get)
        preempting = Preempting(metrics.preemption_attempt, nominator.pods, nominator.is_nominated)
        handle = Handle(
            self.cluster,
            writer,
            recorder,
            clock,
            preempting=preempting,
            chance=self.chance,
            volume_metrics=metrics.volumes,
            device_metrics=metrics.devices,
            errors=errors,
            waiting_pods=permits,
            to_activate=lambda pods: self.inbox.put(partial(self.queue.activate, pods)),
        )
        self.drain_plugins = handle.drain
        self.profiles = build_profiles(options.config, handle)
        """In force, by scheduler name: `reloading` puts others in their place between two attempts."""
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

        def runner(profile: Profile) -> Runner:
            return Runner(profile, self.cluster, nominator, clock=clock, metrics=metrics, errors=errors)

        runners = {name: runner(profile) for name, profile in self.profiles.items()}
        self.patches = StatusPatches(writer)
        self.failures = Failures(self.shared, self.patches, preempting)
        self.refusals = Refusals(self.cluster, clock=clock, metrics=metrics)
        self.binder = Binder(
            self.shared,
            self.failures,
            refusals=self.refusals,
            pod_watch=pod_watch or PodWatch(),
            permits=permits,
        )
        self.evictions = Evictions(self.shared, self.failures, self.binder, preempting, profiles=self.profiles)
        self.intake = Intake(self.shared, self.failures, bindings=self.binder, permits=self.binder.permits)
        self.stale = StaleVolumes(self.shared, names=clearing(options.config))
        self.node_name_pods = NodeNamePods(self.shared, profiles=self.profiles)
        self.cluster.volumes.ledger.pools_share(pool_sharing(options.config))
        self.derived = DerivedNominations(self.shared, profiles=self.profiles, runners=runners)
        self.records = DecisionRecords()
        self.loop = SchedulingLoop(
            self.shared,
            Cycle(
                runners,
                self.cluster,
                clock=clock,
                chance=self.chance,
                metrics=metrics,
                held_back=self.refusals.held_back,
            ),
            binder=self.binder,
            failures=self.failures,
            evictions=self.evictions,
            profiles=self.profiles,
            records=self.records,
            intake=self.intake,
            stale=self.stale,
            node_name_pods=self.node_name_pods,
            derived=self.derived,
        )
        self.reloading = Reloading(
            options.config,
            profile_builder(options.config, handle),
            Parts(
                self.profiles,
                runners,
                runner,
                self.queue.adopt,
                self.stale.serve,
                self.cluster.volumes.ledger.pools_share,
            ),
            metrics=metrics.shell,
        )

    def shown(self, key: str) -> Mapping[str, Any] | None:
        """What /debug/pod shows of a pod."""
        return shown(key, self.records, waiting=self.shared.pending.get, profiles=self.profiles)

    def is_idle(self) -> bool:
        """Nothing arrived that was not applied, nothing can be tried now, no binding and no patch is under way."""
        counts = self.queue.counts()
        tried = self.queue.in_flight_events().get("PodPopped", 0)
        busy = len(self.inbox) + counts["active"] + counts["backoff"] + tried + len(self.binder) + len(self.patches)
        busy += len(self.evictions)
        return busy == 0
