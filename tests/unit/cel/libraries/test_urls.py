"""URLs. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest
from hypothesis import given, strategies as st

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import STRING
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.urls import BadURL, parse
from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'url("../relative")': 'error: URL parse error during conversion from string: parse "../relative": invalid URI for request',
                'url("https://a:b:c/")': 'error: URL parse error during conversion from string: parse "https://a:b:c/": invalid port ":b:c" after host',
                'url("")': 'error: URL parse error during conversion from string: parse "": empty url',
                'url("http://[::1")': "error: URL parse error during conversion from string: parse \"http://[::1\": missing ']' in host",
                'url("http://a b.com/")': 'error: URL parse error during conversion from string: parse "http://a b.com/": invalid character " " in host name',
                'url("http://a.com/%zz")': 'error: URL parse error during conversion from string: parse "http://a.com/%zz": invalid URL escape "%zz"',
                'url("http://a.com/%z")': 'error: URL parse error during conversion from string: parse "http://a.com/%z": invalid URL escape "%z"',
                'url("http://a%20b.com/")': 'error: URL parse error during conversion from string: parse "http://a%20b.com/": invalid URL escape "%20"',
            },
            id="what is no URL is refused in Go's words",
        ),
        pytest.param(
            {
                'url("http://[fe80::1%25en0]:80/x").getHost()': '"[fe80::1%en0]:80" for 4',
                'url("http://[fe80::1%25en0]:80/x").getHostname()': '"fe80::1%en0" for 4',
                'url("mailto:x@y").getScheme()': '"mailto" for 2',
                'url("//host/path").getHost()': '"host" for 3',
                'url("/a b?q=1#frag").getEscapedPath()': '"/a%20b" for 3',
                'url("*").getEscapedPath()': '"*" for 2',
                'url("http://u:p@h.com:81/p%2Fq?a=1&a=2&b#z").getHost()': '"h.com:81" for 5',
                'url("http://u:p@h.com:81/p%2Fq?a=1&a=2&b#z").getEscapedPath()': '"/p%2Fq" for 5',
                'url("http://u:p@h.com:81/p%2Fq?a=1&a=2&b#z").getQuery()': '{"a": ["1", "2"], "b": [""]} for 5',
                'url("http://h/p?a=1&a=2&b=%zz&c=+x;y=1&d&e=+x").getQuery()': '{"a": ["1", "2"], "d": [""], "e": [" x"]} for 5',
                'url("HTTP://h.com").getScheme()': '"http" for 3',
            },
            id="parts of URLs",
        ),
        pytest.param(
            {
                'url("1http://h.com")': 'error: URL parse error during conversion from string: parse "1http://h.com": invalid URI for request',
                'url("http://h.com:80a/")': 'error: URL parse error during conversion from string: parse "http://h.com:80a/": invalid port ":80a" after host',
                'url("http://h.com:/").getPort()': '"" for 3',
                'url("http://h.com:80/").getPort()': '"80" for 3',
                'url("http://h.com\\n/")': 'error: URL parse error during conversion from string: parse "http://h.com\\n/": net/url: invalid control character in URL',
                'url("http://u@x:p@h/").getHost()': '"h" for 3',
                'url("http://[]/").getHost()': 'error: URL parse error during conversion from string: parse "http://[]/": invalid host: ParseAddr(""): unable to parse IP',
                'url("http://h.com?x").getEscapedPath()': '"" for 3',
                'url(":foo")': 'error: URL parse error during conversion from string: parse ":foo": missing protocol scheme',
                'url("http://h^/")': 'error: URL parse error during conversion from string: parse "http://h^/": invalid character "^" in host name',
                'url("http://h/[x]<é>\\"").getEscapedPath()': '"/%5Bx%5D%3C%C3%A9%3E%22" for 3',
                'url("http://h/[x](a)!").getEscapedPath()': '"/[x](a)!" for 3',
                'url("a/b")': 'error: URL parse error during conversion from string: parse "a/b": invalid URI for request',
                'url("http:/x").getEscapedPath()': '"/x" for 2',
                'url("http:x").getEscapedPath()': '"" for 2',
                'url("http://h/a%41").getEscapedPath()': '"/a%41" for 3',
            },
            id="hosts, ports and schemes have their characters",
        ),
        pytest.param(
            {
                'isURL("http://h:99999999/")': "true for 1",
                'isURL("http://us er@h/")': "false for 1",
                'url("http://us er@h/")': 'error: URL parse error during conversion from string: parse "http://us er@h/": net/url: invalid userinfo',
                'url("http://h<b>/").getHost()': '"h<b>" for 3',
                'url("http://[::1]a/")': 'error: URL parse error during conversion from string: parse "http://[::1]a/": invalid port "a" after host',
                'url("http://h\\u007f/")': 'error: URL parse error during conversion from string: parse "http://h\\x7f/": net/url: invalid control character in URL',
                'url("http://[1.2.3.4]/")': 'error: URL parse error during conversion from string: parse "http://[1.2.3.4]/": invalid IP-literal',
                'url("http://a[::1]/")': 'error: URL parse error during conversion from string: parse "http://a[::1]/": invalid IP-literal',
                'url("foo://a:b:1/").getHost()': '"a:b:1" for 3',
                'url("http://h#%zz")': 'error: URL parse error during conversion from string: parse "http://h#%zz": invalid character "#" in host name',
                'url("http://h/#%zz")': 'error: URL parse error during conversion from string: parse "http://h/#%zz": invalid URL escape "%zz"',
                'url("http://%e2%82%ac/").getHost()': '"€" for 3',
            },
            id="more of the same, and brackets",
        ),
        pytest.param(
            {
                'url("https://example.com/path?key with spaces=value with spaces").getQuery()': '{"key with spaces": ["value with spaces"]} for 7',
                'url("http://a/?x=%41#f?g") == url("http://a/?x=%41#f?g")': "true for 5",
                'url("http://a/") == url("http://a")': "false for 3",
            },
            id="queries, and equality of URLs",
        ),
    ],
)
def test_urls(answers):
    """Which URLs there are, and what they consist of."""
    assert answers == {each: answer(each) for each in answers}


_PARTS = [
    "https",
    "Ht+1",
    "://",
    "/",
    "//",
    ":",
    "a",
    "b.c",
    "80",
    "?",
    "a=b",
    "&",
    "#",
    "%41",
    "@",
    "~",
    "\n",
    "é",
    ";",
]
_READ = compile_expression("url(s)", KUBERNETES.extended({"s": STRING}))
_ASKED = compile_expression("isURL(s)", KUBERNETES.extended({"s": STRING}))


@given(st.lists(st.sampled_from(_PARTS), max_size=7).map("".join) | st.from_regex("[a-z]+://[a-z.]+(:[0-9]*)?/[a-z/]*"))
def test_what_most_urls_are_like_is_read_as_all_are(text):
    """Though it takes a short way."""
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
