"""Which plugins run where, in which order (docs/spec/core.md §6.3), and feature gates (docs/spec/dra.md §6)."""

from __future__ import annotations

import re

import pytest

from scheduler.config.args import RawArgs, default_args
from scheduler.config.errors import ConfigErrors
from scheduler.config.load import gates_on
from scheduler.config.plugins import (
    DEFAULT_PLUGINS,
    KNOWN_NAMES,
    MULTI_POINT,
    POINTS,
    Resolved,
    check_args_have_plugins,
    check_common_queue_sort,
    resolve,
)
from scheduler.config.types import GATES_ON, Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.feature_gates import CHANGES, DEVICE_GATES_ON, GATES, REMOVED, VERSIONS, defaults
from scheduler.framework.profile import served_points
from scheduler.plugins import BUILT_IN
from tests.unit.config.documents import table

UPSTREAM = {
    "SchedulingGates": {"preEnqueue"},
    "PrioritySort": {"queueSort"},
    "NodeUnschedulable": {"filter"},
    "NodeName": {"filter"},
    "TaintToleration": {"filter", "preScore", "score"},
    "NodeAffinity": {"preFilter", "filter", "preScore", "score"},
    "NodePorts": {"preFilter", "filter"},
    "NodeResourcesFit": {"preFilter", "filter", "preScore", "score"},
    "VolumeRestrictions": {"preFilter", "filter"},
    "NodeVolumeLimits": {"preFilter", "filter"},
    "VolumeBinding": {"preFilter", "filter", "preScore", "score", "reserve", "preBind"},
    "VolumeZone": {"preFilter", "filter"},
    "PodTopologySpread": {"preFilter", "filter", "preScore", "score"},
    "InterPodAffinity": {"preFilter", "filter", "preScore", "score"},
    "DynamicResources": {"preEnqueue", "preFilter", "filter", "postFilter", "reserve", "preBind", "score"},
    "DefaultPreemption": {"postFilter", "preEnqueue"},
    "NodeResourcesBalancedAllocation": {"preScore", "score"},
    "ImageLocality": {"score"},
    "DefaultBinder": {"bind"},
    "NodeDeclaredFeatures": {"preFilter", "filter"},
}
# S sorts, B binds, the other plugins filter or score.
SMALL = {
    "S": {"queueSort"},
    "S2": {"queueSort"},
    "B": {"bind"},
    "F1": {"filter"},
    "F2": {"filter"},
    "F3": {"filter"},
    "X": {"filter", "score"},
    "New": {"filter", "score"},
}
DEFAULT = tuple(
    PluginRef(name, weight) for name, weight in (("S", 0), ("F1", 0), ("F2", 0), ("F3", 0), ("X", 3), ("B", 0))
)


def names(resolved: Resolved, point: str) -> list[str]:
    return [ref.name for ref in resolved.points[point]]


def sets(**points: tuple[list[str], list[str]]) -> dict[str, PluginSet]:
    """`filter=(["A:2"], ["*"])`: enabled with weights, disabled."""
    return {
        point: PluginSet(
            tuple(PluginRef(name, int(weight or 0)) for name, _, weight in (e.partition(":") for e in enabled)),
            tuple(disabled),
        )
        for point, (enabled, disabled) in points.items()
    }


def test_the_defaults_are_upstreams() -> None:
    resolved = resolve({}, implements=UPSTREAM)

    assert resolved.absent == ()
    assert set(resolved.points) == set(POINTS)
    assert resolved.points["filter"][2] == PluginRef("TaintToleration"), "only scores have weights"
    assert " ".join(names(resolved, "filter")) == (
        "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions"
        " NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources"
        " NodeDeclaredFeatures"
    )
    assert " ".join(f"{ref.name}:{ref.weight}" for ref in resolved.points["score"]) == (
        "TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding:1 PodTopologySpread:2 InterPodAffinity:2"
        " DynamicResources:2 NodeResourcesBalancedAllocation:1 ImageLocality:1"
    )
    assert names(resolved, "postFilter") == ["DynamicResources", "DefaultPreemption"]
    assert names(resolved, "queueSort") == ["PrioritySort"]
    assert names(resolved, "permit") == []


