"""The question of a WhatIf object, and the status that answers it.

The manifests, the reference and `without` are of the object's namespace. Names of pods of other namespaces never reach
the status: it only counts them. So an object says no more than pods that its author creates would show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from scheduler.core import api_json as apijson
from scheduler.core.errors import shortened
from scheduler.explain.answer import DisplacedPod, Explanation, WhatIfAnswer, WhatIfGroup
from scheduler.explain.manifests import WrongRequest, each_manifest
from scheduler.explain.what_if import WhatIfRequest

DEFAULT_SCHEDULER: Final = "kubestow"
"""The scheduler of objects that name none."""
SPEC_MAX: Final = 1024 * 1024
"""Bytes of a spec, as of a request to /debug/what-if."""
MANIFESTS_MAX: Final = 1000
SHOWN_MAX: Final = 100
"""Placements, displaced pods, and groups in a status."""
REASONS_MAX: Final = 20
STATUS_MAX: Final = 60_000
"""Bytes of the fields that are written."""
CONDITION: Final = "Answered"
ANSWERED: Final = "Answered"
MALFORMED: Final = "Malformed"
FAILED: Final = "Failed"
BEGUN: Final = "Begun"
_TEXT_MAX: Final = 1024
_NAME_MAX: Final = 253
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_CLUSTER_SCOPED: Final = "PriorityClass"

Object = dict[str, Any]


class WhatIfMetadata(msgspec.Struct, rename="camel"):
    """What identifies one state of an object."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int = 0


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    conditions: list[Object] = []


class WorkloadReference(msgspec.Struct, rename="camel"):
    """A workload or a pod of the same namespace."""

    kind: Literal["Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"]
    name: Annotated[str, msgspec.Meta(pattern=_SUBDOMAIN, max_length=_NAME_MAX)]
    api_version: str = ""


class WhatIfSpec(WhatIfRequest, frozen=True, rename="camel", forbid_unknown_fields=False, kw_only=True):
    """The question of an object: a request, or a reference to what to place. The server has removed unknown fields."""

    reference: WorkloadReference | None = None
    scheduler_name: str = DEFAULT_SCHEDULER


class WhatIfObject(msgspec.Struct, rename="camel"):
    metadata: WhatIfMetadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_answered(self) -> bool:
        """Whether the status is about the newest spec."""
        return self.status.observed_generation == self.metadata.generation

    @property
    def begun(self) -> str:
        """Which process began to answer the newest spec, and when; "" if none did, or if it is answered."""
        condition = _condition_of(self)
        is_newest = condition.get("observedGeneration") == self.metadata.generation
        return str(condition["message"]) if condition.get("reason") == BEGUN and is_newest else ""

    @property
    def seen(self) -> Object:
        """The precondition of a write."""
        return {"metadata": msgspec.to_builtins(self.metadata)}


_OBJECT: Final = msgspec.json.Decoder(WhatIfObject)
_SPEC: Final = msgspec.json.Decoder(WhatIfSpec)


def read_object(raw: bytes) -> WhatIfObject:
    """Decode an object. Raises msgspec.DecodeError and ValueError."""
    return apijson.decode(_OBJECT, raw)


def read_spec(obj: WhatIfObject) -> WhatIfSpec:
    """Decode the spec. Raises WrongRequest, which names the field."""
    if len(obj.spec) > SPEC_MAX:
        raise WrongRequest(f"spec: a question has at most {SPEC_MAX} bytes")
    try:
        return apijson.decode(_SPEC, bytes(obj.spec))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WrongRequest(f"spec: {error}") from None


def question(
    spec: WhatIfSpec, namespace: str, names: Iterable[str], referenced: Mapping[str, Any] | None = None
) -> WhatIfRequest:
    """Return the request, with all objects in the namespace. `names` are the scheduler's profiles.

    Pods of other schedulers are tried with the profile `spec.schedulerName`. Raises WrongRequest.
    """
    manifests: list[Object] = []
    for where, manifest in each_manifest(spec.manifests, "spec.manifests"):
        if len(manifests) == MANIFESTS_MAX:  # a List holds any number
            raise WrongRequest(f"spec.manifests: a question has at most {MANIFESTS_MAX} objects")
        manifests.append(_inside(manifest, namespace, where))
    if referenced is not None:
        manifests.append(_inside(referenced, namespace, "spec.reference"))
    for manifest in manifests:
        _name_scheduler(manifest, spec.scheduler_name, tuple(names))
    return WhatIfRequest(
        manifests=tuple(manifests),
        replicas=spec.replicas,
        drain=tuple(spec.drain),
        cordon=tuple(spec.cordon),
        add_nodes_like=spec.add_nodes_like,
        without=tuple(_pod_key(name, namespace) for name in spec.without),
    )


