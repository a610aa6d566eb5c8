"""The short form of devices, and the words for what is written to their claims: what the recordings with devices rest on."""

import copy
import itertools

import pytest

from tests.parity.deviceclaims import device_changes
from tests.parity.devices import FINALIZER, SPECIAL
from tests.parity.random_devices import DEVICE_SEEDS, device_seed
from tests.parity.scenario import Scenario, scenario
from tests.parity.suite import device_ones, random_device_ones, recordable, scenarios
from tests.parity.words import Json


def of(asked: Json | None = None, **devices: Json) -> Scenario:
    return scenario("g", {"id": "x", "asked": asked or {}, "devices": devices})


def made(kind: str, **devices: Json) -> Json:
    """The last of this kind."""
    spec: Json = [item for item in of(**devices).devices.settings if item["kind"] == kind][-1]["spec"]
    return spec


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param({"nodes": {}}, id="of all"),
        pytest.param({"slices": {"s": {"pool": "a/p", "on": "n1"}}}, id="of a slice"),
        pytest.param({"classes": {"c": {"selectors": []}}}, id="of a class"),
        pytest.param({"claims": {"c": {"r0": {"of": "a"}}}}, id="of a request"),
        pytest.param({"rules": {"r": {"node": "n", "taint": "k:NoSchedule"}}}, id="of a rule"),
    ],
)
def test_an_unknown_word_is_an_error(devices: Json) -> None:
    """A slip of the pen must not make a scenario that tests nothing."""
    with pytest.raises(ValueError, match="no such word"):
        of(**devices)


def test_the_short_form_of_a_slice() -> None:
    """Its pool, its place, and devices that are plain."""
    spec = made("ResourceSlice", slices={"s": {"pool": "a/p", "of": 2, "at": "n1", "devices": "d2 d1"}})

    assert spec == {
        "driver": "a",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
        "nodeName": "n1",
        "devices": [{"name": "d2"}, {"name": "d1"}],
    }


@pytest.mark.parametrize(
    ("short", "attribute"),
    [
        pytest.param(1, {"int": 1}, id="a number"),
        pytest.param(True, {"bool": True}, id="a boolean is no number"),
        pytest.param("v1.2.3", {"version": "1.2.3"}, id="a version"),
        pytest.param("v1", {"string": "v1"}, id="a text that is no version"),
        pytest.param({"ints": [1]}, {"ints": [1]}, id="as it is"),
    ],
)
def test_an_attribute_is_what_it_looks_like(short: object, attribute: Json) -> None:
    """All that is no other word of a device is one."""
    spec = made(
        "ResourceSlice", slices={"s": {"pool": "a/p", "everywhere": True, "devices": {"d": {"x.org/k": short}}}}
    )

    assert (spec["devices"], spec["allNodes"]) == ([{"name": "d", "attributes": {"x.org/k": attribute}}], True)


