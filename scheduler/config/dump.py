"""Write a configuration as the v1 document that means the same, and describe the changes between two profiles.

`to_document` spells out every default, for /configz and --write-config-to. Loading the document returns an equal
configuration. With resolved lists, each profile's plugins are listed per point and all defaults are disabled, so that
the document means the same to every version. `changes` returns one line for people: `score: NodeResourcesFit 1→5,
-ImageLocality`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from typing import Any

from scheduler.config.args import (
    KUBE_SCHEDULER_V1,
    KUBESTOW_V1ALPHA1,
    SPELLED,
    DefaultConstraint,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    KnownArgs,
    KubestowArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RawArgs,
    ResourceWeight,
    ShapePoint,
    VolumeBindingArgs,
)
from scheduler.config.document import format_duration
from scheduler.config.plugins import MULTI_POINT, POINTS, Resolved
from scheduler.config.types import Configuration, ExtenderConfig, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, FILTER_TIMEOUT


def to_document(configuration: Configuration, *, resolved: Mapping[str, Resolved] | None = None) -> dict[str, Any]:
    """Return the document.

    `resolved` maps schedulerName to its lists; without it the plugin sets stay as they were written.
    """
    client, election = configuration.client_connection, configuration.leader_election
    document: dict[str, Any] = {
        "apiVersion": KUBE_SCHEDULER_V1,
        "kind": "KubeSchedulerConfiguration",
        "parallelism": configuration.parallelism,
        "clientConnection": {"kubeconfig": client.kubeconfig, "qps": client.qps, "burst": client.burst},
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": format_duration(election.lease_duration_s),
            "renewDeadline": format_duration(election.renew_deadline_s),
            "retryPeriod": format_duration(election.retry_period_s),
            "resourceLock": election.resource_lock,
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        },
        "podInitialBackoffSeconds": round(configuration.pod_initial_backoff_s),
        "podMaxBackoffSeconds": round(configuration.pod_max_backoff_s),
        "enableProfiling": configuration.enable_profiling,
        "delayCacheUntilActive": configuration.delay_cache_until_active,
        "profiles": [
            _profile(profile, (resolved or {}).get(profile.scheduler_name), configuration.feature_gates)
            for profile in configuration.profiles
        ],
    }
    if configuration.percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = configuration.percentage_of_nodes_to_score
    if configuration.extenders:
        document["extenders"] = [_extender(extender) for extender in configuration.extenders]
    return document


def _profile(
    profile: KubeSchedulerProfile, resolved: Resolved | None, feature_gates: AbstractSet[str]
) -> dict[str, Any]:
    document: dict[str, Any] = {"schedulerName": profile.scheduler_name}
    if profile.percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
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
    return {"apiVersion": version, "kind": f"{args.plugin}Args"} | _args_fields(args, feature_gates)


def _args_fields(args: KnownArgs, feature_gates: AbstractSet[str]) -> dict[str, Any]:
    match args:
        case DefaultPreemptionArgs(percentage, absolute):
            return {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}
        case InterPodAffinityArgs(weight, ignore):
            return {"hardPodAffinityWeight": weight, "ignorePreferredTermsOfExistingPods": ignore}
        case NodeAffinityArgs(added):
            return {} if added is None else {"addedAffinity": dict(added)}
        case NodeResourcesFitArgs():
            return _fit(args)
        case NodeResourcesBalancedAllocationArgs(resources):
            return {"resources": [_weight(resource) for resource in resources]}
        case PodTopologySpreadArgs(constraints, kind):
            return {"defaultConstraints": [_constraint(c) for c in constraints], "defaultingType": kind}
        case VolumeBindingArgs(timeout_s, shape):
            return {"bindTimeoutSeconds": round(timeout_s)} | ({"shape": [_point(p) for p in shape]} if shape else {})
        case DynamicResourcesArgs():
            return _devices(args, feature_gates)
        case KubestowArgs():
            return _kubestow(args)


def _devices(args: DynamicResourcesArgs, feature_gates: AbstractSet[str]) -> dict[str, Any]:
    """Omit a time limit whose feature gate is off, because it would be refused."""
    document = {}
    if FILTER_TIMEOUT in feature_gates:
        document["filterTimeout"] = format_duration(args.filter_timeout_s)
    if feature_gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}:
        document["bindingTimeout"] = format_duration(args.binding_timeout_s)
    return document


def _kubestow(args: KubestowArgs) -> dict[str, Any]:
    switches = {spelled: getattr(args, name) for name, spelled in SPELLED.items()}
    switches["requireCSINodeDrivers"] = list(args.require_csi_node_drivers)
    return {"parity": args.parity, "victims": args.victims} | switches


def _fit(args: NodeResourcesFitArgs) -> dict[str, Any]:
    strategy: dict[str, Any] = {
        "type": args.scoring_strategy.type,
        "resources": [_weight(resource) for resource in args.scoring_strategy.resources],
    }
    if args.scoring_strategy.shape:
        strategy["requestedToCapacityRatio"] = {"shape": [_point(p) for p in args.scoring_strategy.shape]}
    return {
        "ignoredResources": list(args.ignored_resources),
        "ignoredResourceGroups": list(args.ignored_resource_groups),
        "scoringStrategy": strategy,
    }


def _weight(resource: ResourceWeight) -> dict[str, Any]:
    return {"name": resource.name, "weight": resource.weight}


def _point(point: ShapePoint) -> dict[str, Any]:
    return {"utilization": point.utilization, "score": point.score}


def _constraint(constraint: DefaultConstraint) -> dict[str, Any]:
    given = {
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": constraint.when_unsatisfiable,
        "minDomains": constraint.min_domains,
        "nodeAffinityPolicy": constraint.node_affinity_policy,
        "nodeTaintsPolicy": constraint.node_taints_policy,
        "matchLabelKeys": list(constraint.match_label_keys) or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def without_keys(configuration: Configuration) -> Configuration:
    """Return the configuration without the private keys of extenders, for a page."""
    extenders = (
        each if each.tls is None else replace(each, tls=replace(each.tls, key_data=b""))
        for each in configuration.extenders
    )
    return replace(configuration, extenders=tuple(extenders))


def _extender(extender: ExtenderConfig) -> dict[str, Any]:
    document: dict[str, Any] = {
        "urlPrefix": extender.url_prefix,
        "filterVerb": extender.filter_verb,
        "preemptVerb": extender.preempt_verb,
        "prioritizeVerb": extender.prioritize_verb,
        "weight": extender.weight,
        "bindVerb": extender.bind_verb,
        "enableHTTPS": extender.enable_https,
        "httpTimeout": format_duration(extender.http_timeout_s),
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": [
            {"name": r.name, "ignoredByScheduler": r.ignored_by_scheduler} for r in extender.managed_resources
        ],
        "ignorable": extender.ignorable,
    }
    if extender.tls is not None:
        tls = extender.tls
        document["tlsConfig"] = {
            "insecure": tls.insecure,
            "serverName": tls.server_name,
            "certFile": tls.cert_file,
            "keyFile": tls.key_file,
            "caFile": tls.ca_file,
        } | {
            name: base64.b64encode(data).decode()
            for name, data in (("certData", tls.cert_data), ("keyData", tls.key_data), ("caData", tls.ca_data))
            if data
        }
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
    if old.percentage_of_nodes_to_score != new.percentage_of_nodes_to_score:
        parts.append(f"percentageOfNodesToScore: {new.percentage_of_nodes_to_score}")
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
