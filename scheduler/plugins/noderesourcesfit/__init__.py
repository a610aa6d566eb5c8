"""NodeResourcesFit: does the pod fit what is left, and how well (docs/spec/core.md §5.5).

`plugin` speaks framework; `shortage` knows which nodes are too small for a request, `strategies` the three ways to score.
"""

from scheduler.plugins.noderesourcesfit.plugin import NodeResourcesFit

__all__ = ["NodeResourcesFit"]
