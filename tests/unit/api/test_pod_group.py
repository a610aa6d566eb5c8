"""Groups from their objects and from the pods that name them (docs/spec/groups.md §1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.pod_group import (
    COSCHEDULING_LABEL,
    COSCHEDULING_POD_GROUP,
    POD_GROUP,
    VOLCANO_ANNOTATION,
    VOLCANO_POD_GROUP,
    GroupKey,
    group_of,
)
from tests.unit.harness import POD_GROUP_TYPES, manifest, typed


def decoded(kind: str, **parts: Any) -> Any:
    raw = {"metadata": {"name": "g", "namespace": "team", "uid": "u"}, **parts}
    return ObjectDecoder(kind, POD_GROUP_TYPES[kind]).decode(msgspec.json.encode(raw))


NATIVE, LABEL = GroupKey(POD_GROUP, "default/g"), GroupKey(COSCHEDULING_POD_GROUP, "default/l")
ANNOTATED = GroupKey(VOLCANO_POD_GROUP, "default/v")


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        pytest.param({}, None, id="no group"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, NATIVE, id="the field"),
        pytest.param({"schedulingGroup": {}}, None, id="a field without a name"),
        pytest.param({"schedulingGroup": None}, None, id="a null"),
        pytest.param({"labels": {COSCHEDULING_LABEL: "l"}}, LABEL, id="the label"),
        pytest.param({"labels": {COSCHEDULING_LABEL: ""}}, None, id="an empty label"),
        pytest.param(
            {"schedulingGroup": {"podGroupName": "g"}, "labels": {COSCHEDULING_LABEL: "l"}}, NATIVE, id="both"
        ),
        pytest.param({"annotations": {VOLCANO_ANNOTATION: "v", "other": "x"}}, ANNOTATED, id="the annotation"),
        pytest.param({"annotations": {VOLCANO_ANNOTATION: ""}}, None, id="an empty annotation"),
        pytest.param({"annotations": None}, None, id="no annotations"),
        pytest.param(
            {"annotations": {VOLCANO_ANNOTATION: "v"}, "labels": {COSCHEDULING_LABEL: "l"}},
            LABEL,
            id="the label and the annotation",
        ),
    ],
)
def test_the_group_that_a_pod_names(spec: dict[str, Any], group: GroupKey | None) -> None:
    assert group_of(typed(manifest("p", **spec))) == group


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": 3}}}, (True, 3)),
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": 0}}}, (True, 1)),
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": -5}}}, (True, 1)),
        (POD_GROUP, {"schedulingPolicy": {"gang": {}}}, (True, 1)),
        (POD_GROUP, {"schedulingPolicy": {"basic": {}}}, (False, 1)),
        (POD_GROUP, {}, (False, 1)),
        (
            COSCHEDULING_POD_GROUP,
            {"minMember": 4, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 10},
            (True, 4),
        ),
        (COSCHEDULING_POD_GROUP, {"minMember": -1}, (True, 1)),
        (COSCHEDULING_POD_GROUP, {}, (True, 1)),
        (
            VOLCANO_POD_GROUP,
            {"minMember": 4, "minTaskMember": {"worker": 9}, "minResources": {"cpu": "3"}, "queue": "q"},
            (True, 4),
        ),
        (VOLCANO_POD_GROUP, {"minMember": 0}, (True, 1)),
        (VOLCANO_POD_GROUP, {}, (True, 1)),
    ],
)
def test_the_minimum(kind: str, spec: dict[str, Any], expected: tuple[bool, int]) -> None:
    group = decoded(kind, spec=spec)

    assert (group.is_gang, group.least) == expected
    assert group.group == GroupKey(kind, "team/g")


@pytest.mark.parametrize(
    ("kind", "spec", "at"),
    [
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": 2**31}}}, "$.spec.schedulingPolicy.gang.minCount"),
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": "3"}}}, "$.spec.schedulingPolicy.gang.minCount"),
        (COSCHEDULING_POD_GROUP, {"minMember": 1.5}, "$.spec.minMember"),
        (COSCHEDULING_POD_GROUP, [], "$.spec"),
        (VOLCANO_POD_GROUP, {"minTaskMember": {"worker": "9"}}, "$.spec.minTaskMember[...]"),
    ],
)
def test_an_object_that_cannot_be_read(kind: str, spec: Any, at: str) -> None:
    broken = decoded(kind, spec=spec)

    assert isinstance(broken, Broken)
    assert at in broken.why


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, "spec.networkTopology with mode hard"),
        ({"networkTopology": {"highestTierName": "rack"}}, "spec.networkTopology with mode hard"),
        ({"networkTopology": {"mode": "hard"}}, ""),
        ({"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}, ""),
        ({"subGroupPolicy": [{"name": "a"}, {"name": "b", "minSubGroups": 2}]}, "spec.subGroupPolicy[1].minSubGroups"),
        (
            {"subGroupPolicy": [{"name": "a", "networkTopology": {"highestTierAllowed": 2}}]},
            "spec.subGroupPolicy[0].networkTopology with mode hard",
        ),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 2, "minSubGroups": 0}]}, ""),
    ],
)
def test_what_volcano_would_obey(spec: dict[str, Any], field: str) -> None:
    assert decoded(VOLCANO_POD_GROUP, spec=spec).unsupported == field
