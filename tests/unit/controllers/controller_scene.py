"""The cluster, the writer and the clock of a controller that is tested without a scheduler."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler.cache.cluster import Cluster
from scheduler.context import Inbox, Shared, UnboundPods
from scheduler.metrics.metrics import Metrics
from simulator.builders.core import node
from tests.support.ports import ListRecorder, ScriptedWriter
from tests.unit.harness import StepClock


class ControllerScene:
    """Nodes n1 and n2, and what a controller shares with the scheduler."""

    under_test: Any

    def __init__(self) -> None:
        self.clock, self.writer, self.recorder = StepClock(), ScriptedWriter(), ListRecorder()
        self.cluster, self.pending = Cluster(self.clock), UnboundPods()
        profiles: Any = None
        metrics = Metrics(process=False)
        self.shared = Shared(
            self.cluster, profiles, Inbox(), self.writer, self.recorder, self.clock, metrics, self.pending
        )
        for name in ("n1", "n2"):
            self.cluster.set_node(node(name).label("kubernetes.io/hostname", name).typed())

    async def passes(self, seconds: float) -> None:
        """Move the clock second by second, and let tasks run."""
        for _ in range(int(seconds)):
            self.clock.move(1.0)
            self.under_test.tick()
            for _ in range(20):
                await asyncio.sleep(0)
