"""Ways to get preemption wrong: the suite must notice each of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from scheduler.api.podinfo import PodInfo
from scheduler.plugins.defaultpreemption import VictimRule, by_importance

_PLUGIN: Final = "scheduler.plugins.defaultpreemption"


def _least_important_first(pods: Iterable[PodInfo], rule: VictimRule) -> list[PodInfo]:
    return by_importance(pods, rule)[::-1]


_MUTATIONS: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "budgets are ignored": ("scheduler.cache.workloads.Disruptions.violating", lambda *_: set()),
    "start times are ignored": (f"{_PLUGIN}.started_at", lambda _: 0.0),
    "the least important are spared first": (f"{_PLUGIN}.by_importance", _least_important_first),
    "nominated pods are ignored": ("scheduler.framework.dry_run.NominatedPods.of", lambda *_: []),
}
MUTANTS: Final = tuple(_MUTATIONS)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """As long as the block lasts; what dry runs remember is neither used nor spoilt."""
    place, instead = _MUTATIONS[name]
    with ExitStack() as until_then:
        until_then.enter_context(patch(f"{_PLUGIN}.Evaluator.of", lambda *_: None))
        until_then.enter_context(patch(place, instead))
        yield
