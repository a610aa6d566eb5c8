"""Operators, keys, indices, equality. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                '{"a":1}[dyn(1)]': "error: no such key: 1",
                "{1:1}[dyn(2.5)]": "error: no such key: 2.5",
                "{true:1}[dyn(1)]": "error: no such key: 1",
                "{1:1}[dyn(true)]": "error: no such key: true",
                "{1:1}[dyn(1u)]": "1 for 2",
                "{1:1}[dyn(1.0)]": "1 for 2",
                "dyn([1]) in {1:1}": "false for 1",
                "true in {true: 1}": "true for 1",
                "dyn(1) in {true: 1}": "false for 1",
                "dyn(1.0) in {1: 1}": "true for 1",
            },
            id="numbers of all types are one key, true is another",
        ),
        pytest.param(
            {
                "dyn([1,2])[5]": "error: index out of bounds: 5",
                "[1,2][-1]": "error: index out of bounds: -1",
                "dyn([1,2])[1.0]": "2 for 2",
                "dyn([1,2])[1.5]": "error: unsupported index value 1.5 in list",
                'dyn([1,2])["a"]': "error: unsupported index type 'string' in list",
                "dyn([1,2])[0u]": "1 for 2",
            },
            id="an index is any whole number within the list",
        ),
        pytest.param(
            {
                'dyn(quantity("1")) == 1': "error: no such overload",
                'dyn(1) == quantity("1")': "false for 2",
                'dyn(quantity("1")) != 1': "true for 3",
                'dyn(1) in [quantity("1")]': "false for 12",
                'dyn(quantity("1")) in [1]': "false for 2",
            },
            id="equality of Kubernetes values with others fails on the left only",
        ),
        pytest.param(
            {
                'dyn(1) < "a"': "error: no such overload",
                "dyn(1) == 1.0": "true for 1",
                "dyn(1) == 1u": "true for 1",
                "dyn(true) == 1": "false for 1",
                "dyn(9007199254740993) == 9007199254740992.0": "true for 1",
                "dyn(9223372036854775807) == 9223372036854775808.0": "true for 1",
                "dyn(18446744073709551615u) > 1": "true for 1",
                "dyn(-1) < 1u": "true for 1",
                "dyn(1.5) < 2": "true for 1",
                'dyn(double("NaN")) < 2': "error: NaN values cannot be ordered",
                'dyn(2) < double("NaN")': "error: NaN values cannot be ordered",
            },
            id="only numbers are compared across types",
        ),
        pytest.param(
            {
                'double("NaN") == double("NaN")': "false for 1",
                "[1, 2] == dyn([dyn(1.0), dyn(2u)])": "true for 1",
                '{"a": 1} == dyn({"a": 1.0})': "true for 1",
                "dyn(null) == 1": "false for 1",
                "null == null": "true for 1",
                '[1] == dyn("a")': "false for 1",
                '"a" < "b" && b"a" < b"b" && false < true': "true for 3",
            },
            id="lists and maps are equal if all that is in them is",
        ),
        pytest.param(
            {
                "-9223372036854775808 / -1": "error: integer overflow",
                "-9223372036854775808 % -1": "error: integer overflow",
                "9223372036854775807 + 1": "error: integer overflow",
                "-9223372036854775808 - 1": "error: integer overflow",
                "9223372036854775807 * 2": "error: integer overflow",
                "18446744073709551615u + 1u": "error: unsigned integer overflow",
            },
            id="arithmetic overflows",
        ),
        pytest.param(
            {
                "5 / 0": "error: division by zero",
                "5 % 0": "error: modulus by zero",
                "5.0 / 0.0": "d+Inf for 1",
                "-5.0 / 0.0": "d-Inf for 1",
                "0.0 / 0.0": "dNaN for 1",
                "5u / 0u": "error: division by zero",
                "5u % 0u": "error: modulus by zero",
                "5u - 6u": "error: unsigned integer overflow",
                "-(-9223372036854775808)": "error: integer overflow",
            },
            id="integers are not divided by zero, doubles are",
        ),
        pytest.param(
            {
                "-7 / 2": "-3 for 1",
                "-7 % 2": "-1 for 1",
                "7 % -2": "1 for 1",
            },
            id="division rounds towards zero",
        ),
        pytest.param(
            {
                '1 + dyn("a")': "error: no such overload",
                "dyn(1) + 1u": "error: no such overload",
                'b"a" + b"b"': "b6162 for 1",
                "[1] + [2, 3]": "[1, 2, 3] for 1",
                'size("éa") + size(b"abc") + [1].size() + {1: 1}.size()': "7 for 7",
            },
            id="addition needs one type and joins texts and lists",
        ),
    ],
)
def test_operators(answers):
    """What operators answer, and what they refuse."""
    assert answers == {each: answer(each) for each in answers}
