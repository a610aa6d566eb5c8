"""Optional values. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                "[1, 2].first()": "opt(1) for 1",
                "[].last()": "none for 1",
                "[1, 2].last()": "opt(2) for 1",
            },
            id="the first and the last may be missing",
        ),
        pytest.param(
            {
                "optional.of(1).value()": "1 for 2",
                "optional.none().value()": "error: optional.none() dereference",
                "optional.none().orValue(5)": "5 for 1",
                "optional.of(1).or(optional.of(2)).value()": "1 for 2",
                "optional.of(1) == optional.of(dyn(1.0))": "true for 3",
                "optional.none() == optional.none()": "true for 3",
                "optional.of(1) == dyn(1)": "false for 2",
            },
            id="a missing value gives way to another",
        ),
        pytest.param(
            {
                "[optional.ofNonZeroValue(0), optional.ofNonZeroValue(1)]": "[none, opt(1)] for 12",
                'optional.ofNonZeroValue(timestamp("0001-01-01T00:00:00Z"))': "none for 1",
                'optional.ofNonZeroValue(timestamp("1970-01-01T00:00:00Z")).hasValue()': "true for 2",
                'optional.ofNonZeroValue(duration("0s"))': "none for 1",
                'optional.ofNonZeroValue("")': "none for 1",
                "optional.ofNonZeroValue([])": "none for 1",
                "optional.ofNonZeroValue({})": "none for 1",
                'optional.ofNonZeroValue(b"")': "none for 1",
                "optional.ofNonZeroValue(null)": "none for 1",
                "optional.ofNonZeroValue(false)": "none for 1",
                "optional.ofNonZeroValue(0.0)": "none for 1",
                'optional.ofNonZeroValue(quantity("0")).hasValue()': "true for 3",
            },
            id="zero values count as missing",
        ),
        pytest.param(
            {
                "optional.unwrap([optional.of(1), optional.none()])": "[1] for 13",
                "[optional.of(1), optional.none()].unwrapOpt()": "[1] for 13",
            },
            id="missing values are dropped from a list",
        ),
        pytest.param(
            {
                '{"a": 1}[?"a"]': "opt(1) for 2",
                '{"a": 1}[?"b"]': "none for 1",
                "[1][?0]": "opt(1) for 2",
                "[1][?1]": "none for 1",
                "[1, 2][?-1]": "none for 1",
                '{"a": 1}.?b.orValue(3)': "3 for 1",
                'optional.of({"a": 1})["a"]': "opt(1) for 3",
                "optional.of([1])[?3]": "none for 2",
                '{"a": {"b": 1}}.?a.b': "opt(1) for 3",
            },
            id="a key or index may be missing",
        ),
        pytest.param(
            {
                "[1, 2].transformMap(i, v, v * 2)": "{0: 2, 1: 4} for 11",
                '{"a": 1}.transformMapEntry(k, v, {v: k})': '{1: "a"} for 35',
                '{"a": 1, "b": 1}.transformMapEntry(k, v, {v: k})': "error: insert failed: key 1 already exists",
            },
            id="a key is inserted into a map once",
        ),
    ],
)
def test_optionals(answers):
    """What may be missing, and what happens then."""
    assert answers == {each: answer(each) for each in answers}
