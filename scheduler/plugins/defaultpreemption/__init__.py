"""DefaultPreemption: a pod of higher priority gets its place (docs/spec/core.md §3.10)."""

from scheduler.plugins.defaultpreemption.plugin import DefaultPreemption

__all__ = ["DefaultPreemption"]
