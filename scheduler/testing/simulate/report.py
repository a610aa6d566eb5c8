"""A simulation's outcome for people (tables) and for programs (JSON)."""

from __future__ import annotations

import itertools
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler.api.podinfo import CPU
from scheduler.testing.simulate.outcome import Fill, Outcome, Placement, Victim, examples

ROWS: Final = 40
"""More pods than this are listed up to here, and summed up."""
PROBLEMS: Final = 10
"""As many surprises are spelled out; the table of pending pods counts the others."""


def as_json(outcome: Outcome) -> str:
    """One object, indented."""
    return msgspec.json.format(msgspec.json.encode(outcome.to_dict()), indent=2).decode()


def as_table(outcome: Outcome, console: Console) -> None:
    """Pod → node or why not; who went for whom; how full the nodes are; timing and verdict last, where the eye ends."""
    shown = _some(outcome.placements)
    console.print(_pods(shown))
    if len(shown) < len(outcome.placements):
        console.print(f"… and {len(outcome.placements) - len(shown)} more; all of them with -o json")
    if outcome.placed < len(outcome.placements):
        console.print(_reasons(outcome))
    if outcome.victims:
        console.print(_victims(outcome.victims[:ROWS]))
    if len(outcome.victims) > ROWS:
        console.print(f"… and {len(outcome.victims) - ROWS} more; all of them with -o json")
    console.print(_fills(outcome.fills))
    for line in _closing(outcome):
        console.print(line)


def _some(placements: tuple[Placement, ...]) -> list[Placement]:
    """All of them, or `ROWS` in the order of the input, of which each workload has its share."""
    if len(placements) <= ROWS:
        return list(placements)
    workloads: dict[str, list[int]] = {}
    for at, each in enumerate(placements):
        workloads.setdefault(each.owner, []).append(at)
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*workloads.values()))
    return [placements[at] for at in sorted(itertools.islice((at for at in in_turn if at is not None), ROWS))]


def _pods(placements: list[Placement]) -> Table:
    table = Table("pod", "node, or why not")
    for each in placements:
        table.add_row(Text(each.pod), Text(each.node) if each.node else Text(each.message or each.reason, "yellow"))
    return table


def _reasons(outcome: Outcome) -> Table:
    table = Table("pending", "why", "which", "expected")
    for why, pods in outcome.pending_by_reason():
        unexpected = sum(1 for each in pods if not each.is_expected_pending)
        expected = Text("yes", "green") if not unexpected else Text(f"{unexpected} not", "red")
        table.add_row(str(len(pods)), Text(why), Text(examples(pods)), expected)
    return table


def _victims(victims: tuple[Victim, ...]) -> Table:
    table = Table("preempted", "priority", "on node", "for", "priority", "now on node")
    for each in victims:
        table.add_row(
            Text(each.pod),
            str(each.priority),
            Text(each.node),
            Text(each.preemptor or "not recorded"),
            "" if each.preemptor_priority is None else str(each.preemptor_priority),
            Text(each.preemptor_node or "none"),
        )
    return table


def _fills(fills: tuple[Fill, ...]) -> Table:
    table = Table("resource", "requested", "of", "share", "fullest node", "emptiest node")
    for each in fills:
        table.add_row(
            each.resource,
            _amount(each.resource, each.requested),
            _amount(each.resource, each.allocatable),
            f"{each.share:.0%}",
            Text(f"{each.fullest[0]} {each.fullest[1]:.0%}"),
            Text(f"{each.emptiest[0]} {each.emptiest[1]:.0%}"),
        )
    return table


def _amount(resource: str, amount: int) -> str:
    if resource == CPU:
        return f"{amount / 1000:g}"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for exponent, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if amount >= 1024**exponent:
                return f"{amount / 1024**exponent:.4g}{unit}"
    return str(amount)


def _closing(outcome: Outcome) -> list[Text]:
    timing, placed = outcome.timing, outcome.placed
    took = f"{placed} of {len(outcome.placements)} pods placed on {outcome.nodes} nodes in {timing.total_s:.2f} s"
    if timing.first_s is not None and timing.last_s is not None:
        took += f": the first after {timing.first_s:.2f} s, the last after {timing.last_s:.2f} s"
        rate = timing.rate(placed)
        took += "" if rate is None else f", {rate:.0f} pods/s"
    lines = [Text(took)]
    if outcome.victims:
        preemptors = len({each.preemptor for each in outcome.victims})
        lines.append(Text(f"{len(outcome.victims)} pods were preempted, for {preemptors} others"))
    if outcome.bound_before:
        lines.append(Text(f"{outcome.bound_before} pods had a node already"))
    if outcome.left_alone:
        lines.append(Text(f"{outcome.left_alone} pods name another scheduler and were left alone"))
    if outcome.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.left_out.items()))
        lines.append(Text(f"scheduling does not look at {kinds}"))
    if not outcome.is_settled:
        lines.append(Text("the time ran out before the scheduler had come to rest (--timeout)", "red"))
    shown = outcome.problems[:PROBLEMS]
    lines += [Text(problem, "red") for problem in shown]
    if len(outcome.problems) > len(shown):
        lines.append(Text(f"… and {len(outcome.problems) - len(shown)} more", "red"))
    return lines
