"""InterPodAffinity: nodes near to matching pods, or away from them (docs/spec/core.md §5.9)."""

from scheduler.plugins.interpodaffinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
