"""The short way to read a URL gives the same result as the full parser."""

from hypothesis import given, strategies as st

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.urls import BadURL, parse

_PARTS = [
    *("https", "Ht+1", "://", "/", "//", ":", "a", "b.c", "80", "?", "a=b", "&", "#"),
    *("%41", "@", "~", "\n", "é", ";"),
]
_READ = compile_expression("url(s)", KUBERNETES.extended({"s": STRING}))
_ASKED = compile_expression("isURL(s)", KUBERNETES.extended({"s": STRING}))


@given(st.lists(st.sampled_from(_PARTS), max_size=7).map("".join) | st.from_regex("[a-z]+://[a-z.]+(:[0-9]*)?/[a-z/]*"))
def test_what_most_urls_are_like_is_read_as_all_are(text):
    assert _answer(text) == _answer_at_length(text)
    assert _ASKED.evaluate({"s": text}) or "error" in str(_answer(text))


def _answer(text: str) -> object:
    try:
        return _READ.evaluate({"s": text})
    except EvalError as error:
        return str(error)


def _answer_at_length(text: str) -> object:
    try:
        return parse(text)
    except BadURL as error:
        return f"URL parse error during conversion from string: {error}"
