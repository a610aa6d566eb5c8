"""Replay a lifelike day, and print the time and the memory that it takes.

    python -m benchmarks.replay [--nodes 1000] [--pods 100000] [--hours 24] [--config FILE]...

`benchmarks.day` writes the day. Its result is not part of the time; reading the file twice is.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.day import Day


def main() -> int:
    """Write the day and replay it with the command, in another process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--html", help="write the page with pictures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        file = str(Path(scratch, "day.gz"))
        Day(options.nodes, options.pods, options.hours, seed=1).write(file)
        print(f"{Path(file).stat().st_size:,} bytes", flush=True)
        configs = [f"--config={each}" for each in options.config]
        pages = [f"--html={options.html}"] if options.html else []
        command = [sys.executable, "-m", "scheduler", "replay", file, "--pool-label", "pool", *configs, *pages]
        began_s = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        wall_s = time.monotonic() - began_s
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{wall_s:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 1024:.0f} MiB at most")
    return code


if __name__ == "__main__":
    sys.exit(main())