@pytest.mark.parametrize(
    ("name", "point"),
    [
        pytest.param(name, point, id=f"{name} at {point}")
        for name, points in UPSTREAM.items()
        for point in sorted(points)
    ],
)
def test_what_kube_scheduler_enables_at_a_point_may_be_enabled_here(name: str, point: str) -> None:
    """Also where what a plugin does there upstream, ours does elsewhere: then it is taken, and is at no point more."""
    built = {each: served_points(factory) for each, factory in BUILT_IN.items()}
    resolved = resolve(sets(**{point: ([name], [])}), implements=built)

    assert {at for at in POINTS if name in names(resolved, at)} == built[name]


def test_213_disabling_all_scores_but_one() -> None:
    resolved = resolve(sets(score=(["ImageLocality:5"], ["*"])), implements=UPSTREAM)

    assert resolved.points["score"] == (PluginRef("ImageLocality", 5),)


def test_214_disabling_preemption_everywhere() -> None:
    built = {name: points for name, points in UPSTREAM.items() if name != "DynamicResources"}
    resolved = resolve(sets(multiPoint=([], ["DefaultPreemption"])), implements=built)

    assert names(resolved, "postFilter") == []
    assert "DefaultPreemption" not in names(resolved, "preEnqueue")
    assert resolved.absent == ("DynamicResources",)


@pytest.mark.parametrize(("given", "point", "wanted"), [
    pytest.param(sets(multiPoint=(["New"], [])), "filter", "F1 F2 F3 X New", id="new in multiPoint: last"),
    pytest.param(sets(filter=(["New"], [])), "filter", "F1 F2 F3 X New", id="new at the point: last"),
    pytest.param(sets(multiPoint=(["F3", "New", "F1"], [])), "filter", "F1 F2 F3 X New", id="relisted: in place"),
    pytest.param(sets(filter=(["F3", "New", "F2"], [])), "filter", "F3 F2 F1 X New",
        id="all three parts, in this order"),
    pytest.param(sets(multiPoint=(["New"], []), filter=(["New"], [])), "filter", "New F1 F2 F3 X",
        id="new in both: to the front"),
    pytest.param(sets(filter=([], ["F2"])), "score", "X:3", id="another point is not touched"),
    pytest.param(sets(multiPoint=([], ["X"])), "score", "", id="disabled in multiPoint"),
    pytest.param(sets(filter=(["F3", "New"], ["*"])), "filter", "F3 New", id="everything off but what is listed"),
    pytest.param(sets(filter=(["F2", "F3"], ["F2"])), "filter", "F3 F1 X F2",
        id="disabled and listed at the point: last"),
    pytest.param(sets(multiPoint=(["X:7", "F1"], ["X", "F1"])), "filter", "F2 F3 X F1",
        id="disabled and listed: again, last"),
    pytest.param(sets(multiPoint=(["B", "S", "New"], ["*"])), "filter", "New", id="multiPoint without any default"),
    pytest.param(sets(multiPoint=(["X"], [])), "score", "X:1", id="relisted without weight: 1, not the default"),
    pytest.param(sets(multiPoint=(["X:7"], []), score=(["X:2"], [])), "score", "X:2", id="the point's weight wins"),
    pytest.param(sets(score=(["X", "New:4"], [])), "score", "X:1 New:4", id="without weight at the point: 1"),
    pytest.param(sets(multiPoint=([], ["Gone"])), "bind", "B", id="a default that is not built may be disabled"),
])  # fmt: skip
def test_the_order(given: dict[str, PluginSet], point: str, wanted: str) -> None:
    default = (*DEFAULT, PluginRef("ImageLocality"))
    given = {
        p: PluginSet(s.enabled, tuple("ImageLocality" if d == "Gone" else d for d in s.disabled))
        for p, s in given.items()
    }
    resolved = resolve(given, implements=SMALL, default=default)

    shown = [f"{ref.name}:{ref.weight}" if ref.weight else ref.name for ref in resolved.points[point]]
    assert " ".join(shown) == wanted


