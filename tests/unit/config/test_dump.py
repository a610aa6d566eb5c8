"""A configuration written out means the same."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.config.args import default_args
from scheduler.config.document import write_document
from scheduler.config.dump import to_document, without_keys
from scheduler.config.load import default, parse
from scheduler.config.plugins import resolve
from scheduler.config.types import Configuration, ExtenderConfig, ExtenderTls, ManagedResource
from scheduler.core.feature_gates import BINDING_CONDITIONS, DEVICE_GATES_ON, FILTER_TIMEOUT
from tests.examples import SLOW_SHARE, examples
from tests.unit.config.documents import HEAD, read
from tests.unit.config.test_plugins import UPSTREAM

NAMES = st.sampled_from(["kubestow", "batch", "a.b", "true", "1e3", "no", "~"])
DURATIONS = st.integers(0, 10**6).map(lambda ms: f"{ms}ms")
PLUGINS = st.sampled_from(sorted(UPSTREAM))
SETS = st.fixed_dictionaries(
    {
        "enabled": st.lists(PLUGINS, max_size=3, unique=True).map(
            lambda names: [{"name": n, "weight": 2} for n in names]
        ),
        "disabled": st.lists(PLUGINS | st.just("*"), max_size=2).map(lambda names: [{"name": n} for n in names]),
    }
)
RESOURCES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["cpu", "memory", "a.b/c"]), "weight": st.integers(0, 100)}),
    max_size=3,
)
SHAPES = st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True).map(
    lambda points: [{"utilization": u, "score": u % 11} for u in sorted(points)]
)
VICTIMS = st.sampled_from(["all", "own", "ownFirst"])
OURS = st.one_of(
    st.fixed_dictionaries({"parity": st.just(True)}, optional={"victims": VICTIMS}),
    st.fixed_dictionaries(
        {},
        optional={
            "victims": VICTIMS,
            "preemptionFairShare": st.sampled_from(["on", "none"]),
            "busyNodes": st.sampled_from(["avoid", "none"]),
            "storageCapacityReservation": st.sampled_from(["ledger", "none"]),
            "boundClaimCapacity": st.sampled_from(["none", "score"]),
            "requireCSINodeDrivers": st.lists(st.sampled_from(["a", "b.example"]), max_size=2),
            "volumeWriteRetries": st.integers(0, 10),
            "bindPoll": st.sampled_from(["events", "upstream"]),
            "countAttachedTwice": st.booleans(),
            "zoneEphemeral": st.sampled_from(["on", "none"]),
            "deviceScoring": st.sampled_from(["pack", "firstFit"]),
            "devicePreemption": st.sampled_from(["on", "none"]),
            "deviceDoubleCheck": st.sampled_from(["on", "none"]),
            "derivedNominations": st.sampled_from(["on", "none"]),
        },
    ),
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "DefaultPreemption": st.fixed_dictionaries({"minCandidateNodesPercentage": st.integers(0, 100)}),
        "InterPodAffinity": st.fixed_dictionaries({"hardPodAffinityWeight": st.integers(0, 100)}),
        "NodeResourcesFit": st.one_of(
            RESOURCES.map(lambda listed: {"scoringStrategy": {"type": "MostAllocated", "resources": listed}}),
            SHAPES.map(
                lambda shape: {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "requestedToCapacityRatio": {"shape": shape},
                    }
                }
            ),
        ),
        "PodTopologySpread": st.integers(1, 5).map(
            lambda skew: {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": skew}
                ],
            }
        ),
        "VolumeBinding": st.fixed_dictionaries({"bindTimeoutSeconds": st.integers(0, 2**40)}),
        "DynamicResources": st.fixed_dictionaries({"filterTimeout": DURATIONS}),
        "NodeAffinity": st.just(
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["no", "1"]}]}
                        ]
                    }
                }
            }
        ),
        "Kubestow": OURS,
        "Theirs": st.dictionaries(NAMES, st.none() | st.integers() | NAMES, max_size=2),
    },
)
PROFILES = st.lists(
    st.tuples(NAMES, st.fixed_dictionaries({}, optional={"multiPoint": SETS, "filter": SETS, "score": SETS}), ARGS),
    min_size=1,
    max_size=2,
    unique_by=lambda profile: profile[0],
)


def as_profile(name: str, plugins: Any, args: dict[str, Any]) -> dict[str, Any]:
    config = [{"name": plugin, "args": value} for plugin, value in args.items()]
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": config}


@settings(max_examples=examples(60, share=SLOW_SHARE), deadline=None)
@given(
    st.fixed_dictionaries(
        {"profiles": PROFILES.map(lambda profiles: [as_profile(*p) for p in profiles])},
        optional={
            "percentageOfNodesToScore": st.integers(0, 100),
            "clientConnection": st.fixed_dictionaries({"qps": st.floats(0, 1000), "burst": st.integers(0, 1000)}),
            "leaderElection": st.fixed_dictionaries(
                {"leaderElect": st.just(False), "leaseDuration": DURATIONS, "resourceName": NAMES}
            ),
            "enableContentionProfiling": st.booleans(),
        },
    )
)
def test_written_and_read_is_the_same(fields: dict[str, Any]) -> None:
    configuration = read(fields)
    document = to_document(configuration)

    assert parse(json.dumps(document), source="json") == configuration
    assert parse(write_document(document), source="yaml") == configuration


@pytest.mark.parametrize(
    ("gates", "given"),
    [
        pytest.param(DEVICE_GATES_ON, {"filterTimeout", "bindingTimeout"}, id="on"),
        pytest.param(DEVICE_GATES_ON - {FILTER_TIMEOUT}, {"bindingTimeout"}, id="no limit to the search"),
        pytest.param(DEVICE_GATES_ON - {BINDING_CONDITIONS}, {"filterTimeout"}, id="nothing to wait for"),
    ],
)
def test_what_may_not_be_given_is_not_written(gates: frozenset[str], given: set[str]) -> None:
    configuration = default(feature_gates=gates)
    document = to_document(configuration)

    args = next(each for each in document["profiles"][0]["pluginConfig"] if each["name"] == "DynamicResources")["args"]
    assert given == args.keys() - {"apiVersion", "kind"}
    assert configuration == parse(json.dumps(document), source="json", feature_gates=gates)


def test_the_default_written_out() -> None:
    document = to_document(default())

    assert document["leaderElection"]["leaseDuration"] == "15s"
    assert document["profiles"][0]["schedulerName"] == "kubestow"
    kinds = [entry["args"]["kind"] for entry in document["profiles"][0]["pluginConfig"]]
    assert kinds == [f"{plugin}Args" for plugin in default_args()]
    ours = document["profiles"][0]["pluginConfig"][-1]["args"]
    assert (ours["parity"], ours["victims"]) == (False, "all")
    assert document.items() >= HEAD.items()


def test_resolved_lists_written_out_resolve_to_themselves() -> None:
    """So a written configuration also keeps its plugins when the defaults of a later version differ."""
    configuration = read(
        {
            "profiles": [
                {
                    "schedulerName": "p",
                    "plugins": {
                        "multiPoint": {"disabled": [{"name": "ImageLocality"}]},
                        "score": {"enabled": [{"name": "NodeAffinity", "weight": 9}]},
                    },
                }
            ]
        }
    )
    resolved = resolve(configuration.profiles[0].plugins, implements=UPSTREAM)
    document = to_document(configuration, resolved={"p": resolved})
    again = parse(json.dumps(document), source="again").profiles[0]

    assert resolve(again.plugins, implements=UPSTREAM, default=()).points == resolved.points
    assert resolve(again.plugins, implements=UPSTREAM).points == resolved.points


def test_private_keys_of_extenders_are_for_no_page() -> None:
    tls = ExtenderTls(cert_data=b"public", key_data=b"private")
    configuration = Configuration(extenders=(ExtenderConfig("http://x", tls=tls), ExtenderConfig("http://y")))
    [written, _] = to_document(without_keys(configuration))["extenders"]

    assert written["tlsConfig"]["certData"]
    assert "keyData" not in written["tlsConfig"]


def test_extenders_are_written_too() -> None:
    tls = ExtenderTls(server_name="s", ca_data=b"ca")
    extender = ExtenderConfig("http://x", "f", weight=2, tls=tls, managed_resources=(ManagedResource("a.b/c", True),))
    [written] = to_document(Configuration(extenders=(extender,)))["extenders"]

    assert written["urlPrefix"] == "http://x"
    assert written["httpTimeout"] == "5s"
    assert written["managedResources"] == [{"name": "a.b/c", "ignoredByScheduler": True}]
    assert written["tlsConfig"] == {
        "insecure": False,
        "serverName": "s",
        "certFile": "",
        "keyFile": "",
        "caFile": "",
        "caData": "Y2E=",
    }
    assert "ca" not in repr(tls).replace("ca_file", "")
