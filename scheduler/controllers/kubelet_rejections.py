"""Handle pods that a kubelet rejected after we had bound them (docs/spec/core.md §2.6).

Two schedulers may fill a node together, and the kubelet then fails the later pod permanently. Such pods are counted
and logged, and their node is avoided for half a minute while another node takes the pod. The pod's controller creates
a new one. The memory is bounded: bindings of the last minute, at most some thousands.

The author of a pod can cause most rejections at will, so a rejection must not steer the pods of other users. A node
is avoided by pods of the same controller; by all pods of the namespace if the pod has no controller, or if the reason
concerns the node and not the pod; and by all pods only after rejections of the latter kind in two namespaces. Pods that
another client bound do not count, so `spec.nodeName` in a pod has no effect here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

import structlog

from scheduler.api.core_v1 import FailedPod, controller_of
from scheduler.api.decode import Delta
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.metrics.metrics import Metrics

_log = structlog.get_logger(__name__)

REMEMBERED_S: Final = 60.0
"""A pod that fails later than this after its binding had been admitted."""
HELD_BACK_S: Final = 30.0

_REASONS: Final = frozenset(
    {
        "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods",
        "NodeAffinity", "NodeName", "NodePorts", "TaintToleration",
        "AppArmor", "EmptyPodSharedPoolError", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeShutdown",
        "PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch", "SMTAlignmentError", "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden", "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType",
        "UnknownReason", "VolumeAttachmentLimitExceeded",
    }
)  # fmt: skip
"""Reasons of a kubelet 1.36 that does not admit a pod. Not `Evicted`, which running pods get as well."""
_OUT_OF: Final = "OutOf"
_OUT_OF_EXTENDED: Final = "OutOfExtendedResources"
"""One label for all extended resources, as in the kubelet's metric."""
_OF_THE_NODE: Final = frozenset({"InvalidNodeInfo", "NodeShutdown"})
"""Reasons besides `OutOf…` that concern the node, whatever the pod is like."""

Scope: TypeAlias = tuple[str, ...]
"""The pods that avoid a node: (namespace, uid of their controller), (namespace,), or () for all pods."""
_ALL: Final[Scope] = ()

T = TypeVar("T")


class _Sent(NamedTuple):
    node_name: str
    profile: str
    scopes: tuple[Scope, ...]
    at: float


@dataclass(eq=False, repr=False)
class KubeletRejections:
    """Remember our bindings, and find them among the failed pods in the watch."""

    cluster: Cluster
    clock: Clock
    metrics: Metrics
    sent_max: int = 20_000
    _sent: dict[str, _Sent] = field(default_factory=dict, init=False)
    """By uid, oldest first."""
    _held_back: dict[Scope, dict[str, float]] = field(default_factory=dict, init=False)
    """Scope → node name → end of the avoidance. What ends first comes first."""
    _namespaces: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    """Node name → namespace of a pod whose rejection concerns the node → end of the avoidance."""

    def sent(self, info: PodInfo) -> None:
        """Record a Binding before it is sent. Constant cost."""
        now = self.clock.now()
        # The dict is ordered by time only if a repeated Binding moves its pod to the end. The loop below relies on
        # that order: it stops at the first entry that is young enough.
        self._sent.pop(info.uid, None)
        self._sent[info.uid] = _Sent(info.node_name, info.pod.spec.scheduler_name, _scopes(info), now)
        while len(self._sent) > self.sent_max or now - next(iter(self._sent.values())).at > REMEMBERED_S:
            del self._sent[next(iter(self._sent))]

    def failed(self, deltas: Iterable[Delta[FailedPod]]) -> None:
        """Take one batch of failed pods. Pods that are no recent bindings cost a look-up and are ignored."""
        for delta in deltas:
            # Only pods that Kubestow bound count. A tenant can create any number of failed pods with `spec.nodeName`,
            # and none of them may close a node.
            if isinstance(delta.new, FailedPod):
                sent = self._sent.pop(delta.new.metadata.uid, None)
                if sent is not None:
                    self._failed(delta.new, sent)

    def held_back(self, pod: PodInfo) -> NodeSet:
        """Return the existing nodes that the pod avoids. Costs a look-up per node that its scopes avoid."""
        nodes = EMPTY
        if not self._held_back:
            return nodes
        now = self.clock.now()
        for scope in _scopes(pod):
            for name, until in self._held_back.get(scope, {}).items():
                slot = self.cluster.nodes.present_slot(name) if now < until else None
                nodes |= EMPTY if slot is None else 1 << slot
        return nodes

    def _failed(self, pod: FailedPod, sent: _Sent) -> None:
        reason, now = pod.status.reason, self.clock.now()
        label = _label(reason)
        # A pod that was admitted and failed later says nothing about the node's free resources. Its reason is not in
        # the list, or it comes after more than a minute.
        if not label or pod.spec.node_name != sent.node_name or now - sent.at > REMEMBERED_S:
            return
        namespace, node_name = pod.metadata.namespace, sent.node_name
        # A node that is full or shutting down rejects every pod. Nevertheless one namespace could provoke this on
        # purpose, for instance with pods that another scheduler binds. So the node is closed for this namespace
        # first, and for all pods once a second namespace had the same experience.
        if reason in _OF_THE_NODE or reason.startswith(_OUT_OF):
            _note(self._held_back, (namespace,), node_name, now)
            _note(self._namespaces, node_name, namespace, now)
            if len(self._namespaces[node_name]) > 1:
                _note(self._held_back, _ALL, node_name, now)
        # Any other reason lies in the pod's own spec, which its author writes. The narrowest scope avoids the node:
        # the controller would create the same pod again, and it would be rejected there again.
        else:
            _note(self._held_back, sent.scopes[-1], node_name, now)
        self.metrics.admission_rejection(label, sent.profile)
        _log.warning(
            "pod refused by its kubelet",
            pod=pod.key,
            node=sent.node_name,
            reason=reason,
            after_s=round(now - sent.at, 3),
        )


def _scopes(info: PodInfo) -> tuple[Scope, ...]:
    """Return the scopes of the pod, the widest first."""
    controller, namespace = controller_of(info.pod), info.pod.metadata.namespace
    return (_ALL, (namespace,)) if controller is None else (_ALL, (namespace,), (namespace, controller.uid))


def _note(table: dict[T, dict[str, float]], key: T, name: str, now: float) -> None:
    """Enter the name under the key for `HELD_BACK_S`, and delete entries that have ended: each costs one step."""
    # Both levels are ordered by the end of their entries, because each new entry is removed and added at the end. So
    # expired entries stand at the front, and one step per deletion keeps the table small without a timer.
    names = table.pop(key, {})
    names.pop(name, None)
    names[name] = now + HELD_BACK_S
    table[key] = names
    while next(iter(names.values())) <= now:
        del names[next(iter(names))]
    while next(reversed(next(iter(table.values())).values())) <= now:
        del table[next(iter(table))]


def _label(reason: str) -> str:
    """Return a label from a bounded set; "" for a pod that failed for another reason."""
    if reason in _REASONS:
        return reason
    return _OUT_OF_EXTENDED if reason.startswith(_OUT_OF) else ""
