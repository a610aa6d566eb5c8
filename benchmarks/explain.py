"""What explanations and what-if answers cost, in process: `python -m benchmarks.explain`.

A cluster of nodes in ten zones with two pods each, pods that fit nowhere for different causes, and what-if questions. Each answer is
driven as the scheduling loop drives it. The columns: milliseconds of an answer, median and 99th percentile of all repetitions, the
longest time without a pause, and how many fixes or placed pods there were.

With `--backlog PODS` the whole scheduler places that many pods, with ten explanations a second and without, in turn; the last line is
the ratio of the rates.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from scheduler.explain.fixes import Steps
from scheduler.explain.what_if import WhatIfRequest

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


_TEMPLATE: Final = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}
_TEN: Final = {
    "kind": "Deployment",
    "metadata": {"name": "w"},
    "spec": {"replicas": 10, "template": {"spec": _TEMPLATE}},
}
QUESTIONS: Final[Mapping[str, WhatIfRequest]] = {
    "ten pods": WhatIfRequest(manifests=(_TEN,)),
    "a thousand pods": WhatIfRequest(manifests=(_TEN,), replicas=1000),
    "five drained nodes, ten more like one": WhatIfRequest(
        drain=tuple(f"node-{at:05d}" for at in range(5)), add_nodes_like={"node-00009": 10}
    ),
}
_EXPLAIN_EVERY_S: Final = 0.1
_ROUNDS: Final = 5


class Answered(NamedTuple):
    """Seconds of one answer, and the longest of them without a pause."""

    took_s: float
    longest_s: float
    answer: Any


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


def driven(steps: Steps[Any]) -> Answered:
    """Drive an answer to its end."""
    began = turn = time.perf_counter()
    longest = 0.0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            now = time.perf_counter()
            return Answered(now - began, max(longest, now - turn), done.value)
        now = time.perf_counter()
        longest, turn = max(longest, now - turn), now


def _row(name: str, begin: Callable[[], Steps[Any]], result: Callable[[Any], int]) -> tuple[str, ...]:
    gc.collect()
    gc.freeze()
    runs = [driven(begin()) for _ in range(_REPEATS)]
    gc.unfreeze()
    took = sorted(run.took_s * 1e3 for run in runs)
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    longest = max(run.longest_s for run in runs) * 1e3
    return name, f"{statistics.median(took):.1f}", f"{p99:.1f}", f"{longest:.1f}", str(result(runs[0].answer))


def _verified(answer: Explanation) -> int:
    assert answer.verdict == "doesNotFit", answer
    return sum(1 for fix in answer.fixes if fix.verified)


def table(nodes: int) -> Table:
    decider = InProcess(nodes, 1)
    out = Table("answer", "median ms", "p99 ms", "longest turn ms", "fixes or pods", title=f"answers, {nodes} nodes")
    scheduler = decider.scheduler
    for name, spec in CAUSES.items():
        pod = _pod(decider, spec)
        scheduler.event_handlers.apply("Pod", [Delta(None, pod)])
        scheduler.inbox.apply()
        key = f"{NAMESPACE}/{pod.metadata.name}"
        out.add_row(*_row(name, lambda key=key: scheduler.explainer.explain(key), _verified))  # type: ignore[misc]
        scheduler.event_handlers.apply("Pod", [Delta(pod, None)])
        scheduler.inbox.apply()
    for name, question in QUESTIONS.items():
        begin = partial(scheduler.what_if.answer, question)
        out.add_row(*_row(name, begin, lambda answer: answer.placed + len(answer.displaced)))
    return out


async def _rate(decider: InProcess, pods: int, *, explains: bool) -> float:
    """Return pods per second of processor time of the whole scheduler; the writer binds at once."""
    scheduler = decider.scheduler
    stuck = _pod(decider, CAUSES["a spread constraint, a selector, and too much cpu"])
    new = [Delta(None, decider.pod("backlog", at)) for at in range(pods)]
    scheduler.inbox.put(partial(scheduler.event_handlers.apply, "Pod", [Delta(None, stuck), *new]))
    await scheduler.loop.step()
    answers = 0

    async def explain() -> None:
        nonlocal answers
        while True:
            await asyncio.sleep(_EXPLAIN_EVERY_S)
            await scheduler.questions.answer_to(
                partial(scheduler.explainer.explain, f"{NAMESPACE}/{stuck.metadata.name}")
            )
            answers += 1

    explaining = asyncio.ensure_future(explain()) if explains else None
    gc.collect()
    gc.freeze()
    began, left = time.process_time(), pods
    while left:
        await scheduler.loop.step()
        await asyncio.sleep(0)
        seen, decider.writer.seen = decider.writer.seen, []
        if seen:
            left -= len(seen)
            scheduler.inbox.put(partial(scheduler.event_handlers.apply, "Pod", seen))
    took_s = time.process_time() - began
    gc.unfreeze()
    if explaining is not None:
        explaining.cancel()
        print(f"{answers} answers in {took_s:.2f} s")
    return pods / took_s


def ratio(nodes: int, pods: int) -> float:
    """Return the rate with ten explanations a second to the rate without; medians of several rounds in turn."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_ROUNDS):
        for explains, found in rates.items():
            gc.collect()
            found.append(asyncio.run(_rate(InProcess(nodes, 1), pods, explains=explains)))
            print(
                f"{'with' if explains else 'without'} explanations: {found[-1]:.0f} pods per second of processor time",
                flush=True,
            )
    return statistics.median(rates[True]) / statistics.median(rates[False])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--backlog", type=int, default=0, metavar="PODS")
    args = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    gc.set_threshold(*GC_THRESHOLD)
    if args.backlog:
        print(f"with explanations/without: {ratio(args.nodes, args.backlog):.3f}")
    else:
        Console(width=120).print(table(args.nodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
