"""The proof of fixes over many random clusters: `python -m tests.explained [--real] [--seeds 0-100] [--only KIND]`.

Without `--real` the API server is the one in this process, and each answer is compared with exhaustive search. With it, each fix is
applied to a real kube-apiserver. `--results FILE` adds one line of JSON per kind. `--table FILE` only prints such lines as a table.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scheduler.metrics import logs
from tests.e2e.controlplane.build import VERSION, Unavailable
from tests.e2e.controlplane.harness import ControlPlane
from tests.explained.bench import Bench
from tests.explained.causes import KINDS, planted
from tests.explained.proof import Proof, in_process, on, prove, summed


@asynccontextmanager
async def _bench(*, is_real: bool) -> AsyncIterator[Bench]:
    if is_real:
        async with ControlPlane(volume_resync_s=1) as plane, on(plane) as bench:
            yield bench
    else:
        async with in_process() as bench:
            yield bench


async def run(kinds: Sequence[str], seeds: range, *, is_real: bool, within_s: float) -> AsyncIterator[Proof]:
    """Yield the proof of each kind with each seed, seed by seed; no seed begins after this time."""
    began = time.monotonic()
    async with _bench(is_real=is_real) as bench:
        for seed in seeds:
            if time.monotonic() - began > within_s:
                return
            for kind in kinds:
                yield await prove(bench, planted(kind, seed), exhaustively=not is_real)


def lines(found: Sequence[Proof], *, is_real: bool) -> list[dict[str, object]]:
    """Return the sums of each kind."""
    where = f"kube-apiserver {VERSION}" if is_real else "in-process API server"
    kinds = dict.fromkeys(each.kind for each in found)
    return [
        {"at": time.time(), "server": where, "kind": kind, "is_exhaustive": not is_real}
        | dataclasses.asdict(summed(each for each in found if each.kind == kind))
        for kind in kinds
    ]


async def _collected(kinds: Sequence[str], seeds: range, *, is_real: bool, within_s: float) -> list[Proof]:
    found = []
    async for each in run(kinds, seeds, is_real=is_real, within_s=within_s):
        found.append(each)
        for text in problems(each):
            print(text, flush=True)  # noqa: T201
    return found


def problems(proof: Proof) -> list[str]:
    """Return what is wrong in one cluster."""
    named = ("fails", "missing", "not_minimal", "too_much")
    is_right = proof.base_fits and proof.is_planted
    texts = [f"{name}: {text}" for name in named for text in getattr(proof, name)]
    return texts if is_right else [*texts, f"not planted: {proof.kind}"]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results as a table of Markdown: a row for each kind."""
    exhaustive, real = (
        {row["kind"]: row for row in rows if row["is_exhaustive"] is wanted} for wanted in (True, False)
    )
    out = [
        "| planted cause | clusters | fixes | that work | found | minimal | least amounts | on kube-apiserver: clusters | fixes | that work |",
        "| --- " * 10 + "|",
    ]
    out += [_row(kind, row, real.get(kind, {})) for kind, row in exhaustive.items()]
    keys = [key for key, value in next(iter(exhaustive.values())).items() if type(value) is int]
    sums = [{key: sum(row[key] for row in part.values()) for key in keys} for part in (exhaustive, real)]
    return "\n".join([*out, _row("all", *sums)])


def _row(kind: str, row: dict[str, Any], real: dict[str, Any]) -> str:
    first = max(row["first_fixes"], 1)
    cells = [
        *(kind, row["clusters"], row["shown"], _percent(row["fails"], row["shown"])),
        *(
            _percent(row["missing"], row["solvable"]),
            _percent(row["not_minimal"], first),
            _percent(row["too_much"], first),
        ),
        *((real["clusters"], real["shown"], _percent(real["fails"], real["shown"])) if real else ("", "", "")),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _percent(bad: int, of: int) -> str:
    return f"{math.floor(1000 * (1 - bad / max(of, 1))) / 10} %" if bad else "100 %"


def main() -> int:
    """Return 0 if all fixes worked."""
    logs.setup("text", verbosity=-1)
    parser = argparse.ArgumentParser(prog="python -m tests.explained")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--seeds", default="0-100", metavar="FROM-TO")
    parser.add_argument("--only", default="", metavar="KIND")
    parser.add_argument("--within", type=float, default=86400.0, metavar="SECONDS")
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.table:
        print(table([json.loads(line) for line in given.table.read_text().splitlines()]))  # noqa: T201
        return 0
    first, end = map(int, given.seeds.split("-"))
    kinds = [kind for kind in KINDS if given.only in kind]
    try:
        found = asyncio.run(_collected(kinds, range(first, end), is_real=given.real, within_s=given.within))
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    rows = lines(found, is_real=given.real)
    for row in rows:
        print(json.dumps(row))  # noqa: T201
    if given.results:
        with given.results.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    sums = summed(found)
    print(f"{sums} found {sums.found_share:.4f} minimal {sums.minimal_share:.4f}")  # noqa: T201
    return 1 if sums.fails else 0


if __name__ == "__main__":
    sys.exit(main())