MISTAKES = table("""
# unknown
{"filter": [["F1", "F2", "Foo"], []]}
- p.filter.enabled[2].name: unknown plugin "Foo"
# unknown but similar to one that may be disabled here
{"filter": [[], ["NodeNames"]]}
- p.filter.disabled[0].name: unknown plugin "NodeNames", did you mean "NodeName"?
# unknown but similar to one that is not built
{"filter": [["NodeNames"], []], "multiPoint": [["Coscheduling"], []]}
- p.filter.enabled[0].name: unknown plugin "NodeNames"
- p.multiPoint.enabled[0].name: unknown plugin "Coscheduling"
# disabling the unknown
{"filter": [[], ["Foo"]]}
- p.filter.disabled[0].name: unknown plugin "Foo"
# disabling what was removed
{"filter": [[], ["EBSLimits"]]}
# not built
{"filter": [["VolumeZone"], []]}
- p.filter.enabled[0].name: plugin "VolumeZone" is not available in this version
# for groups, in multiPoint, as kube-scheduler writes it with its gates on
{"multiPoint": [["GangScheduling"], []]}
# for groups, at a point
{"preEnqueue": [["GangScheduling"], []]}
- p.preEnqueue.enabled[0].name: plugin "GangScheduling" is not available in this version
# not for this point
{"score": [["F1"], []]}
- p.score.enabled[0].name: plugin "F1" does not implement score
# twice
{"filter": [["F1", "F1"], []], "multiPoint": [["X", "X"], []]}
- p.filter.enabled[1].name: plugin "F1" is already enabled by enabled[0]
- p.multiPoint.enabled[1].name: plugin "X" is already enabled by enabled[0]
# a star
{"filter": [["*"], []]}
- p.filter.enabled[0].name: "*" has a meaning only in disabled
# no order
{"queueSort": [[], ["*"]]}
- p.queueSort: exactly one plugin is needed, got none
# two orders
{"multiPoint": [["S2"], []]}
- p.queueSort: exactly one plugin is needed, got S, S2
# no bind plugin
{"bind": [[], ["B"]]}
- p.bind: at least one plugin is needed
# weights that overflow
{"score": [["X:4611686018427387904"], []]}
- p.score: the sum of all weights is too large: a total score could overflow
""")


@pytest.mark.parametrize(("given", "said"), MISTAKES)
def test_mistakes(given: dict[str, tuple[list[str], list[str]]], said: list[str]) -> None:
    """A row has the plugins that are enabled and disabled at each point."""
    found = []
    try:
        resolve(sets(**given), implements=SMALL, default=DEFAULT, path="p")
    except ConfigErrors as broken:
        found = str(broken).splitlines()

    assert found == said


@pytest.mark.parametrize("point", [MULTI_POINT, *POINTS])
def test_a_suggestion_is_accepted(point: str) -> None:
    """A name with a typing error is suggested as the plugin only where that plugin may stand."""
    implements = {name: served_points(factory) for name, factory in BUILT_IN.items()}

    def lines(enabled: list[str], disabled: list[str]) -> list[str]:
        try:
            resolve(sets(**{point: (enabled, disabled)}), implements=implements, path="p")
        except ConfigErrors as broken:
            return str(broken).splitlines()
        return []

    suggested = set()
    for name in sorted(KNOWN_NAMES):
        wrong = f"{name}s"
        for enabled, disabled in (([wrong], []), ([wrong, name], []), ([], [wrong])):
            [found] = re.findall(r'unknown plugin "\w+"(?:, did you mean "(\w+)"\?)?', str(lines(enabled, disabled)))
            suggested.add(found)
            assert found not in enabled
            if disabled:
                assert found == name
            elif found:
                assert not [line for line in lines([found], []) if line.startswith(f"p.{point}.enabled[0]")]
    assert len(suggested) > 1


def test_defaults_that_are_not_built_are_left_out_and_named() -> None:
    built = {"PrioritySort": {"queueSort"}, "DefaultBinder": {"bind"}, "NodeName": {"filter"}}
    resolved = resolve(sets(multiPoint=([], ["VolumeZone"])), implements=built)

    assert names(resolved, "filter") == ["NodeName"]
    assert resolved.absent == tuple(ref.name for ref in DEFAULT_PLUGINS if ref.name not in {*built, "VolumeZone"})


