"""The document: top level, leader election, extenders (docs/spec/core.md §6.1, §6.5), and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.api.meta import NAME_RULE
from scheduler.config.errors import ConfigErrors
from scheduler.config.load import default, load, parse
from scheduler.config.plugins import resolve
from scheduler.config.types import (
    ClientConnection,
    Configuration,
    ExtenderConfig,
    ExtenderTls,
    LeaderElection,
    ManagedResource,
)
from tests.unit.config.documents import HEAD, mistakes, read, table
from tests.unit.config.test_plugins import UPSTREAM

HERE = Path(__file__).parent
STRATEGIES = '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
EXAMPLES = HERE.parents[2] / "examples" / "config"


def test_the_defaults() -> None:
    """The values of §6.1; our lease is never kube-scheduler's. Made in code, a configuration has no leader election."""
    assert Configuration().leader_election.leader_elect is False
    configuration = default()

    assert [profile.scheduler_name for profile in configuration.profiles] == ["kubestow"]
    assert configuration.parallelism == 16
    assert configuration.client_connection == ClientConnection(kubeconfig="", qps=50.0, burst=100)
    assert configuration.leader_election == LeaderElection(
        leader_elect=True,
        lease_duration_s=15.0,
        renew_deadline_s=10.0,
        retry_period_s=2.0,
        resource_lock="leases",
        resource_name="kubestow",
        resource_namespace="kube-system",
    )
    assert configuration.percentage_of_nodes_to_score is None
    assert (configuration.pod_initial_backoff_s, configuration.pod_max_backoff_s) == (1.0, 10.0)
    assert configuration.extenders == ()
    assert configuration.delay_cache_until_active is False
    assert configuration.enable_profiling is True


ZEROS = {
    "clientConnection": {"kubeconfig": "", "qps": 0, "burst": 0, "contentType": ""},
    "leaderElection": {
        "leaseDuration": "0s",
        "renewDeadline": "0s",
        "retryPeriod": "0s",
        "resourceLock": "",
        "resourceName": "",
        "resourceNamespace": "",
    },
    "profiles": [],
}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="nothing"),
        pytest.param(dict.fromkeys(("parallelism", "clientConnection", "profiles", "extenders")), id="null"),
        pytest.param(ZEROS, id="Go's zero values, which generated documents spell out"),
    ],
)
def test_what_means_the_default(document: dict[str, Any]) -> None:
    assert read(document) == default()


def test_everything_said_is_kept() -> None:
    configuration = read(
        {
            "parallelism": 4,
            "clientConnection": {"kubeconfig": "/k", "qps": 1.5, "burst": 3},
            "leaderElection": {
                "leaderElect": False,
                "leaseDuration": "1m30s",
                "renewDeadline": "20s",
                "retryPeriod": "500ms",
                "resourceName": "mine",
                "resourceNamespace": "here",
            },
            "percentageOfNodesToScore": 0,
            "podInitialBackoffSeconds": 2,
            "podMaxBackoffSeconds": 2,
            "delayCacheUntilActive": True,
            "enableProfiling": False,
        }
    )

    assert configuration == Configuration(
        parallelism=4,
        client_connection=ClientConnection("/k", 1.5, 3),
        leader_election=LeaderElection(False, 90.0, 20.0, 0.5, "leases", "mine", "here"),
        percentage_of_nodes_to_score=0,
        pod_initial_backoff_s=2.0,
        pod_max_backoff_s=2.0,
        delay_cache_until_active=True,
        enable_profiling=False,
    )


