"""PodTopologySpread: matching pods spread evenly over the values of a label (docs/spec/core.md §5.8).

`constraints` finds the rules of a pod and the nodes where pods count. `filtering` rejects nodes, `scoring` ranks
the other nodes, and `hints` has the events that can help a rejected pod.
"""

from scheduler.plugins.podtopologyspread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
