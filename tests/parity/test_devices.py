"""The short form of devices, and the words for what is written to their claims: what the recordings with devices rest on."""

import itertools

import pytest

from tests.parity.scenario import Scenario, scenario
from tests.parity.suite import device_ones, random_device_ones, recordable, scenarios
from tests.parity.words import Json


def of(asked: Json | None = None, **devices: Json) -> Scenario:
    return scenario("g", {"id": "x", "asked": asked or {}, "devices": devices})


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


def test_devices_count_for_the_digest() -> None:
    """Each part of them, which pods are held, and gates: a recording is of this scenario."""
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


# -- the files ---------------------------------------------------------------------------------------------------------


def test_there_are_enough() -> None:
    """Of every rule some."""
    assert len(device_ones()) >= 160


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
