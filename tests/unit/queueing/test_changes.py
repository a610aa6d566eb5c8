"""Property changes of pods as events."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.api.core_v1 import (
    Container,
    ContainerExtendedResourceRequest,
    ExtendedResourceClaimStatus,
    PodResourceClaimStatus,
    ResourceRequirements,
)
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.quantity import parse
from scheduler.core.cluster_events import Action, Resource
from scheduler.queueing.types import pod_changes
from tests.unit.queueing.harness import pod


def with_requests(**requests: str) -> PodInfo:
    plain = pod("p").pod
    amounts = {name: parse(text) for name, text in requests.items()}
    container = Container(name="c", resources=ResourceRequirements(requests=amounts))
    return pod_info(msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, containers=(container,))))


def with_claim(*names: str | None) -> PodInfo:
    """Each entry is named as its claim; None is one that needs no claim."""
    plain = pod("p").pod
    statuses = tuple(PodResourceClaimStatus(name=name or "none", resource_claim_name=name) for name in names)
    return pod_info(
        msgspec.structs.replace(plain, status=msgspec.structs.replace(plain.status, resource_claim_statuses=statuses))
    )


def with_extended(claim: str, *requests: str) -> PodInfo:
    plain = pod("p").pod
    status = ExtendedResourceClaimStatus(
        resource_claim_name=claim,
        request_mappings=tuple(ContainerExtendedResourceRequest(request_name=request) for request in requests),
    )
    return pod_info(
        msgspec.structs.replace(
            plain, status=msgspec.structs.replace(plain.status, extended_resource_claim_status=status)
        )
    )


OTHER, LABELS, TOLERATIONS = [Action.UPDATE_OTHER], [Action.UPDATE_POD_LABEL], [Action.UPDATE_POD_TOLERATION]
DOWN, UP = [Action.UPDATE_POD_SCALE_DOWN], [Action.UPDATE_POD_SCALE_UP]
GATES = [Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED]
CLAIMS = [Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM]


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(pod("p"), pod("p", version="2"), OTHER, id="nothing we know"),
        pytest.param(pod("p"), pod("p", labels={"a": "b"}), LABELS, id="labels"),
        pytest.param(with_requests(cpu="2"), with_requests(cpu="1"), DOWN, id="less cpu"),
        pytest.param(with_requests(cpu="2"), with_requests(), DOWN, id="no cpu any more"),
        pytest.param(with_requests(cpu="0"), with_requests(), DOWN, id="no request any more, not of zero"),
        pytest.param(with_requests(cpu="1"), with_requests(cpu="2"), UP, id="more cpu"),
        pytest.param(
            with_requests(cpu="2", memory="1"),
            with_requests(cpu="1", memory="2"),
            DOWN + UP,
            id="less cpu and more memory",
        ),
        pytest.param(with_requests(), with_requests(cpu="0"), UP, id="a request of zero, none before"),
        pytest.param(pod("p", gates=("g",)), pod("p"), GATES, id="the last gate went"),
        pytest.param(pod("p", gates=("g", "h")), pod("p", gates=("g",)), OTHER, id="one gate of two went"),
        pytest.param(pod("p"), pod("p", tolerations=1), TOLERATIONS, id="a toleration more"),
        pytest.param(with_claim("a"), with_claim("b"), CLAIMS, id="another generated claim"),
        pytest.param(with_claim("a"), with_claim("a", "b"), CLAIMS, id="one more generated claim"),
        pytest.param(with_claim("a", "b"), with_claim("b", "a"), CLAIMS, id="341 generated claims in another order"),
        pytest.param(with_claim(None), with_claim("none"), CLAIMS, id="it needs a claim after all"),
        pytest.param(with_claim("a"), with_claim("a"), OTHER, id="the same generated claims"),
        pytest.param(pod("p"), with_extended("c"), CLAIMS, id="a claim for extended resources"),
        pytest.param(with_extended("c"), with_extended("d"), CLAIMS, id="another claim for extended resources"),
        pytest.param(with_extended("c", "r"), with_extended("c", "s"), CLAIMS, id="extended resources from elsewhere"),
        pytest.param(with_extended("c", "r"), with_extended("c", "r"), OTHER, id="from the same requests"),
        pytest.param(
            pod("p"),
            pod("p", labels={"a": "b"}, tolerations=1),
            LABELS + TOLERATIONS,
            id="two properties, two events",
        ),
    ],
)
def test_changes(old: PodInfo, new: PodInfo, actions: list[Action]) -> None:
    assert actions == [event.action for event in pod_changes(old, new)]
    assert {Resource.TARGET_POD} == {event.resource for event in pod_changes(old, new)}


def test_a_pod_with_a_node() -> None:
    """Once assigned, its changes are about AssignedPod."""
    assert [event.resource for event in pod_changes(pod("p", node="n"), pod("p", node="n", version="2"))] == [
        Resource.ASSIGNED_POD
    ]
