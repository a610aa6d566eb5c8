"""What a profile does otherwise than another, in a line that people read: `score: NodeResourcesFit 1→5, -ImageLocality`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.config.plugins import POINTS, Resolved
from scheduler.config.types import PluginRef, Profile


def changes(before: tuple[Profile, Resolved], after: tuple[Profile, Resolved]) -> str:
    """Points in their order, then arguments, then percentageOfNodesToScore; "" where nothing differs."""
    (old, old_lists), (new, new_lists) = before, after
    parts = [
        f"{point}: {', '.join(listed)}"
        for point in POINTS
        if (listed := list(_differences(point, old_lists.points.get(point, ()), new_lists.points.get(point, ()))))
    ]
    args = sorted(name for name in {*old.args, *new.args} if old.args.get(name) != new.args.get(name))
    if args:
        parts.append(f"args: {', '.join(args)}")
    if old.percentage_of_nodes_to_score != new.percentage_of_nodes_to_score:
        parts.append(f"percentageOfNodesToScore: {new.percentage_of_nodes_to_score}")
    return "; ".join(parts)


def _differences(point: str, old: Sequence[PluginRef], new: Sequence[PluginRef]) -> Iterable[str]:
    was, is_now = ({ref.name: ref.weight for ref in refs} for refs in (old, new))
    for name, weight in is_now.items():
        if name not in was:
            yield f"+{name} {weight}" if weight else f"+{name}"
        elif was[name] != weight:
            yield f"{name} {was[name]}→{weight}"
    yield from (f"-{name}" for name in was if name not in is_now)
    stayed = [name for name in was if name in is_now]
    if point != "score" and stayed != [name for name in is_now if name in was]:  # a sum has no order
        yield "in another order"
