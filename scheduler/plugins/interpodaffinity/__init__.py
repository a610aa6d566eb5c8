"""InterPodAffinity: near some pods, away from others (docs/spec/core.md §5.9)."""

from scheduler.plugins.interpodaffinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