MISTAKES = table("""
# a fraction
{"parallelism": 1.0}
- parallelism: must be an integer, got 1.0
# a boolean for a number
{"parallelism": true}
- parallelism: must be an integer, got true
# beyond int32
{"parallelism": 2147483648}
- parallelism: must be <= 2147483647, got 2147483648
# more than all nodes
{"percentageOfNodesToScore": 101}
- percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]
# ignored fields are checked too
{"percentageOfPlacementsToScore": -1}
- percentageOfPlacementsToScore: Invalid value: -1: not in valid range [0-100]
# no initial backoff
{"podInitialBackoffSeconds": 0}
- podInitialBackoffSeconds: Invalid value: 0: must be greater than 0
# no maximum backoff
{"podMaxBackoffSeconds": 0}
- podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds
# negative burst
{"clientConnection": {"burst": -1}}
- clientConnection.burst: Invalid value: -1: must be non-negative
# qps as text
{"clientConnection": {"qps": "50"}}
- clientConnection.qps: must be a number, got "50"
# a text for a mapping
{"clientConnection": "x"}
- clientConnection: must be a mapping, got "x"
# a mapping for a list
{"profiles": {}}
- profiles: must be a list, got a mapping
# a typo
{"percentageOfNodeToScore": 5}
- percentageOfNodeToScore: unknown field, did you mean "percentageOfNodesToScore"?
# case counts
{"Parallelism": 5}
- Parallelism: unknown field, did you mean "parallelism"?
# an unknown field, even without value
{"zzz": null}
- zzz: unknown field
# a flag that is no field
{"podMaxInUnschedulablePodsDuration": "5m"}
- podMaxInUnschedulablePodsDuration: unknown field
""")


