"""Where a recording comes from, and which recordings a run of `tests.parity.record` replaces."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.controlplane.build import VERSION
from tests.parity.record import Answered, Trial, answered, merged
from tests.parity.recordings import UNKNOWN, Provenance, Recording, provenance_of, read
from tests.parity.scenario import Scenario, scenario
from tests.parity.verdict import Verdict

THEN = Provenance("v1.36.3", "a" * 64, "2026-01-31")
NOW = Provenance("v1.36.3", "b" * 64, "2026-02-01")
ON_N = Verdict("n")
EVEN = {"Fit": {"a": 5, "b": 5}}


# -- provenance --------------------------------------------------------------------------------------------------------


def test_every_recording_is_of_the_version_that_we_compare_with(recorded: Mapping[str, Recording]) -> None:
    """With the hash of a binary and a day: the recordings of another version are made again."""
    flawed = {key: flaws for key, one in recorded.items() if (flaws := one.provenance.flaws(VERSION))}

    assert flawed == {}
    assert recorded


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
    """It can be read, and so asked again."""
    (tmp_path / "made.json").write_text('{"one": {"digest": "d", "asked": {"p": {"node": "n"}}}}')

    found = read(tmp_path)

    assert found == {"made/one": Recording("d", UNKNOWN, {"p": ON_N})}
    assert len(UNKNOWN.flaws(VERSION)) == 3


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
    """The error has its words."""
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
        pytest.param(Trial(ON_N, [], None), None, "", id="the first time, and ours was not asked"),
        pytest.param(Trial(ON_N, [], ["ours: m"]), None, "ours: m", id="ours differs"),
        pytest.param(Trial(ON_N, ["2 ways"], []), None, "2 ways", id="kube-scheduler contradicts itself"),
        pytest.param(Trial(ON_N, ["2 ways"], None), None, "2 ways", id="and ours was not asked"),
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
    """Else it stays as it was recorded, or is not recorded; and what was not asked keeps its provenance."""
    suite = [made(name) for name in ("one", "two", "new", "left", "never")]
    one, two, new, left, _ = suite
    done = [result(new, "surprise"), result(two, "surprise"), result(one)]
    old = {each.key: before(each) for each in (one, two, left)}

    found = merged(suite, done, old, with_surprises=with_surprises)

    assert [(each.id, recording.provenance) for each, recording in found] == list(provenances.items())
