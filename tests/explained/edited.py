"""Pods with the edits of a fix, by the rules that an API server has for pods."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.explain.answer import FixAnswer
from scheduler.explain.edits import Edit, merged, patched
from simulator.simulate.input.rules.pod_validation import pod_spec
from tests.explained.draft import Json, Planted

_CORDON = "node.kubernetes.io/unschedulable"


def edited(pod: Json, edits: Iterable[Edit]) -> Json:
    """Return the pod with its own edits."""
    for edit in merged(edits):
        if (edit.verb, edit.kind) == ("patch", "Pod"):
            pod = patched(pod, edit.patch)
    return pod


def refusals(pod: Json) -> list[str]:
    """Return why a server refuses the pod; none if it accepts it."""
    return [f"{each.path}: {each.text}" for each in pod_spec(pod["spec"], "spec")]


def is_of_component(key: str) -> bool:
    """Return whether a component sets the label or taint again. The taint of a cordon may be tolerated."""
    return ("/" in key and key != _CORDON) or key == "ToBeDeletedByClusterAutoscaler"


def set_again(planted: Planted, edits: Iterable[Edit]) -> list[str]:
    """Return the taints and labels of components that a fix tolerates or changes: components set them again, or mean them."""
    edits, pod = list(edits), planted.pod
    before, after = (
        {each.get("key", "") for each in it["spec"].get("tolerations", ())} for it in (pod, edited(pod, edits))
    )
    keys = {key for key in after - before if is_of_component(key)}
    for node in planted.objects:
        for edit in edits:
            named = (node["kind"], node["metadata"]["name"])  # a CSINode has the name of its Node
            if (edit.verb, edit.kind, edit.name) == ("patch", *named) and edit.kind == "Node":
                keys |= _owned(node) ^ _owned(patched(node, edit.patch))
    return sorted(keys)


def _owned(node: Json) -> set[str]:
    taints = ((each["key"], each["effect"]) for each in node["spec"].get("taints", ()))
    labels = node["metadata"]["labels"].items()
    return {f"{key}: {value}" for key, value in (*taints, *labels) if is_of_component(key)}


def refused(pod: Json, fixes: Iterable[FixAnswer]) -> list[str]:
    """Return why a server refuses the pod with one of these fixes: by all its edits, or by those of each change."""
    out = []
    for fix in fixes:
        out += refusals(edited(pod, fix.edits))
        out += refusals(edited(pod, [edit for change in fix.changes for edit in change.edits]))
    return out
