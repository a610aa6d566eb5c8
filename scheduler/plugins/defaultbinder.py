"""DefaultBinder: writes the binding (docs/spec/core.md §5.12, §3.12).

Upstream: pkg/scheduler/framework/plugins/defaultbinder/default_binder.go DefaultBinder
"""

from __future__ import annotations

from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState


class DefaultBinder:
    name: Final = "DefaultBinder"

    def __init__(self, args: object, handle: Handle) -> None:
        self._writer = handle.writer

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Write the binding with the pod's uid as precondition; errors are those of `scheduler.core.errors`."""
        await self._writer.bind(pod.pod, node_name)
