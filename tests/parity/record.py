"""`python -m tests.parity.record`: every scenario through the real kube-scheduler, and through ours on the same cluster.

A surprise is a difference from ours that `known` does not list, or a verdict that differs from the recording of the scenario.
So is a preemption with another number of outcomes than the scenario expects. The command prints each surprise and then exits with 1.

The kube-scheduler is the one of the version in the environment variable KUBERNETES (see `tests.e2e.controlplane.build`).
It writes the recordings of all scenarios without a surprise. A scenario with one keeps its recording; `--write-surprises` replaces it.
`--only <text>` takes the scenarios whose key holds the text. It writes nothing unless `--write` or `--write-surprises` is given.
Scenarios that were left out keep their verdicts and their provenance. `--kube` runs kube-scheduler alone.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from scheduler.metrics import logs
from tests.e2e.controlplane.build import MINOR, Unavailable, binaries
from tests.parity import ours, recordings
from tests.parity.api import DEVICES, Remote, ScenarioApi, make_lasting, put, put_budgets, put_settings, wipe
from tests.parity.known import surprises
from tests.parity.kube import Kube, LoudPlane
from tests.parity.ours import Ours
from tests.parity.recordings import Mode, Provenance, Recording, Run
from tests.parity.scenario import Scenario
from tests.parity.side import TrialStage
from tests.parity.suite import recordable
from tests.parity.verdict import Verdict

AT = Run(MINOR, Mode.PARITY)
_PAUSE_S = 0.01
_TIMES = 5
"""Number of trials of a pod that preempts, each with its victims back in their places."""
_MOST_TIMES = 200
"""While chance has not shown all ways that the scenario knows of."""


@dataclass(frozen=True)
class Answered:
    """A scenario that kube-scheduler has answered now, and the surprises, by tried pod."""

    scenario: Scenario
    recording: Recording
    surprises: Mapping[str, list[str]]


async def record(chosen: Iterable[Scenario], old: Mapping[str, Recording], *, alone: bool) -> list[Answered]:
    """Start a control plane, try the chosen scenarios on it, and print each surprise at once. `alone`: without ours."""
    provenance, done, first = recordings.provenance_of(binaries() / "kube-scheduler"), [], recordings.read()
    async with LoudPlane() as plane, plane.client() as http:
        api = Remote(http)
        await make_lasting(api)
        await Kube.start(plane)
        kube = Kube(api, plane)
        async with _Ours(api, plane, alone=alone) as ours_for:
            for scenario in chosen:
                try:
                    told = await _run(scenario, kube, await ours_for(scenario))
                except AssertionError as error:
                    error.add_note(scenario.key)
                    raise
                done.append(
                    answered(scenario, told, old.get(scenario.key), provenance, _likely(first.get(scenario.key)))
                )
                for name, found in done[-1].surprises.items():
                    print(f"{scenario.key}: {name}:", *found, sep="\n    ", flush=True)  # noqa: T201
    return done


def _likely(first: Recording | None) -> Mapping[str, Verdict]:
    """Return the verdicts of the first version as this one would say them: of nodes that are equally good chance takes one."""
    verdicts = first.verdicts.items() if first else ()
    return {name: recordings.in_words_of(MINOR, said) for name, said in verdicts}


@dataclass(frozen=True)
class Trial:
    """The answers on one tried pod."""

    theirs: Verdict
    doubts: list[str]
    """Contradictions between answers of kube-scheduler itself."""
    ours: list[str] | None
    """What surprises in our answer; None if ours did not run."""


def answered(
    scenario: Scenario,
    trials: Mapping[str, Trial],
    before: Recording | None,
    provenance: Provenance,
    likely: Mapping[str, Verdict] = MappingProxyType({}),
) -> Answered:
    """Return the recording of these trials and what surprises in it.

    `before` is the recording that it replaces. `likely` are verdicts of another version, in the words of this one.
    """
    verdicts: dict[str, Verdict] = {}
    found: dict[str, list[str]] = {}
    for name, trial in trials.items():
        recorded = before.verdicts.get(name) if before else None
        usual = recorded or likely.get(name)
        now = verdicts[name] = recordings.steady(trial.theirs, usual)
        told = list(trial.doubts)
        told += trial.ours or []
        if before and before.digest == scenario.digest() and now != recorded:
            told += [f"recorded: {recorded}", f"now:      {now}"]
        if told:
            found[name] = told
    return Answered(scenario, Recording(scenario.digest(), provenance, verdicts), found)


class _Ours(contextlib.AsyncExitStack):
    """One daemon at a time: with the gates that a scenario wants. `alone`: none."""

    def __init__(self, api: ScenarioApi, plane: LoudPlane, *, alone: bool) -> None:
        super().__init__()
        self._api = api
        self._kubeconfig = str(plane.kubeconfig)
        self._alone = alone
        self._running: tuple[tuple[str, ...], Ours] | None = None

    async def __call__(self, scenario: Scenario) -> Ours | None:
        if self._alone:
            return None
        if self._running is None or self._running[0] != scenario.feature_gates:
            await self.aclose()
            gates = scenario.feature_gates
            daemon = ours.running(self._api, version=MINOR, pause_s=_PAUSE_S, kubeconfig=self._kubeconfig, gates=gates)
            self._running = gates, await self.enter_async_context(daemon)
        return self._running[1]


async def _run(scenario: Scenario, kube: Kube, we: Ours | None) -> dict[str, Trial]:
    await kube.serve(scenario)
    await wipe(kube.api)
    await wipe(kube.api, DEVICES)
    await kube.see_nothing()
    await put_budgets(kube.api, scenario)
    await kube.see_budgets(scenario)
    await put_settings(kube.api, scenario)
    await kube.see_settings(scenario)
    await put(kube.api, scenario)
    stage = TrialStage(scenario)
    await stage.set_for(kube)
    await kube.see_cluster(scenario)
    found = {}
    for name in scenario.asked:
        theirs, doubts = await _try_often(stage, kube, name, scenario.ways.get(name, 1))
        surprising = None if we is None else surprises(AT, scenario, name, theirs, await stage.try_pod(we, name))
        found[name] = Trial(theirs, doubts, surprising)
    return found


async def _try_often(stage: TrialStage, kube: Kube, name: str, ways: int) -> tuple[Verdict, list[str]]:
    """One verdict with all the ways it may take, and what is wrong with it: there must be as many as the scenario says."""
    first = await stage.try_pod(kube, name)
    if not first.preempts:
        return first, []
    seen, tries, doubts = {*first.ways}, 1, []
    while tries < _TIMES or (len(seen) < ways and tries < _MOST_TIMES):
        again = await stage.try_pod(kube, name)
        if (again.reason, again.message) != (first.reason, first.message):
            doubts.append(f"kube-scheduler said {first.message}, then {again.message}")
        seen.update(again.ways)
        tries += 1
    if len(seen) != ways:
        doubts.append(f"{ways} ways were expected, {tries} trials showed {sorted(seen)}")
    return dataclasses.replace(first, ways=tuple(sorted(seen))), doubts


def merged(
    suite: Iterable[Scenario], done: Iterable[Answered], old: Mapping[str, Recording], *, with_surprises: bool
) -> dict[str, Recording]:
    """Return what is to be written, in the order of the suite: new recordings where there are any, else the old ones."""
    new = {one.scenario.key: one.recording for one in done if with_surprises or not one.surprises}
    found = {scenario.key: new.get(scenario.key, old.get(scenario.key)) for scenario in suite}
    return {key: recording for key, recording in found.items() if recording is not None}


def main() -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.record")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--write-surprises", action="store_true")
    parser.add_argument("--kube", action="store_true")
    given = parser.parse_args()
    chosen, old = [one for one in recordable() if given.only in one.key], recordings.read(MINOR)
    began = time.monotonic()
    try:
        done = asyncio.run(record(chosen, old, alone=given.kube))
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    changed = []
    if given.write or given.write_surprises or not given.only:
        changed = recordings.write(MINOR, merged(recordable(), done, old, with_surprises=given.write_surprises))
    surprising = [one for one in done if one.surprises]
    asked = sum(len(one.recording.verdicts) for one in done)
    took_s = time.monotonic() - began
    print("recordings changed:", *(changed or ["none"]))  # noqa: T201
    if surprising and not given.write_surprises:
        print("not written, for want of --write-surprises:", *(one.scenario.key for one in surprising), sep="\n    ")  # noqa: T201
    count = sum(len(one.surprises) for one in surprising)
    print(f"{len(done)} scenarios, {asked} tried pods in {took_s:.0f} s; surprises: {count}")  # noqa: T201
    return 1 if surprising else 0


if __name__ == "__main__":
    sys.exit(main())
