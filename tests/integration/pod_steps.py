"""Steps of histories that change nodes, pods and budgets. `n` picks an object that the step can apply to, counted round and round."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from simulator.apiserver import ApiServer, Refused
from simulator.builders.core import PodBuilder, node, pod
from tests.integration.daemon_laws import OURS, Object
from tests.support.invariants import Witness
from tests.support.volumebuilders import HOSTNAME

THEIRS: Final = "default-scheduler"
ZONE: Final = "zone"
RACK: Final = "example.com/rack"
TEAM: Final = "team"
SHARED: Final = "shared"
"""The node that other schedulers bind to without a check, and that may shrink: overcommitting it proves nothing."""
RACKS: Final = {"n1": "r1", SHARED: "r1", "n2": "r2"}
"""Racks with storage. Each other node has a rack without storage."""
NODES: Final = tuple(RACKS)
PRIORITIES: Final[dict[str, Object]] = {
    "mid": {"value": 100},
    "high": {"value": 1000},
    "meek": {"value": 1000, "preemptionPolicy": "Never"},
}
"""Priority classes. Pods without one have priority 0."""
WIDGET: Final = "example.com/widget"
"""An extended resource that no driver serves: nodes count it."""
_WIDGETS: Final = "4"
_MEMORY: Final = "8Gi"
_CLINGING: Final = "example.com/clings"
APART, TOGETHER, SPREAD, SPREAD_HOSTS, ZONED = "apart", "together", "spread", "spread over hosts", "zoned"


class Rules(NamedTuple):
    """What a pod requires of nodes and of other pods; its rule is about pods of its team."""

    rule: str = ""
    team: str = ""
    memory_gi: int = 0
    widgets: int = 0
    overhead_milli_cpu: int = 0
    tolerates: bool = False
    class_name: str = ""


class PodSteps:
    pods_per_node = 5

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.witness = Witness(server)
        self._largest: dict[str, int] = {}
        self._bursts = 0
        self._promises: dict[str, str] = {}
        self._bound_by_another: set[str] = set()
        for name, more in PRIORITIES.items():
            server.create("priorityclasses", {"metadata": {"name": name}, **more})

    # -- nodes -----------------------------------------------------------------------------------------------------------

    def add_node(self, name: str, milli_cpu: int, zone: str) -> None:
        """Create the node unless it exists. A node that comes back may have another size."""
        with contextlib.suppress(Refused):
            count = min(self.pods_per_node, 8) if name == SHARED else self.pods_per_node
            made = node(name).cpu(f"{self._sized(name, milli_cpu)}m").pods(count).label(ZONE, zone)
            made = made.label(RACK, RACKS.get(name, f"of {name}")).memory(_MEMORY).resource(WIDGET, _WIDGETS)
            self.server.create("nodes", made.obj())

    def remove_node(self, n: int) -> None:
        """Delete the node; its pods stay."""
        for name in self._picked("nodes", n):
            self.server.delete("nodes", name)

    def remove_promised_node(self, n: int) -> None:
        """Delete a node that a pod of ours is nominated to."""
        promised = {obj["status"].get("nominatedNodeName") for obj in self._waiting()}
        for name in self._picked("nodes", n, lambda obj: obj["metadata"]["name"] in promised):
            self.server.delete("nodes", name)

    def cordon_node(self, n: int, is_cordoned: bool) -> None:
        for name in self._picked("nodes", n):
            self.server.patch("nodes", name, {"spec": {"unschedulable": is_cordoned or None}})

    def relabel_node(self, n: int, zone: str) -> None:
        for name in self._picked("nodes", n):
            self.server.patch("nodes", name, {"metadata": {"labels": {ZONE: zone}}})

    def resize_node(self, n: int, milli_cpu: int) -> None:
        for name in self._picked("nodes", n):
            patch = {"status": {"allocatable": {"cpu": f"{self._sized(name, milli_cpu)}m"}}}
            self.server.patch("nodes", name, patch, subresource="status")

    def taint_node(self, n: int, effect: str) -> None:
        """Replace the node's taints; no effect removes them."""
        for name in self._picked("nodes", n):
            taints = [{"key": "example.com/taint", "effect": effect}] if effect else None
            self.server.patch("nodes", name, {"spec": {"taints": taints}})

    # -- pods ------------------------------------------------------------------------------------------------------------

    def add_pod(
        self,
        name: str,
        milli_cpu: int,
        zone: str = "",
        port: int = 0,
        is_gated: bool = False,
        class_name: str = "",
        team: str = "",
    ) -> None:
        """Create one of ours unless there is a pod of that name."""
        built = pod(name).cpu(f"{milli_cpu}m")
        built = built.priority_class(class_name) if class_name else built
        built = built.label(TEAM, team) if team else built
        built = built.node_selector({ZONE: zone}) if zone else built
        built = built.host_port(port) if port else built
        self._create("pods", built.gate("example.com/wait") if is_gated else built)

    def add_burst(self, count: int, milli_cpu: int, class_name: str = "", team: str = "") -> None:
        """Create pods with names that no pod had before."""
        self._bursts += 1
        for i in range(count):
            self.add_pod(f"b{self._bursts}-{i}", milli_cpu, class_name=class_name, team=team)

    def add_foreign_pod(self, name: str, milli_cpu: int, class_name: str = "") -> None:
        built = pod(name).cpu(f"{milli_cpu}m").scheduler(THEIRS)
        self._create("pods", built.priority_class(class_name) if class_name else built)

    def promise(self, n: int, node_name: str) -> None:
        """Nominate a pod as its other scheduler; "" removes the nomination."""
        for name in self._picked("pods", n, lambda o: o["spec"]["schedulerName"] == THEIRS and is_waiting(o)):
            self._promises[name] = node_name
            status = {"status": {"nominatedNodeName": node_name or None}}
            self.server.patch("pods", name, status, subresource="status")

    def delete(self, name: str, *, at_once: bool) -> None:
        """Delete this pod as a user: it is no victim of a preemption."""
        self.witness.excuse(self.server.get("pods", name)["metadata"]["uid"])
        self.server.delete("pods", name, grace_s=0 if at_once else None)

    def delete_pod(self, n: int, at_once: bool) -> None:
        """Delete a pod. A bound pod that is not deleted at once holds its place until the cluster settles."""
        for name in self._picked("pods", n):
            self.delete(name, at_once=at_once)

    def delete_preemptor(self, n: int) -> None:
        """Delete a pod of ours that is nominated: its victims may be leaving."""
        nominated = {o["metadata"]["name"] for o in self._waiting() if o["status"].get("nominatedNodeName")}
        for name in self._picked("pods", n, lambda obj: obj["metadata"]["name"] in nominated):
            self.delete(name, at_once=True)

    def cling(self, n: int, is_clinging: bool) -> None:
        """Set or remove a finalizer, which keeps a deleted pod."""
        for name in self._picked("pods", n):
            finalizers = [_CLINGING] if is_clinging else None
            with contextlib.suppress(Refused):  # a pod that is being deleted gets no more finalizers
                self.server.patch("pods", name, {"metadata": {"finalizers": finalizers}})

    def protect(self, team: str, allowed: int | None) -> None:
        """Allow this many disruptions of the team; None removes the budget."""
        with contextlib.suppress(Refused):
            if allowed is None:
                self.server.delete("poddisruptionbudgets", team)
                return
            selector = {"matchLabels": {TEAM: team}}
            self.server.create("poddisruptionbudgets", {"metadata": {"name": team}, "spec": {"selector": selector}})
        if allowed is not None:
            status = {"status": {"disruptionsAllowed": allowed}}
            self.server.patch("poddisruptionbudgets", team, status, subresource="status")

    def replace_pod(self, n: int, milli_cpu: int) -> None:
        """Delete a pod and create another one of that name at once."""
        for name in self._picked("pods", n):
            self.delete(name, at_once=True)
            self.add_pod(name, milli_cpu)

    def finish_pod(self, n: int) -> None:
        for name in self._picked("pods", n, lambda obj: bool(obj["spec"].get("nodeName"))):
            self._finish(name)

    def finish_all(self) -> None:
        """Finish and delete all pods on nodes."""
        for obj in self.server.list("pods"):
            if obj["spec"].get("nodeName"):
                self._finish(obj["metadata"]["name"])
                self.delete(obj["metadata"]["name"], at_once=True)

    def _finish(self, name: str) -> None:
        self.server.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")

    def open_gate(self, n: int) -> None:
        for name in self._picked("pods", n, lambda obj: bool(obj["spec"].get("schedulingGates"))):
            self.server.patch("pods", name, {"spec": {"schedulingGates": None}})

    def bind_as_another(self, n: int, node_name: str = SHARED) -> None:
        """Bind a pod, ours or theirs, as another scheduler that checks nothing."""
        for name in self._picked("pods", n, is_waiting):
            self._bind_foreign(name, node_name)

    def _bind_foreign(self, name: str, node_name: str) -> None:
        self._bound_by_another.add(self.server.get("pods", name)["metadata"]["uid"])
        with contextlib.suppress(Refused):  # gated, or bound
            self.server.bind(name, node_name)

    # -- in-place resize -------------------------------------------------------------------------------------------------

    def grow_pod(self, n: int, milli_cpu: int) -> None:
        """Show that a kubelet has allocated more than the spec requests: a resize up, and one down that is not done.

        Only on the node that may be overcommitted: a kubelet does not wait for a Binding that is on its way.
        """
        for name in self._picked("pods", n, lambda obj: obj["spec"].get("nodeName") == SHARED):
            requests = self.server.get("pods", name)["spec"]["containers"][0]["resources"]["requests"]
            self._allocated(name, requests | {"cpu": f"{int(requests['cpu'].removesuffix('m')) + milli_cpu}m"})

    def shrink_pod(self, n: int) -> None:
        """Finish the resize: the pod holds what its spec requests."""
        for name in self._picked("pods", n, lambda obj: bool(obj["status"].get("containerStatuses"))):
            self._allocated(name, self.server.get("pods", name)["spec"]["containers"][0]["resources"]["requests"])

    def _allocated(self, name: str, requests: Object) -> None:
        base = {"name": "main", "image": "registry.example/app:1", "imageID": "", "ready": True, "restartCount": 0}
        status = base | {"allocatedResources": requests, "resources": {"requests": requests}}
        self.server.patch("pods", name, {"status": {"containerStatuses": [status]}}, subresource="status")

    # -- helpers ---------------------------------------------------------------------------------------------------------

    def _create(self, resource: str, built: Any) -> None:
        """Create the object unless it exists or is refused."""
        with contextlib.suppress(Refused):
            self.server.create(resource, built.obj())

    def _waiting(self) -> list[Object]:
        """Return the pods of ours without a node."""
        return [o for o in self.server.objects("pods") if o["spec"]["schedulerName"] == OURS and is_waiting(o)]

    def _is_foreign(self, obj: Object) -> bool:
        """Return whether another scheduler serves the pod or has bound it."""
        return obj["spec"]["schedulerName"] != OURS or obj["metadata"]["uid"] in self._bound_by_another

    def _sized(self, name: str, milli_cpu: int) -> int:
        """Return the size to use: a node that only we bind to never shrinks, so that overcommitting it is our fault."""
        size = milli_cpu if name == SHARED else max(milli_cpu, self._largest.get(name, 0))
        self._largest[name] = size
        return size

    def _picked(self, resource: str, n: int, wanted: Callable[[Object], bool] = lambda _: True) -> list[str]:
        """Return the name of the n-th wanted object, counted round and round; empty if there is none."""
        names = [obj["metadata"]["name"] for obj in self.server.objects(resource) if wanted(obj)]
        return [names[n % len(names)]] if names else []


