"""NodeResourcesFit: whether a pod fits the free resources, and how well (docs/spec/core.md §5.5).

`shortage` finds the nodes that are too small for a request; `plugin` has the extension points and the three scoring
strategies.
"""

from scheduler.plugins.noderesourcesfit.plugin import NodeResourcesFit

__all__ = ["NodeResourcesFit"]
