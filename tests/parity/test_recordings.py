"""Where a recording comes from, and which recordings a run of `tests.parity.record` replaces."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.controlplane.build import RELEASES
from tests.parity.reasons import REASONS, known, refusers, texts, verdicts
from tests.parity.record import Answered, Trial, answered, merged
from tests.parity.recordings import (
    RECORDED,
    UNKNOWN,
    Provenance,
    Recording,
    in_words_of,
    provenance_of,
    read,
    write,
)
from tests.parity.scenario import Scenario, scenario
from tests.parity.verdict import GATED, Verdict, Way

THEN = Provenance("v1.36.3", "a" * 64, "2026-01-31")
NOW = Provenance("v1.36.3", "b" * 64, "2026-02-01")
ON_N = Verdict("n")
EVEN = {"Fit": {"a": 5, "b": 5}}


# -- provenance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", RECORDED)
def test_every_recording_is_of_the_version_that_we_compare_with(
    recorded: Mapping[str, Mapping[str, Recording]], version: str
) -> None:
    """With the hash of a binary and a day: the recordings of another version are made again."""
    release = RELEASES[version]
    flawed = {key: flaws for key, one in recorded[version].items() if (flaws := one.provenance.flaws(release))}

    assert flawed == {}
    assert recorded[version]


@pytest.mark.parametrize(
    ("provenance", "flaw"),
    [
        pytest.param(Provenance("v1.36.2", "a" * 64, "2026-01-31"), "version 'v1.36.2' instead of", id="other version"),
        pytest.param(Provenance("", "a" * 64, "2026-01-31"), "version '' instead of", id="no version"),
        pytest.param(Provenance("v1.36.3", "a" * 63, "2026-01-31"), "64 hexadecimal digits", id="a short hash"),
        pytest.param(Provenance("v1.36.3", "A" * 64, "2026-01-31"), "64 hexadecimal digits", id="capital letters"),
        pytest.param(Provenance("v1.36.3", "", "2026-01-31"), "64 hexadecimal digits", id="no hash"),
        pytest.param(Provenance("v1.36.3", "a" * 64, "2026-02-30"), "date '2026-02-30'", id="a day that there is not"),
        pytest.param(Provenance("v1.36.3", "a" * 64, ""), "date ''", id="no day"),
    ],
)
def test_a_flaw_of_provenance_is_named(provenance: Provenance, flaw: str) -> None:
    """One flaw each."""
    (found,) = provenance.flaws("v1.36.3")

    assert flaw in found


def test_a_recording_without_provenance_is_flawed(tmp_path: Path) -> None:
    """It can be read, and so recorded again."""
    (tmp_path / "made.json").write_text(json.dumps({"one": {"digest": "d", "asked": {"p": {"node": "n"}}}}))

    found = read(place=tmp_path)

    assert found == {"made/one": Recording("d", UNKNOWN, {"p": ON_N})}
    assert len(UNKNOWN.flaws("v1.36.3")) == 3


def binary(tmp_path: Path, says: str) -> Path:
    made = tmp_path / "kube-scheduler"
    made.write_text(f"#!/bin/sh\ntest \"$*\" = --version && echo '{says}'\n")
    made.chmod(0o755)
    return made


def test_provenance_is_what_the_binary_says_and_is(tmp_path: Path) -> None:
    """Nothing of it comes from our own configuration."""
    made = binary(tmp_path, "Kubernetes v1.40.2")

    found = provenance_of(made)

    assert (found.version, found.sha256) == ("v1.40.2", hashlib.sha256(made.read_bytes()).hexdigest())
    assert found.flaws("v1.40.2") == []


def test_a_binary_that_is_not_kubernetes_has_no_provenance(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="some other scheduler"):
        provenance_of(binary(tmp_path, "some other scheduler 3"))


# -- surprises ---------------------------------------------------------------------------------------------------------


def made(identifier: str, group: str = "made") -> Scenario:
    return scenario(group, {"id": identifier, "nodes": {"n": {}}, "asked": {"p": {}}})


ONE = made("one")


@pytest.mark.parametrize(
    ("trial", "before", "said"),
    [
        pytest.param(Trial(ON_N, [], []), None, "", id="the first time, and ours agrees"),
        pytest.param(Trial(ON_N, [], None), None, "", id="the first time, and ours did not run"),
        pytest.param(Trial(ON_N, [], ["ours: m"]), None, "ours: m", id="ours differs"),
        pytest.param(Trial(ON_N, ["2 ways"], []), None, "2 ways", id="kube-scheduler contradicts itself"),
        pytest.param(Trial(ON_N, ["2 ways"], None), None, "2 ways", id="and ours did not run"),
        pytest.param(Trial(ON_N, [], []), Recording(ONE.digest(), THEN, {"p": ON_N}), "", id="as recorded"),
        pytest.param(
            Trial(ON_N, [], []), Recording(ONE.digest(), THEN, {"p": Verdict("m")}), "recorded:", id="recorded otherwise"
        ),
        pytest.param(
            Trial(Verdict("a", EVEN), [], []),
            Recording(ONE.digest(), THEN, {"p": Verdict("b", EVEN)}),
            "",
            id="recorded otherwise by chance",
        ),
        pytest.param(Trial(ON_N, [], []), Recording("old", THEN, {"p": Verdict("m")}), "", id="of another scenario"),
        pytest.param(
            Trial(ON_N, [], []), Recording(ONE.digest(), THEN, {"q": ON_N}), "recorded: None", id="not recorded there"
        ),
    ],
)  # fmt: skip
def test_surprises(trial: Trial, before: Recording | None, said: str) -> None:
    """Differences from ours, from the recording of the same scenario, and among kube-scheduler's own answers."""
    found = answered(ONE, {"p": trial}, before, NOW).surprises

    assert found.keys() == ({"p"} if said else set())
    assert said in "\n".join(found.get("p", ()))


