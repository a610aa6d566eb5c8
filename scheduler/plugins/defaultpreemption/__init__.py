"""DefaultPreemption: pods of lower priority are evicted for a pod that fits no node (docs/spec/core.md §3.10)."""

from scheduler.plugins.defaultpreemption.plugin import DefaultPreemption

__all__ = ["DefaultPreemption"]