def test_arguments_without_a_plugin() -> None:
    """Upstream skips the arguments of a plugin that does not exist; a typo there would go unseen."""
    profile = KubeSchedulerProfile(
        "a", args={"Foo": RawArgs(), "Mine": RawArgs(), "VolumeZone": RawArgs(), **default_args()}
    )

    with pytest.raises(ConfigErrors) as broken:
        check_args_have_plugins(profile, {"Mine": {"filter"}})

    assert str(broken.value) == 'profiles[0].pluginConfig[0].name: unknown plugin "Foo"'


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("Minne", ', did you mean "Minna"?'), ("Kubestwo", ', did you mean "Kubestow"?'), ("Coscheduling", "")],
)
def test_arguments_of_a_similar_plugin(name: str, suggested: str) -> None:
    profile = KubeSchedulerProfile("a", args={name: RawArgs(), **default_args()})
    with pytest.raises(ConfigErrors) as broken:
        check_args_have_plugins(profile, {"Minna": {"filter"}})

    assert str(broken.value) == f'profiles[0].pluginConfig[0].name: unknown plugin "{name}"{suggested}'


def test_one_queue_is_sorted_one_way() -> None:
    """Scenario 212, when the difference comes by multiPoint; and the plugin's arguments count."""

    def sorted_by(name: str, path: str, args: object) -> tuple[KubeSchedulerProfile, Resolved]:
        return KubeSchedulerProfile("x", args={name: RawArgs(args)}, path=path), Resolved(
            {"queueSort": (PluginRef(name),)}
        )

    first = sorted_by("S", "profiles[0]", 1)
    check_common_queue_sort([first, sorted_by("S", "profiles[1]", 1)])
    with pytest.raises(ConfigErrors) as broken:
        check_common_queue_sort([first, sorted_by("S2", "profiles[1]", 1), sorted_by("S", "profiles[2]", 2)])

    assert str(broken.value).splitlines() == [
        "profiles[1].plugins.queueSort: must be the same for all profiles: S2 here, S in profiles[0]",
        "profiles[2].pluginConfig: the args of S must be the same for all profiles",
    ]


DEPENDS = "is enabled, but depends on features that are disabled:"


def test_what_is_on_without_a_flag() -> None:
    """v1.36's defaults, in a configuration that is made in code too."""
    assert GATES_ON == DEVICE_GATES_ON == Configuration().feature_gates == gates_on({})
    assert frozenset(GATES) > DEVICE_GATES_ON


@pytest.mark.parametrize(("flags", "changed"), [
    pytest.param({"DRAExtendedResource": False}, {"DRAExtendedResource"}, id="off"),
    pytest.param({"DRADeviceTaintRules": True}, {"DRADeviceTaintRules"}, id="on"),
    pytest.param({"DRAPrioritizedList": False}, {"DRAPrioritizedList"}, id="general availability is no lock"),
    pytest.param({"DynamicResourceAllocation": True, "DRAListTypeAttributes": False}, set(), id="as it is already"),
    pytest.param({"DRAResourceClaimDeviceStatus": False, "DRADeviceBindingConditions": False},
        {"DRAResourceClaimDeviceStatus", "DRADeviceBindingConditions"}, id="off, together with what needs it"),
    pytest.param({"Foo": True, "Bar": False}, set(), id="unknown gates"),
])  # fmt: skip
def test_what_flags_change(flags: dict[str, bool], changed: set[str]) -> None:
    assert gates_on(flags) ^ GATES_ON == changed


@pytest.mark.parametrize(("flags", "said"), [
    ({"DRAAdminAccess": False}, "cannot set feature gate DRAAdminAccess to false, feature is locked to true"),
    ({"DRAResourceClaimDeviceStatus": False}, f"DRADeviceBindingConditions {DEPENDS} [DRAResourceClaimDeviceStatus]"),
    ({"DRADeviceTaintRules": True, "DRADeviceTaints": False}, f"DRADeviceTaintRules {DEPENDS} [DRADeviceTaints]"),
], ids=lambda value: " ".join(value) if isinstance(value, dict) else "")  # fmt: skip
def test_what_is_refused(flags: dict[str, bool], said: str) -> None:
    """In upstream's words."""
    with pytest.raises(ValueError) as refused:
        gates_on(flags)

    assert str(refused.value) == said


