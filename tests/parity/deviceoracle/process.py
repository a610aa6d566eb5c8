"""Upstream's device allocator in a process, for cases of `devicecases`."""

import dataclasses
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.build import program, sources
from tests.parity.devicecases import DeviceCase
from tests.parity.words import Json

_STEPS_MAX: Final = 50_000
"""Steps of upstream's search on one node before it is given up, in the place of filterTimeout."""
ALL_BUT_STABLE: Final = ("incubating", "experimental")
"""Variants of upstream's allocator that know every rule that is not behind a gate."""


@dataclasses.dataclass(frozen=True)
class AllocatorAnswer:
    """What the allocator says of one node: allocations, one per claim, or an error, or neither if the claims do not fit."""

    allocations: list[Json] | None = None
    error: str = ""
    on_node: bool = False
    """The error concerns this node only."""
    timed_out: bool = False
    steps: int = 0
    """How many devices our search has tried."""


def binary() -> Path:
    """Where the program is, built if need be. Raises `Unavailable` without Go."""
    return program("device-oracle", sources(Path(__file__).parent))


class DeviceOracle:
    """Answers one question at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def answers(self, case: DeviceCase, *, variants: Sequence[str] = ()) -> dict[str, AllocatorAnswer]:
        """By node. `variants`: those of upstream's allocator that may answer, if not all."""
        question = {
            "Gates": sorted(case.gates),
            "Nodes": case.nodes,
            "Slices": case.slices,
            "Classes": case.classes,
            "Held": case.held,
            "Claims": case.claims,
            "Variants": list(variants),
            "Steps": _STEPS_MAX,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{case.id}: the device oracle has ended; the reason is on standard error"
        return {name: _answer(said) for name, said in json.loads(line).items()}


@contextmanager
def running(program: Path) -> Iterator[DeviceOracle]:
    """Run the program as long as the block lasts."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield DeviceOracle(process)
    finally:
        process.kill()
        process.communicate()


def _answer(said: Json) -> AllocatorAnswer:
    return AllocatorAnswer(
        allocations=said.get("allocations") or [] if said["isAllocated"] else None,
        error=said.get("error", ""),
        on_node=said.get("onNode", False),
        timed_out=said.get("timedOut", False),
    )
