"""Calls of a plugin for the tests of this folder: by node names instead of slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.cluster_events import ClusterEvent
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.status import Code, Groups

Refusals = dict[str, tuple[Code, tuple[str, ...]]]


def named(seen: Cluster, groups: Groups) -> Refusals:
    """Node name → code and reasons. Checks that no node is in two groups."""
    out: Refusals = {}
    for no, slots in groups.items():
        assert slots, "an empty group"
        for slot in nodeset.each(slots):
            assert seen.nodes.name(slot) not in out
            out[seen.nodes.name(slot)] = (no.code, no.reasons)
    return out


def refused(plugin: Any, seen: Cluster, pod: PodInfo) -> Refusals:
    """What Filter says of all present nodes."""
    return named(seen, plugin.filter(CycleState(), pod, seen.nodes.present))


def scored(plugin: Any, seen: Cluster, pod: PodInfo) -> dict[str, int] | None:
    """PreScore, Score and NormalizeScore of all present nodes by name; None if the plugin skips."""
    state, present = CycleState(), seen.nodes.present
    if hasattr(plugin, "pre_score") and plugin.pre_score(state, pod, present) is not None:
        return None
    column = plugin.score(state, pod, present)
    if hasattr(plugin, "normalize_score"):
        column = plugin.normalize_score(state, pod, column, nodeset.slots(present, seen.nodes.capacity))
    assert len(column) == seen.nodes.capacity
    return {seen.nodes.name(slot): int(column[slot]) for slot in nodeset.each(present)}


def hinted(plugin: Any, event: ClusterEvent, pod: PodInfo, *, old: object = None, new: object = None) -> Hint | None:
    """What the registrations that want the event say together; None if none does.

    Checks on the way that a registration with a shape gives a hashable one, and that its topics keep their law.
    """
    wanting: Sequence[EventHint] = [r for r in plugin.events_to_register() if r.event.wants(event)]
    if not wanting:
        return None
    for registration in wanting:
        if registration.shape is not None:
            hash(registration.shape(pod))
    answers = [Hint.QUEUE if r.hint is None else r.hint(pod, old, new) for r in wanting]
    for registration, answer in zip(wanting, answers):
        assert answer is Hint.SKIP or is_concerned(registration, pod, old=old, new=new)
    return Hint.QUEUE if Hint.QUEUE in answers else Hint.SKIP


def is_concerned(registration: EventHint, pod: PodInfo, *, old: object, new: object) -> bool:
    """Return whether the queue would call the hint: by the law of `hints.Topics` it must, if the hint says Queue."""
    if registration.topics is None:
        return True
    of_pod, of_event = registration.topics.of_pod(pod), registration.topics.of_event(old, new)
    return of_pod is None or of_event is None or not set(of_pod).isdisjoint(of_event)
