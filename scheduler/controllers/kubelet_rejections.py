"""Handle pods that a kubelet rejected after we had bound them (docs/spec/core.md §2.6).

Two schedulers may fill a node together, and the kubelet then fails the later pod permanently. Such pods are counted
and logged, and their node is avoided for half a minute while another node takes the pod. The pod's controller creates
a new one. The memory is bounded: bindings of the last minute, at most some thousands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from scheduler.api.core_v1 import FailedPod
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


class _Sent(NamedTuple):
    node_name: str
    profile: str
    at: float


@dataclass(eq=False, repr=False)
class KubeletRejections:
    """Remember our bindings, and find them among the failed pods in the watch."""

    cluster: Cluster
    clock: Clock
    metrics: Metrics
    most: int = 20_000
    _sent: dict[str, _Sent] = field(default_factory=dict, init=False)
    """By uid, oldest first."""
    _held_back: dict[str, float] = field(default_factory=dict, init=False)
    """Node name → end of the avoidance, the earliest first."""

    def sent(self, info: PodInfo) -> None:
        """Record a Binding before it is sent. Constant cost."""
        now = self.clock.now()
        self._sent.pop(info.uid, None)
        self._sent[info.uid] = _Sent(info.node_name, info.pod.spec.scheduler_name, now)
        while len(self._sent) > self.most or now - next(iter(self._sent.values())).at > REMEMBERED_S:
            del self._sent[next(iter(self._sent))]

    def failed(self, deltas: Iterable[Delta[FailedPod]]) -> None:
        """Take one batch of failed pods. Pods that are no recent bindings cost a look-up and are ignored."""
        for delta in deltas:
            if isinstance(delta.new, FailedPod):
                sent = self._sent.pop(delta.new.metadata.uid, None)
                if sent is not None:
                    self._failed(delta.new, sent)

    def held_back(self) -> NodeSet:
        """Return the existing nodes that rejected a pod of ours within the last half minute."""
        if not self._held_back:
            return EMPTY
        now = self.clock.now()
        for name in [name for name, until in self._held_back.items() if until <= now]:
            del self._held_back[name]
        nodes = EMPTY
        for name in self._held_back:
            slot = self.cluster.nodes.present_slot(name)
            nodes |= EMPTY if slot is None else 1 << slot
        return nodes

    def _failed(self, pod: FailedPod, sent: _Sent) -> None:
        reason, now = pod.status.reason, self.clock.now()
        label = _label(reason)
        if not label or pod.spec.node_name != sent.node_name or now - sent.at > REMEMBERED_S:
            return
        self._held_back.pop(sent.node_name, None)
        self._held_back[sent.node_name] = now + HELD_BACK_S
        self.metrics.admission_rejection(label, sent.profile)
        _log.warning(
            "pod refused by its kubelet",
            pod=pod.key,
            node=sent.node_name,
            reason=reason,
            after_s=round(now - sent.at, 3),
        )


def _label(reason: str) -> str:
    """Return a label from a bounded set; "" for a pod that failed for another reason."""
    if reason in _REASONS:
        return reason
    return _OUT_OF_EXTENDED if reason.startswith(_OUT_OF) else ""
