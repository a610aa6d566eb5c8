"""Profiles: names, plugin sets, arguments, the common queue (docs/spec/core.md §6.2), and profiles of which some parts are changed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import KubestowArgs, NodeResourcesFitArgs, RawArgs, VolumeBindingArgs
from scheduler.config.dump import changes
from scheduler.config.errors import ConfigErrors
from scheduler.config.plugins import DEFAULT_PLUGINS, POINTS, Resolved, resolve
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import KubeSchedulerProfile, PluginRef, PluginSet
from tests.unit.config.documents import mistakes, profile, read, table

RESERVED = (
    "default-scheduler, whose pods belong to the cluster's own scheduler; --allow-default-scheduler where there is none"
)


def removed(name: str) -> str:
    version = "kubescheduler.config.k8s.io/v1"
    return f'Invalid value: "{name}": was invalid in version "v1" (KubeSchedulerConfiguration is version "{version}")'


NAMES = table(
    """
# two names
[{"schedulerName": "a"}, {"schedulerName": "b"}]
# one name twice
[{"schedulerName": "a"}, {"schedulerName": "a"}]
- profiles[1].schedulerName: Duplicate value: "a"
# a second profile without name
[{"schedulerName": "a"}, {}]
- profiles[1].schedulerName: Required value
# an empty name
[{"schedulerName": ""}]
- profiles[0].schedulerName: Required value
# the only profile without name
[{}]
- profiles[0].schedulerName: is required: without it the profile is <RESERVED>
# the name of the cluster's scheduler
[{"schedulerName": "default-scheduler"}]
- profiles[0].schedulerName: <RESERVED>
# a percentage out of range
[{"schedulerName": "a", "percentageOfNodesToScore": -1}]
- profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]
# a number for a name
[{"schedulerName": 5}, {"schedulerName": "b"}]
- profiles[0].schedulerName: must be a string, got 5
- profiles[0].schedulerName: Required value
# a typo
[{"schedulerName": "a", "plugin": {}}]
- profiles[0].plugin: unknown field, did you mean "plugins"?
""",
    RESERVED=RESERVED,
)


@pytest.mark.parametrize(("mistaken", "said"), NAMES)
def test_names(mistaken: list[Any], said: list[str]) -> None:
    """211: a name is given, unique, and ours."""
    assert mistakes({"profiles": mistaken}) == said


def test_default_scheduler_can_be_allowed() -> None:
    """The flag is for clusters where Kubestow is the only scheduler. With it, one unnamed profile has its name, as upstream."""
    unnamed: dict[str, Any] = {}
    for given in (unnamed, {"schedulerName": "default-scheduler"}):
        [only] = read({"profiles": [given]}, allow_default_scheduler=True).profiles

        assert only.scheduler_name == "default-scheduler"


def test_plugin_sets_are_kept_as_written() -> None:
    [only] = read(
        profile(
            percentageOfNodesToScore=30,
            plugins={
                "multiPoint": {"enabled": [{"name": "A", "weight": 3}], "disabled": [{"name": "B"}]},
                "score": {"disabled": [{"name": "*"}]},
                "filter": {},
                "placementScore": {"disabled": [{"name": "*"}]},
            },
        )
    ).profiles

    assert only.percentage_of_nodes_to_score == 30
    assert only.plugins == {"multiPoint": PluginSet((PluginRef("A", 3),), ("B",)), "score": PluginSet((), ("*",))}


SETS = table(
    """
