"""Services and controllers, which select pods, and labels of namespaces.

Services and controllers give the selector of default spread constraints (docs/spec/core.md §5.8). Services are indexed
by one label that they require, so that only possible ones of a pod are checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from scheduler.api.apps_and_policy import ReplicaSet, ReplicationController, Service, StatefulSet
from scheduler.api.core_v1 import Namespace, Pod, controller_of
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.disruptions import anchors_of
from scheduler.cache.pods import SelectorIndex

Controller: TypeAlias = ReplicationController | ReplicaSet | StatefulSet

_KINDS: Final[Mapping[tuple[str, str], type[Controller]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


class Workloads:
    """Services and controllers of all namespaces.

    Upstream: pkg/scheduler/framework/plugins/helper/spread.go DefaultSelector
    """

    def __init__(self) -> None:
        self.generation = 0
        """A number that changes when the selector of a Service or controller changes."""
        self.services: dict[str, Mapping[str, str]] = {}
        self.index: SelectorIndex[str] = SelectorIndex()
        self.controllers: dict[tuple[type[Controller], str], LabelSelector | None] = {}

    def default_selector(self, pod: Pod) -> LabelSelector | None:
        """Return the combined selectors of the pod's Services and owner; None if there are none.

        For one label, a ReplicationController overrides Services; other owners add their selectors.
        """
        labels: dict[str, str] = {}
        metadata = pod.metadata
        for key in sorted(self.index.under(metadata.namespace, metadata.labels)):
            selector = self.services[key]
            if all(metadata.labels.get(name) == value for name, value in selector.items()):
                labels |= selector
        expressions: tuple[LabelSelectorRequirement, ...] = ()
        owner = selecting_owner(pod)
        owned = self.controllers.get(owner) if owner is not None else None
        if owner is not None and owner[0] is ReplicationController and owned is not None:
            labels |= owned.match_labels
        elif owned is not None:
            clashing = tuple(
                LabelSelectorRequirement(name, "In", (value,))
                for name, value in owned.match_labels.items()
                if labels.get(name, value) != value
            )
            labels = {**owned.match_labels, **labels}
            expressions = (*clashing, *owned.match_expressions)
        return LabelSelector(labels, expressions) if labels or expressions else None

    def set_service(self, key: str, service: Service | None) -> None:
        """Add, replace or remove a Service.

        A nil selector selects no pods; an empty one selects every pod and requires nothing.
        """
        selector = service.spec.selector if service is not None else None
        previous = self.services.get(key)
        if previous == selector:
            return
        if previous is not None:
            del self.services[key]
            self.index.remove(key, anchors_of(key, LabelSelector(dict(previous))))
        if selector is not None:
            self.services[key] = selector
            self.index.add(key, anchors_of(key, LabelSelector(dict(selector))))
        self.reindexed(key)

    def reindexed(self, key: str) -> None:
        """Invalidate what readers store, because the entry of this Service in the index changed."""
        self.generation += 1

    def set_controller(self, kind: type[Controller], key: str, controller: Controller | None) -> None:
        """Add, replace or remove a controller."""
        at = (kind, key)
        if controller is None:
            if at in self.controllers:
                del self.controllers[at]
                self.generation += 1
            return
        selector = controller.spec.selector
        wanted = LabelSelector(selector) if isinstance(selector, dict) else selector
        if at not in self.controllers or self.controllers[at] != wanted:
            self.controllers[at] = wanted
            self.generation += 1


def selecting_owner(pod: Pod) -> tuple[type[Controller], str] | None:
    """Return kind and key of the controller whose selector counts for the pod, known or not."""
    owner = controller_of(pod)
    kind = _KINDS.get((owner.api_version, owner.kind)) if owner is not None else None
    return (kind, f"{pod.metadata.namespace}/{owner.name}") if owner is not None and kind is not None else None


_NONE: Mapping[str, str] = {}


class Namespaces:
    """Namespace → labels. An unknown namespace has none, as in upstream."""

    def __init__(self) -> None:
        self.generation = 0
        """A number that changes when a namespace is added or removed, or its labels change."""
        self.by_name: dict[str, Mapping[str, str]] = {}

    def labels(self, name: str) -> Mapping[str, str]:
        """Return the labels; empty for an unknown namespace."""
        return self.by_name.get(name, _NONE)

    def matching(self, selector: LabelSelector) -> frozenset[str]:
        """Return the names of the selected namespaces. O(namespaces): cache the result per generation."""
        return frozenset(name for name, labels in self.by_name.items() if selector.matches(labels))

    def set(self, namespace: Namespace) -> None:
        """Add or replace a namespace."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        if self.by_name.get(name) != labels:
            self.by_name[name] = labels
            self.generation += 1

    def remove(self, name: str) -> None:
        """Remove a namespace that is gone or unreadable."""
        if self.by_name.pop(name, None) is not None:
            self.generation += 1
