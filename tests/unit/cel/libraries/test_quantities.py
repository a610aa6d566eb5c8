"""Quantities. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'quantity(".") == quantity("0")': "true for 3",
                'isQuantity("+")': "true for 1",
                'isQuantity("-.")': "true for 1",
                'isQuantity(".5")': "true for 1",
                'isQuantity("5.")': "true for 1",
                'isQuantity("")': "false for 0",
                'isQuantity("1e")': "false for 1",
                'isQuantity("1E")': "true for 1",
                'isQuantity("1e+")': "false for 1",
                'isQuantity("1e3k")': "false for 1",
                'isQuantity("1 ")': "false for 1",
                'isQuantity("1e-3")': "true for 1",
                'isQuantity("0x1")': "false for 1",
                'isQuantity("1ki")': "false for 1",
                'isQuantity("--1")': "false for 1",
            },
            id="a text is a quantity or is not",
        ),
        pytest.param(
            {
                'quantity("1K")': "error: unable to parse quantity's suffix",
                'quantity("1e")': "error: unable to parse quantity's suffix",
                'quantity("é")': "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                'quantity("abc")': "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                'quantity("1.2.3")': "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                'quantity("1Qi")': "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            },
            id="what is no quantity is refused for its suffix or its form",
        ),
        pytest.param(
            {
                'quantity("10Gi").add(1).asInteger()': "10737418241 for 3",
                'quantity("10Gi").sub(quantity("1Gi")).compareTo(quantity("9Gi"))': "0 for 5",
                'quantity("1k").isGreaterThan(quantity("999"))': "true for 3",
                'quantity("1k").isLessThan(quantity("999"))': "false for 3",
                'sign(quantity("-1m"))': "-1 for 2",
                'quantity("1500m").asInteger()': "error: cannot convert value to integer",
                'quantity("1500m").asApproximateFloat()': "d1.50000000000000000e+00 for 2",
                'quantity("1000m") == quantity("1")': "true for 3",
            },
            id="quantities are added, compared and converted",
        ),
    ],
)
def test_quantities(answers):
    """Which quantities there are, and what can be done with them."""
    assert answers == {each: answer(each) for each in answers}
