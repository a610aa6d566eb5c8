"""Shapes that hints are asked by, and the hint for events about the waiting pod itself (`EventHint.shape`)."""

from __future__ import annotations

from collections.abc import Hashable

from scheduler.core.podinfo import PodInfo
from scheduler.framework.hints import Hint


def everyone(_pod: PodInfo) -> Hashable:
    """The hint does not look at the waiting pod at all: one question for all of them."""
    return None


def by_tolerations(pod: PodInfo) -> Hashable:
    """The hint looks at the tolerations."""
    return pod.pod.spec.tolerations


def by_placement(pod: PodInfo) -> Hashable:
    """The hint looks at nodeSelector and affinity."""
    return pod.placement_shape


def by_requests(pod: PodInfo) -> Hashable:
    """The hint looks at the requested amounts."""
    return tuple(sorted(pod.requests.items()))


def by_host_ports(pod: PodInfo) -> Hashable:
    """The hint looks at the wanted host ports."""
    return pod.host_ports


def queue_itself(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    """Queue if the pod that changed is the waiting one. Has no shape: it depends on who the pod is."""
    return Hint.QUEUE if new is not None and new.uid == pod.uid else Hint.SKIP