def is_waiting(obj: Object) -> bool:
    return not obj["spec"].get("nodeName")


def ruled(built: PodBuilder, rules: Rules) -> PodBuilder:
    selector = {"matchLabels": {TEAM: rules.team}}
    built = built.label(TEAM, rules.team) if rules.team else built
    built = built.memory(f"{rules.memory_gi}Gi") if rules.memory_gi else built
    built = built.extended(WIDGET, str(rules.widgets)) if rules.widgets else built
    built = built.overhead(cpu=f"{rules.overhead_milli_cpu}m") if rules.overhead_milli_cpu else built
    built = built.toleration("example.com/taint") if rules.tolerates else built
    built = built.priority_class(rules.class_name) if rules.class_name else built
    match rules.rule:
        case "apart" | "together":
            term = {"labelSelector": selector, "topologyKey": HOSTNAME if rules.rule == APART else ZONE}
            kind = "podAntiAffinity" if rules.rule == APART else "podAffinity"
            return built.affinity({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
        case "spread" | "spread over hosts":
            key = ZONE if rules.rule == SPREAD else HOSTNAME
            constraint: dict[str, Any] = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            return built.set({"spec": {"topologySpreadConstraints": [constraint | {"labelSelector": selector}]}})
        case "zoned":
            return built.node_selector({ZONE: "a"})
    return built