def test_chance_takes_the_node_that_the_first_version_took() -> None:
    """Otherwise each node that chance takes would be a difference between the versions."""
    likely = {"p": Verdict("b", EVEN)}

    found = answered(ONE, {"p": Trial(Verdict("a", EVEN), [], None)}, None, NOW, likely)

    assert (found.recording, found.surprises) == (Recording(ONE.digest(), NOW, likely), {})


def test_a_recording_has_the_provenance_of_its_run() -> None:
    """Also where the verdicts are as before: they were given again."""
    before = Recording(ONE.digest(), THEN, {"p": Verdict("b", EVEN)})

    found = answered(ONE, {"p": Trial(Verdict("a", EVEN), [], [])}, before, NOW).recording

    assert found == Recording(ONE.digest(), NOW, before.verdicts)


# -- what is written ---------------------------------------------------------------------------------------------------


def result(of: Scenario, *surprises: str) -> Answered:
    return Answered(of, Recording(of.digest(), NOW, {"p": ON_N}), {"p": list(surprises)} if surprises else {})


def before(of: Scenario) -> Recording:
    return Recording(of.digest(), THEN, {"p": ON_N})


@pytest.mark.parametrize(
    ("with_surprises", "provenances"),
    [
        pytest.param(False, {"one": NOW, "two": THEN, "left": THEN}, id="without the flag"),
        pytest.param(True, {"one": NOW, "two": NOW, "new": NOW, "left": THEN}, id="with the flag"),
    ],
)
def test_what_surprises_is_written_only_with_the_flag(with_surprises: bool, provenances: dict[str, Provenance]) -> None:
    """Else it stays as it was recorded, or is not recorded; and what was left out keeps its provenance."""
    suite = [made(name) for name in ("one", "two", "new", "left", "never")]
    one, two, new, left, _ = suite
    done = [result(new, "surprise"), result(two, "surprise"), result(one)]
    old = {each.key: before(each) for each in (one, two, left)}

    found = merged(suite, done, old, with_surprises=with_surprises)

    assert [(key, one.provenance) for key, one in found.items()] == [
        (f"made/{id_}", at) for id_, at in provenances.items()
    ]


# -- two versions ------------------------------------------------------------------------------------------------------

HEAD = "0/1 nodes are available: 1 Insufficient cpu."
DRY_RUN = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def refused(message: str, *ways: Way) -> Verdict:
    return Verdict(reason="Unschedulable", message=message, ways=ways or (Way(),))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(Verdict("n"), Verdict("n"), id="a pod that only one node fits"),
        pytest.param(
            Verdict("a", EVEN), Verdict("a", {**EVEN, "VolumeBinding": {"a": 0, "b": 0}}), id="VolumeBinding scores every pod"
        ),
        pytest.param(
            Verdict("a", {"VolumeBinding": {"a": 7, "b": 5}}),
            Verdict("a", {"VolumeBinding": {"a": 7, "b": 5}}),
            id="scores of VolumeBinding stay",
        ),
        pytest.param(
            refused(f"{HEAD} no new claims to deallocate, {DRY_RUN}"), refused(f"{HEAD} {DRY_RUN}"), id="two PostFilters"
        ),
        pytest.param(refused(f"{HEAD} no new claims to deallocate"), refused(HEAD), id="DynamicResources alone"),
        pytest.param(
            refused(HEAD, Way("a", ("x", "y"))), refused(HEAD, Way("a", ("x", "y"), victims=2)), id="a preemptor"
        ),
        pytest.param(
            refused(f"{HEAD} preemption: found a potential placement for pod on node a, preempting 3 victims.", Way("a", ("x",))),
            refused(HEAD, Way("a", ("x",), victims=3)),
            id="a preemptor of ours, whose third and second victim are leaving already",
        ),
    ],
)  # fmt: skip
def test_known_texts_differ_between_the_versions(before: Verdict, now: Verdict) -> None:
    assert in_words_of("1.36", before) == before
    assert in_words_of("1.37", before) == now


