"""A small random cluster in the making: what the functions that plant a cause use."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.apiserver.patches import merge
from simulator.builders.claims import a_claim as a_device_claim, a_result
from simulator.builders.core import Builder, NodeBuilder, PodBuilder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv

Json = dict[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
GPU: Final = "example.com/gpu"
POD: Final = "p"
"""The name of the pod that is explained."""
ELSEWHERE: Final = "elsewhere"
"""The schedulerName of all other pods: no scheduler tries them."""
REPLICA_SET: Final = "ReplicaSet"
DAEMON_SET: Final = "DaemonSet"
_LETTERS: Final = ("a", "b", "c")
_MIB_PER_GIB: Final = 1024


def owner_of(pod: Json) -> str:
    """Return the kind of the pod's controller; "" if it has none."""
    owners = pod["metadata"].get("ownerReferences", ())
    return owners[0]["kind"] if owners else ""


@dataclass
class Left:
    """What a node has left: cpu in millicores, memory in MiB, pods, extended resources."""

    cpu: int
    memory: int
    pods: int
    gpu: int = 0


@dataclass(frozen=True)
class Planted:
    """A cluster with a planted cause. `base` is the same cluster before that: there the pod fits."""

    kind: str
    seed: int
    objects: tuple[Json, ...]
    pod: Json
    base: tuple[Json, ...]
    base_pod: Json

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"


