"""PodTopologySpread: equal pods spread evenly over the values of a label (docs/spec/core.md §5.8).

`plugin` speaks framework; `constraints` says which rules hold for a pod, `eligible` on which nodes pods count, `hard`
which nodes are refused, `soft` how the others rank, `hints` what can help a pod that was refused.
"""

from scheduler.plugins.podtopologyspread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
