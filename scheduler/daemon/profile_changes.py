"""Track the kinds and permissions that profiles need, and extend them when profiles change.

Connects the kopf watch, the SchedulerProfile objects and the profiles that they change; created by `app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial

from scheduler.config.args import DynamicResourcesArgs, VolumeBindingArgs
from scheduler.config.types import RunOptions
from scheduler.core.clock import Clock
from scheduler.core.feature_gates import EXTENDED_RESOURCE
from scheduler.customresources.scheduler_profiles import ProfileObjects
from scheduler.daemon.supervision import Run
from scheduler.framework.profile import Profile
from scheduler.kube.informers import Informers
from scheduler.kube.resources import KindSpec, ServedKind, watched, with_capacity, with_taint_rules
from scheduler.kube.self_check import SelfCheck
from scheduler.kube.transport import HttpTransport
from scheduler.kube.writes.own_objects import ProfileWriter
from scheduler.kube.writes.permissions import (
    CLAIM_EVENT_RULES,
    DEVICE_RULES,
    EVICTION_RULES,
    EXTENDED_RESOURCE_RULES,
    GROUP_RULES,
    OTHER_LEASE_RULES,
    VOLUME_RULES,
    WRITES,
    RbacRule,
    lease_rules,
)
from scheduler.preemption import PLUGIN as PREEMPTION
from scheduler.scheduler import Scheduler
from scheduler.server.serving import rules

_SELF_CHECK = "self-check"


def kinds_read(profiles: Iterable[Profile], options: RunOptions) -> tuple[KindSpec, ...]:
    reads = {kind for profile in profiles for kind in profile.reads}
    kinds = with_capacity(watched(reads), options.csi_storage_capacity_api_version)
    return with_taint_rules(kinds, options.config.feature_gates)


def writes_of(profiles: Collection[Profile], options: RunOptions) -> tuple[RbacRule, ...]:
    """Return the writes of the enabled plugins and of leader election, and the reviews of the endpoints."""
    election = options.config.leader_election
    evicts = any(plugin.name == PREEMPTION for profile in profiles for plugin in profile.post_filter)
    binding = {plugin.name for profile in profiles for plugin in profile.pre_bind}
    allocates = DynamicResourcesArgs.plugin in binding
    return (
        *WRITES,
        *OTHER_LEASE_RULES,
        *rules(options.secure),
        *(GROUP_RULES if any(profile.starts_groups for profile in profiles) else ()),
        *(EVICTION_RULES if evicts else ()),
        *((*VOLUME_RULES, *CLAIM_EVENT_RULES) if VolumeBindingArgs.plugin in binding else ()),
        *(DEVICE_RULES if allocates else ()),
        *(EXTENDED_RESOURCE_RULES if allocates and EXTENDED_RESOURCE in options.config.feature_gates else ()),
        *(lease_rules(election.resource_namespace, election.resource_name) if election.leader_elect else ()),
    )


class ProfileChanges:
    """Changes of profiles; one per daemon. Checks permissions from the start."""

    def __init__(
        self,
        options: RunOptions,
        scheduler: Scheduler,
        informers: Informers,
        check: SelfCheck,
        *,
        spawn: Callable[[str, Run], asyncio.Task[None]],
        reflect: Callable[[KindSpec, ServedKind], None],
    ) -> None:
        """Create the connections. `spawn` runs a part of the daemon, `reflect` starts an informer."""
        self._options = options
        self._scheduler = scheduler
        self._informers = informers
        self._check = check
        self._spawn = spawn
        self._reflect = reflect
        self._late: dict[str, asyncio.Task[None]] = {}
        self._checking = spawn(_SELF_CHECK, check.run)
        scheduler.reloading.missing = self._missing
        scheduler.reloading.on_change = self._check_permissions

    def objects(self, transport: HttpTransport, writer: ProfileWriter, clock: Clock) -> ProfileObjects:
        reloading, inbox = self._scheduler.reloading, self._scheduler.inbox
        objects = ProfileObjects(
            transport,
            writer,
            clock,
            names=frozenset(self._scheduler.profiles),
            on_requested=lambda requests: inbox.put(partial(reloading.reconcile, requests)),
            verdicts=lambda: reloading.verdicts,
        )
        reloading.on_verdict = objects.wake
        return objects

    def _missing(self, profile: Profile) -> tuple[str, ...]:
        """Return the kinds that are not synced.

        Their informers start now, and the requested profiles are checked again when they are synced.
        """
        late = self._informers.late(kinds_read([profile], self._options))
        for spec in late:
            if spec.name not in self._late:
                self._late[spec.name] = self._spawn("discovery", partial(self._mirror, spec))
        return tuple(self._informers.why_late(spec) for spec in late)

    async def _mirror(self, spec: KindSpec) -> None:
        async for _ in self._informers.more(spec, self._reflect):  # synced, or not yet: the callback reports it
            self._scheduler.inbox.put(self._scheduler.reloading.again)

    def _check_permissions(self) -> None:
        """Check permissions again: other plugins may need other permissions."""
        profiles = self._scheduler.profiles.values()
        self._check.change(kinds=kinds_read(profiles, self._options), writes=writes_of(profiles, self._options))
        if self._checking.done():
            self._checking = self._spawn(_SELF_CHECK, self._check.run)
