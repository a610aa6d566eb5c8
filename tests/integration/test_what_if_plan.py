"""`kubestow what-if` without a workload: --scale, --nodes-needed and changes of nodes, answered as `simulate` answers them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from scheduler.config.load import parse
from scheduler.config.types import RunOptions
from tests.integration.conftest import Simulation, nodes_of, workload
from tests.integration.daemon import options
from tests.integration.test_explain_command import ANN, BOB, explained
from tests.integration.test_simulate import pod
from tests.integration.test_simulate_planning import NODE, TWIN, bound

_CODES = {0: 0, 1: 2, 2: 3, 5: 5}
WEB = workload("StatefulSet", "web", 2)
WEB["spec"]["podManagementPolicy"] = "Parallel"


def written(*objects: str | dict[str, Any]) -> None:
    """Write the input of both commands."""
    Path("in.yaml").write_text("\n---\n".join(each if isinstance(each, str) else json.dumps(each) for each in objects))


def planned(
    simulate: Simulation, *flags: str, command: tuple[str, ...] = ("what-if", "--cluster")
) -> tuple[int, Any, str]:
    """Run a command on the input; return exit code, JSON and standard error."""
    code = cli.main([*command, "in.yaml", "-o", "json", "--timeout", "60s", *flags])
    out = simulate.capsys.readouterr()
    return code, json.loads(out.out) if out.out else {}, out.err


CLUSTERS: dict[str, list[str | dict[str, Any]]] = {
    "full": [NODE, bound("a", cpu="3"), WEB],
    "two nodes": [NODE, TWIN, bound("a", cpu="3"), WEB, pod("waits", "4")],
    "nothing waits": [NODE, TWIN, bound("a")],
}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param("--scale=statefulset/web=4", id="a larger workload"),
        pytest.param("--scale=statefulset/web=0", id="no pods"),
        pytest.param("--scale=statefulset/web=5 --nodes-needed=n", id="nodes for a larger workload"),
        pytest.param("--nodes-needed=n", id="nodes for waiting pods"),
        pytest.param("--nodes-needed=n --drain=n", id="nodes for a drained node"),
        pytest.param("--add-node-like=n=2", id="more nodes"),
        pytest.param("--cordon=n", id="a cordoned node"),
        pytest.param("--scale=statefulset/web=3 --drain=n --add-node-like=n --cordon=n", id="a mix"),
        pytest.param("--scale=deployment/none=3", id="no such workload"),
        pytest.param("--nodes-needed=none", id="no such node"),
    ],
)
def test_the_answer_is_that_of_a_simulation(simulate: Simulation, cluster: str, flags: str) -> None:
    written(*CLUSTERS[cluster])
    code, expected, said = planned(simulate, *flags.split(), command=("simulate",))

    assert planned(simulate, *flags.split()) == (_CODES[code], expected, said)


def test_the_least_number_of_nodes_is_that_of_all_trials(simulate: Simulation) -> None:
    """Each number of nodes up to the answer is tried by itself: only with the answer every pod has a node."""
    written(NODE, bound("a", cpu="3"), WEB)
    _, shown, _ = planned(simulate, "--scale=statefulset/web=7", "--nodes-needed=n")
    pending = []
    for nodes in range(4):
        added = [f"--add-node-like=n={nodes}"] if nodes else []
        _, outcome, _ = planned(simulate, "--scale=statefulset/web=7", *added)
        pending.append(sum(not node for node in nodes_of(outcome).values()))

    assert pending == [6, 2, 0, 0], "a node has four CPUs, and one pod has three of the first"
    assert shown["nodes"] == 2


def test_the_text_has_the_difference_only(simulate: Simulation) -> None:
    written(NODE, bound("a", cpu="3"), WEB)

    code = cli.main(["what-if", "--cluster", "in.yaml", "--add-node-like=n"])
    assert code == 0
    *lines, placed = simulate.capsys.readouterr().out.splitlines()
    assert placed.startswith("+ default/web-1  no node → n")
    assert lines == [
        "changes: add 1 node like n",
        "before: 2 pods on 1 node, 1 pending",
        "after:  3 pods on 2 nodes, 0 pending",
    ]


def test_the_text_says_which_new_pods_have_no_node_or_do_not_exist(simulate: Simulation) -> None:
    written(NODE, workload("StatefulSet", "db", 1))

    code = cli.main(["what-if", "--cluster", "in.yaml", "--scale=statefulset/db=9"])
    assert code == 2
    *_, pending, row = simulate.capsys.readouterr().out.splitlines()
    assert pending.startswith("! default/db-4  no node: 0/1 nodes are available: 1 Insufficient cpu.")
    assert row == (
        "StatefulSet default/db: 9 replicas, 5 created (4 pods are created one after the other, once db-4 is ready)"
    )


def test_a_manifest_is_part_of_a_plan(simulate: Simulation) -> None:
    written(NODE)
    Path("web.yaml").write_text(json.dumps(workload("Deployment", "web", 9)))
    _, shown, _ = planned(simulate, "-f", "web.yaml", "--nodes-needed=n")

    assert shown["nodes"] == 2


@pytest.mark.usefixtures("guest")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param("--scale=job/a=1 --without=b", "--without: has no effect on a plan; ", id="a pod is left out"),
        pytest.param("--nodes-needed=n -f x --replicas=2", "--replicas: has no effect on a plan; ", id="replicas"),
        pytest.param("--drain=n --allow-partial", "--allow-partial: has an effect only on a plan", id="permissions"),
        pytest.param("--nodes-needed=n -f x -n a", "-n: has no effect on the manifests of a plan; ", id="a namespace"),
    ],
)
def test_flags_that_a_plan_does_not_have(capsys: pytest.CaptureFixture[str], flags: str, said: str) -> None:
    assert cli.main(["what-if", *flags.split()]) == 3
    assert capsys.readouterr().err.startswith(f"kubestow: {said}")


@pytest.mark.parametrize("flag", ["--scale=job=1", "--scale=daemonset/a=1", "--scale=job/a=-1", "--nodes-needed=../x"])
def test_wrong_usage(flag: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["what-if", flag])

    assert ended.value.code == 3


# -- a running scheduler ---------------------------------------------------------------------------------------------------


async def test_a_plan_for_a_running_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pod `large` needs 64 CPUs, and node n1 has four. The configuration is that of the scheduler."""
    async with explained(tmp_path, capsys) as cluster:
        rig = cluster.cluster.rig
        rig.pod("waits", cpu="2")
        await rig.bound("waits")
        code, out, err = await cluster.run("what-if", "--nodes-needed=n1", user=ANN)
        assert code == 2
        assert "note: " not in err
        assert out.startswith("more nodes like n1 do not help, limited by cpu\n")

        code, out, err = await cluster.run("what-if", "--cordon=n1", "-o", "json", user=ANN)
        shown = json.loads(out)
        assert code == 2
        assert shown["plan"]["changes"] == ["cordon n1"]
        assert nodes_of(shown)["large"] == ""

        code, out, err = await cluster.run("what-if", "--add-node-like=n1", user=BOB)
        assert code == 2
        assert err.startswith(
            "kubestow: note: the default configuration is used, because that of the scheduler cannot be read"
        )
        assert 'a ClusterRole needs the rule {nonResourceURLs: ["/configz"], verbs: [get]}' in err
        assert set(rig.pods()) >= {"large", "waits"}


