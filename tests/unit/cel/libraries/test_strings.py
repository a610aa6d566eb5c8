"""The strings library. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                '"tacocat".charAt(3)': '"o" for 1',
                '"tacocat".charAt(7)': '"" for 1',
                '"tacocat".charAt(8)': "error: index out of range: 8",
                '"tacocat".charAt(-1)': "error: index out of range: -1",
                '"éa".charAt(1)': '"a" for 1',
            },
            id="characters are code points",
        ),
        pytest.param(
            {
                '"tacocat".indexOf("")': "0 for 0",
                '"tacocat".indexOf("ac")': "1 for 0",
                '"tacocat".indexOf("none")': "-1 for 0",
                '"tacocat".indexOf("", 3)': "3 for 0",
                '"tacocat".indexOf("", 30)': "30 for 0",
                '"tacocat".indexOf("a", 3)': "5 for 0",
                '"tacocat".indexOf("a", -3)': "error: index out of range: -3",
                '"tacocat".indexOf("a", 30)': "-1 for 0",
            },
            id="a part is looked for from the left",
        ),
        pytest.param(
            {
                '"tacocat".lastIndexOf("")': "7 for 0",
                '"tacocat".lastIndexOf("at")': "5 for 0",
                '"tacocat".lastIndexOf("none")': "-1 for 0",
                '"tacocat".lastIndexOf("", 3)': "3 for 0",
                '"tacocat".lastIndexOf("a", 3)': "1 for 0",
                '"tacocat".lastIndexOf("a", -1)': "error: index out of range: -1",
                '"tacocat".lastIndexOf("a", 99)': "-1 for 0",
                '"tacocat".lastIndexOf("a", 7)': "-1 for 0",
                '"ta©o©αT".lastIndexOf("©")': "4 for 1",
                '"".lastIndexOf("a")': "-1 for 0",
                '"".lastIndexOf("")': "0 for 0",
                '"ab".lastIndexOf("abc", 1)': "-1 for 0",
            },
            id="a part is looked for from the right",
        ),
        pytest.param(
            {
                '"TacoCÆt".lowerAscii()': '"tacocÆt" for 1',
                '"tacoCÆt Xii".upperAscii()': '"TACOCÆT XII" for 2',
            },
            id="only ASCII changes its case",
        ),
        pytest.param(
            {
                '"he is".replace("is", "x")': '"he x" for 1',
                '"hello hello".replace("he", "we", 1)': '"wello hello" for 3',
                '"hello".replace("", "_")': '"_h_e_l_l_o_" for 1',
                '"hello".replace("", "_", 2)': '"_h_ello" for 1',
                '"hello".replace("l", "_", 0)': '"hello" for 1',
                '"hello".replace("l", "_", -1)': '"he__o" for 1',
            },
            id="parts are replaced, at most so many",
        ),
        pytest.param(
            {
                '"a,b,c".split(",")': '["a", "b", "c"] for 1',
                '"".split(",")': '[""] for 0',
                '"".split("")': "[] for 0",
                '"éab".split("")': '["é", "a", "b"] for 1',
                '"a,b,c".split(",", 0)': "[] for 1",
                '"a,b,c".split(",", 1)': '["a,b,c"] for 1',
                '"a,b,c".split(",", 2)': '["a", "b,c"] for 1',
                '"a,b,c".split(",", -1)': '["a", "b", "c"] for 1',
                '"abc".split("", 2)': '["a", "bc"] for 1',
                '"abc".split("", 9)': '["a", "b", "c"] for 1',
                '"".split("", 2)': "[] for 0",
            },
            id="texts are split into at most so many",
        ),
        pytest.param(
            {
                '"tacocat".substring(4)': '"cat" for 1',
                '"tacocat".substring(40)': "error: index out of range: 40",
                '"tacocat".substring(-1)': "error: index out of range: -1",
                '"tacocat".substring(0, 4)': '"taco" for 1',
                '"tacocat".substring(4, 3)': "error: invalid substring range. start: 4, end: 3",
                '"tacocat".substring(4, 30)': "error: index out of range: 30",
                '"tacocat".substring(-1, 3)': "error: index out of range: -1",
            },
            id="substrings are within the text",
        ),
        pytest.param(
            {
                '" \\f\\n\\r\\t\\vtext\\u0085\\u00a0\\u2003".trim()': '"text" for 2',
                '"\\u001ctext\\u200b".trim()': '"\\u001ctext\u200b" for 1',
            },
            id="Unicode white space is trimmed",
        ),
        pytest.param(
            {
                '["a", "b"].join()': '"ab" for 1',
                '["a", "b"].join("-")': '"a-b" for 1',
                '[dyn("a"), dyn(1)].join("-")': "error: join: invalid input: 1",
                '[].join("-")': '"" for 0',
                'strings.quote("a\\"b\\n\\\\é\\u0001")': '"\\"a\\\\\\"b\\\\n\\\\\\\\é\\u0001\\"" for 1',
                '"hello".contains("ll") && "hello".startsWith("he") && "hello".endsWith("lo")': "true for 3",
            },
            id="texts are joined and quoted",
        ),
    ],
)
def test_strings(answers):
    """What functions on texts answer."""
    assert answers == {each: answer(each) for each in answers}
