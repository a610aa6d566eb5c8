"""Read `profiles` (docs/spec/core.md §6.2): names, plugin sets as written, and arguments.

Checks what must be equal in all profiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set as AbstractSet
from typing import Any, Final

from scheduler.config.args import KnownArgs, RawArgs, default_args
from scheduler.config.errors import Findings, below
from scheduler.config.fields import Fields, declared, quoted, read
from scheduler.config.plugins import KNOWN_NAMES, LATER_POINTS, MULTI_POINT, POINTS, REMOVED_NAMES, check_sets, removed
from scheduler.config.read_args import read_args
from scheduler.config.schema import NO_PERCENTAGE, is_percentage
from scheduler.config.types import GATES_ON, OUR_NAME, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.feature_gates import CAPACITY_SCORING

DEFAULT_SCHEDULER: Final = "default-scheduler"


def read_profiles(fields: Fields, *, allow_default_scheduler: bool = False) -> tuple[KubeSchedulerProfile, ...]:
    """Read the profiles. Without `profiles`, or with an empty list, return one profile with all defaults."""
    items = fields.children("profiles")
    if not items:
        return (KubeSchedulerProfile(OUR_NAME, args=_default_args(fields)),)
    profiles = tuple(_profile(item, alone=len(items) == 1) for item in items)
    findings = fields.findings
    named: set[str] = set()
    for item, profile in zip(items, profiles):
        where = below(item.path, "schedulerName")
        name = profile.scheduler_name
        if name == DEFAULT_SCHEDULER and not allow_default_scheduler:
            missing = "" if item.has("schedulerName") else "is required: without it the profile is "
            findings.error(
                where,
                f"{missing}{DEFAULT_SCHEDULER}, whose pods belong to the cluster's own scheduler; --allow-default-scheduler where there is none",
            )
        elif not name:
            findings.error(where, "Required value")
        elif name in named:
            findings.error(where, f"Duplicate value: {quoted(name)}")  # upstream says {}
        named.add(name)
    _check_queue_sort(profiles, findings)
    return profiles


def read_changes(
    spec: Any, base: KubeSchedulerProfile, *, path: str, feature_gates: AbstractSet[str] = GATES_ON
) -> KubeSchedulerProfile:
    """Return the profile with the changes of `spec`, which has the form of a profile without a name.

    An extension point in `spec` replaces that of `base`, and so do the arguments of a plugin; the rest is as in
    `base`. Raises ConfigErrors with every mistake, under `path`.
    """
    findings = Findings(feature_gates=feature_gates)
    with Fields(spec, path, findings) as fields:
        given = _plugin_sets(fields)
        percentages = {each.name: declared(fields, each) for each in dataclasses.fields(base) if is_percentage(each)}
        args = _plugin_config(fields)
        _check_one_order(given.get("queueSort", PluginSet()), path, findings)
    findings.raise_any()
    return dataclasses.replace(
        base,
        plugins={**base.plugins, **given},
        args={**args, **{name: value for name, value in base.args.items() if name not in args}},
        path=path,
        **{name: value for name, value in percentages.items() if value is not None},
    )


def _profile(fields: Fields, *, alone: bool) -> KubeSchedulerProfile:
    with fields:
        name = fields.text("schedulerName")
        if alone and not fields.has("schedulerName"):
            name = DEFAULT_SCHEDULER
        plugins = {point: found for point, found in _plugin_sets(fields).items() if found != PluginSet()}
        args = _plugin_config(fields)
        args = {**args, **{name: usual for name, usual in _default_args(fields).items() if name not in args}}
        ignored_placements(fields)
        return read(
            KubeSchedulerProfile,
            fields,
            scheduler_name=lambda: name,
            plugins=lambda: plugins,
            args=lambda: args,
            path=lambda: fields.path,
        )


def ignored_placements(fields: Fields) -> None:
    """Read percentageOfPlacementsToScore, which has no effect: of the document, and since 1.38 of a profile.

    Upstream: pkg/scheduler/apis/config/validation/validation.go validateKubeSchedulerProfile
    """
    fields.within("percentageOfPlacementsToScore", None, (0, 100), NO_PERCENTAGE)
    fields.no_effect("percentageOfPlacementsToScore")


def _default_args(fields: Fields) -> dict[str, KnownArgs]:
    return default_args(capacity_scoring=CAPACITY_SCORING in fields.findings.feature_gates)


def _plugin_sets(fields: Fields) -> dict[str, PluginSet]:
    """Read the points that are present, in the order of points; an empty point counts."""
    with fields.child("plugins") as sets:
        plugins = {point: _set(sets, point) for point in (MULTI_POINT, *POINTS)}
        named = {point: found for point, found in plugins.items() if sets.has(point)}
        for point in LATER_POINTS:
            if _set(sets, point).enabled:
                sets.error(point, f"{point} is not available in this version")
    check_sets(named, path=fields.at("plugins"), findings=fields.findings)
    return named


def _set(fields: Fields, point: str) -> PluginSet:
    enabled, disabled = [], []
    with fields.child(point) as given:
        for item in given.children("enabled"):
            with item:
                enabled.append(PluginRef(item.required("name"), item.integer("weight", 0)))
        for item in given.children("disabled"):
            with item:
                disabled.append(item.required("name"))
                item.integer("weight", 0)
    return PluginSet(tuple(enabled), tuple(disabled))


def _plugin_config(fields: Fields) -> dict[str, KnownArgs | RawArgs]:
    """Read the arguments, in the file's order."""
    found: dict[str, KnownArgs | RawArgs] = {}
    for item in fields.children("pluginConfig"):
        with item:
            name, value = item.required("name"), item.raw("args")
            if name in found:
                fields.findings.error(item.path, f"Duplicate value: {quoted(name)}")
                continue
            if name in REMOVED_NAMES:
                fields.findings.error(item.path, removed(name))
                continue
            path = item.at("args")
            typed = read_args(name, value, path, findings=fields.findings)
            if typed is None and name in KNOWN_NAMES:
                item.no_effect("args")
            found[name] = typed or RawArgs(value, path)
    return found


