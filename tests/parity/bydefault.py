"""Compares a verdict of a profile with `parity: false` with the recorded one: `differences`, and two narrow rules.

1. With the gates of 1.36 the message of a preemption ends with its node and the number of its victims
   (docs/spec/core.md §3.9). A victim is a pod that is evicted, or one on that node that is leaving already. In 1.37
   kube-scheduler says it as well, and `verdict.heard` has made it a part of the way.
2. With devices the nodes that are scored may be more than those that kube-scheduler found feasible, because only the
   best are verified (docs/adr/0003). Our node must then be one of kube-scheduler's best; the scores are not compared.
"""

import re
from dataclasses import replace
from typing import Final

from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, differences

_FOUND: Final = re.compile(
    r" preemption: found a potential placement for pod on node (?P<node>\S+), preempting (?P<victims>[1-9]\d*) victims\.\Z"
)


def differences_by_default(scenario: Scenario, theirs: Verdict, ours: Verdict) -> list[str]:
    """Return the differences in words; empty if the verdicts agree. `theirs` is kube-scheduler's."""
    if scenario.devices and theirs.node and theirs.totals().keys() < ours.totals().keys():
        found = differences(replace(theirs, scores={}), replace(ours, scores={}, node=theirs.node))
        return found if ours.node in theirs.best() else [*found, f"{ours.node} is not among {sorted(theirs.best())}"]
    said = _FOUND.search(ours.message)
    if said is None:
        is_silent = any(way.evicted and not way.victims for way in ours.ways)
        silent = [f"nothing is said of the preemption: {ours.ways}"] if is_silent else []
        return differences(theirs, ours) + silent
    if not _is_true(scenario, said, ours):
        return [f"ours: {ours.message}", f"ways: {ours.ways}"]
    return differences(theirs, replace(ours, message=ours.message[: said.start()]))


def changes(scenario: Scenario, pinned: Verdict, ours: Verdict) -> list[str]:
    """Return how our verdict differs from a pinned one of ours, by the same second rule."""
    if scenario.devices and pinned.node and ours.node and pinned.totals().keys() != ours.totals().keys():
        return differences(replace(pinned, scores={}), replace(ours, scores={}))
    return differences(pinned, ours)


def _is_true(scenario: Scenario, said: re.Match[str], ours: Verdict) -> bool:
    """Whether the sentence names the node and the number of victims that the verdict has."""
    if len(ours.ways) != 1 or ours.ways[0].nominated != said["node"]:
        return False
    leaving: int = sum(
        pod["metadata"]["name"] in scenario.leaving and pod["spec"]["nodeName"] == said["node"] for pod in scenario.pods
    )
    evicted = len(ours.ways[0].evicted)
    victims = int(said["victims"])
    return evicted <= victims <= evicted + leaving
