"""`kubestow queue`: the pods that wait, in the order in which the scheduler will try them, from /debug/queue."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from kubestow.commands.answers import QueueAnswer, WaitingPod
from kubestow.commands.pages import answered, read_pages
from kubestow.commands.status import age_text, as_json
from scheduler.cli.debug_request import Client
from scheduler.cli.leader import NoAnswer, one_line
from scheduler.core.terminal import counted, printable

QUEUE: Final = "/debug/queue"
_PLACES: Final = ("in flight", "active", "backoff", "error backoff", "unschedulable", "gated")
_NOWHERE: Final = "nowhere"
"""The place of a pod that has left the queue."""
_RANKS: Final = {place: rank for rank, place in enumerate(_PLACES)}
"""A pod that backs off after a rejection is tried early if no active pod is left, and one after an error is not."""
_HEADS: Final = ("POD", "PLACE", "ATTEMPTS", "AGE", "RETRY", "REJECTED BY", "NOMINATED TO")


class EntryRead(msgspec.Struct, frozen=True):
    """A row of /debug/queue. Times are in seconds."""

    key: str
    place: str
    attempts: int = 0
    plugins: tuple[str, ...] = ()
    nominated_to: str = ""
    retry_s: float | None = None
    created: str = ""
    order: tuple[float, ...] = ()


class QueueRead(msgspec.Struct, frozen=True):
    """The page /debug/queue."""

    entries: tuple[EntryRead, ...]
    leads: bool = True
    """An older scheduler does not say it."""


def queue(arguments: argparse.Namespace) -> int:
    """Print the queue. Return the exit code."""

    async def answer(client: Client) -> QueueAnswer:
        pages = await read_pages(client, (QUEUE,))
        return queue_of(
            pages.texts[QUEUE], client.clock.wall(), namespace=arguments.namespace or "", limit=arguments.limit
        )

    found = answered(arguments, answer)
    if isinstance(found, int):
        return found
    sys.stdout.write(as_json(found) if arguments.output == "json" else queue_text(found))
    return 0


def queue_of(page: str, wall_s: float, *, namespace: str, limit: int) -> QueueAnswer:
    """Return the first `limit` pods of a namespace, or of all (""). Raises NoAnswer for a page that is none."""
    try:
        read = msgspec.json.decode(page, type=QueueRead)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise NoAnswer(
            f"the answer to GET {QUEUE} cannot be read: {one_line(str(error))}; is the scheduler of this version?"
        ) from error
    entries = [each for each in read.entries if each.place != _NOWHERE]
    counts = dict.fromkeys(_PLACES, 0) | Counter(each.place for each in entries)
    wanted = [each for each in entries if not namespace or each.key.startswith(f"{namespace}/")]
    wanted.sort(key=_tried)
    pods = tuple(_waiting(each, wall_s) for each in wanted[:limit])
    return QueueAnswer(leads=read.leads, counts=counts, total=len(wanted), pods=pods)


def _tried(entry: EntryRead) -> tuple[object, ...]:
    """Return the key of the order in which pods are tried if no event comes. Places of a newer scheduler come last."""
    is_timed = entry.place not in {"in flight", "active"}
    retry_s = entry.retry_s if entry.retry_s is not None and is_timed else 0.0
    return _RANKS.get(entry.place, len(_RANKS)), retry_s, entry.order, entry.created, entry.key


def _waiting(entry: EntryRead, wall_s: float) -> WaitingPod:
    return WaitingPod(
        pod=entry.key,
        place=entry.place,
        attempts=entry.attempts,
        age_s=_age_s(entry.created, wall_s),
        retry_s=None if entry.retry_s is None else round(entry.retry_s, 1),
        plugins=entry.plugins,
        nominated_to=entry.nominated_to,
    )


def _age_s(created: str, wall_s: float) -> float | None:
    try:
        return round(max(0.0, wall_s - datetime.fromisoformat(created).timestamp()), 1)
    except (ValueError, OverflowError):
        return None


def queue_text(answer: QueueAnswer) -> str:
    """Return the answer for a terminal."""
    counts = ", ".join(f"{count} {place}" for place, count in answer.counts.items() if count)
    lines = [] if answer.leads else ["this replica does not lead and tries no pod: read the queue of the leader"]
    lines.append(counts or "no pod waits")
    if answer.pods:
        lines += ["", *_table([_HEADS, *map(_cells, answer.pods)])]
    if len(answer.pods) < answer.total:
        lines.append(f"… and {counted(answer.total - len(answer.pods), 'more pod')}; --limit N prints more")
    return printable("\n".join(lines) + "\n")


def _cells(each: WaitingPod) -> tuple[str, ...]:
    age = "" if each.age_s is None else age_text(each.age_s)
    retry = "" if each.retry_s is None else f"in {age_text(each.retry_s)}"
    return each.pod, each.place, str(each.attempts), age, retry, ",".join(each.plugins), each.nominated_to


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
