"""Why a tried pod of a random scenario may differ from kube-scheduler's verdict. Everything else about it must agree."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector
from tests.e2e.controlplane.build import MINOR
from tests.parity.admission import admitted
from tests.parity.known import REASONS
from tests.parity.recordings import Mode, Run
from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, differences
from tests.parity.words import Json

_KNOWN: Final = REASONS[Run(MINOR, Mode.PARITY)]
_EMPTY_SELECTOR: Final = ("PodTopologySpread/where the selector is empty nobody counts", "where two are nominated")
_SHARED_CLAIM: Final = next(
    place for place, known in _KNOWN.items() if "A claim counts against the attach limit" in known.where
)
_ANY_CAPACITY: Final = "upstream scores a node by any one of its capacity objects, ours by the largest"
_VOLUMES: Final = "VolumeBinding"
_TOO_MANY: Final = "node(s) exceed max volume count"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_PREEMPTION: Final = re.compile(r" (no new claims to deallocate, )?preemption: ")
"""Where the part of a message about the preemption starts. 1.36 says first that no claim was deallocated."""
_COUNTED: Final = re.compile(r"(\d+) ([^,]+?)(?:, (?=\d)|\.?$)")


def excuse(one: Scenario, name: str, theirs: Sequence[Verdict], ours: Verdict) -> str:
    """Why the tried pod may differ; "" if it may not. `theirs` are kube-scheduler's verdicts of several attempts."""
    # From 1.38 on an empty selector counts all pods (docs/spec/changes-1.38.md §1.2), so nothing is known to differ.
    if MINOR != "1.38" and _is_spread_with_all(one, name):
        return _why(_EMPTY_SELECTOR)
    if _is_of_several_capacities(one, name, theirs, ours):
        return _ANY_CAPACITY
    return _why(_SHARED_CLAIM) if _is_of_a_shared_claim(one, name, theirs[-1], ours) else ""


def _why(place: tuple[str, str]) -> str:
    known = _KNOWN.get(place)
    return known.why if known is not None else ""


def _is_spread_with_all(one: Scenario, name: str) -> bool:
    metadata, spec = one.asked[name]["metadata"], admitted(one.asked[name])["spec"]
    return any(other["metadata"]["namespace"] == metadata["namespace"] for other in one.waiting) and any(
        constraint["whenUnsatisfiable"] == "DoNotSchedule" and _takes_all(constraint.get("labelSelector"))
        for constraint in spec.get("topologySpreadConstraints", ())
    )


def _takes_all(selector: Json | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


# -- several capacity objects of a class for one node ------------------------------------------------------------------


def _is_of_several_capacities(one: Scenario, name: str, theirs: Sequence[Verdict], ours: Verdict) -> bool:
    """Whether only scores of nodes with several capacity objects differ, and kube-scheduler gave each of ours as well."""
    last, wanted = theirs[-1], ours.scores.get(_VOLUMES, {})
    if not last.node or not ours.node or last.node not in last.best():
        return False
    row = dict(last.scores.get(_VOLUMES, {}))
    for node in row.keys() & _nodes_with_several(one, name):
        if wanted.get(node) in {seen.scores.get(_VOLUMES, {}).get(node) for seen in theirs}:
            row[node] = wanted[node]
    likened = replace(last, scores={**last.scores, _VOLUMES: row}, node=min(ours.best()))
    return not differences(likened, ours)


def _nodes_with_several(one: Scenario, name: str) -> set[str]:
    used = _claims_of(one.asked[name])
    classes = {
        claim["spec"].get("storageClassName")
        for claim in one.storage.claims
        if (claim["metadata"]["namespace"], claim["metadata"]["name"]) in used
    }
    several = set()
    for node in one.nodes:
        counts = Counter(
            each["storageClassName"]
            for each in one.storage.settings
            if each["kind"] == "CSIStorageCapacity" and each["storageClassName"] in classes and _selects(each, node)
        )
        if any(count > 1 for count in counts.values()):
            several.add(node["metadata"]["name"])
    return several


def _selects(capacity: Json, node: Json) -> bool:
    topology = capacity.get("nodeTopology")
    labels = node["metadata"].get("labels", {})
    return topology is not None and from_manifest(LabelSelector, topology).matches(labels)


# -- a volume that only a nominated pod shares -------------------------------------------------------------------------


def _is_of_a_shared_claim(one: Scenario, name: str, theirs: Verdict, ours: Verdict) -> bool:
    """Whether the only difference is that nodes of nominated pods with the same volume are at their attach limit for us."""
    most = len(_nodes_of_shared_volumes(one, name))
    if theirs.node or ours.node or replace(theirs, message="") != replace(ours, message=""):
        return False
    filtered, between, tried = _parts(theirs.message)
    our_filtered, our_between, our_tried = _parts(ours.message)
    more = our_filtered - filtered
    moved = more.total()
    return (
        0 < moved <= most
        and between == our_between
        and more.keys() == {_TOO_MANY}
        and (filtered - our_filtered).total() == moved
        and (tried - our_tried).keys() <= {_NOT_HELPFUL}
        and (tried - our_tried).total() == (our_tried - tried).total() <= moved
    )


def _nodes_of_shared_volumes(one: Scenario, name: str) -> set[str]:
    """Nodes to which a pod is nominated that uses a volume of the tried pod, which no pod on that node uses."""
    wanted = _volumes_of(one, one.asked[name])
    on_node = {(pod["spec"].get("nodeName"), volume) for pod in one.pods for volume in _volumes_of(one, pod)}
    found = set()
    for other in one.waiting:
        node = other.get("status", {}).get("nominatedNodeName")
        if node and any((node, volume) not in on_node for volume in wanted & _volumes_of(one, other)):
            found.add(node)
    return found


def _volumes_of(one: Scenario, pod: Json) -> set[str]:
    """The volumes of the pod's bound claims."""
    used = _claims_of(pod)
    names = (
        claim["spec"].get("volumeName")
        for claim in one.storage.claims
        if (claim["metadata"]["namespace"], claim["metadata"]["name"]) in used
    )
    return {name for name in names if name}


def _claims_of(pod: Json) -> set[tuple[str, str]]:
    volumes: Iterable[Json] = pod["spec"].get("volumes", ())
    named = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes)
    return {(pod["metadata"]["namespace"], claim) for claim in named if claim}


def _parts(message: str) -> tuple[Counter[str], str | None, Counter[str]]:
    """Return what was filtered, what stands before the preemption, and what the preemption tried."""
    filtered, between, tried = [*_PREEMPTION.split(message, maxsplit=1), None, ""][:3]
    return _counts(filtered or ""), between, _counts(tried or "")


def _counts(message: str) -> Counter[str]:
    """Reason → nodes, of `0/5 nodes are available: 1 this, 4 that.`"""
    return Counter({why: int(count) for count, why in _COUNTED.findall(message.partition(": ")[2])})
