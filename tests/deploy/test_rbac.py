"""The chart allows exactly the requests of the daemon."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
import yaml
from hypothesis import given, strategies as st

from scheduler.cli import flags, main as cli
from scheduler.config.plugins import default_plugins
from scheduler.config.types import GATES_ON, RunOptions
from scheduler.core.feature_gates import VERSIONS
from scheduler.daemon.app import Daemon
from scheduler.daemon.profile_changes import kinds_read, writes_of
from scheduler.framework.profile import served_points
from scheduler.kube.resources import KINDS, SCHEDULER_PROFILE, WHAT_IF
from scheduler.kube.writes.permissions import (
    CLAIM_EVENT_RULES,
    CLIENT_CA_RULE,
    DEVICE_RULES,
    EVICTION_RULES,
    EXTENDED_RESOURCE_RULES,
    GROUP_RULES,
    OTHER_LEASE_RULES,
    PROFILE_RULES,
    SERVING_RULES,
    VOLUME_RULES,
    WHAT_IF_RULES,
    WRITES,
    RbacRule,
)
from scheduler.plugins import BUILT_IN
from scheduler.profiles.build import build_profiles
from simulator.apiserver import GROUPS, LIKE_1_36_WITH_BETAS, ApiServer
from tests.deploy.chart import CHART, RELEASE, Json, Rendered, rendered
from tests.deploy.commands import ROOT
from tests.deploy.matrix import CONFIGURATIONS, OBJECTS, off, on, profiles
from tests.integration.daemon import until

pytestmark = pytest.mark.usefixtures("helm")

SERVED = (*LIKE_1_36_WITH_BETAS, *GROUPS)


class Right(NamedTuple):
    """Permission to do one thing: in one namespace or, if that is empty, in all; with one object or with any."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


def right(rule: RbacRule) -> Right:
    return Right(rule.group, rule.resource, rule.verb, rule.namespace, rule.name)


def granted(chart: Rendered) -> list[Right]:
    """The rights of the scheduler's account; each as often as it is given."""
    subject = {"kind": "ServiceAccount", "name": chart.pod["spec"]["serviceAccountName"], "namespace": "stow"}
    found: list[Right] = []
    for binding in (*chart.all("ClusterRoleBinding"), *chart.all("RoleBinding")):
        if binding["subjects"] != [subject]:
            continue
        role = chart.named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
        namespace = binding["metadata"].get("namespace", "")
        assert role["metadata"].get("namespace", "") == namespace
        found += (right for rule in role["rules"] for right in rights(rule, namespace))
    return found


def rights(rule: Json, namespace: str) -> Iterable[Right]:
    assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
    names = rule.get("resourceNames", [""])
    for group, resource, verb, name in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"], names):
        yield Right(group, resource, verb, namespace, name)


@contextlib.asynccontextmanager
async def started(chart: Rendered, server: ApiServer, directory: Path) -> AsyncIterator[Daemon]:
    """The daemon with the flags and the file of the rendered Deployment, on the in-process API server."""
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump(chart.config))
    arguments = [flag.replace("/etc/kubestow/config.yaml", str(file)) for flag in chart.container["args"]]
    options = newest_options(arguments)
    assert options.secure is not None
    secure = dataclasses.replace(options.secure, host="127.0.0.1", port=0)
    daemon = Daemon(dataclasses.replace(options, master=server.url, secure=secure, drain_timeout_s=1))
    try:
        await daemon.start()
        yield daemon
    finally:
        await daemon.stop()


def newest_options(arguments: list[str]) -> RunOptions:
    """The options for the newest version that accepts the arguments: it reads the most kinds of objects."""
    parsed = flags.parser().parse_args(arguments)
    for version in reversed(VERSIONS[1:]):
        with contextlib.suppress(cli.CommandError):
            return cli._options(parsed, version)
    return cli._options(parsed, VERSIONS[0])


async def needed_rights(chart: Rendered, directory: Path) -> set[Right]:
    """The rights of the daemon's requests at start, on a server that serves everything and denies nothing."""
    async with ApiServer(served=SERVED) as server, started(chart, server, directory) as daemon:
        check = daemon.self_check
        await until(lambda: check._has_asked and not check.findings, lambda: f"self-check: {check.findings}")
        return set(map(right, check._granted))


