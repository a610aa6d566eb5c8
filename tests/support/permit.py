"""Answers of plugins to pods that Permit holds."""

from __future__ import annotations

from scheduler.framework.wait import WaitingPodsMap


def allow(permits: WaitingPodsMap, uid: str, plugin: str) -> None:
    """Allow the pod for a plugin, if Permit holds it."""
    if (held := permits.get(uid)) is not None:
        held.allow(plugin)
