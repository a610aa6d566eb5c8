"""kube-scheduler's code and Kubestow agree on random clusters without recordings."""

from collections.abc import Callable, Iterator

import pytest
import structlog

from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.gate import built_or_skip
from tests.parity import fuzz
from tests.parity.crowd import CROWDS
from tests.parity.excuses import excuse
from tests.parity.fuzz import GENERATORS, made
from tests.parity.generate import SEEDS
from tests.parity.mixed import MIXED
from tests.parity.mutants import VOLUME_MUTANTS, mutated, mutated_volumes
from tests.parity.oracle.process import binary
from tests.parity.varied_volumes import VARIED_SEEDS
from tests.parity.verdict import Verdict

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EACH_RUN = 12
PROVEN = range(7000, 7012)
"""Seeds on which each mistake below is known to show."""
RECORDED = {"random": SEEDS, "crowd": CROWDS, "mixed": MIXED, "volumes": VARIED_SEEDS}


Run = Callable[[str, range], int]


def further_seeds(seed: int) -> range:
    """Return the seeds of scenarios for a run with this seed."""
    first = 10_000 + EACH_RUN * seed
    return range(first, first + EACH_RUN)


@pytest.fixture
def run() -> Iterator[Run]:
    """The command; the oracle is built once per user. The daemon's log is kept apart."""
    program = built_or_skip(binary)
    with structlog.testing.capture_logs():
        yield lambda generator, seeds: fuzz.compare(program, generator, seeds)


@pytest.mark.parametrize("generator", GENERATORS)
def test_on_further_seeds_nothing_differs(
    run: Run, generator: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    further = further_seeds(seed)
    wanted = [one for one in (made(generator, each) for each in further) if not one.feature_gates]

    status = run(generator, further)

    said = capsys.readouterr().out
    last = said.splitlines()[-1]
    assert status == 0, said
    assert "- differences: 0, known ones: " in last, said
    assert last.startswith(f"{len(wanted)} {generator} scenarios, {sum(len(one.asked) for one in wanted)} ")
    assert wanted


@pytest.mark.parametrize("seed", [0, 1, 99_999, 2**32])
def test_further_seeds_are_not_recorded(seed: int) -> None:
    assert not set(further_seeds(seed)) & {number for recorded in RECORDED.values() for number in recorded}
    assert not set(further_seeds(seed)) & set(further_seeds(seed + 1))


@pytest.mark.parametrize(
    ("generator", "mutant"),
    [
        ("crowd", "budgets are ignored"),
        ("crowd", "start times are ignored"),
        ("crowd", "the least important are spared first"),
        ("crowd", "nominated pods are ignored"),
        ("mixed", "nominated pods are ignored"),
        ("volumes", "gate 12: affinity is ignored"),
        ("volumes", "claims for one pod are shared"),
    ],
)
def test_a_mistake_of_ours_is_reported_and_fails_the_command(
    run: Run, generator: str, mutant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with mutated_volumes(mutant) if mutant in VOLUME_MUTANTS else mutated(mutant):
        status = run(generator, PROVEN)

    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert status == 1
    assert first.startswith(f"{generator} 70")
    assert second.startswith("    ")
    assert "differences: 0" not in last


@pytest.mark.parametrize(("generator", "seed", "name", "why", "without"), [
    pytest.param("mixed", 3866, "x0", "upstream counts no pod that is there", "1.38", id="1.38 counts all pods"),
    pytest.param("volumes", 7200011, "a1", "upstream scores a node by any one of its capacity objects", "1.36",
        id="1.36 scores no capacity"),
    pytest.param("volumes", 7201148, "a4", "a claim that only", "", id="all versions"),
])  # fmt: skip
def test_what_is_known_is_reported_and_fails_nothing(
    generator: str, seed: int, name: str, why: str, without: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the version `without` nothing differs there."""
    is_known = without != MINOR
    # kube-scheduler draws one capacity object for a node, and once in a while it draws ours for each node.
    for _ in range(20 if is_known else 1):
        status = run(generator, range(seed, seed + 1))
        *shown, last = capsys.readouterr().out.splitlines()
        if shown:
            break

    start = f"{generator} {seed}: {name} [default], known: {why}"
    assert status == 0
    assert [line.startswith(start) for line in shown if not line.startswith(" ")] == [True] * is_known
    assert last.endswith(f"differences: 0, known ones: {int(is_known)}")


def test_only_known_differences_are_excused() -> None:
    one = made("mixed", 3866)

    assert [name for name in one.asked if excuse(one, name, [Verdict()], Verdict(node="n0"))] == (
        [] if MINOR == "1.38" else ["x0"]
    )
