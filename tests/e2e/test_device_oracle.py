"""Upstream's device allocator and Kubestow's agree on random cases that differ in each run, except for known differences."""

import os
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from scheduler.core.feature_gates import DEVICE_GATES_ON
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.gate import built_or_skip
from tests.parity import devicefuzz, devices
from tests.parity.device_mutants import mutated_devices
from tests.parity.devicecases import DeviceCase, drawn
from tests.parity.devicefuzz import Differences
from tests.parity.deviceoracle import process
from tests.parity.deviceoracle.process import AllocatorAnswer, DeviceOracle
from tests.parity.ourdevices import OurDevices
from tests.parity.words import Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CASES: Final = 200
SEED: Final = "KUBESTOW_DEVICE_SEED"


@pytest.fixture(scope="module")
def oracle() -> Iterator[DeviceOracle]:
    """The program is built once per user."""
    with process.running(built_or_skip(process.binary)) as running:
        yield running


# -- random cases ------------------------------------------------------------------------------------------------------


def test_nothing_differs_on_the_cases_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    program = built_or_skip(process.binary)
    first = int(os.environ.get(SEED) or random.SystemRandom().randrange(10**6))

    status = devicefuzz.compare(program, range(first, first + CASES))

    said = capsys.readouterr().out
    assert status == 0, f"{said}\nThe same cases again: {SEED}={first}"
    assert f"{CASES} device cases" in said
    assert "differences: 0" in said


def test_the_cases_have_every_fate_and_every_rule(oracle: DeviceOracle) -> None:
    """Guards the comparison: a rule that no case reaches would not be compared."""
    met: set[str] = set()
    for seed in range(300):
        case = drawn(seed)
        for answer in oracle.answers(case).values():
            met |= {devicefuzz.fate(answer), *_rules(case, answer)}

    assert met >= _EVERYTHING


_EVERYTHING: Final = {
    "allocated", "unfit", "unfit with an error", "errors", "all devices", "second alternative", "admin access", "share",
    "tolerated taint", "binding conditions", "equal attributes", "distinct attributes", "counters", "several claims",
    "currently being updated", "currently invalid", "feature is disabled", "CEL runtime error", "not found",
    "gates off", "lists", "too many slices", "old shares",
}  # fmt: skip
_LISTS: Final = frozenset({"bools", "ints", "strings", "versions"})
_TEXTS: Final = (
    *("currently being updated", "currently invalid", "feature is disabled", "CEL runtime error", "not found"),
)


def _rules(case: DeviceCase, answer: AllocatorAnswer) -> set[str]:
    """What a case and its answer have to do with."""
    found = {text for text in _TEXTS if text in answer.error}
    if not case.gates >= DEVICE_GATES_ON:
        found.add("gates off")
    if any(value.keys() & _LISTS for _, one in case.devices() for value in (one.get("attributes") or {}).values()):
        found.add("lists")
    if any(_has_too_many(case, each["spec"]) for each in case.slices):
        found.add("too many slices")
    known = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): device
        for each, device in case.devices()
    }
    for claim in case.held:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            device = known.get((result["driver"], result["pool"], result["device"]), {})
            if "shareID" in result and device and not device.get("allowMultipleAllocations"):
                found.add("old shares")
    for claim, allocation in zip(case.claims, answer.allocations or ()):
        found |= _rules_of(claim, allocation["devices"].get("results", ()), known)
    if answer.allocations and len(answer.allocations) > 1:
        found.add("several claims")
    return found


def _rules_of(claim: Json, results: Any, known: dict[tuple[str, str, str], Json]) -> set[str]:
    wanted = claim["spec"]["devices"]
    given = [known[result["driver"], result["pool"], result["device"]] for result in results]
    constraints = wanted.get("constraints") or () if len(results) > 1 else ()
    told = {
        "all devices": any(one.get("exactly", {}).get("allocationMode") == "All" for one in wanted["requests"]),
        "second alternative": any(result["request"].endswith("/s1") for result in results),
        "admin access": any(result.get("adminAccess") for result in results),
        "share": any("shareID" in result for result in results),
        "binding conditions": any(result.get("bindingConditions") for result in results),
        "tolerated taint": any(taint["effect"] != "None" for one in given for taint in one.get("taints") or ()),
        "counters": any(one.get("consumesCounters") for one in given),
        "equal attributes": any("matchAttribute" in one for one in constraints),
        "distinct attributes": any("distinctAttribute" in one for one in constraints),
    }
    return {name for name, holds in told.items() if holds}


