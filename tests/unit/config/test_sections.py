"""Leader election and extenders (docs/spec/core.md §6.1, §6.5)."""

from typing import Any

import pytest

from tests.unit.config.documents import mistakes, read

NOT_YET = "leaderElection.leaderElect: leader election is not available in this version"
NO_EXTENDERS = "extenders: extenders are not available in this version"


@pytest.mark.parametrize(
    ("election", "said"),
    [
        pytest.param({}, [], id="nothing said"),
        pytest.param({"leaderElect": False}, [], id="off"),
        pytest.param({"leaderElect": True}, [NOT_YET], id="on"),
        pytest.param(
            {"leaseDuration": "10s"},
            ["leaderElection.leaseDuration: must be greater than renewDeadline"],
            id="a lease as short as its renewal",
        ),
        pytest.param(
            {"retryPeriod": "8.4s"},
            ["leaderElection.renewDeadline: must be greater than 1.2 times retryPeriod"],
            id="no time for a second try",
        ),
        pytest.param(
            {"retryPeriod": "-1s"}, ["leaderElection.retryPeriod: must be > 0s, got -1s"], id="a negative period"
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
            ['leaderElection.resourceLock: must be leases, got "endpoints"'],
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
            [NOT_YET, "leaderElection.leaseDuration: must be greater than renewDeadline"],
            id="on, and checked all the same",
        ),
        pytest.param(
            {"leaderElekt": True},
            ['leaderElection.leaderElekt: unknown field, did you mean "leaderElect"?'],
            id="a typo",
        ),
    ],
)
def test_leader_election(election: dict[str, Any], said: list[str]) -> None:
    """Checked as far as it matters; on is refused until it works."""
    assert sorted(mistakes({"leaderElection": election})) == sorted(said)


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
            ["extenders[0].weight: must be > 0 with a prioritizeVerb, got 0"],
            id="it scores without weight",
        ),
        pytest.param([{"filterVerb": "f", "weight": -1}], [], id="a weight that is not used"),
        pytest.param(
            [{"bindVerb": "b"}, {"bindVerb": "c"}],
            ["extenders[1].bindVerb: only one extender can bind, and extenders[0] does"],
            id="two of them bind",
        ),
        pytest.param(
            [{"managedResources": [{"name": "cpu"}]}],
            ['extenders[0].managedResources[0].name: is not an extended resource name, got "cpu"'],
            id="it manages cpu",
        ),
        pytest.param(
            [{"managedResources": [{"name": "a.b/c"}]}, {"managedResources": [{"name": "a.b/d"}, {"name": "a.b/c"}]}],
            ['extenders[1].managedResources[1].name: "a.b/c" is already managed by extenders[0]'],
            id="two manage one resource",
        ),
        pytest.param(
            [{"managedResources": [{"ignoredByScheduler": True}]}],
            ["extenders[0].managedResources[0].name: is required"],
            id="a resource without name",
        ),
        pytest.param(
            [{"tlsConfig": {"keyData": "secret!"}}],
            ["extenders[0].tlsConfig.keyData: must be base64"],
            id="a broken key is not repeated",
        ),
        pytest.param(
            [{"httpTimeout": "-1s"}], ["extenders[0].httpTimeout: must be >= 0s, got -1s"], id="a negative time-out"
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
