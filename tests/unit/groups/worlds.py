"""Random clusters with a group of unlike pods that need cpu, memory, zones, storage and devices; and an exact solver for them.

Everything is small and tight, so that the order of the pods and the choice of nodes matter. A device is of model `x` or `y`, and a
claim requests one of them or any. Storage is provisioned from a pool of each node.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import highspy

from scheduler.config.types import Configuration
from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support import volumebuilders
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows_limits import stored

MODELS: Final = ("x", "y")
DRIVER: Final = "csi.example.com"
GROUP: Final[dict[str, Any]] = {"schedulingGroup": {"podGroupName": "g"}}


@dataclass(frozen=True)
class SmallNode:
    name: str
    cpu: int
    memory: int
    zone: str
    storage: int
    devices: dict[str, int]


@dataclass(frozen=True)
class GroupMember:
    name: str
    cpu: int
    memory: int
    zone: str = ""
    storage: int = 0
    devices: dict[str, int] = field(default_factory=dict)
    """Model, or "" for any → number."""


@dataclass
class GroupWorld:
    """Nodes, and the members of one group that must all start."""

    nodes: list[SmallNode]
    members: list[GroupMember]

    def built(self, config: Configuration | None = None) -> SchedulerHarness:
        """Return a scheduler with the nodes and without the group."""
        sched = SchedulerHarness(config)
        sched.served()
        show(sched, volumebuilders.a_class("fast", DRIVER).binding_mode("WaitForFirstConsumer"))
        show(sched, volumebuilders.a_csi_driver(DRIVER).tracks_capacity(), a_device_class("gpu"))
        for node in self.nodes:
            sched.node(
                node.name, cpu=str(node.cpu), memory=f"{node.memory}Gi", labels={"zone": node.zone, "host": node.name}
            )
            show(sched, volumebuilders.a_csi_node(node.name).driver(DRIVER, topology_keys=("host",)))
            capacity = volumebuilders.a_capacity(f"cap-{node.name}", "fast", f"{node.storage}Gi")
            show(sched, capacity.where("host", node.name))
            devices = [(model, at) for model in MODELS for at in range(node.devices.get(model, 0))]
            if devices:
                show(
                    sched, a_slice(node.name, "drv", *(a_device(f"{m}{at}").attr("drv/model", m) for m, at in devices))
                )
        return sched

    def add_group(self, sched: SchedulerHarness, least: int | None = None) -> None:
        sched.group("g", len(self.members) if least is None else least)
        for member in self.members:
            add(sched, member)

    def is_placeable(self) -> bool:
        """Return whether all members have a place, by an integer program."""
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        choices = {
            (member.name, node.name): solver.addBinary()
            for member in self.members
            for node in self.nodes
            if member.zone in {"", node.zone}
        }
        for member in self.members:
            mine = [variable for (name, _), variable in choices.items() if name == member.name]
            if not mine:
                return False
            solver.addConstr(sum(mine) == 1)
        for node in self.nodes:
            here = [(m, choices[m.name, node.name]) for m in self.members if (m.name, node.name) in choices]
            if not here:
                continue
            solver.addConstr(sum(m.cpu * v for m, v in here) <= node.cpu)
            solver.addConstr(sum(m.memory * v for m, v in here) <= node.memory)
            solver.addConstr(sum(m.storage * v for m, v in here) <= node.storage)
            for model in MODELS:
                solver.addConstr(sum(m.devices.get(model, 0) * v for m, v in here) <= node.devices.get(model, 0))
            solver.addConstr(sum(sum(m.devices.values()) * v for m, v in here) <= sum(node.devices.values()))
        solver.run()
        return solver.getModelStatus() == highspy.HighsModelStatus.kOptimal


def show(sched: SchedulerHarness, *builders: Any) -> None:
    for thing in stored(*builders):
        thing(sched)


def add(sched: SchedulerHarness, member: GroupMember, **more: Any) -> None:
    """Show a member with its claims."""
    requests = {"cpu": str(member.cpu), "memory": f"{member.memory}Gi"}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}], **GROUP, **more}
    if member.zone:
        spec["nodeSelector"] = {"zone": member.zone}
    if member.storage:
        claim = f"disk-{member.name}"
        show(sched, volumebuilders.a_claim(claim, f"{member.storage}Gi", "fast").uid(claim))
        spec["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]
    if member.devices:
        claim = f"gpu-{member.name}"
        asked = a_claim(claim).uid(claim).resource_version("1")
        for model, count in member.devices.items():
            cel = f"device.attributes['drv'].model == '{model}'" if model else ()
            asked = asked.request(f"r{model}", "gpu", count=count, cel=cel)
        show(sched, asked)
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    sched.pod(member.name, **spec)


def has_started(sched: SchedulerHarness) -> bool:
    return any(condition.status == "True" for _, condition in sched.writer.group_conditions)


async def ended(sched: SchedulerHarness) -> None:
    """Cancel the bindings, which wait for volumes."""
    for task in list(sched.parts.binder._tasks):
        task.cancel()
    await sched.turns()


def drawn(seed: int) -> GroupWorld:
    """Return a world that can be filled: nodes are cut into members, which then request a little less."""
    rng = random.Random(seed)
    nodes: list[SmallNode] = []
    members: list[GroupMember] = []
    for at in range(rng.randint(2, 5)):
        node = SmallNode(
            name=f"n{at}",
            cpu=rng.randint(4, 16),
            memory=rng.randint(4, 16),
            zone=rng.choice("ab"),
            storage=rng.choice((0, 20, 40)),
            devices={model: rng.randint(0, 2) for model in MODELS},
        )
        nodes.append(node)
        count = min(rng.randint(1, 4), 12 - len(members))
        shares = [_cut(rng, amount, count) for amount in (node.cpu, node.memory, node.storage)]
        devices = [model for model, number in node.devices.items() for _ in range(number)]
        for cpu, memory, storage in zip(*shares):
            takes: dict[str, int] = {}
            if devices and rng.random() < 0.6:
                model = devices.pop(rng.randrange(len(devices)))
                takes = {rng.choice((model, "")): 1}
            zone = node.zone if rng.random() < 0.2 else ""
            members.append(
                GroupMember(
                    f"m{len(members)}",
                    max(0, cpu - rng.randint(0, 1)),
                    max(0, memory - rng.randint(0, 1)),
                    zone,
                    storage,
                    takes,
                )
            )
    rng.shuffle(members)
    return GroupWorld(nodes, members)


def _cut(rng: random.Random, amount: int, count: int) -> list[int]:
    """Return parts that have this sum."""
    cuts = sorted(rng.randint(0, amount) for _ in range(count - 1))
    return [high - low for low, high in zip([0, *cuts], [*cuts, amount])]
