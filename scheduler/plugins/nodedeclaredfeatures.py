"""NodeDeclaredFeatures: a node must declare the kubelet features that a pod needs (docs/spec/core.md §5.11).

The plugin has an effect on clusters whose API server keeps `status.declaredFeatures` and admits such pods, that is from 1.36
with default gates. There RestartAllContainersOnContainerExits is on. UserNamespacesHostNetworkSupport and
VolumeBindMountOptions are alpha, and PodCertificateMLDSA is only on with the minimum compatibility version 1.38.
Without these gates the server rejects the pods that need them, or removes the fields. The plugin reads no gate, as in
upstream. On older clusters no such pod exists and the plugin is skipped.

SecurityProfileOCI of 1.38 is alpha and is not built: a pod with such a profile may get a node that does not declare it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from scheduler.api.core_v1 import Node, PodSpec
from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import BIND_MOUNT_OPTIONS, MLDSA_CERTIFICATES
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.memo import all_alike
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip


def _restarts_all_containers(spec: PodSpec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


def _maps_users_on_host_network(spec: PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


def _has_bind_mount_options(spec: PodSpec) -> bool:
    return any(
        mount.bind_mount_options
        for container in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
        for mount in container.volume_mounts
    )


def _has_mldsa_certificate(spec: PodSpec) -> bool:
    return any(
        source.pod_certificate is not None and source.pod_certificate.key_type in _MLDSA
        for volume in spec.volumes
        if volume.projected is not None
        for source in volume.projected.sources
    )


_MLDSA: Final = frozenset({"MLDSA44", "MLDSA65", "MLDSA87"})
_FEATURES: Final[Mapping[str, Callable[[PodSpec], bool]]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _maps_users_on_host_network,
    "VolumeBindMountOptions": _has_bind_mount_options,
    "PodCertificateMLDSA": _has_mldsa_certificate,
}
"""Kubelet feature → whether a pod needs it.

Kubelets declare more features, which matter only for changes of running pods. No feature has a last version.
"""
_SINCE: Final = {"VolumeBindMountOptions": BIND_MOUNT_OPTIONS, "PodCertificateMLDSA": MLDSA_CERTIFICATES}
"""Kubelet feature → the change with which the plugin knows it."""


class NodeDeclaredFeatures:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/nodedeclaredfeatures/nodedeclaredfeatures.go NodeDeclaredFeatures
    """

    name: Final = "NodeDeclaredFeatures"
    depends_on_pods: Final = False
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) didn't match Pod's required features",))

    def __init__(self, args: object, handle: Handle) -> None:
        self._index = handle.cluster.nodes.features
        self._features = dict(_FEATURES)
        for name, change in _SINCE.items():
            if change not in handle.feature_gates:
                del self._features[name]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip pods that need no feature."""
        return None if self._needed(pod) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes that lack a feature that the pod needs."""
        refused = EMPTY
        for name in self._needed(pod):
            refused |= nodes & ~self._index.having(name)
        return {self._rejection: refused} if refused else {}

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a new node, of changed features of a node, and of changed needs of the pod."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE)
        itself = ClusterEvent(Resource.TARGET_POD, UPDATE)
        return (EventHint(node, _after_node, all_alike), EventHint(itself, self._after_update))

    def _needed(self, pod: PodInfo) -> list[str]:
        return [name for name, is_needed in self._features.items() if is_needed(pod.pod.spec)]

    def _after_update(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        if new is None or new.uid != pod.uid:
            return Hint.SKIP
        return Hint.QUEUE if old is None or self._needed(old) != self._needed(new) else Hint.SKIP


def _after_node(_pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    if new is None or (old is not None and old.status.declared_features == new.status.declared_features):
        return Hint.SKIP
    return Hint.QUEUE
