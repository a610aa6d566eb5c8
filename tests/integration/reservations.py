"""A recorder of reservations: each Reserve must end in a Binding or in an Unreserve.

`observed` wraps the Reserve, Bind and PostBind plugins of each profile that is built within it, also of profiles that are applied later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.framework.interface import BindPlugin, CycleState, ReservePlugin
from scheduler.framework.profile import Profile, build
from scheduler.framework.status import Rejection, Skip
from scheduler.profiles import build as building

OnBinding = Callable[[Cluster, PodInfo, str], None]
"""Called before a Binding is sent: the daemon's cache, the assumed pod, the node."""


@dataclass
class Reservations:
    on_binding: OnBinding
    broken: list[str] = field(default_factory=list)
    calls: int = 0
    """The number of calls of Reserve by all plugins."""
    undone: int = 0
    """The number of reservations that Unreserve ended."""
    _open: dict[int, dict[tuple[str, str], PodInfo]] = field(default_factory=dict)
    """Cache → plugin and uid of reservations that are neither bound nor undone."""
    _bound: dict[int, set[str]] = field(default_factory=dict)

    def reserved(self, cluster: Cluster, plugin: str, pod: PodInfo) -> None:
        self.calls += 1
        held = self._open.setdefault(id(cluster), {})
        if (plugin, pod.uid) in held:
            self.broken.append(f"{plugin} was to reserve for {pod.key} twice, and Unreserve was not called in between")
        held[plugin, pod.uid] = pod

    def unreserved(self, cluster: Cluster, plugin: str, pod: PodInfo) -> None:
        if pod.uid in self._bound.get(id(cluster), ()):
            self.broken.append(f"{plugin} was to give back what it has reserved for {pod.key}, which is bound")
        if self._open.setdefault(id(cluster), {}).pop((plugin, pod.uid), None) is not None:
            self.undone += 1

    def bound(self, cluster: Cluster, pod: PodInfo) -> None:
        self._bound.setdefault(id(cluster), set()).add(pod.uid)
        held = self._open.setdefault(id(cluster), {})
        for key in [key for key in held if key[1] == pod.uid]:
            del held[key]

    def left(self, cluster: Cluster) -> list[str]:
        return [
            f"{plugin} has reserved for {pod.key} on {pod.node_name}, and neither was it bound nor Unreserve called"
            for (plugin, _), pod in self._open.get(id(cluster), {}).items()
        ]

    def forget(self, cluster: Cluster) -> None:
        self._open.pop(id(cluster), None)
        self._bound.pop(id(cluster), None)


class _Plugin:
    def __init__(self, inner: Any, recorder: Reservations, cluster: Cluster) -> None:
        self._inner = inner
        self._recorder = recorder
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Reserve(_Plugin):
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        self._recorder.reserved(self._cluster, self._inner.name, pod)
        answer: Rejection | None = self._inner.reserve(state, pod, node_name)
        return answer

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._recorder.unreserved(self._cluster, self._inner.name, pod)
        self._inner.unreserve(state, pod, node_name)


class _Bind(_Plugin):
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        self._recorder.on_binding(self._cluster, pod, node_name)
        answer: Rejection | Skip | None = await self._inner.bind(state, pod, node_name)
        return answer


class _PostBind:
    name: Final = "Reservations"

    def __init__(self, recorder: Reservations, cluster: Cluster) -> None:
        self._recorder = recorder
        self._cluster = cluster

    def post_bind(self, _state: CycleState, pod: PodInfo, _node_name: str) -> None:
        self._recorder.bound(self._cluster, pod)


@contextlib.contextmanager
def observed(recorder: Reservations) -> Iterator[None]:
    def recorded(config: Any, registry: Any, handle: Any, **more: Any) -> Profile:
        profile, cluster = build(config, registry, handle, **more), handle.cluster
        reserve: tuple[ReservePlugin, ...] = tuple(_Reserve(each, recorder, cluster) for each in profile.reserve)
        bind: tuple[BindPlugin, ...] = tuple(_Bind(each, recorder, cluster) for each in profile.bind)
        post_bind = (*profile.post_bind, _PostBind(recorder, cluster))
        return replace(profile, reserve=reserve, bind=bind, post_bind=post_bind)

    with mock.patch.object(building, "build", recorded):
        yield