# no such point
{"filters": {}}
- profiles[0].plugins.filters: unknown field, did you mean "filter"?
# a typo in a set
{"filter": {"enable": []}}
- profiles[0].plugins.filter.enable: unknown field, did you mean "enabled"?
# a plugin without name
{"filter": {"enabled": [{"weight": 1}]}}
- profiles[0].plugins.filter.enabled[0].name: Required value
# a bare name
{"filter": {"enabled": ["A"]}}
- profiles[0].plugins.filter.enabled[0]: must be a mapping, got "A"
# a weight as text
{"score": {"enabled": [{"name": "A", "weight": "1"}]}}
- profiles[0].plugins.score.enabled[0].weight: must be an integer, got "1"
# a negative weight, which upstream takes
{"score": {"enabled": [{"name": "A", "weight": -1}]}}
# a plugin twice
{"filter": {"enabled": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}}
- profiles[0].plugins.filter.enabled[2].name: plugin "A" is already enabled by enabled[0]
# enabling everything
{"filter": {"enabled": [{"name": "*"}]}}
- profiles[0].plugins.filter.enabled[0].name: "*" has a meaning only in disabled
# a removed plugin
{"filter": {"enabled": [{"name": "EBSLimits"}]}}
- profiles[0].plugins.filter.enabled[0]: <REMOVED>
# a point for pod groups
{"placementGenerate": {"enabled": [{"name": "X"}]}}
- profiles[0].plugins.placementGenerate: placementGenerate is not available in this version
# an empty point of 1.38
{"placementFeasible": {}}
# a point of 1.38 with a plugin
{"placementFeasible": {"enabled": [{"name": "X"}]}}
- profiles[0].plugins.placementFeasible: placementFeasible is not available in this version
# two orders
{"queueSort": {"enabled": [{"name": "A"}, {"name": "B"}]}}
- profiles[0].plugins.queueSort.enabled: Invalid value: 2: only one queue sort plugin can be enabled
""",
    REMOVED=removed("EBSLimits"),
)


@pytest.mark.parametrize(("mistaken", "said"), SETS)
def test_mistakes_in_plugin_sets(mistaken: dict[str, Any], said: list[str]) -> None:
    assert [
        line for line in mistakes(profile(plugins=mistaken)) if "name: Required value" not in line or line in said
    ] == said


SECOND = table("""
# only one profile has a queue sort plugin
{}
- profiles[1].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: must be the same for all profiles
# 212 another plugin
{"plugins": {"queueSort": {"enabled": [{"name": "B"}]}}}
- profiles[1].plugins.queueSort: Invalid value: {"Enabled":[{"Name":"B","Weight":0}],"Disabled":null}: must be the same for all profiles
# the same plugin with other arguments
{"plugins": {"queueSort": {"enabled": [{"name": "A"}], "disabled": [{"name": "*"}]}},
"pluginConfig": [{"name": "A", "args": {"x": 2}}]}
- profiles[1].pluginConfig: Invalid value: {"x":2}: queueSort must be the same for all profiles
# the same plugin with the same arguments
{"plugins": {"queueSort": {"enabled": [{"name": "A"}], "disabled": [{"name": "*"}]}},
"pluginConfig": [{"name": "A", "args": {"x": 1}}]}
""")


@pytest.mark.parametrize(("second", "said"), SECOND)
def test_212_all_profiles_sort_the_queue_alike(second: dict[str, Any], said: list[str]) -> None:
    first = {
        "schedulerName": "a",
        "plugins": {"queueSort": {"enabled": [{"name": "A"}], "disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": "A", "args": {"x": 1}}],
    }

    assert mistakes({"profiles": [first, {"schedulerName": "b"} | second]}) == said


def test_arguments_given_default_and_foreign() -> None:
    [only] = read(
        profile(
            pluginConfig=[
                {"name": "Mine", "args": {"deep": [1, {"a": None}]}},
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 5}},
                {"name": "Bare"},
            ]
        )
    ).profiles

    assert only.args_for(VolumeBindingArgs) == VolumeBindingArgs(bind_timeout_s=5.0)
    assert only.args_for(NodeResourcesFitArgs) == NodeResourcesFitArgs()
    assert only.args["Mine"] == RawArgs({"deep": [1, {"a": None}]})
    assert only.args["Bare"] == RawArgs(None)
    assert list(only.args)[:3] == ["Mine", "VolumeBinding", "Bare"]


PLUGIN_CONFIG = table(
    """
# twice
[{"name": "A"}, {"name": "A"}]
- profiles[0].pluginConfig[1]: Duplicate value: "A"
# a removed plugin
[{"name": "CinderLimits"}]
- profiles[0].pluginConfig[0]: <REMOVED>
# no name
[{"args": {}}]
- profiles[0].pluginConfig[0].name: Required value
# a typo
[{"name": "A", "arg": 1}]
- profiles[0].pluginConfig[0].arg: unknown field, did you mean "args"?
""",
    REMOVED=removed("CinderLimits"),
)


@pytest.mark.parametrize(("plugin_config", "said"), PLUGIN_CONFIG)
def test_mistakes_in_plugin_config(plugin_config: list[Any], said: list[str]) -> None:
    assert mistakes(profile(pluginConfig=plugin_config)) == said


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


@pytest.mark.parametrize(("spec", "said"), [
    pytest.param({}, "", id="nothing"),
    pytest.param({"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}},
        "score: NodeResourcesFit 1→5, +ImageLocality 1", id="a weight, and what the file had left out"),
    pytest.param({"plugins": {"filter": {"enabled": [{"name": "Mine"}], "disabled": [{"name": "NodePorts"}]}}},
        "filter: +NodeName, +Mine, -NodePorts", id="come and gone"),
    pytest.param({"plugins": {"filter": {"enabled": [{"name": "NodePorts"}], "disabled": [{"name": "NodeName"}]}}},
        "filter: in another order", id="an order"),
    pytest.param({"pluginConfig": [{"name": "Mine", "args": {"a": 2}}, {"name": "Kubestow", "args": {"parity": True}}]},
        "args: Kubestow, Mine", id="arguments"),
    pytest.param({"percentageOfNodesToScore": 5}, "percentageOfNodesToScore: 5", id="a percentage"),
    pytest.param({"percentageOfNodesToScore": 0, "pluginConfig": [{"name": "Mine"}]},
        "args: Mine; percentageOfNodesToScore: 0", id="several"),
])  # fmt: skip
def test_the_difference_in_a_line(spec: Any, said: str) -> None:
    before, after = file(), changed(spec)

    assert changes((before, resolved(before)), (after, resolved(after))) == said
