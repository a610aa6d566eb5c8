"""`python -m tests.parity.fuzz <generator> <from> <to>`: random scenarios on which ours is compared with kube-scheduler's own code.

Nothing is recorded: hundreds of scenarios a minute, of seeds that no recording has (`to` is the first that is left out). Exits with 1 if ours
disagrees where `known` does not say so, and says where. A difference that is found belongs into `scenarios/`, and the control plane has the last word.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.obs import logs
from scheduler.testing.apiserver import LIKE_1_36, ApiServer
from tests.e2e.controlplane.build import Unavailable
from tests.parity import crowd, generate, mixedpods, ours
from tests.parity.admission import admitted
from tests.parity.api import InProcess, make_lasting, put, put_budgets, wipe
from tests.parity.generate import Dice
from tests.parity.known import KNOWN
from tests.parity.mixed import mixed
from tests.parity.oracle import process
from tests.parity.oracle.process import Oracle
from tests.parity.ours import Ours
from tests.parity.scenario import Scenario, scenario
from tests.parity.stage import Stage
from tests.parity.verdict import Verdict, differences
from tests.parity.words import Json

_PAUSE_S: Final = 0.001
_FURTHER: Final = 10**7
"""What the dice of further asked pods are away from the scenario's."""
_EMPTY_SELECTOR: Final = ("PodTopologySpread/where the selector is empty nobody counts", "where two are nominated")


@dataclass
class Result:
    """Of many scenarios."""

    scenarios: int = 0
    placed: int = 0
    preempting: int = 0
    refused: int = 0
    """Without victims."""
    surprises: list[str] = field(default_factory=list)
    """Lines, each with its scenario and asked pod."""
    known: list[str] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """Pods."""
        return self.placed + self.preempting + self.refused

    def count(self, theirs: Verdict) -> None:
        """What became of one."""
        self.placed += bool(theirs.node)
        self.preempting += any(way.evicted for way in theirs.ways)
        self.refused += not theirs.node and not any(way.evicted for way in theirs.ways)


# -- scenarios ---------------------------------------------------------------------------------------------------------


def _random(seed: int, dice: Dice) -> Json:
    short = generate.generate(seed)
    more = {f"x{i}": generate.asked_pod(dice, tuple(short["nodes"]), short["workloads"]) for i in range(8)}
    return short | {"asked": short["asked"] | more}


def _crowd(seed: int, dice: Dice) -> Json:
    short = crowd.crowd(seed)
    more = {f"x{i}": crowd.asked_pod(dice, tuple(short["nodes"])) for i in range(6)}
    return short | {"asked": short["asked"] | more}


def _mixed(seed: int, dice: Dice) -> Json:
    short, is_tight = mixed(seed), dice.chance(0.5)
    names, workloads = tuple(short["nodes"]), short["workloads"]
    more = {f"x{i}": mixedpods.asked_pod(dice, names, workloads, is_tight=is_tight) for i in range(10)}
    return short | {"asked": short["asked"] | more}


GENERATORS: Final[Mapping[str, Callable[[int, Dice], Json]]] = {"random": _random, "crowd": _crowd, "mixed": _mixed}
"""A seed and further dice → the scenario that is recorded for the seed, with more asked pods: what costs is the cluster."""


def made(generator: str, seed: int) -> Scenario:
    """The scenario of this seed."""
    return scenario("fuzz", GENERATORS[generator](seed, Dice(_FURTHER + seed)) | {"id": f"{generator} {seed}"})


# -- comparing ---------------------------------------------------------------------------------------------------------


async def fuzz(program: Path, scenarios: Iterable[Scenario], tell: Callable[[str], None]) -> Result:
    """Says what differs as soon as it does."""
    result = Result()
    async with ApiServer(served=LIKE_1_36) as server, process.running(program) as oracle:
        api = InProcess(server)
        await make_lasting(api)
        async with ours.running(api, pause_s=_PAUSE_S, master=server.url) as we:
            for one in scenarios:
                try:
                    await _compare(one, oracle, we, result, tell)
                except Exception as error:
                    error.add_note(one.id)
                    raise
    return result


async def _compare(one: Scenario, oracle: Oracle, we: Ours, result: Result, tell: Callable[[str], None]) -> None:
    await wipe(we.api)
    await put(we.api, one)
    await put_budgets(we.api, one)
    await Stage(one).set_for(we)
    result.scenarios += 1
    for name, theirs in (await oracle.ask(we.api, one, one.asked)).items():
        result.count(theirs)
        judged = we.judge(one.asked[name], one.profile)
        if not differences(theirs, judged):
            continue
        # Of nodes that are equally good for a preemption upstream takes any, and a nomination that it took from another pod
        # stays taken: what differs on a fresh cluster, too, does differ.
        again = await oracle.ask(we.api, one, [name])
        if found := differences(again[name], judged):
            why = excuse(one, name)
            (result.known if why else result.surprises).append(f"{one.id}: {name}")
            tell("\n    ".join((f"{one.id}: {name} [{one.profile}]{why and ', known: '}{why}", *found)))


def excuse(one: Scenario, name: str) -> str:
    """Why the asked pod may differ, in the words of `known`; "" if it may not."""
    metadata, spec = one.asked[name]["metadata"], admitted(one.asked[name])["spec"]
    is_beside_nominated = any(other["metadata"]["namespace"] == metadata["namespace"] for other in one.waiting)
    is_spread_with_all = any(
        constraint["whenUnsatisfiable"] == "DoNotSchedule" and _takes_all(constraint.get("labelSelector"))
        for constraint in spec.get("topologySpreadConstraints", ())
    )
    return KNOWN.get(_EMPTY_SELECTOR, "") if is_beside_nominated and is_spread_with_all else ""


def _takes_all(selector: Json | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


# -- the command -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzz")
    parser.add_argument("generator", choices=GENERATORS)
    parser.add_argument("first", type=int, metavar="from")
    parser.add_argument("end", type=int, metavar="to")
    given = parser.parse_args(arguments)
    scenarios = (made(given.generator, seed) for seed in range(given.first, given.end))
    try:
        program = process.binary()
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    began = time.monotonic()
    result = asyncio.run(fuzz(program, scenarios, lambda line: print(line, flush=True)))  # noqa: T201
    print(  # noqa: T201
        f"{result.scenarios} {given.generator} scenarios, {result.asked} asked pods in {time.monotonic() - began:.0f} s: "
        f"{result.placed} placed, {result.preempting} with victims, {result.refused} refused; "
        f"differences: {len(result.surprises)}, known ones: {len(result.known)}"
    )
    return 1 if result.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
