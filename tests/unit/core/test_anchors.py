"""The law of anchors: whoever matches is found."""

import pytest
from hypothesis import given, strategies as st

from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement, anchors, probes

_KEYS = st.sampled_from(["app", "tier", "track"])
_VALUES = st.sampled_from(["a", "b", "c"])
_NAMESPACES = st.sampled_from(["default", "team", "other"])


@st.composite
def selectors(draw):
    expressions = []
    for key in draw(st.lists(_KEYS, max_size=2)):
        operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
        values = tuple(draw(st.lists(_VALUES, min_size=1, max_size=2))) if operator.endswith("In") else ()
        expressions.append(LabelSelectorRequirement(key, operator, values))
    return LabelSelector(draw(st.dictionaries(_KEYS, _VALUES, max_size=2)), tuple(expressions))


@given(
    namespaces=st.none() | st.frozensets(_NAMESPACES, max_size=2),
    selector=selectors(),
    namespace=_NAMESPACES,
    labels=st.dictionaries(_KEYS, _VALUES, max_size=3),
)
def test_a_selector_that_matches_a_pod_is_filed_where_the_pod_looks(namespaces, selector, namespace, labels):
    matches = (namespaces is None or namespace in namespaces) and selector.matches(labels)
    shared = set(anchors(namespaces, selector)) & set(probes(namespace, labels))

    assert shared or not matches


@given(namespaces=st.none() | st.frozensets(_NAMESPACES, max_size=2), selector=selectors())
def test_no_anchor_comes_twice(namespaces, selector):
    """Whoever files by them takes out by them."""
    assert len(anchors(namespaces, selector)) == len(set(anchors(namespaces, selector)))


@pytest.mark.parametrize(
    ("selector", "labels", "found"),
    [
        pytest.param(None, {"app": "a"}, False, id="a nil selector is found by nobody"),
        pytest.param(LabelSelector(), {}, True, id="an empty selector is found by everybody"),
        pytest.param(
            LabelSelector({"app": "a"}), {"app": "b"}, False, id="another value of the label does not find it"
        ),
        pytest.param(
            LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("a", "b")),)),
            {"app": "b"},
            True,
            id="any of the values of In finds it",
        ),
    ],
)
def test_what_finds_a_selector(selector, labels, found):
    namespaces = frozenset({"default"})

    assert found == bool(set(anchors(namespaces, selector)) & set(probes("default", labels)))
    assert not set(anchors(namespaces, selector)) & set(probes("elsewhere", labels))
