"""`includes`, which the environment of device selectors has since 1.36."""

import pytest

from tests.unit.cel.libraries.asking import answer

LONG = "lists.range(49)"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("[1, 2].includes(2)", "true for 1", id="a list includes its elements"),
        pytest.param("[1, 2].includes(3)", "false for 1", id="a list includes nothing else"),
        pytest.param("[1, 2].includes(2.0)", "true for 1", id="numbers are compared across types"),
        pytest.param("'a'.includes('a')", "true for 1", id="a scalar includes itself"),
        pytest.param("'abc'.includes('a')", "false for 1", id="a scalar does not include its parts"),
        pytest.param("true.includes(1)", "false for 1", id="true is not 1"),
        pytest.param("[semver('1.0.0')].includes('1.0.0')", "false for 12", id="a version is not its text"),
        pytest.param("lists.range(48).includes(48)", "false for 60", id="48 elements are not too many"),
        pytest.param(f"{LONG}.includes(47)", "true for 61", id="found among the first 48 of a longer list"),
        pytest.param(
            f"{LONG}.includes(48)",
            "error: 'includes' function cannot be applied to lists longer than 48 values",
            id="not found among the first 48 of a longer list",
        ),
    ],
)
def test_includes(expression, expected):
    """A list includes its elements, a scalar itself."""
    assert expected == answer(expression)
