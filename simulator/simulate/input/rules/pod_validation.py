"""Rules for pods that a server applies and its schema does not have, with upstream's texts.

Only rules that a mistyped manifest breaks and that can change the node of a pod. A container without an image and a
Job without `restartPolicy` pass, although no server accepts them, because neither matters here.

Upstream: pkg/apis/core/validation/validation.go ValidatePodSpec
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from scheduler.api import quantity
from scheduler.api.meta import dns_label, label_key, label_value
from simulator.apiserver.kinds import pods
from simulator.apiserver.kinds.fields import LABEL_SELECTOR, NODE_SELECTOR, NODE_SELECTOR_TERM
from simulator.apiserver.validation import (
    AT_LEAST_0,
    Problems,
    Row,
    Table,
    accepting,
    duplicate,
    missing,
    must,
    name_of,
    names,
    not_allowed,
    not_found,
    optional,
    positive,
    required,
    unique,
    wrong,
)
from simulator.simulate.input.schema import Mistake, Object, nested, objects

_COUNTED: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
"""Native resources that only have whole numbers."""
_HARD: Final = "DoNotSchedule"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


class _Context(NamedTuple):
    """What the parts of a pod's spec may refer to."""

    volumes: set[str]
    is_template: bool
    containers: set[str]
    """Names of the containers that have been checked; the walk adds to it."""


def pod_spec(spec: Object, path: str, claim_templates: Iterable[str] = ()) -> list[Mistake]:
    """Return the mistakes of a pod's spec. `claim_templates` names volumes that a StatefulSet adds."""
    volumes = {*map(name_of, objects(spec, "volumes")), *claim_templates}
    context = _Context(volumes, is_template=path != "spec", containers=set())
    return [Mistake(each.field, each.why) for each in (found.below(path) for found in _SPEC(spec, context))]


# -- containers ------------------------------------------------------------------------------------------------------


@accepting
def _container_name(name: Any, context: _Context) -> Problems:
    """Check a name, which no other container of any list may have. The schema requires a name."""
    if not name:
        return []
    if name in context.containers:
        return [duplicate(name)]
    context.containers.add(name)
    return [wrong(name, why) for why in dns_label(name)]


@accepting
def _is_mounted(name: Any, context: _Context) -> Problems:
    return [not_found(name)] if name and name not in context.volumes else []


def _resource_name(name: str, _: Any) -> Problems:
    if found := label_key(name):
        return [wrong(name, why) for why in found]
    if "/" not in name:
        known = name in quantity.NATIVE or name.startswith("hugepages-")
        return [] if known else [wrong(name, "must be a standard resource for containers")]
    is_named = "kubernetes.io/" in name or quantity.is_extended(name)
    return [] if is_named else [wrong(name, "doesn't follow extended resource name standard")]


@accepting
def amounts(given: Any, _: Any) -> Problems:
    """Return the problems of amounts: negative, or a fraction of an extended resource or object.

    Upstream: pkg/apis/core/validation/validation.go ValidateResourceQuantityValue
    """
    found: Problems = []
    for name, amount in (given or {}).items():
        nano = _nano(amount)
        if nano < 0:
            found.append(wrong(str(amount), AT_LEAST_0, at=f"[{name}]"))
        if (quantity.is_extended(name) or name in _COUNTED) and nano % 1_000_000_000:
            found.append(wrong(str(amount), "must be an integer", at=f"[{name}]"))
    return found


@accepting
def _named_amounts(given: Any, _: Any) -> Problems:
    found = [each.below(f"[{name}]") for name in given or () for each in _resource_name(name, None)]
    return found + amounts(given, None)


def _nano(amount: Any) -> int:
    return 0 if amount is None else quantity.parse(amount.strip() if isinstance(amount, str) else amount).nano


@accepting
def _limits(given: Any, _: Any) -> Problems:
    """Compare requests with limits.

    Upstream: pkg/apis/core/validation/validation.go validateResourceRequirements
    """
    found: Problems = []
    limits = nested(given or {}, "limits")
    for name, request in nested(given or {}, "requests").items():
        overcommits = not quantity.is_extended(name) and not name.startswith("hugepages-")
        limit = limits.get(name)
        if limit is None:
            if not overcommits:
                found.append(missing("Limit must be set for non overcommitable resources", at="limits"))
            continue
        more = _nano(request) - _nano(limit)
        if more > 0 or (more and not overcommits):
            than = "less than or equal to" if overcommits else "equal to"
            found.append(wrong(str(request), f"must be {than} {name} limit of {limit}", at="requests"))
    return found


