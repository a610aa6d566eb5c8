"""`simulate` answers as a real control plane does, on 20 inputs as well-known projects make them.

Each file of `inputs/` is written to a real kube-apiserver with the controllers of kube-controller-manager, kube-scheduler
v1.37.2, and stand-ins for kubelets and provisioners. The same file is simulated. Custom resources are in the files, as in
dumps of users; the real server does not get them.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli import main as cli
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import ControlPlane, started
from tests.e2e.restored import CONTROLLERS, SCHEDULER, Restored
from tests.e2e.standins import Kubelets, Provisioners, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

Object = dict[str, Any]
INPUTS = Path(__file__).parent / "inputs"
FLAGS = ("-o", "json", "--strict", "--timeout", "120s", "--emulated-version", MINOR)
PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"


@dataclass(frozen=True)
class Case:
    """What a file is for: its numbers hold a mistake that both sides would make."""

    placed: int
    pending: int
    nodes: tuple[str, ...] = ()
    """Pods, or groups of pods, that can go to one node only each: their nodes are compared."""
    together: tuple[str, ...] = ()
    """Groups of pods of which as many must share a node."""


CASES = {
    "argo-workflows": Case(2, 1, together=("Workflow data-pipeline-x7k2p",)),
    "aws-ebs": Case(8, 1, together=("StatefulSet mirror",)),
    "cloudnative-pg": Case(2, 0, nodes=("cluster-example-2",)),
    "cronjob-backup": Case(4, 1),
    "ingress-and-cert-manager": Case(
        10, 1, together=("Deployment ingress-nginx-controller", "Deployment cert-manager-webhook")
    ),
    "intel-dra-gpu": Case(4, 2, nodes=("Deployment ovms", "Deployment transcode")),
    "kuberay": Case(7, 1),
    "kueue": Case(4, 4, nodes=("Job sweep",)),
    "local-path-shared-claim": Case(
        6, 1, nodes=("Deployment reports",), together=("Deployment webserver", "StatefulSet indexer")
    ),
    "local-path-statefulset": Case(3, 1, nodes=("redis-0",), together=("StatefulSet redis",)),
    "node-exporter": Case(8, 1, nodes=("DaemonSet prometheus-node-exporter", "DaemonSet fluent-bit")),
    "nvidia-device-plugin": Case(7, 5, nodes=("Deployment triton", "Deployment notebook")),
    "nvidia-dra-gpu": Case(5, 3, nodes=("Deployment vllm", "Deployment embeddings", "finetune-3")),
    "nvidia-dra-imex": Case(6, 1, nodes=("DaemonSet", "Job nvbandwidth")),
    "nvidia-dra-mig": Case(10, 3, nodes=("Deployment notebook", "Deployment inference", "Deployment training")),
    "openebs-lvm": Case(5, 1, nodes=("Deployment transcoder",)),
    "rollout": Case(1, 3, nodes=("Deployment podinfo",)),
    "static-local-volumes": Case(3, 2, nodes=("StatefulSet cassandra",)),
    "strimzi": Case(4, 1, nodes=("StrimziPodSet my-cluster-broker",)),
    "topolvm": Case(3, 1, nodes=("StatefulSet etcd",)),
}


@dataclass(frozen=True)
class Answer:
    """Nodes of the pods that had none in the input, and the pods with a node that are gone."""

    names: frozenset[str]
    """Pods whose names are no matter of chance: those of the input, and those of StatefulSets."""
    gone: frozenset[str]
    outcomes: Counter[tuple[str, str]]
    """Group and node, `placed`, or why a pod is pending → the number of pods."""
    together: dict[str, list[int]]
    """Group → how many of its pods are on each node that has any, sorted."""


@dataclass(frozen=True)
class Pod:
    """A pod of either side. `node` is empty for one that is pending; then `why` is the text or the reason."""

    namespace: str
    name: str
    group: str
    """Kind and name of the workload or custom resource at the top; the pod's name for one without."""
    node: str
    why: str