def test_the_short_form_of_a_device() -> None:
    """Whatever is no attribute."""
    (device,) = made(
        "ResourceSlice",
        slices={
            "s": {
                "pool": "a/p",
                "each": True,
                "devices": {
                    "d": {
                        "from": {"zone": "z"},
                        "capacity": {"mem": "2Gi"},
                        "uses": {"store": {"mem": 1}},
                        "taints": ["k=v:NoSchedule", "l:NoExecute"],
                        "binds": ["ready"],
                        "fails": ["broken"],
                        "shared": True,
                        "here": True,
                    }
                },
            }
        },
    )["devices"]

    (term,) = device.pop("nodeSelector")["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}]}
    assert device == {
        "name": "d",
        "capacity": {"mem": {"value": "2Gi"}},
        "consumesCounters": [{"counterSet": "store", "counters": {"mem": {"value": "1"}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}],
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
        "allowMultipleAllocations": True,
        "bindsToNode": True,
    }


@pytest.mark.parametrize(
    ("short", "request_"),
    [
        pytest.param(None, {"exactly": {"deviceClassName": "a"}}, id="nothing"),
        pytest.param(
            "b*2", {"exactly": {"deviceClassName": "b", "allocationMode": "ExactCount", "count": 2}}, id="several"
        ),
        pytest.param("b*all", {"exactly": {"deviceClassName": "b", "allocationMode": "All"}}, id="all"),
        pytest.param(
            {"r0": {"when": "true", "admin": False, "capacity": {"cap": 1}}},
            {
                "exactly": {
                    "deviceClassName": "a",
                    "selectors": [{"cel": {"expression": "true"}}],
                    "adminAccess": False,
                    "capacity": {"requests": {"cap": "1"}},
                }
            },
            id="in full",
        ),
        pytest.param(
            {"r0": ["b", "a"]},
            {"firstAvailable": [{"name": "s0", "deviceClassName": "b"}, {"name": "s1", "deviceClassName": "a"}]},
            id="one of two",
        ),
    ],
)
def test_the_short_form_of_a_request(short: object, request_: Json) -> None:
    """A text, or all its words."""
    (claim,) = of(claims={"c": short}).devices.claims

    assert claim["spec"]["devices"] == {"requests": [{"name": "r0", **request_}]}


def test_the_short_form_of_what_a_claim_has() -> None:
    """Whose it is, what it got, and for whom."""
    of_all = of(
        asked={"p": {"devices": {"x": {"made": "the c"}, "y": None, "z": {"made": None}}}},
        claims={
            "the c": {
                "r0": "a",
                "owner": "p",
                "special": True,
                "kept": True,
                "got": ["r0 a/p/d", {"of": "r0 a/p/e", "adminAccess": True}],
                "got_at": 61,
                "reserved": ["p"],
                "status": {"a/p/d": {"ready": "True"}},
            }
        },
    )
    (claim,), pod = of_all.devices.claims, of_all.asked["p"]

    metadata, status = claim["metadata"], claim["status"]
    assert (metadata["name"], metadata["finalizers"], metadata["annotations"]) == (
        "the-c",
        [FINALIZER],
        {SPECIAL: "true"},
    )
    assert status["allocation"] == {
        "devices": {
            "results": [
                {"request": "r0", "driver": "a", "pool": "p", "device": "d"},
                {"request": "r0", "driver": "a", "pool": "p", "device": "e", "adminAccess": True},
            ]
        },
        "allocationTimestamp": "2026-01-01T00:01:01Z",
    }
    assert [one["conditions"][0]["type"] for one in status["devices"]] == ["ready"]
    assert of_all.devices.meaning(pod) == [claim]
    assert pod["spec"]["resourceClaims"] == [
        {"name": name, "resourceClaimTemplateName": "t"} for name in ("x", "y", "z")
    ]
    assert pod["status"] == {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "the-c"}, {"name": "z"}]}


def test_devices_count_for_the_digest() -> None:
    """Each part of them, who is held, and gates: a recording is of this scenario."""
    several = [
        scenario("g", {"id": "x", "asked": {}}),
        of(),
        of(claims={"c": None}),
        of(claims={"c": {"r0": "a", "leaving": True}}),
        of(claims={"c": None}, drivers={"c": {"a/p/d": {"ready": "True"}}}),
        of(asked={"p": {}}),
        of(asked={"p": {"held": True}}),
        scenario("g", {"id": "x", "asked": {}, "feature_gates": ["F"]}),
    ]

    assert len({one.digest() for one in several}) == len(several)


# -- what was written --------------------------------------------------------------------------------------------------

POD: Json = {"metadata": {"name": "p", "uid": "u"}, "status": {}}
BEFORE: Json = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}, "status": {}}
AFTER: Json = {
    "metadata": {"name": "c", "finalizers": [FINALIZER]},
    "spec": {"devices": {"requests": []}},
    "status": {
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}, {"resource": "pods", "name": "q", "uid": "w"}],
        "allocation": {
            "allocationTimestamp": "now",
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            },
            "devices": {
                "results": [
                    {"request": "r0", "driver": "a", "pool": "p", "device": "d"},
                    {"request": "r1", "driver": "a", "pool": "p", "device": "e", "shareID": "drawn"},
                ]
            },
        },
    },
}


