"""Messages of extenders: what is sent, and what an untrusted answer may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.extenders.messages import Answer, meta_victims, of_binding, of_nodes, of_victims
from scheduler.framework.extender import ExtenderError, FilterResult, MetaVictims, Victims
from tests.unit.objects import info

ABOUT = 'extender "http://x" to filter'


def answer(body: Any) -> Answer:
    return Answer(body if isinstance(body, bytes) else json.dumps(body).encode(), ABOUT)


def filtered(body: Any) -> FilterResult:
    return answer(body).filter_result(["n1", "n2"], "http://x")


# -- requests --------------------------------------------------------------------------------------------------------


def test_whole_nodes_are_sent_as_they_are() -> None:
    body = json.loads(of_nodes(b'{"p":1}', nodes=[b'{"n":1}', b'{"n":2}'], names=None))
    assert body == {"Pod": {"p": 1}, "Nodes": {"metadata": {}, "items": [{"n": 1}, {"n": 2}]}, "NodeNames": None}


def test_names_of_nodes() -> None:
    assert json.loads(of_nodes(b"{}", nodes=None, names=["n1"])) == {"Pod": {}, "Nodes": None, "NodeNames": ["n1"]}


def test_victims_by_uid() -> None:
    meta = meta_victims({"n1": Victims((info("a"),), 2)})
    assert json.loads(of_victims(b"{}", whole=None, meta=meta)) == {
        "Pod": {},
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}},
    }


def test_whole_victims() -> None:
    body = of_victims(b"{}", whole={'n"1': ([b'{"a":1}', b'{"b":1}'], 0), "n2": ([], 1)}, meta=None)
    assert json.loads(body) == {
        "Pod": {},
        "NodeNameToVictims": {
            'n"1': {"Pods": [{"a": 1}, {"b": 1}], "NumPDBViolations": 0},
            "n2": {"Pods": [], "NumPDBViolations": 1},
        },
        "NodeNameToMetaVictims": None,
    }


def test_a_binding() -> None:
    wanted = {"PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "n1"}
    assert json.loads(of_binding(info("p"), "n1")) == wanted


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        pytest.param({"NodeNames": ["n2"]}, {"n2"}, id="names"),
        pytest.param({"NodeNames": ["n2", "n2"]}, {"n2"}, id="a name twice"),
        pytest.param({"nodenames": ["n1"]}, {"n1"}, id="another spelling"),
        pytest.param({"NODENAMES": ["n1"]}, {"n1"}, id="upper case"),
        pytest.param({"NodeNames": [], "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}, set(), id="names win"),
        pytest.param({"Nodes": {"items": [{"metadata": {"name": "n1", "x": [1]}, "spec": 7}]}}, {"n1"}, id="nodes"),
        pytest.param({"nodes": {"Items": [{"metadata": {"name": "n1"}}]}}, {"n1"}, id="nodes, another spelling"),
        pytest.param({"NodeNames": None, "Nodes": None, "FailedNodes": None, "Error": None}, set(), id="nulls"),
        pytest.param(None, set(), id="null"),
        pytest.param({}, set(), id="nothing"),
    ],
)
def test_passing_nodes(body: Any, passed: set[str]) -> None:
    assert filtered(body).passed == passed


def test_reasons() -> None:
    """Also of nodes that were not in the question: upstream counts them, too."""
    body = {"FailedNodes": {"n1": "a", "n7": None}, "failedAndUnresolvableNodes": {"n2": "b"}}
    assert filtered(body) == FilterResult(frozenset(), {"n1": "a", "n7": ""}, {"n2": "b"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"<html>", "the answer of {about} is unreadable: JSON is malformed", id="no JSON"),
        pytest.param(b"", "the answer of {about} is unreadable: Input data was truncated", id="nothing"),
        pytest.param(b"[]", "the answer of {about} is unreadable: Expected `object | null`, got `array`", id="a list"),
        pytest.param({"NodeNames": "n1"}, "NodeNames in the answer of {about} is unreadable: Expected", id="a text"),
        pytest.param({"NodeNames": [1]}, "NodeNames in the answer of {about} is unreadable: Expected", id="numbers"),
        pytest.param({"Nodes": []}, "Nodes in the answer of {about} is unreadable: Expected", id="a list of nodes"),
        pytest.param(
            {"Nodes": {"items": [1]}}, "Nodes.items in the answer of {about} is unreadable: Expected", id="no nodes"
        ),
        pytest.param({"FailedNodes": ["n1"]}, "FailedNodes in the answer of {about} is unreadable", id="no map"),
        pytest.param({"FailedNodes": {"n1": 1}}, "FailedNodes in the answer of {about} is unreadable", id="no reason"),
        pytest.param({"Error": {"a": 1}}, "Error in the answer of {about} is unreadable", id="no error"),
        pytest.param(
            {"NodeNames": ["n3"]},
            'extender "http://x" claims a filtered node "n3" which is not found in the input node list',
            id="an unknown name",
        ),
        pytest.param(
            {"Nodes": {"items": [{"metadata": {}}]}},
            'extender "http://x" claims a filtered node "" which is not found in the input node list',
            id="a node without a name",
        ),
    ],
)
def test_a_filter_answer_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        filtered(body)

    assert error.value.message.startswith(said.format(about=ABOUT))
    assert not error.value.is_answer


def test_an_error_of_the_extender_is_shortened() -> None:
    with pytest.raises(ExtenderError) as error:
        filtered({"Error": "x" * 10_000})

    assert error.value.is_answer
    assert len(error.value.message) == 1024


def test_scores() -> None:
    body = [{"Host": "n1", "Score": 3}, {"host": "n2", "SCORE": -1}, {"Host": "n1", "Score": 2}, {}, None]
    wanted = [("n1", 3), ("n2", -1), ("n1", 2), ("", 0), ("", 0)]
    assert answer(body).host_priorities() == wanted
    assert answer(None).host_priorities() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param([{"Host": "n1", "Score": 2**63}], "[0].Score in the answer", id="too large"),
        pytest.param([{"Host": "n1", "Score": 1.5}], "[0].Score in the answer", id="no integer"),
        pytest.param([{}, {"Host": "n1", "Score": "7"}], "[1].Score in the answer", id="a text"),
        pytest.param([{"Host": 1}], "[0].Host in the answer", id="no name"),
        pytest.param({"Host": "n1"}, "HostPriorityList in the answer", id="no list"),
    ],
)
def test_scores_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        answer(body).host_priorities()

    assert error.value.message.startswith(said)


def test_victims() -> None:
    body = {
        "nodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}, {"uid": "b"}, None], "NumPDBViolations": 2}, "n2": None}
    }
    wanted = {"n1": MetaVictims(("a", "b", ""), 2), "n2": MetaVictims((), 0)}
    assert answer(body).preemption_result() == wanted
    assert answer({}).preemption_result() == {}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"n1": []}, "NodeNameToMetaVictims[n1] in the answer", id="a list"),
        pytest.param({"n1": {"Pods": ["a"]}}, "NodeNameToMetaVictims[n1].Pods in the answer", id="texts"),
        pytest.param({"n1": {"Pods": [{"UID": 1}]}}, "NodeNameToMetaVictims[n1].Pods[0].UID in", id="a number"),
        pytest.param({"n1": {"NumPDBViolations": "2"}}, "NodeNameToMetaVictims[n1].NumPDBViolations in", id="no count"),
    ],
)
def test_victims_that_cannot_be_used(body: Any, said: str) -> None:
    with pytest.raises(ExtenderError) as error:
        answer({"NodeNameToMetaVictims": body}).preemption_result()

    assert error.value.message.startswith(said)


@pytest.mark.parametrize(
    "read", [Answer.binding_result, Answer.host_priorities, Answer.preemption_result], ids=lambda read: read.__name__
)
def test_no_answer_is_read_from_garbage(read: Callable[[Answer], Any]) -> None:
    for body in (b"", b"{", b"nothing", b'"text"', b"\xff\xfe", b"1"):
        with pytest.raises(ExtenderError):
            read(Answer(body, ABOUT))


def test_a_binding_that_was_carried_out() -> None:
    answer({}).binding_result()
    answer({"Error": ""}).binding_result()
    with pytest.raises(ExtenderError, match=r"^no$"):
        answer({"Error": "no"}).binding_result()