def _check_queue_sort(profiles: Sequence[KubeSchedulerProfile], findings: Findings) -> None:
    """Check that all profiles sort the queue alike: they share one queue.

    `plugins` checks the effect of multiPoint later.
    """
    first = profiles[0]
    canon = first.plugins.get("queueSort", PluginSet())
    _check_one_order(canon, first.path, findings)
    for profile in profiles[1:]:
        given = profile.plugins.get("queueSort", PluginSet())
        if given != canon:
            why = "must be the same for all profiles"
            findings.error(f"{profile.path}.plugins.queueSort", f"Invalid value: {_as_upstream(given)}: {why}")
            continue
        for ref in canon.enabled[:1]:
            args = profile.args.get(ref.name)
            if args != first.args.get(ref.name):
                why = "queueSort must be the same for all profiles"
                value = quoted(args.value if isinstance(args, RawArgs) else None)
                findings.error(f"{profile.path}.pluginConfig", f"Invalid value: {value}: {why}")


def _check_one_order(queue_sort: PluginSet, path: str, findings: Findings) -> None:
    if (number := len(queue_sort.enabled)) > 1:
        why = "only one queue sort plugin can be enabled"
        findings.error(f"{path}.plugins.queueSort.enabled", f"Invalid value: {number}: {why}")


def _as_upstream(given: PluginSet) -> str:
    """Return the set as Go prints its structure; an empty list is nil."""
    enabled = [{"Name": ref.name, "Weight": ref.weight} for ref in given.enabled]
    disabled = [{"Name": name, "Weight": 0} for name in given.disabled]
    return quoted({"Enabled": enabled or None, "Disabled": disabled or None})
