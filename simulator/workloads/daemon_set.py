"""The DaemonSet controller.

Upstream: pkg/controller/daemon/daemon_controller.go DaemonSetsController
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import required_affinity_matches, untolerated
from scheduler.manifests.pods import daemon_pod, with_daemon_tolerations
from simulator.controllers.controller import is_finished
from simulator.workloads.pods import REVISION, Before, Object, Plan, is_ready, oldest_first
from simulator.workloads.specs import DaemonSetObject, scaled
from simulator.workloads.stateful_set import Revisions


class DaemonPods:
    """One sync of one DaemonSet: which node needs a pod, and which pods go.

    Upstream: pkg/controller/daemon/daemon_controller.go updateDaemonSet
    """

    def __init__(
        self, spec: DaemonSetObject, owner: Object, pods: Sequence[Object], *, revisions: Revisions, before: Before
    ) -> None:
        self._spec = spec
        self._owner = owner
        self._revisions = revisions
        self._template = spec.spec.template.raw | {"spec": with_daemon_tolerations(spec.spec.template.spec)}
        self._shape = from_manifest(Pod, {"metadata": {"name": "daemon"}, "spec": self._template["spec"]})
        self._create: list[Object] = []
        self._delete: list[Object] = []
        self._by_node: dict[str, list[Object]] = defaultdict(list)
        for pod in oldest_first(pods, before):
            self._by_node[target_node(pod)].append(pod)
        rolling = spec.spec.update_strategy.rolling
        self._surge_limit = rolling.max_surge
        self._unavailable_limit = rolling.max_unavailable

    def plan(self, nodes: Sequence[Node]) -> Plan:
        """Return the pods to create and to delete. Cost: linear in nodes and pods of the DaemonSet."""
        wanted = {node.metadata.name: self._should_run(node) for node in nodes}
        surge = scaled(self._surge_limit, len(wanted), default=0, rounds_up=True)
        for name, (should_run, should_stay) in wanted.items():
            self._sync_node(name, should_run=should_run, should_stay=should_stay, surges=surge > 0)
        for name in self._by_node.keys() - wanted.keys():
            self._delete += self._by_node[name]
        is_rolling = self._spec.spec.update_strategy.type == "RollingUpdate"
        outdated = [pod for pods in self._by_node.values() for pod in pods if self._revisions.is_outdated(pod)]
        if outdated and is_rolling and not self._create and not self._delete:
            desired = [name for name, (should_run, _) in wanted.items() if should_run]
            (self._roll_with_surge if surge else self._roll)(desired, surge)
        return Plan(tuple(self._create), delete=tuple(self._delete), needs_readiness=bool(outdated))

    def _should_run(self, node: Node) -> tuple[bool, bool]:
        """Whether a pod belongs on the node, and whether one that is there may stay.

        Upstream: pkg/controller/daemon/daemon_controller.go NodeShouldRunDaemonPod
        """
        name, labels, spec = node.metadata.name, node.metadata.labels, self._shape.spec
        if spec.node_name not in {"", name} or not required_affinity_matches(self._shape, name, labels):
            return False, False
        taints = node.spec.taints
        if untolerated(spec.tolerations, taints) is None:
            return True, True
        evicting = [taint for taint in taints if taint.effect == "NoExecute"]
        return False, untolerated(spec.tolerations, evicting) is None

    def _sync_node(self, name: str, *, should_run: bool, should_stay: bool, surges: bool) -> None:
        """Plan the pods of one node.

        Upstream: pkg/controller/daemon/daemon_controller.go podsShouldBeOnNode
        """
        pods = self._by_node.get(name, [])
        if not should_stay:
            self._delete += pods
            return
        finished = [pod for pod in pods if is_finished(pod)]
        running = [pod for pod in pods if not is_finished(pod)]
        self._delete += finished
        if should_run and not pods:
            self._create.append(self._new(name))
        elif surges:
            self._keep_two(running)
        else:
            scheduled_first = sorted(running, key=lambda pod: not pod["spec"].get("nodeName"))
            self._delete += scheduled_first[1:]

    def _keep_two(self, running: list[Object]) -> None:
        """With surge a node may have one old and one new pod, as long as the old one is ready and the new one is not."""
        new = [pod for pod in running if not self._revisions.is_outdated(pod)]
        old = [pod for pod in running if self._revisions.is_outdated(pod)]
        self._delete += [*new[1:], *old[1:]]
        if new and old and (not is_ready(old[0]) or is_ready(new[0])):
            self._delete.append(old[0])

    def _roll(self, desired: list[str], _: int) -> None:
        """Replace outdated pods, at most `maxUnavailable` nodes at a time.

        Upstream: pkg/controller/daemon/update.go rollingUpdate
        """
        limit = scaled(self._unavailable_limit, len(desired), default=1, rounds_up=True)
        unavailable = 0
        candidates = []
        for name in desired:
            pod = self._by_node[name][0] if self._by_node.get(name) else None
            if pod is None or not is_ready(pod):
                unavailable += 1
            if pod is not None and self._revisions.is_outdated(pod):
                if is_ready(pod):
                    candidates.append(pod)
                else:
                    self._delete.append(pod)
        self._delete += candidates[: max(0, limit - unavailable)]

    def _roll_with_surge(self, desired: list[str], surge: int) -> None:
        surging = 0
        candidates = []
        for name in desired:
            pods = self._by_node.get(name, [])
            old = next((pod for pod in pods if self._revisions.is_outdated(pod)), None)
            if old is None:
                continue
            if len(pods) > 1:
                surging += 1
            elif is_ready(old):
                candidates.append(name)
            else:
                self._create.append(self._new(name))
        self._create += [self._new(name) for name in candidates[: max(0, surge - surging)]]

    def _new(self, node: str) -> Object:
        pod = daemon_pod(self._owner, self._template, node)
        if self._revisions.update:
            pod["metadata"].setdefault("labels", {})[REVISION] = self._revisions.update
        return pod


def target_node(pod: Object) -> str:
    """Return the node that a daemon pod is on or is made for, "" for a pod that names none.

    Upstream: pkg/controller/daemon/util/daemonset_util.go GetTargetNodeName
    """
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    required: Any = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (required.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            if (
                field.get("key") == "metadata.name"
                and field.get("operator") == "In"
                and len(field.get("values") or ()) == 1
            ):
                return str(field["values"][0])
    return ""
