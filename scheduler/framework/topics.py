"""What events are about, in the terms that several plugins wait in (`hints.Topics`).

A function here is to be registered as it is: the queue then calls it once per event, however many plugins and profiles
name it. Topics are hashable values and mean nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from scheduler.core.anchors import probes
from scheduler.core.node import Node
from scheduler.core.placement import NODE_NAME_FIELD
from scheduler.core.podinfo import PodInfo

NODE_CAME: Final = "a node came"
"""Whoever may go to a node whatever labels it has, or lacks, waits for this one."""


def label(key: str, value: str | None = None) -> Hashable:
    """The node's label got this value; without a value: it came, went or changed."""
    return key, value


def named(node_name: str) -> Hashable:
    """The node with this name came."""
    return NODE_NAME_FIELD, node_name


def by_node_labels(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Every label that differs, with its new value; of a node that came, or went, that is all of them."""
    before = old.metadata.labels if old is not None else {}
    after = new.metadata.labels if new is not None else {}
    for key, value in after.items():
        if before.get(key) != value:
            yield label(key)
            yield label(key, value)
    for key in before:
        if key not in after:
            yield label(key)
    if old is None and new is not None:
        yield NODE_CAME
        yield named(new.metadata.name)


def by_pod_labels(old: PodInfo | None, new: PodInfo | None) -> tuple[Hashable, ...]:
    """Where the selectors are filed that may select the pod, as it was or as it is (`anchors.anchors`)."""
    before = probes(old.pod.metadata.namespace, old.pod.metadata.labels) if old is not None else ()
    after = probes(new.pod.metadata.namespace, new.pod.metadata.labels) if new is not None else ()
    return before + after
