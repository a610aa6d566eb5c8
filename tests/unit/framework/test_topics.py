"""What events are about, for all plugins: labels of nodes, and selectors over pods (docs/spec/core.md §1.10)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector, anchors
from scheduler.framework.interface import NODE_CAME, by_node_labels, by_pod_labels, label, named
from tests.unit.objects import node
from tests.unit.queueing.harness import pod


@pytest.mark.parametrize(
    ("old", "new", "about"),
    [
        pytest.param({"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {label("a"), label("a", "2")}, id="a value changed"),
        pytest.param({}, {"a": "1"}, {label("a"), label("a", "1")}, id="a label came"),
        pytest.param({"a": "1"}, {}, {label("a")}, id="a label went"),
        pytest.param({"a": "1"}, {"a": "1"}, set(), id="nothing changed"),
        pytest.param(None, {"a": "1"}, {label("a"), label("a", "1"), NODE_CAME, named("n1")}, id="a node came"),
        pytest.param({"a": "1"}, None, {label("a")}, id="a node went with its labels"),
    ],
)
def test_labels_of_a_node(old: Any, new: Any, about: set[Any]) -> None:
    before, after = (None if labels is None else node("n1", labels=labels) for labels in (old, new))
    topics = list(by_node_labels(before, after))

    assert about == set(topics)
    assert len(topics) == len(about)


SELECTS_A = anchors(frozenset({"default"}), LabelSelector({"app": "a"}))


@pytest.mark.parametrize(
    ("old", "new", "is_found"),
    [
        pytest.param(None, pod("p", labels={"app": "a"}), True, id="a pod came"),
        pytest.param(pod("p", labels={"app": "a"}), None, True, id="a pod went"),
        pytest.param(pod("p", labels={"app": "a"}), pod("p"), True, id="it was selected"),
        pytest.param(pod("p"), pod("p", labels={"app": "a"}), True, id="it is selected now"),
        pytest.param(pod("p"), pod("p", labels={"app": "b"}), False, id="it never was"),
    ],
)
def test_labels_of_a_pod(old: PodInfo | None, new: PodInfo | None, is_found: bool) -> None:
    assert is_found == (not set(SELECTS_A).isdisjoint(by_pod_labels(old, new)))
