"""Build the plugins of each scheduler name from a configuration.

Separate from `scheduler.scheduler`, so that `kubestow check-config` does not load the queue and the binding cycle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs, NodeResourcesFitArgs
from scheduler.config.errors import ConfigError, ConfigErrors, collecting
from scheduler.config.plugins import check_common_queue_sort
from scheduler.config.types import Configuration, KubeSchedulerProfile as ProfileConfig
from scheduler.core.clock import SystemClock
from scheduler.framework.extender import EXTENDER_NAME
from scheduler.framework.handle import Handle, Unplugged
from scheduler.framework.profile import Profile, build
from scheduler.plugins import registry


def build_profiles(config: Configuration, handle: Handle | None = None) -> dict[str, Profile]:
    """Return the profiles by scheduler name. Raises ConfigErrors with the mistakes of all profiles.

    Without a handle the plugins are made for inspection: the cluster is empty, and writes are refused.

    Upstream: pkg/scheduler/profile/profile.go NewMap
    """
    handle = handle or Handle(Cluster(device_gates=config.feature_gates), Unplugged(), Unplugged(), SystemClock())
    build_one = profile_builder(config, handle)
    profiles: dict[str, Profile] = {}
    errors: list[ConfigError] = []
    for profile in config.profiles:
        with collecting(errors):
            profiles[profile.scheduler_name] = build_one(profile)
    if errors:
        raise ConfigErrors(errors)
    check_common_queue_sort([(profile, profiles[profile.scheduler_name].resolved) for profile in config.profiles])
    return profiles


def profile_builder(config: Configuration, handle: Handle) -> Callable[[ProfileConfig], Profile]:
    """Return a function that builds one profile of the configuration, or a changed one. It raises ConfigErrors."""
    registered = registry()
    ignored = tuple(
        resource.name
        for extender in config.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    names = frozenset(profile.scheduler_name for profile in config.profiles)

    def build_one(profile: ProfileConfig) -> Profile:
        own = dataclasses.replace(
            handle,
            scheduler_name=profile.scheduler_name,
            scheduler_names=names,
            ours=profile.args_for(KubestowArgs),
            feature_gates=config.feature_gates,
        )
        return build(
            _ignoring(profile, ignored) if ignored else profile,
            registered,
            own,
            percentage=config.percentage_of_nodes_to_score,
            rejecters=(EXTENDER_NAME,) if config.extenders else (),
        )

    return build_one


def _ignoring(profile: ProfileConfig, resources: tuple[str, ...]) -> ProfileConfig:
    """Return the profile with these resources as `ignoredResources` of NodeResourcesFit. They replace its own.

    Upstream: pkg/scheduler/scheduler.go buildExtenders
    """
    args = dataclasses.replace(profile.args_for(NodeResourcesFitArgs), ignored_resources=resources)
    return dataclasses.replace(profile, args={**profile.args, NodeResourcesFitArgs.plugin: args})
