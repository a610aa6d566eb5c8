"""Answers of plugins to pods that Permit holds."""

from __future__ import annotations

from scheduler.framework.wait import WaitingPodsMap


def allow(waiting_pods: WaitingPodsMap, uid: str, plugin: str) -> None:
    if (held := waiting_pods.get(uid)) is not None:
        held.allow(plugin)
