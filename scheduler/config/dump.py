"""Write a configuration as the v1 document that means the same, and describe the changes between two profiles.

`to_document` spells out every default, for /configz and --write-config-to. Loading the document returns an equal
configuration. With resolved lists, each profile's plugins are listed per point and all defaults are disabled, so that
the document means the same to every version. `changes` returns one line for people: `score: NodeResourcesFit 1→5,
-ImageLocality`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from scheduler.config.args import (
    KUBE_SCHEDULER_V1,
    KUBESTOW_V1ALPHA1,
    KnownArgs,
    KubestowArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RawArgs,
    VolumeBindingArgs,
)
from scheduler.config.document import format_duration
from scheduler.config.plugins import MULTI_POINT, POINTS, Resolved
from scheduler.config.schema import FieldOptions, percentages, spelled
from scheduler.config.types import Configuration, ExtenderConfig, KubeSchedulerProfile, PluginRef, PluginSet


def to_document(configuration: Configuration, *, resolved: Mapping[str, Resolved] | None = None) -> dict[str, Any]:
    """Return the document.

    `resolved` maps schedulerName to its lists; without it the plugin sets stay as they were written.
    """
    document: dict[str, Any] = {
        "apiVersion": KUBE_SCHEDULER_V1,
        "kind": "KubeSchedulerConfiguration",
        "parallelism": configuration.parallelism,
        "clientConnection": written(configuration.client_connection),
        "leaderElection": written(configuration.leader_election),
        "podInitialBackoffSeconds": round(configuration.pod_initial_backoff_s),
        "podMaxBackoffSeconds": round(configuration.pod_max_backoff_s),
        "enableProfiling": configuration.enable_profiling,
        "delayCacheUntilActive": configuration.delay_cache_until_active,
        "profiles": [
            _profile(profile, (resolved or {}).get(profile.scheduler_name), configuration.feature_gates)
            for profile in configuration.profiles
        ],
        **percentages(configuration),
    }
    if configuration.extenders:
        document["extenders"] = [_extender(extender) for extender in configuration.extenders]
    return document


def _profile(
    profile: KubeSchedulerProfile, resolved: Resolved | None, feature_gates: AbstractSet[str]
) -> dict[str, Any]:
    document: dict[str, Any] = {"schedulerName": profile.scheduler_name, **percentages(profile)}
    plugins = _written_out(resolved) if resolved else profile.plugins
    if plugins:
        document["plugins"] = {point: _set(given) for point, given in plugins.items()}
    document["pluginConfig"] = [
        {"name": name, "args": args.value if isinstance(args, RawArgs) else _args(args, feature_gates)}
        for name, args in profile.args.items()
    ]
    return document


def _written_out(resolved: Resolved) -> dict[str, PluginSet]:
    nothing_else = {MULTI_POINT: PluginSet(disabled=("*",))}
    return nothing_else | {point: PluginSet(enabled, ("*",)) for point, enabled in resolved.points.items()}


def _set(given: PluginSet) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if given.enabled:
        document["enabled"] = [_ref(ref) for ref in given.enabled]
    if given.disabled:
        document["disabled"] = [{"name": name} for name in given.disabled]
    return document


def _ref(ref: PluginRef) -> dict[str, Any]:
    return {"name": ref.name, "weight": ref.weight} if ref.weight else {"name": ref.name}


def _args(args: KnownArgs, feature_gates: AbstractSet[str]) -> dict[str, Any]:
    version = KUBESTOW_V1ALPHA1 if isinstance(args, KubestowArgs) else KUBE_SCHEDULER_V1
    document: dict[str, Any] = written(args, feature_gates)
    match args:
        case NodeResourcesFitArgs():
            strategy = document["scoringStrategy"]
            if shape := strategy.pop("shape"):
                strategy["requestedToCapacityRatio"] = {"shape": shape}
        case PodTopologySpreadArgs():
            for constraint in document["defaultConstraints"]:
                if not constraint["matchLabelKeys"]:
                    del constraint["matchLabelKeys"]
        case VolumeBindingArgs():
            document = {"bindTimeoutSeconds": round(args.bind_timeout_s)}
            if args.shape:
                document["shape"] = written(args.shape)
    return {"apiVersion": version, "kind": f"{args.plugin}Args"} | document


def written(value: Any, feature_gates: AbstractSet[str] = frozenset()) -> Any:
    """Return a value as a document has it: dataclasses as mappings, seconds as durations.

    Fields with None are absent. So are those whose feature gates are off: they would be refused.
    """
    if isinstance(value, tuple):
        return [written(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not is_dataclass(value):
        return value
    document: dict[str, Any] = {}
    for field in fields(value):
        form = cast(FieldOptions, field.metadata)
        if not (form.get("in_files", True) and feature_gates >= form.get("gates", frozenset())):
            continue
        held = getattr(value, field.name)
        if held is not None:
            document[spelled(field.name)] = format_duration(held) if field.name.endswith("_s") else written(held)
    return document


def without_keys(configuration: Configuration) -> Configuration:
    """Return the configuration without the private keys of extenders, for a page."""
    extenders = (
        each if each.tls is None else replace(each, tls=replace(each.tls, key_data=b""))
        for each in configuration.extenders
    )
    return replace(configuration, extenders=tuple(extenders))


def _extender(extender: ExtenderConfig) -> dict[str, Any]:
    document: dict[str, Any] = written(extender)
    if (tls := document.pop("tls", None)) is not None:
        document["tlsConfig"] = {name: value for name, value in tls.items() if value or not name.endswith("Data")}
    return document


def changes(before: tuple[KubeSchedulerProfile, Resolved], after: tuple[KubeSchedulerProfile, Resolved]) -> str:
    """Return the changed points in order, then arguments, then percentageOfNodesToScore; "" if nothing differs."""
    (old, old_lists), (new, new_lists) = before, after
    parts = [
        f"{point}: {', '.join(listed)}"
        for point in POINTS
        if (listed := list(_differences(point, old_lists.points.get(point, ()), new_lists.points.get(point, ()))))
    ]
    args = sorted(name for name in {*old.args, *new.args} if old.args.get(name) != new.args.get(name))
    if args:
        parts.append(f"args: {', '.join(args)}")
    had, has = percentages(old), percentages(new)
    parts += [f"{name}: {has.get(name)}" for name in sorted({*had, *has}) if had.get(name) != has.get(name)]
    return "; ".join(parts)


def _differences(point: str, old: Sequence[PluginRef], new: Sequence[PluginRef]) -> Iterable[str]:
    was, is_now = ({ref.name: ref.weight for ref in refs} for refs in (old, new))
    for name, weight in is_now.items():
        if name not in was:
            yield f"+{name} {weight}" if weight else f"+{name}"
        elif was[name] != weight:
            yield f"{name} {was[name]}→{weight}"
    yield from (f"-{name}" for name in was if name not in is_now)
    stayed = [name for name in was if name in is_now]
    if point != "score" and stayed != [name for name in is_now if name in was]:  # the order does not change a sum
        yield "in another order"
