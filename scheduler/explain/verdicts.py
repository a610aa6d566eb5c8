"""What every plugin says about a pod on every node, without the short cuts of an attempt.

An attempt stops at the first plugin that rejects a node. An answer needs all of them: the plugins that reject a node are
what has to change there. Nodes with the same set of such plugins form one group; a cluster has some tens of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, answered
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError, Code, Groups, Narrow, Rejection, Skip

NOMINATED = "NominatedPods"
"""Stands for nominated pods of equal or higher priority in place of a plugin."""
UNFINISHED = "Unfinished"
"""Stands for the plugins whose search on a node was given up."""
_TOO_LONG = "node(s) whose search takes too long for an explanation"


@dataclass(slots=True)
class Verdicts:
    """The rejections of each plugin, by its name. `early` are those of PreFilter, which concern all nodes."""

    groups: dict[str, Groups] = field(default_factory=dict)
    early: dict[str, Rejection] = field(default_factory=dict)

    def add(self, plugin: str, rejection: Rejection, nodes: NodeSet) -> None:
        if nodes:
            held = self.groups.setdefault(plugin, {})
            held[rejection] = held.get(rejection, EMPTY) | nodes

    def leave(self, nodes: NodeSet) -> None:
        """Record that the search on these nodes was given up."""
        self.add(UNFINISHED, Rejection(UNFINISHED, Code.ERROR, (_TOO_LONG,)), nodes)

    def refused_by(self, plugin: str) -> NodeSet:
        """Return the nodes that the plugin rejects."""
        refused = EMPTY
        for nodes in self.groups.get(plugin, {}).values():
            refused |= nodes
        return refused

    def refused(self) -> NodeSet:
        """Return the nodes that any plugin rejects."""
        rejected = EMPTY
        for plugin in self.groups:
            rejected |= self.refused_by(plugin)
        return rejected

    def at(self, slot: int) -> dict[str, Rejection]:
        """Return plugin → its rejection of this node, in the order of the plugins."""
        found = {}
        for plugin, groups in self.groups.items():
            for rejection, nodes in groups.items():
                if nodes >> slot & 1:
                    found[plugin] = rejection
                    break
        return found

    def partition(self, nodes: NodeSet) -> Mapping[tuple[str, ...], NodeSet]:
        """Return the nodes by the plugins that reject them; those that none rejects are under ()."""
        parts: dict[tuple[str, ...], NodeSet] = {(): nodes}
        for plugin in self.groups:
            refused = self.refused_by(plugin)
            passed = {names: held & ~refused for names, held in parts.items()}
            failed = {(*names, plugin): held & refused for names, held in parts.items()}
            parts = {names: held for names, held in (*passed.items(), *failed.items()) if held}
        return parts


def verdicts(runner: FrameworkRunner, pod: PodInfo, nodes: NodeSet, *, exact: bool = True) -> Work[Verdicts]:
    """Return the rejections of all PreFilter and Filter plugins on these nodes, each plugin on its own.

    Filter is not called where PreFilter rejects. With `exact`, Verify is called for nodes that no Filter rejects. Nodes on which the pod fits only without nominated pods are rejected by NOMINATED.
    """
    found, state, profile = Verdicts(), CycleState(), runner.profile
    everything = runner.cluster.nodes.present
    for plugin in profile.pre_filter:
        try:
            answer = plugin.pre_filter(state, pod, everything)
        except AttemptError as error:
            answer = Rejection(plugin.name, Code.ERROR, (error.message,))
        match answer:
            case Skip():
                state.skip_filter.add(plugin.name)
            case Rejection():
                found.early[plugin.name] = answer
                found.add(plugin.name, answer, nodes)
            case Narrow(node_names=allowed):
                away = nodes & ~runner.cluster.nodes.by_name(allowed)
                found.add(plugin.name, Rejection(plugin.name, Code.UNRESOLVABLE, (_ELSEWHERE,)), away)
    for bound in profile.filter:
        if bound.name in state.skip_filter or bound.name in found.early:
            continue
        try:
            refused = yield from answered(bound.filter(state, pod, nodes))
        except AttemptError as error:
            refused = {Rejection(bound.name, Code.ERROR, (error.message,)): nodes}
        for rejection, slots in refused.items():
            found.add(bound.name, rejection, slots & nodes & ~found.refused_by(bound.name))
        yield
    if not found.early:
        yield from _nominated(runner, state, pod, nodes & ~found.refused(), found)
        if exact:
            yield from _verified(runner, state, pod, nodes & ~found.refused(), found)
    return found


_ELSEWHERE = "node(s) didn't satisfy plugin(s)"


def _nominated(runner: FrameworkRunner, state: CycleState, pod: PodInfo, nodes: NodeSet, found: Verdicts) -> Work[None]:
    groups: Groups = {}

    def one_pass(trial: CycleState, some: NodeSet) -> Work[NodeSet]:
        return runner.passing(trial, pod, some, groups, exact=False)

    refused = yield from runner.ahead.refusing(state, pod, nodes, groups, one_pass=one_pass)
    texts = sorted({rejection.message for rejection, slots in groups.items() if slots & refused})
    found.add(NOMINATED, Rejection(NOMINATED, Code.UNSCHEDULABLE, tuple(texts), cause="NominatedPods"), refused)


_VERIFIED_MAX = 64
"""Verify is called for at most this many nodes; an attempt that succeeds calls it for one."""


def _verified(runner: FrameworkRunner, state: CycleState, pod: PodInfo, nodes: NodeSet, found: Verdicts) -> Work[None]:
    for count, slot in enumerate(nodeset.each(nodes)):
        if count == _VERIFIED_MAX:
            return
        try:
            rejection = yield from runner.verify(state, pod, slot)
        except AttemptError as error:
            rejection = Rejection(error.plugin, Code.ERROR, (error.message,))
        if rejection is None:
            return  # one node that fits is enough: the caller then runs an attempt
        found.add(rejection.plugin, rejection, 1 << slot)


def reasons(verdicts_: Verdicts, plugins: Iterable[str], nodes: NodeSet) -> list[tuple[Rejection, int]]:
    """Return the rejections of these plugins on these nodes with their counts, most frequent first."""
    found = [
        (rejection, count)
        for plugin in plugins
        for rejection, slots in verdicts_.groups[plugin].items()
        if (count := (slots & nodes).bit_count())
    ]
    return sorted(found, key=lambda each: -each[1])
