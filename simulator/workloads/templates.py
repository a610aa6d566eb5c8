"""Whether two pod templates say the same, although one was written by a user and the other came from an API server.

An API server fills in defaults, so templates are compared with the defaults that servers give to pod templates.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.quantity import parse
from scheduler.manifests.defaults import with_template_defaults
from simulator.workloads.specs import PodTemplate

_HASH: Final = "pod-template-hash"
_AMOUNTS: Final = ("requests", "limits")


def is_same_template(one: PodTemplate, other: PodTemplate) -> bool:
    """Compare two templates; `pod-template-hash` and defaults make no difference.

    Upstream: pkg/controller/deployment/util/deployment_util.go EqualIgnoreHash
    """
    return _normal(one) == _normal(other)


def _normal(template: PodTemplate) -> dict[str, Any]:
    labels = {key: value for key, value in (template.metadata.get("labels") or {}).items() if key != _HASH}
    metadata = {"labels": labels, "annotations": template.metadata.get("annotations")}
    normal: dict[str, Any] = _without_empty({"metadata": metadata, "spec": _pod(template.spec)})
    return normal


def _pod(spec: dict[str, Any]) -> dict[str, Any]:
    filled = with_template_defaults(spec)
    filled.pop("serviceAccount", None)  # the deprecated copy of serviceAccountName
    if spec.get("serviceAccount"):
        filled["serviceAccountName"] = spec["serviceAccount"]
    for field in ("containers", "initContainers"):
        filled[field] = [_container(each) for each in filled.get(field) or ()]
    filled["overhead"] = _amounts(spec.get("overhead") or {})
    return filled


def _container(container: dict[str, Any]) -> dict[str, Any]:
    resources = container["resources"]
    return container | {"resources": resources | {name: _amounts(resources.get(name) or {}) for name in _AMOUNTS}}


def _amounts(amounts: dict[str, Any]) -> dict[str, Any]:
    return {name: parse(amount).nano for name, amount in amounts.items()}


def _without_empty(value: Any) -> Any:
    """Empty maps, lists and texts are nothing to an API server; an emptyDir and its like stay by their key."""
    if isinstance(value, dict):
        kept = {key: _without_empty(part) for key, part in value.items() if part is not None}
        return {key: part for key, part in kept.items() if part not in ("", [], {}) or key in {"emptyDir", "hostPath"}}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value
