"""`python -m tests.parity.table`: what the suite holds against each plugin, for both versions of kube-scheduler."""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping

from scheduler.metrics import logs
from tests.parity import recordings
from tests.parity.known import REASONS
from tests.parity.mutants import MUTANTS
from tests.parity.reasons import UNASKED, refusers, verdicts
from tests.parity.recordings import RECORDED, Mode, Recording, Run
from tests.parity.replay import MUTANTS_OF_CACHES, Replay, catch, replay
from tests.parity.suite import scenarios


def table(recorded: Mapping[str, Recording], replayed: Replay) -> list[str]:
    """Per plugin: its scenarios; the tried pods that it refuses a node, whose scores it distinguishes, and that need it.

    Then how many tried pods catch each mutant, and how many scenarios have a preemption. Where volumes are used only their
    plugins are switched off. All of that is of the profiles with `parity: true`. Last, for both modes, how many tried pods
    agree with kube-scheduler, and how many differ as it is pinned.
    """
    own = Counter(one.group for one in scenarios())
    refused, told_apart = Counter[str](), Counter[str]()
    for verdict in verdicts(recorded):
        refused.update(refusers(verdict))
        told_apart.update(plugin for plugin, row in verdict.scores.items() if len(set(row.values())) > 1)
    rows = [("plugin", "scenarios", "refuses", "scores", "needed")]
    rows += [
        (name, str(own[name]), str(refused[name]), str(told_apart[name]), str(len(replayed.needing(name))))
        for name in sorted(replayed.plugins - UNASKED.keys())
    ]
    rows += [(mutant, "", "", "", str(len(replayed.catching(mutant)))) for mutant in MUTANTS]
    preempting = [key for key, recording in recorded.items() if any(v.preempts for v in recording.verdicts.values())]
    drawn = sum(key.startswith("crowd-") for key in preempting)
    rows += [(mutant, "", "", "", "caught" if place else "MISSED") for mutant, place in replayed.caught.items()]
    notes = [f"{name}: {why}" for name, why in UNASKED.items()]
    notes.append(f"scenarios in which a place is made or kept for a pod: {len(preempting)}, {drawn} of them random")
    notes += ["", *_modes(replayed)]
    lines = ["  ".join(text.ljust(50) if i == 0 else text.rjust(9) for i, text in enumerate(row)) for row in rows]
    return lines + notes


def _modes(replayed: Replay) -> list[str]:
    """Per mode the tried pods, those that agree, and those that are known to differ; then why, the most frequent reason first."""
    rows: list[tuple[str, ...]] = [("mode", "asked", "agree", "known", "surprises")]
    reasons: list[str] = []
    for mode in Mode:
        told, known = replayed.verdicts_of(mode), REASONS[Run(replayed.version, mode)]
        differing = {place for place, one in told.items() if one.found}
        surprising = sum(bool(one.wrong) for one in told.values())
        counts = (len(told), len(told) - len(differing), len(differing & known.keys()), surprising)
        rows.append((f"parity: {'true' if mode is Mode.PARITY else 'false'}", *map(str, counts)))
        by_reason = Counter(known[place].why for place in differing & known.keys())
        reasons += ["", f"known differences, {rows[-1][0]}:"]
        reasons += [f"{count:5}  {why}" for why, count in by_reason.most_common()]
    return [f"{row[0]:50}" + "".join(f"  {text:>9}" for text in row[1:]) for row in rows] + reasons


async def _replay(version: str, recorded: Mapping[str, Recording]) -> Replay:
    result = await replay(version, scenarios(), recorded)
    for mutant in MUTANTS_OF_CACHES:
        await catch(mutant, scenarios(), recorded, result)
    return result


def main() -> int:
    logs.setup("text", verbosity=-1)
    for version in RECORDED:
        recorded = recordings.read(version)
        print(version, *table(recorded, asyncio.run(_replay(version, recorded))), "", sep="\n")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
