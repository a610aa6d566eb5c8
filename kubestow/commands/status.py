"""`kubestow status`: one screen about the running scheduler, from /readyz and /metrics of its leader."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from kubestow.commands.answers import (
    BacklogAnswer,
    InformersAnswer,
    LeaderAnswer,
    PluginCount,
    ProfileAnswer,
    RemarkAnswer,
    StatusAnswer,
    TroubleAnswer,
)
from kubestow.commands.pages import READYZ, DaemonPages, answered, read_pages
from kubestow.commands.prometheus_text import CONDITIONS, Samples
from scheduler.cli.cluster_commands import NO_ANSWER
from scheduler.cli.debug_request import Client
from scheduler.cli.leader import Leader
from scheduler.core.clock import SystemClock
from scheduler.core.errors import shortened
from scheduler.core.terminal import counted, printable

METRICS: Final = "/metrics"
_CAUSES_MAX: Final = 10
_ROWS_MAX: Final = 20
_CHECKS_MAX: Final = 200
_TEXT_BYTES_MAX: Final = 300
_CHECK: Final = re.compile(r"\[([+-])\]([^ ]+) (?:ok(?: \((.*)\))?|failed: (.*))")
_KINDS: Final = {
    "Node": "node",
    "Pod": "pod",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "volume claim",
    "ResourceSlice": "device slice",
    "ResourceClaim": "device claim",
}
"""Kinds whose number the text has, and its noun for them."""
_NAMES: Final = frozenset(
    {
        "kubestow_build_info",
        "process_start_time_seconds",
        "kubestow_profile_generation",
        "kubestow_watch_objects",
        "kubestow_devices_in_use",
        "scheduler_cache_size",
        "scheduler_pending_pods",
        "scheduler_unschedulable_pods",
        "scheduler_schedule_attempts_total",
        "kubestow_api_writes_waiting",
        "kubestow_recorder_queued_events",
        "kubestow_unforeseen_errors_total",
        *(each.metric for each in CONDITIONS),
    }
)


def status(arguments: argparse.Namespace) -> int:
    """Print the state of the scheduler. Return the exit code."""

    async def answer(client: Client) -> StatusAnswer:
        return status_of(await read_pages(client, (READYZ, METRICS)))

    found = answered(arguments, answer)
    if isinstance(found, int):
        return found
    if arguments.output == "json":
        sys.stdout.write(as_json(found))
    else:
        sys.stdout.write(status_text(found, SystemClock().wall()))
    return found.exit_code


def as_json(answer: msgspec.Struct) -> str:
    """Return an answer as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


def status_of(pages: DaemonPages) -> StatusAnswer:
    """Return the state that the pages show, whatever they contain."""
    troubles, remarks = _checks(pages.texts.get(READYZ, ""))
    unavailable = list(pages.missing.values())
    if not (troubles or remarks or READYZ in pages.missing or pages.texts[READYZ].startswith(("ok", "[+]"))):
        unavailable.append(f"the answer to GET {READYZ} is not a list of checks; is this the scheduler's port?")
    samples = None
    if METRICS in pages.texts:
        samples = Samples(pages.texts[METRICS], _NAMES)
        if samples.value("kubestow_build_info") is None:
            unavailable.append(f"the answer to GET {METRICS} has no kubestow_build_info; is this the scheduler's port?")
            samples = None
    if samples is not None:
        troubles += [trouble for each in CONDITIONS for trouble in each.troubles(samples)]
    code = 1 if troubles else NO_ANSWER if unavailable else 0
    base = StatusAnswer(
        healthy=not code,
        exit_code=code,
        leader=_leader(pages.leader),
        version=None,
        started=None,
        leads=None,
        profiles=None,
        informers=None,
        objects=None,
        devices_in_use=None,
        queue=None,
        causes=None,
        attempts=None,
        backlog=None,
        errors=None,
        troubles=tuple(troubles[:_CHECKS_MAX]),
        remarks=tuple(remarks),
        unavailable=tuple(unavailable),
    )
    return base if samples is None else _measured(base, samples)


def _leader(leader: Leader | None) -> LeaderAnswer | None:
    if leader is None:
        return None
    return LeaderAnswer(pod=str(leader), node=leader.node, since=leader.since, transitions=leader.transitions)


def _checks(text: str) -> tuple[list[TroubleAnswer], list[RemarkAnswer]]:
    """Return the checks of /readyz?verbose that fail, and those with a remark."""
    troubles, remarks = list[TroubleAnswer](), list[RemarkAnswer]()
    for line in text.splitlines()[:_CHECKS_MAX]:
        if (match := _CHECK.fullmatch(line)) is None:
            continue
        sign, name, remark, why = match.groups()
        if sign == "-":
            message = shortened(why or "", _TEXT_BYTES_MAX)
            troubles.append(TroubleAnswer(check=name, severity="critical", text=message, suffers=""))
        elif remark:
            remarks.append(RemarkAnswer(check=name, text=shortened(remark, _TEXT_BYTES_MAX)))
    return troubles, remarks


