"""Run Kubernetes' own end-to-end tests of scheduling against the scheduler named default-scheduler.

`python -m tests.upstream` runs them with Kubestow, `--scheduler kube` with kube-scheduler: a test that fails with both
is no defect of Kubestow. The exit code is 1 if a test fails, skips itself or has no outcome, and if the list of excluded
tests does not fit `e2e.test`. `--excluded` runs the excluded tests instead, and fails if one of them passes. `--groups` turns the
gates for groups of pods on, and runs the tests of groups that Kubestow can pass, which the ordinary run leaves out.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.e2e.controlplane.build import Unavailable
from tests.upstream import build, ginkgo
from tests.upstream.cluster import KUBE, KUBESTOW, cluster
from tests.upstream.ginkgo import Spec, judge, judge_excluded, table
from tests.upstream.selection import EXCLUDED, SUITES, is_of_groups, mistakes

_TIMEOUT_S = 2 * 3600


async def _main(options: argparse.Namespace) -> int:
    names = sorted(await ginkgo.listed(suite.focus for suite in SUITES))
    if wrong := list(mistakes(names)):
        _say(*wrong)
        return 1
    planned = [
        name
        for name in names
        if options.focus in name and (is_of_groups(name) if options.groups else (name in EXCLUDED) == options.excluded)
    ]
    if not planned:
        _say(f"no test has {options.focus!r} in its name")
        return 1
    logs = options.logs or Path(tempfile.mkdtemp(prefix=f"kubestow-upstream-{options.scheduler}-"))
    logs.mkdir(parents=True, exist_ok=True)
    _say(f"{len(planned)} of {len(names)} tests with {options.scheduler}; logs in {logs}")
    specs = await _run(options.scheduler, planned, logs, has_groups=options.groups)
    problems = (judge_excluded if options.excluded else judge)(planned, specs)
    _say(*table(specs))
    if not options.excluded and not options.groups:
        _say(*(f"left out: {name}\n    {reason}" for name, reason in EXCLUDED.items()))
    _say(*problems, f"{len(problems)} problems; logs in {logs}")
    return 1 if problems else 0


async def _run(scheduler: str, planned: Collection[str], logs: Path, *, has_groups: bool) -> list[Spec]:
    async with cluster(scheduler, logs, has_groups=has_groups) as plane:
        return await ginkgo.run(plane.kubeconfig, planned, logs, timeout_s=_TIMEOUT_S)


def _say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scheduler", choices=(KUBESTOW, KUBE), default=KUBESTOW, help="which is default-scheduler")
    parser.add_argument("--focus", default="", metavar="TEXT", help="only tests that have this text in their name")
    parser.add_argument("--excluded", action="store_true", help="run the excluded tests; fails if one passes")
    parser.add_argument("--groups", action="store_true", help="run the tests of groups, with their gates on")
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="where logs and ginkgo's report go (default: a new one)"
    )
    options = parser.parse_args(arguments)
    try:
        build.binaries()
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    return asyncio.run(_main(options))


if __name__ == "__main__":
    sys.exit(main())