def _has_too_many(case: DeviceCase, spec: Json) -> bool:
    pool = [
        one["spec"]["pool"]
        for one in case.slices
        if one["spec"]["driver"] == spec["driver"]
        and (one["spec"]["pool"]["name"], one["spec"]["pool"].get("generation"))
        == (spec["pool"]["name"], spec["pool"].get("generation"))
    ]
    told: int = spec["pool"]["resourceSliceCount"]
    return len(pool) > told


@pytest.mark.parametrize(
    "mutant",
    [
        "taints are ignored",
        "devices in use are free",
        "old generations are as good as new ones",
        "errors of selectors are no matches",
        "only the first of several is tried",
    ],
)
def test_a_mistake_of_ours_is_reported_and_fails_the_command(mutant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with mutated_devices(mutant):
        status = devicefuzz.compare(built_or_skip(process.binary), range(CASES))

    first, *_, last = capsys.readouterr().out.splitlines()
    assert status == 1
    assert first.startswith("devices ")
    assert "differences: 0" not in last


def test_devices_that_upstream_does_not_accept_are_reported(
    oracle: DeviceOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the defaults Kubestow may choose other devices, but not a device with a taint without a toleration."""
    case = short({"d1": {}, "d2": {"taints": ["k=v:NoSchedule"]}}, {"r0": "a"})
    assert list(Differences(oracle).of(case)) == []
    answers = OurDevices.answers

    def wrong(ours: OurDevices) -> dict[str, AllocatorAnswer]:
        found = answers(ours)
        for answer in found.values():
            for allocation in answer.allocations or ():
                allocation["devices"]["results"][0]["device"] = "d2"
        return found

    monkeypatch.setattr(OurDevices, "answers", wrong)

    differing = list(Differences(oracle).of(case))
    assert [text for text in differing if "[default]" in text] == [
        "case: n1 [default]: upstream does not accept r0 a/p/d2, and unfit"
    ]
    assert len(differing) == 2


# -- where it is known that they differ --------------------------------------------------------------------------------


def short(
    found: dict[str, Json] | str,
    wanted: Json,
    *,
    place: Json | None = None,
    gates: frozenset[str] = DEVICE_GATES_ON,
    more: dict[str, Json] | None = None,
    held: dict[str, Json] | None = None,
) -> DeviceCase:
    """Node n1 with the pool a/p and `more` slices, and a claim; in the words of `devices`."""
    slices = {"s": {"pool": "a/p", **(place or {"at": "n1"}), "devices": found}} | (more or {})
    claims = [devices.claim(name, dict(one)) for name, one in {**(held or {}), "c": wanted}.items()]
    for claim in claims:
        claim["metadata"]["uid"] = claim["metadata"]["name"]
        for request in claim["spec"]["devices"]["requests"]:
            for one in request.get("firstAvailable") or [request["exactly"]]:
                if one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                    one.setdefault("count", 1)
    return DeviceCase(
        id="case",
        gates=gates,
        nodes=[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"disk": "ssd"}}}],
        slices=[devices.slice_(name, dict(one)) for name, one in slices.items()],
        classes=[devices.device_class("a", {"when": 'device.driver == "a"'}), devices.device_class("any", {})],
        held=claims[:-1],
        claims=claims[-1:],
    )


def said(answer: AllocatorAnswer) -> str:
    """Devices by request, or an error, or that there is none."""
    if answer.allocations is None:
        return answer.error or devicefuzz.fate(answer)
    return devicefuzz.listed(answer.allocations)


def since_1_37(answer: str, before: str) -> str:
    """What upstream says in the version under test."""
    return before if MINOR == "1.36" else answer


def since_1_38(answer: str, before: str) -> str:
    """As `since_1_37`."""
    return answer if MINOR == "1.38" else before


def both(answer: str) -> tuple[str, str]:
    """The same in both modes."""
    return answer, answer


THREE: Final[dict[str, Json]] = {"d1": {"t": "x"}, "d2": {"t": "y"}, "d3": {"t": "x"}}
ALL_THREE: Final = "r0 a/p/d1, r0 a/p/d2, r0 a/p/d3"
BREAKS: Final = (
    "claim default/c, request r0: cannot add device a/p/d3 because a claim constraint would not be satisfied"
)
NO_SHARES: Final = (
    "claim default/c, request r0: has capacity requests, but the DRAConsumableCapacity feature is disabled"
)
APART: Final[Json] = {"apart": ["a/t"]}
OLD: Final = DEVICE_GATES_ON - {"DRAConsumableCapacity", "DRADeviceBindingConditions"}
STORE: Final[Json] = {"at": "n1", "of": 2}
MANY: Final[dict[str, Json]] = {f"d{at:02}": {"m": at} for at in range(18)}
SHARED: Final[Json] = {"shared": True, "capacity": {"cap": "4"}}
SHARE: Final[Json] = {"of": "r0 a/p/d1", "shareID": "share-1", "consumedCapacity": {"cap": "2"}}
ONE_OF_MANY: Final = 'device.attributes["a"].?i.orValue("") == "{}"'


def of(word: str) -> Json:
    """A request for a device that says so."""
    return {"class": "a", "when": ONE_OF_MANY.format(word)}


def with_two_terms(case: DeviceCase) -> DeviceCase:
    """The first device of the case may be used on nodes with a disk, or in a zone."""
    _, device = next(case.devices())
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("disk", "zone")]
    del device["allNodes"]
    device["nodeSelector"] = {"nodeSelectorTerms": terms}
    return case


KNOWN: Final = [
    pytest.param(
        short(THREE, {"r0": "a*3"} | APART), since_1_37("unfit", ALL_THREE), both("unfit"),
        id="upstream remembers the last device of a request alone, and lets the same value in again",
    ),
    pytest.param(
        short({"d1": {"uses": {"x": {"mem": "4"}}}}, {"r0": "any*2"}, place=STORE, more={
            "a-store": {"pool": "a/p", "of": 2, "everywhere": True, "counters": {"x": {"mem": "4"}}},
            "b": {"pool": "b/p", "of": 2, "at": "n1", "devices": {"d1": {"uses": {"x": {"mem": "8"}}}}},
            "b-store": {"pool": "b/p", "of": 2, "everywhere": True, "counters": {"x": {"mem": "8"}}},
        }),
        since_1_37("r0 a/p/d1, r0 b/p/d1", "unfit"), both("r0 a/p/d1, r0 b/p/d1"), id="upstream counts pools of one name as one, whatever their drivers",
    ),
    pytest.param(
        short(
            {"d1": {"shared": True, "uses": {"x": {"mem": "4"}}}}, {"r0": "a"}, place=STORE,
            more={"store": {"pool": "a/p", "of": 2, "everywhere": True, "counters": {"x": {"mem": "4"}}}},
            held={"other": {"r0": "a", "got": [{"of": "r0 a/p/d1", "shareID": "share-1"}]}},
        ),
        since_1_37("r0 a/p/d1", "unfit"), both("r0 a/p/d1"), id="upstream charges the counters again for a share of which nothing is consumed",
    ),
    pytest.param(
        short(THREE, {"r0": "a", "r1": "a"} | APART, gates=OLD),
        since_1_38(
            "r0 a/p/d1, r1 a/p/d2", "claim default/c, constraint #0: empty constraint (unsupported constraint type?)"
        ),
        both("r0 a/p/d1, r1 a/p/d2"), id="the stable variant of upstream's allocator knows no distinctAttribute",
    ),
    pytest.param(
        short({"d1": {"capacity": {"cap": "4"}}}, {"r0": {"capacity": {"cap": "2"}}}, gates=OLD), since_1_38(NO_SHARES, "r0 a/p/d1"),
        both(NO_SHARES),
        id="the stable variant of upstream's allocator overlooks requests of capacity",
    ),
    pytest.param(
        short(
            {"d1": {}}, {"r0": "a"}, held={"other": {"r0": "a", "got": [{"of": "r0 a/p/d1", "shareID": "share-1"}]}}
        ),
        since_1_38("unfit", "r0 a/p/d1"), both("unfit"), id="upstream gives a device away as a whole while an old share of it remains",
    ),
    pytest.param(
        short({"d1": SHARED}, {"r0": {"capacity": {"a/cap": "2"}}}), since_1_38("r0 a/p/d1", "unfit"), both("r0 a/p/d1"),
        id="upstream does not find a capacity by its name with the driver's domain",
    ),
    pytest.param(
        short({"d1": {"v": "v1.2.3+x"}, "d2": {"v": "v1.2.3+y"}}, {"r0": "a*2", "same": ["a/v"]}),
        since_1_38("r0 a/p/d1, r0 a/p/d2", "unfit"), both("r0 a/p/d1, r0 a/p/d2"), id="upstream compares versions with their build metadata",
    ),
    pytest.param(
        with_two_terms(short({"d1": {"everywhere": True}}, {"r0": "a"}, place={"each": True})),
        "create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector with 2 terms",
        ("create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector with 2 terms", "r0 a/p/d1"),
        id="upstream cannot merge a node selector of several terms",
    ),
    pytest.param(
        short({"d1": {}}, {"r0": "a"}, place=STORE, more={"a-first": {"pool": "a/p", "everywhere": True}}),
        "r0 a/p/d1", both("unfit"), id="of slices with different numbers of slices ours uses the first by name",
    ),
    pytest.param(
        short(
            {"d1": SHARED, "d2": SHARED}, {"r0": {"count": "all", "capacity": {"cap": "3"}}},
            held={"other": {"r0": "a", "got": [SHARE]}},
        ),
        since_1_37("unfit", "r0 a/p/d2"), both("unfit"),
        id="upstream leaves out a device that is used up of a request for all devices",
    ),
    pytest.param(
        short(
            "d1", {"r0": "a*all"}, more={"b-store": {"pool": "b/p", "of": 2, "at": "n2", "counters": {"x": {"mem": "4"}}}}
        ),
        since_1_37(
            "r0 a/p/d1", "claim default/c, request r0: asks for all devices, but resource pool b/p is currently being updated"
        ),
        both("r0 a/p/d1"), id="upstream has each node look at the counters of a pool for another node",
    ),
    pytest.param(
        short(MANY, {"r0": "a*9", "r1": of("nowhere")}), "timed out", both("unfit"),
        id="upstream tries all combinations of devices until it times out",
    ),
]  # fmt: skip


def _pinned(oracle: DeviceOracle, case: DeviceCase) -> tuple[str, tuple[str, ...]]:
    theirs = said(oracle.answers(case)["n1"])
    return theirs, tuple(said(OurDevices(case, parity=parity).answers()["n1"]) for parity in (True, False))


@pytest.mark.parametrize(("case", "theirs", "ours"), KNOWN)
def test_a_known_difference(oracle: DeviceOracle, case: DeviceCase, theirs: str, ours: tuple[str, ...]) -> None:
    """`ours`: with parity, and with the defaults. The comparison has an excuse for it, and reports nothing else."""
    differing = Differences(oracle)

    assert _pinned(oracle, case) == (theirs, ours)
    assert list(differing.of(case)) == []
    assert sum(count for text, count in differing.told.items() if text.startswith("known: ")) == sum(
        own != theirs for own in ours
    )


@pytest.mark.parametrize(
    ("wanted", "theirs", "ours"),
    [
        pytest.param({"r0": ["a*3"]}, since_1_37("unfit", ALL_THREE.replace("r0", "r0/s0")), "unfit",
            id="as an alternative"),
        pytest.param(
            {"r0": "a*all"}, since_1_37(BREAKS, ALL_THREE), BREAKS,
            id="all there are",
        ),
    ],
)  # fmt: skip
def test_devices_that_must_be_apart_of_which_upstream_remembers_the_last(
    oracle: DeviceOracle, wanted: Json, theirs: str, ours: str
) -> None:
    """These requests cannot be written otherwise. The generator leaves them out, and the comparison reports them."""
    case = short(THREE, wanted | APART)

    assert _pinned(oracle, case) == (theirs, (ours, ours))
    assert len(list(Differences(oracle).of(case))) == 2 * (theirs != ours)
