"""The nodes and tasks of the packing benchmark: Alibaba's trace openb, or a generated stand-in, and FGD's measure.

The trace is not part of this repository, because the repository of its publisher (github.com/alibaba/clusterdata) names no
licence. `python -m benchmarks.packing --trace DIR` reads `openb_node_list_gpu_node.csv` and `openb_pod_list_default.csv`.
Both are in `data/csv` of github.com/hkust-adsl/kubernetes-scheduler-simulator (commit 8f3d641, Apache-2.0 on its code). The
method is that of the same repository: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023.
"""

import csv
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

MILLI: Final = 1000
"""Parts of a GPU."""
GPUS_MAX: Final = 8
ARRIVED_UNTIL: Final = 1.3
"""Tasks arrive until they have requested this multiple of the GPUs."""


class Machine(NamedTuple):
    """A node of the trace."""

    milli_cpu: int
    memory_mib: int
    gpus: int
    model: str


class Task(NamedTuple):
    """A pod of the trace: a part of one GPU, or whole GPUs. `models` is empty if any model will do."""

    milli_cpu: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Of each GPU."""
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """The requested parts of all its GPUs."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster and what arrives. `source` names it in results."""

    source: str
    machines: Sequence[Machine]
    tasks: Sequence[Task]

    @property
    def capacity_milli(self) -> int:
        """Parts of all GPUs."""
        return MILLI * sum(machine.gpus for machine in self.machines)

    def arrivals(self, seed: int) -> Iterator[Task]:
        """Yield all tasks in random order, and then random ones again, as FGD's simulator does."""
        rng = random.Random(seed)
        arrived_milli, order = 0, list(self.tasks)
        rng.shuffle(order)
        while arrived_milli < ARRIVED_UNTIL * self.capacity_milli:
            task = order.pop() if order else rng.choice(self.tasks)
            arrived_milli += task.total_milli
            yield task


def read(folder: Path) -> Trace:
    """Read the two files of the trace."""
    with (folder / "openb_node_list_gpu_node.csv").open(encoding="utf-8") as lines:
        machines = [
            Machine(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(lines)
        ]
    with (folder / "openb_pod_list_default.csv").open(encoding="utf-8") as lines:
        tasks = [_task(row) for row in csv.DictReader(lines)]
    return Trace("openb", machines, tasks)


def _task(row: dict[str, str]) -> Task:
    gpus = int(row["num_gpu"])
    milli = int(row["gpu_milli"]) if gpus == 1 else MILLI
    models = tuple(filter(None, row["gpu_spec"].split("|")))
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models)


_MACHINES: Final = (
    (549, Machine(96_000, 393_216, 8, "G2")),
    (404, Machine(104_000, 524_288, 2, "T4")),
    (134, Machine(16_000, 122_880, 2, "P100")),
    (39, Machine(128_000, 786_432, 8, "G3")),
    (37, Machine(32_000, 131_072, 4, "V100M16")),
    (29, Machine(96_000, 786_432, 8, "V100M32")),
    (21, Machine(8_000, 32_768, 1, "V100M16")),
)
_GPUS: Final = ((13.3, 0), (37.8, 0.5), (48.0, 1), (0.2, 2), (0.2, 4), (0.5, 8))
"""Per cent of the tasks and the GPUs that they request (table 1 of the paper); 0.5 is a part of one."""


def generated(tasks: int = 8152) -> Trace:
    """Return a cluster and tasks with about the totals that the paper publishes. Its figures do not compare with published ones."""
    rng = random.Random(0)
    machines = [machine for count, machine in _MACHINES for _ in range(count)]
    weights = [share for share, _ in _GPUS]
    return Trace("generated", machines, [_random_task(rng, rng.choices(_GPUS, weights)[0][1]) for _ in range(tasks)])


def _random_task(rng: random.Random, gpus: float) -> Task:
    if not gpus:
        return Task(rng.choice((8_000, 12_500, 16_000, 32_000)), 16_384, 0, 0)
    if gpus < 1:
        return Task(rng.choice((3_200, 4_000, 8_000, 12_000)), 12_288, 1, rng.choice((160, 230, 320, 470, 650, 810)))
    return Task(int(gpus) * rng.choice((4_000, 8_000, 11_000, 12_000)), int(gpus) * 24_576, int(gpus), MILLI)


class Fragmentation:
    """FGD's measure of the whole cluster, against the tasks of the trace; updated per node.

    Upstream of the method: pkg/utils/frag.go NodeGpuShareFragAmountScore of the simulator above.
    """

    def __init__(self, trace: Trace) -> None:
        counted = Counter(trace.tasks)
        tasks = list(counted)
        self._cpu = np.array([task.milli_cpu for task in tasks])
        self._gpus = np.array([task.gpus for task in tasks])
        self._milli = np.array([task.gpu_milli for task in tasks])
        self._runs_on = {
            machine.model: np.array([not task.models or machine.model in task.models for task in tasks])
            for machine in trace.machines
        }
        self._weights = np.array(list(counted.values())) / len(trace.tasks)
        self._models = [machine.model for machine in trace.machines]
        self._of_node = [
            self.of(machine.milli_cpu, np.array([MILLI] * machine.gpus), machine.model) for machine in trace.machines
        ]
        self.total_milli = sum(self._of_node)

    def of(self, free_milli_cpu: int, free_milli: npt.NDArray[np.int64], model: str) -> float:
        """Return the parts of one node's GPUs that a task of the trace cannot use, averaged over the tasks."""
        suffices = free_milli[None, :] >= self._milli[:, None]
        can_run = (suffices.sum(axis=1) >= self._gpus) & (self._cpu <= free_milli_cpu) & (self._gpus > 0)
        can_run &= self._runs_on[model]
        unusable = np.where(can_run[:, None] & suffices, 0, free_milli[None, :]).sum(axis=1)
        return float(unusable @ self._weights)

    def update(self, index: int, free_milli_cpu: int, free_milli: npt.NDArray[np.int64]) -> None:
        """Take over what is free on a node."""
        now = self.of(free_milli_cpu, free_milli, self._models[index])
        self.total_milli += now - self._of_node[index]
        self._of_node[index] = now
