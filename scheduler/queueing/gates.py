"""PreEnqueue: what keeps a pod out of the queue (docs/spec/core.md §1.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.core.clock import Clock
from scheduler.core.podinfo import PodInfo
from scheduler.core.text import shortened
from scheduler.core.unforeseen import UnforeseenErrors
from scheduler.core.verdicts import Code, Rejection
from scheduler.framework.points import PreEnqueuePlugin
from scheduler.queueing.records import QueuedPod, QueueMetrics, QueueProfile


class Gates:
    """Asks the PreEnqueue plugins of a pod's profile, the one that refused it last first."""

    def __init__(
        self,
        profiles: Mapping[str, QueueProfile],
        *,
        metrics: QueueMetrics,
        clock: Clock,
        log: Any,
        errors: UnforeseenErrors | None = None,
    ) -> None:
        self._errors = errors or UnforeseenErrors()
        self._clock = clock
        self._plugins = {name: profile.pre_enqueue for name, profile in profiles.items()}
        self._metrics = metrics
        self._log = log

    def adopt(self, profiles: Mapping[str, QueueProfile]) -> None:
        """These profiles have other PreEnqueue plugins from now on."""
        self._plugins.update((name, profile.pre_enqueue) for name, profile in profiles.items())

    def refuse(self, queued: QueuedPod) -> bool:
        """Whether the pod must stay out. Notes on the record who says so; the first refusal ends the round."""
        plugins = self._plugins[queued.profile]
        if queued.gating_plugin and len(plugins) > 1:
            plugins = tuple(sorted(plugins, key=lambda plugin: plugin.name != queued.gating_plugin))
        began = self._clock.now()
        no = next((no for plugin in plugins if (no := self._ask(plugin, queued.info)) is not None), None)
        code = Code.SUCCESS if no is None else no.code
        self._metrics.point("PreEnqueue", code.value, queued.profile, self._clock.now() - began)
        if no is None:
            queued.gating_plugin = ""
            return False
        if no.code is Code.ERROR:
            self._log.error("pre-enqueue failed", plugin=no.plugin, pod=queued.info.key, error=no.message)
        self._note(queued, no.plugin)
        return True

    def _ask(self, plugin: PreEnqueuePlugin, pod: PodInfo) -> Rejection | None:
        try:
            return plugin.pre_enqueue(pod)
        except Exception as error:  # noqa: BLE001 (a plugin's mistake must not lose the pod: it stays gated)
            self._errors.record("attempt", error, "PreEnqueue failed", plugin=plugin.name, pod=pod.key)
            return Rejection(plugin.name, Code.ERROR, (shortened(repr(error)),))

    def _note(self, queued: QueuedPod, plugin: str) -> None:
        queued.gating_plugin = plugin
        queued.was_flushed = False
        if plugin not in queued.rejecters:
            self._metrics.unschedulable(plugin, queued.profile, 1)
        queued.unschedulable_plugins.add(plugin)
