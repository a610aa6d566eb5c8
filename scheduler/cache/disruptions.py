"""PodDisruptionBudgets: the evictions that would violate one (docs/spec/core.md §3.10, dry run step 4).

A budget is indexed by one label that it requires: the one that the fewest other budgets are indexed by. So a pod is
compared with few budgets, also if all of them require one common label. The budgets that select pods with certain
labels are stored until a selector of that namespace changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import structlog

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, LabelSelector, anchors
from scheduler.cache.pods import SelectorIndex
from scheduler.core.caching import BoundedCache, LogOnce
from scheduler.core.cooperative import Work

_log = structlog.get_logger(__name__)

BUDGETS_MAX: Final = 100
"""A pod with more budgets under its labels counts as protected; the eviction API refuses a pod with two budgets."""
_LABELS_MAX: Final = 32
"""No result is stored for pods with more labels, because the labels are part of the key."""
_KINDS_MAX: Final = 4096
"""Sets of labels of one namespace whose budgets are stored."""

_Kind: TypeAlias = tuple[tuple[str, str], ...]
"""The labels of a pod."""
_Keys: TypeAlias = tuple[str, ...]
"""The keys of budgets, at most one more than the limit."""


class _Namespace:
    """The number of a namespace's budgets, and the budgets that select pods with certain labels."""

    __slots__ = ("budgets", "selected")

    def __init__(self) -> None:
        self.budgets = 0
        self.selected: BoundedCache[_Kind, _Keys] = BoundedCache(_KINDS_MAX)


