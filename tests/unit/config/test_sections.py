"""Leader election and extenders (docs/spec/core.md §6.1, §6.5)."""

from typing import Any

import pytest

from scheduler.config.errors import ConfigErrors
from scheduler.config.load import default
from scheduler.core.names import NAME_RULE, dns_label
from tests.unit.config.documents import mistakes, read

NO_EXTENDERS = "extenders: extenders are not available in this version; a plugin can do what one does"


@pytest.mark.parametrize(
    ("election", "said"),
    [
        pytest.param({}, [], id="nothing said"),
        pytest.param({"leaderElect": False}, [], id="off"),
        pytest.param({"leaderElect": True}, [], id="on"),
        pytest.param(
            {"leaseDuration": "9s"},
            ['leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`'],
            id="a lease shorter than its renewal, which is the value that upstream repeats",
        ),
        pytest.param(
            {"retryPeriod": "8.4s"},
            ['leaderElection.renewDeadline: Invalid value: "10s": must be greater than 1.2 times retryPeriod'],
            id="no time for a second try",
        ),
        pytest.param(
            {"leaseDuration": "12s", "renewDeadline": "12s"},
            ['leaderElection.leaseDuration: Invalid value: "12s": must be greater than `RenewDeadline`'],
            id="a lease that ends with its renewal deadline",
        ),
        pytest.param(
            {"renewDeadline": "12s", "retryPeriod": "10s"},
            ['leaderElection.renewDeadline: Invalid value: "12s": must be greater than 1.2 times retryPeriod'],
            id="a renewal deadline of exactly 1.2 retry periods",
        ),
        pytest.param(
            {"leaseDuration": "12.001s", "renewDeadline": "12s", "retryPeriod": "9.999s"},
            [],
            id="a lease and a renewal deadline just long enough",
        ),
        pytest.param(
            {"retryPeriod": "-1s"},
            ['leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero'],
            id="a negative period",
        ),
        pytest.param(
            {"leaseDuration": "-1s"},
            [
                'leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero',
                'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
            ],
            id="a negative lease, told twice as upstream",
        ),
        pytest.param(
            {"leaderElect": False, "leaseDuration": "1s"}, [], id="times are not looked at when election is off"
        ),
        pytest.param(
            {"leaseDuration": 15},
            ["leaderElection.leaseDuration: must be a string, got 15"],
            id="a duration without unit",
        ),
        pytest.param(
            {"leaseDuration": "15"},
            ['leaderElection.leaseDuration: must be a duration such as "15s" or "1m30s", got "15"'],
            id="a duration text without unit",
        ),
        pytest.param(
            {"resourceLock": "endpoints"},
            ['leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"'],
            id="another lock",
        ),
        pytest.param(
            {"leaderElect": False, "resourceName": "kube-scheduler"},
            ["leaderElection.resourceName: kube-scheduler in kube-system is the cluster's own scheduler's lease"],
            id="the cluster's own lease",
        ),
        pytest.param(
            {"resourceName": "kube-scheduler", "resourceNamespace": "mine"}, [], id="that name in another namespace"
        ),
        pytest.param(
            {"leaderElect": True, "renewDeadline": "20s"},
            ['leaderElection.leaseDuration: Invalid value: "20s": must be greater than `RenewDeadline`'],
            id="a renewal longer than the lease",
        ),
        pytest.param(
            {"resourceName": "a/../b", "resourceNamespace": "Kube"},
            [
                f'leaderElection.resourceName: Invalid value: "a/../b": {NAME_RULE}',
                f'leaderElection.resourceNamespace: Invalid value: "Kube": {dns_label("Kube")[0]}',
            ],
            id="names that no object can have",
        ),
        pytest.param(
            {"resourceNamespace": "a.b"},
            ['leaderElection.resourceNamespace: Invalid value: "a.b": must not contain dots'],
            id="a namespace with a dot",
        ),
        pytest.param({"resourceName": "a.b-c"}, [], id="a name with a dot"),
        pytest.param(
            {"leaderElect": "yes"}, ['leaderElection.leaderElect: must be true or false, got "yes"'], id="a word for on"
        ),
        pytest.param(
            {"leaderElekt": True},
            ['leaderElection.leaderElekt: unknown field, did you mean "leaderElect"?'],
            id="a typo",
        ),
    ],
)
def test_leader_election(election: dict[str, Any], said: list[str]) -> None:
    """Checked as upstream when it is on, and kube-scheduler's own lease refused even when it is off."""
    assert sorted(mistakes({"leaderElection": election})) == sorted(said)


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
    """With a document and, where there is nothing in it to win over, without one."""
    read_one = read({"leaderElection": document}, leader_election=flags).leader_election
    assert (read_one.leader_elect, read_one.lease_duration_s, read_one.resource_name) == wanted
    if not document:
        assert default(flags).leader_election == read_one