@dataclass
class Draft:
    """Nodes, pods and all other objects by name. `pod` is the one to be explained."""

    dice: random.Random
    owners: random.Random
    """Which pods have a controller."""
    nodes: dict[str, NodeBuilder] = field(default_factory=dict)
    pods: dict[str, PodBuilder] = field(default_factory=dict)
    more: dict[tuple[str, str], Json] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    zones: dict[str, str] = field(default_factory=dict)
    pod: PodBuilder = field(default_factory=lambda: pod(POD))
    cpu: int = 0
    """What the pod requests, in millicores, and its memory in MiB."""
    memory: int = 0

    @classmethod
    def of(cls, seed: str) -> Draft:
        """Return three to eight nodes with a few pods, and a pod that fits on each of them."""
        draft = cls(random.Random(seed), random.Random(f"owners {seed}"))
        dice = draft.dice
        for number in range(dice.randint(3, 8)):
            draft._add_node(f"n{number}")
        draft.cpu, draft.memory = dice.randrange(300, 1001, 50), dice.randrange(256, 1025, 64)
        draft.pod = draft._with_containers().label("app", POD)
        for name in draft.names:
            for _ in range(dice.randint(0, 2)):
                draft.put(name, cpu=dice.randrange(0, 501, 50), memory=dice.randrange(0, 513, 64))
        draft._noise()
        return draft

    def _add_node(self, name: str) -> None:
        dice = self.dice
        zone, cpu, memory = dice.choice(_LETTERS[: dice.randint(2, 3)]), dice.randint(3, 8), dice.randint(4, 16)
        labels = {ZONE: zone, "disk": dice.choice(("ssd", "hdd")), "gen": str(dice.randint(1, 4))}
        self.nodes[name] = node(name).cpu(str(cpu)).memory(f"{memory}Gi").pods(20).labels(labels)
        self.left[name] = Left(cpu * 1000, memory * _MIB_PER_GIB, 20)
        self.zones[name] = zone

    def _with_containers(self) -> PodBuilder:
        """Return the pod with its requests, in a third of all cases spread over two containers."""
        if self.dice.random() < 2 / 3:
            return self.pod.cpu(f"{self.cpu}m").memory(f"{self.memory}Mi")
        beside = self.cpu // 3
        whole = self.pod.cpu(f"{self.cpu - beside}m").memory(f"{self.memory - 64}Mi")
        return whole.container("beside", cpu=f"{beside}m", memory="64Mi")

    def _noise(self) -> None:
        """Add objects that the pod does not need."""
        dice = self.dice
        if dice.random() < 0.5:
            self.add(a_class("noise-late", "noise.example.com"))
            self.add(a_claim("noise", "1Gi", "noise-late"))
        if dice.random() < 0.4:
            self.add(a_pv("noise", f"{dice.randint(1, 9)}Gi", "noise-static").on(self.any_node()))
        if dice.random() < 0.4:
            at = self.any_node()
            self.add(a_device_class("noise", 'device.driver == "noise.example.com"'))
            self.add(a_slice(at, "noise.example.com", *(a_device(f"x{i}") for i in range(dice.randint(1, 3)))))
        if dice.random() < 0.3:
            at = self.any_node()
            self.nodes[at] = self.nodes[at].taint("noise", effect="PreferNoSchedule")

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    def any_node(self) -> str:
        return self.dice.choice(self.names)

    def some_nodes(self, least: int = 1) -> list[str]:
        """Return at least this many nodes, and not all."""
        return self.dice.sample(self.names, self.dice.randint(least, len(self.names) - 1))

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, *things: Builder[Any] | Json) -> None:
        """Add or replace objects that are neither nodes nor pods."""
        for thing in things:
            manifest = thing if isinstance(thing, dict) else thing.obj()
            self.more[manifest["kind"], manifest["metadata"]["name"]] = manifest

    def patch(self, kind: str, name: str, patch: Json) -> None:
        """Merge a patch into an object."""
        self.more[kind, name] = merge(self.more[kind, name], patch)

    def put(
        self, at: str, *, cpu: int = 0, memory: int = 0, gpu: int = 0, like: PodBuilder | None = None
    ) -> PodBuilder:
        """Put one more pod on a node. Half of the pods have a controller: a ReplicaSet or a DaemonSet."""
        name = f"o{len(self.pods)}"
        kind = self.owners.choice((None, None, REPLICA_SET, DAEMON_SET))
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": f"of-{name}", "uid": f"of-{name}", "controller": True}
        metadata = {"name": name} | ({"ownerReferences": [owner]} if kind is not None else {})
        made = (like or pod("x")).set({"metadata": metadata}).bound_to(at).scheduler(ELSEWHERE)
        if like is None:
            made = made.label("app", self.dice.choice(_LETTERS))
        if cpu:
            made = made.cpu(f"{cpu}m")
        if memory:
            made = made.memory(f"{memory}Mi")
        if gpu:
            made = made.extended(GPU, str(gpu))
        left = self.left[at]
        left.cpu, left.memory, left.gpu, left.pods = left.cpu - cpu, left.memory - memory, left.gpu - gpu, left.pods - 1
        self.pods[name] = made
        return made

    def fill(self, at: str, resource: str, leave: int, parts: int = 1, like: PodBuilder | None = None) -> None:
        """Put pods on a node until it has just this much left."""
        spare = getattr(self.left[at], resource) - leave
        for number in range(parts):
            share = spare // parts if number else spare - (parts - 1) * (spare // parts)
            if share > 0:
                self.put(at, **{resource: share}, like=like)

    def hold(self, at: str, driver: str, device: str, device_class: str, **consumed: str) -> None:
        """Put a pod on a node that has this device, or a share of it."""
        holder = self.put(at, cpu=50)
        name = holder.obj()["metadata"]["name"]
        share = f"00000000-0000-4000-8000-{len(self.pods):012}" if consumed else ""
        result = a_result("r", f"{driver}/{at}/{device}", consumed=consumed, share=share)
        claim = a_device_claim(f"held-{name}").request("r", device_class, capacity=dict(consumed))
        self.add(claim.allocated(result, on=at).reserved_for(name))
        self.pods[name] = holder.claim("d", f"held-{name}")

    def driver_on(self, names: Iterable[str], driver: str, count: int | None = None) -> None:
        """Register a volume driver on these nodes."""
        for name in names:
            self.add(a_csi_node(name).driver(driver, count))

    # -- the result --------------------------------------------------------------------------------------------------

    def objects(self) -> tuple[Json, ...]:
        """Return all manifests except that of the pod."""
        return (
            *(each.obj() for each in self.nodes.values()),
            *(each.obj() for each in self.pods.values()),
            *self.more.values(),
        )