@pytest.mark.parametrize(("document", "said"), MISTAKES)
def test_mistakes_at_the_top(document: dict[str, Any], said: list[str]) -> None:
    """210, 215: each mistake has the path of its field."""
    assert mistakes(document) == said


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("", "test: must be a KubeSchedulerConfiguration, got null", id="empty"),
    pytest.param("[]", "test: must be a KubeSchedulerConfiguration, got a list", id="a list"),
    pytest.param("kind: KubeSchedulerConfiguration", "apiVersion: is required: kubescheduler.config.k8s.io/v1",
        id="no version"),
    pytest.param("kind: x",
        'apiVersion: is required: kubescheduler.config.k8s.io/v1\nkind: must be KubeSchedulerConfiguration, got "x"',
        id="no version and another kind"),
    pytest.param("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nnonsense: 1",
        'apiVersion: must be kubescheduler.config.k8s.io/v1, got "kubescheduler.config.k8s.io/v1beta3"',
        id="an older version, and nothing about its fields"),
    pytest.param("apiVersion: kubescheduler.config.k8s.io/v1", "kind: is required: KubeSchedulerConfiguration",
        id="no kind"),
    pytest.param("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod",
        'kind: must be KubeSchedulerConfiguration, got "Pod"', id="another kind"),
    pytest.param("[" * 5000, "test: is nested too deeply", id="a mistake without a path names the source"),
])  # fmt: skip
def test_what_is_no_configuration(text: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as broken:
        parse(text, source="test")

    assert str(broken.value) == said


def test_fields_without_effect_are_listed() -> None:
    """They are accepted, so that a kube-scheduler's document works, and listed, so that users do not rely on them."""
    configuration = read(
        {
            "parallelism": 8,
            "enableContentionProfiling": True,
            "enableProfiling": True,
            "clientConnection": {"contentType": "application/vnd.kubernetes.protobuf", "acceptContentTypes": None},
            "profiles": [{"schedulerName": "p", "pluginConfig": [{"name": "NodeName", "args": {"x": 1}}]}],
        }
    )

    assert configuration.ignored == (
        "clientConnection.contentType",
        "enableContentionProfiling",
        "enableProfiling",
        "parallelism",
        "profiles[0].pluginConfig[0].args",
    )


def test_all_mistakes_at_once_in_document_order() -> None:
    with pytest.raises(ConfigErrors) as broken:
        load(HERE / "broken.yaml")

    assert [(error.line, str(error)) for error in broken.value.errors] == [
        (4, 'percentageOfNodesToSkore: unknown field, did you mean "percentageOfNodesToScore"?'),
        (5, "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds"),
        (
            12,
            (
                "profiles[0].pluginConfig[0].args.scoringStrategy.type: "
                f'Unsupported value: "MostAllocatd": supported values: {STRATEGIES}'
            ),
        ),
        (
            15,
            (
                "profiles[0].pluginConfig[1].args.bindTimeoutSeconds: Invalid value: -5: "
                "invalid BindTimeoutSeconds, should not be a negative value"
            ),
        ),
    ]


def test_the_examples_are_good() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))

    assert files
    for file in files:
        configuration = load(file)
        assert configuration.ignored == ()
        for profile in configuration.profiles:
            resolve(profile.plugins, implements=UPSTREAM)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xe9\n")

    for file, why in (
        (tmp_path / "none", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (latin, "is not UTF-8: byte 3"),
    ):
        with pytest.raises(ConfigErrors) as unreadable:
            load(file)
        assert str(unreadable.value) == f"{file}: {why}"


def test_a_byte_order_mark_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_text("\ufeff" + "\n".join(f"{k}: {v}" for k, v in HEAD.items()), encoding="utf-8")

    assert load(file) == default()


AT = {"urlPrefix": "http://127.0.0.1:8888"}


SECTION_MISTAKES = table(
    """
# nothing said
{}
# a lease shorter than the default of its renewal
{"leaseDuration": "9s"}
- leaderElection.leaseDuration: Invalid value: "9s": must be greater than `RenewDeadline`
# no time for a second try
{"retryPeriod": "8.4s"}
- leaderElection.renewDeadline: Invalid value: "10s": must be greater than 1.2 times retryPeriod
# a lease that ends with its renewal deadline
{"leaseDuration": "12s", "renewDeadline": "12s"}
- leaderElection.leaseDuration: Invalid value: "12s": must be greater than `RenewDeadline`
# a renewal deadline of exactly 1.2 retry periods
{"renewDeadline": "12s", "retryPeriod": "10s"}
- leaderElection.renewDeadline: Invalid value: "12s": must be greater than 1.2 times retryPeriod
# a lease and a renewal deadline just long enough
{"leaseDuration": "12.001s", "renewDeadline": "12s", "retryPeriod": "9.999s"}
# a negative period
{"retryPeriod": "-1s"}
- leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero
# a negative lease, reported twice as upstream
{"leaseDuration": "-1s"}
- leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero
- leaderElection.leaseDuration: Invalid value: "-1s": must be greater than `RenewDeadline`
# times are not looked at when election is off
{"leaderElect": false, "leaseDuration": "1s"}
# a duration without unit
{"leaseDuration": 15}
- leaderElection.leaseDuration: must be a string, got 15
# a duration text without unit
{"leaseDuration": "15"}
- leaderElection.leaseDuration: must be a duration such as "15s" or "1m30s", got "15"
# another lock
{"resourceLock": "endpoints"}
- leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"
# the cluster's own lease
{"leaderElect": false, "resourceName": "kube-scheduler"}
- leaderElection.resourceName: kube-scheduler in kube-system is the cluster's own scheduler's lease
# that name in another namespace
{"resourceName": "kube-scheduler", "resourceNamespace": "mine"}
# names that no object can have
{"resourceName": "a/../b", "resourceNamespace": "Kube"}
- leaderElection.resourceName: Invalid value: "a/../b": <NAME_RULE>
- leaderElection.resourceNamespace: Invalid value: "Kube": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
# a namespace with a dot
{"resourceNamespace": "a.b"}
- leaderElection.resourceNamespace: Invalid value: "a.b": must not contain dots
# a name with a dot
{"resourceName": "a.b-c"}
# a word for on
{"leaderElect": "yes"}
- leaderElection.leaderElect: must be true or false, got "yes"
# a typo
{"leaderElekt": true}
- leaderElection.leaderElekt: unknown field, did you mean "leaderElect"?
""",
    NAME_RULE=NAME_RULE,
)


@pytest.mark.parametrize(("mistaken", "said"), SECTION_MISTAKES)
def test_leader_election(mistaken: dict[str, Any], said: list[str]) -> None:
    """Checked as upstream when it is on, and kube-scheduler's own lease refused even when it is off."""
    assert sorted(mistakes({"leaderElection": mistaken})) == sorted(said)


@pytest.mark.parametrize(("document", "flags", "wanted"), [
    pytest.param({}, {}, (True, 15.0, "kubestow"), id="on by default, as upstream"),
    pytest.param({"leaderElect": False}, {}, (False, 15.0, "kubestow"), id="the document switches it off"),
    pytest.param({"leaderElect": False}, {"leaderElect": True}, (True, 15.0, "kubestow"), id="a flag wins"),
    pytest.param({"leaseDuration": "1s", "resourceName": "kube-scheduler"},
        {"leaseDuration": "20s", "resourceName": "mine"}, (True, 20.0, "mine"),
        id="and is put in before anything is checked"),
])  # fmt: skip
def test_flags_of_leader_election(document: dict[str, Any], flags: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    read_one = read({"leaderElection": document}, leader_election=flags).leader_election
    assert (read_one.leader_elect, read_one.lease_duration_s, read_one.resource_name) == wanted
    if not document:
        assert default(flags).leader_election == read_one


def test_flags_make_mistakes_too() -> None:
    with pytest.raises(ConfigErrors) as wrong:
        default({"retryPeriod": "9s"})

    assert str(wrong.value) == (
        'leaderElection.renewDeadline: Invalid value: "10s": must be greater than 1.2 times retryPeriod'
    )
    assert mistakes({"leaderElection": "x"}, leader_election={"leaderElect": True}) == [
        'leaderElection: must be a mapping, got "x"'
    ]


EXTENDERS = table("""
# none
[]
# it scores without weight
[{"prioritizeVerb": "p"}]
- extenders[0].weight: Invalid value: 0: must have a positive weight applied to it
# a weight that is not used
[{"filterVerb": "f", "weight": -1}]
# two of them bind
[{"bindVerb": "b"}, {"bindVerb": "c"}]
- extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind
# it manages cpu
[{"managedResources": [{"name": "cpu"}]}]
- extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name
# two manage one resource
[{"managedResources": [{"name": "a.b/c"}]}, {"managedResources": [{"name": "a.b/d"}, {"name": "a.b/c"}]}]
- extenders[1].managedResources[1].name: Invalid value: "a.b/c": duplicate extender managed resource name
# a resource without name
[{"managedResources": [{"ignoredByScheduler": true}]}]
- extenders[0].managedResources[0].name: Required value
# a broken key is not repeated
[{"tlsConfig": {"keyData": "secret!"}}]
- extenders[0].tlsConfig.keyData: must be base64
# an authority that is not used
[{"tlsConfig": {"insecure": true, "caFile": "/ca"}}]
- extenders[0].tlsConfig.insecure: specifying a root certificates file with the insecure flag is not allowed
# a negative time-out
[{"httpTimeout": "-1s"}]
- extenders[0].httpTimeout: Invalid value: "-1s": must be non-negative
# an unknown field
[{"url": "x"}]
- extenders[0].url: unknown field
# nothing where one should be
[null]
- extenders[0]: must be a mapping, got null
- extenders[0].urlPrefix: Invalid value: "": must begin with https:// or http:// and name a host
""")


@pytest.mark.parametrize(("mistaken", "said"), EXTENDERS)
def test_extenders(mistaken: list[Any], said: list[str]) -> None:
    """Every mistake is reported with its path, in the words of kube-scheduler where it has some."""
    extenders = [AT | each if isinstance(each, dict) else each for each in mistaken]
    assert sorted(mistakes({"extenders": extenders})) == sorted(said)


NO_URL = "must begin with https:// or http:// and name a host"
NO_PORT = "must have only a colon and a port of 1 to 65535 after the host"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("", NO_URL, id="nothing"),
        pytest.param("extender:8888", NO_URL, id="no scheme"),
        pytest.param("ftp://a", NO_URL, id="another scheme"),
        pytest.param("http://", NO_URL, id="no host"),
        pytest.param("https:///x", NO_URL, id="no host but a path"),
        pytest.param("http://*", NO_URL, id="a pattern"),
        pytest.param("http://a:x", NO_PORT, id="a word as port"),
        pytest.param("http://a:", NO_PORT, id="an empty port"),
        pytest.param("http://a:0/x", NO_PORT, id="port 0"),
        pytest.param("http://a:65536", NO_PORT, id="too large a port"),
        pytest.param("http://a,b", NO_PORT, id="two hosts"),
        pytest.param("http://u:se/cret@a", NO_PORT, id="a password with a slash"),
        pytest.param("http://[a", "must name a valid host", id="half an IPv6 address"),
        pytest.param("http://a..b", "must name a valid host", id="an empty label"),
        pytest.param("http://a b", "must not have the character ' '", id="a blank"),
        pytest.param("http://a?x", "must end with the path", id="a query, to which the verb would be added"),
    ],
)
def test_the_address_of_an_extender_is_checked(url: str, said: str) -> None:
    assert mistakes({"extenders": [{"urlPrefix": url}]}) == [f'extenders[0].urlPrefix: Invalid value: "{url}": {said}']


