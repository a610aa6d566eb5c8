"""Validate manifests strictly, like `kubectl apply --validate=strict`.

An object is checked against the API schema, and then against rules of its kind that a server applies and the schema
does not have. Kinds of other API groups, such as custom resources, are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from scheduler.api.selectors import requirement_matches
from simulator.apiserver.kinds.volumes import amount
from simulator.apiserver.validation import (
    Problem,
    Problems,
    Row,
    Rule,
    Table,
    name_of,
    not_negative,
    unique,
    wrong,
)
from simulator.simulate.input import schema
from simulator.simulate.input.rules.pod_validation import amounts, pod_spec
from simulator.simulate.input.schema import Mistake, Object, nested, objects

Level: TypeAlias = Literal["ignore", "warn", "strict"]


def mistakes(value: Object) -> list[Mistake]:
    """Return all mistakes of an object. It has `apiVersion` and `kind`, and nulls only in lists."""
    version, name = value["apiVersion"], value["kind"]
    kind = schema.find(version, name)
    if kind is None:
        return [Mistake("kind", _no_match(version, name))] if _is_native(version) else []
    found = list(kind.check(value))
    if any(each.is_type for each in found):
        return found
    if rule := _RULES.get(name):
        found += [Mistake(each.field, each.why) for each in rule(value, name)]
    if path := _PODS.get(name):
        templates = objects(nested(value, "spec"), "volumeClaimTemplates")
        found += pod_spec(nested(value, *path.split(".")), path, [name_of(each.get("metadata")) for each in templates])
    return found


def _is_native(version: str) -> bool:
    """Return whether the group is Kubernetes' own; a group without a dot always is, such as `extensions`."""
    group = version.rpartition("/")[0]
    return "." not in group or group in schema.groups()


def _no_match(version: str, kind: str) -> str:
    served = [each for each in schema.versions() if schema.find(each, kind) is not None]
    hint = f"; {kind} is served in {', '.join(served)}" if served else ""
    return f'no matches for kind "{kind}" in version "{version}"{hint}'


# -- rules of the kinds ----------------------------------------------------------------------------------------------


def _has_selector(spec: Any, kind: str) -> Problems:
    """Check that the selector selects the pods of the template. A Job gets its selector from the server."""
    if kind == "ReplicationController":
        labels, expressions = nested(spec, "selector"), []
    elif (selector := spec.get("selector")) is None:
        return []
    else:
        labels, expressions = nested(selector, "matchLabels"), objects(selector, "matchExpressions")
    found: Problems = []
    if not labels and not expressions and kind != "ReplicationController":
        found.append(wrong({}, f"empty selector is invalid for {kind.lower()}", at="selector"))
    have = nested(spec, "template", "metadata", "labels")
    matches = all(have.get(key) == label for key, label in labels.items()) and all(
        requirement_matches(each.get("key", ""), each.get("operator", ""), tuple(each.get("values") or ()), have)
        for each in expressions
    )
    if not matches:
        shown = ", ".join(f"{key}: {label}" for key, label in have.items())
        why = f"Invalid value: {{{shown}}}: `selector` does not match template `labels`"
        found.append(Problem("template.metadata.labels", "FieldValueInvalid", why))
    return found


def _node_amounts(given: Any, _: Any) -> Problems:
    """Check the amounts of a node. As upstream, the name of a resource stands in the path like a field."""
    return [each._replace(field=each.field[1:-1]) for each in amounts(given, None)]


def _taints(taints: Any, _: Any) -> Problems:
    return unique(lambda taint: f"{taint.get('key')}:{taint.get('effect')}")(taints, None)


def _counts(path: str, *fields: str) -> tuple[Row, ...]:
    return tuple((f"{path}.{field}?", not_negative) for field in fields)


_WORKLOAD: Final = Table(
    *_counts("spec", "replicas"),
    ("spec", _has_selector),
    ("spec.volumeClaimTemplates[*].spec.resources.requests.storage?", amount),
)
_PODS: Final[Mapping[str, str]] = {
    "CronJob": "spec.jobTemplate.spec.template.spec",
    "Pod": "spec",
    "PodTemplate": "template.spec",
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), "spec.template.spec"
    ),
}
"""Kinds that have pods, and where the spec of their pods is."""
_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"), _WORKLOAD),
    "CronJob": Table(*_counts("spec.jobTemplate.spec", "parallelism", "completions")),
    "Job": Table(*_counts("spec", "parallelism", "completions")),
    "Node": Table(("status.capacity", _node_amounts), ("status.allocatable", _node_amounts), ("spec.taints", _taints)),
    "PersistentVolume": Table(("spec.capacity{*}", amount)),
}