def without_taints(url: str) -> RunOptions:
    """Return options with a profile that does not look at cordons."""
    off = {"filter": {"disabled": [{"name": "NodeUnschedulable"}, {"name": "TaintToleration"}]}}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    profiles = [{"schedulerName": "kubestow", "plugins": off}]
    configuration = parse(json.dumps(kind | {"profiles": profiles}), source="test")
    elected = dataclasses.replace(configuration.leader_election, leader_elect=True)
    client = dataclasses.replace(configuration.client_connection, qps=-1.0)
    changed = dataclasses.replace(configuration, leader_election=elected, client_connection=client)
    return dataclasses.replace(options(url), config=changed)


async def test_a_plan_follows_the_configuration_of_the_running_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the default configuration no pod fits on a cordoned node."""
    async with explained(tmp_path, capsys, without_taints) as cluster:
        cluster.cluster.rig.server.apply(
            {"apiVersion": "apps/v1", **workload("StatefulSet", "web", 0, schedulerName="kubestow")}
        )
        plan = ("what-if", "--scale=statefulset/web=1", "--cordon=n1", "-o", "json")
        _, out, err = await cluster.run(*plan, user=ANN)
        assert (nodes_of(json.loads(out))["web-0"], "note: " in err) == ("n1", False)
        _, out, err = await cluster.run(*plan, user=BOB)
        assert (nodes_of(json.loads(out))["web-0"], "note: " in err) == ("", True)