def _measured(base: StatusAnswer, samples: Samples) -> StatusAnswer:
    """Return the answer with the fields that the metrics have."""
    profiles = samples.sums("kubestow_profile_generation", "profile")
    synced = {each.labels.get("kind", ""): each.value for each in samples.of("kubestow_watch_synced")}
    plugins = samples.sums("scheduler_unschedulable_pods", "plugin")
    ranked = sorted(plugins.items(), key=lambda each: (-each[1], each[0]))
    oldest = samples.value("kubestow_assumed_oldest_seconds", {"state": "binding"})
    return msgspec.structs.replace(
        base,
        version=next(each.labels.get("version", "") for each in samples.of("kubestow_build_info")),
        started=samples.value("process_start_time_seconds"),
        leads=samples.value("kubestow_leading") == 1,
        profiles=tuple(ProfileAnswer(name=name, generation=count) for name, count in _first(profiles).items()),
        informers=InformersAnswer(
            kinds=len(synced),
            synced=sum(value == 1 for value in synced.values()),
            unsynced=tuple(sorted(kind for kind, value in synced.items() if value != 1)[:_ROWS_MAX]),
        ),
        objects=_first(samples.sums("kubestow_watch_objects", "kind"), _CHECKS_MAX),
        devices_in_use=_first(samples.sums("kubestow_devices_in_use", "kind")),
        queue=_first(samples.sums("scheduler_pending_pods", "queue")),
        causes=tuple(PluginCount(plugin=name, pods=pods) for name, pods in ranked[:_CAUSES_MAX] if pods > 0),
        attempts=_first(samples.sums("scheduler_schedule_attempts_total", "result")),
        backlog=BacklogAnswer(
            writes_waiting=int(samples.value("kubestow_api_writes_waiting") or 0),
            events_queued=int(samples.value("kubestow_recorder_queued_events") or 0),
            assumed_pods=int(samples.value("scheduler_cache_size", {"type": "assumed_pods"}) or 0),
            oldest_binding_s=oldest or 0.0,
        ),
        errors=_first(
            {name: count for name, count in samples.sums("kubestow_unforeseen_errors_total", "part").items() if count}
        ),
    )


def _first(counts: Mapping[str, int], most: int = _ROWS_MAX) -> dict[str, int]:
    return dict(sorted(counts.items())[:most])


# -- text ------------------------------------------------------------------------------------------------------------------


def status_text(answer: StatusAnswer, wall_s: float) -> str:
    """Return the answer for a terminal."""
    rows = [row for row in _rows(answer, wall_s) if row[1]]
    lines = [f"{name:<10} {value}" for name, value in rows]
    return printable("\n".join([*lines, *_remarks(answer)]) + "\n")


def _rows(answer: StatusAnswer, wall_s: float) -> Iterator[tuple[str, str]]:
    health = "healthy" if answer.healthy else "not healthy" if answer.troubles else "not known"
    yield "scheduler", ", ".join(filter(None, (health, answer.version and f"version {answer.version}")))
    if answer.started:
        yield "running", f"for {age_text(wall_s - answer.started)}"
    if answer.leader is not None:
        node = f" on node {answer.leader.node}" if answer.leader.node else ""
        yield "leader", f"{answer.leader.pod}{node}{_since(answer.leader, wall_s)}"
    elif answer.leads is not None:
        yield "leader", "this replica" if answer.leads else "another replica"
    if answer.profiles:
        yield (
            "profiles",
            ", ".join(
                f"{each.name} (SchedulerProfile of generation {each.generation})" if each.generation else each.name
                for each in answer.profiles
            ),
        )
    if answer.informers is not None:
        late = f"; not synced: {', '.join(answer.informers.unsynced)}" if answer.informers.unsynced else ""
        yield "informers", f"{answer.informers.synced} of {counted(answer.informers.kinds, 'kind')} synced{late}"
    if answer.objects is not None:
        objects = answer.objects
        yield "objects", ", ".join(counted(objects[kind], noun) for kind, noun in _KINDS.items() if kind in objects)
        yield "devices", _counts(answer.devices_in_use, suffix=" in use")
    yield "queue", _counts(answer.queue)
    if answer.causes:
        yield "rejected", ", ".join(f"{counted(each.pods, 'pod')} by {each.plugin}" for each in answer.causes)
    yield "attempts", _counts(answer.attempts)
    if answer.backlog is not None:
        waits = answer.backlog
        oldest = f", the oldest for {age_text(waits.oldest_binding_s)}" if waits.oldest_binding_s else ""
        writes = counted(waits.writes_waiting, "write")
        yield (
            "backlog",
            f"{writes}, {counted(waits.events_queued, 'event')}, {counted(waits.assumed_pods, 'assumed pod')}{oldest}",
        )
    yield "errors", _counts(answer.errors)


def _since(leader: LeaderAnswer, wall_s: float) -> str:
    try:
        held = f" for {age_text(wall_s - datetime.fromisoformat(leader.since).timestamp())}"
    except (ValueError, OverflowError):
        return ""
    return f"{held}, {counted(leader.transitions, 'change')} of the leader so far"


def _counts(counts: Mapping[str, int] | None, suffix: str = "") -> str:
    return ", ".join(f"{count} {name}{suffix}" for name, count in (counts or {}).items())


def _remarks(answer: StatusAnswer) -> Iterator[str]:
    for each in answer.troubles:
        yield f"{each.severity}: {each.check}: {each.text}{f'; suffers: {each.suffers}' if each.suffers else ''}"
    for remark in answer.remarks:
        yield f"note: {remark.check}: {remark.text}"
    for why in answer.unavailable:
        yield f"not read: {why}"


def age_text(seconds: float) -> str:
    """Return a time in at most two units, such as `2d3h` or `41s`. Negative ones count as 0."""
    rest = int(min(max(seconds, 0.0), 1e10))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, rest = divmod(rest, size)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount}{unit}")
        elif parts:
            break
    return "".join(parts[:2])
