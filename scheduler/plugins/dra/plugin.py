"""DynamicResources for pods without resource claims: its words in every condition text (docs/spec/core.md §3.9).

Pods with claims are refused by UnsupportedFeatures until this version can judge them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import SKIP, Code, Groups, Rejection, Skip
from scheduler.framework.hints import EventHint
from scheduler.framework.ports import Handle
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.whatif import WhatIf

_SEEN: Final = StateKey[bool]("DynamicResources")


class DynamicResources:
    """PreFilter, PostFilter."""

    name: Final = "DynamicResources"
    _nothing: Final = Rejection(name, Code.UNSCHEDULABLE, ("no new claims to deallocate",))
    _unprepared: Final = Rejection(name, Code.ERROR, ("not found",))

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip:
        """Skip: there are no claims to look at."""
        state.set(_SEEN, True)
        return SKIP

    def events_to_register(self) -> Sequence[EventHint]:
        """None: it refuses nobody. Without a registration it would be told of everything (§1.10)."""
        return ()

    def post_filter(self, state: CycleState, pod: PodInfo, refused: Groups, what_if: WhatIf) -> Rejection:
        """Nothing to give back. If PreFilter ended before us, upstream misses its own notes and says so; nobody preempts."""
        return self._nothing if state.has(_SEEN) else self._unprepared
