"""Everything that devices are decided by: claims, classes, slices, taint rules, and subscriptions to their changes.

Device classes, and which of them stands for an extended resource (docs/spec/dra.md §3.12).

Of two classes that name one resource the newer wins, then the one whose name comes first. It is worked out from the
classes there are, so the order of events leaves no trace.

Which of a pod's requests a device class serves where the node itself has nothing of them (docs/spec/dra.md §3.12).

Three plugins must agree on that: whoever checks room on nodes leaves such a request to whoever allocates devices.

Everything that devices are decided by: claims, classes, slices, taint rules, and the subscribers to their changes.

The plugin reads devices only here, so a simulator or an autoscaler fills a `Cluster` of its own, runs PreFilter, Filter
and Reserve, and reads `claims.pending`. The plugin keeps no state between attempts, and its caches are keyed by content, so any number of clusters can take turns.

Changed by `scheduler.devices` as watches tell, and by DynamicResources, which signals what it is about to write and
assumes what was answered. Rules: docs/spec/dra.md §1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from scheduler.api.decode import Broken
from scheduler.api.quantity import is_extended
from scheduler.api.resource_v1 import IMPLICIT_EXTENDED_RESOURCE, DeviceClass, DeviceTaintRule, ResourceSlice
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimTracker
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import DeviceKind, TaintRules, may_mean
from scheduler.core.changes import Watchers
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import (
    CONSUMABLE,
    DEVICE_GATES_ON,
    DYNAMIC_RESOURCE_ALLOCATION,
    EXTENDED_RESOURCE,
    LIST_TYPES,
    PARTITIONABLE,
    TAINT_RULES,
)

if TYPE_CHECKING:
    from scheduler.cache.devices.selectors import DeviceSelectors
    from scheduler.cache.nodes.nodes import Nodes


class DeviceClasses:
    """By name."""

    def __init__(self) -> None:
        self.generation = 0
        """Grows with every change."""
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def __iter__(self) -> Iterator[DeviceClass]:
        return iter(self._classes.values())

    def get(self, name: str) -> DeviceClass | None:
        """The class of this name."""
        return self._classes.get(name)

    def put(self, name: str, device_class: DeviceClass | None) -> None:
        """A class came, changed, or went."""
        old = self._classes.pop(name, None)
        if old is not None and old.spec.extended_resource_name:
            names = self._by_resource[old.spec.extended_resource_name]
            del names[name]
            if not names:
                del self._by_resource[old.spec.extended_resource_name]
        if device_class is not None:
            self._classes[name] = device_class
            if device_class.spec.extended_resource_name:
                self._by_resource.setdefault(device_class.spec.extended_resource_name, {})[name] = None
        self.generation += 1

    def for_resource(self, resource: str) -> DeviceClass | None:
        """The class that an extended resource is served from, None if there is none."""
        names = self._by_resource.get(resource)
        if names:
            newest = max(self._classes[name].metadata.creation_timestamp or "" for name in names)
            return self._classes[min(n for n in names if (self._created(n)) == newest)]
        if resource.startswith(IMPLICIT_EXTENDED_RESOURCE):
            return self._classes.get(resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE))
        return None

    def _created(self, name: str) -> str:
        return self._classes[name].metadata.creation_timestamp or ""


NONE_SERVED: Final[frozenset[str]] = frozenset()
_GATES: Final = frozenset({DYNAMIC_RESOURCE_ALLOCATION, EXTENDED_RESOURCE})


def may_be_devices(name: str) -> bool:
    """Whether a class may serve a resource of this name at all."""
    return is_extended(name) or name.startswith(IMPLICIT_EXTENDED_RESOURCE)


class ServedResources:
    """By the classes as they are when asked. `gates` are kube-scheduler's feature gates that are on."""

    def __init__(self, classes: DeviceClasses, gates: frozenset[str]) -> None:
        self.is_on = gates >= _GATES
        self._classes = classes

    def among(self, requests: Mapping[str, int]) -> frozenset[str]:
        """The requested resources that classes serve. Most pods have none, and cost a look at the names."""
        if not self.is_on:
            return NONE_SERVED
        found = [
            name
            for name, amount in requests.items()
            if "/" in name and amount > 0 and may_be_devices(name) and self._classes.for_resource(name) is not None
        ]
        return frozenset(found) if found else NONE_SERVED