def test_an_extender_is_read() -> None:
    """All fields, and the default time limit of five seconds."""
    [given, bare] = read(
        {
            "extenders": [
                AT
                | {
                    "filterVerb": "f",
                    "preemptVerb": "e",
                    "prioritizeVerb": "p",
                    "weight": 3,
                    "bindVerb": "b",
                    "enableHTTPS": True,
                    "tlsConfig": {"serverName": "a", "caData": "Y2E=", "certFile": "/c", "keyFile": "/k"},
                    "httpTimeout": "100ms",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}],
                    "ignorable": True,
                },
                AT,
            ]
        }
    ).extenders

    assert given == ExtenderConfig(
        "http://127.0.0.1:8888",
        filter_verb="f",
        preempt_verb="e",
        prioritize_verb="p",
        weight=3,
        bind_verb="b",
        enable_https=True,
        tls=ExtenderTls(server_name="a", ca_data=b"ca", cert_file="/c", key_file="/k"),
        http_timeout_s=0.1,
        node_cache_capable=True,
        managed_resources=(ManagedResource("a.b/c", True),),
        ignorable=True,
    )
    assert bare == ExtenderConfig("http://127.0.0.1:8888", http_timeout_s=5.0)


def test_client_limits_may_be_off() -> None:
    assert read({"clientConnection": {"qps": -1}}).client_connection.qps == -1.0


