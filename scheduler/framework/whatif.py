"""Would the pod fit on that node if these pods were not there? (docs/spec/core.md §3.5, §3.10, dry run)

Two ways to the same answer. Where every filter either does not look at pods or can count those of one node aside
(`TallyPlugin`), nothing is touched and a question costs about a microsecond per filter. Else the pods leave the cache's
columns and indexes in a trial, the filters run as always, and leaving the scene puts everything back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import Work, answered, finish
from scheduler.core.verdicts import AttemptError, Code, Groups, Rejection
from scheduler.framework.state import CycleState

if TYPE_CHECKING:
    from scheduler.cache.trial import Trial
    from scheduler.framework.profile import BoundFilter
    from scheduler.framework.runner import Runner


class Tally(Protocol):
    """One filter's count of the pods on one node. A pod more never makes the verdict better."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None: ...


class Scene(Protocol):
    """One node, as if. Only pods of that node may leave, and those that left come back."""

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> Rejection | None:
        """Of the filters on this node, with nominated pods of equal or higher priority counted, and without (§3.5).

        A filter that fails is an answer, too, with `Code.ERROR`: it is about this node only.
        """

    def judging(self) -> Work[Rejection | None] | None:
        """The same bit by bit, everybody being back in place where it rests; None where `verdict` is quick."""


class WhatIf:
    """For one pod whose PreFilter has run. Good until the attempt ends."""

    def __init__(self, runner: Runner, state: CycleState, pod: PodInfo) -> None:
        self._runner = runner
        self._state = state
        self._pod = pod
        self._filters = [bound for bound in runner.profile.filter if bound.name not in state.skip_filter]
        self._counted_until = self._leading_count()
        self.is_counted = self._counted_until == len(self._filters)
        """Whether questions are answered without touching the cache, but for nodes that newcomers make a difference on."""
        self._flat: list[tuple[int, Groups]] | None = None
        self._asked: NodeSet = 0
        self._hopeless: NodeSet | None = None
        self.alike = ~runner.ahead.own(pod)
        """Nodes that say the same of every pod of this shape: not where this one is nominated itself."""

    @property
    def nominated_to(self) -> str:
        """Where the pod itself is nominated to, "" for nowhere."""
        return self._runner.nominated_to(self._pod)

    @property
    def shape(self) -> tuple[Hashable, ...]:
        """Equal for pods that get equal answers on equal nodes where `is_counted`, else of `leading`."""
        return tuple(
            (bound.name, bound.tally.tally_shape(self._pod))
            for bound in self._filters[: self._counted_until]
            if bound.tally is not None
        )

    def about(self, nodes: NodeSet) -> None:
        """Say which nodes may be asked about, so that what does not hang on pods is asked once for all of them."""
        self._asked = nodes
        self._flat = self._hopeless = None

    @property
    def hopeless_nodes(self) -> NodeSet:
        """Of the nodes asked about, those that a filter which does not look at pods refuses, of the leading ones."""
        if self._hopeless is None:
            hopeless: NodeSet = 0
            for _, groups in self._flat_groups(self._asked):
                for slots in groups.values():
                    hopeless |= slots
            self._hopeless = hopeless
        return self._hopeless

    def hopeless(self, slot: int) -> bool:
        """Whether this node is one of them."""
        if not self._asked >> slot & 1:
            self._flat_groups(1 << slot)
        return bool(self.hopeless_nodes >> slot & 1)

    def version(self, slot: int) -> int:
        """Changes whenever somebody is nominated to this node, or no longer is."""
        return self._runner.ahead.version(slot)

    def ahead(self, slot: int) -> list[PodInfo]:
        """Pods nominated to the node that this pod must yield to."""
        return self._runner.ahead.of(self._pod, slot)

    @contextlib.contextmanager
    def on(self, slot: int) -> Iterator[Scene]:
        """The node as it is; pods may leave and come back until the block ends."""
        counted = self.counted(slot, self.ahead(slot))
        if counted is not None:
            yield counted
            return
        with self._runner.cluster.trial() as trial:
            yield _Tried(self._runner, trial, self._state.clone(), self._pod, slot)

    def _leading_count(self) -> int:
        """How many filters come before the first one that needs the cache."""
        return next((at for at, bound in enumerate(self._filters) if not self._counts(bound, ())), len(self._filters))

    def _counts(self, bound: BoundFilter, newcomers: Sequence[PodInfo]) -> bool:
        return bound.tally is not None or (
            bound.is_exact(self._state, self._pod) and bound.is_flat(self._state, self._pod, newcomers)
        )

    def counted(self, slot: int, ahead: Sequence[PodInfo], *, is_flat: bool = True) -> Scene | None:
        """The node with these newcomers on it; None if that cannot be told without touching the cache.

        Without `is_flat` filters that do not look at pods are left out: see `hopeless_nodes`.
        """
        if not self.is_counted or (ahead and not all(self._counts(bound, ahead) for bound in self._filters)):
            return None
        return self._counting(slot, ahead, is_flat=is_flat)

    def leading(self, slot: int) -> Scene | None:
        """The node for the filters before the first one that needs the cache: their refusal is that of all filters.

        None if pods nominated to the node are ahead of this one.
        """
        return None if self.ahead(slot) else self._counting(slot, (), is_flat=True)

    def _counting(self, slot: int, ahead: Sequence[PodInfo], *, is_flat: bool) -> Scene | None:
        tallies = [
            (at, bound.tally.tally(self._state, self._pod, slot))
            for at, bound in enumerate(self._filters[: self._counted_until])
            if bound.tally is not None
        ]
        for other in ahead:
            for _, tally in tallies:
                tally.add(other)
        refusal: tuple[int, Rejection] | None = None
        for at, groups in self._flat_groups(1 << slot) if is_flat else ():
            for no, slots in groups.items():
                if slots >> slot & 1 and refusal is None:
                    refusal = (at, no)
        if refusal is not None and not refusal[1].code.is_rejection:
            return None  # a filter failed: what follows from that is the runner's business
        return _Counted(tallies, refusal)

    def _flat_groups(self, nodes: NodeSet) -> list[tuple[int, Groups]]:
        """What the leading filters that do not look at pods refuse of these nodes, and of others."""
        if self._flat is None or nodes & ~self._asked:
            self._asked |= nodes
            self._hopeless = None
            answers = (
                (at, finish(answered(bound.filter(self._state, self._pod, self._asked))))
                for at, bound in enumerate(self._filters[: self._counted_until])
                if bound.tally is None
            )
            self._flat = [(at, groups) for at, groups in answers if groups]
        return self._flat


