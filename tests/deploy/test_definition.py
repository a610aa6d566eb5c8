"""The CustomResourceDefinition of SchedulerProfiles and the chart's README agree with the program.

A server prunes the fields that the definition does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from scheduler.config.errors import ConfigErrors
from scheduler.config.plugins import MULTI_POINT, POINTS
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import KubeSchedulerProfile
from scheduler.customresources.what_if_question import (
    FAILED,
    REASONS_MAX,
    SHOWN_MAX,
    WhatIfSpec,
    WorkloadReference,
    answered,
    read_object,
    unanswered,
)
from scheduler.explain.answer import WhatIfAnswer, WhatIfGroup
from scheduler.kube.resources import SCHEDULER_PROFILE, WHAT_IF
from scheduler.kube.writes.own_objects import REFERENCES
from scheduler.profiles.reconciler import IN_FORCE, ProfileVerdict, RequestedProfile
from tests.deploy.chart import CHART, Json
from tests.unit.customresources.test_scheduler_profiles import Bench
from tools.chart_readme import page, values

CRD: Final[Json] = yaml.safe_load((CHART / "files" / "schedulerprofiles-crd.yaml").read_text(encoding="utf-8"))
(VERSION,) = CRD["spec"]["versions"]
SCHEMA: Final[Json] = VERSION["schema"]["openAPIV3Schema"]["properties"]
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "config" / "kubestow.yaml"


def pruned(value: Any, schema: Json) -> Any:
    """The fields that a server keeps."""
    if isinstance(value, list):
        return [pruned(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    known = schema.get("properties", {})
    return {name: pruned(item, known[name]) for name, item in value.items() if name in known}


def is_read(spec: Json) -> bool:
    try:
        read_changes(spec, KubeSchedulerProfile(scheduler_name="kubestow"), path="spec")
    except ConfigErrors:
        return False
    return True


def test_it_is_the_kind_that_is_watched() -> None:
    names = CRD["spec"]["names"]

    assert CRD["metadata"]["name"] == f"{names['plural']}.{CRD['spec']['group']}"
    assert (CRD["spec"]["group"], names["plural"]) == (SCHEDULER_PROFILE.group, SCHEDULER_PROFILE.plural)
    assert (VERSION["served"], VERSION["storage"], VERSION["subresources"]) == (True, True, {"status": {}})


def test_every_point_is_there() -> None:
    points = SCHEMA["spec"]["properties"]["plugins"]["properties"]
    forms = [{name: each for name, each in form.items() if name != "description"} for form in points.values()]

    assert set(points) == {MULTI_POINT, *POINTS}
    assert [form["properties"].keys() for form in forms] == [{"enabled", "disabled"}] * len(forms)


def test_nothing_that_is_read_is_pruned() -> None:
    profiles = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["profiles"]
    specs = [{name: value for name, value in profile.items() if name != "schedulerName"} for profile in profiles]
    both = {"enabled": [{"name": "NodeName", "weight": 2}], "disabled": [{"name": "ImageLocality", "weight": 1}]}
    every = {"plugins": dict.fromkeys((MULTI_POINT, *POINTS), both), "percentageOfNodesToScore": 7}

    assert any("pluginConfig" in spec for spec in specs)
    for given in (*specs, every):
        assert pruned(given, SCHEMA["spec"]) == given


def test_what_is_pruned_would_not_be_read_either() -> None:
    for name in ("schedulerName", "pluginConfigs"):
        assert pruned({"percentageOfNodesToScore": 7, name: "other"}, SCHEMA["spec"]) == {"percentageOfNodesToScore": 7}
        assert not is_read({"percentageOfNodesToScore": 7, name: "other"})


@pytest.mark.parametrize("percentage", [-1, 0, 100, 101])
def test_the_bounds_of_a_percentage_are_one(percentage: int) -> None:
    field = SCHEMA["spec"]["properties"]["percentageOfNodesToScore"]

    assert (field["minimum"] <= percentage <= field["maximum"]) is is_read({"percentageOfNodesToScore": percentage})


@pytest.mark.parametrize("weight", [-(2**31) - 1, -(2**31), -1, 0, 1, 2**31 - 1, 2**31])
def test_the_bounds_of_a_weight_are_one(weight: int) -> None:
    points = SCHEMA["spec"]["properties"]["plugins"]["properties"]
    field = points["score"]["properties"]["enabled"]["items"]["properties"]["weight"]
    spec = {"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": weight}]}}}

    assert field == {"type": "integer", "format": "int32"}
    assert (-(2**31) <= weight < 2**31) is is_read(spec)


def test_the_status_is_kept() -> None:
    verdict = ProfileVerdict(RequestedProfile("u1", 2, {}), IN_FORCE, "as said", 1, "score: ImageLocality 1→2")
    status = Bench().objects._status(verdict, {})

    assert status is not None
    assert pruned(status, SCHEMA["status"]) == status
    (condition,) = status["conditions"]
    assert condition.keys() >= set(SCHEMA["status"]["properties"]["conditions"]["items"]["required"])


# -- WhatIf ------------------------------------------------------------------------------------------------------------

WHAT_IF_CRD: Final[Json] = yaml.safe_load((CHART / "files" / "whatifs-crd.yaml").read_text(encoding="utf-8"))
(WHAT_IF_VERSION,) = WHAT_IF_CRD["spec"]["versions"]
WHAT_IF_SCHEMA: Final[Json] = WHAT_IF_VERSION["schema"]["openAPIV3Schema"]["properties"]


def test_the_kind_of_questions_is_the_one_that_is_watched() -> None:
    names = WHAT_IF_CRD["spec"]["names"]

    assert WHAT_IF_CRD["metadata"]["name"] == f"{names['plural']}.{WHAT_IF_CRD['spec']['group']}"
    assert (names["kind"], names["plural"]) == (WHAT_IF.name, WHAT_IF.plural)
    assert [f"{WHAT_IF_CRD['spec']['group']}/{WHAT_IF_VERSION['name']}"] == list(WHAT_IF.group_versions)
    assert (WHAT_IF_CRD["spec"]["scope"], WHAT_IF_VERSION["subresources"]) == ("Namespaced", {"status": {}})


def test_the_fields_of_a_question_are_those_that_are_read() -> None:
    fields = WHAT_IF_SCHEMA["spec"]["properties"]

    assert set(fields) == {field.encode_name for field in msgspec.structs.fields(WhatIfSpec)}
    assert fields["schedulerName"]["default"] == WhatIfSpec().scheduler_name
    assert set(fields["reference"]["properties"]) == {
        each.encode_name for each in msgspec.structs.fields(WorkloadReference)
    }
    assert fields["reference"]["properties"]["kind"]["enum"] == sorted(REFERENCES)


def test_the_status_of_a_question_is_kept() -> None:
    raw = {"metadata": {"name": "w", "namespace": "d", "uid": "u", "resourceVersion": "1", "generation": 1}}
    obj = read_object(msgspec.json.encode(raw))
    group = WhatIfGroup(group="d/g", api_group="a", verdict="fits", cause="c", minimum=1, pods=1, placed=1)
    answer = WhatIfAnswer(verdict="fits", exit_code=0, cause="c", replicas=1, placed=1, groups=(group,))
    schema = WHAT_IF_SCHEMA["status"]

    for status in (answered(obj, answer, "t"), unanswered(obj, FAILED, "why", "t")):
        assert set(status) == set(schema["properties"])
        assert pruned(status, schema) == status
        (condition,) = status["conditions"]
        assert condition.keys() >= set(schema["properties"]["conditions"]["items"]["required"])
    limits = {name: field["maxItems"] for name, field in schema["properties"].items() if "maxItems" in field}
    shown = dict.fromkeys(("placements", "displaced", "groups"), SHOWN_MAX)
    assert limits == {**shown, "reasons": REASONS_MAX, "conditions": 16}


# -- deploy/helm/README.md: equal to what `tools.chart_readme` prints, and complete ------------------------------------


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from leaves(below, (*path, name))
    else:
        yield path


def test_the_page_is_up_to_date() -> None:
    """Write it with: python -m tools.chart_readme > deploy/helm/README.md"""
    assert (CHART / "README.md").read_text(encoding="utf-8") == page()


def test_every_value_has_a_row() -> None:
    rows = {tuple(row.key.split(".")) for row in values()}
    given = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    missing = [path for path in leaves(given) if not any(path[:end] in rows for end in range(1, len(path) + 1))]
    assert missing == []
