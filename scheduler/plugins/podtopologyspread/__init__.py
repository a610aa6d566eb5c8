"""PodTopologySpread: matching pods spread evenly over the values of a label (docs/spec/core.md §5.8).

`constraints` finds the rules of a pod and the nodes where pods count. `plugin` rejects nodes, ranks the other nodes,
and has the events that can help a rejected pod.
"""

from scheduler.plugins.podtopologyspread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