class _Counted:
    __slots__ = ("_refusal", "_tallies")

    def __init__(self, tallies: list[tuple[int, Tally]], refusal: tuple[int, Rejection] | None) -> None:
        self._tallies = tallies
        self._refusal = refusal

    def add(self, other: PodInfo) -> None:
        for _, tally in self._tallies:
            tally.add(other)

    def remove(self, other: PodInfo) -> None:
        for _, tally in self._tallies:
            tally.remove(other)

    def verdict(self) -> Rejection | None:
        for at, tally in self._tallies:
            if self._refusal is not None and self._refusal[0] < at:
                return self._refusal[1]
            no = tally.verdict()
            if no is not None:
                return no
        return self._refusal[1] if self._refusal is not None else None

    def judging(self) -> None:
        return None


class _Tried:
    __slots__ = ("_name", "_pod", "_runner", "_slot", "_state", "_trial")

    def __init__(self, runner: Runner, trial: Trial, state: CycleState, pod: PodInfo, slot: int) -> None:
        self._runner = runner
        self._trial = trial
        self._state = state
        self._pod = pod
        self._slot = slot
        self._name = runner.cluster.nodes.name(slot)

    def add(self, other: PodInfo) -> None:
        self._trial.add(other, self._name)
        for plugin in self._runner.extensions(self._state):
            plugin.add_pod(self._state, self._pod, other, self._slot)

    def remove(self, other: PodInfo) -> None:
        self._trial.remove(other)
        for plugin in self._runner.extensions(self._state):
            plugin.remove_pod(self._state, self._pod, other, self._slot)

    def verdict(self) -> Rejection | None:
        return finish(self.judging())

    def judging(self) -> Work[Rejection | None]:
        checking = self._runner.check_node(self._pod, self._slot, self._state)
        try:
            return (yield from self._runner.resting(self._trial, checking))
        except AttemptError as error:
            return Rejection(error.plugin, Code.ERROR, (error.message,))