class Disruptions:
    """PodDisruptionBudgets of all namespaces.

    Upstream: pkg/scheduler/framework/preemption/preemption.go getPodDisruptionBudgets
    """

    def __init__(self) -> None:
        self.generation = 0
        """Changes when a value that is read here changes, which most status updates do not do."""
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.index: SelectorIndex[str] = SelectorIndex()
        self._anchors: dict[str, tuple[Anchor, ...]] = {}
        self._namespaces: dict[str, _Namespace] = {}
        self._unreadable: dict[str, str] = {}
        """Key → namespace."""
        self._logged = LogOnce()

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a budget. A budget without a selector protects no pods."""
        key, selector = budget.key, budget.spec.selector
        previous = self.budgets.get(key)
        if previous is not None and (previous.spec, previous.status) == (budget.spec, budget.status):
            return
        if previous is not None and previous.spec.selector == selector:
            self.budgets[key] = budget
            self.generation += 1
            return
        self.remove(key)
        if selector is None:
            return
        self.budgets[key] = budget
        self.index.add(key, self.anchors(key))
        self._namespaces.setdefault(budget.metadata.namespace, _Namespace()).budgets += 1
        self.reindexed(key)

    def put_unreadable(self, key: str, namespace: str) -> None:
        """Add a budget that cannot be decoded. It may select any pod of the namespace and allow no disruption."""
        if key not in self._unreadable:
            self.remove(key)
            self._unreadable[key] = namespace
            self.generation += 1

    def remove(self, key: str) -> None:
        """Remove a budget that is gone."""
        if self._unreadable.pop(key, None) is not None:
            self.generation += 1
        budget = self.budgets.pop(key, None)
        if budget is None:
            return
        self.index.remove(key, self._anchors.pop(key))
        namespace = budget.metadata.namespace
        namespace_budgets = self._namespaces[namespace]
        namespace_budgets.budgets -= 1
        if not namespace_budgets.budgets:
            del self._namespaces[namespace]
        self.reindexed(key)

    def reindexed(self, key: str) -> None:
        """Drop the stored results of the namespace, because the budget's entry in the index changed."""
        namespace_budgets = self._namespaces.get(key.partition("/")[0])
        if namespace_budgets is not None:
            namespace_budgets.selected.clear()
        self.generation += 1

    def anchors(self, key: str) -> tuple[Anchor, ...]:
        """Return the index keys of a budget. They are chosen again if the selector does not require the stored ones."""
        choices = tuple(_choices(key, self.budgets[key].spec.selector))
        chosen = self._anchors.get(key)
        if chosen not in choices:
            chosen = min(choices, key=lambda each: sum(len(self.index.get(anchor, ())) for anchor in each))
            self._anchors[key] = chosen
        return chosen

    def violating(self, pods: Sequence[PodInfo], *, by_selector_alone: bool = True) -> Work[set[str]]:
        """Return the uids of the pods whose eviction, one after the other in this order, takes a budget below zero.

        Without `by_selector_alone`, budgets with an empty selector protect no pods, and pods without labels are not
        protected, as in kube-scheduler before 1.38. O(pods and their budgets). It yields once per pod in a namespace with budgets.
        Upstream: pkg/scheduler/framework/preemption/preemption.go filterVictimsWithPDBViolation
        """
        if not self.index and not self._unreadable:
            return set()
        remaining: dict[str, int] = {}
        unsure = set(self._unreadable.values())
        if not by_selector_alone:
            pods = [pod for pod in pods if pod.pod.metadata.labels]
        over = {pod.uid for pod in pods if pod.pod.metadata.namespace in unsure}
        for pod in pods:
            metadata = pod.pod.metadata
            namespace_budgets = self._namespaces.get(metadata.namespace)
            if namespace_budgets is None:
                continue
            keys = self._selecting(namespace_budgets, metadata.namespace, metadata.labels)
            yield
            if len(keys) > BUDGETS_MAX:
                over.add(pod.uid)
                self._warn(metadata.namespace, pod.key)
                continue
            for key in keys:
                budget = self.budgets[key]
                selector, status = budget.spec.selector, budget.status
                if metadata.name in status.disrupted_pods:
                    continue
                if not by_selector_alone and selector is not None and selector.is_empty:
                    continue
                remaining[key] = remaining.get(key, status.disruptions_allowed) - 1
                if remaining[key] < 0:
                    over.add(pod.uid)
        return over

    def _selecting(self, namespace_budgets: _Namespace, namespace: str, labels: Mapping[str, str]) -> _Keys:
        """Return the budgets that select pods with these labels, or more than `BUDGETS_MAX`, which may select them."""
        kind = tuple(labels.items()) if len(labels) <= _LABELS_MAX else None
        cached = namespace_budgets.selected.get(kind) if kind is not None else None
        if cached is not None:
            return cached
        found = tuple(self.index.under(namespace, labels)[: BUDGETS_MAX + 1])
        if len(found) <= BUDGETS_MAX:
            found = tuple(key for key in found if _selects(self.budgets.get(key), labels))
        return namespace_budgets.selected.put(kind, found) if kind is not None else found

    def _warn(self, namespace: str, pod: str) -> None:
        if self._logged.is_new(namespace):
            _log.warning(
                "a pod that too many PodDisruptionBudgets may select counts as protected",
                pod=pod,
                limit=BUDGETS_MAX,
                told="once per namespace",
            )


def _selects(budget: PodDisruptionBudget | None, labels: Mapping[str, str]) -> bool:
    return budget is not None and budget.spec.selector is not None and budget.spec.selector.matches(labels)


def _choices(key: str, selector: LabelSelector | None) -> Iterator[tuple[Anchor, ...]]:
    """Yield the possible index keys: one for each label with a required value, and one without any label for none."""
    if selector is None:
        return
    parts = [LabelSelector({name: value}) for name, value in selector.match_labels.items()]
    parts += [LabelSelector({}, (each,)) for each in selector.match_expressions if each.operator == "In"]
    for part in parts or [selector]:
        yield anchors_of(key, part)


def anchors_of(key: str, selector: LabelSelector | None) -> tuple[Anchor, ...]:
    """Return the index keys of the selector of the object with this key, which selects pods of its namespace."""
    return anchors(frozenset({key.partition("/")[0]}), selector)
