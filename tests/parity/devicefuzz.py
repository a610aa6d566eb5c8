"""Compares our device allocator with upstream's on random cases; `python -m tests.parity.fuzz devices <from> <to>`.

With `parity: true` ours must give the same devices to each request in the same order, the same configuration and node selector,
and the same texts of errors. With the defaults ours must give devices exactly where upstream does, and upstream must accept the
devices that ours gives. `devicedefects` has the differences that are known.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from scheduler.api.quantity import parse
from scheduler.plugins.dra.structured.allocator import CAREFUL_STEPS
from tests.parity.devicecases import DeviceCase, drawn
from tests.parity.devicedefects import CORRECTIONS, corrected, only, read, without_spare
from tests.parity.deviceoracle import process
from tests.parity.deviceoracle.process import AllocatorAnswer, DeviceOracle
from tests.parity.ourdevices import OurDevices
from tests.parity.words import Json
from tests.support import deviceinvariants

MODES: Final = {"parity": True, "default": False}
_DEEP: Final = "an error that is met after more than 500 devices is not looked for (docs/spec/dra.md §4.5)"
_NOT_UNDERSTOOD: Final = "unsupported attribute value"
_LAWS: Final = (
    deviceinvariants.devices_taken_twice,
    deviceinvariants.capacity_overdrawn,
    deviceinvariants.counters_overdrawn,
    deviceinvariants.out_of_reach,
)


class Differences:
    """One case at a time: what differs on each node, and why if it is known."""

    def __init__(self, oracle: DeviceOracle) -> None:
        self._oracle = oracle
        self.told = Counter[str]()

    def of(self, case: DeviceCase) -> Iterator[str]:
        """A sentence for each node and mode that differs and may not."""
        self.told["cases"] += 1
        theirs = self._oracle.answers(case)
        ours = {mode: OurDevices(case, parity=parity).answers() for mode, parity in MODES.items()}
        for node, answer in theirs.items():
            self.told[fate(answer)] += 1
            for mode, parity in MODES.items():
                own = ours[mode][node]
                found = self._on_node(case, node, answer, own, parity=parity)
                if not found:
                    continue
                why = self.excuse(case, node, answer, own, parity=parity)
                self.told[f"known: {why}" if why else "differences"] += 1
                if not why:
                    yield f"{case.id}: {node} [{mode}]: " + "; ".join(found)

    def _on_node(
        self, case: DeviceCase, node: str, theirs: AllocatorAnswer, ours: AllocatorAnswer, *, parity: bool
    ) -> list[str]:
        found = differences(theirs, ours, is_exact=parity)
        if not parity and ours.allocations is not None and theirs.allocations is not None:
            found += _broken_laws(case, ours.allocations)
            if _sets(theirs.allocations) != _sets(ours.allocations):
                found += self._not_accepted(case, node, ours.allocations)
        return found

    def _wrong(self, case: DeviceCase, node: str, allocations: Sequence[Json]) -> list[str]:
        """What the laws and upstream have against these allocations."""
        return _broken_laws(case, allocations) + self._not_accepted(case, node, allocations)

    def _not_accepted(
        self, case: DeviceCase, node: str, allocations: Sequence[Json], variants: Sequence[str] = ()
    ) -> list[str]:
        told = self._oracle.answers(only(case, node, allocations), variants=variants)[node]
        if told.error.endswith(_NOT_UNDERSTOOD):
            self.told["judged by the laws alone"] += 1
            return []
        self.told["accepted by upstream"] += 1
        if told.allocations is not None and _sets(told.allocations) == _sets(allocations):
            return []
        return [f"upstream does not accept {listed(allocations)}, and {_described(told)}"]

    def excuse(
        self, case: DeviceCase, node: str, theirs: AllocatorAnswer, ours: AllocatorAnswer, *, parity: bool
    ) -> str:
        """Why ours may differ here; "" if it may not."""
        if theirs.timed_out:
            is_wrong = ours.allocations is not None and self._wrong(case, node, ours.allocations)
            return "" if is_wrong else "upstream times out"
        if theirs.error and not theirs.on_node and ours.steps >= CAREFUL_STEPS:
            return _DEEP
        names = [name for name, one in CORRECTIONS.items() if not (parity and one.in_parity)]
        names = [name for name in names if corrected(case, node, [name]) is not None]
        for count in range(1, len(names) + 1):
            for some in itertools.combinations(names, count):
                if not self._differs_without(case, node, ours, some, parity=parity):
                    return " and ".join(CORRECTIONS[name].why for name in some)
        return ""

    def _differs_without(
        self, case: DeviceCase, node: str, ours: AllocatorAnswer, names: Sequence[str], *, parity: bool
    ) -> list[str]:
        put = corrected(case, node, names)
        assert put is not None
        variants = next((CORRECTIONS[name].variants for name in names if CORRECTIONS[name].variants), ())
        theirs = _read(self._oracle.answers(put, variants=variants)[node], names)
        has_config = not any(CORRECTIONS[name].drops_config for name in names)
        found = differences(theirs, ours, is_exact=parity, has_config=has_config)
        if found or parity or ours.allocations is None:
            return found
        broken = _broken_laws(case, ours.allocations)
        if any(CORRECTIONS[name].renames for name in names):
            return broken
        return broken + self._not_accepted(put, node, ours.allocations, variants)


# -- answers -----------------------------------------------------------------------------------------------------------


def fate(answer: AllocatorAnswer) -> str:
    if answer.timed_out:
        return "timed out"
    if answer.error:
        return "unfit with an error" if answer.on_node else "errors"
    return "allocated" if answer.allocations is not None else "unfit"


def differences(
    theirs: AllocatorAnswer, ours: AllocatorAnswer, *, is_exact: bool, has_config: bool = True
) -> list[str]:
    """Of two answers for one node. Not `is_exact`: any devices will do."""
    if (theirs.allocations is None, theirs.error, theirs.on_node, theirs.timed_out) != (
        *(ours.allocations is None, ours.error, ours.on_node, ours.timed_out),
    ):
        return [f"upstream {_described(theirs)}, ours {_described(ours)}"]
    if not is_exact or theirs.allocations is None or ours.allocations is None:
        return []
    pairs = zip(theirs.allocations, ours.allocations, strict=True)
    return [
        f"claim {c}: upstream gives {_normal(one, has_config=has_config)}, ours {_normal(other, has_config=has_config)}"
        for c, (one, other) in enumerate(pairs)
        if _normal(one, has_config=has_config) != _normal(other, has_config=has_config)
    ]


def _normal(allocation: Json, *, has_config: bool) -> Json:
    """Without chance and ways to write a number."""
    results = []
    for result in allocation["devices"].get("results", ()):
        amounts = without_spare(result.get("consumedCapacity") or {})
        consumed = {name: parse(amount).nano for name, amount in amounts.items()}
        share = {"shareID": "any"} if "shareID" in result else {}
        results.append({**result, **share, "consumedCapacity": consumed})
    config = allocation["devices"].get("config") or [] if has_config else []
    return {"results": results, "config": config, "for": allocation.get("nodeSelector")}


def _read(answer: AllocatorAnswer, names: Sequence[str]) -> AllocatorAnswer:
    """In the words of the case itself."""
    allocations = answer.allocations
    for allocation in allocations or ():
        for result in allocation["devices"].get("results", ()):
            result |= {word: read(result[word], names) for word in ("request", "pool")}
    return AllocatorAnswer(allocations, read(answer.error, names), answer.on_node, answer.timed_out)


def _sets(allocations: Sequence[Json]) -> list[Counter[tuple[str, ...]]]:
    """The devices of each request of each claim, without their order."""
    words = ("request", "driver", "pool", "device")
    return [
        Counter(tuple(result[word] for word in words) for result in allocation["devices"].get("results", ()))
        for allocation in allocations
    ]


def _described(answer: AllocatorAnswer) -> str:
    if answer.allocations is not None:
        return f"gives {listed(answer.allocations)}"
    return f"says {answer.error!r}" if answer.error else fate(answer)


def listed(allocations: Iterable[Json]) -> str:
    """Request and device of each result; `|` stands between claims."""
    return " | ".join(
        ", ".join(
            f"{one['request']} {one['driver']}/{one['pool']}/{one['device']}"
            for one in each["devices"].get("results", ())
        )
        for each in allocations
    )


class _Dump:
    """The objects of a case, with the allocations in the pod's claims.

    The laws look at the newest slices of a pool, wherever they are. Upstream and ours look at those of a node, and take a pool
    for whole if these are as many as they state. So the laws do not judge pools that are being updated: those with slices of two
    generations, or with another number of slices than they state.
    """

    def __init__(self, case: DeviceCase, allocations: Sequence[Json]) -> None:
        given = [claim | {"status": {"allocation": one}} for claim, one in zip(case.claims, allocations, strict=True)]
        self._objects = {
            "nodes": case.nodes,
            "resourceslices": _whole_pools(case.slices),
            "resourceclaims": [*case.held, *given],
        }

    def objects(self, kind_or_resource: str, /) -> list[Json]:
        return self._objects[kind_or_resource]


def _whole_pools(slices: Iterable[Json]) -> list[Json]:
    pools: dict[tuple[str, str], list[Json]] = {}
    for each in slices:
        pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    whole = []
    for some in pools.values():
        told = {
            (each["spec"]["pool"].get("generation", 0), each["spec"]["pool"]["resourceSliceCount"]) for each in some
        }
        if len(told) == 1 and next(iter(told))[1] == len(some):
            whole += some
    return whole


def _broken_laws(case: DeviceCase, allocations: Sequence[Json]) -> list[str]:
    """Laws that the allocations break, and the claims that were there before do not."""
    before = {text for law in _LAWS for text in law(_Dump(case, [{"devices": {}}] * len(case.claims)))}
    return [text for law in _LAWS for text in law(_Dump(case, allocations)) if text not in before]


# -- the command -------------------------------------------------------------------------------------------------------


def compare(program: Path, seeds: range) -> int:
    """Print what differs, then a summary. 1 if anything differs for a reason that is not known, else 0."""
    began = time.monotonic()
    with process.running(program) as oracle:
        differing = Differences(oracle)
        for seed in seeds:
            for text in differing.of(drawn(seed)):
                print(text, flush=True)  # noqa: T201
    told = differing.told
    known = sum(count for text, count in told.items() if text.startswith("known: "))
    fates = ", ".join(
        f"{told[one]} {one}" for one in ("allocated", "unfit", "unfit with an error", "errors", "timed out")
    )
    for text, count in told.most_common():
        if text.startswith("known: "):
            print(f"    {count} times {text}")  # noqa: T201
    print(  # noqa: T201
        f"{told['cases']} device cases in {time.monotonic() - began:.0f} s: nodes {fates}",
        f"- devices that ours chose otherwise: {told['accepted by upstream']} times accepted by upstream,",
        f"{told['judged by the laws alone']} times judged by laws alone",
        f"- differences: {told['differences']}, known ones: {known}",
    )
    return 1 if told["differences"] else 0
