"""CPU and memory of a process and all its descendants, from /proc (Linux).

CPU of children that ended and were waited for is counted by their parent, as /proc does.
"""

import asyncio
import contextlib
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the start of the tree, and the sum of its processes' resident peaks."""

    cpu_s: float
    peak_bytes: int


def usage(pid: int) -> Usage:
    """Of the tree whose root is `pid`; processes that end in that time are left out."""
    cpu_s, peak = 0.0, 0
    for member in tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            cpu_s += sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
            peak += _peak_bytes(member)
    return Usage(cpu_s, peak)


def machine() -> Usage:
    """CPU seconds that all processes of the machine have used since it was started."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return Usage((user + nice + system + irq + softirq) / _TICKS_PER_S, 0)


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
    return found


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Meter:
    """Samples several sources ten times a second, so that the CPU of any stretch of time is known afterwards."""

    _PERIOD_S = 0.1

    def __init__(self, sources: Mapping[str, Callable[[], Usage]]) -> None:
        self._sources = sources
        self._times: list[float] = []
        self._cpu: dict[str, list[float]] = {name: [] for name in sources}
        self.peak_bytes: dict[str, int] = dict.fromkeys(sources, 0)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(self._PERIOD_S)

    def sample(self) -> None:
        self._times.append(time.monotonic())
        for name, source in self._sources.items():
            now = source()
            self._cpu[name].append(now.cpu_s)
            self.peak_bytes[name] = max(self.peak_bytes[name], now.peak_bytes)

    def cpu_s(self, name: str, begin: float, end: float) -> float:
        """CPU seconds between two moments of time.monotonic, interpolated."""
        return self._at(name, end) - self._at(name, begin)

    def total_cpu_s(self, name: str) -> float:
        return self._cpu[name][-1]

    def _at(self, name: str, moment: float) -> float:
        times, cpu = self._times, self._cpu[name]
        after = bisect_right(times, moment)
        if after == 0:
            return cpu[0]
        if after == len(times):
            return cpu[-1]
        share = (moment - times[after - 1]) / (times[after] - times[after - 1])
        return cpu[after - 1] + share * (cpu[after] - cpu[after - 1])
