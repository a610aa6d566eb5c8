"""What if: pods come and leave columns and indexes, and everything is put back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scheduler.cache.nodes import Nodes
from scheduler.core.podinfo import PodInfo


class Trial:
    """Made by `Cluster.trial`. Each step costs as much as the pod's coming or going does; nothing is copied.

    A node lists its pods in another order afterwards: those that left come back behind those that stayed, the last to
    leave first. Nothing may hang on that order.
    """

    __slots__ = ("_nodes", "_steps")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._steps: list[tuple[PodInfo, str, bool]] = []

    def add(self, info: PodInfo, node_name: str) -> None:
        """As if it were on that node; nothing happens if it is there."""
        slot = self._nodes.slot(node_name)
        if slot is None or info.uid not in self._nodes.pods(slot):
            self._nodes.add_pod(node_name, info)
            self._steps.append((info, node_name, True))

    def remove(self, info: PodInfo) -> None:
        """As if it had left `info.node_name`; nothing happens if it is not there."""
        taken = self._nodes.remove_pod(info.node_name, info.uid)
        if taken is not None:
            self._steps.append((taken, info.node_name, False))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Everything as it was until the block ends, in which nobody may change anything: then the trial goes on."""
        steps = self._steps.copy()
        self.undo()
        try:
            yield
        finally:
            for info, node_name, came in steps:
                if came:
                    self.add(info, node_name)
                else:
                    self.remove(info)

    def undo(self) -> None:
        """Everything as it was."""
        while self._steps:
            info, node_name, came = self._steps.pop()
            if came:
                self._nodes.remove_pod(node_name, info.uid)
            else:
                self._nodes.add_pod(node_name, info)