# -- constraints -----------------------------------------------------------------------------------------------------


@accepting
def _spreading(constraints: Any, _: Any) -> Problems:
    """Check combinations of fields. As upstream, of two equal constraints the first is named."""
    found: Problems = []
    keys = [(each.get("topologyKey"), each.get("whenUnsatisfiable")) for each in constraints or ()]
    for at, (constraint, key) in enumerate(zip(constraints or (), keys)):
        domains = constraint.get("minDomains")
        if domains is not None and key[1] != _HARD:
            why = f"can only use minDomains if whenUnsatisfiable={_HARD}, not {key[1]}"
            found.append(wrong(domains, why, at=f"[{at}].minDomains"))
        if key in keys[at + 1 :]:
            found.append(duplicate(f"{{{key[0]}, {key[1]}}}", at=f"[{at}].{{topologyKey, whenUnsatisfiable}}"))
    return found


def _toleration(given: Any, _: Any) -> Problems:
    """Check combinations of fields. Lt and Gt need an alpha feature gate.

    Upstream: pkg/apis/core/validation/validation.go ValidateTolerations
    """
    operator, value, effect = (given.get(field, "") for field in ("operator", "value", "effect"))
    found: Problems = []
    if not given.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(wrong(operator, why, at="operator"))
    if given.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(wrong(effect, why, at="effect"))
    if operator == "Exists" and value:
        found.append(wrong(value, "value must be empty when `operator` is 'Exists'", at="operator"))
    elif operator in {"", "Equal"}:
        found += [wrong(value, why, at="operator") for why in label_value(value)]
    return found


def _gates(spec: Any, context: _Context) -> Problems:
    """Refuse a node for a gated pod; a template may have both.

    Upstream: pkg/apis/core/validation/validation.go validateSchedulingGates
    """
    if context.is_template or not spec.get("schedulingGates") or not spec.get("nodeName"):
        return []
    return [not_allowed("cannot be set until all schedulingGates have been cleared", at="nodeName")]


# -- the table -------------------------------------------------------------------------------------------------------

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NAME: Final = (optional, names(dns_label))
"""The schema requires a name."""
_RESOURCES: Final = Table(("limits", _named_amounts), ("requests", _named_amounts), ("", _limits))
_CONTAINER: Final = Table(
    ("name", _container_name),
    ("resources", _RESOURCES),
    ("volumeMounts[*].name", _is_mounted),
    ("volumeDevices[*].name", _is_mounted),
)
_WEIGHT: Final = must(lambda weight: 1 <= weight <= 100, "must be in the range 1-100")
_TERM: Final = Table(
    ("labelSelector", LABEL_SELECTOR),
    ("namespaceSelector", LABEL_SELECTOR),
    ("topologyKey", required("can not be empty"), names(label_key)),
)


def _pod_affinity(kind: str) -> tuple[Row, ...]:
    return (
        (f"affinity.{kind}.{_PREFERRED}[*].weight?", _WEIGHT),
        (f"affinity.{kind}.{_PREFERRED}[*].podAffinityTerm", _TERM),
        (f"affinity.{kind}.{_REQUIRED}[*]", _TERM),
    )


_SPEC: Final = Table(
    ("volumes[*].name", *_NAME),
    ("volumes", unique(lambda volume: name_of(volume) or id(volume), at="name")),
    ("", lambda spec, _: pods.pod_spec(spec)),
    *((f"{field}[*]", _CONTAINER) for field in _CONTAINERS),
    ("resources", _RESOURCES),
    ("overhead", amounts),
    ("topologySpreadConstraints[*].maxSkew?", positive),
    ("topologySpreadConstraints[*].minDomains?", positive),
    ("topologySpreadConstraints[*].labelSelector", LABEL_SELECTOR),
    ("topologySpreadConstraints", _spreading),
    (f"affinity.nodeAffinity.{_PREFERRED}[*].weight?", _WEIGHT),
    (f"affinity.nodeAffinity.{_PREFERRED}[*].preference", NODE_SELECTOR_TERM),
    (f"affinity.nodeAffinity.{_REQUIRED}?", NODE_SELECTOR),
    *_pod_affinity("podAffinity"),
    *_pod_affinity("podAntiAffinity"),
    ("tolerations[*].key", optional, names(label_key)),
    ("tolerations[*]", _toleration),
    ("", _gates),
)
