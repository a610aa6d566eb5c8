"""Declarations of functions, and the memo of values that are read from short texts."""

import pytest

from scheduler.cel.check.environment import KUBERNETES, STANDARD
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.declaring import remembered

UNDECLARED = ("math.greatest", "base64.encode", "regex.replace", "authorizer")


def test_no_two_overloads_of_a_function_share_an_id():
    for name, overloads in KUBERNETES.functions.items():
        ids = [each.id for each in overloads]
        assert sorted(set(ids)) == sorted(ids), name


def test_kubernetes_adds_to_the_standard_and_takes_nothing_away():
    """Every standard overload is there, before those that Kubernetes adds."""
    for name, overloads in STANDARD.functions.items():
        assert overloads == KUBERNETES.functions[name][: len(overloads)]
    assert {"quantity", "semver", "ip", "cidr", "url", "find", "isSorted", "format.named", "includes"} <= (
        KUBERNETES.functions.keys() - STANDARD.functions.keys()
    )


def test_members_have_a_target():
    assert all(each.params for overloads in KUBERNETES.functions.values() for each in overloads if each.member)


def test_libraries_that_kubernetes_does_not_have_are_not_declared():
    assert not set(UNDECLARED) & KUBERNETES.functions.keys()
    assert [("list",)] == [tuple(param.name for param in each.params) for each in KUBERNETES.functions["reverse"]]


def test_types_have_names_that_evaluate_to_them():
    assert {"int", "google.protobuf.Timestamp", "net.IP", "net.CIDR"} <= KUBERNETES.variables.keys()
    assert all("type" == each.name for each in KUBERNETES.variables.values())


def test_short_texts_are_read_once():
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
    program = compile_expression(f"type({source}) == type(1)", KUBERNETES.extended({"s": STRING}))
    texts = set()
    for _ in range(3):
        with pytest.raises(EvalError) as caught:
            program.evaluate({"s": "a text of none\x7f"})
        texts.add(str(caught.value))

    assert len(texts) == 1
