"""Which kinds of devices are watched (docs/spec/dra.md §4.11)."""

from __future__ import annotations

from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from scheduler.kube.resources import DEVICES, TAINT_RULE, watched, with_taint_rules


def test_rules_are_watched_where_devices_and_their_gate_are() -> None:
    """§4.11: few servers have them; a plugin need not name the kind."""
    devices = watched(spec.name for spec in DEVICES)
    named = watched([*(spec.name for spec in DEVICES), TAINT_RULE.name])
    on = DEVICE_GATES_ON | {TAINT_RULES}

    assert (*devices, TAINT_RULE) == with_taint_rules(devices, on) == with_taint_rules(named, on)
    assert devices == with_taint_rules(devices, DEVICE_GATES_ON) == with_taint_rules(named, DEVICE_GATES_ON)
    assert watched([]) == with_taint_rules(watched([]), on)
