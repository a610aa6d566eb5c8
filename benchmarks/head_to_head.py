"""kube-scheduler, the floor client and Kubestow in turn on the same real control plane.

    `python -m benchmarks.head_to_head basic --nodes 1000 --pods 2000`
    `python -m benchmarks.head_to_head spread --nodes 1000 --pods 1000 --shapes 200`
    `python -m benchmarks.head_to_head localpv --nodes 500 --pods 1000 --shapes 200 --limit-s 120`
    `python -m benchmarks.head_to_head dra --nodes 500 --pods 1000 --shapes 200`
    `python -m benchmarks.head_to_head template --nodes 500 --pods 5000 --limit-s 600`
    `python -m benchmarks.head_to_head basic --kube 1.37`
    `python -m benchmarks.head_to_head basic --before ../kubestow-of-last-week`
    `python -m benchmarks.head_to_head racks --nodes 5000 --pods 3000 --rounds 1`
    `python -m benchmarks.head_to_head gangs-preemption --nodes 100 --pods 100 --rounds 3`

Each round has a fresh etcd and kube-apiserver; within it the competitors take turns, in another order in each round.
Raw results go to benchmarks/results/ as JSON lines. Figures of different machines or hours do not compare, ratios within
one call do.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import deviceload, devices, gangs, load, storageload, volumes
from benchmarks.between_pods import AFFINITY, ANTI_AFFINITY, SPREAD
from benchmarks.competitors import COMPETITORS, WITH_GROUPS, Limits, kube, ours
from benchmarks.preempting import GANGS_THAT_PREEMPT, PREEMPTION
from benchmarks.run import RESULTS, Offer, Result, Run, keep
from benchmarks.storageload import StoragePlane
from benchmarks.summary import show
from benchmarks.volumes import BURST, CSI, DYNAMIC, LOCAL, LOCAL_EQUAL, LOCAL_THREE
from benchmarks.workload import Workload
from tests.e2e.controlplane.build import MINOR, RELEASES

QUIET_BELOW_CORES = 0.2

WORKLOADS = {
    "basic": "plain pods with cpu and memory requests",
    SPREAD: "hard spread over ten zones, maxSkew 1",
    ANTI_AFFINITY: "required, to pods of the same app, by hostname",
    PREEMPTION: "nodes full of low priority, each pod needs three of the places; kube and ours only",
    AFFINITY: "required: even shapes to their own app by zone, odd ones by hostname to pods bound before",
    LOCAL: "one claim, four local volumes of mixed sizes on each node, WaitForFirstConsumer",
    LOCAL_EQUAL: "one claim, four local volumes of one size on each node",
    LOCAL_THREE: "three claims, twelve local volumes on each node",
    DYNAMIC: "one claim, provisioned on the node that was chosen, a CSIStorageCapacity for each",
    CSI: "one claim that is bound already, attach limit of 39",
    BURST: "two provisioned claims, capacity for a tenth more, published a minute late; kube and ours only",
    devices.ONE: "one device of eight on each node, by a selector on attribute and capacity",
    devices.TWO: "two devices of one NUMA node, matchAttribute",
    devices.ONE_OF_MODELS: "one device of eight; half of the nodes have those of a model that no selector is true for",
    devices.TWO_OF_MODELS: "two devices of one NUMA node, matchAttribute, the same",
    devices.TEMPLATE: "one device of ten on each node, its claim made from a template while the pods wait",
    devices.CONSUMABLE: "a share of the memory of one of two devices on each node",
    devices.PARTITIONABLE: "a whole, a half or a quarter of one of four devices on each node, by shared counters",
    gangs.GANGS_OF_THREE: "groups of 3 plain pods; kube and ours only, as all groups",
    gangs.GANGS_OF_THOUSAND: "groups of 1000 plain pods",
    gangs.RACKS: "groups of 4 plain pods, each in one of 50 racks",
    devices.GANGS_WITH_DEVICES: "groups of 16 pods, each pod as in dra2",
    devices.GANGS_WITH_ONE_CLAIM: "groups of 50 pods with one claim for one device",
    GANGS_THAT_PREEMPT: "groups of 100 pods on nodes full of low priority, for each of which the ten pods of a node leave",
}
NO_FLOOR = (PREEMPTION, BURST, *gangs.SIZES)
"""The floor client does not preempt, cannot handle a node without capacity, and knows no groups."""
CLAIMING: Mapping[str, volumes.Kind | devices.Kind] = {**volumes.KINDS, **devices.KINDS}
AT_ONCE = (PREEMPTION, *gangs.SIZES, *(name for name, kind in CLAIMING.items() if not kind.warm_up))
"""All pods count, from the moment that the scheduler could begin."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.head_to_head", description=__doc__)
    parser.add_argument("workload", choices=list(WORKLOADS), help=_described(WORKLOADS))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--pods", type=int, default=2000, help="counted ones; 50 more come first to warm up, where not all count"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", type=int, default=1, help="different requests, labels and selectors among the pods")
    parser.add_argument("--mode", choices=["backlog", "rate"], default="backlog")
    parser.add_argument("--rate", type=float, default=100, help="pods per second in rate mode")
    parser.add_argument("--before", type=Path, help="another checkout of Kubestow, which also takes part, as `before`")
    parser.add_argument(
        "--older", type=Path, help="a kube-scheduler of an older version, which also takes part, as `older`"
    )
    parser.add_argument("--only", default="kube,floor,ours", help="comma-separated competitors")
    parser.add_argument(
        "--kube",
        choices=list(RELEASES),
        default=MINOR,
        help="version of the control plane and of kube-scheduler; Kubestow follows the API server (default: %(default)s)",
    )
    parser.add_argument("--qps", type=float, default=5000, help="client limit of every competitor, also the burst")
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        help="repeat a measurement this often while other processes use more than 0.2 cores",
    )
    parser.add_argument(
        "--limit-s",
        type=float,
        help="a measurement ends this many seconds after its scheduler was started (default: none; with claims 120, burst 300)",
    )
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    if arguments.workload in NO_FLOOR:
        arguments.only = ",".join(name for name in arguments.only.split(",") if name != "floor")
    if arguments.before is not None:
        arguments.only += ",before"
    if arguments.older is not None:
        arguments.only += ",older"
    if arguments.limit_s is None and arguments.workload in CLAIMING:
        arguments.limit_s = CLAIMING[arguments.workload].limit_s
    if arguments.workload in gangs.SIZES and arguments.kube not in gangs.RELEASES:
        parser.error(f"groups of pods need --kube {' or '.join(gangs.RELEASES)}")
    if problem := _workload(arguments).problem():
        parser.error(problem)
    return arguments