@pytest.mark.parametrize("gates", [False, True], ids=["default gates", "gates of groups"])
def test_what_kube_scheduler_1_38_writes(gates: bool) -> None:
    """Its points, its fields and its plugins for groups are accepted in every version; they have no effect."""
    plugins: dict[str, Any] = {"placementGenerate": {}, "placementFeasible": {}, "placementScore": {}}
    plugins["podGroupPostFilter"] = {}
    profile: dict[str, Any] = {"schedulerName": "kubestow", "plugins": plugins}
    if gates:
        names = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
        plugins["multiPoint"] = {"enabled": [{"name": name, "weight": 0} for name in names]}
        profile["percentageOfPlacementsToScore"] = 0
    else:
        plugins["reserve"] = {"disabled": [{"name": "DefaultPreemption", "weight": 0}]}

    configuration = read({"profiles": [profile], **({"percentageOfPlacementsToScore": 0} if gates else {})})

    resolved = resolve(configuration.profiles[0].plugins, implements=UPSTREAM)
    assert resolved.absent == (names if gates else ())
    ignored = ("percentageOfPlacementsToScore", "profiles[0].percentageOfPlacementsToScore")
    assert configuration.ignored == (ignored if gates else ())


def test_a_percentage_of_placements_out_of_range() -> None:
    document = {"profiles": [{"schedulerName": "p", "percentageOfPlacementsToScore": 101}]}

    wrong = "profiles[0].percentageOfPlacementsToScore: Invalid value: 101: not in valid range [0-100]"
    assert mistakes(document) == [wrong]
