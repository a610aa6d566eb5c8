"""Memory of a cluster of unlike devices whose drivers publish them again and again.

    python -m benchmarks.device_memory [--nodes 5000] [--rounds 6]

Every node has eight devices, no two of which are equal. An hour of virtual time has one round each ten minutes. In a round
each driver publishes its slice again with new attribute values, and pods with a CEL selector are tried. Printed are the
resident memory and the live kinds of devices and of nodes after each round. The figures follow the devices that exist, not
the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
from collections import Counter
from pathlib import Path

import structlog

from scheduler.api.decode import Delta
from scheduler.cache.devices.node_kinds import NodeKind
from scheduler.cache.devices.pools import DeviceKind
from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.harness import SchedulerHarness

DEVICES = 8
ROUND_S = 600.0
PODS = 5


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 2**20


def show(sched: SchedulerHarness, nodes: int, round_: int) -> None:
    """Publish the slices of all nodes; every device has a new serial number in each round."""
    event_handlers = sched.parts.event_handlers
    for at in range(nodes):
        name = f"n{at}"
        devices = (
            a_device(f"d{i}").attr("drv/serial", f"{at}-{i}-{round_}").attr("drv/index", i).cap("memory", "80Gi")
            for i in range(DEVICES)
        )
        new = a_slice(name, "drv", *devices).typed()
        event_handlers.apply("ResourceSlice", [Delta(sched.cluster.devices.slice(new.key), new)])


async def run(nodes: int, rounds: int) -> None:
    sched = SchedulerHarness()
    for at in range(nodes):
        sched.node(f"n{at}")
    sched.parts.event_handlers.apply("DeviceClass", [Delta(None, a_device_class("gpu").typed())])
    for round_ in range(rounds + 1):
        show(sched, nodes, round_)
        for pod in range(PODS):
            name = f"p{round_}-{pod}"
            selector = f"device.attributes['drv'].index == {pod} && device.attributes['drv'].serial != '{round_}'"
            claim = a_claim(name).uid(name).resource_version("1").request("r", "gpu", cel=(selector,), every=True)
            sched.parts.event_handlers.apply("ResourceClaim", [Delta(None, claim.typed())])
            sched.pod(name, resourceClaims=[{"name": "c", "resourceClaimName": name}])
        await sched.settle()
        sched.clock.move(ROUND_S)
        await sched.settle()
        gc.collect()
        live = Counter(type(each) for each in gc.get_objects() if isinstance(each, DeviceKind | NodeKind))
        print(
            f"round {round_}: {resident_mb():.0f} MB, {live[DeviceKind]} kinds of devices, {live[NodeKind]} of nodes",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(run(args.nodes, args.rounds))


if __name__ == "__main__":
    main()
