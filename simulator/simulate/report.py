"""Print a simulation's outcome: tables for people, JSON for programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler.api.podinfo import CPU
from scheduler.core.decision_record import NodeScore
from scheduler.core.terminal import counted, printable
from scheduler.explain.answer import as_text
from scheduler.server.ui.page import SimulationResult, as_file
from simulator.simulate.answer import answer, nodes_needed_answer, orders_answer, pod_answer
from simulator.simulate.detail import Detail, NodeUse, PodDetail, PoolAnswer
from simulator.simulate.group_rows import GroupRow
from simulator.simulate.orders import OrderAnswer, Orders
from simulator.simulate.outcome import (
    NOTHING_TO_PLACE,
    TIME_RAN_OUT,
    Fill,
    Outcome,
    Placement,
    Victim,
    WorkloadRow,
    examples,
)
from simulator.simulate.planning.difference import Difference, lines
from simulator.simulate.planning.nodes_needed import NodesNeeded

ROWS: Final = 40
"""With more pods than this, the rest is summed up."""
PLACED_MAX: Final = 5000
"""Placed pods in an HTML file."""
PROBLEMS: Final = 10
"""This many pods that were expected to be pending, and are not, are named one by one."""


class ReportConsole(Console):
    """A console that raises BrokenPipeError if the reader has gone, instead of ending the program with code 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error again. rich calls this while it handles the error."""
        raise  # noqa: PLE0704 (the error is being handled)


def as_json(outcome: Outcome, difference: Difference | None = None) -> str:
    """Return one indented JSON object."""
    return msgspec.json.format(msgspec.json.encode(answer(outcome, difference)), indent=2).decode()


def orders_as_json(found: Orders) -> str:
    """Return one indented JSON object with the outcome of each seed."""
    return msgspec.json.format(msgspec.json.encode(orders_answer(found)), indent=2).decode() + "\n"


def nodes_needed_as_json(found: NodesNeeded) -> str:
    """Return one indented JSON object with the number of nodes and the simulations."""
    return msgspec.json.format(msgspec.json.encode(nodes_needed_answer(found)), indent=2).decode() + "\n"


def orders_as_text(found: Orders) -> str:
    """Return in how many orders everything fits, and what does not fit in the rest, most frequent first."""
    alike: dict[str, list[int]] = {}
    for each in found.orders:
        if not each.ok:
            alike.setdefault(_unfit(each), []).append(each.seed)
    lines = [f"fits in {found.fits} of {counted(len(found.orders), 'order')} of ties"]
    for text, seeds in sorted(alike.items(), key=lambda item: -len(item[1]))[:PROBLEMS]:
        named = ", ".join(map(str, seeds[:PROBLEMS])) + (", …" if len(seeds) > PROBLEMS else "")
        lines.append(f"{counted(len(seeds), 'order')} (--seed {named}): {text}")
    if len(alike) > PROBLEMS:
        lines.append(f"… and {len(alike) - PROBLEMS} more; all of them with -o json")
    return printable("\n".join(lines)) + "\n"


def _unfit(each: OrderAnswer) -> str:
    more = f" (and {len(each.problems) - 1} more)" if len(each.problems) > 1 else ""
    return f"{each.placed} of {counted(each.pods, 'pod')} placed; {' '.join(each.problems[0].split())}{more}"


def as_html(outcome: Outcome) -> bytes:
    """Return the page /ui with the data of the simulation inside."""
    assert outcome.pages is not None
    assert outcome.detail is not None
    problems, used = outcome.problems, outcome.detail.pods
    placed = [each for each in outcome.placements if each.node]
    shown = problems[:ROWS] + ([f"… and {len(problems) - ROWS} more"] if len(problems) > ROWS else [])
    result = SimulationResult(
        text=". ".join(line.plain for line in _closing(outcome, is_brief=True)) + ".",
        problems=shown,
        placed=len(placed),
        placements=[pod_answer(each, used.get(each.pod, PodDetail())) for each in placed[:PLACED_MAX]],
    )
    return as_file(outcome.pages, outcome.explanations, result)


def as_table(outcome: Outcome, console: Console, difference: Difference | None = None) -> None:
    """Print pods, workloads and nodes; then the difference that changes make; times and verdict come last.

    On a terminal: tables, with the first `ROWS` placed pods, and pending pods by reason. In a pipe: one line per pod,
    which is never folded. Each pod is named once.
    """
    if console.is_terminal:
        _print_tables(outcome, console)
    else:
        for line in _lines(outcome):
            console.print(plain(line), soft_wrap=True)
    if outcome.detail is not None:
        for line in _detail_lines(outcome, outcome.detail, most=ROWS if console.is_terminal else None):
            console.print(plain(line), soft_wrap=True)
    for each in outcome.explanations:
        console.print(Text(f"\n{as_text(each)}"), soft_wrap=True)
    if difference is not None:
        for line in lines(difference, ROWS if console.is_terminal else None):
            console.print(plain(line), soft_wrap=True)
    for text in _closing(outcome):
        console.print(text, soft_wrap=not console.is_terminal)


def _print_tables(outcome: Outcome, console: Console) -> None:
    placed = tuple(each for each in outcome.placements if each.node)
    shown = _some(placed)
    if shown:
        console.print(_placed(shown))
    if len(shown) < len(placed):
        console.print(f"… and {len(placed) - len(shown)} more; all of them with -o json")
    if outcome.placed < len(outcome.placements):
        console.print(_reasons(outcome))
    if rows := [each for each in outcome.workloads if each.is_notable]:
        console.print(_workloads(rows[:ROWS]))
    if groups := sorted((each for each in outcome.groups if each.is_notable), key=lambda each: each.is_started):
        console.print(_groups(groups[:ROWS]))
    if len(groups) > ROWS:
        console.print(f"… and {len(groups) - ROWS} more; all of them with -o json")
    if outcome.victims:
        console.print(_victims(outcome.victims[:ROWS]))
    if len(outcome.victims) > ROWS:
        console.print(f"… and {len(outcome.victims) - ROWS} more; all of them with -o json")
    console.print(_fills(outcome.fills))


def _lines(outcome: Outcome) -> Iterator[str]:
    """Yield `pod node` or `pod - reason`, then a line per group, and per workload whose pods were created, deleted or ignored."""
    width = max((len(each.pod) for each in outcome.placements), default=0)
    for each in outcome.placements:
        why = each.message or each.reason
        yield f"{each.pod:{width}}  {each.node}" if each.node else f"{each.pod:{width}}  -  {' '.join(why.split())}"
    for group in outcome.groups:
        if group.is_notable:
            yield f"group {group.group.key}  {group.summary}"
    for row in outcome.workloads:
        if row.is_notable:
            yield f"{row.workload}: {row.summary}"
    for victim in outcome.victims:
        yield f"{victim.pod} on {victim.node} was preempted for {victim.preemptor or 'a pod that is not recorded'}"


# -- wide ----------------------------------------------------------------------------------------------------------------


def _detail_lines(outcome: Outcome, found: Detail, *, most: int | None) -> Iterator[str]:
    """Yield the lines of `-o wide`: of the first `most` placed pods and nodes, None for all."""
    placed = [each for each in outcome.placements if each.node]
    for each in placed[:most]:
        yield from ("", f"{each.pod} on {each.node}")
        yield from _pod_lines(found.pods.get(each.pod, PodDetail()))
    if len(placed[:most]) < len(placed):
        yield f"… and {counted(len(placed) - len(placed[:most]), 'more pod')}; all of them with -o json"
    for node in found.nodes[:most]:
        yield from ("", f"node {node.node}: " + ", ".join(_amounts(node)))
        yield from _node_lines(node)
    if len(found.nodes[:most]) < len(found.nodes):
        yield f"… and {counted(len(found.nodes) - len(found.nodes[:most]), 'more node')}; all of them with -o json"
    if found.pools:
        yield from ("", "device pools of no single node:")
        yield from _pool_lines(found.pools)
    yield ""


def _pod_lines(used: PodDetail) -> Iterator[str]:
    for volume in used.volumes:
        where = [f"class {volume.storage_class}" if volume.storage_class else "no class", volume.capacity]
        where += [" or ".join(map(_segment, volume.segments)) or "every node reaches it"]
        where += [f"pool {volume.pool}"] if volume.pool else []
        yield f"  volume {volume.volume} of claim {volume.claim}: {', '.join(where)}"
    for device in used.devices:
        part = "".join(f", {amount} of its {name}" for name, amount in device.consumed.items())
        admin = ", with admin access" if device.has_admin_access else ""
        name = f"{device.driver}/{device.pool}/{device.device}"
        yield f"  device {name} for request {device.request} of claim {device.claim}{part}{admin}"
    if used.chosen is None:
        yield "  no other node was compared"
        return
    yield f"  score {_score(used.chosen)}"
    if used.runner_up is not None:
        tie = " (a tie)" if used.runner_up.total == used.chosen.total else ""
        yield f"  runner-up {used.runner_up.node}: score {_score(used.runner_up)}{tie}"


def _segment(labels: Mapping[str, Sequence[str]]) -> str:
    return " and ".join(f"{name}={'|'.join(values)}" for name, values in labels.items())


def _score(found: NodeScore) -> str:
    parts = sorted(found.parts.items(), key=lambda part: (-part[1], part[0]))
    return f"{found.total} = " + " + ".join(f"{score} {plugin}" for plugin, score in parts if score)


def _amounts(node: NodeUse) -> Iterator[str]:
    for use in node.resources:
        yield f"{use.resource} {use.requested} of {use.allocatable}"


def _node_lines(node: NodeUse) -> Iterator[str]:
    for use in node.attachments:
        yield f"  attach slots of {use.driver}: {use.used} of {use.limit} used"
    for storage in node.storage:
        yield f"  storage of class {storage.storage_class}: {storage.free} free in pool {storage.pool}"
    yield from _pool_lines(node.pools)


def _pool_lines(pools: Iterable[PoolAnswer]) -> Iterator[str]:
    for pool in pools:
        yield f"  devices of {pool.driver}/{pool.pool}: {pool.used} of {pool.devices} used, {pool.free} free"
        for use in pool.shared:
            yield f"    {use.device}: {use.used} of {use.of} {use.capacity} used"


def _some(placements: tuple[Placement, ...]) -> list[Placement]:
    """Return all placements, or `ROWS` of them in the order of the input, with a share for each workload."""
    if len(placements) <= ROWS:
        return list(placements)
    workloads: dict[str, list[int]] = {}
    for at, each in enumerate(placements):
        workloads.setdefault(each.owner, []).append(at)
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*workloads.values()))
    return [placements[at] for at in sorted(itertools.islice((at for at in in_turn if at is not None), ROWS))]


def plain(text: str, style: str = "") -> Text:
    """Return a text of which rich takes nothing for markup or an emoji: names and paths may have `[/x]` or `:on:`."""
    return Text(printable(text), style)


def _placed(placements: list[Placement]) -> Table:
    table = Table("pod", "node")
    for each in placements:
        table.add_row(plain(each.pod), plain(each.node))
    return table


def _workloads(rows: list[WorkloadRow]) -> Table:
    table = Table("workload", "replicas", "existing", "created", "deleted", "ignored", "why")
    for each in rows:
        counts = (each.existing, each.created, len(each.deleted), each.ignored)
        replicas = "" if each.replicas is None else str(each.replicas)
        table.add_row(plain(each.workload), replicas, *map(str, counts), plain(each.reason))
    return table


def _groups(rows: list[GroupRow]) -> Table:
    table = Table("group", "pods", "placed", "starts with", "why")
    for each in rows:
        least = "" if each.least is None else str(each.least)
        table.add_row(plain(each.group.key), str(each.pods), str(each.placed), least, plain(each.message))
    return table


def _reasons(outcome: Outcome) -> Table:
    table = Table("pending", "why", "which", "expected")
    for why, pods in outcome.pending_by_reason():
        unexpected = sum(1 for each in pods if not each.is_expected_pending)
        expected = Text("yes", "green") if not unexpected else Text(f"{unexpected} not", "red")
        table.add_row(str(len(pods)), plain(why), plain(examples(pods)), expected)
    return table


def _victims(victims: tuple[Victim, ...]) -> Table:
    table = Table("preempted", "priority", "on node", "for", "priority", "now on node")
    for each in victims:
        table.add_row(
            plain(each.pod),
            str(each.priority),
            plain(each.node),
            plain(each.preemptor or "not recorded"),
            "" if each.preemptor_priority is None else str(each.preemptor_priority),
            plain(each.preemptor_node or "none"),
        )
    return table


def _fills(fills: tuple[Fill, ...]) -> Table:
    table = Table("resource", "requested", "of", "share", "fullest node", "emptiest node")
    for each in fills:
        table.add_row(
            plain(each.resource),
            _amount(each.resource, each.requested),
            _amount(each.resource, each.allocatable),
            f"{each.share:.0%}",
            plain(f"{each.fullest[0]} {each.fullest[1]:.0%}"),
            plain(f"{each.emptiest[0]} {each.emptiest[1]:.0%}"),
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


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _closing(outcome: Outcome, *, is_brief: bool = False) -> list[Text]:
    """Return the lines after the tables; with `is_brief` without the problems."""
    timing, placed = outcome.timing, outcome.placed
    pods, nodes = counted(len(outcome.placements), "pod"), counted(outcome.nodes, "node")
    took = f"{placed} of {pods} placed on {nodes} in {timing.total_s:.2f} s"
    rate = timing.rate(placed)
    lines = [plain(took if rate is None else f"{took}, {rate:.0f} pods/s")]
    if outcome.victims:
        preemptors = len({each.preemptor for each in outcome.victims})
        were = "was" if len(outcome.victims) == 1 else "were"
        victims = counted(len(outcome.victims), "pod")
        lines.append(plain(f"{victims} {were} preempted for {counted(preemptors, 'pod')}"))
    if outcome.bound_before:
        lines.append(plain(f"{counted(outcome.bound_before, 'pod')} had a node already"))
    if outcome.left_alone:
        lines.append(plain(f"left alone, because they name another scheduler: {counted(outcome.left_alone, 'pod')}"))
    if outcome.left_out:
        foreign = {kind: count for kind, count in outcome.left_out.items() if "." in kind}
        native = {kind: count for kind, count in outcome.left_out.items() if "." not in kind}
        if native:
            lines.append(plain(f"scheduling does not look at {_kinds(native)}"))
        if foreign:
            lines.append(
                plain(f"controllers of custom resources do not run here and create no pods: {_kinds(foreign)}")
            )
    if not outcome.is_settled:
        lines.append(plain(TIME_RAN_OUT, "red"))
    if is_brief:
        return lines
    if outcome.is_empty:
        lines.append(plain(NOTHING_TO_PLACE, "red"))
    unexpected = [each for each in outcome.placements if each.problem]
    pending = sum(1 for each in unexpected if not each.node)
    if pending:
        lines.append(plain(f"pending and not expected to be (--expect-pending): {counted(pending, 'pod')}", "red"))
    shown = [each.problem for each in unexpected if each.node]
    shown += [f"{pod} is gone: {why}" for pod, why in outcome.abandoned.items()]
    lines += [plain(problem, "red") for problem in shown[:PROBLEMS]]
    if len(shown) > PROBLEMS:
        lines.append(plain(f"… and {len(shown) - PROBLEMS} more", "red"))
    return lines