def _described(workloads: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in workloads.items())


def _workload(arguments: argparse.Namespace) -> Workload:
    return Workload(arguments.workload, arguments.nodes, arguments.pods, arguments.shapes)


async def measure(arguments: argparse.Namespace, out: Path) -> list[Result]:
    """All rounds; each result is written as soon as it is there, also one that is measured again."""
    workload = _workload(arguments)
    rate = arguments.rate if arguments.mode == "rate" else None
    offer = Offer(rate, at_once=rate is None and arguments.workload in AT_ONCE, limit_s=arguments.limit_s)
    limits = Limits(arguments.qps, int(arguments.qps))
    names = arguments.only.split(",")
    has_groups = workload.name in gangs.SIZES
    competitors, flags = (WITH_GROUPS, gangs.SERVER_FLAGS) if has_groups else (COMPETITORS, ())
    if arguments.before is not None:
        competitors = {**competitors, "before": ours("before", arguments.before)}
    if arguments.older is not None:
        competitors = {**competitors, "older": kube("older", arguments.older)}
    results = []
    for number in range(arguments.rounds):
        turn = number % len(names)
        async with StoragePlane(high_load=True, apiserver_flags=flags) as plane, plane.client() as http:
            await load.create_nodes(http, workload)
            await storageload.create_classes(http, workload)
            await deviceload.create_classes(http, workload)
            run = Run(plane, workload, offer, limits=limits)
            for name in names[turn:] + names[:turn]:
                for _ in range(1 + arguments.again):
                    await load.delete_pods(http)
                    result = await run.measure(competitors[name], number)
                    keep(out, result)
                    print(f"round {result.round} {result.line()}", file=sys.stderr, flush=True)
                    if result.foreign_cores <= QUIET_BELOW_CORES:
                        break
                results.append(result)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 1 if a rule was broken, or if not every pod was bound, except for kube-scheduler's time limit."""
    arguments = _arguments(argv)
    if arguments.kube != MINOR:  # the version is read when the modules of the control plane are imported
        again = [sys.executable, "-m", "benchmarks.head_to_head", *(sys.argv[1:] if argv is None else argv)]
        os.execve(sys.executable, again, {**os.environ, "KUBERNETES": arguments.kube})
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-{arguments.workload}.jsonl"
    results = asyncio.run(measure(arguments, out))
    title = f"{arguments.workload}: {arguments.pods} pods in {arguments.shapes} shapes on {arguments.nodes} nodes"
    show(results, f"{title}, {arguments.mode}, median of {arguments.rounds}, {RELEASES[MINOR]}")
    print(f"raw results: {out}")
    return 0 if all(_is_good(result, arguments.pods) for result in results) else 1


def _is_good(result: Result, pods: int) -> bool:
    is_excused = result.is_cut and result.competitor in {"kube", "older"}
    return (result.bound >= pods or is_excused) and not result.broken_rules


if __name__ == "__main__":
    sys.exit(main())
