"""The texts with which each plugin refuses, as kube-scheduler v1.36.3 writes them (docs/spec/core.md §5.1)."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.parity.recordings import Recording
from tests.parity.verdict import GATED, Verdict, without_post_filter

REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("no nodes available to schedule pods", "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    "NodeUnschedulable": ("node(s) were unschedulable",),
    "TaintToleration": ("node(s) had untolerated taint(s)",),
    "NodeAffinity": (
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match scheduler-enforced node affinity",
        "pod affinity terms conflict",
    ),
    "NodePorts": ("node(s) didn't have free ports for the requested pod ports",),
    "NodeResourcesFit": (
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient example.com/gpu",
        "Insufficient hugepages-2Mi",
    ),
    "PodTopologySpread": (
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
    "InterPodAffinity": (
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    "NodeDeclaredFeatures": ("node(s) didn't match Pod's required features",),
}
"""Plugin → texts; the framework's own under "". SchedulingGates refuses by leaving the API server's condition alone."""

UNASKED: Final[Mapping[str, str]] = {
    "NodeName": "a pod with spec.nodeName is never in a scheduler's queue",
    "UnsupportedFeatures": "refuses what kube-scheduler does not refuse",
}
"""Plugins whose part no scenario can show, and why."""

_HEAD: Final = re.compile(r"^0/\d+ nodes are available: (.*)\.$", re.DOTALL)


def texts(message: str) -> list[str]:
    """The reasons in a message, without their counts. PreFilter's stands there without a count."""
    head = _HEAD.match(without_post_filter(message))
    if head is None:
        return [message]
    return [re.sub(r"^\d+ ", "", reason) for reason in re.split(r", (?=\d+ )", head[1])]


def refusers(verdict: Verdict) -> set[str]:
    """The plugins that refused nodes, or the pod."""
    if verdict.reason == GATED:
        return {"SchedulingGates"}
    told = set(texts(verdict.message)) if verdict.message else set()
    return {plugin for plugin, known in REASONS.items() if told & set(known)}


def verdicts(recorded: Mapping[str, Recording]) -> Iterator[Verdict]:
    """All of them."""
    for recording in recorded.values():
        yield from recording.verdicts.values()
