"""Cluster events: the kinds of changes that can make a waiting pod schedulable (docs/spec/core.md §1.10, §4.4)."""

from __future__ import annotations

import enum
import functools
import operator
from typing import Final

import msgspec


class Action(enum.IntFlag):
    """The kind of a change. The bit order is part of the registration rule: see `ClusterEvent.wants`.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go ActionType
    """

    ADD = 1
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_POD_LABEL = 1 << 8
    UPDATE_POD_SCALE_DOWN = 1 << 9
    UPDATE_POD_SCALE_UP = 1 << 10
    UPDATE_POD_TOLERATION = 1 << 11
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 12
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 13
    UPDATE_OTHER = 1 << 14
    """A change that no specific bit names. A plugin gets it only if it registered all of UPDATE."""


ALL: Final = functools.reduce(operator.or_, Action)
UPDATE: Final = ALL & ~(Action.ADD | Action.DELETE)


class Resource(enum.StrEnum):
    """The kind of object that changed; `value` is the text in metrics, for pods from 1.37 on (`label_in_1_36`).

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go EventResource
    """

    POD = "Pod"
    """Only in registrations: every pod event."""
    ASSIGNED_POD = "AssignedPod"
    """A pod that has a node."""
    TARGET_POD = "TargetPod"
    """The waiting pod itself."""
    UNSCHEDULED_POD = "UnscheduledPod"
    """Another pod without a node. It wakes only pods of its group, and only when it is added."""
    NODE = "Node"
    NAMESPACE = "Namespace"
    """Not upstream's: there, pods with a namespaceSelector wait for a different event (docs/spec/core.md §10.2)."""
    SERVICE = "Service"
    """Not upstream's: with hard default constraints, services decide which pods are counted together."""
    CONTROLLER = "Controller"
    """Not upstream's: a ReplicationController, ReplicaSet or StatefulSet, for the same reason."""
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    """Of either API group (scheduler/api/pod_group.py)."""
    WILDCARD = "*"


_WORDS: Final = {action: str(action.name).title().replace("_", "") for action in Action} | {
    Action.UPDATE_OTHER: "Update",
    UPDATE: "Update",
    ALL: "All",
}
"""The text of an action in metrics; other combinations are updates."""

_PODS: Final = frozenset({Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.UNSCHEDULED_POD})


class ClusterEvent(msgspec.Struct, frozen=True):
    """An event, or, in a registration, the events that a plugin waits for.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go ClusterEvent
    """

    resource: Resource
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """The text in metrics: `NodeAdd`, `AssignedPodDelete`, or the custom label."""
        return self.custom_label or f"{self.resource.value}{_WORDS.get(self.action, 'Update')}"

    @property
    def is_wildcard(self) -> bool:
        """Whether the event is a flush or a forced activation, for which no hint is called."""
        return self.resource is Resource.WILDCARD

    def wants(self, event: ClusterEvent) -> bool:
        """Return whether this registration covers the incoming event.

        The resource must match, the action bits must intersect, and every incoming bit must be registered. So a
        generic Update does not trigger a plugin that registered one specific bit.
        """
        if self.resource is Resource.WILDCARD and self.action == ALL:
            return True
        same = self.resource is event.resource or (self.resource is Resource.POD and event.resource in _PODS)
        return same and bool(self.action & event.action) and event.action <= self.action


ANYTHING: Final = ClusterEvent(Resource.WILDCARD, ALL)
ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULED_POD_ADD: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
NODE_ADD: Final = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE: Final = ClusterEvent(Resource.NODE, Action.DELETE)
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.WILDCARD, ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(Resource.WILDCARD, ALL, "ForceActivate")
PROFILE_CHANGED: Final = ClusterEvent(Resource.WILDCARD, ALL, "ProfileChanged")
"""Not upstream's: the plugins of a profile were replaced, so registrations of the old plugins are void."""


@functools.lru_cache(maxsize=1024)
def label_in_1_36(label: str) -> str:
    """Return the label that kube-scheduler 1.36 has for an event: one kind of pods without a node, and no scale-up."""
    for pods in (Resource.TARGET_POD, Resource.UNSCHEDULED_POD):
        if label.startswith(pods):
            label = f"UnschedulablePod{label.removeprefix(pods)}"
    return label.replace("PodUpdatePodScaleUp", "PodUpdate")
