"""The proof of one planted cluster, and the sums over many: do the shown fixes work, are they minimal, is one missing?"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import yaml

from scheduler.config.load import parse
from scheduler.config.types import RunOptions
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import VERSIONS, defaults
from scheduler.daemon.app import Daemon
from scheduler.explain.answer import FixAnswer
from scheduler.explain.edits import Edit
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, scheduler_config
from tests.explained import brute_force
from tests.explained.bench import WORKS, Bench
from tests.explained.brute_force import proper_subsets, with_one_unit_back
from tests.explained.causes import planted
from tests.explained.draft import Planted
from tests.parity.api import Remote, make_lasting
from tests.parity.replay import daemon_for

_UNSCHEDULABLE: Final = "pending"


@dataclass
class Proof:
    """What was found of one cluster; each text names a cluster and what is wrong."""

    kind: str
    base_fits: bool = True
    is_planted: bool = True
    """Whether the pod fits before the cause is planted, and does not fit after it."""
    shown: int = 0
    fails: list[str] = field(default_factory=list)
    """Verified fixes after which the pod is not bound."""
    missing: list[str] = field(default_factory=list)
    """Smallest sets of changes that work where no fix is shown."""
    not_minimal: list[str] = field(default_factory=list)
    """First fixes with more changes than necessary."""
    too_much: list[str] = field(default_factory=list)
    """Amounts that are lowered by more than necessary."""
    has_solution: bool = False
    """Whether a fix is shown, or exhaustive search finds a set of changes."""


@dataclass
class Sums:
    """Counts of one kind of cause, or of all."""

    clusters: int = 0
    shown: int = 0
    fails: int = 0
    solvable: int = 0
    missing: int = 0
    first_fixes: int = 0
    not_minimal: int = 0
    too_much: int = 0

    def add(self, proof: Proof) -> None:
        """Count one more cluster."""
        self.clusters += 1
        self.shown += proof.shown
        self.fails += len(proof.fails)
        self.solvable += proof.has_solution
        self.missing += bool(proof.missing)
        self.first_fixes += bool(proof.shown)
        self.not_minimal += bool(proof.not_minimal)
        self.too_much += bool(proof.too_much)

    @property
    def found_share(self) -> float:
        return 1 - self.missing / max(self.solvable, 1)

    @property
    def minimal_share(self) -> float:
        return 1 - self.not_minimal / max(self.first_fixes, 1)

    @property
    def least_share(self) -> float:
        return 1 - self.too_much / max(self.first_fixes, 1)


def summed(proofs: Iterable[Proof]) -> Sums:
    """Return the sums over these clusters."""
    out = Sums()
    for each in proofs:
        out.add(each)
    return out


async def prove(bench: Bench, case: Planted, *, exhaustively: bool) -> Proof:
    """Explain the pod, try each verified fix on a fresh copy of the cluster, and search exhaustively if wanted."""
    proof = Proof(case.kind)
    if exhaustively:
        proof.base_fits = await bench.put(case.base, case.base_pod) in WORKS
    proof.is_planted = await bench.put(case.objects, case.pod) == _UNSCHEDULABLE
    if not proof.is_planted:
        return proof
    fixes = [fix for fix in bench.explain(case.pod).fixes if fix.verified]
    proof.shown, proof.has_solution = len(fixes), bool(fixes)
    if exhaustively:
        _compare(bench, case, fixes, proof)
    for number, fix in enumerate(fixes):
        if number:
            await bench.put(case.objects, case.pod)
        became = await bench.apply(case, _edits(fix))
        if became not in WORKS:
            proof.fails.append(f"{case.name}: {_text(fix)}: {became}")
    return proof


def _compare(bench: Bench, case: Planted, fixes: Sequence[FixAnswer], proof: Proof) -> None:
    """Compare the fixes with all small sets of changes; the pod must be pending in the daemon."""
    search = bench.search(case.pod)

    def works(edits: Sequence[Edit]) -> bool:
        is_gated = bool(search.overlay.pod(search.pod, edits).pod.spec.scheduling_gates)
        return not is_gated and bool(finish(search.placed(edits)))

    atoms = brute_force.atoms(case)
    if not fixes:
        if found := brute_force.least(atoms, works):
            proof.has_solution = True
            proof.missing.append(f"{case.name}: {[(each.node, each.text) for each in found]}")
        return
    actors = {change.actor for change in fixes[0].changes}
    allowed = [each for each in atoms if each.actor in actors]
    count_max, cost_max = min(len(fixes[0].changes) - 1, brute_force.SET_MAX), brute_force.cost(case.pod, fixes[0])
    fewer = brute_force.least(allowed, works, count_max=count_max, cost_max=cost_max)
    if fewer:
        proof.not_minimal.append(f"{case.name}: {_text(fixes[0])}: {[(each.node, each.text) for each in fewer]}")
    for fix in fixes:
        for some in proper_subsets(fix.changes):
            if works([edit for change in some for edit in change.edits]):
                proof.not_minimal.append(f"{case.name}: {_text(fix)}: {[change.text for change in some]}")
        for text, edits in with_one_unit_back(_edits(fix)):
            if works(edits):
                proof.too_much.append(f"{case.name}: {_text(fix)}: {text}")


def _edits(fix: FixAnswer) -> list[Edit]:
    return [edit for change in fix.changes for edit in change.edits]


def _text(fix: FixAnswer) -> str:
    return "; ".join(change.text for change in fix.changes)


# -- benches -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def in_process() -> AsyncIterator[Bench]:
    """Run a daemon on the in-process API server. No pod waits for its volumes for longer than a moment."""
    async with daemon_for(VERSIONS[-1]) as we:
        yield Bench(we.api, we.daemon, f"{we.by_default().prefix}-default")


@asynccontextmanager
async def on(plane: ControlPlane) -> AsyncIterator[Bench]:
    """Run a daemon with the default configuration on a real kube-apiserver without other objects, and the PV controller.

    The resource claim controller does not run: where a fix deletes a pod, the bench deallocates its claims.
    """
    await plane.start_controllers(["persistentvolume-binder-controller"])
    text = yaml.safe_dump(scheduler_config(SCHEDULER_NAME))
    config = parse(text, source="explained", feature_gates=defaults(MINOR))
    options = RunOptions(config=config, kubeconfig=str(plane.kubeconfig), port=None, drain_timeout_s=5)
    daemon = Daemon(dataclasses.replace(options, emulated_version=MINOR))
    async with plane.client() as http:
        api = Remote(http)
        await make_lasting(api)
        try:
            await daemon.start()
            yield Bench(api, daemon, SCHEDULER_NAME, has_volume_controller=True)
        finally:
            await daemon.stop()


async def proofs(bench: Bench, cases: Iterable[tuple[str, int]], *, exhaustively: bool) -> list[Proof]:
    """Return the proofs of these kinds and seeds."""
    return [await prove(bench, planted(kind, seed), exhaustively=exhaustively) for kind, seed in cases]
