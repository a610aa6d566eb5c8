"""What-if answers compared with what happens: `simulate` places the replicas that the question was about."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scheduler.cli import main as cli
from scheduler.config.types import ClientConnection, Configuration, LeaderElection, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.daemon.app import Daemon
from scheduler.explain.answer import WhatIfAnswer
from scheduler.explain.what_if import WhatIfRequest
from simulator.simulate import with_objects
from simulator.simulate.input.complete import complete
from simulator.simulate.input.manifests import load
from simulator.simulate.outcome import Outcome
from simulator.simulate.run import simulate
from simulator.simulate.world import ReadOptions
from tests.integration.conftest import workload
from tests.integration.daemon_laws import audited

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
CASES: Final = 300
_PARTS: Final = 20
"""Each part has its own random clusters. The first one runs in CI."""
_TRIES: Final = 3


class Case:
    """A random cluster, and a workload whose pods need cpu, and perhaps volumes, devices, or distance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.objects: list[dict[str, Any]] = []
        self.replicas = self.rng.randint(1, 8)
        self.template: dict[str, Any] = {}
        self.claim_templates: list[dict[str, Any]] = []
        names = [f"n{at}" for at in range(self.rng.randint(1, 5))]
        for at, name in enumerate(names):
            self._node(name, zone="ab"[at % 2])
        spec: dict[str, Any] = {
            "schedulerName": "kubestow",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {self.rng.choice(("requests", "limits")): {"cpu": self._cpu()}},
                }
            ],
        }
        for part in (self._distance, self._spread, self._volumes, self._local_volumes, self._devices):
            if self.rng.random() < 0.35:
                part(spec, names)
        self.template = {"metadata": {"labels": {"app": "w"}}, "spec": spec}
        for at in range(self.rng.randint(0, 4)):
            self._running(f"old{at}", self.rng.choice(names))

    @property
    def workload(self) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {
                "replicas": self.replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "w"}},
                "serviceName": "w",
                "template": self.template,
                "volumeClaimTemplates": self.claim_templates,
            },
        }

    def _cpu(self) -> str:
        return f"{self.rng.choice((300, 500, 800, 1500))}m"

    def _node(self, name: str, zone: str) -> None:
        taints = [{"key": "team", "value": "x", "effect": "NoSchedule"}] if self.rng.random() < 0.15 else []
        self._add(
            "v1",
            "Node",
            name,
            namespace="",
            labels={HOSTNAME: name, ZONE: zone},
            spec={"taints": taints, "unschedulable": self.rng.random() < 0.1},
            status={
                "allocatable": {
                    "cpu": str(self.rng.randint(1, 4)),
                    "memory": "8Gi",
                    "pods": str(self.rng.randint(2, 20)),
                }
            },
        )

    def _running(self, name: str, node: str) -> None:
        spec = {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}],
        }
        labels = {"app": self.rng.choice(("w", "other"))}
        self._add("v1", "Pod", name, labels=labels, spec=spec, status={"phase": "Running"})

    def _distance(self, spec: dict[str, Any], _: list[str]) -> None:
        term = {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": self.rng.choice((HOSTNAME, ZONE))}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _spread(self, spec: dict[str, Any], _: list[str]) -> None:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": self.rng.choice((HOSTNAME, ZONE)),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "w"}},
            }
        ]

    def _volumes(self, _: dict[str, Any], names: list[str]) -> None:
        """Add a class of node-local volumes whose driver publishes capacity."""
        self._add(
            "storage.k8s.io/v1",
            "StorageClass",
            "fast",
            namespace="",
            annotations={"storageclass.kubernetes.io/is-default-class": "true"},
            provisioner="csi.example.com",
            volumeBindingMode="WaitForFirstConsumer",
        )
        driver = {"storageCapacity": True, "attachRequired": False}
        self._add("storage.k8s.io/v1", "CSIDriver", "csi.example.com", namespace="", spec=driver)
        for name in names:
            drivers = [{"name": "csi.example.com", "nodeID": name, "topologyKeys": [HOSTNAME]}]
            self._add("storage.k8s.io/v1", "CSINode", name, namespace="", spec={"drivers": drivers})
            self._add(
                "storage.k8s.io/v1",
                "CSIStorageCapacity",
                f"c-{name}",
                storageClassName="fast",
                nodeTopology={"matchLabels": {HOSTNAME: name}},
                capacity=f"{self.rng.choice((0, 5, 12, 25))}Gi",
            )
        named = {} if self.rng.random() < 0.5 else {"storageClassName": "fast"}
        self._claim_template("data", named)

    def _local_volumes(self, _: dict[str, Any], names: list[str]) -> None:
        self._add(
            "storage.k8s.io/v1",
            "StorageClass",
            "local",
            namespace="",
            provisioner="kubernetes.io/no-provisioner",
            volumeBindingMode="WaitForFirstConsumer",
        )
        for at in range(self.rng.randint(0, 6)):
            node = self.rng.choice(names)
            term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": f"{self.rng.choice((3, 8))}Gi"},
                "storageClassName": "local",
                "local": {"path": f"/d{at}"},
                "persistentVolumeReclaimPolicy": "Retain",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            }
            self._add("v1", "PersistentVolume", f"pv{at}", namespace="", spec=spec, status={"phase": "Available"})
        self._claim_template("disk", {"storageClassName": "local"})

    def _claim_template(self, name: str, more: dict[str, Any]) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, **more}
        self.claim_templates.append({"metadata": {"name": name}, "spec": spec})

    def _devices(self, spec: dict[str, Any], names: list[str]) -> None:
        self._add("resource.k8s.io/v1", "DeviceClass", "gpu", namespace="", spec={})
        for name in names:
            devices = [{"name": f"d{at}"} for at in range(self.rng.randint(0, 4))]
            if devices:
                pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
                body = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
                self._add("resource.k8s.io/v1", "ResourceSlice", f"s-{name}", namespace="", spec=body)
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": self.rng.randint(1, 2)}}
        template = {"spec": {"devices": {"requests": [request]}}}
        self._add("resource.k8s.io/v1", "ResourceClaimTemplate", "t", spec=template)
        spec["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]

    def _add(
        self,
        version: str,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **body: Any,
    ) -> None:
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        metadata |= {"namespace": namespace} if namespace else {}
        self.objects.append({"apiVersion": version, "kind": kind, "metadata": metadata, **body})


def run(objects: list[dict[str, Any]], file: Path, question: WhatIfRequest | None = None) -> Outcome:
    """Simulate the objects, and answer the question on the cluster as it is then.

    Afterwards each index of the daemon's cache is right.
    """
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), encoding="utf-8")
    found = load((str(file),)).objects
    election, connection = LeaderElection(), ClientConnection(qps=-1.0)
    config = Configuration(leader_election=election, client_connection=connection)
    daemons: list[Daemon] = []

    def daemon_at(url: str, token: str) -> Daemon:
        options = RunOptions(config=config, master=url, token=token, port=0, drain_timeout_s=5.0, trial_s=60.0)
        daemons.append(Daemon(options))
        return daemons[-1]

    simulated = simulate(
        complete(found),
        daemon_at,
        ReadOptions(scheduler_names=("kubestow",), timeout_s=120.0),
        clock=SystemClock(),
        question=question and with_objects(question, found),
    )
    outcome = asyncio.run(simulated)
    assert [difference for daemon in daemons for difference in audited(daemon)] == []
    return outcome