def unasked(chart: Rendered) -> set[Right]:
    """The rights for our objects, which the daemon does not need."""
    found: set[Right] = set()
    for flag, spec, rules in (
        ("--scheduler-profiles=true", SCHEDULER_PROFILE, PROFILE_RULES),
        ("--what-if-objects=true", WHAT_IF, WHAT_IF_RULES),
    ):
        if flag in chart.container["args"]:
            watching = (RbacRule(spec.group, spec.plural, verb) for verb in ("list", "watch"))
            found |= {right(rule) for rule in (*watching, *rules)}
    return found


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in CONFIGURATIONS.items()])
async def test_the_chart_allows_exactly_what_the_daemon_does(values: Mapping[str, Any], tmp_path: Path) -> None:
    chart = rendered(values)

    found = granted(chart)

    assert set(found) == await needed_rights(chart, tmp_path) | unasked(chart)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in OBJECTS.items()])
def test_nothing_else_in_the_values_changes_what_is_allowed(values: Mapping[str, Any]) -> None:
    if values.get("rbac", {}).get("create") is False:
        assert granted(rendered(values)) == []
        return
    named = (
        "featureGates",
        "fullnameOverride",
        "leaderElection",
        "serving",
        "schedulerProfiles",
        "whatIfObjects",
        "rbac",
    )
    like = {key: value for key, value in values.items() if key in named}

    assert set(granted(rendered(values))) == set(granted(rendered(like)))


TABLE = (*(name for name, plugin in BUILT_IN.items() if hasattr(plugin, "reads")), "PodTopologySpread")
POINTS = ("preEnqueue", "preFilter", "filter", "postFilter", "score", "preBind")


@st.composite
def plugin_sets(draw: st.DrawFn) -> Json:
    """Plugin sets of a profile with the plugins that need rights, in any combination that is accepted."""
    some = st.lists(st.sampled_from(TABLE), unique=True, max_size=3)
    everything = draw(st.booleans())
    needed = ("PrioritySort", "DefaultBinder") if everything else ()
    sets = {"multiPoint": off(*draw(some), *("*" for _ in range(everything))) | on(*needed, *draw(some))}
    for point in draw(st.lists(st.sampled_from(POINTS), unique=True, max_size=2)):
        here = [name for name in draw(some) if point in served_points(BUILT_IN[name])]
        sets[point] = off(*draw(some), *("*" for _ in range(draw(st.booleans())))) | on(*here)
    return sets


@hypothesis.settings(max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(sets=st.lists(plugin_sets(), min_size=1, max_size=2))
def test_templates_resolve_plugins_as_the_code_does(sets: list[Json], tmp_path: Path) -> None:
    chart = rendered(profiles(*sets) | {"schedulerProfiles": {"enabled": False}, "whatIfObjects": {"enabled": False}})
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(chart.config))
    options = newest_options(["run", f"--config={file}"])
    found = build_profiles(options.config).values()
    kinds = kinds_read(found, options)

    watched = {Right(kind.group, kind.plural, verb) for kind in kinds for verb in ("list", "watch")}
    written = {right(rule) for rule in writes_of(found, options) if not rule.namespace}
    assert {each for each in granted(chart) if not each.name and not each.namespace} == (
        watched | written | {Right("", "pods", "get")}
    )


def test_events_are_listed_only_where_that_is_wanted() -> None:
    listing = {right(rule) for rule in CLAIM_EVENT_RULES}

    assert set(granted(rendered())) - set(granted(rendered({"rbac": {"readClaimEvents": False}}))) == listing


def test_what_profile_objects_may_turn_on_is_already_allowed() -> None:
    without = profiles({"multiPoint": off("DefaultPreemption", "DynamicResources")})
    more = {"rbac": {"extraPlugins": ["DefaultPreemption", "DynamicResources"]}}

    assert set(granted(rendered(without | more))) == set(granted(rendered()))


def test_the_table_of_plugins_is_the_code_s() -> None:
    text = (CHART / "templates" / "_rbac.tpl").read_text(encoding="utf-8")
    _, _, rest = text.partition('{{- define "kubestow.pluginTable" -}}')
    table = yaml.safe_load(rest.partition("{{- end -}}")[0])
    reading = {name: plugin for name, plugin in BUILT_IN.items() if hasattr(plugin, "reads")}
    spreads = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")

    assert {name: set(row["points"]) for name, row in table.items()} == {
        name: set(served_points(BUILT_IN[name])) for name in (*reading, "PodTopologySpread")
    }
    assert {
        name: {(group, plural) for group, plurals in row["reads"].items() for plural in plurals}
        for name, row in table.items()
    } == {
        name: {(KINDS[kind].group, KINDS[kind].plural) for kind in getattr(BUILT_IN[name], "reads", spreads)}
        for name in (*reading, "PodTopologySpread")
    }
    assert table.keys() <= {ref.name for ref in default_plugins(GATES_ON, has_groups=True)}


