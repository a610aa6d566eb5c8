"""What a pass of the self-audit costs: `python -m benchmarks.self_audit`.

A cluster in ten zones, with ten pods, twenty images and four devices per node. One pod in ten has a claim with its volume, one
in ten an allocated device, one in five an anti-affinity term. Some selections of pods are counted by zone, as for spread
constraints. The table has, by index: milliseconds of the check, its steps, and its longest step. The last line has the sum, and the
time of a pass with 1 % of a core. Times are of the processor.
"""

import argparse
import gc
import sys
import time

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.full_cluster import FullCluster, Size
from scheduler.audit.self_audit import SHARE
from scheduler.daemon.app import GC_THRESHOLD


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.set_threshold(*GC_THRESHOLD)
    size = Size(options.nodes)
    filled = FullCluster(size)
    gc.collect()
    gc.freeze()
    table = Table("index", "ms", "steps", "longest step, ms", "differences")
    total_s = 0.0
    for index, check in filled.scheduler.audit.checks.items():
        steps, longest_s, differences = 0, 0.0, 0
        began = last = time.thread_time()
        for found in check():
            now = time.thread_time()
            longest_s, last = max(longest_s, now - last), now
            steps, differences = steps + 1, differences + len(found)
        took_s = time.thread_time() - began
        total_s += took_s
        table.add_row(index, f"{1e3 * took_s:.0f}", str(steps), f"{1e3 * longest_s:.2f}", str(differences))
    pods = options.nodes * size.pods_per_node
    table.caption = (
        f"{options.nodes} nodes, {pods} pods: {total_s:.1f} s, a pass takes {total_s / SHARE / 60:.0f} minutes"
    )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
