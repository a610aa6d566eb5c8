"""A profile with some of it changed: how it is read, and what is said of the difference."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import KubestowArgs, NodeResourcesFitArgs, RawArgs
from scheduler.config.dump import changes
from scheduler.config.errors import ConfigErrors
from scheduler.config.plugins import DEFAULT_PLUGINS, POINTS, Resolved, resolve
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import KubeSchedulerProfile, PluginRef, PluginSet
from tests.unit.config.documents import profile, read

FILE: dict[str, Any] = {
    "percentageOfNodesToScore": 40,
    "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}, "filter": {"disabled": [{"name": "NodeName"}]}},
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/a"]}},
        {"name": "Mine", "args": {"a": 1}},
    ],
}


def file() -> KubeSchedulerProfile:
    (only,) = read(profile(**FILE)).profiles
    return only


def changed(spec: Any) -> KubeSchedulerProfile:
    return read_changes(spec, file(), path="spec")


@pytest.mark.parametrize("spec", [None, {}, {"plugins": {}, "pluginConfig": []}, {"plugins": None}])
def test_what_is_left_out_is_as_in_the_file(spec: Any) -> None:
    assert changed(spec) == file()


def test_a_point_that_is_named_replaces_the_files() -> None:
    after = changed({"plugins": {"score": {}, "permit": {"enabled": [{"name": "Mine"}]}}})

    assert after.plugins == {**file().plugins, "score": PluginSet(), "permit": PluginSet((PluginRef("Mine"),))}


def test_arguments_are_replaced_plugin_by_plugin() -> None:
    """As a whole, with the usual defaults for what they leave out; what is given comes first, for the paths of mistakes."""
    after = changed({"pluginConfig": [{"name": "Kubestow", "args": {"parity": True}}, {"name": "NodeResourcesFit"}]})

    assert after.args_for(NodeResourcesFitArgs) == NodeResourcesFitArgs()
    assert after.args_for(KubestowArgs).parity
    assert after.args["Mine"] == RawArgs({"a": 1})
    assert list(after.args)[:2] == ["Kubestow", "NodeResourcesFit"]


@pytest.mark.parametrize(("percentage", "expected"), [(0, 0), (70, 70), (None, 40)])
def test_the_percentage(percentage: int | None, expected: int) -> None:
    assert changed({"percentageOfNodesToScore": percentage}).percentage_of_nodes_to_score == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param([], ["spec: must be a mapping, got a list"], id="no mapping"),
        pytest.param({"schedulerName": "x"}, ["spec.schedulerName: unknown field"], id="a scheduler name"),
        pytest.param(
            {
                "plugins": {"score": {"enabled": [{"name": "A", "weight": "5"}]}},
                "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}],
            },
            [
                'spec.plugins.score.enabled[0].weight: must be an integer, got "5"',
                "spec.pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
            ],
            id="every mistake",
        ),
    ],
)
def test_mistakes_have_paths_in_the_object(spec: Any, said: list[str]) -> None:
    with pytest.raises(ConfigErrors) as wrong:
        changed(spec)

    assert [str(error) for error in wrong.value.errors] == said


def resolved(config: KubeSchedulerProfile) -> Resolved:
    implements = {ref.name: set(POINTS) - {"queueSort", "bind"} for ref in DEFAULT_PLUGINS} | {
        "Mine": {"filter", "score"},
        "PrioritySort": {"queueSort"},
        "DefaultBinder": {"bind"},
    }
    return resolve(config.plugins, implements=implements)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}},
            "score: NodeResourcesFit 1→5, +ImageLocality 1",
            id="a weight, and what the file had left out",
        ),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": "Mine"}], "disabled": [{"name": "NodePorts"}]}}},
            "filter: +NodeName, +Mine, -NodePorts",
            id="come and gone",
        ),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": "NodePorts"}], "disabled": [{"name": "NodeName"}]}}},
            "filter: in another order",
            id="an order",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "Mine", "args": {"a": 2}}, {"name": "Kubestow", "args": {"parity": True}}]},
            "args: Kubestow, Mine",
            id="arguments",
        ),
        pytest.param({"percentageOfNodesToScore": 5}, "percentageOfNodesToScore: 5", id="a percentage"),
        pytest.param(
            {"percentageOfNodesToScore": 0, "pluginConfig": [{"name": "Mine"}]},
            "args: Mine; percentageOfNodesToScore: 0",
            id="several",
        ),
    ],
)
def test_the_difference_in_a_line(spec: Any, said: str) -> None:
    before, after = file(), changed(spec)

    assert changes((before, resolved(before)), (after, resolved(after))) == said
