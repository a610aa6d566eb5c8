"""What /debug/pod shows: the last decisions about a pod and, while it waits, the numbers behind them as things are now.

Numbers are worked out when somebody asks. They may be newer than the decision above them: what was in the way then may
have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from scheduler.core.podinfo import PodInfo
from scheduler.framework.points import ExplainPlugin
from scheduler.framework.profile import Profile
from scheduler.insight.records import DecisionRecords

_log = structlog.get_logger(__name__)


def shown(
    key: str,
    records: DecisionRecords,
    *,
    waiting: Callable[[str], PodInfo | None],
    profiles: Mapping[str, Profile],
) -> Mapping[str, Any] | None:
    """Of the pod `namespace/name`; None if it is not remembered."""
    remembered = records.to_dict(key)
    pod = waiting(key)
    if remembered is None or pod is None or pod.pod.spec.scheduler_name not in profiles:
        return remembered
    facts = facts_of(pod, profiles[pod.pod.spec.scheduler_name])
    return {**remembered, "facts": facts} if facts else remembered


def facts_of(pod: PodInfo, profile: Profile) -> dict[str, Mapping[str, Any]]:
    """Plugin → what it can say of this pod. A plugin that fails costs its own part."""
    facts = {}
    for plugin in profile.pre_filter:
        if not isinstance(plugin, ExplainPlugin):
            continue
        try:
            found = plugin.explain(pod)
        except Exception as error:  # noqa: BLE001 (nobody's attempt may suffer from a question)
            _log.warning("a plugin could not explain", plugin=plugin.name, pod=pod.key, error=repr(error))
            continue
        if found:
            facts[plugin.name] = found
    return facts
