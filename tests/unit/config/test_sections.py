"""Leader election and extenders (docs/spec/core.md §6.1, §6.5)."""

from typing import Any

import pytest

from scheduler.api.meta import NAME_RULE
from scheduler.config.errors import ConfigErrors
from scheduler.config.load import default
from scheduler.config.types import ExtenderConfig, ExtenderTls, ManagedResource
from tests.unit.config.documents import mistakes, read, table

AT = {"urlPrefix": "http://127.0.0.1:8888"}


MISTAKES = table(
    """
# nothing said
{}
# a lease shorter than its renewal, which is the value that upstream repeats
{"leaseDuration": "9s"}
- leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`
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
- leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`
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


@pytest.mark.parametrize(("mistaken", "said"), MISTAKES)
def test_leader_election(mistaken: dict[str, Any], said: list[str]) -> None:
    """Checked as upstream when it is on, and kube-scheduler's own lease refused even when it is off."""
    assert sorted(mistakes({"leaderElection": mistaken})) == sorted(said)


@pytest.mark.parametrize(
    ("document", "flags", "wanted"),
    [
        pytest.param({}, {}, (True, 15.0, "kubestow"), id="on by default, as upstream"),
        pytest.param({"leaderElect": False}, {}, (False, 15.0, "kubestow"), id="the document switches it off"),
        pytest.param({"leaderElect": False}, {"leaderElect": True}, (True, 15.0, "kubestow"), id="a flag wins"),
        pytest.param(
            {"leaseDuration": "1s", "resourceName": "kube-scheduler"},
            {"leaseDuration": "20s", "resourceName": "mine"},
            (True, 20.0, "mine"),
            id="and is put in before anything is checked",
        ),
    ],
)
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
- extenders[0].urlPrefix: Invalid value: "": must be a URL with the scheme http or https and a host
""")


@pytest.mark.parametrize(("mistaken", "said"), EXTENDERS)
def test_extenders(mistaken: list[Any], said: list[str]) -> None:
    """Every mistake is reported with its path, in the words of kube-scheduler where it has some."""
    extenders = [AT | each if isinstance(each, dict) else each for each in mistaken]
    assert sorted(mistakes({"extenders": extenders})) == sorted(said)


NO_URL = "must be a URL with the scheme http or https and a host"


@pytest.mark.parametrize("url", ["", "extender:8888", "ftp://a", "http://", "http://a:x", "http://[a", "https:///x"])
def test_the_address_of_an_extender_is_checked(url: str) -> None:
    """kube-scheduler would start, and fail at each pod."""
    said = f'extenders[0].urlPrefix: Invalid value: "{url}": {NO_URL}'
    assert mistakes({"extenders": [{"urlPrefix": url}]}) == [said]


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