def refusal(flags: dict[str, bool], version: str) -> str:
    """The text with which the version refuses the flags; "" if it takes them."""
    try:
        gates_on(flags, version)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        pytest.param("SchedulerQueueingHints", ["1.36"], id="locked in 1.36, gone in 1.37"),
        pytest.param("SidecarContainers", ["1.36"], id="sidecars: locked in 1.36, gone in 1.37"),
        pytest.param("NodeDeclaredFeatures", ["1.37", "1.38"], id="locked since 1.37"),
        pytest.param("DRAExtendedResource", ["1.37", "1.38"], id="extended resources: locked since 1.37"),
        pytest.param("DRAPartitionableDevices", ["1.38"], id="partitions: locked in 1.38"),
        pytest.param("DRADeviceTaintRules", ["1.38"], id="taint rules: locked in 1.38"),
        pytest.param("InPlacePodVerticalScaling", ["1.36", "1.37"], id="locked in both, gone in 1.38"),
        pytest.param("DRAConsumableCapacity", [], id="general availability is no lock"),
        pytest.param("SchedulerAsyncAPICalls", [], id="never locked"),
    ],
)
def test_a_locked_gate_is_refused_in_its_versions(name: str, versions: list[str]) -> None:
    """Also a gate that has no effect here; and a gate that is on may be named."""
    refused = []
    for version in VERSIONS:
        if name in REMOVED[version]:
            continue
        gates_on({name: name != "SchedulerAsyncAPICalls"}, version)
        if text := refusal({name: False, "DRAFractionalCapacityRange": False}, version):
            assert text == f"cannot set feature gate {name} to false, feature is locked to true"
            refused.append(version)

    assert refused == versions


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        pytest.param("SidecarContainers", ["1.37", "1.38"], id="gone in 1.37"),
        pytest.param("InPlacePodVerticalScaling", ["1.38"], id="gone in 1.38"),
        pytest.param("DynamicResourceAllocation", ["1.38"], id="gone in 1.38, and its code is always on"),
        pytest.param("DRAAdminAccess", [], id="never gone"),
        pytest.param("SomeGate", [], id="a name of no version"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_gate_that_a_version_removed_is_refused(name: str, versions: list[str], value: bool) -> None:
    refused = []
    for version in VERSIONS:
        text = refusal({name: value}, version)
        if text and "locked" not in text:
            assert text == f"unrecognized feature gate: {name}"
            refused.append(version)

    assert refused == versions


RANGE = "DRAFractionalCapacityRange"


@pytest.mark.parametrize(("flags", "version", "oldest", "is_on"), [
    pytest.param({}, "1.37", "", False, id="off in a control plane that is compatible with 1.36"),
    pytest.param({}, "1.37", "1.36", False, id="the default of the flag, given"),
    pytest.param({}, "1.37", "1.37", True, id="on where no component is older than 1.37"),
    pytest.param({RANGE: True}, "1.37", "", True, id="turned on by name"),
    pytest.param({RANGE: False}, "1.37", "1.37", False, id="turned off by name"),
    pytest.param({"DRAConsumableCapacity": False}, "1.37", "", False, id="what it needs may be turned off alone"),
    pytest.param({}, "1.36", "1.36", False, id="1.36 does not know it"),
])  # fmt: skip
def test_a_gate_that_depends_on_the_oldest_component(
    flags: dict[str, bool], version: str, oldest: str, is_on: bool
) -> None:
    assert (RANGE in gates_on(flags, version, min_compatibility_version=oldest)) == is_on


@pytest.mark.parametrize(("version", "oldest", "said"), [
    pytest.param("1.36", "1.37", "minCompatibilityVersion version 1.37 is not between [1.33, 1.36]", id="newer"),
    pytest.param("1.37", "1.33", "minCompatibilityVersion version 1.33 is not between [1.34, 1.37]", id="too old"),
    pytest.param("1.37", "1.37", f"{RANGE} {DEPENDS} [DRAConsumableCapacity]", id="what it needs is off"),
])  # fmt: skip
def test_what_the_oldest_component_makes_wrong(version: str, oldest: str, said: str) -> None:
    """In upstream's words, as kube-scheduler v1.37.2 prints them."""
    with pytest.raises(ValueError) as refused:
        gates_on({"DRAConsumableCapacity": False}, version, min_compatibility_version=oldest)

    assert str(refused.value) == said


@pytest.mark.parametrize("version", VERSIONS)
def test_gates_and_changes_of_a_version(version: str) -> None:
    """What is on without a flag; 1.36 has no changes."""
    assert gates_on({}, version) == defaults(version)
    assert (CHANGES[version] == frozenset()) == (version == "1.36")
    assert "DynamicResourceAllocation" in gates_on({}, version)
    assert not CHANGES[version] & GATES.keys()