def template_of(raw: bytes, reference: WorkloadReference) -> Object:
    """Return what further pods of the object are made from: its kind, labels and spec, under another name.

    Another name keeps its claims and pods apart from the existing ones. Raises WrongRequest.
    """
    try:
        found: Object = apijson.decode(_PLAIN, raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WrongRequest(f"spec.reference: {reference.kind} {reference.name} cannot be read: {error}") from None
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    spec = {name: value for name, value in spec.items() if name != "nodeName"}
    kept = {part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)}
    return {"kind": reference.kind, "metadata": kept | {"name": f"{reference.name}-what-if"}, "spec": spec}


_PLAIN: Final = msgspec.json.Decoder(Object)


def _inside(manifest: Mapping[str, Any], namespace: str, where: str) -> Object:
    """Return the manifest with the namespace. Raises WrongRequest if it names another one."""
    metadata = manifest.get("metadata")
    if manifest.get("kind") == _CLUSTER_SCOPED or not isinstance(metadata, Mapping):
        return dict(manifest)  # an object without metadata is refused with its field
    named = metadata.get("namespace")
    if named not in (None, "", namespace):
        text = shortened(f"{named!r}", _NAME_MAX)
        raise WrongRequest(f"{where}.metadata.namespace: {text} is not the namespace of the WhatIf, {namespace!r}")
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}


def _name_scheduler(manifest: Object, scheduler_name: str, names: Sequence[str]) -> None:
    """Name the scheduler in the pod or pod template unless it names a profile of ours. Malformed parts stay."""
    holder: Any = manifest
    if manifest.get("kind") != "Pod":
        spec = holder.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if not isinstance(template, dict):
            return
        holder = {**template}
        manifest["spec"] = {**spec, "template": holder}
    pod = holder.get("spec")
    if isinstance(pod, dict) and pod.get("schedulerName") not in names:
        holder["spec"] = {**pod, "schedulerName": scheduler_name}


def _pod_key(name: str, namespace: str) -> str:
    """Return `namespace/name`. Raises WrongRequest for a pod of another namespace: the answer would say that it exists."""
    before, slash, rest = name.partition("/")
    if not slash:
        return f"{namespace}/{name}"
    if before != namespace:
        text = shortened(before, _NAME_MAX)
        raise WrongRequest(f"spec.without: {text!r} is not the namespace of the WhatIf, {namespace!r}")
    return f"{namespace}/{rest}"


# -- the status --------------------------------------------------------------------------------------------------------


def answered(obj: WhatIfObject, answer: WhatIfAnswer, now: str) -> Object:
    """Return the status of an answered question. `now` is an RFC 3339 time."""
    namespace = obj.metadata.namespace
    own = [_displaced(each, namespace) for each in answer.displaced if _is_in(each.pod, namespace)]
    placements = [{"pod": _short(each.pod), "node": _name(each.node)} for each in answer.placements]
    groups = [_group(each) for each in answer.groups if _is_in(each.group, namespace)]
    explanation = answer.explanation
    if explanation is not None and not _is_in(explanation.pod, namespace):
        explanation = None
    reasons = _reasons(explanation)
    cause = answer.cause if explanation is None else f"{answer.cause}; {explanation.cause}"
    if not answer.is_complete:
        cause = f"{cause}; the time for this question was over before all pods were tried"
    fields: Object = {
        "verdict": answer.verdict,
        "cause": shortened(cause, _TEXT_MAX),
        "replicas": answer.replicas,
        "placed": answer.placed,
        "displacedElsewhere": len(answer.displaced) - len(own) or None,
    }
    status = _status(obj, fields, ANSWERED, now)
    for shown in _fewer(SHOWN_MAX):
        status["reasons"] = reasons[:shown] or None
        status["placements"] = placements[:shown] or None
        status["placementsOmitted"] = max(0, answer.placed - shown) or None
        status["displaced"] = own[:shown] or None
        status["displacedOmitted"] = max(0, len(own) - shown) or None
        status["groups"] = groups[:shown] or None
        status["groupsOmitted"] = max(0, len(groups) - shown) or None
        if len(msgspec.json.encode(status)) <= STATUS_MAX:
            break
    return status