class Input:
    def __init__(self, name: str) -> None:
        self.path = INPUTS / f"{name}.yaml"
        self.case = CASES[name]
        documents = list(yaml.safe_load_all(self.path.read_text()))
        lists = [each["items"] if each["kind"] == "List" else [each] for each in documents]
        self.objects: list[Object] = [item for items in lists for item in items]
        self.pods = {_key(each): each for each in self.objects if each["kind"] == "Pod"}
        self.bound = {key for key, pod in self.pods.items() if pod["spec"].get("nodeName")}
        self.deployments = {each["metadata"]["name"] for each in self.objects if each["kind"] == "Deployment"}

    def group(self, kind: str, owner: str, pod: str) -> str:
        """A Deployment stands for its ReplicaSets: their names are its own, with the hash of the template if it has one."""
        if kind == "ReplicaSet":
            return f"Deployment {owner if owner in self.deployments else owner.rpartition('-')[0]}"
        return f"{kind} {owner}" if kind else pod

    def answer(self, pods: list[Pod], gone: set[str]) -> Answer:
        """In a form that both sides have in common."""
        outcomes: Counter[tuple[str, str]] = Counter()
        nodes: dict[str, Counter[str]] = {}
        for pod in pods:
            is_fixed = any(pod.name == one or pod.group.startswith(one) for one in self.case.nodes)
            outcomes[pod.group, (pod.node if is_fixed else "placed") if pod.node else pod.why] += 1
            if pod.node and pod.group in self.case.together:
                nodes.setdefault(pod.group, Counter())[pod.node] += 1
        fixed = {f"{pod.namespace}/{pod.name}" for pod in pods if pod.group.startswith("StatefulSet ")}
        known = {f"{pod.namespace}/{pod.name}" for pod in pods} & self.pods.keys()
        shared = {group: sorted(counts.values()) for group, counts in nodes.items()}
        return Answer(frozenset(fixed | known), frozenset(gone), outcomes, shared)

    def real(self, pods: list[Object]) -> Answer:
        """The pods that a real cluster has in the end."""
        there = {_key(each) for each in pods}
        found = [
            Pod(
                each["metadata"]["namespace"],
                each["metadata"]["name"],
                self.group(*_owner(each), each["metadata"]["name"]),
                each["spec"].get("nodeName", ""),
                _why(each),
            )
            for each in pods
            if _key(each) not in self.bound
        ]
        return self.answer(found, self.pods.keys() - there)

    def simulated(self, shown: Object) -> Answer:
        """The same from the JSON of `simulate`."""
        assert shown["settled"]
        found = []
        for each in shown["pods"]:
            namespace, _, name = each["pod"].partition("/")
            kind, _, owner = (each["owner"] or "").partition("/")
            why = each.get("reason") if each.get("reason") == "SchedulingGated" else each.get("message", "")
            found.append(Pod(namespace, name, self.group(kind, owner, name), each["node"] or "", str(why)))
        deleted = {
            f"{row['workload'].split()[1].partition('/')[0]}/{name}"
            for row in shown["workloads"]
            for name in row["deleted"]
        }
        return self.answer(found, deleted & self.pods.keys())


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _owner(pod: Object) -> tuple[str, str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next(((each["kind"], each["name"]) for each in owners if each.get("controller")), ("", ""))


def _why(pod: Object) -> str:
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    conditions = pod["status"].get("conditions") or ()
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "no answer")


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """One control plane for all inputs: each is removed before the next is written."""

    async def prepare(plane: ControlPlane) -> None:
        await plane.start_controllers(CONTROLLERS)
        await plane.start_scheduler(SCHEDULER)

    with started(ControlPlane(volume_resync_s=1), prepare) as plane:
        yield plane


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Restored]:
    """Empty before and after."""
    async with plane.client() as http:
        found = Restored(plane, http)
        await found.open()
        async with running(Kubelets(found.cluster), Provisioners(found.cluster)):
            yield found
            await found.wipe()


def test_every_file_has_its_case() -> None:
    assert {path.stem for path in INPUTS.iterdir()} == CASES.keys()
    assert len(CASES) == 20
    for name in CASES:
        nodes = [each for each in Input(name).objects if each["kind"] == "Node"]
        assert 5 <= len(nodes) <= 10, name


def test_the_page_lists_every_input() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| (\d+), (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert {name: (int(placed), int(pending)) for name, placed, pending in rows} == {
        name: (case.placed, case.pending) for name, case in CASES.items()
    }


@pytest.mark.parametrize("name", CASES)
async def test_simulate_answers_as_a_real_cluster(
    name: str, cluster: Restored, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Input(name)
    async with asyncio.TaskGroup() as group:
        simulation = group.create_task(asyncio.to_thread(cli.main, ["simulate", *FLAGS, str(given.path)]))
        await cluster.load(given.objects)
        pods = await cluster.at_rest()
    output = capsys.readouterr()
    assert simulation.result() != 2, output.err
    shown = json.loads(output.out)

    simulated, real = given.simulated(shown), given.real(pods)
    if simulated.outcomes != real.outcomes:
        real = given.real(await cluster.tried_again())
    assert simulated.outcomes == real.outcomes
    assert simulated == real
    case = given.case
    assert (shown["summary"]["placed"], shown["summary"]["pending"]) == (case.placed, case.pending)
    foreign = Counter(_kind(each) for each in given.objects if not cluster.serves(each))
    left_out = {kind: count for kind, count in shown["summary"]["leftOut"].items() if "." in kind}
    assert left_out == foreign


def _kind(obj: Object) -> str:
    return f"{obj['kind']}.{obj['apiVersion'].partition('/')[0]}"
