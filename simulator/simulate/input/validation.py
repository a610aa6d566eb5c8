"""Validate manifests strictly, like `kubectl apply --validate=strict`.

An object is checked against the API schema, and then against rules of its kind that a server applies and the schema
does not have. Kinds of other API groups, such as custom resources, are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from scheduler.api import quantity
from scheduler.api.selectors import LabelSelectorRequirement, requirement_matches
from simulator.simulate.input import schema
from simulator.simulate.input.pod_validation import NEGATIVE, NOT_POSITIVE, amount_of, pod_spec
from simulator.simulate.input.schema import Mistake, Object, invalid, nested, objects

Level: TypeAlias = Literal["ignore", "warn", "strict"]
_Rule: TypeAlias = Callable[[Object], Iterator[Mistake]]


def mistakes(value: Object) -> list[Mistake]:
    """Return all mistakes of an object. It has `apiVersion` and `kind`, and nulls only in lists."""
    version, name = value["apiVersion"], value["kind"]
    kind = schema.find(version, name)
    if kind is None:
        return [Mistake("kind", _no_match(version, name))] if _is_native(version) else []
    found = list(kind.check(value))
    if any(each.is_type for each in found):
        return found
    rule = _RULES.get(name)
    return [*found, *rule(value)] if rule else found


def _is_native(version: str) -> bool:
    """Return whether the group is Kubernetes' own; a group without a dot always is, such as `extensions`."""
    group = version.rpartition("/")[0]
    return "." not in group or group in schema.groups()


def _no_match(version: str, kind: str) -> str:
    served = [each for each in schema.versions() if schema.find(each, kind) is not None]
    hint = f"; {kind} is served in {', '.join(served)}" if served else ""
    return f'no matches for kind "{kind}" in version "{version}"{hint}'


def _pod(value: Object) -> Iterator[Mistake]:
    yield from pod_spec(nested(value, "spec"), "spec")


def _pod_template(value: Object) -> Iterator[Mistake]:
    yield from pod_spec(nested(value, "template", "spec"), "template.spec")


def _cron_job(value: Object) -> Iterator[Mistake]:
    path = "spec.jobTemplate.spec"
    yield from _counts(nested(value, *path.split(".")), path, ("parallelism", "completions"))
    yield from pod_spec(nested(value, *path.split("."), "template", "spec"), f"{path}.template.spec")


def _job(value: Object) -> Iterator[Mistake]:
    """Yield mistakes of a Job. The server creates its selector; a dump of a Job has it."""
    yield from _counts(nested(value, "spec"), "spec", ("parallelism", "completions"))
    yield from pod_spec(nested(value, "spec", "template", "spec"), "spec.template.spec")


def _workload(value: Object) -> Iterator[Mistake]:
    spec = nested(value, "spec")
    yield from _counts(spec, "spec", ("replicas",))
    if value["kind"] == "ReplicationController":
        yield from _selects(nested(spec, "selector"), [], spec)
    elif (selector := spec.get("selector")) is not None:
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid("spec.selector", {}, f"empty selector is invalid for {value['kind'].lower()}")
        yield from _selects(nested(selector, "matchLabels"), objects(selector, "matchExpressions"), spec)
    templates = objects(spec, "volumeClaimTemplates")
    for at, each in enumerate(templates):
        yield from _claim_spec(nested(each, "spec"), f"spec.volumeClaimTemplates[{at}].spec")
    names = [str(nested(each, "metadata").get("name")) for each in templates]
    yield from pod_spec(nested(spec, "template", "spec"), "spec.template.spec", names)


def _counts(spec: Object, path: str, fields: tuple[str, ...]) -> Iterator[Mistake]:
    for field in fields:
        if (count := spec.get(field, 0)) < 0:
            yield invalid(f"{path}.{field}", count, NEGATIVE)


def _selects(labels: Object, expressions: list[Object], spec: Object) -> Iterator[Mistake]:
    have = nested(spec, "template", "metadata", "labels")
    wanted = [
        LabelSelectorRequirement(each.get("key", ""), each.get("operator", ""), tuple(each.get("values") or ()))
        for each in expressions
    ]
    matches = all(have.get(key) == label for key, label in labels.items()) and all(
        requirement_matches(each.key, each.operator, each.values, have) for each in wanted
    )
    if not matches:
        shown = ", ".join(f"{key}: {label}" for key, label in have.items())
        yield Mistake(
            "spec.template.metadata.labels",
            f"Invalid value: {{{shown}}}: `selector` does not match template `labels`",
        )


def _node(value: Object) -> Iterator[Mistake]:
    for field in ("capacity", "allocatable"):
        for name, amount in nested(value, "status", field).items():
            yield from amount_of(name, amount, f"status.{field}.{name}")
    taints: set[tuple[object, object]] = set()
    for at, taint in enumerate(objects(nested(value, "spec"), "taints")):
        key = taint.get("key"), taint.get("effect")
        if key in taints:
            yield Mistake(f"spec.taints[{at}]", f'Duplicate value: "{key[0]}:{key[1]}"')
        taints.add(key)


def _claim(value: Object) -> Iterator[Mistake]:
    yield from _claim_spec(nested(value, "spec"), "spec")


def _claim_spec(spec: Object, path: str) -> Iterator[Mistake]:
    amount = nested(spec, "resources", "requests").get("storage")
    if amount is not None and quantity.parse(amount).nano <= 0:
        yield invalid(f"{path}.resources[storage]", str(amount), NOT_POSITIVE)


def _volume(value: Object) -> Iterator[Mistake]:
    for name, amount in nested(value, "spec", "capacity").items():
        if quantity.parse(amount).nano <= 0:
            yield invalid(f"spec.capacity[{name}]", str(amount), NOT_POSITIVE)


_RULES: Final[Mapping[str, _Rule]] = {
    "CronJob": _cron_job,
    "DaemonSet": _workload,
    "Deployment": _workload,
    "Job": _job,
    "Node": _node,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PodTemplate": _pod_template,
    "ReplicaSet": _workload,
    "ReplicationController": _workload,
    "StatefulSet": _workload,
}
