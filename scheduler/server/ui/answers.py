"""The answers of /ui/data as types: sums, and pages of pods, nodes, devices and storage (docs/ui.md)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.explain.answer import AnswerPart


class Problem(AnswerPart, frozen=True):
    """A check of /readyz that fails, or passes with a remark."""

    check: str
    text: str
    fails: bool


class Facts(AnswerPart, frozen=True):
    """The state of this process."""

    version: str
    schedulers: tuple[str, ...]
    """Names of the profiles."""
    leads: bool
    lease: str
    """Name of the Lease; empty without leader election."""
    bindings: int
    """Bindings in flight."""
    problems: tuple[Problem, ...] = ()
    audit_passes: int = 0
    """Whole passes of the self-audit."""
    audit_differences: int = 0
    """Differences that it has found and healed."""


class CauseAnswer(AnswerPart, frozen=True):
    """Pending pods with one cause. `states` counts them by their place in the queue."""

    id: str
    text: str
    plugins: tuple[str, ...]
    pods: int
    states: dict[str, int]
    examples: tuple[str, ...]


class CellAnswer(AnswerPart, frozen=True):
    """Nodes that follow each other in the order of names. `use` has minimum, median and maximum in percent.

    The entry of a measure is null if none of the nodes has that resource.
    """

    id: int
    first: str
    last: str
    nodes: int
    cordoned: int
    tainted: int
    use: tuple[tuple[int, int, int] | None, ...]


class GroupRow(AnswerPart, frozen=True):
    """One group of pods. `least` is the number of pods with which it starts; null without its object."""

    id: str
    """Kind, namespace and name."""
    state: str
    least: int | None
    pods: int
    running: int


class HistoryPoint(AnswerPart, frozen=True):
    """One minute of the scheduler. Pods by their place in the queue at its end, and attempts that ended within it."""

    time: float
    """Seconds since the epoch."""
    pending: dict[str, int]
    attempts: dict[str, int]
    """By result: `scheduled` are bound pods."""


class Overview(AnswerPart, frozen=True):
    """The first answer: sums only."""

    time: float
    """Seconds since the epoch."""
    facts: Facts
    queue: dict[str, int]
    pending: int
    bound: int
    causes: tuple[CauseAnswer, ...]
    other_causes: int
    """Causes that the last entry of `causes` sums up; 0 if it is one cause like the rest."""
    nodes: int
    measures: tuple[str, ...]
    cells: tuple[CellAnswer, ...]
    group_states: dict[str, int]
    """The number of groups by state."""
    groups: tuple[GroupRow, ...]
    """The first ones: those that have not started come before those that run."""
    history: tuple[HistoryPoint, ...] = ()
    """The last hour at most, oldest first."""


class PodRow(AnswerPart, frozen=True):
    """One pending pod. `retry_s` is the time until it moves without an event; null if it does not."""

    pod: str
    state: str
    attempts: int
    retry_s: float | None
    nominated_to: str
    message: str
    group: str
    """The id of its group; "" without one."""


class PodPage(AnswerPart, frozen=True):
    """Some pods of one cause."""

    cause: str
    text: str
    page: int
    pages: int
    total: int
    pods: tuple[PodRow, ...]


class UseRow(AnswerPart, frozen=True):
    """The use of one resource of a node."""

    resource: str
    used: str
    of: str
    percent: int


class NodeRow(AnswerPart, frozen=True):
    """One node."""

    node: str
    cordoned: bool
    taints: tuple[str, ...]
    zone: str
    labels: tuple[str, ...]
    """The first ones, as `key=value`."""
    pods: int
    use: tuple[UseRow, ...]


class NodePage(AnswerPart, frozen=True):
    """Some nodes: of one cell, or those that a search has found."""

    cell: int | None
    page: int
    pages: int
    total: int
    nodes: tuple[NodeRow, ...]


class MemberRow(AnswerPart, frozen=True):
    """One pod of a group. `state` is its place in the queue, unless it has a node."""

    pod: str
    state: str
    node: str


class GroupPage(AnswerPart, frozen=True):
    """Some pods of one group."""

    group: str
    page: int
    pages: int
    total: int
    pods: tuple[MemberRow, ...]


class SharedUse(AnswerPart, frozen=True):
    """One capacity of a device that several claims share, as quantities."""

    device: str
    capacity: str
    used: str
    of: str


class PoolUse(AnswerPart, frozen=True):
    """Devices of one pool. A device of which only a part is allocated counts as used."""

    driver: str
    pool: str
    node: str
    """"" for a pool that belongs to no single node."""
    devices: int
    used: int
    shared: tuple[SharedUse, ...] = ()

    @property
    def free(self) -> int:
        return self.devices - self.used


class DriverUse(AnswerPart, frozen=True):
    """All devices of a driver, or all of an extended resource."""

    name: str
    is_extended: bool
    """Whether it is an extended resource, which a device plugin offers: its `pools` are nodes."""
    pools: int
    full: int
    """Pools without a free device."""
    devices: int
    used: int


class DevicesPage(AnswerPart, frozen=True):
    """The sums of all drivers, and some pools."""

    page: int
    pages: int
    total: int
    drivers: tuple[DriverUse, ...]
    pools: tuple[PoolUse, ...]


class ClassUse(AnswerPart, frozen=True):
    """A storage class, and its capacity objects together. Sizes are in bytes."""

    name: str
    provisioner: str
    binding: str
    """volumeBindingMode."""
    pools: int
    reserved: int
    free: int


class DriverAttachUse(AnswerPart, frozen=True):
    """Attach slots of one driver on the nodes that have a limit."""

    driver: str
    nodes: int
    full: int
    """Nodes without a free slot."""
    used: int
    limit: int


class CapacityUse(AnswerPart, frozen=True):
    """One CSIStorageCapacity object. Sizes are in bytes; null if the object has none."""

    pool: str
    """`namespace/name`."""
    storage_class: str
    nodes: int
    node: str
    """One of the nodes that reach it; "" if there is none."""
    reserved: int
    """Of volumes that are promised and that the object does not show yet."""
    free: int | None
    largest: int | None
    """The largest possible volume."""


class StoragePage(AnswerPart, frozen=True):
    """The sums of all classes and drivers, and some capacity objects."""

    page: int
    pages: int
    total: int
    classes: tuple[ClassUse, ...]
    drivers: tuple[DriverAttachUse, ...]
    pools: tuple[CapacityUse, ...]


class PlacedVolume(AnswerPart, frozen=True):
    """The volume of a claim of a pod."""

    claim: str
    """`namespace/name`."""
    volume: str
    storage_class: str
    driver: str
    """"" for a volume without a CSI driver."""
    capacity: str
    segments: tuple[Mapping[str, tuple[str, ...]], ...]
    """The labels of the nodes that reach the volume, one of these; empty: every node."""
    pool: str
    """The CSIStorageCapacity of its class at the pod's node, `namespace/name`; "" if there is none."""


class PlacedDevice(AnswerPart, frozen=True):
    """A device of a claim of a pod."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    consumed: Mapping[str, str]
    """The part of each shared capacity; empty for a whole device."""
    has_admin_access: bool


class PodUses(AnswerPart, frozen=True):
    """What a pod with a node uses."""

    pod: str
    node: str
    volumes: tuple[PlacedVolume, ...]
    devices: tuple[PlacedDevice, ...]