def begun(obj: WhatIfObject, holder: str, now: str) -> Object:
    """Return the fields of a status that say that the process `holder` begins to answer."""
    return {"conditions": _conditions(obj, "Unknown", BEGUN, f"{begun_by(holder)}at {now}", now)}


def begun_by(holder: str) -> str:
    """Return the beginning of the text in `WhatIfObject.begun`, if it was this process."""
    return f"begun by {holder} "


def unanswered(obj: WhatIfObject, reason: str, why: str, now: str) -> Object:
    """Return the status of a question without an answer: `MALFORMED` or `FAILED`."""
    return _status(obj, {"verdict": "unreadable", "cause": shortened(why, _TEXT_MAX)}, reason, now)


_FIELDS: Final = (
    *("verdict", "cause", "replicas", "placed", "placements", "placementsOmitted", "displaced", "displacedOmitted"),
    *("displacedElsewhere", "groups", "groupsOmitted", "reasons"),
)


def _status(obj: WhatIfObject, fields: Object, reason: str, now: str) -> Object:
    """Return all fields of a status; None removes one that the question before has left."""
    state = "True" if reason == ANSWERED else "False"
    return {
        **dict.fromkeys(_FIELDS),
        **fields,
        "observedGeneration": obj.metadata.generation,
        "answeredAt": now,
        "conditions": _conditions(obj, state, reason, fields["cause"], now),
    }


def _condition_of(obj: WhatIfObject) -> Object:
    return next((each for each in obj.status.conditions if each.get("type") == CONDITION), {})


def _conditions(obj: WhatIfObject, state: str, reason: str, message: str, now: str) -> list[Object]:
    """Return all conditions, with ours in this state."""
    before = _condition_of(obj)
    is_same = before.get("status") == state and before.get("lastTransitionTime")
    condition = {
        "type": CONDITION,
        "status": state,
        "reason": reason,
        "message": message,
        "observedGeneration": obj.metadata.generation,
        "lastTransitionTime": before["lastTransitionTime"] if is_same else now,
    }
    others = [each for each in obj.status.conditions if each.get("type") != CONDITION]
    return [*others, condition]


def _fewer(most: int) -> Iterator[int]:
    """Yield halves down to zero."""
    while most:
        yield most
        most //= 2
    yield 0


def _reasons(explanation: Explanation | None) -> list[Object]:
    """Return the reasons of all groups with their nodes, the most frequent first."""
    if explanation is None:
        return []
    nodes: dict[tuple[str, str], int] = {}
    for group in explanation.groups:
        for reason in group.reasons:
            at = (reason.code, reason.text)
            nodes[at] = nodes.get(at, 0) + reason.nodes
    if not nodes:
        nodes[explanation.code, explanation.cause] = explanation.node_count
    ordered: Sequence[tuple[tuple[str, str], int]] = sorted(nodes.items(), key=lambda each: -each[1])
    return [
        {"code": code, "text": shortened(text, _TEXT_MAX), "nodes": count}
        for (code, text), count in ordered[:REASONS_MAX]
    ]


def _displaced(each: DisplacedPod, namespace: str) -> Object:
    cause = each.cause
    if each.preempted_by and not _is_in(each.preempted_by, namespace):
        cause = "preempted by a pod of another namespace"
    found = {"pod": _short(each.pod), "from": _name(each.source), "to": _name(each.to)}
    return {name: text for name, text in (found | {"cause": shortened(cause, _NAME_MAX)}).items() if text}


def _group(each: WhatIfGroup) -> Object:
    fields: Object = msgspec.to_builtins(each)
    return fields | {"group": _short(each.group), "cause": shortened(each.cause, _TEXT_MAX)}


def _is_in(key: str, namespace: str) -> bool:
    return key.startswith(f"{namespace}/")


def _short(key: str) -> str:
    """Return the name of `namespace/name`."""
    return _name(key.partition("/")[2])


def _name(text: str) -> str:
    return shortened(text, _NAME_MAX)