class SharedDRAManager:
    """One per cluster. `gates` are kube-scheduler's feature gates that are on.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go DefaultDRAManager
    """

    def __init__(self, nodes: Nodes, gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        self.use = AllocationState(shares_count=CONSUMABLE in gates)
        self.claims = ClaimTracker(self.use)
        self.classes = DeviceClasses()
        self.on_nodes = DeviceNodes(nodes, self.use, partitionable=PARTITIONABLE in gates)
        self.broken: dict[tuple[str, str], Broken] = {}
        """Kind and key → what could not be read: it counts as absent, but can be named."""
        self._gates = gates
        self._obeys_rules = TAINT_RULES in gates
        self._rules = TaintRules()
        self._published: dict[str, ResourceSlice] = {}
        self._laid: dict[str, ResourceSlice] = {}
        self._watchers = Watchers()
        self.on_news: Callable[[str], None] = _ignored
        """Called at each change, with the claim's key, before those who wait for it."""

    # -- reading -------------------------------------------------------------------------------------------------------

    @cached_property
    def selectors(self) -> DeviceSelectors:
        """What expressions say of devices. The language is loaded with the first class: most clusters have none."""
        from scheduler.cache.devices.selectors import DeviceSelectors

        return DeviceSelectors(list_attributes=LIST_TYPES in self._gates)

    def holds(self, expression: str, kind: DeviceKind) -> bool | str:
        """Whether devices of this kind are selected, or what is wrong: as `DeviceSelectors.holds`."""
        return self.selectors.holds(expression, kind)

    def holding(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """As `holds`, with turns for the event loop: as `DeviceSelectors.holding`."""
        return self.selectors.holding(expression, kind)

    @property
    def compiled_bytes(self) -> int:
        """What compiled selectors keep alive."""
        return self.selectors.compiled.size_bytes if "selectors" in self.__dict__ else 0

    def slices(self) -> Iterable[ResourceSlice]:
        """As they count: with the taints of rules."""
        return self._laid.values()

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_slice(self, each: ResourceSlice) -> ResourceSlice:
        """A slice came or changed; answers how it counts."""
        self._published[each.key] = each
        laid = self._rules.lay(each)
        self._laid[each.key] = laid
        self.on_nodes.set_slice(laid)
        return laid

    def remove_slice(self, name: str) -> ResourceSlice | None:
        """A slice is gone; answers how it counted."""
        self._published.pop(name, None)
        self.on_nodes.remove_slice(name)
        return self._laid.pop(name, None)

    def slice(self, name: str) -> ResourceSlice | None:
        """As it counts."""
        return self._laid.get(name)

    def put_class(self, name: str, device_class: DeviceClass | None) -> None:
        """A class came, changed or went. Its selectors begin to be compiled, and the first class loads the language."""
        self.classes.put(name, device_class)
        if device_class is not None:
            for each in device_class.spec.selectors:
                if each.cel is not None:
                    self.selectors.prepare(each.cel.expression)
            _ = self.selectors

    def put_rule(
        self, name: str, old: DeviceTaintRule | None, new: DeviceTaintRule | None
    ) -> list[tuple[ResourceSlice, ResourceSlice]]:
        """A taint rule came, changed or went; answers the slices that count otherwise now, before and after."""
        if not self._obeys_rules:
            return []
        self._rules.put(name, new)
        if old is not None and new is not None and old.spec == new.spec:
            return []  # its status, which its controller keeps writing
        rules = [rule for rule in (old, new) if rule is not None]
        changed = []
        for each in self._published.values():
            if any(may_mean(rule, each) for rule in rules):
                before, now = self._laid[each.key], self._rules.lay(each)
                if before.spec.devices != now.spec.devices:
                    self._laid[each.key] = now
                    self.on_nodes.set_slice(now)
                    changed.append((before, now))
        return changed

    # -- waiting for news ----------------------------------------------------------------------------------------------

    def subscribe(self, claims: Iterable[str], callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at each change of one of these claims, by `namespace/name`; returns what ends that."""
        return self._watchers.subscribe(claims, callback)

    def tell(self, key: str) -> None:
        """The claim changed, or one that the pod of this uid controls; the caches show it already."""
        self.on_news(key)
        self._watchers.tell(key)


def _ignored(_key: str) -> None:
    pass
