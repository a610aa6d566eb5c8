"""What an explanation costs, in process: `python -m benchmarks.explain`.

A cluster of nodes in ten zones with two pods each, and pods that fit nowhere for different causes. Each explanation is driven as
the scheduling loop drives it. The columns: milliseconds of an explanation, median and 99th percentile of all repetitions, the
longest time without a pause, and how many trials and fixes there were.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.between_pods import ZONE
from benchmarks.in_process import InProcess
from benchmarks.workload import NAMESPACE
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.daemon.app import GC_THRESHOLD
from scheduler.explain.answer import Explanation

_REPEATS: Final = 20
_SPREAD: Final = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}
_NEAR: Final = {"labelSelector": {"matchLabels": {"app": "nowhere"}}, "topologyKey": ZONE}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

CAUSES: Final[Mapping[str, dict[str, Any]]] = {
    "too much cpu": {"cpu": "1000"},
    "a node selector": {"nodeSelector": {"disk": "ssd"}},
    "a node selector, and too much cpu": {"cpu": "1000", "nodeSelector": {"disk": "ssd"}},
    "no pod to be near": {"affinity": {"podAffinity": {_REQUIRED: [_NEAR]}}},
    "a spread constraint on a key that no node has": {"topologySpreadConstraints": [_SPREAD | {"topologyKey": "rack"}]},
    "a spread constraint, a selector, and too much cpu": {
        "cpu": "1000",
        "nodeSelector": {"disk": "ssd"},
        "topologySpreadConstraints": [_SPREAD | {"topologyKey": ZONE}],
    },
}


class Explained(NamedTuple):
    """Seconds of one explanation, and the longest of them without a pause."""

    took_s: float
    longest_s: float
    answer: Explanation


def _pod(decider: InProcess, spec: Mapping[str, Any]) -> Pod:
    body = msgspec.json.decode(decider.raw_pod("explained", 0))
    more = dict(spec)
    if "cpu" in more:
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": more.pop("cpu")}}
    body["spec"] |= more
    body["metadata"]["labels"] = {"app": "x"}
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(body))
    assert isinstance(pod, Pod)
    return pod


def explained(decider: InProcess, pod: Pod) -> Explained:
    """Explain a pod of the queue once."""
    steps = decider.decisions.explainer.explain(f"{NAMESPACE}/{pod.metadata.name}")
    began = turn = time.perf_counter()
    longest = 0.0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: Explanation = done.value
            now = time.perf_counter()
            return Explained(now - began, max(longest, now - turn), answer)
        now = time.perf_counter()
        longest, turn = max(longest, now - turn), now


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    args = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    gc.set_threshold(*GC_THRESHOLD)
    decider = InProcess(args.nodes, 1)
    table = Table("cause", "median ms", "p99 ms", "longest turn ms", "fixes", title=f"explanations, {args.nodes} nodes")
    for name, spec in CAUSES.items():
        pod = _pod(decider, spec)
        decider.decisions.intake.apply("Pod", [Delta(None, pod)])
        decider.decisions.inbox.apply()
        gc.collect()
        gc.freeze()
        runs = [explained(decider, pod) for _ in range(_REPEATS)]
        decider.decisions.intake.apply("Pod", [Delta(pod, None)])
        decider.decisions.inbox.apply()
        assert runs[0].answer.verdict == "doesNotFit", runs[0].answer
        took = sorted(run.took_s * 1e3 for run in runs)
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        longest = max(run.longest_s for run in runs) * 1e3
        fixes = [fix for fix in runs[0].answer.fixes if fix.verified]
        table.add_row(name, f"{statistics.median(took):.1f}", f"{p99:.1f}", f"{longest:.1f}", str(len(fixes)))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
