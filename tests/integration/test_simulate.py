"""`kubestow simulate`, whole: manifests in, the real daemon on the in-process API server, table or JSON and exit code out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli

DEMO = Path(__file__).parents[2] / "examples" / "demo.yaml"

NODE = '{apiVersion: v1, kind: Node, metadata: {name: "n"}, status: {allocatable: {cpu: "2", memory: 4Gi}}}'

pytestmark = pytest.mark.usefixtures("guest")


def pod(name: str, cpu: str = "1", **spec: Any) -> str:
    """A pod that names no scheduler."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    )


def resizing(wanted: str, reason: str = "Deferred") -> str:
    """A pod on the node that has one CPU and is to have another number of them."""
    manifest = json.loads(pod("a", wanted, nodeName="n"))
    have = {"requests": {"cpu": "1"}}
    manifest["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": have, "ready": True}],
    }
    return json.dumps(manifest)


def simulate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[str], *flags: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON."""
    file = tmp_path / "in.yaml"
    file.write_text("\n---\n".join(documents))
    code = cli.main(["simulate", "-o", "json", "--timeout", "60s", *flags, str(file)])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else {"stderr": out.err}


def test_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    """`make demo`: what fits is placed, what was made not to fit is pending, and that is a success."""
    code = cli.main(["simulate", "-o", "json", str(DEMO)])
    shown = json.loads(capsys.readouterr().out)

    assert shown["problems"] == []
    assert code == 0
    assert (shown["summary"]["placed"], shown["summary"]["pending"]) == (484, 16)
    assert {pod["reason"] for pod in shown["pods"] if pod["node"] is None} == {"Unschedulable", "SchedulingGated"}


@pytest.mark.parametrize(
    ("documents", "flags", "code", "problems"),
    [
        pytest.param([NODE, pod("a"), pod("b", "3")], [], 1, 1, id="one is too large"),
        pytest.param([NODE, pod("a"), pod("b", "3")], ["--expect-pending=b"], 0, 0, id="and was expected to be"),
        pytest.param([NODE, pod("a")], ["--expect-pending=default/*"], 1, 1, id="expected pending, and placed"),
        pytest.param([pod("a")], [], 1, 1, id="no node at all"),
        pytest.param([NODE, pod("a", nodeName="n"), pod("b", "2")], [], 1, 1, id="bound pods hold their place"),
        pytest.param([NODE, resizing("2"), pod("b")], [], 1, 1, id="and what they are being resized to"),
        pytest.param([NODE, resizing("2", "Infeasible"), pod("b")], [], 0, 0, id="unless that can never be"),
        pytest.param([NODE, pod("a", priority=7), pod("b", "2", priority=9)], [], 1, 1, id="the first in line wins"),
    ],
)
def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[str], flags: list[str], code: int, problems: int
) -> None:
    """0 when all is as expected, else 1 with the reasons."""
    ended, shown = simulate(tmp_path, capsys, documents, *flags)

    assert (ended, len(shown["problems"])) == (code, problems)
    assert shown["settled"] is True


@pytest.mark.parametrize(
    ("api", "kind"), [("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")]
)
def test_pods_of_a_workload_spread_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], api: str, kind: str
) -> None:
    """As in a cluster, where their owner says which pods belong together; without it the larger node would have all."""
    larger = '{apiVersion: v1, kind: Node, metadata: {name: larger}, status: {allocatable: {cpu: "64", memory: 64Gi}}}'
    template = {
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
    }
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    workload = json.dumps({"apiVersion": api, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    _, shown = simulate(tmp_path, capsys, [NODE, larger, workload])

    assert sorted(each["node"] for each in shown["pods"]) == ["larger", "larger", "n", "n"]


def test_scheduler_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods of the default scheduler are ours unless they are to be kept; those of a third one never are."""
    documents = [NODE, pod("a"), pod("b", schedulerName="default-scheduler"), pod("c", schedulerName="volcano")]

    _, ours = simulate(tmp_path, capsys, documents)
    _, kept = simulate(tmp_path, capsys, documents, "--keep-scheduler-names")
    assert (len(ours["pods"]), ours["summary"]["leftAlone"]) == (2, 1)
    assert (len(kept["pods"]), kept["summary"]["leftAlone"]) == (0, 3)


@pytest.mark.parametrize(
    ("documents", "flags", "said"),
    [
        pytest.param([NODE, pod("a", "many")], [], "in.yaml: document 2 (Pod default/a): spec.", id="a bad quantity"),
        pytest.param([NODE, pod("UPPER")], [], "(Pod default/UPPER): Pod", id="a name that no server takes"),
        pytest.param(
            [NODE, pod("a").replace('"name": "a"', '"name": "a", "namespace": "-n"')],
            [],
            'document 2 (Pod -n/a): Namespace "-n" is invalid',
            id="a namespace that no server takes",
        ),
        pytest.param([NODE, NODE], [], 'document 2 (Node n): nodes "n" already exists', id="the same name twice"),
        pytest.param(
            [NODE, pod("a")], ["--expect-pending=b"], "no pod default/b is to be scheduled", id="nobody's name"
        ),
    ],
)
def test_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[str], flags: list[str], said: str
) -> None:
    """Exit code 2, and the place."""
    code, shown = simulate(tmp_path, capsys, documents, *flags)

    assert code == 2
    assert said in shown["stderr"]
