"""Every text with which a plugin refuses was seen from the real kube-scheduler, and no text is one we do not know."""

from collections.abc import Mapping

import pytest

from tests.parity.reasons import REASONS, known, refusers, texts, verdicts
from tests.parity.recordings import RECORDED, Recording
from tests.parity.verdict import GATED, Verdict

KNOWN = [(plugin, text) for plugin, said in REASONS.items() for text in said]


@pytest.mark.parametrize(("plugin", "text"), KNOWN, ids=[text for _, text in KNOWN])
def test_it_was_recorded(recorded: Mapping[str, dict[str, Recording]], plugin: str, text: str) -> None:
    """At least once, as a whole reason, from one of the versions."""
    assert any(text in texts(verdict.message) for version in RECORDED for verdict in verdicts(recorded[version]))


@pytest.mark.parametrize("version", RECORDED)
def test_gates_were_recorded(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """SchedulingGates has no text: the API server's condition stands."""
    assert any(verdict.reason == GATED for verdict in verdicts(recorded[version]))


@pytest.mark.parametrize("version", RECORDED)
def test_no_reason_is_unknown(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """A text that kube-scheduler says and REASONS lacks would go unnoticed in the table."""
    said = {
        text for verdict in verdicts(recorded[version]) if verdict.reason != GATED for text in texts(verdict.message)
    }

    assert [text for text in said if text and not known(text)] == []


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        pytest.param("no nodes available to schedule pods", ["no nodes available to schedule pods"], id="no nodes"),
        pytest.param(
            "0/3 nodes are available: 1 Too many pods, 3 Insufficient example.com/gpu.",
            ["Too many pods", "Insufficient example.com/gpu"],
            id="two reasons, and a pod is evicted",
        ),
        pytest.param(
            "0/3 nodes are available: 1 Too many pods, 3 Insufficient cpu. no new claims to deallocate, preemption: "
            "0/3 nodes are available: 1 Insufficient cpu, 2 No preemption victims found for incoming pod.",
            [
                "Too many pods",
                "Insufficient cpu",
                "no new claims to deallocate",
                "preemption: Insufficient cpu",
                "preemption: No preemption victims found for incoming pod",
            ],
            id="two reasons and a dry run",
        ),
        pytest.param(
            "0/1 nodes are available: 1 Too many pods. preemption: not eligible due to preemptionPolicy=Never.",
            ["Too many pods", "preemption: not eligible due to preemptionPolicy=Never."],
            id="not eligible, and no word of claims",
        ),
        pytest.param(
            "0/1 nodes are available: PVC red/c was not created for pod red/p (pod is not owner). not found",
            ["PVC … was not created for pod … (pod is not owner)", "not found"],
            id="with names",
        ),
        pytest.param(
            "0/2 nodes are available: pod affinity terms conflict. not found",
            ["pod affinity terms conflict", "not found"],
            id="PreFilter's, without a count",
        ),
    ],
)
def test_texts(message: str, reasons: list[str]) -> None:
    """The reasons are found in whole messages, those of PostFilter, too."""
    assert texts(message) == reasons


def test_refusers() -> None:
    """Each plugin that refused a node, once."""
    message = "0/3 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 3 Insufficient cpu."

    assert refusers(Verdict(reason="Unschedulable", message=message)) == {"NodeUnschedulable", "NodeResourcesFit"}
