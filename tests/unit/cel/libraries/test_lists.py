"""Functions on lists and sets. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                "sets.contains([1, 2], [1])": "true for 3",
                "sets.contains([1], [1, 2])": "false for 3",
                "sets.contains([], [])": "true for 1",
                "sets.contains([dyn(1)], [dyn(1.0), dyn(1u)])": "true for 3",
                "sets.equivalent([1], [1, 1])": "true for 5",
                "sets.equivalent([1, 2], [2, 3])": "false for 9",
                "sets.intersects([1, 2], [2, 3])": "true for 5",
                "sets.intersects([1], [])": "false for 1",
            },
            id="lists are compared as sets",
        ),
        pytest.param(
            {
                "[1,2,3].slice(0, 2)": "[1, 2] for 13",
                "[1,2,3].slice(-1, 2)": "error: cannot slice(-1, 2), negative indexes not supported",
                "[1,2,3].slice(2, 1)": "error: cannot slice(2, 1), start index must be less than or equal to end index",
                "[1,2,3].slice(0, 4)": "error: cannot slice(0, 4), list is length 3",
            },
            id="slices are within the list",
        ),
        pytest.param(
            {
                "[[1], [2, 3]].flatten()": "[1, 2, 3] for 13",
                "[[dyn(1), dyn([2])], [dyn(3)]].flatten(2)": "[1, 2, 3] for 15",
                "[dyn(1), dyn([dyn(2), dyn([3])])].flatten(1)": "[1, 2, [3]] for 13",
                "[dyn(1), dyn([dyn(2), dyn([3])])].flatten(0)": "[1, [2, [3]]] for 11",
                "[dyn(1), dyn([dyn(2), dyn([3])])].flatten(-1)": "error: level must be non-negative",
            },
            id="lists are flattened so many levels",
        ),
        pytest.param(
            {
                "dyn([true, false]).flatten()": "[true, false] for 13",
                "[1].map(z, dyn(z)).flatten()": "[1] for 27",
                "dyn([1, 2, 3]).sortBy(z, z)": "[1, 2, 3] for 43",
                "[1, 2, 3].sortBy(z, dyn(z))": "[1, 2, 3] for 46",
                "[3, 1, 2].map(z, dyn(z)).sort()": "[1, 2, 3] for 44",
                'dyn([quantity("1")]).sort()': "error: list elements must be comparable",
                "dyn([null]).sortBy(z, z)": "error: list elements must be comparable",
                "dyn(1).flatten()": "error: no such overload: int.flatten()",
                "dyn(1).flatten(1)": "error: no such overload: int.flatten(int)",
                'dyn({"a": 1}).flatten()': "error: no such overload: map(dyn, dyn).flatten()",
                'dyn({"a": 1}).sortBy(k, k)': "error: no such overload: @sortByAssociatedKeys",
                "dyn(1).sort()": "error: no such overload: sort",
            },
            id="lists of which the checker knows little",
        ),
        pytest.param(
            {
                "[dyn(1), dyn([1])].min()": "error: no such overload",
                "[dyn(1), dyn(null)].max()": "error: no such overload",
                "[dyn(1), dyn([1])].isSorted()": "error: no such overload",
                "[dyn(2), dyn(1), dyn(null)].isSorted()": "false for 3",
                "dyn([null]).isSorted()": "error: no such overload: isSorted(list)",
                '[dyn(1), dyn("a")].min()': "1 for 1",
                '[dyn("a"), dyn(1)].isSorted()': "true for 1",
            },
            id="what has no order is neither first nor last",
        ),
        pytest.param(
            {
                "lists.range(4)": "[0, 1, 2, 3] for 15",
                "lists.range(-1)": "[] for 11",
                "[1, 2, 1, 3].distinct()": "[1, 2, 3] for 43",
                '[dyn(1), dyn(1.0), dyn(1u), dyn("a")].distinct()': '[1, "a"] for 43',
                "[].distinct()": "[] for 11",
                '["b", "a"].distinct()': '["b", "a"] for 19',
                "[3,2,1].reverse()": "[1, 2, 3] for 14",
            },
            id="numbers, distinct elements, and the other way round",
        ),
        pytest.param(
            {
                "[3, 1, 2].sort()": "[1, 2, 3] for 29",
                '["b", "a"].sort()': '["a", "b"] for 19',
                "[].sort()": "[] for 11",
                '[dyn(1), dyn("a")].sort()': "error: list elements must have the same type",
                "[[1], [2]].map(x, x[0]).sort()": "[1, 2] for 48",
                '["foo", "ba", "q"].sortBy(s, s.size())': '["q", "ba", "foo"] for 74',
                '["c", "a", "b"].sortBy(s, s)': '["a", "b", "c"] for 71',
                '[2.0, double("NaN"), 1.0].sort()': "[d2.00000000000000000e+00, dNaN, d1.00000000000000000e+00] for 29",
            },
            id="lists of one comparable type are sorted",
        ),
        pytest.param(
            {
                "[1, 3, 2].isSorted()": "false for 3",
                "[1, 3].isSorted()": "true for 2",
                "[true, false].isSorted()": "false for 2",
                "[].isSorted()": "true for 0",
            },
            id="order of lists",
        ),
        pytest.param(
            {
                "[1, 3].sum()": "4 for 2",
                "[1.5, 3.0].sum()": "d4.50000000000000000e+00 for 2",
                "[1u].sum()": "1u for 1",
                '[duration("1m"), duration("1s")].sum()': "dur61000000000 for 2",
                "[].sum()": "0 for 0",
                "[9223372036854775807, 1].sum()": "error: integer overflow",
            },
            id="sums are checked for overflow",
        ),
        pytest.param(
            {
                "[1, 3].min()": "1 for 2",
                "[1, 3].max()": "3 for 2",
                '["a", "b"].max()': '"b" for 0',
                '[b"a", b"b"].max()': "b62 for 0",
                "dyn([]).max()": "error: max called on empty list",
                "[].min()": "error: min called on empty list",
                '[timestamp("2009-02-13T23:31:30Z"), timestamp("2009-02-13T23:31:31Z")].min()': "ts2009-02-13T23:31:30Z for 2",
            },
            id="least and greatest",
        ),
        pytest.param(
            {
                "[1, 2, 2, 3].indexOf(2)": "1 for 4",
                '["a", "b", "b", "c"].lastIndexOf("b")': "2 for 0",
                "[1.0].indexOf(1.1)": "-1 for 1",
                '[].indexOf("string")': "-1 for 0",
            },
            id="elements are found",
        ),
        pytest.param(
            {
                '["aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbb"].max()': '"bbbbbbbbb" for 2',
                '["ééééééééééééééé"].indexOf("x")': "-1 for 3",
            },
            id="costs count bytes of texts",
        ),
    ],
)
def test_lists(answers):
    """What functions on lists answer."""
    assert answers == {each: answer(each) for each in answers}