def test_recordings_of_1_37_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A verdict that follows from that of 1.36 is only named."""
    gone = refused(f"{HEAD} no new claims to deallocate, {DRY_RUN}")
    first = {"g/one": Recording("d", THEN, {"p": gone, "q": ON_N}), "g/two": Recording("e", THEN, {"p": ON_N})}
    later = {
        "g/one": Recording("d", NOW, {"p": in_words_of("1.37", gone), "q": gone}),
        "g/two": Recording("e", NOW, {"p": ON_N}),
    }

    assert write("1.36", first, tmp_path) == ["g.json"]
    assert write("1.37", later, tmp_path) == ["1.37/g.json"]
    assert write("1.37", later, tmp_path) == []

    assert (read("1.36", tmp_path), read("1.37", tmp_path)) == (first, later)
    assert (tmp_path / "1.37" / "g.json").read_text().count('"as in 1.36": ["p"]') == 2


def test_a_new_recording_of_1_36_changes_none_of_1_37(tmp_path: Path) -> None:
    """A verdict that does not follow any more becomes whole."""
    later = {"g/one": Recording("d", NOW, {"p": ON_N})}
    write("1.36", {"g/one": Recording("d", THEN, {"p": ON_N})}, tmp_path)
    write("1.37", later, tmp_path)

    changed = write("1.36", {"g/one": Recording("d", NOW, {"p": Verdict("m")})}, tmp_path)

    assert changed == ["g.json", "1.37/g.json"]
    assert read("1.37", tmp_path) == later


# -- every text with which a plugin refuses was recorded, and no text is one that we do not know -----------------------


KNOWN = [(plugin, text) for plugin, said in REASONS.items() for text in said]


@pytest.mark.parametrize(("plugin", "text"), KNOWN, ids=[text for _, text in KNOWN])
def test_it_was_recorded(recorded: Mapping[str, dict[str, Recording]], plugin: str, text: str) -> None:
    """At least once, as a whole reason, from one of the versions."""
    assert any(text in texts(verdict.message) for version in RECORDED for verdict in verdicts(recorded[version]))


@pytest.mark.parametrize("version", RECORDED)
def test_gates_were_recorded(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """SchedulingGates has no text: the API server's condition stands."""
    assert any(verdict.reason == GATED for verdict in verdicts(recorded[version]))


@pytest.mark.parametrize("version", RECORDED)
def test_no_reason_is_unknown(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """A text that kube-scheduler says and REASONS lacks would go unnoticed in the table."""
    said = {
        text for verdict in verdicts(recorded[version]) if verdict.reason != GATED for text in texts(verdict.message)
    }

    assert [text for text in said if text and not known(text)] == []


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        pytest.param("no nodes available to schedule pods", ["no nodes available to schedule pods"], id="no nodes"),
        pytest.param(
            "0/3 nodes are available: 1 Too many pods, 3 Insufficient example.com/gpu.",
            ["Too many pods", "Insufficient example.com/gpu"],
            id="two reasons, and a pod is evicted",
        ),
        pytest.param(
            "0/3 nodes are available: 1 Too many pods, 3 Insufficient cpu. no new claims to deallocate, preemption: "
            "0/3 nodes are available: 1 Insufficient cpu, 2 No preemption victims found for incoming pod.",
            [
                "Too many pods",
                "Insufficient cpu",
                "no new claims to deallocate",
                "preemption: Insufficient cpu",
                "preemption: No preemption victims found for incoming pod",
            ],
            id="two reasons and a dry run",
        ),
        pytest.param(
            "0/1 nodes are available: 1 Too many pods. preemption: not eligible due to preemptionPolicy=Never.",
            ["Too many pods", "preemption: not eligible due to preemptionPolicy=Never."],
            id="not eligible, and no word of claims",
        ),
        pytest.param(
            "0/1 nodes are available: PVC red/c was not created for pod red/p (pod is not owner). not found",
            ["PVC … was not created for pod … (pod is not owner)", "not found"],
            id="with names",
        ),
        pytest.param(
            "0/2 nodes are available: pod affinity terms conflict. not found",
            ["pod affinity terms conflict", "not found"],
            id="PreFilter's, without a count",
        ),
    ],
)
def test_texts(message: str, reasons: list[str]) -> None:
    """The reasons are found in whole messages, those of PostFilter, too."""
    assert texts(message) == reasons


def test_refusers() -> None:
    """Each plugin that refused a node, once."""
    message = "0/3 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 3 Insufficient cpu."

    assert refusers(Verdict(reason="Unschedulable", message=message)) == {"NodeUnschedulable", "NodeResourcesFit"}
