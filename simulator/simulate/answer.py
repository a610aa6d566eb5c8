"""The JSON that `simulate -o json` prints, as types. `docs/simulate.schema.json` is generated from them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from scheduler.api.podinfo import CPU
from scheduler.core.decision_record import NodeScore
from scheduler.explain.answer import Explanation
from scheduler.server.ui.answers import PlacedDevice, PlacedVolume
from simulator.simulate.detail import (
    Count,
    Detail,
    Named,
    NodeUse,
    Part,
    PodDetail,
    PodName,
    PoolAnswer,
)
from simulator.simulate.group_rows import GroupRow
from simulator.simulate.input.references import MissingObject
from simulator.simulate.orders import OrderAnswer, Orders
from simulator.simulate.outcome import Fill, Outcome, Placement, Victim, WorkloadRow
from simulator.simulate.planning.difference import Difference, PodDifferenceAnswer
from simulator.simulate.planning.nodes_needed import NodesNeeded

SCHEMA_VERSION: Final = 2
Share = Annotated[float, Meta(ge=0)]


class Summary(Part, frozen=True):
    """Numbers of pods, nodes and objects."""

    pods: Annotated[Count, Meta(description="Pods that were to be scheduled: `placed` and `pending`.")]
    placed: Count
    pending: Count
    preempted: Annotated[Count, Meta(description="Pods that were preempted.")]
    nodes: Count
    bound_before: Annotated[Count, Meta(description="Pods of the input that had a node.")]
    left_alone: Annotated[Count, Meta(description="Pods without a node that name another scheduler.")]
    left_out: Annotated[
        dict[str, Count],
        Meta(description="Objects by kind that scheduling does not read; custom resources as `Kind.group`."),
    ]


class VolumeAnswer(Part, frozen=True):
    """The volume of a claim of a pod."""

    claim: PodName
    volume: Named
    storage_class: str
    driver: Annotated[str, Meta(description="Empty for a volume without a CSI driver.")]
    capacity: Annotated[str, Meta(description="A quantity.")]
    segments: Annotated[
        list[dict[str, list[str]]],
        Meta(description="Node labels, such as the zone: nodes of any of these reach it. Empty: every node does."),
    ]
    pool: Annotated[
        str | None, Meta(description="The CSIStorageCapacity of its class at the node, `namespace/name`; null: none.")
    ]


class DeviceAnswer(Part, frozen=True):
    """A device of a claim of a pod."""

    claim: PodName
    request: Annotated[Named, Meta(description="`request`, or `request/alternative`.")]
    driver: Named
    pool: Named
    device: Named
    consumed: Annotated[
        dict[str, str], Meta(description="The part of each shared capacity, as quantities; empty for a whole device.")
    ]
    admin_access: bool


class ScoreAnswer(Part, frozen=True):
    """The weighted scores of a node."""

    node: Named
    total: int
    parts: Annotated[dict[str, int], Meta(description="By plugin.")]


class ChoiceAnswer(Part, frozen=True):
    """Why a pod is on its node and on no other one that it fits on."""

    chosen: ScoreAnswer
    runner_up: Annotated[ScoreAnswer | None, Meta(description="The best other node; of equal totals one is drawn.")]


class PodAnswer(Part, frozen=True):
    """One pod that was to be scheduled."""

    pod: PodName
    owner: Annotated[Named | None, Meta(description="`Kind/name` of its controller; null for a pod without one.")]
    node: Annotated[Named | None, Meta(description="The node that it was bound to; null for a pending pod.")]
    expected_pending: Annotated[bool, Meta(description="By `--expect-pending` or its annotation.")]
    volumes: Annotated[list[VolumeAnswer], Meta(description="Of its claims, in the order of the pod.")]
    devices: Annotated[list[DeviceAnswer], Meta(description="Of its claims, in the order of the pod.")]
    choice: Annotated[
        ChoiceAnswer | None, Meta(description="Null if no scores were compared: it fits on one node only.")
    ]
    reason: Annotated[str, Meta(description="Of pending pods only, such as Unschedulable.")] | UnsetType = UNSET
    message: Annotated[str, Meta(description="Of pending pods only: the scheduler's text.")] | UnsetType = UNSET


class GroupAnswer(Part, frozen=True):
    """One group of pods: a PodGroup, or pods that name one which is missing."""

    kind: Annotated[Named, Meta(description="`PodGroup` of scheduling.k8s.io; of other API groups `PodGroup.group`.")]
    group: Annotated[str, Meta(pattern="^[^/]+/[^/]+$", description="Namespace and name.")]
    minimum: Annotated[Count | None, Meta(description="Pods with which it can start; null without a PodGroup.")]
    pods: Count
    placed: Annotated[Count, Meta(description="Its pods that have a node, also those of the input.")]
    started: Annotated[bool, Meta(description="Whether at least `minimum` of its pods have a node.")]
    message: Annotated[
        str, Meta(description="Why it was refused; empty for a group that started, or has too few pods.")
    ]


class NodeShare(Part, frozen=True):
    """A node, and the share of the resource that its pods request."""

    node: Named
    share: Share


class ResourceAnswer(Part, frozen=True):
    """Requests of the pods on all nodes for one resource."""

    resource: Named
    unit: Literal["millicpu", "1"]
    requested: Count
    allocatable: Count
    fullest: NodeShare
    emptiest: NodeShare


class GroupDifferenceAnswer(Part, frozen=True):
    """A group of which another number of pods is placed."""

    before: Annotated[GroupAnswer | None, Meta(description="Null if it does not exist.")]
    after: Annotated[GroupAnswer | None, Meta(description="Null if it does not exist.")]


class PlanAnswer(Part, frozen=True):
    """The changes of the cluster, and what they change."""

    changes: Annotated[list[Named], Meta(description="One phrase for each change.")]
    before: Annotated[Summary, Meta(description="The summary of the cluster without the changes.")]
    unplaced: Annotated[list[PodDifferenceAnswer], Meta(description="Pods with a node before and not after.")]
    placed: Annotated[list[PodDifferenceAnswer], Meta(description="Pods with a node after and not before.")]
    moved: Annotated[
        list[PodDifferenceAnswer], Meta(description="Pods that had a node in the input and have another one after.")
    ]
    groups: list[GroupDifferenceAnswer]


class Answer(Part, frozen=True):
    """What `kubestow simulate -o json` prints. Equal inputs and seeds have equal bytes."""

    schema_version: Annotated[
        Literal[2], Meta(description="Grows when a field changes its meaning or goes, and not for new fields.")
    ]
    ok: Annotated[bool, Meta(description="Whether `problems` is empty; the exit code is then 0.")]
    settled: Annotated[bool, Meta(description="False if the time ran out before the scheduler came to rest.")]
    problems: Annotated[list[str], Meta(description="What is not as expected, one sentence each.")]
    summary: Summary
    pods: Annotated[list[PodAnswer], Meta(description="In the order of the input.")]
    preempted: list[Victim]
    missing_references: list[MissingObject]
    workloads: list[WorkloadRow]
    groups: Annotated[list[GroupAnswer], Meta(description="In the order of the input.")]
    resources: list[ResourceAnswer]
    nodes: Annotated[list[NodeUse], Meta(description="By name.")]
    device_pools: Annotated[list[PoolAnswer], Meta(description="Pools of devices that belong to no single node.")]
    explanations: Annotated[
        list[Explanation], Meta(description="With `--explain`: one for each reason and workload (docs/explain.md).")
    ]
    plan: Annotated[
        PlanAnswer | None,
        Meta(description="With changes such as `--drain`, which the rest of the answer includes; null without."),
    ]


class OrdersAnswer(Part, frozen=True):
    """What `kubestow simulate --seeds N -o json` prints. Equal inputs and seeds have equal bytes."""

    schema_version: Literal[1]
    ok: Annotated[bool, Meta(description="Whether every order is as expected; the exit code is then 0.")]
    fits: Annotated[Count, Meta(description="In how many orders everything is as expected.")]
    of: Annotated[Count, Meta(description="The number of orders.")]
    orders: Annotated[list[OrderAnswer], Meta(description="By seed.")]


class NodesRunAnswer(Part, frozen=True):
    """One simulation with additional nodes."""

    added: Annotated[Count, Meta(description="The number of additional nodes.")]
    ok: Annotated[bool, Meta(description="Whether every pod is placed, or was expected to be pending.")]
    pods: Annotated[Count, Meta(description="Pods that were to be scheduled.")]
    placed: Count
    reason: Annotated[str, Meta(description="The first pod that is not placed, and why; empty if `ok`.")]


class NodesNeededAnswer(Part, frozen=True):
    """What `kubestow simulate --nodes-needed NODE -o json` prints. Equal inputs and seeds have equal bytes."""

    schema_version: Literal[1]
    ok: Annotated[bool, Meta(description="Whether a number of nodes suffices.")]
    like: Annotated[Named, Meta(description="The node of which copies are added.")]
    nodes: Annotated[Count | None, Meta(description="The least number of additional nodes; null if none suffices.")]
    limits: Annotated[
        list[str],
        Meta(
            description="What the added nodes have too little of if there is one node less, such as `cpu` or `devices`."
        ),
    ]
    runs: Annotated[list[NodesRunAnswer], Meta(description="The simulations, by number of additional nodes.")]


def nodes_needed_answer(found: NodesNeeded) -> NodesNeededAnswer:
    """Return the number of nodes as the JSON has it."""
    runs = [NodesRunAnswer(each.added, each.fits, each.pods, each.placed, each.reason) for each in found.runs]
    is_good = found.nodes is not None and not found.is_empty
    return NodesNeededAnswer(1, is_good, found.like, found.nodes, found.limits, runs)


def orders_answer(found: Orders) -> OrdersAnswer:
    """Return the outcomes of several seeds as the JSON has them."""
    return OrdersAnswer(1, found.fits == len(found.orders), found.fits, len(found.orders), list(found.orders))


def answer(outcome: Outcome, difference: Difference | None = None) -> Answer:
    """Return the outcome as the JSON has it."""
    used = outcome.detail or Detail({}, (), ())
    return Answer(
        schema_version=SCHEMA_VERSION,
        ok=outcome.is_good,
        settled=outcome.is_settled,
        problems=outcome.problems,
        summary=_summary(outcome),
        pods=[pod_answer(each, used.pods.get(each.pod, PodDetail())) for each in outcome.placements],
        preempted=list(outcome.victims),
        missing_references=list(outcome.missing),
        workloads=list(outcome.workloads),
        groups=[_group(each) for each in outcome.groups],
        resources=[_resource(each) for each in outcome.fills],
        nodes=list(used.nodes),
        device_pools=list(used.pools),
        explanations=list(outcome.explanations),
        plan=None if difference is None else _plan(difference),
    )


def _plan(found: Difference) -> PlanAnswer:
    return PlanAnswer(
        changes=list(found.changes),
        before=_summary(found.before),
        unplaced=list(found.unplaced),
        placed=list(found.placed),
        moved=list(found.moved),
        groups=[
            GroupDifferenceAnswer(
                None if each.before is None else _group(each.before), None if each.after is None else _group(each.after)
            )
            for each in found.groups
        ],
    )


def _summary(outcome: Outcome) -> Summary:
    return Summary(
        pods=len(outcome.placements),
        placed=outcome.placed,
        pending=len(outcome.placements) - outcome.placed,
        preempted=len(outcome.victims),
        nodes=outcome.nodes,
        bound_before=outcome.bound_before,
        left_alone=outcome.left_alone,
        left_out=dict(outcome.left_out),
    )


def pod_answer(each: Placement, used: PodDetail) -> PodAnswer:
    """Return a pod as the JSON has it."""
    made = PodAnswer(
        *(each.pod, each.owner or None, each.node or None, each.is_expected_pending),
        volumes=[_volume(volume) for volume in used.volumes],
        devices=[_device(device) for device in used.devices],
        choice=_choice(used),
    )
    return made if each.node else msgspec.structs.replace(made, reason=each.reason, message=each.message)


def _volume(each: PlacedVolume) -> VolumeAnswer:
    return VolumeAnswer(
        *(each.claim, each.volume, each.storage_class, each.driver, each.capacity),
        segments=[{name: list(values) for name, values in segment.items()} for segment in each.segments],
        pool=each.pool or None,
    )


def _device(each: PlacedDevice) -> DeviceAnswer:
    return DeviceAnswer(
        *(each.claim, each.request, each.driver, each.pool, each.device, dict(each.consumed), each.has_admin_access)
    )


def _choice(used: PodDetail) -> ChoiceAnswer | None:
    if used.chosen is None:
        return None
    return ChoiceAnswer(_score(used.chosen), None if used.runner_up is None else _score(used.runner_up))


def _score(each: NodeScore) -> ScoreAnswer:
    return ScoreAnswer(each.node, each.total, each.parts)


def _group(each: GroupRow) -> GroupAnswer:
    return GroupAnswer(*each.group, each.least, each.pods, each.placed, each.is_started, each.message)


def _resource(each: Fill) -> ResourceAnswer:
    return ResourceAnswer(
        each.resource,
        "millicpu" if each.resource == CPU else "1",
        each.requested,
        each.allocatable,
        NodeShare(each.fullest[0], round(each.fullest[1], 4)),
        NodeShare(each.emptiest[0], round(each.emptiest[1], 4)),
    )
