"""What /debug/pod shows: the last decisions about a pod and, while it waits, the numbers behind them as things are now.

Numbers are worked out when somebody asks. They may be newer than the decision above them: what was in the way then may
have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.core.podinfo import PodInfo
from scheduler.framework.points import ExplainPlugin
from scheduler.framework.profile import Profile
from scheduler.insight.records import DecisionRecords


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
    """Plugin → what it can say of this pod, of those that have something to say."""
    asked = (plugin for plugin in profile.pre_filter if isinstance(plugin, ExplainPlugin))
    return {plugin.name: found for plugin in asked if (found := plugin.explain(pod))}