def test_every_write_is_allowed_somewhere() -> None:
    found = set(granted(rendered()))

    everywhere = (
        *(WRITES, OTHER_LEASE_RULES, GROUP_RULES, EVICTION_RULES, VOLUME_RULES, DEVICE_RULES, SERVING_RULES),
        *(PROFILE_RULES, WHAT_IF_RULES, EXTENDED_RESOURCE_RULES),
    )
    assert {right(rule) for rules in everywhere for rule in rules} <= found
    assert right(CLIENT_CA_RULE) in found
    assert not {each for each in found if each.resource == "secrets" or "*" in each}


def test_the_account_that_scrapes_may_only_read_metrics() -> None:
    role = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    values = {"metrics": {"reader": {"serviceAccount": {"name": "prometheus-k8s", "namespace": "monitoring"}}}}
    chart = rendered(values)
    binding = chart.one("ClusterRoleBinding", "-metrics-reader")

    assert [role] == rendered().one("ClusterRole", "-metrics-reader")["rules"]
    assert [f"{RELEASE}"] == [found["metadata"]["name"] for found in rendered().all("ClusterRoleBinding")]
    assert [{"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}] == binding["subjects"]
    assert chart.one("ClusterRole", "-metrics-reader")["metadata"]["name"] == binding["roleRef"]["name"]


LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["stow"], "verbs": ["get"]}
PODS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
]


@pytest.mark.parametrize(
    ("election", "roles"),
    [
        pytest.param({"resourceName": "stow"}, {"stow": [LEASES, *PODS]}, id="one namespace"),
        pytest.param(
            {"resourceName": "stow", "resourceNamespace": "leases"},
            {"stow": PODS, "leases": [LEASES]},
            id="a Lease in another namespace",
        ),
        pytest.param({"enabled": False}, {"stow": PODS}, id="no Lease"),
    ],
)
def test_explanations(election: Json, roles: Json) -> None:
    """The rules are those that tests/e2e/test_explain_command.py needs."""
    assert [each for each in rendered().objects if each["metadata"]["name"].endswith("-explain")] == []
    values = {"replicaCount": 1, "leaderElection": election, "explain": {"create": True, "groups": ["developers"]}}
    chart = rendered(values)
    found = [each for each in chart.objects if each["metadata"]["name"].endswith("-explain")]
    bindings = [each for each in found if each["kind"].endswith("Binding")]

    assert {each["metadata"]["namespace"]: each["rules"] for each in found if each["kind"] == "Role"} == roles
    assert [each["rules"] for each in found if each["kind"] == "ClusterRole"] == [
        [
            {"nonResourceURLs": ["/debug/explain/*"], "verbs": ["get"]},
            {"nonResourceURLs": ["/debug/what-if"], "verbs": ["post"]},
        ]
    ]
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "developers"}
    assert [each["subjects"] for each in bindings] == [[group]] * (1 + len(roles))
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == {
        ("ClusterRole", "kubestow-explain"),
        ("Role", "kubestow-explain"),
    }


@pytest.mark.parametrize("is_on", [True, False])
def test_users_of_the_page_may_read_it(is_on: bool) -> None:
    """The rules are those that `kubestow ui` needs besides those of `kubestow explain`."""
    chart = rendered({"explain": {"create": True}, "ui": {"enabled": is_on}})
    (role,) = (
        each
        for each in chart.objects
        if each["kind"] == "ClusterRole" and each["metadata"]["name"].endswith("-explain")
    )

    assert ({"nonResourceURLs": ["/ui", "/ui/data"], "verbs": ["get"]} in role["rules"]) == is_on


def test_the_page_shows_the_rules_of_the_chart() -> None:
    text = (ROOT / "docs/explain.md").read_text(encoding="utf-8").partition("\n### Permissions\n")[2]
    block = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    chart = rendered({"explain": {"create": True}})
    rules = [*chart.one("Role", "-explain")["rules"], *chart.one("ClusterRole", "-explain")["rules"]]

    assert yaml.safe_load(block[1]) == rules