def test_what_was_written_is_told_without_uids_and_chance() -> None:
    """The same on every server and in every run."""
    assert device_changes({"default/c": BEFORE}, {"default/c": AFTER}, POD) == (
        "devices default/c: allocated for field metadata.name In n1",
        f'devices default/c: finalizers ["{FINALIZER}"]',
        "devices default/c: reserved for name=p resource=pods its uid, name=q resource=pods another uid",
        "devices default/c: result 00 r0 a/p/d",
        'devices default/c: result 01 r1 a/p/e {"shareID": "any"}',
        "devices default/c: stamped yes",
    )


def test_what_was_taken_away_is_told() -> None:
    """A field, and a claim."""
    freed = copy.deepcopy(AFTER)
    freed["status"] = {}

    assert device_changes({"default/c": AFTER}, {"default/c": freed}, POD) == tuple(
        f"devices default/c: no {what}"
        for what in ("allocated for", "reserved for", "result 00", "result 01", "stamped")
    )
    assert device_changes({"default/c": AFTER}, {}, POD) == ("devices default/c: gone",)
    assert device_changes({"default/c": AFTER}, {"default/c": AFTER}, POD) == ()


def test_a_claim_that_is_made_is_told_without_its_number() -> None:
    """With the requests that it was made with, and what the pod says of it."""
    pod = POD | {
        "status": {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p-extended-resources-x7k2p",
                "requestMappings": [
                    {"containerName": "main", "resourceName": "x.org/gpu", "requestName": "container-0-request-0"}
                ],
            }
        }
    }
    claim = copy.deepcopy(BEFORE)
    claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": "u"}]

    assert device_changes({}, {"default/p-extended-resources-x7k2p": claim}, pod) == (
        "devices default/p-extended-resources-…: made",
        "devices default/p-extended-resources-…: owners kind=Pod name=p its uid",
        "pod: p-extended-resources-… serves main x.org/gpu container-0-request-0",
    )


# -- the files ---------------------------------------------------------------------------------------------------------


def test_there_are_enough() -> None:
    """Of every rule some."""
    assert len(device_ones()) >= 160


def test_a_seed_makes_one_scenario() -> None:
    """The same twice, and another for each seed."""
    assert device_seed(3) == device_seed(3)
    assert len({one.digest() for one in random_device_ones()}) == len(DEVICE_SEEDS) >= 120


_OFTEN = {
    40: "perDeviceNodeSelection allNodes sharedCounters consumesCounters allowMultipleAllocations tolerations taints version",
    30: "firstAvailable matchAttribute 'All' opaque nodeSelectorTerms",
    10: "distinctAttribute validRange validValues adminAccess shareID reservedFor initContainers bindsToNode",
    5: "DeviceTaintRule bindingConditions resourceClaimStatuses ownerReferences 'strings' unschedulable",
}
"""More often than so often."""


def test_random_scenarios_are_rich() -> None:
    """Everything that the plugin looks at occurs, most of it often."""
    drawn = random_device_ones()
    text = str([(one.devices, one.nodes, one.asked, one.feature_gates) for one in drawn])

    assert sum(len(one.nodes) > 1 for one in drawn) > 50
    assert sum(bool(one.feature_gates) for one in drawn) == 20
    for least, words in _OFTEN.items():
        for word in words.split():
            assert text.count(word) > least, word


def test_at_most_one_claim_of_a_random_pod_can_be_given_back() -> None:
    """Else chance would choose."""
    for one in random_device_ones():
        idle = {
            claim["metadata"]["name"]
            for claim in one.devices.claims
            if "allocation" in claim.get("status", {}) and not _is_held(claim)
        }
        for pod in one.asked.values():
            named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims", ())}
            assert len(idle & named) <= 1, one.key


def _is_held(claim: Json) -> bool:
    return any("stranger" in consumer["name"] for consumer in claim["status"].get("reservedFor", ()))


def test_scenarios_for_one_scheduler_come_one_after_the_other() -> None:
    """The recorder starts another scheduler for each change."""
    kinds = [(bool(one.devices), one.feature_gates) for one in recordable()]

    starts = [kind for kind, _ in itertools.groupby(kinds)]
    assert (starts[0], len(starts)) == ((False, ()), len(set(kinds)))
    assert {one.key for one in scenarios()} <= {one.key for one in recordable()}
