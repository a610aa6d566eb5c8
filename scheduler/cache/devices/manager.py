"""All device data for decisions: claims, classes, slices, taint rules, and subscriptions to their changes.

The plugin reads devices only here. So a simulator or an autoscaler can fill its own `Cluster`, run PreFilter, Filter
and Reserve, and read `claims.pending`. The plugin keeps no state between attempts and its caches are keyed by
content, so any number of clusters can take turns.

The data is changed by `scheduler.eventhandlers.devices` from the watches, and by DynamicResources, which records
pending allocations and assumes the responses. Rules: docs/spec/dra.md §1.

Of two device classes that name one extended resource, the newer wins, then the one whose name comes first
(docs/spec/dra.md §3.12). The result is computed from the existing classes, so it does not depend on the order of
events.

Devices serve a pod's request only where the node itself does not offer the resource. Three plugins must agree on
this: the plugin that checks node resources skips such a request, and DynamicResources allocates devices for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from scheduler.api.decode import Broken
from scheduler.api.quantity import is_extended
from scheduler.api.resource_v1 import (
    IMPLICIT_EXTENDED_RESOURCE,
    DeviceClass,
    DeviceTaintRule,
    ResourceSlice,
)
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimTracker
from scheduler.cache.devices.device_holds import DeviceHolds
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import DeviceKind, TaintRules, may_mean
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.changes import Watchers
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import (
    ATTRIBUTES_WHEN_READ,
    CONSUMABLE,
    DEVICE_GATES_ON,
    EXTENDED_RESOURCE,
    LISTS_IN_SELECTORS,
    TAINT_RULES,
)

if TYPE_CHECKING:
    from scheduler.cache.devices.selectors import DeviceSelectors


class DeviceClasses:
    def __init__(self) -> None:
        self.generation = 0
        """A number that grows with every change."""
        self.by_name: dict[str, DeviceClass] = {}
        self.by_resource: dict[str, dict[str, None]] = {}

    def __iter__(self) -> Iterator[DeviceClass]:
        return iter(self.by_name.values())

    def get(self, name: str) -> DeviceClass | None:
        return self.by_name.get(name)

    def put(self, name: str, device_class: DeviceClass | None) -> None:
        """Add, update or remove a class."""
        old = self.by_name.pop(name, None)
        if old is not None and old.spec.extended_resource_name:
            names = self.by_resource[old.spec.extended_resource_name]
            del names[name]
            if not names:
                del self.by_resource[old.spec.extended_resource_name]
        if device_class is not None:
            self.by_name[name] = device_class
            if device_class.spec.extended_resource_name:
                self.by_resource.setdefault(device_class.spec.extended_resource_name, {})[name] = None
        self.generation += 1

    def for_resource(self, resource: str) -> DeviceClass | None:
        """Return the class that serves an extended resource; None if there is none."""
        names = self.by_resource.get(resource)
        if names:
            return self.by_name[max(sorted(names), key=self._created)]
        if resource.startswith(IMPLICIT_EXTENDED_RESOURCE):
            return self.by_name.get(resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE))
        return None

    def _created(self, name: str) -> str:
        return self.by_name[name].metadata.creation_timestamp or ""


NONE_SERVED: Final[frozenset[str]] = frozenset()


def may_be_devices(name: str) -> bool:
    """Return whether a class may serve a resource of this name."""
    return is_extended(name) or name.startswith(IMPLICIT_EXTENDED_RESOURCE)


class ServedResources:
    """The extended resources that the current classes serve. `gates` are the enabled feature gates of kube-scheduler."""

    def __init__(self, classes: DeviceClasses, gates: frozenset[str]) -> None:
        self.is_on = EXTENDED_RESOURCE in gates
        self._classes = classes

    def among(self, requests: Mapping[str, int]) -> frozenset[str]:
        """Return the requested resources that classes serve. Most pods have none, and cost only a check of the names."""
        if not self.is_on:
            return NONE_SERVED
        found = [
            name
            for name, amount in requests.items()
            if "/" in name and amount > 0 and may_be_devices(name) and self._classes.for_resource(name) is not None
        ]
        return frozenset(found) if found else NONE_SERVED


class SharedDRAManager:
    """The device data of one cluster. `gates` are the enabled feature gates of kube-scheduler.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go DefaultDRAManager
    """

    def __init__(self, nodes: Nodes, gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        self.use = AllocationState(shares_count=CONSUMABLE in gates)
        self.claims = ClaimTracker(self.use)
        self.classes = DeviceClasses()
        self.on_nodes = DeviceNodes(nodes, self.use, gates)
        self.device_holds = DeviceHolds(nodes, self.claims, self.use, self.on_nodes, lambda: self.classes.generation)
        self.broken: dict[tuple[str, str], Broken] = {}
        """Kind and key → objects that could not be decoded. They count as absent, but can be named."""
        self._gates = gates
        self.applies_rules = TAINT_RULES in gates
        self.rules = TaintRules()
        self.published: dict[str, ResourceSlice] = {}
        self._effective: dict[str, ResourceSlice] = {}
        self._watchers = Watchers()
        self.subscribe = self._watchers.subscribe
        """Calls back at each change of one of these claims (`namespace/name`); returns the function that ends it."""
        self.on_news: Callable[[str], None] = lambda _: None
        """Called at each change with the claim's key, before the subscribers."""

    # -- reading -------------------------------------------------------------------------------------------------------

    @cached_property
    def selectors(self) -> DeviceSelectors:
        """The CEL selectors on devices. The language is loaded with the first class, because most clusters have none."""
        from scheduler.cache.devices.selectors import DeviceSelectors

        return DeviceSelectors(
            list_attributes=LISTS_IN_SELECTORS in self._gates, when_read=ATTRIBUTES_WHEN_READ in self._gates
        )

    def holds(self, expression: str, kind: DeviceKind) -> bool | str:
        """Return whether the expression selects devices of this kind, or an error, as `DeviceSelectors.holds` does."""
        return self.selectors.holds(expression, kind)

    def holding(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Return the result of `holds` by work that yields to the event loop, as `DeviceSelectors.holding` does."""
        return self.selectors.holding(expression, kind)

    @property
    def compiled_bytes(self) -> int:
        """The memory of the compiled expressions, in bytes."""
        return self.selectors.compiled.size_bytes if "selectors" in self.__dict__ else 0

    def slices(self) -> Iterable[ResourceSlice]:
        """Return the effective slices: with the taints of rules."""
        return self._effective.values()

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_slice(self, each: ResourceSlice) -> ResourceSlice:
        """Add or update a slice; return the effective slice."""
        self.published[each.key] = each
        effective = self.rules.lay(each)
        self._effective[each.key] = effective
        self.on_nodes.set_slice(effective)
        return effective

    def remove_slice(self, name: str) -> ResourceSlice | None:
        """Remove a slice; return the effective slice that was removed."""
        self.published.pop(name, None)
        self.on_nodes.remove_slice(name)
        return self._effective.pop(name, None)

    def published_now(self, name: str) -> ResourceSlice | None:
        """Return the effective slice as it follows from the published one and the rules."""
        published = self.published.get(name)
        return self.rules.lay(published) if published is not None else None

    def slice(self, name: str) -> ResourceSlice | None:
        """Return the effective slice of this name."""
        return self._effective.get(name)

    def put_class(self, name: str, device_class: DeviceClass | None) -> None:
        """Add, update or remove a class. Compilation of its selectors begins, and the first class loads the language."""
        self.classes.put(name, device_class)
        if device_class is not None:
            for each in device_class.spec.selectors:
                if each.cel is not None:
                    self.selectors.prepare(each.cel.expression)
            _ = self.selectors

    def put_rule(
        self, name: str, old: DeviceTaintRule | None, new: DeviceTaintRule | None
    ) -> list[tuple[ResourceSlice, ResourceSlice]]:
        """Add, update or remove a taint rule; return the slices whose effective state changed, before and after."""
        if not self.applies_rules:
            return []
        self.rules.put(name, new)
        if old is not None and new is not None and old.spec == new.spec:
            return []  # only its status changed, which its controller writes often
        rules = [rule for rule in (old, new) if rule is not None]
        changed = []
        for each in self.published.values():
            if any(may_mean(rule, each) for rule in rules):
                before, now = self._effective[each.key], self.rules.lay(each)
                if before.spec.devices != now.spec.devices:
                    self._effective[each.key] = now
                    self.on_nodes.set_slice(now)
                    changed.append((before, now))
        return changed

    def notify(self, key: str) -> None:
        """Call the subscribers of a claim, or of the claims of the pod with this uid.

        The caches are already up to date.
        """
        self.on_news(key)
        self._watchers.notify(key)