def test_flags_make_mistakes_too() -> None:
    """They are told by field; a section that is no mapping is still said to be none."""
    with pytest.raises(ConfigErrors) as wrong:
        default({"retryPeriod": "9s"})

    assert str(wrong.value) == (
        'leaderElection.renewDeadline: Invalid value: "10s": must be greater than 1.2 times retryPeriod'
    )
    assert mistakes({"leaderElection": "x"}, leader_election={"leaderElect": True}) == [
        'leaderElection: must be a mapping, got "x"'
    ]


@pytest.mark.parametrize(
    ("extenders", "said"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            [
                {
                    "urlPrefix": "https://a/b",
                    "filterVerb": "filter",
                    "preemptVerb": "preempt",
                    "prioritizeVerb": "prioritize",
                    "weight": 5,
                    "bindVerb": "bind",
                    "enableHTTPS": True,
                    "tlsConfig": {
                        "insecure": False,
                        "serverName": "a",
                        "caData": "Y2E=",
                        "certFile": "/c",
                        "keyFile": "/k",
                    },
                    "httpTimeout": "3s",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}],
                    "ignorable": True,
                }
            ],
            [],
            id="a good one",
        ),
        pytest.param(
            [{"prioritizeVerb": "p"}],
            ["extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"],
            id="it scores without weight",
        ),
        pytest.param([{"filterVerb": "f", "weight": -1}], [], id="a weight that is not used"),
        pytest.param(
            [{"bindVerb": "b"}, {"bindVerb": "c"}],
            ['extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind'],
            id="two of them bind",
        ),
        pytest.param(
            [{"managedResources": [{"name": "cpu"}]}],
            ['extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name'],
            id="it manages cpu",
        ),
        pytest.param(
            [{"managedResources": [{"name": "a.b/c"}]}, {"managedResources": [{"name": "a.b/d"}, {"name": "a.b/c"}]}],
            ['extenders[1].managedResources[1].name: Invalid value: "a.b/c": duplicate extender managed resource name'],
            id="two manage one resource",
        ),
        pytest.param(
            [{"managedResources": [{"ignoredByScheduler": True}]}],
            ["extenders[0].managedResources[0].name: Required value"],
            id="a resource without name",
        ),
        pytest.param(
            [{"tlsConfig": {"keyData": "secret!"}}],
            ["extenders[0].tlsConfig.keyData: must be base64"],
            id="a broken key is not repeated",
        ),
        pytest.param(
            [{"httpTimeout": "-1s"}],
            ['extenders[0].httpTimeout: Invalid value: "-1s": must be non-negative'],
            id="a negative time-out",
        ),
        pytest.param([{"url": "x"}], ["extenders[0].url: unknown field"], id="an unknown field"),
        pytest.param([None], ["extenders[0]: must be a mapping, got null"], id="nothing where one should be"),
    ],
)
def test_extenders(extenders: list[Any], said: list[str]) -> None:
    """Checked in full, then refused as not available."""
    assert sorted(mistakes({"extenders": extenders})) == sorted([*said, NO_EXTENDERS] if extenders else said)


def test_client_limits_may_be_off() -> None:
    """A negative rate is kept: it means no limit."""
    assert read({"clientConnection": {"qps": -1}}).client_connection.qps == -1.0
