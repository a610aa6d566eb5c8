"""Count the pods of each group at the end of a simulation, and find out why a group has not started."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.pod_group import (
    COSCHEDULING_POD_GROUP,
    POD_GROUP,
    VOLCANO_POD_GROUP,
    AnyPodGroup,
    CoschedulingPodGroup,
    GroupKey,
    PodGroup,
    VolcanoPodGroup,
)
from scheduler.cache.pod_groups import PodGroups
from scheduler.core.terminal import counted
from simulator.apiserver import ApiServer

_TYPES: Final[Mapping[str, type[AnyPodGroup]]] = {
    POD_GROUP: PodGroup,
    COSCHEDULING_POD_GROUP: CoschedulingPodGroup,
    VOLCANO_POD_GROUP: VolcanoPodGroup,
}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The pods of one group. `least` is the number of pods with which it can start; None without its object."""

    group: GroupKey
    least: int | None
    pods: int
    placed: int
    """Those of its pods that have a node."""
    new: int
    """Those of its pods that were to be scheduled."""
    message: str = ""
    """Why it has not started; "" if it has, or if too few pods exist."""

    @property
    def is_started(self) -> bool:
        """Whether enough of its pods have a node."""
        return self.least is not None and self.placed >= self.least

    @property
    def is_notable(self) -> bool:
        """Whether the simulation decided about it: not if all of its pods had their nodes before."""
        return bool(self.new) or not self.is_started

    @property
    def summary(self) -> str:
        """The counts, and why it has not started, in one line."""
        starts = "" if self.is_started or self.least is None else f", starts with {self.least}"
        why = f": {' '.join(self.message.split())}" if self.message else ""
        return f"{self.placed} of {counted(self.pods, 'pod')} placed{starts}{why}"


def group_rows(
    server: ApiServer, pods: Iterable[Pod], new: Collection[str], positions: Mapping[tuple[str, str, str], int]
) -> tuple[GroupRow, ...]:
    """Return a row for each group with an object or pods, in the order of the input, those without an object last.

    `new` are pods that were to be scheduled, by namespace/name.
    """
    groups = PodGroups()
    for kind, typ in _TYPES.items():
        for each in server.objects(kind):
            groups.serve(kind, is_served=True)  # as for the scheduler: a kind without objects is not served
            groups.set(from_manifest(typ, each))
    for pod in pods:
        if groups.of(pod) is not None:
            groups.pod_changed(None, pod)
    refusals = _refusals(server) if groups.objects else {}
    names = dict.fromkeys([*groups.objects, *groups.by_group])
    end = len(positions)
    found = sorted(names, key=lambda name: positions.get((name.kind, name.key.partition("/")[0], name.name), end))
    return tuple(_row(groups, name, new, refusals) for name in found)


def _row(groups: PodGroups, name: GroupKey, new: Collection[str], refusals: Mapping[str, str]) -> GroupRow:
    wanted, members, placed = groups.get(name), groups.members(name), groups.running_count(name)
    least = groups.least(name) if wanted is not None else None
    message = "its PodGroup is missing" if wanted is None else refusals.get(wanted.metadata.uid, "")
    is_started = least is not None and placed >= least
    is_new = sum(key in new for key in members)
    return GroupRow(name, least, len(members), placed, is_new, "" if is_started else message)


def _refusals(server: ApiServer) -> dict[str, str]:
    """Return the newest text of the scheduler about each refused group, by uid of its object."""
    events = [
        each
        for each in server.objects("Event")
        if each.get("reason") == "FailedScheduling" and each["regarding"].get("kind") == "PodGroup"
    ]
    return {each["regarding"]["uid"]: each["note"] for each in sorted(events, key=lambda each: each["eventTime"] or "")}
