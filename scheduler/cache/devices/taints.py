"""DeviceTaintRules laid over the slices that they mean (docs/spec/dra.md §4.11).

A rule's taint stands behind the driver's own, in the order of the rules' names. Slices are found by driver and pool, so
a rule that names neither looks at all of them, and no other does.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from scheduler.api.resource_v1 import Device, DeviceTaintRule, ResourceSlice


class TaintRules:
    """The rules there are.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go Tracker, applyPatches
    """

    def __init__(self) -> None:
        self._rules: dict[str, DeviceTaintRule] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def put(self, name: str, rule: DeviceTaintRule | None) -> None:
        """A rule came, changed, or went."""
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule

    def lay(self, each: ResourceSlice) -> ResourceSlice:
        """The slice with the taints that rules add to it; itself if none does. O(rules × devices)."""
        spec = each.spec
        rules = [self._rules[name] for name in sorted(self._rules) if may_mean(self._rules[name], each)]
        if not rules:
            return each
        devices = tuple(self._tainted(spec.driver, spec.pool.name, device, rules) for device in spec.devices)
        if devices == spec.devices:
            return each
        return msgspec.structs.replace(each, spec=msgspec.structs.replace(spec, devices=devices))

    def _tainted(self, driver: str, pool: str, device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
        more = tuple(
            rule.spec.taint
            for rule in rules
            if rule.spec.device_selector is None or rule.spec.device_selector.selects(driver, pool, device.name)
        )
        return msgspec.structs.replace(device, taints=(*device.taints, *more)) if more else device


def may_mean(rule: DeviceTaintRule, each: ResourceSlice) -> bool:
    """Whether some device of the slice may be meant, going by driver and pool."""
    selector = rule.spec.device_selector
    if selector is None:
        return True
    return selector.driver in {None, each.spec.driver} and selector.pool in {None, each.spec.pool.name}
