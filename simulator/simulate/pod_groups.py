"""Warn about pods of groups that only other schedulers place together, and of groups that the input does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from scheduler.api.pod_group import COSCHEDULING_LABEL, COSCHEDULING_POD_GROUP, VOLCANO_ANNOTATION, VOLCANO_POD_GROUP
from simulator.simulate.input.manifests import Found

_MARKS: Final = {
    COSCHEDULING_LABEL: "coscheduling",
    "pod-group.scheduling.sigs.k8s.io": "coscheduling",
    "pod-group.scheduling.sigs.k8s.io/name": "coscheduling",
    VOLCANO_ANNOTATION: "Volcano",
    "scheduling.volcano.sh/group-name": "Volcano",
    "volcano.sh/job-name": "Volcano",
    "kueue.x-k8s.io/pod-group-name": "Kueue",
    "yunikorn.apache.org/task-group-name": "YuniKorn",
}
"""Labels and annotations of pods, and the scheduler that reads them."""
_READ: Final = {COSCHEDULING_LABEL: COSCHEDULING_POD_GROUP, VOLCANO_ANNOTATION: VOLCANO_POD_GROUP}
"""Those that Kubestow reads, too, if the cluster has objects of this kind."""


def warnings(objects: Iterable[Found]) -> Iterator[str]:
    """Yield one line for each label or annotation that puts unbound pods into a group of another scheduler."""
    objects = tuple(objects)
    kinds = {each.kind for each in objects}
    marks = _MARKS.keys() - {mark for mark, kind in _READ.items() if kind in kinds}
    marked: dict[str, list[Found]] = {}
    for pod in (each for each in objects if each.kind == "Pod" and not each.value["spec"].get("nodeName")):
        for mark in sorted(marks & _keys(pod.value["metadata"])):
            marked.setdefault(mark, []).append(pod)
    for mark, members in marked.items():
        first = f"{members[0].namespace}/{members[0].name}"
        yield (
            f"warning: {len(members)} pods have {mark} ({_MARKS[mark]}), the first is {first}; "
            "Kubestow places them one by one and not as a group"
            if len(members) > 1
            else f"warning: pod {first} has {mark} ({_MARKS[mark]}); Kubestow places it alone and not with its group"
        )


def _keys(metadata: dict[str, Any]) -> set[str]:
    fields = (metadata.get(field) for field in ("labels", "annotations"))
    return {key for field in fields if isinstance(field, dict) for key in field}