def answered(case: Case, file: Path) -> WhatIfAnswer:
    """Return the answer for the case's workload, as a user writes it."""
    outcome = run(case.objects, file, WhatIfRequest(manifests=(copy.deepcopy(case.workload),)))
    assert outcome.what_if is not None
    return outcome.what_if


def _parts() -> Iterator[Any]:
    for part in range(_PARTS):
        yield pytest.param(part, marks=() if part == 0 else pytest.mark.nightly)


@pytest.mark.parametrize("part", list(_parts()))
@pytest.mark.usefixtures("guest")
def test_as_many_replicas_fit_as_the_answer_says(part: int, tmp_path: Path) -> None:
    """The answer is what happens. Where nodes are equally good, chance can decide how many fit: it is given three tries."""
    differing = []
    for seed in range(part * CASES // _PARTS, (part + 1) * CASES // _PARTS):
        case = Case(seed)
        answer = answered(case, tmp_path / "in.json")
        happened: set[int] = set()
        for _ in range(_TRIES):
            outcome = run([*case.objects, case.workload], tmp_path / "in.json")
            happened.add(sum(1 for each in outcome.placements if each.node))
            if answer.placed in happened:
                break
        if answer.placed not in happened or answer.replicas != case.replicas:
            differing.append((seed, answer.placed, happened, answer.cause))
    assert differing == []


def _write(file: Path, *objects: dict[str, Any]) -> str:
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}), encoding="utf-8")
    return str(file)


NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}},
}
POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "w"},
    "spec": {
        "schedulerName": "kubestow",
        "priorityClassName": "gold",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    },
}
GOLD: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gold"},
    "value": 5,
}


@pytest.mark.usefixtures("guest")
@pytest.mark.parametrize(("flags", "code", "shown"), [
    pytest.param([], 0, "1 of 1 pod fits\n  default/w → n1\n", id="it fits"),
    pytest.param(["--replicas", "3"], 2, "2 of 3 pods fit\n", id="two of three fit"),
    pytest.param(["--replicas", "3", "--add-node-like", "n1"], 0, "3 of 3 pods fit\n", id="with another node"),
    pytest.param(["--cordon", "n1"], 2, "0 of 1 pod fits\n", id="without the node"),
    pytest.param(["--drain", "n9"], 3, "", id="a node that does not exist"),
])  # fmt: skip
def test_a_dump_is_as_good_as_a_running_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, shown: str
) -> None:
    """The PriorityClass comes from the dump: a running scheduler does not watch them."""
    dump, question = _write(tmp_path / "dump.json", NODE, GOLD), _write(tmp_path / "pod.json", POD)

    found = cli.main(["what-if", "--cluster", dump, "-f", question, *flags])

    out = capsys.readouterr()
    assert (found, out.out[: len(shown)]) == (code, shown)
    assert ("node n9 does not exist" in out.err) == (code == 3)


@pytest.mark.usefixtures("guest")
def test_a_question_without_a_pod_is_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To drain an empty node is a question, too: its pods fit elsewhere."""
    dump = _write(tmp_path / "dump.json", NODE, GOLD)
    question = _write(tmp_path / "web.json", workload("Deployment", "web", 0))

    empty = cli.main(["what-if", "--cluster", dump, "-f", question])
    drained = cli.main(["what-if", "--cluster", dump, "--drain", "n1"])

    assert (empty, drained) == (5, 0)
    assert capsys.readouterr().out == "nothing to place: the manifests have no pod\nno pod has to be placed\n"


@pytest.mark.usefixtures("guest")
def test_pods_of_a_dump_that_wait_for_the_default_scheduler_are_placed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take capacity in the cluster, too."""
    spec = {key: value for key, value in POD["spec"].items() if key != "schedulerName"}
    waiting = POD | {"metadata": {"name": "first"}, "spec": spec}
    dump = _write(tmp_path / "dump.json", NODE, GOLD, waiting)
    question = _write(tmp_path / "pod.json", POD)

    found = cli.main(["what-if", "--cluster", dump, "-f", question, "--replicas", "2"])

    assert (found, capsys.readouterr().out.splitlines()[0]) == (2, "1 of 2 pods fit")
