"""In-process figures without sockets: a decision, a watch event, the queue; each at two sizes, with their ratio.

    python -m benchmarks.micro cycle --nodes 5000

Microseconds of the best of three passes on this machine; what counts is the ratio of the sizes, which shows how cost
grows with the cluster. The parts are the daemon's own, put together by `scheduler.scheduler`, with the default profile.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.in_process import PODS, SHAPES, Figure, InProcess, compare, microseconds
from benchmarks.micro_queue import LARGE_QUEUE, SMALL_QUEUE, queue_figures
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.core.cooperative import finish
from scheduler.cycle import Scheduled
from scheduler.framework.extender import Consultation, FilterResult, MetaVictims, Unanswered, Victims

SMALL_NODES = 1000


# -- cycle -------------------------------------------------------------------------------------------------------------


def decision(nodes: int, *, shapes: int) -> float:
    """One attempt of a plain pod, from PreFilter to the assumption; placed pods stay, as in a burst."""
    decider = InProcess(nodes, shapes)
    cycle, pods = decider.cycle(), decider.pods("p", PODS)
    for info in decider.pods("warm", 50):
        finish(cycle.attempt(info, 1))

    def work() -> int:
        for info in pods:
            outcome = finish(cycle.attempt(info, 1))
            assert isinstance(outcome, Scheduled), outcome
        return len(pods)

    return microseconds(work)


class _Extender:
    """Accepts and scores all nodes at once, without HTTP."""

    name, weight = "extender", 1
    is_filter = is_prioritizer = True
    is_ignorable = is_binder = supports_preemption = False

    def is_interested(self, _: PodInfo) -> bool:
        return True

    async def filter(self, _: PodInfo, nodes: Sequence[str]) -> FilterResult:
        return FilterResult(frozenset(nodes), {}, {})

    async def prioritize(self, _: PodInfo, nodes: Sequence[str]) -> list[tuple[str, int]]:
        return [(name, at % 10) for at, name in enumerate(nodes)]

    async def process_preemption(self, _: PodInfo, victims: Mapping[str, Victims]) -> dict[str, MetaVictims]:
        return {}

    async def bind(self, _: PodInfo, node_name: str) -> None:
        return


def decision_with_extender(nodes: int) -> float:
    """The attempt until the extender is called, and again with its answer."""
    decider = InProcess(nodes, 1)
    cycle, pods = decider.cycle(), decider.pods("p", PODS)
    extender = _Extender()

    async def decide(info: PodInfo) -> None:
        consultation = Consultation(info, [extender], 0.0)
        try:
            finish(cycle.attempt(info, 1, consultation))
        except Unanswered as needed:
            await needed.call()
        assert isinstance(finish(cycle.attempt(info, 1, consultation)), Scheduled)

    async def decide_all() -> None:
        for info in pods:
            await decide(info)

    def work() -> int:
        asyncio.run(decide_all())
        return len(pods)

    return microseconds(work)


def whole_pod(nodes: int, *, shapes: int) -> float:
    """Watch delta, queue, decision, binding by a writer that succeeds at once, and the watch delta that confirms it."""
    decider = InProcess(nodes, shapes)
    scheduler, writer = decider.scheduler, decider.writer
    new = [Delta(None, decider.pod("p", index)) for index in range(PODS)]

    async def drive() -> None:
        scheduler.inbox.put(partial(scheduler.event_handlers.apply, "Pod", new))
        confirmed = 0
        while confirmed < PODS:
            await scheduler.loop.step()
            await asyncio.sleep(0)
            if writer.seen:
                seen, writer.seen = writer.seen, []
                confirmed += len(seen)
                scheduler.inbox.put(partial(scheduler.event_handlers.apply, "Pod", seen))
        scheduler.inbox.apply()

    def work() -> int:
        asyncio.run(drive())
        assert not scheduler.cluster.sizes()["assumed_pods"]
        return PODS

    return microseconds(work)


def cycle_figures(nodes: int) -> Iterator[Figure]:
    yield compare("decision, equal pods", partial(decision, shapes=1), SMALL_NODES, nodes)
    yield compare(f"decision, {SHAPES} shapes", partial(decision, shapes=SHAPES), SMALL_NODES, nodes)
    yield compare("decision, with an extender", decision_with_extender, SMALL_NODES, nodes)
    yield compare("whole pod, equal pods", partial(whole_pod, shapes=1), SMALL_NODES, nodes)
    yield compare(f"whole pod, {SHAPES} shapes", partial(whole_pod, shapes=SHAPES), SMALL_NODES, nodes)


# -- intake ------------------------------------------------------------------------------------------------------------


def pod_events(nodes: int, *, bound: bool) -> float:
    """A new pod of ours (or a bound one that changes): from its JSON to cache and queue."""
    decider = InProcess(nodes, SHAPES)
    decode, event_handlers = ObjectDecoder("Pod", Pod).decode, decider.scheduler.event_handlers
    before: list[Pod | None] = [None] * PODS
    if bound:
        before = [decider.pod("load", index) for index in range(PODS)]
        before = [placed(pod_info(pod), f"node-{i % nodes:05d}").pod for i, pod in enumerate(before) if pod]
    raws = [decider.raw_pod("load" if bound else "p", index, resourceVersion="changed") for index in range(PODS)]
    if bound:
        raws = [_on_node(raw, f"node-{index % nodes:05d}") for index, raw in enumerate(raws)]

    def work() -> int:
        for old, raw in zip(before, raws):
            event_handlers.apply("Pod", [Delta(old, decode(raw))])
        return PODS

    return microseconds(work)


def _on_node(raw: bytes, name: str) -> bytes:
    body = msgspec.json.decode(raw)
    body["spec"]["nodeName"] = name
    return msgspec.json.encode(body)


def heartbeats(nodes: int) -> float:
    """A node that changes nothing that matters: from its JSON to the cache."""
    decider = InProcess(nodes, SHAPES)
    decode, event_handlers = ObjectDecoder("Node", Node).decode, decider.scheduler.event_handlers
    raws = [decider.workload.node_body(index) for index in range(nodes)]
    before = [decode(raw) for raw in raws]

    def work() -> int:
        for old, raw in zip(before, raws):
            event_handlers.apply("Node", [Delta(old, decode(raw))])
        return nodes

    return microseconds(work)


def intake_figures(nodes: int) -> Iterator[Figure]:
    yield compare("a new pod of ours", partial(pod_events, bound=False), SMALL_NODES, nodes)
    yield compare("a bound pod changes", partial(pod_events, bound=True), SMALL_NODES, nodes)
    yield compare("a node's heartbeat", heartbeats, SMALL_NODES, nodes)


# -- all ---------------------------------------------------------------------------------------------------------------


def show(title: str, sizes: tuple[str, str], figures: Sequence[Figure]) -> None:
    table = Table(title=title)
    for column in ("operation", f"µs at {sizes[0]}", f"µs at {sizes[1]}", "ratio"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for figure in figures:
        cells = f"{figure.small_us:.1f}", f"{figure.large_us:.1f}", f"{figure.large_us / figure.small_us:.2f}"
        table.add_row(figure.name, *cells)
    console = Console()
    console.width = max(console.width, 100)  # into a file: no narrower than the table
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    parser.add_argument("part", choices=["cycle", "intake", "queue"])
    parser.add_argument("--nodes", type=int, default=5000)
    arguments = parser.parse_args(argv)
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer()], wrapper_class=structlog.make_filtering_bound_logger(40)
    )
    parts = {"cycle": cycle_figures, "intake": intake_figures, "queue": queue_figures}
    sizes = (f"{SMALL_NODES} nodes", f"{arguments.nodes} nodes")
    if arguments.part == "queue":
        sizes = (f"{SMALL_QUEUE} waiting pods", f"{LARGE_QUEUE} waiting pods")
    show(arguments.part, sizes, list(parts[arguments.part](arguments.nodes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
