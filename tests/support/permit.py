"""Answers of plugins to pods that Permit holds."""

from __future__ import annotations

from scheduler.framework.wait import WaitingPodsMap


def allow(permits: WaitingPodsMap, uid: str, plugin: str) -> None:
    if (held := permits.get(uid)) is not None:
        held.allow(plugin)
