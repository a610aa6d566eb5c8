"""The replay of test_beside, on small histories."""

import pytest

from tests.e2e.replay import Write, replay

US, THEM = "kubestow", "default-scheduler"


def bound(version: int, pod: str, milli_cpu: int, node: str = "n", *, by: str = "") -> Write:
    """Pods whose names begin with `o` are ours."""
    return Write(version, pod, by or (US if pod.startswith("o") else THEM), milli_cpu, node)


def over(version: int, pod: str, node: str = "n") -> Write:
    return Write(version, pod, "", 0, node, is_over=True)


@pytest.mark.parametrize(
    ("writes", "seen", "too_many", "avoidable"),
    [
        pytest.param([bound(1, "t", 500), bound(2, "o", 500)], {"o": 1}, [], [], id="it fits exactly"),
        pytest.param([bound(1, "o", 600), bound(2, "t", 600)], {"o": 0}, ["t"], [], id="they came later"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {"o": 0}, ["o"], [], id="we came later, unseeing"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {"o": 1}, ["o"], ["o"], id="we came later, seeing"),
        pytest.param([bound(1, "t", 600), bound(2, "o", 600)], {}, ["o"], ["o"], id="without a record we saw it all"),
        pytest.param([bound(1, "o1", 600), bound(2, "o2", 600)], {"o1": 0, "o2": 0}, ["o2"], ["o2"], id="twice ours"),
        pytest.param(
            [bound(1, "t", 600), over(2, "t"), bound(3, "o", 600)], {"o": 1}, [], [], id="what is over holds nothing"
        ),
        pytest.param(
            [bound(1, "t", 600, "m"), bound(2, "o", 600)], {"o": 1}, [], [], id="another node is another matter"
        ),
        pytest.param(
            [bound(1, "t1", 300), bound(2, "t2", 300), bound(3, "o", 600)], {"o": 1}, ["o"], [], id="the one seen left enough"
        ),
        pytest.param(
            [bound(1, "t1", 500), bound(2, "t2", 300), bound(3, "o", 600)], {"o": 1}, ["o"], ["o"], id="the one seen left none"
        ),
        pytest.param(
            [bound(1, "t", 600), bound(2, "o", 300), bound(3, "o", 300), bound(4, "o2", 300)],
            {"o": 1, "o2": 3},
            ["o2"],
            ["o2"],
            id="later writes of a bound pod change nothing",
        ),
        pytest.param(
            [Write(1, "o", US, 600), bound(2, "t", 600), bound(3, "o", 600)], {"o": 1}, ["o"], [], id="from its creation on"
        ),
    ],
)  # fmt: skip
def test_replay(writes: list[Write], seen: dict[str, int], too_many: list[str], avoidable: list[str]) -> None:
    found = replay(writes, cpu_of={"n": 1000, "m": 1000}, ours=US, seen=seen)

    assert found.by_us + found.by_others == too_many
    assert [sentence.split()[0] for sentence in found.avoidable] == avoidable
    assert found.created == {write.pod: write.version for write in reversed(writes)}
