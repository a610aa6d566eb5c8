"""NodeResourcesFit: whether a pod fits the free resources, and how well (docs/spec/core.md §5.5).

`shortage` compares requests with what is free, `strategy` scores, `hints` has the events that can help a rejected pod,
and `plugin` is the plugin.
"""

from scheduler.plugins.noderesourcesfit.plugin import NodeResourcesFit

__all__ = ["NodeResourcesFit"]
