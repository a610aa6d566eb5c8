"""`python -m tests.parity.fuzz <generator> <from> <to>`: random scenarios on which ours is compared with kube-scheduler's own code.

Nothing is recorded: hundreds of scenarios a minute, of seeds that no recording has (`to` is the first that is left out). Exits with 1 if ours
disagrees where `known` does not say so, and says where. A difference that is found belongs into `scenarios/`, and the control plane has the last word.

The generator `devices` compares our allocator of devices with upstream's, on cases of `devicecases` (see `devicefuzz`).
"""

import argparse
import asyncio
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from scheduler.metrics import logs
from simulator.apiserver import LIKE_1_36, ApiServer
from tests.e2e.controlplane.build import MINOR, Unavailable
from tests.parity import crowd, devicefuzz, generate, mixedpods, ours
from tests.parity.api import InProcess, make_lasting, put, put_budgets, put_settings, wipe
from tests.parity.deviceoracle import process as device_process
from tests.parity.excuses import excuse
from tests.parity.generate import Dice
from tests.parity.mixed import mixed
from tests.parity.oracle import process
from tests.parity.oracle.process import Oracle
from tests.parity.ours import Ours
from tests.parity.scenario import Scenario, scenario
from tests.parity.side import TrialStage
from tests.parity.varied_volumes import varied_volume_seed
from tests.parity.verdict import differences

GENERATORS: Final = {"random": generate.generate, "crowd": crowd.crowd, "mixed": mixed, "volumes": varied_volume_seed}
"""Of scenarios. None has devices: see `Oracle`."""
_DEVICES: Final = "devices"
_PAUSE_S: Final = 0.001
_FURTHER: Final = 10**7
"""Distance of the seed for further tried pods from the scenario's."""
_ATTEMPTS: Final = 20
"""Further attempts of kube-scheduler where it may score one of several objects by chance."""


# -- scenarios ---------------------------------------------------------------------------------------------------------


def made(generator: str, seed: int) -> Scenario:
    """The scenario that is recorded for the seed, with more tried pods: most time goes into the cluster."""
    short, dice = GENERATORS[generator](seed), Dice(_FURTHER + seed)
    nodes, more = tuple(short["nodes"]), []
    if generator == "random":
        more = [generate.tried_pod(dice, nodes, short["workloads"]) for _ in range(8)]
    elif generator == "crowd":
        more = [crowd.tried_pod(dice, nodes) for _ in range(6)]
    elif generator == "mixed":
        is_tight = dice.chance(0.5)
        more = [mixedpods.tried_pod(dice, nodes, short["workloads"], is_tight=is_tight) for _ in range(10)]
    asked = short["asked"] | {f"x{i}": pod for i, pod in enumerate(more)}
    return scenario("fuzz", short | {"id": f"{generator} {seed}", "asked": asked})


# -- comparing ---------------------------------------------------------------------------------------------------------


async def fuzz(program: Path, scenarios: Iterable[Scenario]) -> Counter[str]:
    """How many there were of what; says what differs as soon as it does."""
    told = Counter[str]()
    async with ApiServer(served=LIKE_1_36) as server, process.running(program) as oracle:
        api = InProcess(server, MINOR)
        await make_lasting(api)
        async with ours.running(api, version=MINOR, pause_s=_PAUSE_S, master=server.url) as we:
            for one in scenarios:
                try:
                    told.update(await _compare(one, oracle, we))
                except Exception as error:
                    error.add_note(one.id)
                    raise
    return told


async def _compare(one: Scenario, oracle: Oracle, we: Ours) -> list[str]:
    """What there was to count."""
    await wipe(we.api)
    await put(we.api, one)
    await put_settings(we.api, one)
    await put_budgets(we.api, one)
    await TrialStage(one).set_for(we)
    told = ["scenarios"]
    for name, theirs in (await oracle.answers(we.api, one, one.asked)).items():
        told.append("placed" if theirs.node else "with victims" if theirs.ways[0].evicted else "refused")
        judged = dataclasses.replace(we.judge(one.asked[name], one.profile), writes=())
        if not differences(theirs, judged):
            continue
        # Of nodes that are equally good for a preemption upstream takes any, and a nomination that it took from another pod
        # stays taken: what differs on a fresh cluster, too, does differ.
        again = await oracle.answers(we.api, one, [name])
        if found := differences(again[name], judged):
            attempts = [again[name]]
            if judged.node and not excuse(one, name, attempts, judged):
                attempts[:0] = [(await oracle.answers(we.api, one, [name]))[name] for _ in range(_ATTEMPTS)]
            why = excuse(one, name, attempts, judged)
            told.append("known" if why else "differences")
            print(f"{one.id}: {name} [{one.profile}]{why and ', known: '}{why}", *found, sep="\n    ", flush=True)  # noqa: T201
    return told


# -- the command -------------------------------------------------------------------------------------------------------


def compare(program: Path, generator: str, seeds: range) -> int:
    """Says what differs, and then how many there were of what. 1 if anything differs of which it is not known, else 0."""
    drawn = (made(generator, seed) for seed in seeds)
    scenarios = (one for one in drawn if not one.feature_gates)  # further gates are for another daemon
    began = time.monotonic()
    told = asyncio.run(fuzz(program, scenarios))
    fates = {fate: told[fate] for fate in ("placed", "with victims", "refused")}
    print(  # noqa: T201
        f"{told['scenarios']} {generator} scenarios, {sum(fates.values())} tried pods in {time.monotonic() - began:.0f} s:",
        ", ".join(f"{count} {fate}" for fate, count in fates.items()),
        f"- differences: {told['differences']}, known ones: {told['known']}",
    )
    return 1 if told["differences"] else 0


def main() -> int:
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzz")
    parser.add_argument("generator", choices=(*GENERATORS, _DEVICES))
    parser.add_argument("first", type=int, metavar="from")
    parser.add_argument("end", type=int, metavar="to")
    given = parser.parse_args()
    seeds = range(given.first, given.end)
    try:
        if given.generator == _DEVICES:
            return devicefuzz.compare(device_process.binary(), seeds)
        return compare(process.binary(), given.generator, seeds)
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
