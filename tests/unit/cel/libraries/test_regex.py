"""Regular expressions. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                '"abc".matches(dyn("("))': "error: error parsing regexp: missing closing ): `(`",
                '"abc".matches(dyn("a(?=b)"))': "error: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
                '"abc".matches(dyn("a**"))': "error: error parsing regexp: invalid nested repetition operator: `**`",
                '"abc".matches(dyn("[z-a]"))': "error: error parsing regexp: invalid character class range: `z-a`",
                '"abc".matches(dyn("\\\\"))': "error: error parsing regexp: trailing backslash at end of expression: ``",
                '"abc".matches(dyn("a{1001}"))': "error: error parsing regexp: invalid repeat count: `{1001}`",
                '"abc".matches(dyn(")"))': "error: error parsing regexp: unexpected ): `)`",
                '"abc".matches(dyn("[a"))': "error: error parsing regexp: missing closing ]: `[a`",
                '"abc".matches(dyn("\\\\p{Foo}"))': "error: error parsing regexp: invalid character class range: `\\p{Foo}`",
                '"abc".matches(dyn("*a"))': "error: error parsing regexp: missing argument to repetition operator: `*`",
                '"abc".matches(dyn("\\\\8"))': "error: error parsing regexp: invalid escape sequence: `\\8`",
                '"abc".matches(dyn("\\\\C"))': "error: error parsing regexp: invalid escape sequence: `\\C`",
                '"abc".matches(dyn("(?P<n"))': "error: error parsing regexp: invalid named capture: `(?P<n`",
                '"abc".matches("^a.c$")': "true for 2",
                'matches("abc", "b")': "true for 1",
            },
            id="what is wrong with a pattern is said in Go's words",
        ),
        pytest.param(
            {
                '"abc".find(["("][0])': "error: Illegal regex: error parsing regexp: missing closing ): `(`",
                '"abc".findAll(["("][0])': "error: Illegal regex: error parsing regexp: missing closing ): `(`",
            },
            id="find says the same with a word before it",
        ),
        pytest.param(
            {
                '"a1b22".find("[0-9]+")': '"1" for 2',
                '"a1b22".findAll("[0-9]*")': '["", "1", "22"] for 2',
                '"a1b22".findAll("[0-9]+", 1)': '["1"] for 2',
                '"a1b22".findAll("[0-9]+", 0)': "[] for 2",
                '"a1b22".findAll("[0-9]+", -5)': '["1", "22"] for 2',
                '"äbc".findAll("")': '["", "", "", ""] for 0',
                '"a".find("b")': '"" for 1',
                '"abc".findAll("a|")': '["a", "", ""] for 1',
            },
            id="matches are found from left to right, none of them empty behind another",
        ),
    ],
)
def test_regex(answers):
    """What patterns match; RE2 runs them, Go words the refusals."""
    assert answers == {each: answer(each) for each in answers}
