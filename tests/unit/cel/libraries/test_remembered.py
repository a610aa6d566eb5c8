"""Values that are read from short texts are remembered."""

import pytest

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.declaring import remembered


def test_short_texts_are_read_once():
    """Of long ones nothing is kept."""
    reads: list[str] = []

    @remembered
    def read(text: str) -> int:
        reads.append(text)
        return len(text)

    long = "x" * 1000
    assert [read("a"), read("a"), read(long), read(long)] == [1, 1, 1000, 1000]
    assert reads == ["a", long, long]


@pytest.mark.parametrize(
    "source", ["quantity(s)", "semver(s)", "ip(s)", "cidr(s)", "url(s)", "duration(s)", "timestamp(s)"]
)
def test_a_refusal_is_remembered_as_well(source):
    """And its text is the same every time."""
    program = compile_expression(f"type({source}) == type(1)", KUBERNETES.extended({"s": STRING}))
    texts = set()
    for _ in range(3):
        with pytest.raises(EvalError) as caught:
            program.evaluate({"s": "a text of none\x7f"})
        texts.add(str(caught.value))

    assert len(texts) == 1
